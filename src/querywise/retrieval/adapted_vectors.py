"""Query vectors trained on the nearest judged queries, while document vectors stay unchanged.

Embedding models are trained on language in general, not on a particular collection. `AdaptedVectors` moves a query's
vector toward the relevant documents of similar judged queries. Nothing is reindexed, and any engine with vector search
can use the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple, Self, TypeAlias

import numpy as np

from querywise.contracts.estimators import Estimator
from querywise.data.query_table import odd_lengths
from querywise.data.vectors import lengths_of
from querywise.display.words import counted
from querywise.errors import DataError, NotFittedError
from querywise.retrieval.judged_vectors import CUT, Given, JudgedVectors, Judgments, as_numbers, indexed
from querywise.retrieval.query_adapter import AdapterProblem, Array, Kernel
from querywise.retrieval.side_by_side import SideBySide, equal_shares, unit
from querywise.runtime.arrays import Floats, Ints, Singles
from querywise.runtime.parameters import forget_derived
from querywise.runtime.progress import track
from querywise.runtime.stored import Known, Number, Optional, Several, Table, Text, Whole, contents, ints, require
from querywise.runtime.threads import one_blas_thread

Kind: TypeAlias = Literal["auto", "linear", "by-query", "off"]
LINEAR = Kernel(1.0, None)
BY_QUERY = (Kernel(0.0, 8.0), Kernel(0.0, 4.0), Kernel(0.0, 2.0))  # tried in this order
BOTH = Kernel(1.0, 4.0)
L2 = (0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)  # tried in this order, until the gain falls
FEWEST = 100  # with fewer training queries, queries are not moved
_USUAL_L2 = 0.003  # if nothing is chosen
_FINER = 3.0  # factor for the penalties around the best one that are tried last
_EVERY_PART = 500  # training queries up to which settings are compared on all parts of the cross-validation
_FIRST, _THEN, _BEST = 1, 3, 3  # with more: on one part, then the best three settings on three parts
_STEPS, _ROUGH = 15, 1e-2  # of L-BFGS while choosing, and the gap at which it may stop
_FINAL_STEPS, _GAP = 200, 1e-3  # for the final solution
_WHOLE = 20_000_000  # similarities of training queries to documents up to which the softmax covers all documents
_RANGES = {"gamma": (1e-6, 1e6), "l2": (1e-12, 1e12), "temperature": (1e-4, 1e4)}  # safe for the arithmetic
_IN_RANGE = {name: Number(low, high) for name, (low, high) in _RANGES.items()}
_MOST_NUMBERS = 10_000_000  # in a vector
_LARGEST = 1e12  # absolute value of the numbers in an adapter's tables


class Tried(NamedTuple):
    """A setting tried in cross-validation, with its mean gain and standard error."""

    linear: float
    gamma: float | None
    l2: float
    gain: float
    error: float


class Pull(NamedTuple):
    """How much a training query moved a query: the similarity of the two, and its share of the total shift."""

    query: str
    similarity: float
    share: float


class Shift(NamedTuple):
    """Why a query's vector was moved.

    Attributes:
        cosine: the cosine between the vector before and after.
        pulls: the training queries, the largest share first.
        gained: documents by their gain in similarity; empty if no document vectors were given.
    """

    cosine: float
    pulls: list[Pull]
    gained: list[tuple[str, float]]


class AdaptedVectors(Estimator):
    """Query vectors moved by the nearest judged queries: f(q) = q + Σ_i k(q, q_i) r_i, of unit length.

    k(q, q') = linear · qᵀq' + exp(gamma · (qᵀq' − 1)). The r_i minimize a convex objective, the cross-entropy of the
    relevant documents under a softmax of similarities over `temperature`, plus `l2` · tr(RᵀKR); retrieval/query_adapter
    has the formula. Without the linear part, a query far from all training queries keeps its vector.

    If vectors of several embedders are concatenated, each embedder has a share in the similarity. The shares, possibly
    0, are chosen first, as those that rank best for the training queries.

    Args:
        kind: `linear`, one linear map for all queries; `by-query`, the exponential kernel; `auto` chooses one or their
            sum; `off` moves no query, and only chooses embedders' shares.
        gamma: how near a training query must be to count, from 1e-6 to 1e6; None chooses it by cross-validation.
        l2: the penalty, from 1e-12 to 1e12; None chooses it by cross-validation.
        temperature: of the softmax, from 1e-4 to 1e4.
        gate: move no query unless the cross-validated gain exceeds one standard error.
        folds: parts of the cross-validation over the training queries, from 2 up.
        landmarks: the maximum number of training queries that span the exponential kernel, from 1 up.
        seed: determines which queries are in which part; from 0 up.
        blocks: the dimensions of the embedders, if vectors of several are concatenated; None for a single embedder.
        shares: the share of each embedder in the similarity, non-negative, with sum 1; None chooses them.

    Raises:
        DataError: Settings out of range, vectors that are not finite, and judgments of unknown ids.

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
        blocks=Optional(Several(Whole(1, _MOST_NUMBERS), "embedders")),
        shares=Optional(Several(Number(0.0, 1.0), "embedders")),
        query_ids_=Several(Text(), "queries"),
        shares_=Several(Number(0.0, 1.0), "embedders"),
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
        blocks: Sequence[int] | None = None,
        shares: Sequence[float] | None = None,
    ) -> None:
        self.kind = kind
        self.gamma = gamma
        self.l2 = l2
        self.temperature = temperature
        self.gate = gate
        self.folds = folds
        self.landmarks = landmarks
        self.seed = seed
        self.blocks = blocks
        self.shares = shares

    @property
    def adapts(self) -> bool:
        """Whether queries are moved at all, which the gate may prevent."""
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

        Args:
            query_vectors, document_vectors: tables with a row each, or Vectors, which have ids.
            judgments: query → document → gain, by ids (row numbers as texts if there are none); or a sparse table of
                gains, queries × documents. Gains are non-negative; queries without a positive gain are ignored.
            weights: the non-negative weight of each query; None weights all equally.
            groups: a number per query; queries of one group stay in one part of the cross-validation.

        Returns:
            The adapter itself.

        Raises:
            DataError: Vectors that are not finite or have different dimensions, and unknown ids.
        """
        self._check()
        data = JudgedVectors.of(query_vectors, document_vectors, judgments, weights, groups, tuple(self.blocks or ()))
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
        """Fit, and return the vectors of the training queries, each moved by an adapter that was not trained on it.

        Train rankers on these: `transform` would move training queries by their own judgments.

        Args:
            query_vectors, document_vectors, judgments, weights, groups: as in `fit`.

        Returns:
            A vector of unit length per query.
        """
        self._check()
        data = JudgedVectors.of(query_vectors, document_vectors, judgments, weights, groups, tuple(self.blocks or ()))
        moved = self._learn(data, cross_fit=True)
        found = self.transform(data.every)
        plain = self._mix.queries(data.every[data.rows])
        found[data.rows] = self._mix.asked(plain if moved is None else moved)
        return found

    def transform(self, query_vectors: Floats) -> Floats:
        """Return adapted vectors of unit length; zero vectors stay unchanged.

        If vectors of several embedders are concatenated, each part's length is proportional to the embedder's share.

        Args:
            query_vectors: one vector, or a table with a row each.
        """
        table, several = self._table(query_vectors)
        found = self._mix.queries(table)
        if self.adapts:
            found = _moved(found, Kernel(self.linear_, self.gamma_), self._marks, self.map_, self.responses_)
        found = self._mix.asked(found)
        return found if several else found[0]

    def with_shares(self, query_vectors: Floats) -> Floats:
        """Return the vectors unmoved, of unit length; with several embedders, each part is scaled by its share.

        Args:
            query_vectors: one vector, or a table with a row each.
        """
        table, several = self._table(query_vectors)
        found = self._mix.asked(self._mix.queries(table))
        return found if several else found[0]

    def _table(self, query_vectors: Floats) -> tuple[Floats, bool]:
        """Return the given vectors as a checked table, and whether they were a table."""
        self._require_fitted()
        given = as_numbers(query_vectors, "query vectors")
        table = np.atleast_2d(given)
        expected = sum(self.blocks or (self.queries_.shape[1],))
        if given.ndim not in (1, 2) or table.shape[1] != expected:
            raise DataError(
                f"The query vectors have the shape {given.shape}; this adapter was trained on vectors of {expected} "
                "numbers."
            )
        if len(odd_lengths(table)):
            lengths_of(range(len(table)), table, "query vectors", "query")  # raises the error
        return table, given.ndim == 2

    def explain(self, query_vector: Floats, documents: Given | None = None, *, show: int = 10) -> Shift:
        """Explain which training queries moved a query, how far, and toward which documents.

        Args:
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
        asked, before = self.transform(given), self.with_shares(given)
        query = self._mix.queries(given[None])[0]
        moved = _moved(query[None], Kernel(self.linear_, self.gamma_), self._marks, self.map_, self.responses_)[0]
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
            index, ids = indexed(documents, "document", tuple(self.blocks or ()))
            index.require_dimension(given[None])
            every = np.arange(len(index))
            more = index.similarities(asked, every) - index.similarities(before, every)
            gained = [(ids[each], float(more[each])) for each in np.argsort(-more, kind="stable")[:show].tolist()]
        return Shift(float(query @ moved), pulls, gained)

    def said(self) -> str:
        """Return what was learned, in a sentence or two."""
        said = f"Query vectors are {self.how()}."
        if self.gain_ is None:
            return said
        return f"{said} Cross-validated gain in NDCG@{CUT}: {self.gain_:+.4f} (standard error {self.gain_error_:.4f})."

    def how(self) -> str:
        """Return how query vectors are moved, or why they are not, and embedders' shares, in a few words."""
        several = self.blocks is not None
        return self._moved_by() + (f", embedders' shares {_listed(self.shares_)}" if several else "")

    def _moved_by(self) -> str:
        if self.kind == "off":
            return "left as they are"
        if not self.adapts:
            few = f"{_queries(self.teachers_)} to learn from, too few"
            if self.teachers_ >= FEWEST:
                few = f"{self.folds} parts to test on need as many groups of queries, and there are fewer"
            return f"left as they are: {few if self.gain_ is None else 'no gain above one standard error'}"
        near = "" if self.gamma_ is None else f"the training queries near each, gamma {self.gamma_:g}"
        by = " and ".join(filter(None, ("one linear map" if self.linear_ else "", near)))
        return f"moved by {by}, l2 {self.l2_:.3g}"

    def _learn(self, data: JudgedVectors, *, cross_fit: bool) -> Floats | None:
        """Choose, solve and store.

        Return the cross-fitted vectors of the training queries, or None if none is moved.
        """
        if data.mix.blocks:
            data = data.mixed(self._shares(data))
        kernels = self._kernels()
        kernel, l2, moved = kernels[0], _USUAL_L2 if self.l2 is None else self.l2, None
        self.tried: list[Tried] = []
        gain: float | None = None
        error: float | None = None
        shut = self.kind == "off" or not len(data) or (self.gate and len(data) < FEWEST)
        if cross_fit and not shut and data.groups_there >= self.folds:
            parts = _CrossValidation(data, self)
            kernel, l2 = self._chosen(parts, kernels, L2 if self.l2 is None else (self.l2,))
            gains, moved = parts.whole(kernel, l2)
            gain, error = _mean_and_error(gains)
        if self.gate and not shut:
            shut = gain is None or error is None or not gain > error
        self._keep(data, kernel, float(l2), shut=shut)
        self.gain_, self.gain_error_, self.teachers_ = gain, error, len(data)
        return None if shut else moved

    def _chosen(
        self, parts: _CrossValidation, kernels: Sequence[Kernel], penalties: Sequence[float]
    ) -> tuple[Kernel, float]:
        """Return the setting that cross-validation prefers: first among powers of ten, then around the best of these.

        For each kernel, penalties decrease until the gain falls. If there are many queries, one part of them preselects
        settings.
        """
        if len(kernels) * len(penalties) == 1:
            return kernels[0], penalties[0]
        few = len(parts) <= _EVERY_PART
        found: dict[tuple[Kernel, float], Tried] = {}

        def tried(kernel: Kernel, l2: float, most: int) -> float:
            gains = np.concatenate([parts.at(part, kernel, l2).gains for part in range(min(most, self.folds))])
            found[kernel, l2] = Tried(kernel.linear, kernel.gamma, l2, *_mean_and_error(gains))
            return found[kernel, l2].gain

        def best_first() -> list[tuple[Kernel, float]]:
            return sorted(found, key=lambda each: -found[each].gain)

        first = self.folds if few else _FIRST
        for kernel in track(kernels, "Adapting query vectors"):
            top = -np.inf
            for l2 in penalties:
                gain = tried(kernel, l2, first)
                if gain <= top:
                    break
                top = gain
        if len(penalties) > 1:
            kernel, l2 = best_first()[0]
            for each in (l2 * _FINER, l2 / _FINER):
                tried(kernel, each, first)
        if not few:
            finalists = best_first()[:_BEST]
            found.clear()
            for kernel, l2 in finalists:
                tried(kernel, l2, _THEN)
        self.tried = [found[each] for each in best_first()]
        return best_first()[0]

    def _keep(self, data: JudgedVectors, kernel: Kernel, l2: float, *, shut: bool) -> None:
        """Solve for all training queries and store what `transform` and `explain` need."""
        nothing = np.zeros((0, data.queries.shape[1]), np.float32)
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
        # All at once, so that an interrupt before leaves the earlier state intact.
        forget_derived(self)
        self.shares_ = data.mix.shares or (1.0,)
        self.linear_, self.gamma_, self.l2_ = kernel.linear, kernel.gamma, l2
        self.query_ids_, self.queries_, self.pulls_ = ids, queries, pulls
        self.landmarks_, self.responses_, self.map_ = marks, responses, linear
        self.gap_, self.pool_ = gap, count

    def _kernels(self) -> list[Kernel]:
        """Return the kernels to choose among."""
        by_query, both = list(BY_QUERY), BOTH
        if self.gamma is not None:
            by_query, both = [Kernel(0.0, self.gamma)], Kernel(1.0, self.gamma)
        every = {"linear": [LINEAR], "by-query": by_query, "auto": [*by_query, both, LINEAR], "off": [LINEAR]}
        return every[self.kind]

    def _shares(self, data: JudgedVectors) -> tuple[float, ...]:
        """Return the share of each embedder."""
        if self.shares is not None:
            return tuple(map(float, self.shares))
        if not len(data):
            return equal_shares(data.mix.blocks)
        return data.pool(everything=len(data) * len(data.documents) <= _WHOLE).best_shares(data.mix.blocks)

    def _check(self) -> None:
        known = ("auto", "linear", "by-query", "off")
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
        self._check_blocks()

    def _check_blocks(self) -> None:
        if self.blocks is None:
            if self.shares is not None:
                said = f"shares={self.shares!r}: these are of several embedders; name blocks, too."
                raise DataError(said, arguments=("shares", "blocks"))
            return
        if len(self.blocks) < 2 or not all(type(each) is int and each > 0 for each in self.blocks):
            said = f"blocks={self.blocks!r}: expected two whole numbers or more, each from 1 up."
            raise DataError(said, arguments=("blocks",))
        if self.shares is None:
            return
        sound = len(self.shares) == len(self.blocks) and all(_is_number(each) and each >= 0 for each in self.shares)
        if not sound or abs(sum(self.shares) - 1) > 1e-9:
            said = f"shares={self.shares!r}: expected {len(self.blocks)} numbers from 0 up, 1 in all."
            raise DataError(said, arguments=("shares",))

    def _require_fitted(self) -> None:
        if not hasattr(self, "query_ids_"):
            raise NotFittedError(self)

    def _check_stored(self, known: Known) -> None:
        adapts, dimension = bool(self.query_ids_), self.queries_.shape[1]
        require(dimension > 0, "vectors of dimension 0")
        blocks = self.blocks or (dimension,)
        require(len(self.shares_) == len(blocks), "not one share for each embedder")
        require(abs(sum(self.shares_) - 1) < 1e-6, "shares that do not add up to 1")
        own = sum(count for count, share in zip(blocks, self.shares_, strict=True) if share > 0)
        require(own == dimension, "vectors whose dimension is not that of its blocks")
        require(len(self.responses_) == 0 or adapts, "an adapter of no queries")
        require((len(self.responses_) > 0) == (adapts and self.gamma_ is not None), "gamma and responses")
        require(len(self.map_) == (dimension if adapts and self.linear_ else 0), "the linear map is not square")
        require(not adapts or self.gamma_ is not None or self.linear_ > 0, "an adapter without a kernel")
        for table in (self.queries_, self.pulls_, self.responses_, self.map_):
            require(bool((np.abs(table) <= _LARGEST).all()), f"a number above {_LARGEST:g}")
        lengths = np.einsum("ij,ij->i", self.queries_, self.queries_, dtype=np.float64)
        require(bool((np.abs(lengths - 1) < 1e-3).all()), "a training query whose vector is not of length 1")

    @cached_property
    def _mix(self) -> SideBySide:
        """The columns and the share of each embedder."""
        blocks = tuple(self.blocks or ())
        return SideBySide(blocks, tuple(self.shares_) if blocks else ())

    @cached_property
    def _marks(self) -> Singles:
        """The vectors of the landmarks."""
        return self.queries_[self.landmarks_]


class _HeldOut(NamedTuple):
    """For held-out queries, the gain and the vector by an adapter that was trained on the other parts."""

    gains: Floats
    moved: Floats


class _CrossValidation:
    """Adapters trained on all parts but one, and their results on that part. Each setting is computed once.

    For each kernel, a penalty starts from the solution of the previous one. A linear map also moves queries toward
    documents outside the pool: if all documents can be ranked, all are.
    """

    def __init__(self, data: JudgedVectors, adapter: AdaptedVectors) -> None:
        self._adapter = adapter
        self._pool = data.pool()
        everything = len(data) * len(data.documents) <= _WHOLE
        self._ranked = data.pool(everything=True) if everything else self._pool
        self._plain = self._ranked.quality(self._ranked.queries)
        self._parts = self._pool.parts(adapter.folds, adapter.seed)
        self._problems: dict[tuple[int, Kernel], tuple[AdapterProblem, Array]] = {}
        self._coordinates: dict[tuple[int, Kernel], Floats] = {}
        self._known: dict[tuple[int, Kernel, float], _HeldOut] = {}

    def __len__(self) -> int:
        return len(self._pool)

    def at(self, part: int, kernel: Kernel, l2: float) -> _HeldOut:
        """Return the result of a setting on a part."""
        if (part, kernel, l2) not in self._known:
            rows = self._parts[part]
            problem, marks = self._problem(part, kernel)
            solution = replace(problem, l2=l2).solve(
                self._coordinates.get((part, kernel)), tolerance=_ROUGH, most=_STEPS
            )
            self._coordinates[part, kernel] = solution.coordinates
            test = self._ranked.select(rows)
            moved = _moved(test.queries, kernel, marks, *problem.basis.response(solution.coordinates))
            self._known[part, kernel, l2] = _HeldOut(test.quality(moved) - self._plain[rows], moved)
        return self._known[part, kernel, l2]

    def whole(self, kernel: Kernel, l2: float) -> tuple[Floats, Floats]:
        """Return every query's gain and vector."""
        gains, moved = np.zeros(len(self)), np.zeros_like(self._pool.queries)
        for part, rows in enumerate(self._parts):
            gains[rows], moved[rows] = self.at(part, kernel, l2)
        return gains, moved

    def _problem(self, part: int, kernel: Kernel) -> tuple[AdapterProblem, Array]:
        """Return the problem of all parts but one, and its landmarks."""
        if (part, kernel) not in self._problems:
            others = np.setdiff1d(np.arange(len(self)), self._parts[part])
            train = self._pool.select(others).without_others()
            marks = train.queries[_landmarks(len(train), self._adapter.landmarks)]
            self._problems[part, kernel] = train.problem(kernel, marks, self._adapter.temperature, 1.0), marks
        return self._problems[part, kernel]


def _moved(
    queries: Floats, kernel: Kernel, landmarks: Array, linear: Array | None, exponential: Array | None
) -> Floats:
    """Return f(q), normalized to unit length; products have the type of the landmarks."""
    kind = landmarks.dtype
    own = queries.astype(kind)
    moved = queries
    with one_blas_thread() if len(queries) == 1 else nullcontext():  # several threads would wait for one another
        if linear is not None and len(linear):
            moved = moved + own @ linear.astype(kind, copy=False)
        if exponential is not None and len(exponential):
            moved = moved + kernel.exponential(own, landmarks) @ exponential.astype(kind, copy=False)
    found: Floats = unit(moved.astype(np.float64, copy=False))
    known = np.asarray(queries.any(axis=1))
    return found if known.all() else np.where(known[:, None], found, 0.0)


def _landmarks(count: int, most: int) -> Ints:
    """Return the training queries that span the exponential kernel: all, or a random sample."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def _mean_and_error(gains: Floats) -> tuple[float, float]:
    """Return the mean and its standard error."""
    error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf
    return float(gains.mean()), error


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _listed(shares: Sequence[float]) -> str:
    return " and ".join(f"{each:.2g}" for each in shares)


def _queries(count: int) -> str:
    return counted(count, "judged query", "judged queries")
