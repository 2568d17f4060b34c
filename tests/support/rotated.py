"""A collection whose query vectors are those of their answers, rotated."""

from __future__ import annotations

from typing import Any

import numpy as np

from querywise import AdaptedVectors
from querywise.data.vectors import as_vectors
from querywise.runtime.arrays import Floats

FIXED: dict[str, Any] = {"gamma": 4.0, "l2": 0.01, "gate": False}


def unit(table: Floats) -> Floats:
    found: Floats = table / np.sqrt((table**2).sum(axis=1))[:, None]
    return found


class World:
    """Documents in all directions; a query is near the document that a fixed rotation takes its answer to."""

    def __init__(self, queries: int = 150, documents: int = 60, dimension: int = 8, seed: int = 0) -> None:
        chance = np.random.default_rng(seed)
        self.turn = np.linalg.qr(chance.normal(size=(dimension, dimension)))[0]
        self.placed: Floats = unit(chance.normal(size=(documents, dimension)))
        self.answers = chance.integers(documents, size=queries)
        near = self.placed[self.answers] @ self.turn + 0.15 * chance.normal(size=(queries, dimension))
        self.asked: Floats = unit(near)
        self.documents = as_vectors([f"d{each}" for each in range(documents)], self.placed)
        self.queries = as_vectors([f"q{each}" for each in range(queries)], self.asked, what="query")
        self.judgments = {f"q{row}": {f"d{each}": 1.0} for row, each in enumerate(self.answers.tolist())}

    def fitted(self, kind: Any = "by-query", **settings: Any) -> AdaptedVectors:
        return AdaptedVectors(kind, **{**FIXED, **settings}).fit(self.queries, self.documents, self.judgments)
