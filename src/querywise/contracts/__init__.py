"""The interfaces between the parts of the library."""
