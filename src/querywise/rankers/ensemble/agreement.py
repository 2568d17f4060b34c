"""How well each ranker's order agrees with the judgements of a query: tr(AᵀR), from ranks [hoi2008]_.

A_kl is how strongly document k should rank above l: by grades, antisymmetric. R_kl = 1 where a ranker scores k strictly
above l, 0 for ties, δ on the diagonal, every column divided by its sum n_l + δ, n_l the number of documents above l.
Nothing n × n is made: tr(AᵀR) = Σ_l (Σ_{k above l} A_kl) / (n_l + δ), and A depends on grades alone.
"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints

Grades = Literal["three", "difference"]
Similarity = Literal["trace", "rbf"]


def preference_matrix(grades: Ints | Floats, top: float, kind: Grades, theta: float) -> Floats:
    """A by grade: how strongly a document of one grade should rank above one of another.

    three: 1 for the top grade above 0, θ for the top above anything between, else 0. difference: (g − h) / top.

    >>> preference_matrix(np.array([0, 1, 2]), 2, "three", 0.5).tolist()
    [[0.0, 0.0, -1.0], [0.0, 0.0, -0.5], [1.0, 0.5, 0.0]]
    """
    above = np.zeros((len(grades), len(grades)))
    if kind == "difference":
        above = (grades[:, None] - grades[None, :]) / (top or 1)
        return np.asarray(above, dtype=np.float64)
    highly, irrelevant = grades >= top, grades == 0
    above[np.ix_(highly, irrelevant)] = 1.0
    above[np.ix_(highly, ~highly & ~irrelevant)] = theta
    return above - above.T


def agreements(
    scores: Floats,
    labels: Ints | Floats,
    *,
    top: float,
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
    wanted = preference_matrix(cast("Ints | Floats", grades), top, kind, theta)
    order = np.argsort(-scores, axis=0, kind="stable")
    ranked, grade = np.take_along_axis(scores, order, axis=0), place[order]
    begins = np.ones(scores.shape, np.bool_)
    begins[1:] = ranked[1:] != ranked[:-1]
    # The number of documents strictly above each one is the rank, from 0, at which its group of ties begins.
    above = np.maximum.accumulate(np.where(begins, np.arange(len(labels))[:, None], 0), axis=0)
    pull = np.zeros(scores.shape)
    for number in range(len(grades)):
        seen = np.cumsum(grade == number, axis=0) - (grade == number)
        pull += np.take_along_axis(seen, above, axis=0) * wanted[number, grade]
    totals = above + smoothing
    found: Floats = (pull / totals).sum(axis=0)
    if similarity == "rbf":
        counts = np.bincount(place, minlength=len(grades))
        sizes = counts @ (wanted**2) @ counts + ((above + smoothing**2) / totals**2).sum(axis=0)
        found = np.exp(-np.sqrt(np.maximum(sizes - 2 * found, 0.0)) / scale)
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
