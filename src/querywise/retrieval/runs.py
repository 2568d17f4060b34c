"""Runs from a text collection's own index: BM25 and three language models, as four search engines would answer."""

from __future__ import annotations

import numpy as np

from querywise.data.collections import Collection
from querywise.data.runs import Run
from querywise.errors import DataError
from querywise.retrieval.bm25 import bm25
from querywise.retrieval.index import Index
from querywise.retrieval.scores import NAMES, Smoothing, high_level
from querywise.runtime.progress import track

_HIGH_LEVEL = [name.partition(".")[2] for name in NAMES if name.startswith("H")]
RUNS = tuple(name for name in _HIGH_LEVEL if name != "log_bm25")  # whose order is BM25's


def runs_of(collection: Collection, index: Index, *, top: int = 100, smoothing: Smoothing | None = None) -> list[Run]:
    """Each ranker's `top` documents of those with a word of the query, for every query; of equals the earlier."""
    if collection.queries is None or collection.queries.texts is None:
        raise DataError(f"{collection.name}: the collection has no queries with a text; runs are answers to queries.")
    smooth, field = smoothing or Smoothing(), index.fields["both"]
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
    return [Run(name, answers[name]) for name in RUNS]
