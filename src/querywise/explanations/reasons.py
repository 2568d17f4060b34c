"""Why a ranker orders the documents of many queries as it does, in short: for every query a few documents and features.

With c_j(d) what feature j adds to the score of document d, and a few candidates spread evenly over the query's ranking,
what a document has of a feature is c_j(d) less its mean over these candidates, divided by the spread of their scores.
The feature's share in the query's order is the spread of c_j over them, divided by the sum of these spreads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.contracts.answers import Answer
from querywise.data.judged import Judged
from querywise.errors import DataError
from querywise.evaluation.trained import Reasons
from querywise.explanations.contributions import contributions_in, one_query
from querywise.explanations.importance import is_linear
from querywise.measures.order import order
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.progress import track
from querywise.runtime.threads import checkpoint

FIRST = 5  # documents of a ranking
FURTHER = 3  # relevant documents below them
MOST_QUERIES = 150  # where a score is no weighted sum of features: Shapley values take long
_SPREAD = 8  # candidates of a query that stand for all of them
_FEATURES = 3  # of a document
_LEAST = 0.005  # what is less is not told


class _Found(NamedTuple):
    """Of one query: names of features, their shares under its model and under the global one, and some documents."""

    labels: tuple[str, ...]
    here: Floats
    everyone: Floats
    why: list[list[float]]


def reasons(answer: Answer, test: Judged) -> Reasons:
    """Those of the queries of a test part; where scores are no sums over features, why there are none."""
    if answer.facts().elsewhere:
        return Reasons(refused="Its scores were computed elsewhere.")
    chosen = _chosen(answer, test)
    found: dict[int, _Found] = {}
    try:
        for query in track(chosen.tolist(), "Explaining rankings", "queries"):
            checkpoint()
            told = _of_query(one_query(answer, query), test.labels[test.candidates.rows(query)])
            if told is not None:
                found[query] = told
    except DataError as error:
        return Reasons(refused=str(error))
    if not found:
        return Reasons(refused="All documents of a query have the same score.")
    here, everyone = (np.array([getattr(each, side) for each in found.values()]) for side in ("here", "everyone"))
    mean = [each.mean(axis=0).round(6).tolist() for each in (here, everyone, np.abs(here - everyone))]
    return Reasons(
        features=[_called(label) for label in next(iter(found.values())).labels],
        queries=len(found),
        here=mean[0],
        everyone=mean[1],
        moved=mean[2],
        why=[found[query].why if query in found else [] for query in range(len(test))],
    )


def _chosen(answer: Answer, test: Judged) -> Ints:
    """The queries that are explained: all with two documents or more, or as many of them as there is time for."""
    several = np.flatnonzero(test.candidates.sizes > 1)
    if is_linear(answer) or len(several) <= MOST_QUERIES:
        return several
    return several[_spread(len(several), MOST_QUERIES)]


def _of_query(answer: Answer, labels: Ints) -> _Found | None:
    ranked = order(answer.scores(), np.array([0, len(labels)]))
    spread, below = ranked[_spread(len(ranked), _SPREAD)], ranked[FIRST:]
    shown = np.concatenate([ranked[:FIRST], below[labels[below] > 0][:FURTHER]])
    rows = np.unique(np.concatenate([spread, shown]))
    found = contributions_in(answer, rows)
    among = np.searchsorted(rows, spread)
    here, everyone = _shares(found.here[among]), _shares(found.everyone[among])
    unit = float(found.here[among].sum(axis=1).std())
    if here is None or everyone is None or not unit:
        return None
    parts = (found.here[np.searchsorted(rows, shown)] - found.here[among].mean(axis=0)) / unit
    return _Found(found.labels, here, everyone, [_told(*each) for each in zip(shown.tolist(), parts, strict=True)])


def _shares(parts: Floats) -> Floats | None:
    """The share of each feature in the spread of scores; None where there is none."""
    spreads: Floats = parts.std(axis=0)
    total = float(spreads.sum())
    return spreads / total if total > 0 else None


def _told(row: int, parts: Floats) -> list[float]:
    largest = np.argsort(-np.abs(parts), kind="stable")[:_FEATURES].tolist()
    pairs = [(column, round(float(parts[column]), 2)) for column in largest if abs(parts[column]) >= _LEAST]
    return [row, *(number for pair in pairs for number in pair)]


def _called(label: str) -> str:
    return f"feature {label}" if label.isdecimal() else label


def _spread(count: int, most: int) -> Ints:
    """Places from the first to the last, evenly, at most so many."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))
