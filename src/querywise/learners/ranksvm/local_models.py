"""Shared curvature: train all local ranking SVMs at a few times the cost of one.

Train w₀ on all queries by Newton's method and keep every query's gradient G_i and curvature H_i there. The Newton step
from w₀ on any weighting v of the queries needs only sums of them; for all rows of V at once it is

    W = w₀ − ((λ+μ) I + V·H)⁻¹ (λ w₀ + V·G)

The fewer queries have weight, the less exact that one step is. With a tolerance, every model's gap is certified on the
rows that have weight; models that miss it take further steps, first with the same curvature and then, one by one, with
their own. Curvature only steers steps and never certifies them, so single precision is enough for it.

Centres are a few points with local models around them, where every training query's gradient is known. The farther a
step from w₀ goes, the less exact it is. A step with the same curvature from a center c that is nearer,

    w = c − ((λ+μ) I + V·H)⁻¹ (λ c + μ (c − w₀) + V·G(c))

continues from there at the cost of a sum: G(c) is computed once for all models around c. A center is so near that the
curvature hardly matters: if many models are similar, that of their mean row of V suffices for all.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from querywise.data.judged import Judged
from querywise.data.labels import StoredWeights, joined_weights
from querywise.data.rows import count_pairs
from querywise.learners.linear import LinearLearner, LinearModels
from querywise.learners.ranksvm.anchors import Anchors, Given
from querywise.learners.ranksvm.certificates import MANY, Gaps, gaps, gaps_if_rounded
from querywise.learners.ranksvm.newton import Optimum, Ridge, State, refined
from querywise.learners.ranksvm.preferences import (
    SQUARED_HINGE,
    PreferenceParts,
    Preferences,
    joined,
    query_ranges,
    total,
)
from querywise.learners.ranksvm.systems import (
    Curved,
    LinearSystems,
    Spread,
    curvature,
    curved_queries,
    factored,
    first_step,
    gradient_sums,
    gradients_of,
    solved,
    step_sums,
)
from querywise.learners.weights import WeightRows, check_query_weights, weighed
from querywise.runtime.arrays import Floats, Ints, for_kernels
from querywise.runtime.progress import doing
from querywise.runtime.resume import content, finish_jobs
from querywise.runtime.scaling import Moments, Scaling
from querywise.runtime.stored import Absent, Known, Optional, Starts, Table, contents, floats, ints, part, require
from querywise.runtime.threads import in_threads, one_blas_thread, slices
from querywise.runtime.workers import Kept, ThisProcess

_MEMORY = 256_000_000  # bytes for the curvatures of the models trained at a time
_CENTRES = 8
_SAMPLE = 64  # models from which the centers are computed
_WORTH = 16  # share of the cost of certifying all models that centers may take
_AT_ONCE = 4096  # most models processed at a time
_COMMON = 8  # times the sample: with fewer models, testing for a common curvature does not pay
_LATE = 1 / 16  # of the sample: if more miss the tolerance with a common curvature, models use their own
_FROZEN_STEPS = 20
_ANCHORS = 64
_APART = 12  # training queries for each anchor, at least
_LIKELY = 0.1  # share of training queries that a row must weight to be likely to resemble an anchor
_LARGE = 100_000  # size of a row's curvatures from which reading fewer of them pays
_PROGRESS = 0.8  # a step with the same curvature must shrink the gap to at most this share for another one to be tried
_ROUNDS = 10  # of Lloyd's algorithm

_Solve = Callable[[Ints, Floats], Floats]  # solves the systems of some rows, given a right-hand side each
_Certify = Callable[[Spread, WeightRows, Floats, Ridge], Gaps]


class Centres(NamedTuple):
    """Center points, a row each, and the results of `gradients_at` for every part of the queries, kept by workers.

    `system` is the curvature that models have in common, if that suffices for them.
    """

    points: Floats
    gradients: Sequence[Kept]
    system: LinearSystems | None = None

    def solve(self, right: Floats) -> Floats:
        """Return the solutions of the common system, given a right-hand side each."""
        assert self.system is not None
        return solved(self.system, np.zeros(len(right), np.int64), right)


def centre_points(models: Floats, count: int) -> Floats:
    """Return this many centers of some models, by K-means from models as far apart as possible, without randomness."""
    chosen = [models[_squares(models, models.mean(axis=0)).argmax()]]
    for _ in range(count - 1):
        chosen.append(models[np.min([_squares(models, each) for each in chosen], axis=0).argmax()])
    points = np.array(chosen)
    for _ in range(_ROUNDS):
        own = nearest(points, models)
        points = np.array([models[own == each].mean(axis=0) for each in np.unique(own)])
    return points


def nearest(points: Floats, models: Floats) -> Ints:
    """Return the index of the point nearest to each model."""
    found: Ints = np.argmin([_squares(models, each) for each in points], axis=0)
    return found


def gradients_at(pairs: Preferences, points: Floats) -> Floats:
    """Return points × queries × features: the gradient of each query's mean loss there."""
    from querywise.learners.ranksvm import kernels

    gradients = np.empty((len(points), len(pairs.pairs), points.shape[1]))
    models = for_kernels(points)

    def part(queries: range) -> None:
        kernels.gradients_at(*pairs.for_kernels(), models, queries.start, queries.stop, gradients)

    in_threads(part, query_ranges(pairs.starts))
    return gradients


