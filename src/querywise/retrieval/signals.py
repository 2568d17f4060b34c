"""Signals of a query, without labels: what its words and its first-stage runs reveal before anything is ranked.

They are computed from the run columns among the features and from the query's text, so they are the same in training
and in a request. A run's scores are those of its own list; documents that it did not find have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from querywise.data.judged import Candidates
from querywise.data.run_columns import RunColumns, run_columns
from querywise.retrieval.words import Tokeniser
from querywise.runtime.arrays import Bools, Floats

TOP = 10  # documents of a list that count as its best
_OF_A_RUN = ("top", "margin", "top_z", "top_ten_z", "entropy")
_OF_TWO = ("overlap", "correlation")


class Signals(NamedTuple):
    """A name per column, and queries × signals."""

    names: tuple[str, ...]
    values: Floats


def signals(candidates: Candidates) -> Signals:
    """Return the signals of every query; those from lists are zeros for a query without candidates.

    Of the query: `log_length`, log(1 + number of its words). Of each run: `top`, its best score; `margin`, its distance
    to the second; `top_z` and `top_ten_z`, the best score and the mean of the ten best in standard deviations above the
    mean of the list; `entropy` of the softmax of the standardized scores, divided by the log of their number. Of two
    runs: `overlap`, the share of their ten best that both have; `correlation` of their scores over all candidates,
    standardized per list, with documents that a list did not find at its lowest score. `found_by_one`: the share of
    candidates that only one run found. `log_candidates`: log(1 + number of candidates).
    """
    runs = run_columns(candidates.feature_names)
    names = signal_names([run.name for run in runs])
    table = candidates.queries
    texts = (None,) * len(candidates) if table is None or table.texts is None else table.texts
    words, found = Tokeniser(), np.zeros((len(candidates), len(names)))
    for query, text in enumerate(texts):
        length = np.log1p(len(words.terms(text or "")))
        found[query] = [length, *_of_lists(candidates.features[candidates.rows(query)], runs)]
    return Signals(names, found)


def signal_names(runs: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the signals, in order.

    >>> signal_names(["bm25"])[:3]
    ('log_length', 'bm25.top', 'bm25.margin')
    """
    of_runs = (f"{run}.{signal}" for run in runs for signal in _OF_A_RUN)
    of_two = (f"{first}.{second}.{signal}" for first, second in combinations(runs, 2) for signal in _OF_TWO)
    return ("log_length", *of_runs, *of_two, *(("found_by_one",) if len(runs) > 1 else ()), "log_candidates")


def _of_lists(rows: Floats, runs: Sequence[RunColumns]) -> list[float]:
    """Return the signals from one query's lists, given the rows of its candidates."""
    there = [rows[:, run.reciprocal_rank] > 0 for run in runs]
    scores = [rows[:, run.score] for run in runs]
    told = [
        value for found, score in zip(there, scores, strict=True) for value in _of_a_list(np.sort(score[found])[::-1])
    ]
    for first, second in combinations(range(len(runs)), 2):
        ranks = [rows[:, runs[each].reciprocal_rank] for each in (first, second)]
        told.append(_overlap(*ranks))
        told.append(_correlation(*(_standing(scores[each], there[each]) for each in (first, second))))
    if len(runs) > 1:
        told.append(float(np.mean(np.sum(there, axis=0) == 1)) if len(rows) else 0.0)
    return [*told, float(np.log1p(len(rows)))]


def _of_a_list(scores: Floats) -> tuple[float, ...]:
    """Return top, margin, top_z, top_ten_z and entropy of scores in descending order."""
    if not len(scores):
        return (0.0,) * len(_OF_A_RUN)
    margin = float(scores[0] - scores[1]) if len(scores) > 1 else 0.0
    standing = _standardised(scores)
    chances = np.exp(standing - standing[0])
    chances /= chances.sum()
    entropy = float(-(chances * np.log(chances)).sum() / np.log(len(scores))) if len(scores) > 1 else 0.0
    return float(scores[0]), margin, float(standing[0]), float(standing[:TOP].mean()), entropy


def _standardised(scores: Floats) -> Floats:
    """Return scores in standard deviations above their mean; 0 if all are equal."""
    away = scores - scores.mean()
    spread = float(np.sqrt(np.mean(away * away)))
    return np.zeros(len(scores)) if spread <= 1e-12 * float(np.abs(scores).max(initial=0.0)) else away / spread


def _standing(scores: Floats, there: Bools) -> Floats:
    """Return a list's standardized scores; documents that it did not find get its lowest."""
    found = np.zeros(len(scores))
    if there.any():
        own = _standardised(scores[there])
        found[there], found[~there] = own, own.min()
    return found


def _overlap(first: Floats, second: Floats) -> float:
    """Return the share of the ten best of two lists, or of the shorter one, that both have, from reciprocal ranks."""
    best = [(ranks > 0) & (ranks >= 1 / TOP - 1e-12) for ranks in (first, second)]
    shorter = min(int(each.sum()) for each in best)
    return float(np.sum(best[0] & best[1]) / shorter) if shorter else 0.0


def _correlation(first: Floats, second: Floats) -> float:
    """Return Pearson's correlation; 0 if one of the two is constant."""
    if not len(first):
        return 0.0
    return float(np.mean(_standardised(first) * _standardised(second)))
