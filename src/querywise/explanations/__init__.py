"""Explanations of rankings."""
