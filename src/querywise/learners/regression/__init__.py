"""Regression on grades, for aTVT."""
