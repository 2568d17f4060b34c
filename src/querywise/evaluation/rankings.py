"""Every query's top documents under every ranker, side by side; queries that moved most; groups of queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from querywise.data.coverage import relevant_judged
from querywise.data.run_columns import Run
from querywise.evaluation.compare import Compared
from querywise.evaluation.evaluate import own_order
from querywise.evaluation.significance import paired_t_test
from querywise.measures.order import find_flavour, order
from querywise.runtime.arrays import Bools, Floats, Ints

TOP = 10  # documents of a ranking that are shown
_FURTHER = 5  # relevant documents shown below them
DIFFICULTIES = (("none", 0, 0), ("1 to 3", 1, 3), ("4 to 20", 4, 20), ("more than 20", 21, None))


class Ranked(NamedTuple):
    """The documents of one query that some ranker has in its top, and the next relevant ones.

    Attributes:
        rows: The documents' rows among all candidates.
        ranks: Documents × rankers, from 1; 0 for a document that is not in the list.

    """

    rows: Ints
    ranks: Ints


def ranks_of(scores: Floats, starts: Ints) -> Ints:
    """Return the rank of every document within its query, from 1.

    >>> ranks_of(np.array([1.0, 3.0, 3.0, 0.5]), np.array([0, 3, 4]))
    array([3, 1, 2, 1])
    """
    ranks = np.empty(len(scores), np.int64)
    ranks[order(scores, starts)] = np.arange(len(scores)) - np.repeat(starts[:-1], np.diff(starts)) + 1
    return ranks


def all_ranks(compared: Compared) -> Ints:
    """Return documents × rankers: every rank, from 1; 0 for a document that is not in a run's list."""
    starts = compared.judged.candidates.starts
    every = [
        _own_ranks(compared, name) if name in compared.lists else ranks_of(compared.scores[name], starts)
        for name in compared.names
    ]
    return np.column_stack(every)


def _own_ranks(compared: Compared, name: str) -> Ints:
    """Return the rank of every candidate in a run's own list; 0 if the run does not have it."""
    candidates, flavour = compared.judged.candidates, find_flavour(compared.flavour)
    ids = candidates.document_ids or [str(row + 1) for row in range(len(candidates.features))]
    ranks = np.zeros(len(candidates.features), np.int64)
    for query, query_id in enumerate(candidates.query_ids):
        own = own_order(compared.lists[name].scores.get(query_id, {}), flavour)
        places = {document: place for place, document in enumerate(own, start=1)}
        rows = candidates.rows(query)
        ranks[rows] = [places.get(document, 0) for document in ids[rows]]
    return ranks


def run_of(compared: Compared, name: str) -> Run:
    """Return a ranker's ranking of every test query: a run's own list, or all candidates of any other ranker."""
    if name in compared.lists:
        lists = compared.lists[name].scores
        return Run(name, {query: lists.get(query, {}) for query in compared.judged.query_ids})
    candidates, scores = compared.judged.candidates, compared.scores[name].tolist()
    found = {}
    for query, query_id in enumerate(candidates.query_ids):
        rows = range(*candidates.rows(query).indices(len(scores)))
        found[query_id] = {candidates.document_label(row): scores[row] for row in rows}
    return Run(name, found)


def ranked(compared: Compared, ranks: Ints, query: int) -> Ranked:
    """Return the documents of one query to show."""
    rows = np.arange(*compared.judged.candidates.rows(query).indices(len(ranks)))
    own = ranks[rows]
    best = np.where(own > 0, own, len(ranks) + 1).min(axis=1, initial=len(ranks) + 1)
    below = np.flatnonzero((best > TOP) & (compared.judged.labels[rows] > 0))
    further = below[np.argsort(best[below], kind="stable")[:_FURTHER]]
    chosen = rows[np.concatenate([np.flatnonzero(best <= TOP), further])]
    return Ranked(chosen, ranks[chosen])


