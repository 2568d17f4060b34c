"""ListNet: a linear model fitted by cross entropy to the top-one probabilities of the grades [cao2007]_.

    min_w  λ/2 ‖w‖²  −  Σ_i v_i Σ_a P_i(a) log Q_i(a),   P_i = softmax(y_i),   Q_i = softmax(X_i w)

v are the query weights, which sum to 1 over the queries that have pairs. The objective is convex.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from querywise.data.judged import Judged
from querywise.data.labels import values_of
from querywise.errors import DataError, SolverError
from querywise.learners.classic.lists import per_row, with_pairs
from querywise.learners.linear import WeightedSum
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.progress import doing
from querywise.runtime.scaling import Scale, Scaling
from querywise.runtime.stored import ANY_NUMBER, POSITIVE, contents
from querywise.runtime.threads import one_blas_thread
from querywise.runtime.values import is_finite_number

_TARGET = 1e-14  # relative to the objective: where the solver stops
_GAP = 1e-6  # relative to the objective: the gap that must be proven if rounding stops the solver early
_MAX_STEPS = 100
_SUFFICIENT = 1e-4


class ListNet(WeightedSum):
    """A linear ranker trained on whole lists with the cross entropy of top-one probabilities.

    Args:
        l2: λ, how strongly weights are shrunk toward 0.
        scale: features are standardized inside, or not (`none`).

    `weights_` are in the units of the features as given. `gap_` bounds how far `objective_` is from its minimum.

    >>> from querywise import from_arrays
    >>> data = from_arrays([[0.0, 5.0], [1.0, 3.0], [2.0, 4.0]], [0, 1, 2], qid=[7, 7, 7])
    >>> scores = ListNet().fit(data).predict(data.candidates)
    >>> bool(scores[2] > scores[1] > scores[0])
    True
    """

    stored = contents(l2=POSITIVE, objective_=ANY_NUMBER, gap_=ANY_NUMBER)

    def __init__(self, l2: float = 0.03, *, scale: Scale = "standard") -> None:
        self.l2 = l2
        self.scale = scale

    def fit(self, data: Judged, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Learn the weights of all features. There is no early stopping: `valid` is ignored."""
        if not (is_finite_number(self.l2) and self.l2 > 0):
            raise DataError(f"ListNet(l2={self.l2!r}) must be a positive number.")
        used, weights = with_pairs(data, query_weights)
        with doing("Training ListNet"), one_blas_thread():
            scaling = Scaling.learn(used.candidates.features, self.scale)
            lists = _Lists(scaling.apply(used.candidates.features), used, weights, self.l2)
            inside, self.objective_, self.gap_ = lists.solve()
        self.weights_ = scaling.weights_in_user_units(inside)
        return self


class _Lists:
    """The objective over non-empty lists."""

    def __init__(self, features: Floats, data: Judged, query_weights: Floats, l2: float) -> None:
        self._features, self._starts, self._l2 = features, data.candidates.starts, l2
        self._row_weights = per_row(query_weights, self._starts)
        self._targets = np.exp(log_softmax(values_of(data), self._starts))

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        """Return the objective and its gradient: λ w + Σ_i v_i X_iᵀ (Q_i − P_i)."""
        logs = log_softmax(self._features @ weights, self._starts)
        value = 0.5 * self._l2 * weights @ weights - (self._row_weights * self._targets) @ logs
        by_score = self._row_weights * (np.exp(logs) - self._targets)
        return float(value), self._l2 * weights + self._features.T @ by_score

    def curvature(self, weights: Floats) -> Floats:
        """Return the Hessian: λ I + Σ_i v_i (X_iᵀ diag(Q_i) X_i − m_i m_iᵀ), m_i the mean of X_i under Q_i."""
        chances = np.exp(log_softmax(self._features @ weights, self._starts))
        spread = self._features * np.sqrt(self._row_weights * chances)[:, None]
        means = np.add.reduceat(self._features * chances[:, None], self._starts[:-1], axis=0)
        means *= np.sqrt(self._row_weights[self._starts[:-1]])[:, None]
        curvature: Floats = spread.T @ spread - means.T @ means
        curvature[np.diag_indices_from(curvature)] += self._l2
        return curvature

    def solve(self) -> tuple[Floats, float, float]:
        """Run Newton's method; return the weights, the objective, and a proven bound on its distance from the minimum.

        The objective is λ-strongly convex, so that bound is ‖∇‖²/(2λ).
        """
        weights = np.zeros(self._features.shape[1])
        value, gradient = self.value_and_gradient(weights)
        for _ in range(_MAX_STEPS):
            if gradient @ gradient <= 2 * self._l2 * _TARGET * value:
                break
            moved = self._newton_step(weights, value, gradient)
            if moved is None:
                break
            weights = moved
            value, gradient = self.value_and_gradient(weights)
        gap = float(gradient @ gradient) / (2 * self._l2)
        if not gap <= _GAP * value:
            raise SolverError(f"ListNet(l2={self._l2:g}): the solver stopped {gap:.1e} from the minimum; raise l2.")
        return weights, value, gap

    def _newton_step(self, weights: Floats, value: float, gradient: Floats) -> Floats | None:
        """Return the weights after a step, halved until it descends enough; None if only rounding error is left."""
        curvature = self.curvature(weights)
        if not (np.isfinite(curvature).all() and np.isfinite(gradient).all()):
            raise SolverError(
                "ListNet's loss is not a number: features are too large. Set scale='standard', or divide them."
            )
        try:
            step = -cho_solve(cho_factor(curvature, overwrite_a=True), gradient)
        except LinAlgError:
            raise SolverError(f"ListNet(l2={self._l2:g}) is too small for these features; raise it.") from None
        slope = float(gradient @ step)
        for halvings in range(40):
            size = 0.5**halvings
            there: Floats = weights + size * step
            if self.value_and_gradient(there)[0] <= value + _SUFFICIENT * size * slope:
                return there
        return None


def log_softmax(scores: Floats, starts: Ints) -> Floats:
    """Return the log-softmax of the scores within each list; no list may be empty.

    >>> np.exp(log_softmax(np.array([0.0, np.log(3.0), 5.0]), np.array([0, 2, 3])))
    array([0.25, 0.75, 1.  ])
    """
    shifted = scores - per_row(np.maximum.reduceat(scores, starts[:-1]), starts)
    sums = np.add.reduceat(np.exp(shifted), starts[:-1])
    shares: Floats = shifted - per_row(np.log(sums), starts)
    return shares
