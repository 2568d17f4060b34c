"""Signals of a query from the scores of several rankers, without labels: their agreement, and the spread of each."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from querywise.data.judged import Candidates
from querywise.learners.within_query import within_query
from querywise.locality.views.topmean import top_shares
from querywise.runtime.arrays import Floats

TOP = 10


def score_signals(scores: Floats, candidates: Candidates, usual: Floats) -> Floats:
    """A row per query of documents × rankers of scores, whatever scale each ranker has.

    For every two rankers their rank correlation, and how much of their top ten they have in common; for every ranker
    the spread of its scores beside its `usual` one, from 0 up to 1 and ½ where they are the same, and the distance of
    its first document from its tenth in spreads; then the length of the list, its logarithm. The order of a query's
    documents changes no bit. Rankers that score all documents alike agree with each other, and with no other one.

    >>> two = Candidates(np.zeros((3, 1)), np.array([0, 3]), ("q",))
    >>> score_signals(np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]]), two, np.array([1.0, 1.0]))[0].round(2)
    array([-1.  ,  1.  ,  0.45,  0.45,  2.45,  2.45,  1.39])
    """
    found = within_query(scores, candidates)
    pairs = list(combinations(range(scores.shape[1]), 2))
    told = np.zeros((len(candidates), 2 * len(pairs) + 2 * scores.shape[1] + 1))
    beside = found.spreads + usual
    relative = np.where(beside > 0, found.spreads / np.where(beside > 0, beside, 1.0), 0.5)
    for query in range(len(candidates)):
        rows = candidates.rows(query)
        if rows.stop == rows.start:
            continue
        z, ranks = found.z[rows], found.ranks[rows] - 0.5
        turn = np.lexsort((*ranks.T, *z.T))
        z, ranks = np.ascontiguousarray(z[turn].T), np.ascontiguousarray(ranks[turn].T)
        shares = [top_shares(own, TOP) for own in z]
        falls = -np.sort(-z, axis=1)
        told[query] = [
            *(_correlation(ranks[one], ranks[other]) for one, other in pairs),
            *(float(np.minimum(shares[one], shares[other]).sum()) for one, other in pairs),
            *relative[query],
            *(falls[:, 0] - falls[:, min(TOP, falls.shape[1]) - 1]),
            np.log1p(falls.shape[1]),
        ]
    return told


def usual_spreads(scores: Floats, candidates: Candidates) -> Floats:
    """The mean spread of each ranker's scores within a query."""
    spreads = within_query(scores, candidates, ranks=False).spreads
    usual: Floats = spreads.mean(axis=0) if len(spreads) else np.ones(scores.shape[1])
    return usual


def _correlation(one: Floats, other: Floats) -> float:
    """Of numbers whose means are 0."""
    lengths = [float((each * each).sum()) for each in (one, other)]
    if min(lengths) == 0:
        return float(max(lengths) == 0)
    return float((one * other).sum() / np.sqrt(lengths[0] * lengths[1]))
