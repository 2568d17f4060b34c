"""Shared curvature: all local ranking SVMs for a few times the price of one.

Train w₀ on all queries by Newton and keep every query's gradient G_i and curvature H_i there. The Newton step from w₀
on any weighting v of the queries needs only sums of them; for all rows of V at once it is

    W = w₀ − ((λ+μ) I + V·H)⁻¹ (λ w₀ + V·G)

How exact that bare step is depends on how few queries decide. With a tolerance, every model's gap is certified on the
rows that have weight; models that miss it take further steps, first with the same curvature and then, one by one, with
their own. Curvature only steers steps and never certifies them, so single precision is enough for it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.sparse import csr_array

from querywise.arrays import Floats, Ints
from querywise.data.groups import Judged
from querywise.learners.linear import LinearModels
from querywise.learners.newton import Ridge, minimise, minimise_hinge
from querywise.learners.preferences import SQUARED_HINGE, Preferences
from querywise.learners.shares import Shares
from querywise.parameters import unfitted
from querywise.progress import doing, track
from querywise.threads import in_threads, one_blas_thread

if TYPE_CHECKING:
    from querywise.learners.ranksvm import RankSVM

_MEMORY = 256_000_000  # bytes for the curvatures of the models in hand
_MANY = 16  # models from which on work is done for all at once, rather than one by one
_QUERY_BLOCKS = 16  # gradients are added up in this many parts, whatever the number of threads
_FROZEN_STEPS = 20
_PROGRESS = 0.8  # a step with the same curvature must shrink the gap at least to this for another to be tried
_NOTHING = (np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0), 0)


class PreparedRankSVM:
    """A ranking SVM on all queries, and what it takes to train one on any weighting of them.

    `everyone` is the global model. Without a tolerance no training document is kept: a model is then the bare step.
    """

    def __init__(self, learner: RankSVM) -> None:
        self.learner = learner
        self._everything: Preferences | None = None

    def fit(self, data: Judged, /) -> Self:
        """Train the global model; compute every query's gradient and curvature there."""
        self.everyone_ = unfitted(self.learner)
        preferences, scaling, optimum = self.everyone_.fit_preferences(data)
        self.spread_ = scaling.spread
        self.centre_ = optimum.weights
        self.pairs_ = preferences.pairs
        self.starts_ = preferences.starts
        if self.learner.loss == "squared_hinge":
            with doing("Curvature of every query"), one_blas_thread():
                scores, sums = optimum.scores, optimum.sums
                if scores is None or sums is None:
                    raise AssertionError("the squared hinge is minimised by its scores")
                mean = np.where(self.pairs_ > 0, 1 / np.maximum(self.pairs_, 1), 0.0)
                self.gradients_ = preferences.gradients(sums.gradient, mean)
                self.curvatures_ = preferences.curvatures(scores, sums.degree, mean, SQUARED_HINGE)
        keeps_rows = self.learner.tolerance is not None or self.learner.loss == "hinge"
        self.features_ = preferences.features if keeps_rows else None
        self.levels_ = preferences.levels if keeps_rows else None
        self._everything = preferences if keeps_rows else None
        return self

    def for_learner(self, learner: RankSVM) -> Self:
        """The same for a learner that differs in its prior alone, which only local models hear of."""
        other = copy.copy(self)
        other.learner = learner
        other.everyone_ = copy.copy(self.everyone_)
        other.everyone_.prior, other.everyone_.prior_l2 = learner.prior, learner.prior_l2
        return other

    @property
    def everyone(self) -> RankSVM:
        """The global model: prior, back-off."""
        return self.everyone_

    def models(self, query_weights: csr_array, /) -> LinearModels:
        """One model per row of V. A row without a query that has pairs is the prior's centre alone."""
        shares = Shares.of(query_weights, self.pairs_, self.learner.pairs)
        # BLAS keeps to one thread by itself where there is little to do.
        few = len(shares) < _MANY and len(self.centre_) < 200
        with contextlib.nullcontext() if few else one_blas_thread():
            if self.learner.loss == "hinge":
                weights = self._one_by_one(shares, np.tile(self.centre_, (len(shares), 1)))
            else:
                weights = self._all_at_once(shares)
        return LinearModels(weights / self.spread_)

    def pulls(self) -> Floats:
        """Where each query pulls the global model: its gradient, in units in which the global curvature is 1.

        Half its squared length is what a step of its own with that curvature would gain, whatever the features measure.
        """
        everyone = Shares.of(csr_array(np.ones((1, len(self.pairs_)))), self.pairs_, self.learner.pairs)
        values, directions = np.linalg.eigh(self._curvatures(everyone, self.learner.l2)[0].astype(np.float64))
        whitened: Floats = self.gradients_ @ (directions / np.sqrt(np.maximum(values, self.learner.l2)))
        return whitened

    def gradients(self) -> Floats | None:
        """Training queries × features: each one's gradient at the global model, by the weights as the user has them."""
        return self.gradients_ * self.spread_ if hasattr(self, "gradients_") else None

    def _ridge(self) -> Ridge:
        prior = (self.learner.prior_l2 or 0.0) if self.learner.prior == "global" else 0.0
        return Ridge(self.learner.l2, self.centre_, prior)

    def _all_at_once(self, shares: Shares) -> Floats:
        d = len(self.centre_)
        blocks = _slices(len(shares), max(1, min(_MEMORY // (8 * d * d), 4096)))
        shown = track(blocks, "Local models") if len(blocks) > 1 else blocks
        parts = [self._block(shares.select(block)) for block in shown]
        return np.concatenate(parts) if parts else np.zeros((0, d))

    def _block(self, shares: Shares) -> Floats:
        """The models of some rows: the step from w₀, then as many more as the tolerance asks for."""
        ridge = self._ridge()
        taught = shares.taught
        weights = np.where(taught[:, None], self.centre_, ridge.minimiser)
        gradient = np.where(taught[:, None], ridge.gradient(self.centre_) + shares.times(self.gradients_), 0.0)
        curvature = self._curvatures(shares, ridge.strength)
        weights -= _solved(curvature, gradient)
        tolerance = self.learner.tolerance
        if tolerance is None:
            return weights
        late = self._frozen_steps(shares, weights, curvature, np.flatnonzero(taught), tolerance)
        if len(late):
            weights[late] = self._one_by_one(shares.select(late), weights[late])
        return weights

    def _frozen_steps(
        self, shares: Shares, weights: Floats, curvature: Floats, pending: Ints, tolerance: float
    ) -> Ints:
        """Certify, and step again with the same curvature while that helps; which models still miss the tolerance."""
        ridge = self._ridge()
        best = np.full(len(weights), np.inf)
        late = [np.zeros(0, dtype=np.int64)]
        for steps_left in reversed(range(_FROZEN_STEPS + 1)):
            if not len(pending):
                break
            values, gradient = self._objective(shares.select(pending), weights[pending], ridge)
            gaps = np.einsum("ij,ij->i", gradient, gradient) / (2 * ridge.strength)
            missed = gaps > tolerance * values
            again = missed & (gaps < _PROGRESS * best[pending]) & (steps_left > 0)
            late.append(pending[missed & ~again])
            best[pending] = gaps
            pending, gradient = pending[again], gradient[again]
            weights[pending] -= _solved(curvature[pending], gradient)
        return np.sort(np.concatenate(late))

    def _curvatures(self, shares: Shares, strength: float) -> Floats:
        """(λ+μ) I + V·H, a full matrix per row."""
        from querywise.learners import pairwise as kernels

        d = len(self.centre_)
        full = np.empty((len(shares), d, d))
        weights = shares.shares.astype(np.float32)

        def part(block: slice) -> None:
            packed = np.empty((block.stop - block.start, self.curvatures_.shape[1]), np.float32)
            pointers = shares.pointers[block.start : block.stop + 1]
            kernels.packed_sums(pointers, shares.queries, weights, self.curvatures_, packed)
            kernels.unpacked(packed, strength, full[block])

        in_threads(part, _slices(len(shares), 64))
        return full

    def _objective(self, shares: Shares, weights: Floats, ridge: Ridge) -> tuple[Floats, Floats]:
        """The objectives and gradients of some models, each on the rows of the queries it has a share in."""
        from querywise.learners import pairwise as kernels

        all_pairs = self._preferences()
        few = len(shares) < _MANY  # handing out the work of few models costs more than it
        by_query = Shares(*_NOTHING) if few else shares.by_query()

        def part(queries: range) -> tuple[Floats, Floats]:
            values, gradient = np.zeros(len(weights)), np.zeros_like(weights)
            kernels.model_objectives(
                all_pairs.features, all_pairs.levels, all_pairs.starts, all_pairs.pairs, by_query.pointers,
                by_query.queries, by_query.shares, weights, queries.start, queries.stop, values, gradient,
            )  # fmt: skip
            return values, gradient

        def one(number: int) -> tuple[Floats, Floats]:
            values, gradient = np.zeros(len(weights)), np.zeros_like(weights)
            queries, share = shares.row(number)
            values[number] = kernels.model_objective(
                all_pairs.features, all_pairs.levels, all_pairs.starts, all_pairs.pairs, queries, share,
                weights[number], gradient[number],
            )  # fmt: skip
            return values, gradient

        parts = (
            [one(number) for number in range(len(shares))]
            if few
            else in_threads(part, _ranges(self.starts_, _QUERY_BLOCKS))
        )
        away = weights - ridge.centre
        values = 0.5 * ridge.l2 * np.einsum("ij,ij->i", weights, weights)
        values += 0.5 * ridge.centre_l2 * np.einsum("ij,ij->i", away, away)
        gradient = ridge.l2 * weights + ridge.centre_l2 * away
        for each in parts:
            values += each[0]
            gradient += each[1]
        return values, gradient

    def _one_by_one(self, shares: Shares, start: Floats) -> Floats:
        """Every row's own Newton, from where it stands, each with curvature of its own."""
        ridge = self._ridge()
        all_pairs = self._preferences()
        tolerance = self.learner.tolerance or 1e-3

        def train(row: int) -> Floats:
            queries, share = shares.row(row)
            if not len(queries):
                return ridge.minimiser
            chosen = all_pairs.select(queries)
            coefficients = share / chosen.pairs
            if self.learner.loss == "hinge":
                found = minimise_hinge(chosen, coefficients, ridge=ridge, tolerance=tolerance, start=start[row])
            else:
                found = minimise(
                    chosen, coefficients, ridge=ridge, loss=SQUARED_HINGE, tolerance=tolerance, start=start[row]
                )
            return found.weights

        if not len(start):
            return start
        groups = [range(first, min(first + 32, len(start))) for first in range(0, len(start), 32)]
        shown = track(groups, "Refining local models") if len(groups) > 8 else groups
        return np.concatenate([np.array(in_threads(train, group)) for group in shown])

    def _preferences(self) -> Preferences:
        if self._everything is None:
            assert self.features_ is not None
            assert self.levels_ is not None
            self._everything = Preferences(self.features_, self.levels_, self.starts_)
        return self._everything


def _solved(matrices: Floats, right: Floats) -> Floats:
    """The solutions of many small symmetric systems."""
    parts = in_threads(
        lambda block: np.linalg.solve(matrices[block], right[block][:, :, None])[:, :, 0], _slices(len(matrices), 64)
    )
    return np.concatenate(parts) if parts else right


def _slices(count: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]


def _ranges(starts: Ints, count: int) -> Sequence[range]:
    """Runs of queries with about the same number of rows."""
    cuts = np.searchsorted(starts, np.linspace(0, starts[-1], count + 1)).clip(0, len(starts) - 1)
    cuts[-1] = len(starts) - 1
    return [range(first, last) for first, last in pairwise(cuts.tolist()) if last > first]
