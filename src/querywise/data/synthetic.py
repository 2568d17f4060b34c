"""Judged sets generated from a seed, for the demonstration, the benchmarks and experiments."""

from __future__ import annotations

import numpy as np

from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable


def make_judged(
    queries: int, documents: int, features: int, *, kinds: int = 1, noise: float = 1.0, grades: int = 3, seed: int = 0
) -> Judged:
    """Generate queries of several kinds, each kind with its own linear relevance function.

    A query's documents cluster around a center that depends on its kind, so that the features reveal the kind without
    containing it. All kinds share half of their relevance function; the other half is their own. Labels are assigned by
    this function plus noise: the top tenth gets the best grade, the next tenth the one below, and so on to 0.

    Args:
        queries: how many; their ids are q1, q2, and so on.
        documents: how many each query has.
        features: how many each document has.
        kinds: how many kinds of queries there are; a query's kind is its class.
        noise: the standard deviation of the noise added to a document's merit, whose own is about 1; non-negative.
        grades: the number of grades; they run from 0 to this number minus 1.
        seed: the same seed gives the same numbers.

    Returns:
        A Judged set.

    >>> from querywise import make_judged
    >>> make_judged(queries=30, documents=10, features=4, kinds=2)
    Judged(30 queries, 300 documents, 4 features, grades 0: 240, 1: 30, 2: 30)
    """
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=features)
    tastes = shared + rng.normal(size=(kinds, features)) * (kinds > 1)
    centres = rng.normal(size=(kinds, features))
    kind = rng.integers(kinds, size=queries)
    x = rng.normal(size=(queries, documents, features)) + centres[kind][:, None, :]
    x += 0.5 * rng.normal(size=(queries, 1, features))
    merit = np.einsum("qdf,qf->qd", x, tastes[kind]) / np.sqrt(features)
    merit += noise * rng.normal(size=merit.shape)
    rank = np.argsort(np.argsort(-merit, axis=1), axis=1)
    step = max(documents // 10, 1)
    labels = np.maximum(grades - 1 - rank // step, 0)
    ids = tuple(f"q{number + 1}" for number in range(queries))
    table = QueryTable(ids, classes=tuple(f"kind {number + 1}" for number in kind))
    starts = np.arange(queries + 1) * documents
    return Judged(Candidates(x.reshape(-1, features), starts, ids, queries=table), labels.ravel())
