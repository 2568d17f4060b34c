"""Runs from a text collection's own index: BM25 and three language models, as four search engines would return.

If its documents have vectors, these make a run too.
"""

from __future__ import annotations

import numpy as np

from querywise.data.collections import Collection
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import Run
from querywise.errors import DataError
from querywise.retrieval.bm25 import bm25
from querywise.retrieval.index import Index
from querywise.retrieval.indexed_vectors import vectors_of
from querywise.retrieval.scores import NAMES, Smoothing, high_level
from querywise.runtime.progress import track

_HIGH_LEVEL = [name.partition(".")[2] for name in NAMES if name.startswith("H")]
VECTORS = "vectors"
RUNS = tuple(name for name in _HIGH_LEVEL if name != "log_bm25")  # its order is BM25's


def runs_of(collection: Collection, index: Index, *, top: int = 100) -> list[Run]:
    """Return each ranker's `top` documents with a query word, for every query; ties are in index order.

    If documents and queries have vectors, the `top` most similar documents make one more run, called `vectors`.
    """
    if collection.queries is None or collection.queries.texts is None:
        raise DataError(f"{collection.name}: the collection has no queries with a text; runs are answers to queries.")
    smooth, field = Smoothing(), index.fields["both"]
    answers: dict[str, dict[str, dict[str, float]]] = {name: {} for name in RUNS}
    for query, text in zip(track(collection.queries.ids, "Runs"), collection.queries.texts, strict=True):
        terms = index.numbers_of(text or "")
        matching = np.flatnonzero(bm25(index, text or "", smooth) > 0)
        if len(matching):
            table = high_level(field, terms, matching, smooth)
            for name in RUNS:
                scores = table[:, _HIGH_LEVEL.index(name)]
                best = np.argsort(-scores, kind="stable")[:top]
                ids = [index.document_ids[int(matching[place])] for place in best]
                answers[name][query] = dict(zip(ids, scores[best].tolist(), strict=True))
    return [*(Run(name, answers[name]) for name in RUNS), *_similar(collection.queries, index, top)]


def _similar(queries: QueryTable, index: Index, top: int) -> list[Run]:
    """Return the run of the vectors, if any; a zero vector finds nothing."""
    vectors = vectors_of(index)
    if vectors is None or queries.vectors is None:
        return []
    lists = {}
    for query, found in zip(queries.ids, vectors.search(queries.vectors, top=top), strict=True):
        ids = [index.document_ids[number] for number in found.documents.tolist()]
        if ids:
            lists[query] = dict(zip(ids, found.scores.tolist(), strict=True))
    return [Run(VECTORS, lists)]
