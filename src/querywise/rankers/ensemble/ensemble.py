"""Ensemble ranking, supervised and semi-supervised: non-negative weights over rankers, by query [hoi2008]_.

Every feature is the score of a ranker. SER learns one set of weights from the judged queries; SSER learns new weights
for every new query, so that similar documents of that query get similar scores:

    min_{w ≥ 0}  ½ wᵀM w  +  C Σ_i max(0, 1 − w·bⁱ),        M = I + γ GᵀLG for the query's documents G,  I for SER

bⁱ measures how well each ranker's order agrees with the judgments of query i: tr(AᵀR), from ranks. A_kl is how strongly
document k should rank above l: by grades, antisymmetric. R_kl = 1 where a ranker scores k strictly above l, 0 for ties,
δ on the diagonal, every column divided by its sum n_l + δ, n_l the number of documents above l. No n × n matrix is
built: tr(AᵀR) = Σ_l (Σ_{k above l} A_kl) / (n_l + δ), and A depends on grades alone.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, Self, cast

import numpy as np

from querywise.contracts.answers import Answer, Facts, Local, Once, alone, one_each, refused
from querywise.contracts.asking import AnyRanker, ready
from querywise.contracts.forms import depends_on_the_list
from querywise.contracts.protocols import Models
from querywise.data.judged import Candidates, Judged
from querywise.data.labels import refuse_gains, refuse_weights, values_of
from querywise.errors import DataError
from querywise.learners.linear import LinearModel, LinearModels
from querywise.rankers.ensemble.graph import roughness
from querywise.rankers.ensemble.quadratic import Solution, solve
from querywise.rankers.wrappers import normalised
from querywise.runtime.arrays import Floats, Ints, for_kernels
from querywise.runtime.compiled import compiled
from querywise.runtime.stored import ANY_NUMBER, FITTED, POSITIVE, Number, Table, Whole, bools, contents, floats, ints
from querywise.runtime.threads import in_threads
from querywise.runtime.workers import require_memory

_INSTEAD = "Fit ranksvm or knn-offline-2 instead."
_TABLES = 5  # features × features matrices in memory while a program is solved
_WIDEST = 3_000  # most features for solving a program per query: with 10,000 each would take minutes
_STARTS = 256  # most solutions of training queries that are kept
Grades = Literal["three", "difference"]
Similarity = Literal["trace", "rbf"]


@dataclass(eq=False, repr=False)
class SER(AnyRanker):
    """One non-negative weight per ranker, fitted so that the blend agrees with the judgments of the training queries.

    The rankers are the features: columns of scores. They are first scaled to 0 … 1 within each query.

    Args:
        cost: C, the cost of disagreeing with a judged query; above 0.
        grades: three is the paper's: the top grade against 0 and, with weight θ, against those between; difference is
            for any grades.
        theta: θ, the weight of a pair of the top grade above an intermediate one; from 0 to 1.
        smoothing: δ, on the diagonal of R; the larger it is, the less the top ranks stand out. Above 0.
        similarity: trace, tr(AᵀR), or rbf, exp(−‖A − R‖ / similarity_scale).
        similarity_scale: the distance over which rbf falls to 1/e; above 0.
        norm: scale every query's bⁱ to this sum of absolute values, above 0, so that all count equally; None leaves
            them unscaled.

    After fit, `weights_` are the weights, one per feature.

    Raises:
        DataError: A parameter is out of range, weighted training queries, and no preference at all; with SolverError, a
            solution that is not exact enough.

    >>> from querywise import SER, make_judged, split
    >>> train, valid, test = split(make_judged(30, 10, 4))
    >>> ranker = SER().fit(train)
    >>> ranker.weights_.shape, bool((ranker.weights_ >= 0).all()), ranker.predict(test).shape
    ((4,), True, (60,))
    """

    cost: float = 1.0
    _: KW_ONLY
    grades: Grades = "three"
    theta: float = 0.5
    smoothing: float = 1.0
    similarity: Similarity = "trace"
    similarity_scale: float = 1.0
    norm: float | None = None

    stored = contents(
        FITTED,
        cost=POSITIVE,
        rows_=floats("rows", "features"),
        weights_=floats("features"),
        prices_=floats("rows"),
        free_=bools("features"),
        side_=ints("rows", below=3),
        residual_=ANY_NUMBER,
    )

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Learn the weights. There is no early stopping: `valid` is ignored."""
        self._check()
        refuse_weights(data, type(self).__name__, "all queries have the same cost in its quadratic program")
        if self.grades == "three":
            why = "grades='three' is for top, middle and other grades; set grades='difference'"
            refuse_gains(data, f"{type(self).__name__}(grades='three')", why)
        data.require_preferences()
        width = data.feature_count
        require_memory(
            8 * _TABLES * width**2,
            f"{type(self).__name__} with {width} features solves for all weights at once: its tables take",
            "Leave out features, or fit ranksvm, whose tables are fewer, or lambdamart, which has none.",
        )
        self.rows_ = self._agreements(data)
        found = solve(np.eye(width), self.rows_, self.cost)
        self.weights_, self.prices_, self.free_, self.side_ = found.weights, found.prices, found.free, found.side
        self.residual_ = found.residual
        return self

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return the answer by one linear model for all queries, on scores scaled to 0 … 1 within the query."""
        why = depends_on_the_list(type(self), "brings every feature to 0 … 1 within the query", _INSTEAD)
        return refused(alone(LinearModel(self.weights_), normalised(seen)), why)

    def _agreements(self, data: Judged) -> Floats:
        """Return the bⁱ of the queries with a preference."""
        features = normalised(data.candidates).features
        labels = data.labels if data.gains is None else values_of(data)
        top = labels.max(initial=0).item()

        def row(query: int) -> Floats:
            rows = data.candidates.rows(query)
            return agreements(
                features[rows],
                labels[rows],
                top=top,
                kind=self.grades,
                theta=self.theta,
                smoothing=self.smoothing,
                similarity=self.similarity,
                scale=self.similarity_scale,
            )

        found = np.array(in_threads(row, np.flatnonzero(data.pairs > 0).tolist()))
        sizes = np.abs(found).sum(axis=1)
        found = found[sizes > 0]
        factors = np.ones(len(found)) if self.norm is None else self.norm / sizes[sizes > 0]
        scaled: Floats = found * factors[:, None]
        return scaled

    def _check(self) -> None:
        check_agreement(self.grades, self.theta, self.smoothing, self.similarity, self.similarity_scale)
        for name, value in (("cost", self.cost), ("norm", 1.0 if self.norm is None else self.norm)):
            if not 0 < value < np.inf:
                raise DataError(f"{type(self).__name__}({name}={value}) must be a number above 0.")


@dataclass(eq=False, repr=False)
class SSER(SER):
    """SER, solved for every query with its own documents: similar documents should get similar scores.

    Every solution is certified to a KKT residual of 1e-8. It starts from the solution of the training query with the
    most similar documents, a warm start that does not change the result.

    Args:
        gamma: γ, the weight of the query's own documents, from 0 up; 0 is SER.
        neighbours: the number of nearest documents that each is connected to in the graph, from 1 up.
        cost: C, the cost of disagreeing with a judged query; above 0.
        grades: three is the paper's: the top grade against 0 and, with weight θ, against those between; difference is
            for any grades.
        theta: θ, the weight of a pair of the top grade above an intermediate one; from 0 to 1.
        smoothing: δ, on the diagonal of R; the larger it is, the less the top ranks stand out. Above 0.
        similarity: trace, tr(AᵀR), or rbf, exp(−‖A − R‖ / similarity_scale).
        similarity_scale: the distance over which rbf falls to 1/e; above 0.
        norm: scale every query's bⁱ to this sum of absolute values, above 0, so that all count equally; None leaves
            them unscaled.

    Raises:
        DataError: A parameter is out of range, weighted training queries, no preference at all, and more features than
            can be solved for query by query; with SolverError, a solution that is not exact enough.

    >>> from querywise import SSER, make_judged, split
    >>> train, valid, test = split(make_judged(30, 10, 4))
    >>> SSER(gamma=0.5).fit(train).query_weights(test.candidates).shape
    (6, 4)
    """

    gamma: float = 0.5
    _: KW_ONLY
    neighbours: int = 5
    cost: float = 1.0

    stored = contents(
        gamma=Number(least=0.0),
        neighbours=Whole(1),
        start_points_=floats("starts>0", "features"),
        start_free_=bools("starts", "features"),
        start_side_=Table(np.int8, ("starts", "rows"), least=0, below=3),
    )

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Learn the weights of SER, and starting points for queries like those of training; `valid` is ignored."""
        if data.feature_count > _WIDEST:
            raise DataError(
                f"SSER solves a program over all features for every query, which takes too long with "
                f"{data.feature_count} of them; the maximum is {_WIDEST}. Leave out features, or fit ser, which solves "
                "one program."
            )
        super().fit(data, valid=valid)
        features, count = normalised(data.candidates).features, len(data.candidates)
        start = Solution(self.weights_, self.prices_, self.free_, self.side_, self.residual_, 0)

        def one(query: int) -> tuple[Floats, Solution]:
            matrix = self.program(features[data.candidates.rows(query)])
            return np.diag(matrix), solve(matrix, self.rows_, self.cost, start)

        found = in_threads(one, np.unique(np.linspace(0, count - 1, min(count, _STARTS)).astype(np.int64)).tolist())
        self.start_points_ = np.array([point for point, _ in found])
        self.start_free_ = np.array([solution.free for _, solution in found])
        self.start_side_ = np.array([solution.side for _, solution in found], dtype=np.int8)
        return self

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return the answer by one linear model per query, on scores scaled to 0 … 1; by the common one if γ is 0."""
        scaled, everyone = normalised(seen), LinearModel(self.weights_)
        own = np.where(self.gamma > 0, np.arange(len(seen)), np.full(len(seen), -1))
        models: Once[Models] = Once(lambda: LinearModels(self._weights_of(scaled)))
        why = depends_on_the_list(type(self), "learns from all documents of the query", _INSTEAD)
        return Answer(
            scaled,
            lambda: everyone,
            Once(lambda: models().pick(scaled, own) if self.gamma else everyone.predict(scaled)),
            varies=True,
            local=Local(models, Once(lambda: one_each(own, len(seen)))),
            facts=lambda: Facts(refused=why, power=2 if self.gamma else 1),
        )

    def query_weights(self, candidates: Candidates, /) -> Floats:
        """Return queries × rankers: the weights used for each query."""
        return self._weights_of(normalised(ready(self, candidates)))

    def _weights_of(self, seen: Candidates) -> Floats:
        def one(query: int) -> Floats:
            if self.gamma == 0:
                return self.weights_
            matrix = self.program(seen.features[seen.rows(query)])
            return solve(matrix, self.rows_, self.cost, self.start(matrix)).weights

        return np.array(in_threads(one, range(len(seen)))).reshape(len(seen), self.feature_count_)

    def program(self, documents: Floats) -> Floats:
        """Return M = I + γ GᵀLG of some `documents`, rows of their scores on 0 … 1."""
        return np.eye(documents.shape[1]) + self.gamma * roughness(documents, self.neighbours)

    def start(self, matrix: Floats) -> Solution:
        """Return the solution of the training query whose M has the most similar diagonal (roughness) to `matrix`."""
        nearest = _nearest(for_kernels(self.start_points_), matrix)
        return Solution(
            self.weights_, self.prices_, self.start_free_[nearest], self.start_side_[nearest], self.residual_, 0
        )

    def _check(self) -> None:
        super()._check()
        if not 0 <= self.gamma < np.inf:
            raise DataError(f"SSER(gamma={self.gamma}) must be 0, which is SER, or a number above 0.")
        if self.neighbours < 1 or self.neighbours != int(self.neighbours):
            raise DataError(f"SSER(neighbours={self.neighbours}) must be a whole number from 1 up.")


@compiled
def _nearest(points: Floats, matrix: Floats) -> int:
    found, least = 0, np.inf
    for i in range(len(points)):
        gap = 0.0
        for j in range(points.shape[1]):
            gap += (points[i, j] - matrix[j, j]) ** 2
        if gap < least:
            found, least = i, gap
    return found


def preference_matrix(grades: Ints | Floats, top: float, kind: Grades, theta: float) -> Floats:
    """Return A by grade: how strongly a document of one grade should rank above one of another.

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
    """Return one number per ranker, a column of scores each: tr(AᵀR), or exp(−‖A − R‖ / scale) (rbf).

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
    """Raise DataError for settings out of their range."""
    for name, value, known in (("grades", kind, ("three", "difference")), ("similarity", similarity, ("trace", "rbf"))):
        if value not in known:
            raise DataError(f"{name}={value!r} is unknown. Known: {', '.join(known)}.")
    if not 0 <= theta <= 1:
        raise DataError(f"theta={theta} must lie between 0 and 1.")
    for name, number in (("smoothing", smoothing), ("similarity_scale", scale)):
        if not 0 < number < np.inf:
            raise DataError(f"{name}={number} must be a number above 0.")
