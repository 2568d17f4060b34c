"""The weights of first-stage runs, read from the answer of any ranker that fuses runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from querywise.contracts.answers import Answer
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates
from querywise.data.normalisation import borda
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import run_columns
from querywise.errors import DataError
from querywise.runtime.arrays import Floats

Lists = Mapping[str, Mapping[str, float]]  # for one query: run → document → score


def run_weights(answer: Answer) -> Floats:
    """Return queries × runs: the weight of each run for each query, non-negative, each row summing to 1."""
    if answer.runs is None:
        raise _no_runs()
    return answer.runs.weights()


def weights_of_query(ranker: Ranker, query: QueryTable | None = None, lists: Lists | None = None) -> dict[str, float]:
    """Return the weight of each run for one query, from what is known before anything is fused.

    Args:
        ranker: a ranker that fuses runs.
        query: a table with that one query.
        lists: the runs' scores of the query's documents, if the weights depend on them. Without the lists, or without a
            vector if the weights depend on it, the query gets the global weights.

    The service and the routers compute their weights with this function too.

    """
    return named_weights(answer_to_query(ranker, query, lists))


def named_weights(answer: Answer) -> dict[str, float]:
    """Return the weight of each run, by name, for the first query of an answer."""
    names = () if answer.runs is None else answer.runs.names
    return dict(zip(names, run_weights(answer)[0].tolist(), strict=True))


def answer_to_query(ranker: Ranker, query: QueryTable | None = None, lists: Lists | None = None) -> Answer:
    """Return a fusing ranker's answer to one query; see `weights_of_query`."""
    names = ranker.feature_names_
    runs = tuple(run.name for run in run_columns(names))
    if not runs:
        raise _no_runs()
    stray = next((name for name in lists or {} if name not in runs), None)
    if stray is not None:
        raise DataError(f"There is no run {stray!r}; the model weighs {', '.join(runs)}.")
    table = QueryTable(("query",)) if query is None else query
    if table.vectors is None:
        table = replace(table, vectors=np.zeros((len(table), 0)))
    return ranker.answer(one_query(names, table, lists or {}))


def _no_runs() -> DataError:
    return DataError(
        "This model does not weigh first-stage runs, so it has no weights of runs. Those of `querywise fuse`, and of "
        "the methods weights and weights-by-query, have."
    )


def one_query(feature_names: tuple[str, ...] | None, query: QueryTable | None, lists: Lists) -> Candidates:
    """Return the documents of one query's lists, by id, with the columns of their runs; other features are 0."""
    documents = sorted({document for own in lists.values() for document in own})
    places = {document: place for place, document in enumerate(documents)}
    features = np.zeros((len(documents), len(feature_names or ())))
    for run in run_columns(feature_names):
        own = lists.get(run.name)
        if own:
            scores = np.array(list(own.values()), dtype=np.float64)
            rows = [places[document] for document in own]
            features[rows, run.score] = scores
            features[rows, run.reciprocal_rank] = 2 / (len(scores) + 1 - borda(scores))
    ids = ("query",) if query is None else query.ids
    starts = np.array([0, len(documents)])
    return Candidates(features, starts, ids, tuple(documents), feature_names=feature_names, queries=query)
