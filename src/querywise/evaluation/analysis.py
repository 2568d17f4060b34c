"""Overlap of the training sets of two models, and the stability bounds that follow from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints


def change_ratios(ours: csr_array, theirs: csr_array, pairs: Ints) -> Floats:
    """γ = (p₁ + p₂ − 2Δ) / min(p₁, p₂) of two models' training pairs, row by row [geng2008]_.

    A row of each says which training queries a model was trained on, 1 or, where a place is shared, a part of it; Δ
    counts the pairs they share. Undefined, and NaN, where a model has no pair.

    >>> change_ratios(csr_array([[1.0, 1.0, 0.0]]), csr_array([[0.0, 1.0, 1.0]]), np.array([4, 6, 2]))
    array([0.75])
    """
    if ours.shape != theirs.shape:
        raise DataError(f"The two tables cover other queries: {ours.shape} against {theirs.shape}.")
    first, second = _parts(ours), _parts(theirs)
    counts = pairs.astype(np.float64)
    p1, p2 = np.asarray(first @ counts).ravel(), np.asarray(second @ counts).ravel()
    shared = np.asarray(first.minimum(second) @ counts).ravel()
    least = np.minimum(p1, p2)
    return np.where(least > 0, (p1 + p2 - 2 * shared) / np.where(least > 0, least, 1.0), np.nan)


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


def stability_bounds(
    ours: csr_array, theirs: csr_array, pairs: Ints, *, l2: float, reach: float
) -> tuple[Floats, Floats]:
    """Two bounds on how much the loss on any pair can differ between two hinge models, row by row.

    The paper's is κ² γ / λ [geng2008]_; the one that holds for the mean over pairs is (κ²/λ) ‖v₁ − v₂‖₁, v the share
    of each training query in a model's pairs. They are equal where p₁ = p₂. reach: κ², which bounds ‖x_a − x_b‖² over
    pairs.
    """
    gamma = change_ratios(ours, theirs, pairs)
    shares = [_shares(each, pairs) for each in (ours, theirs)]
    apart = np.asarray(abs(shares[0] - shares[1]).sum(axis=1)).ravel()
    return reach * gamma / l2, reach * apart / l2


def _parts(members: csr_array) -> csr_array:
    """How much each training query counts, at most 1."""
    return csr_array((np.minimum(members.data, 1.0), members.indices, members.indptr), shape=members.shape)


def _shares(members: csr_array, pairs: Ints) -> csr_array:
    counted = _parts(members).multiply(pairs[None, :].astype(np.float64)).tocsr()
    totals = np.asarray(counted.sum(axis=1)).ravel()
    return csr_array(counted.multiply((1 / np.where(totals > 0, totals, 1.0))[:, None]))
