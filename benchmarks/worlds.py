"""The worlds of `make_judged`, sampled more than once and without copies of a large table."""

from __future__ import annotations

import numpy as np

from querywise import Candidates, Judged

_BLOCK = 500  # queries in hand at a time


class World:
    """The tastes and centres that make_judged(…, features, kinds=…, seed=…) draws; its queries are drawn apart.

    Sets drawn with different seeds are training and test queries of one world.
    """

    def __init__(self, features: int, *, kinds: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        shared = rng.normal(size=features)
        self.tastes = shared + rng.normal(size=(kinds, features)) * (kinds > 1)
        self.centres = rng.normal(size=(kinds, features))

    def draw(self, queries: int, documents: int, *, grades: int = 3, noise: float = 1.0, seed: int) -> Judged:
        """Queries and labels by the recipe of make_judged, a block of queries at a time, in one table."""
        rng = np.random.default_rng([seed, 1])
        kinds, features = self.centres.shape
        kind = rng.integers(kinds, size=queries)
        x = np.empty((queries, documents, features))
        labels = np.empty((queries, documents), np.int64)
        for first in range(0, queries, _BLOCK):
            block = slice(first, min(first + _BLOCK, queries))
            part = x[block]
            rng.standard_normal(out=part)
            part += self.centres[kind[block]][:, None, :] + 0.5 * rng.normal(size=(len(part), 1, features))
            merit = (part @ self.tastes[kind[block]][:, :, None])[:, :, 0] / np.sqrt(features)
            merit += noise * rng.normal(size=merit.shape)
            rank = np.argsort(np.argsort(-merit, axis=1), axis=1)
            labels[block] = np.maximum(grades - 1 - rank // max(documents // 10, 1), 0)
        ids = tuple(f"s{seed}q{number + 1}" for number in range(queries))
        starts = np.arange(queries + 1) * documents
        return Judged(Candidates(x.reshape(-1, features), starts, ids), labels.ravel())
