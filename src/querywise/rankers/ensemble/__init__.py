"""Ensembles of rankers, with weights for all queries or for each."""
