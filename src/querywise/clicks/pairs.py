"""Preferences from clicks by inverse propensity: a clicked document above those of its page without a click.

Every click is a separate query, with weight 1 / θ of its position: a click where few users would have looked stands for
many. So any learner that takes query weights learns from pairs by inverse propensity, including boosted trees and local
models. Equal queries are merged, with the sum of their weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from querywise.clicks.identifiable import Knowledge
from querywise.clicks.impressions import Impressions
from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints

QUANTILE = 0.99  # of the inverse propensities of clicks; larger ones are clipped to it


class ClickPreferences(NamedTuple):
    """Clicked documents above others: preference `i` has documents `starts[i]:starts[i + 1]`, the clicked one first.

    Attributes:
        query: The query's number in the log.
        weight: Clicks / θ.
        clipped: The largest 1 / θ.

    """

    query: Ints
    starts: Ints
    document: Ints
    weight: Floats
    clipped: float


def preferences(log: Impressions, known: Knowledge) -> ClickPreferences:
    """Return the preferences of a log whose position bias is known, or that has propensities."""
    if log.propensity is None and not known.known:
        raise DataError(
            f"Pairs by inverse propensity need examination probabilities. {known.reason}", arguments=("pairs",)
        )
    clicked = np.flatnonzero(log.clicked)
    inverse = 1 / (known.theta[log.position] if log.propensity is None else log.propensity)[clicked]
    clipped = float(np.quantile(inverse, QUANTILE))
    found: dict[tuple[int, int, bytes], float] = {}
    for row, page, weight in zip(clicked.tolist(), log.page_of_row[clicked].tolist(), inverse.tolist(), strict=True):
        rows = slice(int(log.starts[page]), int(log.starts[page + 1]))
        others = np.sort(log.document[rows][~log.clicked[rows]])
        if len(others):
            key = int(log.query[page]), int(log.document[row]), others.tobytes()
            found[key] = found.get(key, 0.0) + min(weight, clipped)
    if not found:
        raise DataError("No page shows a clicked document beside one without a click, so there is no preference.")
    lists = [np.concatenate([[document], np.frombuffer(others, np.int32)]) for _, document, others in found]
    return ClickPreferences(
        np.array([query for query, _, _ in found], np.int64),
        np.cumsum([0, *(len(each) for each in lists)]),
        np.concatenate(lists).astype(np.int64),
        np.array(list(found.values())),
        clipped,
    )


def preferred(found: ClickPreferences, log: Impressions, candidates: Candidates, names: Mapping[str, str]) -> Judged:
    """Return every preference as a weighted query of candidates, in the group of its original query.

    `names` maps a query's text in the log to its id.
    """
    assert candidates.document_ids is not None
    owners = [candidates.query_ids[query] for query in candidates.query_of_row.tolist()]
    place = {pair: row for row, pair in enumerate(zip(owners, candidates.document_ids, strict=True))}
    rows: list[int] = []
    starts, ids, groups, weights = [0], list[str](), list[str](), list[float]()
    for number, query in enumerate(found.query.tolist()):
        documents = found.document[found.starts[number] : found.starts[number + 1]].tolist()
        own = names.get(log.queries[query], log.queries[query])
        there = [place.get((own, log.documents[each]), -1) for each in documents]
        known = [row for row in there if row >= 0]
        if there[0] >= 0 and len(known) > 1:
            rows += known
            starts.append(len(rows))
            ids.append(f"{own} #{number + 1}")
            groups.append(own)
            weights.append(float(found.weight[number]))
    if not rows:
        raise DataError("No clicked document is among the candidates together with another of its page.")
    labels = np.zeros(len(rows), np.int64)
    labels[starts[:-1]] = 1
    table = candidates.queries
    texts = {} if table is None or table.texts is None else dict(zip(table.ids, table.texts, strict=True))
    known_texts = tuple(texts.get(each) for each in groups)
    made = Candidates(
        candidates.features[rows],
        np.array(starts),
        tuple(ids),
        document_ids=tuple(candidates.document_ids[row] for row in rows),
        feature_names=candidates.feature_names,
        queries=QueryTable(tuple(ids), texts=known_texts, groups=tuple(groups)),
        missing=candidates.missing,
    )
    return Judged(made, labels).with_weights(np.array(weights))
