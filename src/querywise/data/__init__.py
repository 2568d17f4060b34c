"""Readers that turn a user's data into Judged."""
