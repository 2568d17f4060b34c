"""Weighted kernel ridge regression: a function in a kernel's space, and its norm there.

    min_h  Σ_j w_j (t_j − h(x_j))²  +  λ ‖h‖²,        h(x) = Σ_j c_j k(x, x_j)

Exactly, with A = diag(√w): (A K A + λ I) u = A t, c = A u, which divides by no weight. Beyond some thousands of rows h
is a combination of landmarks instead, fixed rows of the training data (Nyström); a linear kernel needs neither.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from querywise.contracts.estimators import Estimator
from querywise.data.ordering import by_coordinates
from querywise.errors import DataError, NotFittedError
from querywise.runtime.arrays import Floats
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import ANY_NUMBER, Absent, Known, Number, contents, floats, part, require
from querywise.runtime.threads import one_blas_thread

Kernel = Literal["gaussian", "linear"]
_KERNELS = ("gaussian", "linear")
_MODERATE = Number(above=1e-150, most=1e150)
_BLOCK = 4_000_000  # values of a kernel in memory at a time
_KEPT = 100_000_000  # values of the training rows' coordinates that are remembered rather than computed again
_FLAT = 1e-10  # of the largest: directions of landmarks whose eigenvalue is below it are left out


class KernelRidge(Estimator):
    """A smooth function of standardised features.

    l2: λ, the penalty on the function's norm; the larger, the smoother.
    kernel: gaussian is 1 + exp(−‖x − z‖² / (2 d width²)), d the number of features; linear is 1 + x·z. The 1 is for the
    intercept, which is penalised too.
    width: of the gaussian kernel; the wider, the smoother.
    exact: up to so many rows every training row takes part; beyond, `landmarks` of them.
    seed: draws the landmarks, once.

    Fitting again on the very same features reuses what does not depend on targets and weights, landmarks among it.
    """

    stored = contents(
        l2=_MODERATE,
        width=_MODERATE,
        scaling_=part(Scaling, columns="features"),
        points_=Absent(floats("points", "features")),
        coefficients_=floats("terms"),
        squared_norm_=ANY_NUMBER,
        whitening_=Absent(floats("points", "directions")),
    )

    def __init__(
        self,
        l2: float = 1.0,
        *,
        kernel: Kernel = "gaussian",
        width: float = 1.0,
        exact: int = 2_000,
        landmarks: int = 500,
        seed: int = 0,
    ) -> None:
        self.l2 = l2
        self.kernel = kernel
        self.width = width
        self.exact = exact
        self.landmarks = landmarks
        self.seed = seed
        self._seen: Floats | None = None
        self._coordinates: Floats | None = None

    def fit(self, features: Floats, targets: Floats, weights: Floats, /) -> Self:
        """Find h."""
        self._check()
        if self._seen is not features:
            self._place(features)
        if self.kernel == "gaussian" and self._is_exact(features):
            self._fit_exactly(targets, weights)
        else:
            self._fit_coordinates(features, targets, weights)
        return self

    def _check_stored(self, known: Known) -> None:
        """A linear kernel has a coefficient for every feature and one more, another kernel one for every point."""
        require(self.kernel == "linear" or "points" in known.sizes, "KernelRidge.points_ is missing")
        terms = known.sizes["features"] + 1 if self.kernel == "linear" else known.sizes["points"]
        known.tie("terms", terms, "KernelRidge.coefficients_")

    def predict(self, features: Floats, /) -> Floats:
        """The value of h for every row."""
        if not hasattr(self, "coefficients_"):
            raise NotFittedError(self)
        found = np.zeros(len(features))
        for rows in self._blocks(len(features)):
            # Row by row in a fixed order: a document's value does not depend on how many others there are.
            found[rows] = np.einsum("ij,j->i", self._inside(features[rows]), self.coefficients_)
        return found

    @property
    def squared_norm(self) -> float:
        """‖h‖² in the space of the kernel."""
        return self.squared_norm_

    def _place(self, features: Floats) -> None:
        """Learn the scale and choose the points h is a combination of."""
        self.scaling_ = Scaling.learn(features, "standard")
        self._coordinates = None
        if self.kernel == "gaussian":
            chosen = np.arange(len(features))
            if not self._is_exact(features):
                rng = np.random.default_rng(self.seed)
                drawn = np.sort(rng.choice(len(features), min(self.landmarks, len(features)), replace=False))
                chosen = by_coordinates(self.scaling_.apply(features))[drawn]  # whatever the order of the rows
            self.points_ = self.scaling_.apply(features[chosen])
            if not self._is_exact(features):
                with one_blas_thread():
                    values, directions = np.linalg.eigh(self._kernel(self.points_))
                kept = values > _FLAT * values.max()
                self.whitening_ = directions[:, kept] / np.sqrt(values[kept])
        self._seen = features

    def _is_exact(self, features: Floats) -> bool:
        return len(features) <= self.exact

    def _fit_exactly(self, targets: Floats, weights: Floats) -> None:
        if self._coordinates is None:
            self._coordinates = self._kernel(self.points_)
        kernel, roots = self._coordinates, np.sqrt(weights)
        with one_blas_thread():
            system = roots[:, None] * kernel * roots[None, :]
            system[np.diag_indices_from(system)] += self.l2
            self.coefficients_: Floats = roots * self._solved(system, roots * targets)
        self.squared_norm_ = float(self.coefficients_ @ kernel @ self.coefficients_)

    def _fit_coordinates(self, features: Floats, targets: Floats, weights: Floats) -> None:
        """Ridge regression on coordinates in which the kernel is a scalar product."""
        width = 1 + features.shape[1] if self.kernel == "linear" else self.whitening_.shape[1]
        remembered = len(features) * width <= _KEPT
        if self._coordinates is None and remembered:
            self._coordinates = np.concatenate([self._flat(features[rows]) for rows in self._blocks(len(features))])
        system, right = self.l2 * np.eye(width), np.zeros(width)
        with one_blas_thread():
            for rows in self._blocks(len(features)):
                known = self._coordinates
                part = self._flat(features[rows]) if known is None else known[rows]
                weighted = part * weights[rows][:, None]
                system += weighted.T @ part
                right += weighted.T @ targets[rows]
            found = self._solved(system, right)
        self.coefficients_ = found if self.kernel == "linear" else self.whitening_ @ found
        self.squared_norm_ = float(found @ found)

    def _solved(self, system: Floats, right: Floats) -> Floats:
        try:
            found: Floats = cho_solve(cho_factor(system), right)
        except np.linalg.LinAlgError:
            raise DataError(f"KernelRidge(l2={self.l2}) is too small for rows this much alike; raise it.") from None
        return found

    def _flat(self, features: Floats) -> Floats:
        inside = self._inside(features)
        return inside if self.kernel == "linear" else inside @ self.whitening_

    def _inside(self, features: Floats) -> Floats:
        """What the coefficients multiply: the kernel with every point, or the features themselves and a 1."""
        scaled = self.scaling_.apply(features)
        if self.kernel == "linear":
            return np.hstack([np.ones((len(scaled), 1)), scaled])
        return self._kernel(scaled)

    def _kernel(self, scaled: Floats) -> Floats:
        from scipy.spatial.distance import cdist

        span = 2 * max(scaled.shape[1], 1) * self.width**2
        near: Floats = np.exp(-cdist(scaled, self.points_, "sqeuclidean") / span)
        return 1 + near

    def _blocks(self, rows: int) -> list[slice]:
        size = max(1, _BLOCK // max(len(self.points_) if self.kernel == "gaussian" else len(self.scaling_.centre), 1))
        return [slice(first, min(first + size, rows)) for first in range(0, rows, size)]

    def _check(self) -> None:
        if self.kernel not in _KERNELS:
            raise DataError(f"kernel={self.kernel!r} is unknown. Known: {', '.join(_KERNELS)}.")
        for name in ("l2", "width"):
            value = getattr(self, name)
            if not 0 < value * value < np.inf:
                raise DataError(f"KernelRidge({name}={value}) must be a number above 0.")
        for name, lowest in {"exact": 0, "landmarks": 1, "seed": 0}.items():
            value = getattr(self, name)
            if not lowest <= value < np.inf or value != int(value):
                raise DataError(f"KernelRidge({name}={value}) must be a whole number from {lowest} up.")
