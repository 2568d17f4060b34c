"""Rankers: one model for all queries, or a model chosen, trained or blended for each."""
