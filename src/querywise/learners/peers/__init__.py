"""Rankers of other libraries, trained as their users train them: what ours are compared with."""
