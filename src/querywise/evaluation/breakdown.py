"""Breakdowns: by difficulty, by class, by distance to the training queries, by number of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from querywise.data.coverage import relevant_judged
from querywise.evaluation.compare import Compared
from querywise.evaluation.rankings import query_texts
from querywise.evaluation.significance import paired_t_test
from querywise.runtime.arrays import Bools, Floats, Ints

DIFFICULTIES = (("none", 0, 0), ("1 to 3", 1, 3), ("4 to 20", 4, 20), ("more than 20", 21, None))


class Group(NamedTuple):
    """Some of the test queries, and each method's averages on them."""

    label: str
    queries: int
    means: dict[str, float]
    p: dict[str, float]  # against the baseline


class Breakdown(NamedTuple):
    """The test queries cut up by one property."""

    title: str
    groups: tuple[Group, ...]


def breakdowns(compared: Compared, measure: str) -> list[Breakdown]:
    """Every breakdown that this data allows."""
    found = [
        difficulty_breakdown(compared, measure),
        _broken_down("class", compared, measure, compared.classes),
        _broken_down("number of candidates", compared, measure, by_quarter(compared.judged.candidates.sizes)),
    ]
    words = query_words(compared)
    if words is not None:
        found.append(_broken_down("query length (words)", compared, measure, by_quarter(words)))
    distances = nearest_distances(compared)
    if distances is not None:
        name, values = distances
        title = f"distance to the nearest training query ({name})"
        found.insert(2, _broken_down(title, compared, measure, by_distance(values, compared.fold_of)))
    return [each for each in found if len(each.groups) > 1]


def difficulty_breakdown(compared: Compared, measure: str) -> Breakdown:
    """The test queries by number of relevant documents."""
    return _broken_down("relevant documents", compared, measure, by_difficulty(relevant_documents(compared)))


def relevant_documents(compared: Compared) -> Ints:
    """How many relevant documents each test query has, judged; where that is known, also those retrieval missed."""
    return relevant_judged(compared.judged)


def query_words(compared: Compared) -> Ints | None:
    """How many words each query has; None unless all have a text."""
    texts = query_texts(compared)
    return np.array([len((text or "").split()) for text in texts]) if all(texts) else None


def nearest_distances(compared: Compared) -> tuple[str, Floats] | None:
    """How far each test query is from the training queries, and by which method's view; None without such a method."""
    for name in compared.names:
        values = compared.extra(name, lambda extra: extra.distances)
        if values is not None:
            return name, values
    return None


def by_difficulty(relevant: Ints) -> dict[str, Bools]:
    """Queries with no, 1 to 3, 4 to 20 and more relevant documents [lin2011]_."""
    return {
        label: (relevant >= low) & (relevant <= (high if high is not None else np.inf))
        for label, low, high in DIFFICULTIES
    }


def by_distance(distances: Floats, fold_of: Ints) -> dict[str, Bools]:
    """Queries in four groups, cut within each fold: folds may measure in different views, on different scales."""
    place = np.zeros(len(distances), dtype=np.int64)
    for fold in np.unique(fold_of):
        own = fold_of == fold
        place[own] = np.searchsorted(np.quantile(distances[own], [0.25, 0.5, 0.75]), distances[own], side="left")
    names = ("nearest quarter", "second quarter", "third quarter", "farthest quarter")
    return {name: place == number for number, name in enumerate(names) if np.any(place == number)}


def by_quarter(values: Floats | Ints) -> dict[str, Bools]:
    """Queries in four groups of about the same size, by a number; equal numbers stay together."""
    cuts = np.unique(np.quantile(values, [0.25, 0.5, 0.75]))
    place = np.searchsorted(cuts, values, side="left")
    groups = [chosen for number in range(len(cuts) + 1) if (chosen := place == number).any()]
    for digits in range(3, 18):  # as many as tell the groups apart
        labels = [f"{_number(values[each].min(), digits)} to {_number(values[each].max(), digits)}" for each in groups]
        if len(set(labels)) == len(labels):
            break
    return dict(zip(labels, groups, strict=True))


def _number(value: float, digits: int) -> str:
    return f"{value:.{max(digits, len(str(int(abs(value)))))}g}"


def _broken_down(title: str, compared: Compared, measure: str, masks: dict[str, Bools]) -> Breakdown:
    groups = []
    for label, chosen in masks.items():
        if chosen.any():
            values = {name: compared.evaluations[name][measure][chosen] for name in compared.names}
            means = {name: float(each.mean()) for name, each in values.items()}
            ps = {name: paired_t_test(each, values[compared.baseline]).p for name, each in values.items()}
            groups.append(Group(label, int(chosen.sum()), means, ps))
    return Breakdown(title, tuple(groups))


def class_shares(members: csr_array, theirs: Sequence[str | None], own: Sequence[str | None]) -> Floats:
    """Which share of the training queries that count for a query is of its own class [geng2008]_; NaN without any.

    A row of `members` says how much each training query, of class `theirs`, counts for a query of class `own`.

    >>> class_shares(csr_array([[1.0, 1.0, 2.0]]), ["a", "b", "a"], ["a"])
    array([0.75])
    """
    known = np.array([[name == each for name in theirs] for each in sorted({each for each in own if each})])
    place = {name: row for row, name in enumerate(sorted({each for each in own if each}))}
    totals = np.asarray(members.sum(axis=1)).ravel()
    shares = np.full(len(own), np.nan)
    for query, name in enumerate(own):
        if name and totals[query] > 0:
            shares[query] = float((members[[query]] @ known[place[name]].astype(np.float64))[0]) / totals[query]
    return shares
