"""Ensembles of rankers, weighted for all queries or for each."""
