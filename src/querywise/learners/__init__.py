"""Learners: weighted queries → a scoring function."""
