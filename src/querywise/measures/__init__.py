"""Scores → order → measures."""