def sums_at(gradients: Floats, shares: WeightRows, own: Ints) -> Floats:
    """Return a part of V·G(c) for some models, where c is each model's own center."""
    sums = np.empty((len(shares), gradients.shape[2]))
    for number, table in enumerate(gradients):
        rows = np.flatnonzero(own == number)
        if len(rows):
            sums[rows] = shares.select(rows).times(table)
    return sums


def _squares(models: Floats, point: Floats) -> Floats:
    away = models - point
    squares: Floats = np.einsum("ij,ij->i", away, away)
    return squares


class PreparedRankSVM:
    """A ranking SVM on all queries, with what is needed to train one on any weighting of them.

    `everyone` is the global model. Without a tolerance, training documents are not kept: a model is then a single step.
    """

    stored = contents(
        everyone_=part(LinearLearner),
        spread_=floats("features", above=0.0),
        centre_=floats("features"),
        pairs_=ints("queries"),
        query_weights_=Absent(StoredWeights("queries")),
        gradients_=Absent(floats("queries", "features")),
        curvatures_=Absent(Table(np.float32, ("queries", "triangle"))),
        features_=Optional(floats("rows", "features")),
        levels_=Optional(ints("rows")),
        starts_=ints("places"),
    )

    def __init__(self, learner: LinearLearner) -> None:
        self.learner = learner
        self._spread: Spread | None = None
        self._anchors: Anchors | None = None
        self.identity: str | None = None  # identity of the training queries, if finished models are cached

    def fit(self, everyone: LinearLearner, preferences: PreferenceParts, scaling: Scaling, optimum: Optimum, /) -> Self:
        """Compute every query's gradient and curvature at the global model, given the pairs it was trained on."""
        self.everyone_ = everyone
        self.spread_ = scaling.spread
        self.centre_ = optimum.weights
        self.pairs_ = preferences.pairs
        curved: Sequence[Any] = []  # the hinge has no curvature
        if self.learner.loss == "squared_hinge":
            with doing("Curvature of every query"), one_blas_thread():
                curved = preferences.workers.keep(curved_queries, preferences.parts, optimum.states or [])
        keeps_rows = self.learner.tolerance is not None or self.learner.loss == "hinge"
        pairs = preferences.parts if keeps_rows else []
        self._spread = Spread(preferences.workers, curved, pairs, preferences.cuts)
        if isinstance((*curved, *pairs)[0], (Curved, Preferences)) and len(self._spread) == 1:
            self._remember()
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that curvatures and training pairs are present if the learner needs them, and consistent."""
        features, loss = known.sizes["features"], self.learner.loss
        curved = hasattr(self, "gradients_") and hasattr(self, "curvatures_")
        require(curved or loss != "squared_hinge", "PreparedRankSVM.curvatures_ is missing")
        known.tie("triangle", features * (features + 1) // 2, "PreparedRankSVM.curvatures_")
        if self.features_ is None or self.levels_ is None:
            needed = self.learner.tolerance is not None or loss == "hinge"
            require(not needed, "PreparedRankSVM.features_ or levels_ is missing")
            return
        Starts("queries", "rows").check(self.starts_, "PreparedRankSVM.starts_", known)
        pairs = count_pairs(self.levels_, self.starts_)
        require(np.array_equal(pairs, self.pairs_), "PreparedRankSVM.pairs_ are not those of its levels_")

    def weighted(self, query_weights: Floats) -> Self:
        """Set weights of the training queries, by which every row of V is multiplied."""
        self.query_weights_ = query_weights
        return self

    def add(self, data: Judged, /) -> Self:
        """Return a copy with more training queries: their gradients and curvatures are those at the same global model.

        Labels are compared within a query only, so the grades of added queries may be others.
        """
        check_query_weights(None, data)
        known = getattr(self, "query_weights_", None)
        weights = joined_weights([known, data.query_weights], [len(self.pairs_), len(data)])
        features, spread, other = data.candidates.features, self._parts(), copy.copy(self)
        scaling = Scaling(Moments.of(features).mean, self.spread_)  # the center changes nothing
        added = Preferences(scaling.apply(features), data.labels, data.candidates.starts)
        curved, pairs = [*spread.curved], [*spread.pairs]
        if curved:
            scores = added.scores(self.centre_)
            curved.append(curved_queries(added, State(scores, added.sums(scores, SQUARED_HINGE))))
        if pairs:
            pairs.append(added)
        other.pairs_ = np.concatenate([self.pairs_, added.pairs])
        other._spread, other._anchors, other.identity = replace(spread, curved=curved, pairs=pairs), None, None
        other._remember()
        other._spread = None
        return other if weights is None else other.weighted(weights)

    def gathered(self) -> Self:
        """Return the object with the data that workers hold gathered here, so that it can be saved."""
        if self._spread is not None and not hasattr(self, "starts_"):
            self._remember()
            self._spread = None
        return self

    def _remember(self) -> None:
        spread = self._parts()
        if spread.curved:
            parts = spread.fetched(spread.curved)
            self.gradients_ = joined([each.gradients for each in parts])
            self.curvatures_ = joined([each.curvatures for each in parts])
        pairs = Preferences.joined(spread.fetched(spread.pairs)) if spread.pairs else None
        self.starts_ = np.zeros(1, np.int64) if pairs is None else pairs.starts
        self.features_ = None if pairs is None else pairs.features
        self.levels_ = None if pairs is None else pairs.levels

    def _parts(self) -> Spread:
        """Return the training queries in parts: kept by the workers or, for a loaded learner, here."""
        if self._spread is None:
            pairs, curved = [], []
            if self.features_ is not None and self.levels_ is not None:
                pairs = [Preferences(self.features_, self.levels_, self.starts_)]
            if hasattr(self, "curvatures_"):
                curved = [Curved(self.gradients_, self.curvatures_)]
            self._spread = Spread(ThisProcess(), curved, pairs, np.array([0, len(self.pairs_)]))
        return self._spread

    def for_learner(self, learner: LinearLearner) -> Self:
        """Return a copy for a learner that differs only in its prior, which only local models use."""
        other = copy.copy(self)
        other.learner = learner
        other._anchors = None
        other.everyone_ = copy.copy(self.everyone_)
        other.everyone_.prior, other.everyone_.prior_l2 = learner.prior, learner.prior_l2
        return other

    @property
    def everyone(self) -> LinearLearner:
        """The global model, used as the prior and as the fallback."""
        return self.everyone_

    def models(self, query_weights: csr_array, /, *, like: Callable[[int], csr_array] | None = None) -> LinearModels:
        """Train one model per row of V. A row without a query that has pairs gets the prior's center.

        `like(n)` returns n rows like those to come; a few rows are then trained from sums precomputed for these.
        """
        own = weighed(query_weights, getattr(self, "query_weights_", None))  # only if the data has any
        # For small problems BLAS uses one thread anyway.
        few = own.shape[0] < MANY
        with contextlib.nullcontext() if few and len(self.centre_) < 200 else one_blas_thread():
            if few and like is not None and self._may_resemble(own):
                return LinearModels(self._beside_anchors(own, like) / self.spread_)
            shares = WeightRows.of(own, self.pairs_, self.learner.pairs)
            if self.learner.loss == "hinge":
                first, which = shares.distinct()  # with k = m all rows are the same
                some, start = shares.select(first), np.tile(self.centre_, (len(first), 1))
                key = self.identity and content((self.identity, self.learner, some))
                weights = self._one_by_one(some, start, key)[which]
            else:
                weights = self._all_at_once(shares)
        return LinearModels(weights / self.spread_)

    def _may_resemble(self, rows: csr_array) -> bool:
        """Return whether rows weight enough training queries for anchors to pay, with all of them in memory here."""
        d = len(self.centre_)
        if self.learner.loss == "hinge" or not rows.shape[0] or rows.shape[1] != len(self.pairs_):
            return False
        fewest = len(rows.indices) if rows.shape[0] == 1 else np.diff(rows.indptr).min()
        likely = fewest >= max(_LIKELY * rows.shape[1], 2 * _LARGE / (d * (d + 1)))
        return bool(likely) and isinstance(self._parts().curved[0], Curved)

    def _beside_anchors(self, rows: csr_array, like: Callable[[int], csr_array]) -> Floats:
        """Return the models of a few rows, each from its most similar anchor."""
        if self._anchors is None:
            count = max(1, min(_ANCHORS, len(self.pairs_) // _APART))
            typical = weighed(like(count), getattr(self, "query_weights_", None))
            shares, tolerance = WeightRows.of(typical, self.pairs_, self.learner.pairs), self.learner.tolerance
            points = np.tile(self.centre_, (len(shares), 1)) if tolerance is None else self._all_at_once(shares)
            given = Given.of(self.pairs_, self.learner.pairs, *self._parts().here(), self._ridge(), tolerance)
            self._anchors = Anchors.of(shares, given, points)
        if rows.shape[0] == 1:
            return self._beside(self._anchors, rows)[None, :]
        return np.array([self._beside(self._anchors, rows[[row]]) for row in range(rows.shape[0])])

    def _beside(self, anchors: Anchors, weights: csr_array) -> Floats:
        """Return the model of one row: a step from an anchor's point, then as many more as the tolerance requires."""
        found, proven = None, True
        if anchors.given.pairs is None:
            found = anchors.bare(weights)
        elif (near := anchors.nearest(row := anchors.row(weights))) is not None:
            found, proven = anchors.certified(near, row)
        if found is not None and proven:
            return found
        own = WeightRows.of(weights, self.pairs_, self.learner.pairs)
        return np.asarray((self._all_at_once(own) if found is None else self._one_by_one(own, found[None, :]))[0])

    def pulls(self) -> Floats:
        """Return each query's gradient at the global model, whitened: in units in which the global curvature is 1.

        Half its squared norm is the decrease by the query's own Newton step with that curvature, on any feature scale.
        """
        everyone = WeightRows.of(csr_array(np.ones((1, len(self.pairs_)))), self.pairs_, self.learner.pairs)
        pool, curved = self._parts().workers, self._parts().curved
        sums = pool.each(step_sums, *self._parts().asked(curved, everyone))
        values, directions = np.linalg.eigh(curvature(sums, self.learner.l2)[0])
        gradients = joined(pool.each(gradients_of, curved))
        whitened: Floats = gradients @ (directions / np.sqrt(np.maximum(values, self.learner.l2)))
        return whitened

    def gradients(self) -> Floats | None:
        """Return training queries × features: gradients at the global model, by the weights of unscaled features."""
        if self.learner.loss == "hinge":
            return None
        return joined(self._parts().workers.each(gradients_of, self._parts().curved)) * self.spread_

    def _ridge(self) -> Ridge:
        prior = (self.learner.prior_l2 or 0.0) if self.learner.prior == "global" else 0.0
        return Ridge(self.learner.l2, self.centre_, prior)

    def _all_at_once(self, shares: WeightRows) -> Floats:
        centres = None if self.learner.tolerance is None else self._centres(shares)
        if centres is None or centres.system is None:
            return self._in_blocks(shares, centres)
        common, blocks = centres, slices(len(shares), _AT_ONCE)
        parts = self._parts().workers.together(
            lambda block: self._in_common(shares.select(block), common), blocks, "Local models"
        )
        weights = np.concatenate([each for each, _ in parts])
        late = np.concatenate([block.start + each for block, (_, each) in zip(blocks, parts, strict=True)])
        if len(late):
            weights[late] = self._in_blocks(shares.select(late), centres)
        return weights

    def _in_blocks(self, shares: WeightRows, centres: Centres | None) -> Floats:
        """Return the models of rows, each with its own curvature, as many at a time as fit into memory."""
        d = len(self.centre_)
        each = 2 * d * (d + 1) * (len(self._parts()) + 1)  # bytes: a sum from every part, and the factor
        room = min(_MEMORY, (self._parts().workers.memory or np.inf) / 10)
        blocks = slices(len(shares), max(1, min(int(room // each), _AT_ONCE)))
        known = (self.identity, self.learner, shares, None if centres is None else centres.points)
        key, pool = self.identity and content(known), self._parts().workers
        parts = finish_jobs(pool, lambda block: self._block(shares.select(block), centres), blocks, "Local models", key)
        weights = np.concatenate(parts) if parts else np.zeros((0, d))
        assert len(weights) == len(shares), "a model for every row"
        return weights

    def _centres(self, shares: WeightRows) -> Centres | None:
        """Return centers of the single steps of some rows, or None if certifying is too cheap for them to pay."""
        if len(shares.queries) < _WORTH * _CENTRES * shares.columns:
            return None
        rows = np.flatnonzero(shares.has_pairs)
        some = shares.select(rows[np.linspace(0, len(rows) - 1, min(_SAMPLE, len(rows))).astype(np.int64)])
        points = centre_points(self._first_steps(some, more=False)[0], _CENTRES)
        centres = Centres(points, self._parts().workers.keep(gradients_at, self._parts().pairs, shared=(points,)))
        return self._with_common(centres, some) if len(rows) >= _COMMON * _SAMPLE else centres

    def _with_common(self, centres: Centres, some: WeightRows) -> Centres:
        """Return the centers, with the mean row's curvature if it certifies nearly all models of some rows at once."""
        spread, mean = self._parts(), some.matrix().mean(axis=0)
        row = WeightRows.of(csr_array(np.reshape(mean, (1, -1))), self.pairs_, "query")
        sums = spread.workers.each(step_sums, *spread.asked(spread.curved, row))
        _, system = factored(sums, self._ridge().strength, np.zeros((1, len(self.centre_))), again=True)
        common = centres._replace(system=system)
        _, late = self._in_common(some, common, again=False)  # a second check of all would cost what is saved
        return common if len(late) <= _LATE * len(some) else centres

    def _first_steps(self, shares: WeightRows, *, more: bool) -> tuple[Floats, Any]:
        """Return the step from w₀ for some rows and, if more may follow, their systems, kept by workers."""
        spread = self._parts()
        sums = spread.workers.keep(step_sums, *spread.asked(spread.curved, shares))
        shared = (shares.has_pairs, self._ridge(), self.centre_, more)
        (weights,), (systems,) = spread.workers.both(_first_step, *([each] for each in sums), shared=shared)
        return weights, systems

    def _in_common(self, shares: WeightRows, centres: Centres, *, again: bool = True) -> tuple[Floats, Ints]:
        """Return the models of some rows by steps with their common curvature, and those that miss the tolerance.

        They are certified in single precision, with an allowance for rounding. `again` says whether those that miss the
        tolerance at first take further steps.
        """
        spread, ridge = self._parts(), self._ridge()
        weights = np.where(shares.has_pairs[:, None], self.centre_, ridge.minimiser)
        pending = np.flatnonzero(shares.has_pairs)
        sums = spread.workers.each(gradient_sums, *spread.asked(spread.curved, shares.select(pending)))
        weights[pending] -= centres.solve(ridge.gradient(self.centre_) + total(sums))

        def solve(_: Ints, right: Floats) -> Floats:
            return centres.solve(right)

        self._step_from(centres, shares, weights, solve, pending)
        most = _FROZEN_STEPS if again else 0
        return weights, self._frozen_steps(shares, weights, solve, pending, gaps_if_rounded, most)

    def _block(self, shares: WeightRows, centres: Centres | None) -> Floats:
        """Return the models of some rows: the step from w₀, then as many more as the tolerance requires."""
        weights, systems = self._first_steps(shares, more=self.learner.tolerance is not None)
        if self.learner.tolerance is None:
            return weights
        weights = np.array(weights)  # a copy, since results of workers may be read-only
        pending = np.flatnonzero(shares.has_pairs)

        def solve(rows: Ints, right: Floats) -> Floats:
            return self._parts().workers.each(solved, [systems], shared=(rows, right))[0]

        if centres is not None:
            self._step_from(centres, shares, weights, solve, pending)
        late = self._frozen_steps(shares, weights, solve, pending, gaps, _FROZEN_STEPS)
        if len(late):
            weights[late] = self._one_by_one(shares.select(late), weights[late])
        return weights

    def _step_from(self, centres: Centres, shares: WeightRows, weights: Floats, solve: _Solve, pending: Ints) -> None:
        """Step from the nearest center; models nearer to w₀ stay unchanged."""
        spread, ridge = self._parts(), self._ridge()
        own = nearest(np.vstack([self.centre_, centres.points]), weights[pending]) - 1
        moved, own = pending[own >= 0], own[own >= 0]
        some, points = shares.select(moved), centres.points[own]
        gradient = ridge.gradient(points)
        for each in spread.workers.each(sums_at, *spread.asked(centres.gradients, some), shared=(own,)):
            gradient += each
        weights[moved] = points - solve(moved, gradient)

    def _frozen_steps(
        self, shares: WeightRows, weights: Floats, solve: _Solve, pending: Ints, certify: _Certify, most: int
    ) -> Ints:
        """Certify models, stepping again with the same curvature while that helps.

        Return those that miss the tolerance.
        """
        best = np.full(len(weights), np.inf)
        late = [np.zeros(0, dtype=np.int64)]
        for steps_left in reversed(range(most + 1)):
            if not len(pending):
                break
            gaps, values, gradient = certify(self._parts(), shares.select(pending), weights[pending], self._ridge())
            missed = gaps > (self.learner.tolerance or 0.0) * values
            again = missed & (gaps < _PROGRESS * best[pending]) & (steps_left > 0)
            late.append(pending[missed & ~again])
            best[pending] = gaps
            pending, gradient = pending[again], gradient[again]
            if len(pending):
                weights[pending] -= solve(pending, gradient)
        return np.sort(np.concatenate(late))

    def _one_by_one(self, shares: WeightRows, start: Floats, key: str | None = None) -> Floats:
        """Run Newton's method for every row from its current weights, with the curvature of the queries it weights."""
        spread, ridge = self._parts(), self._ridge()

        def train(row: int) -> Floats:
            queries, share = shares.row(row)
            if not len(queries):
                return ridge.minimiser
            order = np.argsort(queries, kind="stable")
            chosen = spread.workers.keep(Preferences.select, *spread.holding(queries[order]))
            shared = (share[order], start[row], ridge, self.learner.loss, self.learner.tolerance or 1e-3)
            found: Floats = spread.workers.each(_refined, *([each] for each in chosen), shared=shared)[0]
            return found

        if not len(start):
            return start
        threads = spread.workers.memory is None  # each thread would have its own parts in memory
        rows, label = range(len(start)), "Refining local models"
        return np.array(finish_jobs(spread.workers, train, rows, label, key, side_by_side=threads))


def _first_step(*given: Any) -> tuple[Floats, LinearSystems]:
    return first_step(given[:-4], *given[-4:])


def _refined(*given: Any) -> Floats:
    return refined(given[:-5], *given[-5:])
