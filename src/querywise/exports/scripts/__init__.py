"""Written into every export as they are: a check of the engine's scores, and a client that routes queries."""