def document_names(compared: Compared, query: int, rows: Ints) -> list[str]:
    """Return the documents' ids, or their row in the fold's test part, as in stored scores."""
    candidates = compared.judged.candidates
    first = int(candidates.starts[np.searchsorted(compared.fold_of, compared.fold_of[query])])
    offset = first if candidates.document_ids is None else 0
    return [candidates.document_label(row - offset) for row in rows.tolist()]


def grades(compared: Compared, rows: Ints) -> list[float | None]:
    """Return the grade of each document; None if it is not judged."""
    test = compared.judged
    values = test.labels[rows].astype(np.float64) if test.gains is None else test.gains[test.labels[rows]]
    known = np.ones(len(rows), np.bool_) if test.judged is None else test.judged[rows]
    return [float(value) if judged else None for value, judged in zip(values.tolist(), known.tolist(), strict=True)]


def why(compared: Compared, query: int, rows: Ints) -> dict[str, list[list[tuple[str, float]]] | None]:
    """Return, by ranker, the features that most set each document apart, if known; None if not known for any."""
    fold = int(compared.fold_of[query])
    number = query - int(np.searchsorted(compared.fold_of, fold))
    first = int(compared.judged.candidates.starts[query])
    found: dict[str, list[list[tuple[str, float]]] | None] = {}
    for name, folds in compared.trained.items():
        reasons = folds[fold].reasons
        if reasons is None or reasons.refused or not reasons.why[number]:
            found[name] = None
            continue
        known = {int(row): pairs for row, *pairs in reasons.why[number]}
        told = [known.get(row - first, []) for row in rows.tolist()]
        found[name] = [
            [(reasons.features[int(feature)], value) for feature, value in zip(each[::2], each[1::2], strict=True)]
            for each in told
        ]
    return found


def query_texts(compared: Compared) -> tuple[str | None, ...]:
    """Return the text of every query; None if it has none."""
    table = compared.judged.candidates.queries
    return (None,) * len(compared.judged) if table is None or table.texts is None else table.texts


def titles_needed(compared: Compared) -> set[str]:
    """Return the ids of the documents to show, if documents have ids."""
    ids = compared.judged.candidates.document_ids
    if ids is None:
        return set()
    ranks = all_ranks(compared)
    return {ids[row] for query in range(len(compared.judged)) for row in ranked(compared, ranks, query).rows.tolist()}


class Example(NamedTuple):
    """One query under the baseline and under another ranker."""

    title: str
    query: str
    kind: str | None
    names: tuple[str, str]
    values: tuple[float, ...]
    measure: str
    tops: tuple[tuple[tuple[str, int], ...], ...]  # document and grade, best first


