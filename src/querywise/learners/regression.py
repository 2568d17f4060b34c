"""Regression: kernel ridge, and aTVT's transformations of targets, either two numbers per query or a monotone function.

**Weighted kernel ridge regression** is a function in a kernel's space, and its norm there.

    min_h  Σ_j w_j (t_j − h(x_j))²  +  λ ‖h‖²,        h(x) = Σ_j c_j k(x, x_j)

Exactly, with A = diag(√w): (A K A + λ I) u = A t, c = A u, which divides by no weight. Beyond some thousands of rows h
is a combination of landmarks instead, fixed rows of the training data (Nyström); a linear kernel needs neither.

**Query-dependent target transformation** is y ≈ β_q + α_q h, two numbers per query, for all queries at once [zha2006]_.

Given the fitted function h, every query's (α, β) is its own small convex problem,

    min Σ_j (y_j − β − α h_j)²  +  λ_α |α − 1|^p  +  λ_β |β|^p,        α ≥ 0,  p = 1 or 2

solved exactly from a few sums over the query, those of h about its mean. Where the minimum is not unique, α is the one
nearest 1. α may also be left free, as the paper's own algorithm leaves it.

A monotone transformation lets every group of rows have any non-decreasing function t of its targets instead, which
takes one value for each distinct target y,

    min Σ_j (t(y_j) − h_j)²  +  λ Σ_y (t(y) − y)²,        t non-decreasing

That is isotonic regression of (Σh + λ y) / (n + λ) on y with weights n + λ, n the rows with target y. The paper leaves
functions beyond the linear ones open.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import isotonic_regression

from querywise.contracts.estimators import Estimator
from querywise.data.training import by_coordinates
from querywise.errors import DataError, NotFittedError
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import ANY_NUMBER, Absent, Known, Number, contents, floats, part, require
from querywise.runtime.threads import one_blas_thread

Kernel = Literal["gaussian", "linear"]
_KERNELS = ("gaussian", "linear")
_MODERATE = Number(above=1e-150, most=1e150)
_BLOCK = 4_000_000  # kernel values in memory at a time
_KEPT = 100_000_000  # coordinates of training rows that are cached rather than recomputed
_FLAT = 1e-10  # relative to the largest: landmark directions with smaller eigenvalues are dropped
Penalty = Literal["l2", "l1"]
_CONSTANT = 1e-18  # relative to Σh²: if the scatter of h is smaller, it is a rounding error and h is constant
LARGEST = 1e100  # stands for infinity
_ROUNDING = 1e-12  # relative to the terms of a slope: smaller slopes count as 0


@dataclass(eq=False, repr=False)
class KernelRidge(Estimator):
    """A smooth function of standardized features.

    Args:
        l2: λ, the penalty on the function's norm; the larger, the smoother.
        kernel: gaussian is 1 + exp(−‖x − z‖² / (2 d width²)), d the number of features; linear is 1 + x·z. The 1 is for
            the intercept, which is penalized too.
        width: the width of the gaussian kernel; the wider, the smoother.
        exact: with up to this many rows every training row is used; with more, `landmarks` of them.
        seed: the seed for drawing the landmarks.

    Fitting again on the same array of features reuses what does not depend on targets and weights, such as the
    landmarks.
    """

    l2: float = 1.0
    _: KW_ONLY
    kernel: Kernel = "gaussian"
    width: float = 1.0
    exact: int = 2_000
    landmarks: int = 500
    seed: int = 0

    stored = contents(
        l2=_MODERATE,
        width=_MODERATE,
        scaling_=part(Scaling, columns="features"),
        points_=Absent(floats("points", "features")),
        coefficients_=floats("terms"),
        squared_norm_=ANY_NUMBER,
        whitening_=Absent(floats("points", "directions")),
    )

    def __post_init__(self) -> None:
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
        """Check the number of coefficients: features plus one for a linear kernel, else the number of points."""
        require(self.kernel == "linear" or "points" in known.sizes, "KernelRidge.points_ is missing")
        terms = known.sizes["features"] + 1 if self.kernel == "linear" else known.sizes["points"]
        known.tie("terms", terms, "KernelRidge.coefficients_")

    def predict(self, features: Floats, /) -> Floats:
        """Return the value of h for every row."""
        if not hasattr(self, "coefficients_"):
            raise NotFittedError(self)
        found = np.zeros(len(features))
        for rows in self._blocks(len(features)):
            # Row by row in a fixed order, so that values do not depend on the number of documents.
            found[rows] = np.einsum("ij,j->i", self._inside(features[rows]), self.coefficients_)
        return found

    @property
    def squared_norm(self) -> float:
        """‖h‖² in the space of the kernel."""
        return self.squared_norm_

    def _place(self, features: Floats) -> None:
        """Learn the scale and choose the points that h is a combination of."""
        self.scaling_ = Scaling.learn(features, "standard")
        self._coordinates = None
        if self.kernel == "gaussian":
            chosen = np.arange(len(features))
            if not self._is_exact(features):
                rng = np.random.default_rng(self.seed)
                drawn = np.sort(rng.choice(len(features), min(self.landmarks, len(features)), replace=False))
                chosen = by_coordinates(self.scaling_.apply(features))[drawn]  # independent of the order of the rows
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
        """Fit ridge regression on coordinates in which the kernel is a scalar product."""
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
            raise DataError(f"KernelRidge(l2={self.l2}) is too small for rows this similar; raise it.") from None
        return found

    def _flat(self, features: Floats) -> Floats:
        inside = self._inside(features)
        return inside if self.kernel == "linear" else inside @ self.whitening_

    def _inside(self, features: Floats) -> Floats:
        """Return what the coefficients multiply: the kernel with every point, or a 1 and the features themselves."""
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


class Transforms(NamedTuple):
    """α and β of every query."""

    scale: Floats
    shift: Floats

    @staticmethod
    def none(queries: int) -> Transforms:
        """Return α = 1 and β = 0: plain regression."""
        return Transforms(np.ones(queries), np.zeros(queries))

    def then(self, later: Transforms) -> Transforms:
        """Return the composition of both: of α y + β and then later.α (α y + β) + later.β."""
        return Transforms(later.scale * self.scale, later.scale * self.shift + later.shift)


class _Sums(NamedTuple):
    """The sums that a query's problem depends on, in a = α − 1 and b = β, with residuals e = y − h.

    They are taken about the means: otherwise a query whose h varies little compared to its level would lose all digits.
    """

    n: Floats
    mean: Floats  # of h
    scatter: Floats  # Σ(h − mean)²
    level: Floats  # the mean of e
    slant: Floats  # Σ(h − mean) e
    size: Floats  # magnitude of the terms in the sums, to tell rounding errors from slopes
    h_size: Floats


def transforms(
    targets: Floats,
    fitted: Floats,
    starts: Ints,
    *,
    scale_penalty: float,
    shift_penalty: float,
    penalty: Penalty,
    nonnegative: bool = True,
) -> Transforms:
    """Return the best (α, β) of every query; rows `starts[q]:starts[q + 1]` are query q's.

    `nonnegative` means α ≥ 0.
    """
    solve = _ridge if penalty == "l2" else _lasso
    held = min(scale_penalty, LARGEST), min(shift_penalty, LARGEST)
    a, b = solve(_sums(targets, fitted, starts), *held, -1.0 if nonnegative else -np.inf)
    return Transforms(1 + a, b if shift_penalty < LARGEST else np.zeros_like(b))


def squared_errors(
    targets: Floats, fitted: Floats, starts: Ints, found: Transforms, weights: Floats | None = None
) -> float:
    """Return Σ_q Σ_j (y − β_q − α_q h)², each row times its weight, if any."""
    sizes = np.diff(starts)
    errors = targets - np.repeat(found.shift, sizes) - np.repeat(found.scale, sizes) * fitted
    return float(errors @ errors if weights is None else (weights * errors) @ errors)


def penalties(
    found: Transforms,
    *,
    scale_penalty: float,
    shift_penalty: float,
    penalty: Penalty,
    weights: Floats | None = None,
) -> float:
    """Return λ_α ‖α − 1‖_p^p + λ_β ‖β‖_p^p, each query times its weight, if any."""
    power = 2 if penalty == "l2" else 1
    away, shift = np.abs(found.scale - 1) ** power, np.abs(found.shift) ** power
    if weights is not None:
        away, shift = weights * away, weights * shift
    return float(min(scale_penalty, LARGEST) * away.sum() + min(shift_penalty, LARGEST) * shift.sum())


def _sums(targets: Floats, fitted: Floats, starts: Ints) -> _Sums:
    errors = targets - fitted
    size = np.abs(targets) + np.abs(fitted)
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))

    def total(values: Floats) -> Floats:
        return np.bincount(owner, values, minlength=len(starts) - 1).astype(np.float64)

    n = np.diff(starts).astype(np.float64)
    mean, level = (total(values) / np.maximum(n, 1) for values in (fitted, errors))
    away = fitted - mean[owner]
    return _Sums(
        n,
        mean,
        total(away**2),
        level,
        total(away * (errors - level[owner])),
        total(size),
        total(np.abs(fitted) * size),
    )


def _ridge(sums: _Sums, scale_penalty: float, shift_penalty: float, least: float) -> tuple[Floats, Floats]:
    """Solve P = 2: the normal equations in (α − 1, β); if α − 1 would be below `least`, β is recomputed."""
    zero = np.zeros_like(sums.n)
    a, unique = _slope(sums, zero, zero, scale_penalty, shift_penalty)
    a = np.maximum(np.where(unique, a, 0.0), least)
    return a, _shift(sums, a, zero, shift_penalty)


def _slope(
    sums: _Sums, pull_a: Floats | float, pull_b: Floats | float, extra_a: float, extra_b: float
) -> tuple[Floats, Bools]:
    """Return the a of the solution of [Σh² + λ, Σh; Σh, n + μ] (a, b) = (Σhe, Σe) − pulls, and where it is unique.

    b is eliminated analytically, so that no two large numbers are subtracted.
    """
    total = np.maximum(sums.n, 1) + extra_b
    bottom = sums.scatter + extra_a + sums.n * sums.mean**2 * (extra_b / total)
    unique = bottom > _CONSTANT * (sums.scatter + sums.n * sums.mean**2)
    top = sums.slant - pull_a + sums.n * sums.mean * (extra_b / total * sums.level + pull_b / total)
    return np.divide(top, bottom, out=np.zeros_like(bottom), where=unique), unique


def _shift(sums: _Sums, a: Floats, pull_b: Floats | float, extra_b: float) -> Floats:
    """Return the best b for a given a."""
    right = sums.n * (sums.level - sums.mean * a) - pull_b
    return np.divide(right, sums.n + extra_b, out=np.zeros_like(a), where=sums.n > 0)


def _lasso(sums: _Sums, scale_penalty: float, shift_penalty: float, least: float) -> tuple[Floats, Floats]:
    """Solve P = 1: on each of twelve faces, a < 0, a = 0, a > 0 or α = 0 by b < 0, b = 0 or b > 0, explicitly.

    The overall minimum is that of the face whose own satisfies the optimality conditions; faces nearest a = 0 come
    first. Without a lower bound on a there is no boundary, and nine faces remain.
    """
    zero = np.zeros_like(sums.n)
    best_a, best_b, best = zero.copy(), zero.copy(), np.full(len(zero), np.inf)
    done = np.zeros(len(zero), np.bool_)
    for a_sign in (0, -1, 1, None) if least > -np.inf else (0, -1, 1):  # None: the boundary α = 0
        for b_sign in (0, -1, 1):
            a, b, inside = _on_face(sums, scale_penalty, shift_penalty, a_sign, b_sign, least)
            value = np.where(inside, _objective(sums, a, b, scale_penalty, shift_penalty), np.inf)
            optimal = inside & _is_optimal(sums, a, b, scale_penalty, shift_penalty, a_sign, b_sign)
            better = ~done & (optimal | (value < best))
            best_a, best_b = np.where(better, a, best_a), np.where(better, b, best_b)
            best = np.where(better, value, best)
            done |= optimal
    return best_a, best_b


def _on_face(
    sums: _Sums, scale_penalty: float, shift_penalty: float, a_sign: int | None, b_sign: int, least: float
) -> tuple[Floats, Floats, Bools]:
    """Return the minimum for these signs, and whether it has them."""
    zero = np.zeros_like(sums.n)
    pull_a, pull_b = (a_sign or 0) * scale_penalty / 2, b_sign * shift_penalty / 2
    inside = np.ones(len(zero), np.bool_)
    if not a_sign:
        a = zero - (1.0 if a_sign is None else 0.0)
    elif b_sign:
        a, inside = _slope(sums, pull_a, pull_b, 0.0, 0.0)
    else:
        square = sums.scatter + sums.n * sums.mean**2
        product = sums.slant + sums.n * sums.mean * sums.level
        inside = square > 0
        a = np.divide(product - pull_a, square, out=zero.copy(), where=inside)
    if a_sign:
        inside = inside & (a * a_sign > 0) & (a >= least)
    b = _shift(sums, np.where(inside, a, 0.0), pull_b, 0.0) if b_sign else zero
    inside = inside & (b * b_sign > 0) if b_sign else inside
    return np.where(inside, a, 0.0), np.where(inside, b, 0.0), inside


def _objective(sums: _Sums, a: Floats, b: Floats, scale_penalty: float, shift_penalty: float) -> Floats:
    """Return the objective without the terms that do not depend on (a, b)."""
    square = sums.n * (b + sums.mean * a - sums.level) ** 2 + sums.scatter * a**2 - 2 * sums.slant * a
    total: Floats = square + scale_penalty * np.abs(a) + shift_penalty * np.abs(b)
    return total


def _is_optimal(
    sums: _Sums, a: Floats, b: Floats, scale_penalty: float, shift_penalty: float, a_sign: int | None, b_sign: int
) -> Bools:
    """Return whether no direction leaves the face downhill, given that the point is the face's minimum."""
    slope_b = 2 * sums.n * (b + sums.mean * a - sums.level) if b_sign == 0 else -b_sign * shift_penalty
    slope_a = 2 * (sums.scatter * a - sums.slant) + sums.mean * slope_b
    noise_a, noise_b = _ROUNDING * sums.h_size, _ROUNDING * sums.size
    optimal = np.ones(len(a), np.bool_)
    if a_sign == 0:
        optimal &= np.abs(slope_a) <= scale_penalty + noise_a
    elif a_sign is None:
        optimal &= slope_a - scale_penalty >= -noise_a
    if b_sign == 0:
        optimal &= np.abs(slope_b) <= shift_penalty + noise_b
    return optimal


