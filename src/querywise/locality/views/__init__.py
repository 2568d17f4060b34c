"""Views: queries as points."""
