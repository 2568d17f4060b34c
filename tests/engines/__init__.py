"""Real search engines for tests: fetched, started on this machine, asked, stopped. `make engines` runs them."""
