"""How well each ranker's order agrees with the judgements of a query: tr(AᵀR), from ranks [hoi2008]_.

A_kl says how much document k should stand above l: by grades, antisymmetric. R_kl = 1 where a ranker scores k strictly
above l, 0 for ties, δ on the diagonal, every column divided by its sum n_l + δ, n_l the number of documents above l.
Nothing n × n is made: tr(AᵀR) = Σ_l (Σ_{k above l} A_kl) / (n_l + δ), and A depends on grades alone.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from querywise.arrays import Floats, Ints
from querywise.errors import DataError

Grades = Literal["three", "difference"]
Similarity = Literal["trace", "rbf"]


def preference_matrix(grades: Ints, top: int, kind: Grades, theta: float) -> Floats:
    """A by grade: how much a document of one grade should stand above one of another.

    three: 1 for the top grade above 0, θ for the top above anything between, else 0. difference: (g − h) / top.

    >>> preference_matrix(np.array([0, 1, 2]), 2, "three", 0.5).tolist()
    [[0.0, 0.0, -1.0], [0.0, 0.0, -0.5], [1.0, 0.5, 0.0]]
    """
    above = np.zeros((len(grades), len(grades)))
    if kind == "difference":
        above = (grades[:, None] - grades[None, :]) / max(top, 1)
        return np.asarray(above, dtype=np.float64)
    highly, irrelevant = grades >= top, grades == 0
    above[np.ix_(highly, irrelevant)] = 1.0
    above[np.ix_(highly, ~highly & ~irrelevant)] = theta
    return above - above.T


def agreements(
    scores: Floats,
    labels: Ints,
    *,
    top: int,
    kind: Grades = "three",
    theta: float = 0.5,
    smoothing: float = 1.0,
    similarity: Similarity = "trace",
    scale: float = 1.0,
) -> Floats:
    """One number per ranker, a column of scores each: tr(AᵀR), or exp(−‖A − R‖ / scale) (rbf).

    >>> agreements(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([1, 0]), top=1)
    array([ 0.5, -0.5])
    """
    grades, place = np.unique(labels, return_inverse=True)
    wanted = preference_matrix(grades, top, kind, theta)
    counts = np.bincount(place, minlength=len(grades))
    found = np.zeros(scores.shape[1])
    for ranker in range(scores.shape[1]):
        column = scores[:, ranker]
        # Of every grade, how many documents are strictly above each document.
        above = np.stack(
            [counts[g] - np.searchsorted(np.sort(column[place == g]), column, "right") for g in range(len(grades))]
        )
        totals = above.sum(axis=0) + smoothing
        shares = np.einsum("gl,gl->l", above, wanted[:, place]) / np.where(totals > 0, totals, 1.0)
        found[ranker] = shares.sum()
        if similarity == "rbf":
            ranks = np.sum((above.sum(axis=0) + smoothing**2) / np.where(totals > 0, totals, 1.0) ** 2)
            judged = counts @ (wanted**2) @ counts
            found[ranker] = np.exp(-np.sqrt(max(judged - 2 * found[ranker] + ranks, 0.0)) / scale)
    return found


def check_agreement(kind: str, theta: float, smoothing: float, similarity: str, scale: float) -> None:
    """Refuse what cannot be meant."""
    for name, value, known in (("grades", kind, ("three", "difference")), ("similarity", similarity, ("trace", "rbf"))):
        if value not in known:
            raise DataError(f"{name}={value!r} is unknown. Known: {', '.join(known)}.")
    if not 0 <= theta <= 1:
        raise DataError(f"theta={theta} must lie between 0 and 1.")
    for name, number in (("smoothing", smoothing), ("similarity_scale", scale)):
        if not 0 < number < np.inf:
            raise DataError(f"{name}={number} must be a number above 0.")
