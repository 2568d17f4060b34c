"""Answers to a query: BM25's best documents, in its order or in a fitted ranker's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from querywise.data.collections import Collection
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.retrieval.features import candidates_for
from querywise.retrieval.index import Index
from querywise.retrieval.scores import BM25, Smoothing

if TYPE_CHECKING:
    from querywise.contracts.answers import Scorer


class Answer(NamedTuple):
    """One document found."""

    document: str
    title: str
    snippet: str
    score: float
    bm25: float
    bm25_rank: int


def judged_query(collection: Collection, query: str) -> tuple[str, dict[str, int]]:
    """The text and the judgements of a collection's query, named by its text or its id."""
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
    index: Index, text: str, *, top: int | None = None, ranker: Scorer | None = None, smoothing: Smoothing | None = None
) -> list[Answer]:
    """The best documents for a query, best first; with a ranker, BM25's `top` in the ranker's order."""
    candidates = candidates_for(index, QueryTable(("query",), texts=(text,)), top=top, smoothing=smoothing)
    assert candidates.document_ids is not None
    bm25 = candidates.features[:, candidates.column_of(BM25)]
    scores = bm25 if ranker is None or not len(bm25) else ranker.predict(candidates)
    found = []
    for row in np.argsort(-scores, kind="stable").tolist():
        place = index.place_of(candidates.document_ids[row])
        assert place is not None
        found.append(
            Answer(
                candidates.document_ids[row],
                index.titles[place],
                index.snippets[place],
                float(scores[row]),
                float(bm25[row]),
                row + 1,
            )
        )
    return found
