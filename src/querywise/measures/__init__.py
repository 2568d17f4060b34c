"""Scores → order → how good it is."""
