"""Views: a query as a point."""
