"""Boosted trees, and features beside those of the query's other candidates."""
