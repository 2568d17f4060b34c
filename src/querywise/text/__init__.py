"""Words: a tokeniser, an index, the 25 rankers, and candidates for a query."""