def extremes(
    compared: Compared, name: str, measure: str, *, count: int = 10, top: int = 5
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Return the queries where a ranker gains and loses most against the baseline, the largest first."""
    gains = compared.evaluations[name][measure] - compared.evaluations[compared.baseline][measure]
    by_gain = np.argsort(gains, kind="stable")
    worst = [query for query in by_gain[:count].tolist() if gains[query] < 0]
    best = [query for query in by_gain[::-1][:count].tolist() if gains[query] > 0]
    names = (compared.baseline, name)
    found = [tuple(_example(compared, names, query, "", measure, top) for query in chosen) for chosen in (best, worst)]
    return found[0], found[1]


def examples(compared: Compared, name: str, measure: str, *, top: int = 5) -> list[Example]:
    """Return three queries: the largest gain over the baseline, the largest loss, and the median change."""
    ours, theirs = compared.evaluations[name][measure], compared.evaluations[compared.baseline][measure]
    gains = ours - theirs
    by_gain = np.argsort(gains, kind="stable")
    moved = by_gain[gains[by_gain] != 0]
    if not len(moved):
        return []
    found = {"The middle of the queries that moved": moved[len(moved) // 2]}
    if gains[moved[0]] < 0:
        found = {"The largest loss": moved[0], **found}
    if gains[moved[-1]] > 0:
        found = {"The largest gain": moved[-1], **found}
    return [
        _example(compared, (compared.baseline, name), int(query), title, measure, top) for title, query in found.items()
    ]


def _example(compared: Compared, names: tuple[str, str], query: int, title: str, measure: str, top: int) -> Example:
    candidates = compared.judged.candidates
    # Real-valued labels may have many levels: show only whether they are relevant.
    labels = compared.judged.labels if compared.judged.gains is None else (compared.judged.labels > 0).astype(np.int64)
    rows = candidates.rows(query)
    whole = np.array([0, rows.stop - rows.start])

    def best(name: str) -> tuple[tuple[str, int], ...]:
        if name in compared.lists:
            query_id = candidates.query_ids[query]
            judged = compared.judgements[query_id]
            own = own_order(compared.lists[name].scores.get(query_id, {}), find_flavour(compared.flavour))[:top]
            return tuple((document, max(judged.get(document, 0), 0)) for document in own)
        ranked = rows.start + order(compared.scores[name][rows], whole)[:top]
        return tuple(zip(document_names(compared, query, ranked), labels[ranked].tolist(), strict=True))

    return Example(
        title=title,
        query=query_texts(compared)[query] or candidates.query_ids[query],
        kind=compared.judged.classes[query],
        names=names,
        values=tuple(float(compared.evaluations[name][measure][query]) for name in names),
        measure=measure,
        tops=tuple(map(best, names)),
    )


class QueryGroup(NamedTuple):
    """Some of the test queries, and each method's means on them."""

    label: str
    queries: int
    means: dict[str, float]
    p: dict[str, float]  # against the baseline


class Breakdown(NamedTuple):
    """The test queries grouped by one property."""

    title: str
    groups: tuple[QueryGroup, ...]


def breakdowns(compared: Compared, measure: str) -> list[Breakdown]:
    """Return every breakdown that this data allows."""
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
    """Group the test queries by number of relevant documents."""
    return _broken_down("relevant documents", compared, measure, by_difficulty(relevant_documents(compared)))


def relevant_documents(compared: Compared) -> Ints:
    """Return the number of judged relevant documents of each test query, including those retrieval missed, if known."""
    return relevant_judged(compared.judged)


def query_words(compared: Compared) -> Ints | None:
    """Return the number of words of each query; None unless all have a text."""
    texts = query_texts(compared)
    return np.array([len((text or "").split()) for text in texts]) if all(texts) else None


def nearest_distances(compared: Compared) -> tuple[str, Floats] | None:
    """Return the distance of each test query from the training queries, and the method whose view it is; or None."""
    for name in compared.names:
        values = compared.extra(name, lambda extra: extra.distances)
        if values is not None:
            return name, values
    return None


def by_difficulty(relevant: Ints) -> dict[str, Bools]:
    """Return queries with no, 1 to 3, 4 to 20 and more relevant documents [lin2011]_."""
    return {
        label: (relevant >= low) & (relevant <= (high if high is not None else np.inf))
        for label, low, high in DIFFICULTIES
    }


def by_distance(distances: Floats, fold_of: Ints) -> dict[str, Bools]:
    """Group queries into quarters by distance.

    Quarters are computed within each fold, since the views of different folds may have different scales.
    """
    place = np.zeros(len(distances), dtype=np.int64)
    for fold in np.unique(fold_of):
        own = fold_of == fold
        place[own] = np.searchsorted(np.quantile(distances[own], [0.25, 0.5, 0.75]), distances[own], side="left")
    names = ("nearest quarter", "second quarter", "third quarter", "farthest quarter")
    return {name: place == number for number, name in enumerate(names) if np.any(place == number)}


def by_quarter(values: Floats | Ints) -> dict[str, Bools]:
    """Return queries in four groups of similar size, by a number; equal numbers stay together."""
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
            groups.append(QueryGroup(label, int(chosen.sum()), means, ps))
    return Breakdown(title, tuple(groups))


def class_shares(members: csr_array, theirs: Sequence[str | None], own: Sequence[str | None]) -> Floats:
    """Return the share of the counted training queries that have the query's own class [geng2008]_; NaN if unknown.

    A row of `members` has the weight of each training query, of class `theirs`, for a query of class `own`.

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
