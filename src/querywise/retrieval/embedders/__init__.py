"""Embedders: models that turn texts into vectors, local, built from the collection, or behind a service's address."""
