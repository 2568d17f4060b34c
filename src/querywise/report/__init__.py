"""Results → something to look at. Formats, and never computes."""
