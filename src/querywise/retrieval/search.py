"""Search results for a query: BM25's best documents, in its order or in a fitted ranker's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from querywise.contracts.answers import adapter_of
from querywise.data.collections import Collection
from querywise.data.judged import Candidates
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import run_columns
from querywise.errors import DataError
from querywise.retrieval.features import TOP, candidates_for, moved_by
from querywise.retrieval.index import Index
from querywise.retrieval.indexed_vectors import without_vectors
from querywise.retrieval.scores import BM25, Smoothing
from querywise.runtime.arrays import Floats

if TYPE_CHECKING:
    from querywise.contracts.answers import Scorer


class SearchResult(NamedTuple):
    """A document in the search results."""

    document: str
    title: str
    snippet: str
    score: float
    bm25: float
    bm25_rank: int | None  # None: only vectors found it


def judged_query(collection: Collection, query: str) -> tuple[str, dict[str, int]]:
    """Return the text and the judgments of a collection's query, given its text or its id."""
    table = collection.queries
    if table is None or not collection.judgements:
        raise DataError(f"{collection.name}: it has no queries with judgements, so nothing is known to be relevant.")
    texts = table.texts or (None,) * len(table)
    for query_id, text in zip(table.ids, texts, strict=True):
        if query in (query_id, text):
            return text or query, collection.grades().get(query_id, {})
    raise DataError(
        f"{collection.name}: none of its {len(table)} queries has the id or the text {query!r}; the first is "
        f"{table.ids[0]!r}, {(texts[0] or '')!r:.80}."
    )


def answer(
    index: Index,
    text: str,
    *,
    top: int | None = None,
    ranker: Scorer | None = None,
    smoothing: Smoothing | None = None,
    vector: Floats | None = None,
    vector_top: int | None = None,
) -> list[SearchResult]:
    """Return the best documents for a query, best first; with a ranker, all candidates in the ranker's order.

    `vector` is the query's, for a ranker and an index with vectors. Without a ranker, BM25 alone finds and ranks.
    """
    table = QueryTable(("query",), texts=(text,), vectors=None if vector is None else vector[None, :])
    searched = without_vectors(index) if ranker is None else index
    depth = TOP if ranker is None and top is None else top
    moved = moved_by(adapter_of(ranker), table.vectors)
    candidates = candidates_for(searched, table, top=depth, vector_top=vector_top, smoothing=smoothing, **moved)
    assert candidates.document_ids is not None
    bm25 = candidates.features[:, candidates.column_of(BM25)]
    scores = bm25 if ranker is None or not len(bm25) else ranker.predict(candidates)
    by_words = _found_by_words(candidates)
    found = []
    for row in np.argsort(-scores, kind="stable").tolist():
        place = index.place_of(candidates.document_ids[row])
        assert place is not None
        found.append(
            SearchResult(
                candidates.document_ids[row],
                index.titles[place],
                index.snippets[place],
                float(scores[row]),
                float(bm25[row]),
                row + 1 if row < by_words else None,
            )
        )
    return found


def _found_by_words(candidates: Candidates) -> int:
    """Return how many of the candidates BM25 found; they come first, in its order."""
    runs = [run for run in run_columns(candidates.feature_names) if run.name == "bm25"]
    return int(np.sum(candidates.features[:, runs[0].reciprocal_rank] > 0)) if runs else len(candidates.features)
