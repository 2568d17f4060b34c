"""A query as a point."""
