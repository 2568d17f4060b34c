"""Weights of first-stage runs: the same for all queries, or different for each."""
