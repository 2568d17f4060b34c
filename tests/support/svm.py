"""Ranking SVMs written down pair by pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy import optimize

from querywise.data.judged import Judged
from querywise.learners.ranksvm.newton import Ridge
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.runtime.arrays import Floats
from tests.worlds import explicit_pairs

Weighting = Literal["query", "pair"]


def minimised(
    function: Callable[[Floats], tuple[float, Floats]], size: int, bounds: list[tuple[float, float]] | None = None
) -> Any:
    """SciPy's answer, driven to the end."""
    options = {"maxiter": 20000, "maxfun": 10**6, "ftol": 1e-16, "gtol": 1e-12, "maxcor": 50}
    solver: Any = optimize.minimize
    return solver(function, np.zeros(size), jac=True, bounds=bounds, method="L-BFGS-B", options=options)


class Written:
    """The objective with every pair written down: the specification, and slow."""

    def __init__(self, data: Judged, query_weights: Floats, pairs: Weighting, ridge: Ridge) -> None:
        self.differences, owners = explicit_pairs(data)
        counts = np.array([np.sum(owners == query) for query in range(len(data))])
        shares = query_weights * (counts > 0)
        if pairs == "pair":
            shares = shares * counts
        shares = shares / shares.sum()
        self.coefficients = np.array([shares[int(owner)] / counts[int(owner)] for owner in owners])
        self.ridge = ridge

    def value(self, w: Floats, power: int) -> float:
        losses = np.maximum(0, 1 - self.differences @ w) ** power
        away = w - self.ridge.centre
        return float(
            0.5 * self.ridge.l2 * w @ w + 0.5 * self.ridge.centre_l2 * away @ away + self.coefficients @ losses
        )

    def squared_optimum(self, bounds: list[tuple[float, float]] | None = None) -> Floats:
        def gradient(w: Floats) -> Floats:
            pull = self.coefficients * -2 * np.maximum(0, 1 - self.differences @ w)
            return np.asarray(
                self.ridge.l2 * w + self.ridge.centre_l2 * (w - self.ridge.centre) + self.differences.T @ pull
            )

        found = minimised(lambda w: (self.value(w, 2), gradient(w)), len(self.ridge.centre), bounds)
        return np.asarray(found.x)

    def hinge_optimum(self) -> float:
        """The hinge's minimum through its dual, a smooth problem in a box, by SciPy."""
        d, c = self.differences, self.coefficients
        strength = self.ridge.strength
        pull = self.ridge.centre_l2 * self.ridge.centre

        def negative_dual(alpha: Floats) -> tuple[float, Floats]:
            u = d.T @ alpha + pull
            constant = 0.5 * self.ridge.centre_l2 * float(self.ridge.centre @ self.ridge.centre)
            return float(u @ u / (2 * strength) - alpha.sum() - constant), np.asarray(d @ u / strength - 1)

        found = minimised(negative_dual, len(c), bounds=[(0.0, float(each)) for each in c])
        return -float(found.fun)


def svm(prior_l2: float | None = None, l2: float = 0.1, **options: Any) -> RankSVM:
    """On features as they are, so that the objective is the one written down."""
    return RankSVM(l2, scale="none", prior=None if prior_l2 is None else "global", prior_l2=prior_l2, **options)
