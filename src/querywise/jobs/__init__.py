"""One module per whole job."""
