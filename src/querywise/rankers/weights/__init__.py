"""Weights of first-stage runs: one for all queries, or for each query its own."""
