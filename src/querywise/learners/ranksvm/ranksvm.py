"""Ranking SVM: a linear model that ranks preferred documents above others by a margin [joachims2002]_.

    min_w  λ/2 ‖w‖²  +  Σ_i v_i · (1/p_i) Σ_{(a,b) ∈ P_i} ℓ(w·(x_ia − x_ib))

P_i are the p_i pairs of query i in which document a has a higher label than b; v are the query weights, which sum to
1 over the queries that have pairs. With `nonnegative`, over w ≥ 0.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, Self

import numpy as np

from querywise.data.judged import Judged
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.learners.linear import WeightedSum
from querywise.learners.ranksvm.local_models import PreparedRankSVM
from querywise.learners.ranksvm.newton import Optimum, Ridge, minimise, minimise_hinge
from querywise.learners.ranksvm.preferences import SQUARED_HINGE, PreferenceParts, preference_parts
from querywise.learners.weights import check_query_weights
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.parameters import parameters_of, unfitted
from querywise.runtime.progress import doing
from querywise.runtime.resume import content, is_resumable
from querywise.runtime.scaling import Scale, Scaling
from querywise.runtime.stored import ANY_NUMBER, POSITIVE, Added, Number, Optional, contents
from querywise.runtime.threads import one_blas_thread
from querywise.runtime.values import is_finite_number
from querywise.runtime.workers import require_memory, workers

# Newton's last steps on the squared hinge are nearly free, so a global model is solved to this gap at any tolerance.
GLOBAL_TOLERANCE = 1e-10
_TABLES = 4  # features × features tables during a Newton step


@dataclass(eq=False, repr=False)
class RankSVM(WeightedSum):
    """A linear ranker trained on preference pairs, without ever enumerating them.

    Args:
        l2: λ, how strongly weights are shrunk toward 0, above 0; with standardized features 1 is a good first guess.
        loss: `squared_hinge`, ℓ(t) = max(0, 1 − t)², or `hinge`, ℓ(t) = max(0, 1 − t).
        pairs: every `query` counts the same whatever its number of pairs, or every `pair` does.
        scale: features are standardized inside, or not (`none`).
        prior: "global" shrinks local models toward the global one, by `prior_l2`; None toward 0. For local models
            only.
        prior_l2: how strongly they are shrunk toward it, non-negative; required for "global".
        tolerance: the relative objective gap that the hinge, and local models, are solved to, between 0 and 1; None
            leaves local models uncertified.
        nonnegative: no weight is below 0, as for scores of fields, where more is never worse. Not for local models.

    After fit, `weights_` are the weights, in the units of the features as given; a score is the weighted sum.

    Raises:
        DataError: A parameter out of its range, data without preferences, and features that are too large to compute
            with, missing, or too many for the memory.

    >>> from querywise import RankSVM, from_arrays
    >>> data = from_arrays([[0.0, 5.0], [1.0, 3.0], [2.0, 4.0]], [0, 1, 2], qid=[7, 7, 7])
    >>> scores = RankSVM().fit(data).predict(data.candidates)
    >>> bool(scores[2] > scores[1] > scores[0])
    True
    """

    l2: float = 1.0
    _: KW_ONLY
    loss: Literal["squared_hinge", "hinge"] = "squared_hinge"
    pairs: Literal["query", "pair"] = "query"
    scale: Scale = "standard"
    prior: Literal["global"] | None = None
    prior_l2: float | None = None
    tolerance: float | None = 1e-3
    nonnegative: bool = False

    stored = contents(
        l2=POSITIVE,
        prior_l2=Optional(Number(least=0.0)),
        tolerance=Optional(Number(above=0.0, most=1.0)),
        nonnegative=Added(False),
        objective_=ANY_NUMBER,
        gap_=ANY_NUMBER,
    )

    def fit(self, data: Training, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Learn the weights of all features. There is no early stopping: `valid` is ignored.

        Args:
            query_weights: how much each query counts, in order, non-negative; None means the weights in `data`, or
                equal ones.
        """
        self.fit_preferences(data, query_weights)
        return self

    def fit_preferences(
        self, data: Training, query_weights: Floats | None = None
    ) -> tuple[PreferenceParts, Scaling, Optimum]:
        """Fit, and return the scaled training pairs, their scaling and the optimum."""
        self._check_parameters()
        _require_room(data.feature_count, 0)
        weights = check_query_weights(query_weights, data)
        with doing("Training a ranking SVM"), one_blas_thread():
            preferences, scaling = preference_parts(data, self.scale)
            optimum = self._solve(preferences, weights, Ridge(self.l2, np.zeros(data.feature_count)))
        self.weights_ = scaling.weights_in_user_units(optimum.weights)
        self.objective_ = optimum.value
        self.gap_ = optimum.gap
        self._remember_features(data)
        return preferences, scaling, optimum

    def takes_parts(self) -> bool:
        """Return whether it can be fitted on shards, which is always true."""
        return True

    def prepare(self, data: Training, /) -> PreparedRankSVM:
        """Return a learner that is ready to train on any weighting of the queries."""
        self._check_parameters()
        if self.nonnegative:
            raise DataError("RankSVM(nonnegative=True) is one model for all queries; local models take any weights.")
        if self.loss == "squared_hinge" and workers().parts == 1:  # a cluster keeps them in the memory of all machines
            # with a memory budget, the other parts are on disk
            parts = len(data.parts()) if workers().memory is not None else 1
            _require_room(data.feature_count, -(-len(data) // parts))

        def made() -> PreparedRankSVM:
            everyone = unfitted(self)
            found = PreparedRankSVM(unfitted(self)).fit(everyone, *everyone.fit_preferences(data))
            if is_resumable():
                found.identity = content(data.fingerprint())
            return found if data.query_weights is None else found.weighted(data.query_weights)

        without_prior = (type(self), {**parameters_of(self), "prior": None, "prior_l2": None})
        return cached("PreparedRankSVM", without_prior, data, made).for_learner(unfitted(self))

    def _solve(self, preferences: PreferenceParts, query_weights: Floats, ridge: Ridge) -> Optimum:
        coefficients = pair_coefficients(query_weights, preferences.pairs, self.pairs)
        start = ridge.minimiser
        if not coefficients.any():
            return Optimum(start, ridge.value(start), 0.0)
        given, bounded = (preferences, coefficients), self.nonnegative
        if self.loss == "hinge":
            asked = self.tolerance or 1e-3
            return minimise_hinge(*given, ridge=ridge, tolerance=asked, start=start, nonnegative=bounded)
        asked = GLOBAL_TOLERANCE
        return minimise(*given, ridge=ridge, loss=SQUARED_HINGE, tolerance=asked, start=start, nonnegative=bounded)

    def _check_parameters(self) -> None:
        for name, choices in (("loss", ("squared_hinge", "hinge")), ("pairs", ("query", "pair"))):
            if getattr(self, name) not in choices:
                raise DataError(f"RankSVM({name}={getattr(self, name)!r}) is unknown. Known: {', '.join(choices)}.")
        if type(self.nonnegative) is not bool:
            raise DataError(f"RankSVM(nonnegative={self.nonnegative!r}) must be True or False.")
        if not (is_finite_number(self.l2) and self.l2 > 0):
            raise DataError(f"RankSVM(l2={self.l2}) must be a positive number.")
        if self.prior == "global" and self.prior_l2 is None:
            raise DataError("RankSVM(prior='global') needs prior_l2, how strongly local models are pulled toward it.")
        if self.prior not in (None, "global"):
            raise DataError(f"RankSVM(prior={self.prior!r}) is unknown. Known: None, 'global'.")
        if self.prior_l2 is not None and not (is_finite_number(self.prior_l2) and self.prior_l2 >= 0):
            raise DataError(f"RankSVM(prior_l2={self.prior_l2}) must be a number from 0 up.")
        if self.tolerance is not None and not (is_finite_number(self.tolerance) and 0 < self.tolerance < 1):
            raise DataError(f"RankSVM(tolerance={self.tolerance}) must lie between 0 and 1, or be None.")


def _require_room(features: int, queries: int) -> None:
    """Raise DataError if the curvatures of all queries together and of each separately do not fit into memory."""
    together, alone = 8 * _TABLES * features**2, 2 * features * (features + 1) * queries
    whose = f" of all queries and of {queries} alone" if queries else ""
    require_memory(
        together + alone,
        f"A ranking SVM of {features} features keeps its curvature{whose}, tables of features × features, which take",
        f"Leave out features{', or queries' if queries else ''}; or train trees (LambdaMART), which need none.",
    )


def pair_coefficients(query_weights: Floats, pairs: Ints, count: Literal["query", "pair"]) -> Floats:
    """Return the weight of each pair of a query: v_i/p_i with Σ v = 1 over queries with pairs, or v_i / Σ v_j p_j.

    >>> pair_coefficients(np.array([1.0, 1.0, 1.0]), np.array([4, 1, 0]), "query")
    array([0.125, 0.5  , 0.   ])
    >>> pair_coefficients(np.array([1.0, 1.0, 1.0]), np.array([4, 1, 0]), "pair")
    array([0.2, 0.2, 0. ])
    """
    active = np.where(pairs > 0, query_weights, 0.0)
    per_pair = active if count == "pair" else active / np.maximum(pairs, 1)
    total = float(per_pair @ pairs)
    return per_pair / total if total > 0 else np.zeros(len(pairs))
