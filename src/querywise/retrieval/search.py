"""What a text collection's own index finds: search results for a query, and runs for all queries.

Search results are BM25's best documents, in its order or in a fitted ranker's. Runs are those of BM25 and three
language models, as four search engines would return them; if the documents have vectors, these make a run too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.contracts.answers import Scorer, adapter_of
from querywise.data.collections import Collection
from querywise.data.judged import Candidates
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import Run, run_columns
from querywise.errors import DataError
from querywise.retrieval.bm25 import bm25
from querywise.retrieval.features import TOP, candidates_for, moved_by
from querywise.retrieval.index import Index
from querywise.retrieval.indexed_vectors import vectors_of, without_vectors
from querywise.retrieval.scores import BM25, NAMES, Smoothing, high_level
from querywise.runtime.arrays import Floats
from querywise.runtime.progress import track

_HIGH_LEVEL = [name.partition(".")[2] for name in NAMES if name.startswith("H")]
VECTORS = "vectors"
RUNS = tuple(name for name in _HIGH_LEVEL if name != "log_bm25")  # its order is BM25's


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
        raise DataError(f"{collection.name}: it has no queries with judgments, so nothing is known to be relevant.")
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

    `vector` is the query's vector, which a ranker needs if the index has vectors. Without a ranker, BM25 alone finds
    and ranks.
    """
    table = QueryTable(("query",), texts=(text,), vectors=None if vector is None else vector[None, :])
    searched = without_vectors(index) if ranker is None else index
    depth = TOP if ranker is None and top is None else top
    moved = moved_by(adapter_of(ranker), table.vectors)
    candidates = candidates_for(searched, table, top=depth, vector_top=vector_top, smoothing=smoothing, **moved)
    assert candidates.document_ids is not None
    matches = candidates.features[:, candidates.column_of(BM25)]
    scores = matches if ranker is None or not len(matches) else ranker.predict(candidates)
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
                float(matches[row]),
                row + 1 if row < by_words else None,
            )
        )
    return found


def _found_by_words(candidates: Candidates) -> int:
    """Return how many of the candidates BM25 found; they come first, in its order."""
    runs = [run for run in run_columns(candidates.feature_names) if run.name == "bm25"]
    return int(np.sum(candidates.features[:, runs[0].reciprocal_rank] > 0)) if runs else len(candidates.features)


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
