"""One module per command's whole job."""
