"""Weighted queries → a scoring function."""
