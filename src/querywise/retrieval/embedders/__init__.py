"""Embedders: texts as vectors, by an embedding model of one's own, of the collection, or behind an address."""
