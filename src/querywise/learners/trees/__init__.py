"""Boosted trees, and features relative to the query's other candidates."""