class Bent(NamedTuple):
    """Targets transformed by the best functions, and λ Σ (t(y) − y)² over all groups."""

    targets: Floats
    penalty: float


def bent(targets: Floats, fitted: Floats, starts: Ints, penalty: float) -> Bent:
    """Return the targets of every group under its best function; rows `starts[g]:starts[g + 1]` are group g's."""
    found, cost = targets.copy(), 0.0
    if penalty >= LARGEST:
        return Bent(found, 0.0)
    for first, last in pairwise(starts.tolist()):
        if first == last:
            continue
        levels, place = np.unique(targets[first:last], return_inverse=True)
        weights = np.bincount(place) + penalty
        wished = (np.bincount(place, fitted[first:last]) + penalty * levels) / weights
        values = isotonic_regression(wished, weights=weights).x
        found[first:last] = values[place]
        cost += penalty * float(np.sum((values - levels) ** 2))
    return Bent(found, cost)


def nearest_lines(before: Floats, after: Floats, starts: Ints) -> Transforms:
    """Return α and β of the line nearest to each group's change of targets; α is 1 if its targets are all equal."""
    sizes = np.diff(starts)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    count = np.maximum(sizes, 1)

    def total(values: Floats) -> Floats:
        return np.bincount(owner, values, minlength=len(sizes)).astype(np.float64)

    centre, level = total(before) / count, total(after) / count
    away = before - centre[owner]
    spread, joint = total(away**2), total(away * (after - level[owner]))
    scale = np.divide(joint, spread, out=np.ones(len(sizes)), where=spread > 0)
    return Transforms(scale, level - scale * centre)
