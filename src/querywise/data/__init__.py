"""Anything a user has → Judged."""
