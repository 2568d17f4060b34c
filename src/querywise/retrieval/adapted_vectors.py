"""Query vectors that learn from the judged queries nearest to them, while documents keep theirs.

Embedding models know language, not a collection. `AdaptedVectors` moves a query's vector to where the answers of the
judged queries like it lie. Nothing is indexed again, and any engine that searches vectors takes the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple, Self, TypeAlias

import numpy as np

from querywise.contracts.estimators import Estimator
from querywise.data.vectors import lengths_of
from querywise.display.words import counted
from querywise.errors import DataError, NotFittedError
from querywise.retrieval.judged_vectors import CUT, Given, JudgedVectors, Judgments, Pool, as_numbers, indexed, unit
from querywise.retrieval.query_adapter import Array, Kernel
from querywise.runtime.arrays import Floats, Ints, Singles
from querywise.runtime.parameters import forget_derived
from querywise.runtime.progress import track
from querywise.runtime.stored import Known, Number, Optional, Several, Table, Text, Whole, contents, ints, require

Kind: TypeAlias = Literal["auto", "linear", "by-query"]
LINEAR = Kernel(1.0, None)
KERNELS = (Kernel(0.0, 8.0), Kernel(0.0, 4.0), Kernel(0.0, 2.0), LINEAR)  # tried, in this order
L2 = (0.1, 0.01, 0.001, 0.0001)  # tried, in this order
FEWEST = 100  # training queries below which the gate stays shut
_USUAL_L2 = 0.003  # where nothing is chosen
_FINER = 3.0  # factor to the penalties beside the best that are tried last
_ALL_FOLDS = 500  # training queries up to which every fold has a say in the choice; above, three of them
_SAY = 3
_STEPS, _ROUGH = 15, 1e-2  # of L-BFGS when choosing, and the gap that it may stop at
_FINAL_STEPS, _GAP = 200, 1e-3  # at the end
_WHOLE = 20_000_000  # similarities of training queries to documents up to which the softmax is over all of them
_RANGES = {"gamma": (1e-6, 1e6), "l2": (1e-12, 1e12), "temperature": (1e-4, 1e4)}  # that arithmetic can follow
_IN_RANGE = {name: Number(low, high) for name, (low, high) in _RANGES.items()}
_LARGEST = 1e12  # of the numbers of an adapter's tables


class Tried(NamedTuple):
    """One setting that was tried by cross-validation: what it is, and the mean gain and its standard error."""

    linear: float
    gamma: float | None
    l2: float
    gain: float
    error: float


class Pull(NamedTuple):
    """How much one training query moved a query: its similarity to it, and its share of the whole shift."""

    query: str
    similarity: float
    share: float


class Shift(NamedTuple):
    """Why a query's vector was moved. cosine: between the vector before and after. pulls: the largest share first.

    gained: documents by how much more similar they are now; empty where no document vectors were given.
    """

    cosine: float
    pulls: list[Pull]
    gained: list[tuple[str, float]]


class AdaptedVectors(Estimator):
    """Query vectors moved by the judged queries nearest to them: f(q) = q + Σ_i k(q, q_i) r_i, of unit length.

    k(q, q') = linear · qᵀq' + exp(gamma · (qᵀq' − 1)). The r_i minimize a convex objective, the cross-entropy of the
    relevant documents under a softmax of similarities over `temperature`, plus `l2` · tr(RᵀKR); retrieval/query_adapter
    has the formula. Without the linear part a query far from all training queries keeps its vector.

    kind: `linear`, one linear map for all queries; `by-query`, the exponential kernel; `auto` chooses.
    gamma: how near a training query must be to count, from 1e-6 to 1e6; None is chosen by cross-validation.
    l2: the penalty, from 1e-12 to 1e12; None is chosen by cross-validation.
    temperature: of the softmax, from 1e-4 to 1e4.
    gate: leave all queries where they are unless the cross-validated gain exceeds one standard error.
    folds: parts of the cross-validation over the training queries, from 2 up.
    landmarks: at most so many training queries span the exponential kernel, from 1 up.
    seed: which queries are in which part; from 0 up.

    Refused: with DataError, settings out of range, vectors that are not finite, and judgments of unknown ids.

    >>> import numpy as np
    >>> from querywise import AdaptedVectors
    >>> documents = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> queries = np.array([[0.6, 0.8], [0.8, 0.6]])
    >>> judgments = {"0": {"0": 1}, "1": {"0": 1}}
    >>> adapter = AdaptedVectors("by-query", gamma=2.0, l2=0.01, gate=False).fit(queries, documents, judgments)
    >>> bool((adapter.transform(queries) @ documents[0] > queries @ documents[0]).all())
    True
    """

    stored = contents(
        temperature=_IN_RANGE["temperature"],
        gamma=Optional(_IN_RANGE["gamma"]),
        l2=Optional(_IN_RANGE["l2"]),
        folds=Whole(2),
        landmarks=Whole(1),
        query_ids_=Several(Text(), "queries"),
        queries_=Table(np.float32, ("queries", "dimension")),
        pulls_=Table(np.float32, ("queries", "dimension")),
        landmarks_=ints("landmarks", below="queries"),
        responses_=Table(np.float32, ("landmarks", "dimension")),
        map_=Table(np.float32, ("mapped", "dimension")),
        linear_=Number(least=0.0, most=1.0),
        gamma_=Optional(_IN_RANGE["gamma"]),
        l2_=_IN_RANGE["l2"],
        teachers_=Whole(0),
        gain_=Optional(Number()),
        gain_error_=Optional(Number(least=0.0)),
        gap_=Number(least=0.0),
        pool_=Whole(0),
    )

    def __init__(
        self,
        kind: Kind = "auto",
        *,
        gamma: float | None = None,
        l2: float | None = None,
        temperature: float = 0.05,
        gate: bool = True,
        folds: int = 5,
        landmarks: int = 2000,
        seed: int = 0,
    ) -> None:
        self.kind = kind
        self.gamma = gamma
        self.l2 = l2
        self.temperature = temperature
        self.gate = gate
        self.folds = folds
        self.landmarks = landmarks
        self.seed = seed

    @property
    def adapts(self) -> bool:
        """Whether queries are moved at all: not where the gate stayed shut."""
        self._require_fitted()
        return len(self.query_ids_) > 0

    def fit(
        self,
        query_vectors: Given,
        document_vectors: Given,
        judgments: Judgments,
        weights: Floats | None = None,
        *,
        groups: Ints | None = None,
    ) -> Self:
        """Learn from judged queries.

        query_vectors, document_vectors: tables with a row each, or Vectors, which have ids.
        judgments: query → document → gain, by ids (row numbers as texts where there are none); or a sparse table of
        gains, queries × documents. Gains are 0 or more; queries without a gain above 0 teach nothing.
        weights: how much each query counts, 0 or more; None counts all alike.
        groups: a number per query; queries of one group are in one part of the cross-validation.

        Returns: the adapter itself.

        Refused: with DataError, vectors that are not finite or of two dimensions, and unknown ids.
        """
        data = JudgedVectors.of(query_vectors, document_vectors, judgments, weights, groups)
        self._check()
        self._learn(data, cross_fit=self.gate or self.l2 is None or len(self._kernels()) > 1)
        return self

    def fit_transform(
        self,
        query_vectors: Given,
        document_vectors: Given,
        judgments: Judgments,
        weights: Floats | None = None,
        *,
        groups: Ints | None = None,
    ) -> Floats:
        """Learn, and return the vectors of the training queries, each moved by an adapter that was not trained on it.

        That is what a ranker must be trained on: `transform` would move training queries by their own judgments.

        query_vectors, document_vectors, judgments, weights, groups: as in `fit`.

        Returns: a vector of unit length per query.
        """
        data = JudgedVectors.of(query_vectors, document_vectors, judgments, weights, groups)
        self._check()
        moved = self._learn(data, cross_fit=True)
        found = self.transform(data.every)
        found[data.rows] = data.queries if moved is None else moved
        return found

    def transform(self, query_vectors: Floats) -> Floats:
        """Adapted vectors, of unit length; a vector of zeros stays as it is.

        query_vectors: one vector, or a table with a row each.
        """
        self._require_fitted()
        given = as_numbers(query_vectors, "query vectors")
        table = np.atleast_2d(given)
        if given.ndim not in (1, 2) or table.shape[1] != self.queries_.shape[1]:
            raise DataError(
                f"The query vectors have the shape {given.shape}; this adapter was trained on vectors of "
                f"{self.queries_.shape[1]} numbers."
            )
        lengths_of(range(len(table)), table, "query vectors", "query")  # refuses what is not finite
        found = unit(table)
        if self.adapts:
            found = _moved(found, Kernel(self.linear_, self.gamma_), self._marks, self.map_, self.responses_)
        return found[0] if given.ndim == 1 else found

    def explain(self, query_vector: Floats, documents: Given | None = None, *, show: int = 10) -> Shift:
        """Which training queries moved a query, how far, and toward which documents.

        query_vector: the query's own vector.
        documents: vectors of documents, to tell which of them it was moved toward.
        show: how many training queries and documents to name, from 1 up.
        """
        self._require_fitted()
        given = as_numbers(query_vector, "query_vector")
        if given.ndim != 1:
            raise DataError(f"query_vector has the shape {given.shape}; expected one vector.")
        if show < 1:
            raise DataError(f"show={show}: expected a whole number from 1 up.", arguments=("show",))
        moved = self.transform(given)
        query = unit(given[None])[0]
        similar = self.queries_.astype(np.float64) @ query
        pulls: list[Pull] = []
        if self.adapts:
            shift = moved - query * float(moved @ query)
            length = float(np.sqrt(shift @ shift)) or 1.0
            reach = self.linear_ * similar
            if self.gamma_ is not None:
                reach = reach + np.exp(self.gamma_ * (similar - 1))
            along = reach * (self.pulls_.astype(np.float64) @ (shift / length))
            total = float(np.abs(along).sum()) or 1.0
            best = np.argsort(-np.abs(along), kind="stable")[:show].tolist()
            pulls = [Pull(self.query_ids_[each], float(similar[each]), float(along[each]) / total) for each in best]
        gained: list[tuple[str, float]] = []
        if documents is not None:
            index, ids = indexed(documents, "document")
            index.require_dimension(query[None])
            every = np.arange(len(index))
            more = index.similarities(moved, every) - index.similarities(query, every)
            gained = [(ids[each], float(more[each])) for each in np.argsort(-more, kind="stable")[:show].tolist()]
        return Shift(float(query @ moved), pulls, gained)

    def said(self) -> str:
        """What was learned, in a sentence or two."""
        said = f"Query vectors are {self.how()}."
        if self.gain_ is None:
            return said
        return f"{said} Cross-validated gain in NDCG@{CUT}: {self.gain_:+.4f} (standard error {self.gain_error_:.4f})."

    def how(self) -> str:
        """What query vectors are moved by, or why they are left as they are, in a few words."""
        if not self.adapts:
            few = f"{_queries(self.teachers_)} to learn from, too few"
            if self.teachers_ >= FEWEST:
                few = f"{self.folds} parts to test on need as many groups of queries, and there are fewer"
            return f"left as they are: {few if self.gain_ is None else 'no gain above one standard error'}"
        by = "one linear map" if self.gamma_ is None else f"the training queries near each, gamma {self.gamma_:g}"
        return f"moved by {by}, l2 {self.l2_:.3g}"

    def _learn(self, data: JudgedVectors, *, cross_fit: bool) -> Floats | None:
        """Choose, solve and keep; gives the cross-fitted vectors of the queries that teach, or None if all stay."""
        kernels = self._kernels()
        kernel, l2, moved = kernels[0], _USUAL_L2 if self.l2 is None else self.l2, None
        self.tried: list[Tried] = []
        gain: float | None = None
        error: float | None = None
        shut = not len(data) or (self.gate and len(data) < FEWEST)
        if cross_fit and not shut and data.groups_there >= self.folds:
            parts = _Parts.of(data, self)
            kernel, l2 = self._chosen(parts, kernels, L2 if self.l2 is None else (self.l2,))
            gains, moved = self._cross_fitted(parts, kernel, l2)
            gain, error = _mean_and_error(gains)
        if self.gate:
            shut = gain is None or error is None or not gain > error
        self._keep(data, kernel, float(l2), shut=shut)
        self.gain_, self.gain_error_, self.teachers_ = gain, error, len(data)
        return None if shut else moved

    def _chosen(self, parts: _Parts, kernels: Sequence[Kernel], penalties: Sequence[float]) -> tuple[Kernel, float]:
        """What cross-validation prefers: first by powers of ten, then around the best of these.

        Of a kernel, penalties fall until the gain does.
        """
        if len(kernels) * len(penalties) == 1:
            return kernels[0], penalties[0]
        say = parts.rows if len(parts.pool) <= _ALL_FOLDS else parts.rows[:_SAY]

        def tried(kernel: Kernel, path: Sequence[float]) -> None:
            held_out, top = [_HeldOut(parts, part, kernel, self) for part in say], -np.inf
            for l2 in path:
                gain, error = _mean_and_error(np.concatenate([each.at(l2)[0] for each in held_out]))
                self.tried.append(Tried(kernel.linear, kernel.gamma, l2, gain, error))
                if gain <= top:
                    break
                top = gain

        for kernel in track(kernels, "Adapting query vectors"):
            tried(kernel, penalties)
        if len(penalties) > 1:
            best = max(self.tried, key=lambda each: each.gain)
            tried(Kernel(best.linear, best.gamma), [best.l2 * _FINER, best.l2 / _FINER])
        best = max(self.tried, key=lambda each: each.gain)
        return Kernel(best.linear, best.gamma), best.l2

    def _cross_fitted(self, parts: _Parts, kernel: Kernel, l2: float) -> tuple[Floats, Floats]:
        """Every query's gain and its vector, under an adapter that was not trained on its part."""
        gains, moved = np.zeros(len(parts.pool)), np.zeros_like(parts.pool.queries)
        for part in parts.rows:
            gains[part], moved[part] = _HeldOut(parts, part, kernel, self).at(l2)
        return gains, moved

    def _keep(self, data: JudgedVectors, kernel: Kernel, l2: float, *, shut: bool) -> None:
        """Solve over all training queries and keep what `transform` and `explain` need."""
        nothing = np.zeros((0, data.every.shape[1]), np.float32)
        ids: tuple[str, ...] = ()
        marks, gap, count = np.zeros(0, np.int64), 0.0, 0
        queries, pulls, responses, linear = nothing, nothing, nothing, nothing
        if not shut:
            pool = data.pool(everything=len(data) * len(data.documents) <= _WHOLE)
            chosen = _landmarks(len(pool), self.landmarks)
            problem = pool.problem(kernel, pool.queries[chosen], self.temperature, l2)
            solution = problem.solve(tolerance=_GAP, most=_FINAL_STEPS)
            mapped, exponential = problem.basis.response(solution.coordinates)
            ids, queries = pool.ids, pool.queries.astype(np.float32)
            pulls = problem.pulls(solution.coordinates).astype(np.float32)
            if exponential is not None:
                marks, responses = chosen, exponential.astype(np.float32)
            if mapped is not None:
                linear = mapped.astype(np.float32)
            gap, count = solution.gap, len(pool.documents)
        # All at once: an interrupt before leaves what was learned earlier.
        forget_derived(self)
        self.linear_, self.gamma_, self.l2_ = kernel.linear, kernel.gamma, l2
        self.query_ids_, self.queries_, self.pulls_ = ids, queries, pulls
        self.landmarks_, self.responses_, self.map_ = marks, responses, linear
        self.gap_, self.pool_ = gap, count

    def _kernels(self) -> list[Kernel]:
        """What may be chosen among."""
        by_query = [each for each in KERNELS if each.gamma is not None]
        if self.gamma is not None:
            by_query = [Kernel(0.0, self.gamma)]
        return {"linear": [LINEAR], "by-query": by_query, "auto": [*by_query, LINEAR]}[self.kind]

    def _check(self) -> None:
        known = ("auto", "linear", "by-query")
        if not isinstance(self.kind, str) or self.kind not in known:
            raise DataError(f"kind={self.kind!r}: expected one of {', '.join(known)}.", arguments=("kind",))
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is None and name != "temperature":
                continue
            if not _is_number(value) or not low <= value <= high:
                said = f"{name}={value!r}: expected a number from {low:g} to {high:g}."
                raise DataError(said, arguments=(name,))
        for name, least in (("folds", 2), ("landmarks", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise DataError(f"{name}={value!r}: expected a whole number from {least} up.", arguments=(name,))

    def _require_fitted(self) -> None:
        if not hasattr(self, "query_ids_"):
            raise NotFittedError(self)

    def _check_stored(self, known: Known) -> None:
        adapts, dimension = bool(self.query_ids_), self.queries_.shape[1]
        require(dimension > 0, "vectors of no numbers")
        require(len(self.responses_) == 0 or adapts, "an adapter of no queries")
        require((len(self.responses_) > 0) == (adapts and self.gamma_ is not None), "gamma and responses")
        require(len(self.map_) == (dimension if adapts and self.linear_ else 0), "the linear map is not square")
        require(not adapts or self.gamma_ is not None or self.linear_ > 0, "an adapter without a kernel")
        for table in (self.queries_, self.pulls_, self.responses_, self.map_):
            require(bool((np.abs(table) <= _LARGEST).all()), f"a number above {_LARGEST:g}")
        lengths = np.einsum("ij,ij->i", self.queries_, self.queries_, dtype=np.float64)
        require(bool((np.abs(lengths - 1) < 1e-3).all()), "a training query whose vector is not of length 1")

    @cached_property
    def _marks(self) -> Singles:
        """The vectors of the landmarks."""
        return self.queries_[self.landmarks_]


class _Parts(NamedTuple):
    """The queries dealt into parts: the documents that adapters learn on, and those that they are measured on.

    A linear map moves queries toward documents that are not in the pool, too: where all can be ranked, all are.
    """

    pool: Pool
    ranked: Pool
    rows: list[Ints]

    @staticmethod
    def of(data: JudgedVectors, adapter: AdaptedVectors) -> _Parts:
        """The parts that an adapter asks for."""
        pool = data.pool()
        ranked = data.pool(everything=True) if len(data) * len(data.documents) <= _WHOLE else pool
        return _Parts(pool, ranked, pool.parts(adapter.folds, adapter.seed))


class _HeldOut:
    """An adapter of one kernel, trained on all parts but one; asked about that part at one penalty after the other."""

    def __init__(self, parts: _Parts, part: Ints, kernel: Kernel, adapter: AdaptedVectors) -> None:
        train = parts.pool.select(np.setdiff1d(np.arange(len(parts.pool)), part)).without_others()
        self._marks = train.queries[_landmarks(len(train), adapter.landmarks)]
        self._problem = train.problem(kernel, self._marks, adapter.temperature, 1.0)
        self._test = parts.ranked.select(part)
        self._plain = self._test.quality(self._test.queries)
        self._coordinates: Floats | None = None

    def at(self, l2: float) -> tuple[Floats, Floats]:
        """The gain of every held-out query, and its vector."""
        problem = replace(self._problem, l2=l2)
        solution = problem.solve(self._coordinates, tolerance=_ROUGH, most=_STEPS)
        self._coordinates = solution.coordinates
        linear, exponential = problem.basis.response(solution.coordinates)
        moved = _moved(self._test.queries, problem.basis.kernel, self._marks, linear, exponential)
        return self._test.quality(moved) - self._plain, moved


def _moved(
    queries: Floats, kernel: Kernel, landmarks: Array, linear: Array | None, exponential: Array | None
) -> Floats:
    """f(q), brought to unit length; products are in the type of the landmarks."""
    kind = landmarks.dtype
    own = queries.astype(kind)
    moved = queries
    if linear is not None and len(linear):
        moved = moved + own @ linear.astype(kind, copy=False)
    if exponential is not None and len(exponential):
        moved = moved + kernel.exponential(own, landmarks) @ exponential.astype(kind, copy=False)
    found: Floats = unit(moved.astype(np.float64))
    zeros = np.abs(queries).max(axis=1, initial=0.0) == 0
    found[zeros] = 0.0
    return found


def _landmarks(count: int, most: int) -> Ints:
    """The training queries that span the exponential kernel: all, or some drawn at random."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def _mean_and_error(gains: Floats) -> tuple[float, float]:
    """The mean, and its standard error."""
    error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf
    return float(gains.mean()), error


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _queries(count: int) -> str:
    return counted(count, "judged query", "judged queries")
