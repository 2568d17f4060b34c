"""One file per paper: its tables and figures, on the data at hand."""
