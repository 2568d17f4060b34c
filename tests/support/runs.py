"""Judged data with the columns of first-stage runs."""

from __future__ import annotations

import numpy as np

from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import run_columns
from tests.worlds import as_runs

RUNS = ("words", "vectors")


KINDS = (("error code", "stack trace", "exact name"), ("how can", "why does", "explain the"))


def planted(queries: int = 240, documents: int = 20, *, told: bool = True, seed: int = 0) -> Judged:
    """Two kinds of query: relevant documents stand out in the words' list of one kind and in the vectors' of the other.

    told: whether the text of a query says its kind; otherwise nothing does, and both runs are alike for all.
    """
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=queries)
    relevant = rng.random((queries, documents)) < 0.2
    relevant[:, 0] = True
    scores = rng.gamma(2.0, size=(queries, documents, 2))
    strength = np.stack([np.where(kind == 0, 3.0, 0.0), np.where(kind == 1, 3.0, 0.0)], axis=1)
    if not told:
        strength = np.full((queries, 2), 1.5)
    scores += relevant[:, :, None] * strength[:, None, :]
    words = KINDS if told else (KINDS[0] + KINDS[1],) * 2
    texts = [f"{words[each][rng.integers(len(words[each]))]} {rng.choice(['disk', 'queue', 'cache'])}" for each in kind]
    ids = tuple(f"q{number}" for number in range(queries))
    candidates = Candidates(
        scores.reshape(-1, 2),
        np.arange(queries + 1) * documents,
        ids,
        tuple(f"d{number}" for number in range(queries * documents)),
        queries=QueryTable(ids, texts=tuple(texts)),
    )
    return as_runs(Judged(candidates, relevant.ravel().astype(np.int64)), RUNS)


DATA = planted(120)


def lists_of(query: int) -> dict[str, dict[str, float]]:
    """The runs of a query as a request has them."""
    rows = DATA.candidates.rows(query)
    features, ids = DATA.candidates.features[rows], (DATA.candidates.document_ids or ())[rows]
    return {
        run.name: {ids[row]: features[row, run.score] for row in np.flatnonzero(features[:, run.reciprocal_rank])}
        for run in run_columns(DATA.feature_names)
    }


def text_of(query: int) -> str | None:
    table = DATA.candidates.queries
    assert table is not None
    assert table.texts is not None
    return table.texts[query]
