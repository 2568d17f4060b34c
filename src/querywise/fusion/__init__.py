"""The runs of several search engines as one ranking: read, put on one scale, combined, compared."""
