"""Signals of a query, without labels: what its words and its first-stage runs tell of it before anything is ranked.

They are computed from the columns of the runs among the features, and from the query's text: so they are the same
numbers in training and in a request. A run's scores are those of its own list; a document it did not find has none.
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
    """The signals of every query; a query without candidates has zeros for what its lists would tell.

    Of the query: `log_length`, log(1 + number of its words). Of each run: `top`, its best score; `margin`, by how much
    it is above the second; `top_z` and `top_ten_z`, the best score and the mean of the ten best in standard deviations
    above the mean of the list; `entropy` of the softmax of the standardised scores, divided by the log of their number.
    Of two runs: `overlap`, the share of their ten best that both have; `correlation` of their scores over all
    candidates, standardised in each list, what a list did not find standing at its lowest. `found_by_one`: the share of
    candidates that one run alone found. `log_candidates`: log(1 + number of candidates).
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
    """What the signals are called, in order.

    >>> signal_names(["bm25"])[:3]
    ('log_length', 'bm25.top', 'bm25.margin')
    """
    of_runs = (f"{run}.{signal}" for run in runs for signal in _OF_A_RUN)
    of_two = (f"{first}.{second}.{signal}" for first, second in combinations(runs, 2) for signal in _OF_TWO)
    return ("log_length", *of_runs, *of_two, *(("found_by_one",) if len(runs) > 1 else ()), "log_candidates")


def _of_lists(rows: Floats, runs: Sequence[RunColumns]) -> list[float]:
    """What the lists of one query tell, from the rows of its candidates."""
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
    """top, margin, top_z, top_ten_z and entropy of scores in falling order."""
    if not len(scores):
        return (0.0,) * len(_OF_A_RUN)
    margin = float(scores[0] - scores[1]) if len(scores) > 1 else 0.0
    standing = _standardised(scores)
    chances = np.exp(standing - standing[0])
    chances /= chances.sum()
    entropy = float(-(chances * np.log(chances)).sum() / np.log(len(scores))) if len(scores) > 1 else 0.0
    return float(scores[0]), margin, float(standing[0]), float(standing[:TOP].mean()), entropy


def _standardised(scores: Floats) -> Floats:
    """Scores in standard deviations above their mean; 0 where all are the same."""
    away = scores - scores.mean()
    spread = float(np.sqrt(np.mean(away * away)))
    return np.zeros(len(scores)) if spread <= 1e-12 * float(np.abs(scores).max(initial=0.0)) else away / spread


def _standing(scores: Floats, there: Bools) -> Floats:
    """The scores of a list, standardised in it; documents it did not find stand at its lowest."""
    found = np.zeros(len(scores))
    if there.any():
        own = _standardised(scores[there])
        found[there], found[~there] = own, own.min()
    return found


def _overlap(first: Floats, second: Floats) -> float:
    """The share of the ten best of two lists, or of the shorter list, that both have; from reciprocal ranks."""
    best = [(ranks > 0) & (ranks >= 1 / TOP - 1e-12) for ranks in (first, second)]
    shorter = min(int(each.sum()) for each in best)
    return float(np.sum(best[0] & best[1]) / shorter) if shorter else 0.0


def _correlation(first: Floats, second: Floats) -> float:
    """Pearson's; 0 where one of the two is the same everywhere."""
    if not len(first):
        return 0.0
    return float(np.mean(_standardised(first) * _standardised(second)))
