"""Fusion of runs without looking at the query: common weights, a run's own confidence, or votes.

The common part of rankers that weight runs is here too: the lists and the answer. Voting treats every feature as a
ranker's score, 0 if it did not retrieve the document; scores of retrieved documents are above 0, as
`data.runs.join_runs` makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from itertools import combinations, permutations
from math import comb
from typing import Literal, NamedTuple, Self

import numpy as np

from querywise.contracts.answers import (
    ALL,
    Answer,
    Facts,
    Fused,
    Gain,
    Local,
    Models,
    Once,
    Place,
    Rows,
    Terms,
    alone,
    local_or_global,
    own_each,
)
from querywise.contracts.asking import AnyRanker, OneModel, ready
from querywise.contracts.forms import Refusal, depends_on_the_list
from querywise.contracts.run_weights import run_weights
from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.labels import refuse_weights
from querywise.data.normalisation import ENGINE_NORMALISATIONS, EngineNormalisation, as_in_engine, borda
from querywise.data.run_columns import RunColumns, run_columns
from querywise.errors import DataError
from querywise.learners.classic.lists import Worth, check_worth
from querywise.learners.linear import LinearModel, LinearModels, linear_scores
from querywise.retrieval.signals import signals
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.stored import FITTED, Known, Number, Whole, contents, floats, require

_STEPS = 20  # of 0.05, from 0 to 1
_WHOLE_GRID = 3  # runs up to which the whole grid of that step is tried
_MOST = 1000  # points of the coarser grid for more runs
_TIED = 1e-12  # of a measure: smaller differences are rounding errors
_RISE = 1e-9
_LEAST = 1e-35  # the smallest score that 32 bits can tell from 0
SIGNS = ("margin", "entropy")


def options_for(runs: int) -> Floats:
    """Return all non-negative weights of the runs with sum 1, in steps of 0.05; coarser for more than three runs.

    The steps for more runs are the finest of 0.1, 0.2, 0.25, 0.5 and 1 that give no more than 1,000 points.

    >>> options_for(2)[:3].tolist()
    [[0.0, 1.0], [0.05, 0.95], [0.1, 0.9]]
    >>> len(options_for(3)), len(options_for(4))
    (231, 286)
    """
    if runs <= _WHOLE_GRID:
        return _grid(runs, _STEPS)
    steps = next((each for each in (10, 5, 4, 2) if comb(each + runs - 1, runs - 1) <= _MOST), 1)
    return _grid(runs, steps)


def _grid(runs: int, steps: int) -> Floats:
    cuts = np.array(list(combinations(range(steps + runs - 1), runs - 1)), np.int64).reshape(-1, runs - 1)
    edges = np.column_stack([np.full(len(cuts), -1), cuts, np.full(len(cuts), steps + runs - 1)])
    grid: Floats = (np.diff(edges, axis=1) - 1) / steps
    return grid


def best_of(values: Floats, options: Floats, near: Floats) -> int:
    """Return the index of the option with the highest value; of ties the nearest to `near`, then the first."""
    tied = np.flatnonzero(values >= values.max() - _TIED)
    gaps = np.sum((options[tied] - near) ** 2, axis=1)
    return int(tied[np.flatnonzero(gaps <= gaps.min() + _TIED)[0]])


def improved(weights: Floats, value: Callable[[Floats], float]) -> Floats:
    """Improve the weights of more than three runs by moves of 0.05 from one run to another."""
    pairs = list(permutations(range(len(weights)), 2))
    if len(weights) <= _WHOLE_GRID:
        return weights
    return climbed(weights, value, lambda at: [_moved(at, *pair) for pair in pairs if at[pair[0]] > 0])


def climbed(weights: Floats, value: Callable[[Floats], float], moves: Callable[[Floats], list[Floats]]) -> Floats:
    """Repeat the move that raises the value most, the first of ties, as long as one does."""
    highest = value(weights)
    while True:
        tried = moves(weights)
        values = [value(each) for each in tried]
        best = int(np.argmax(values))
        if values[best] <= highest + _RISE:
            return weights
        weights, highest = tried[best], values[best]


def _moved(weights: Floats, giver: int, taker: int) -> Floats:
    places = np.rint(weights * _STEPS)
    places[giver] -= 1
    places[taker] += 1
    moved: Floats = places / _STEPS
    return moved


def runs_of(whose: type, feature_names: tuple[str, ...] | None) -> list[RunColumns]:
    """Return the runs among the features; raise DataError if there are fewer than two."""
    found = run_columns(feature_names)
    if len(found) < 2:
        said = f"only those of {found[0].name}" if found else "none"
        raise DataError(
            f"{whose.__name__} weighs first-stage runs, and needs the columns run.NAME.score and "
            f"run.NAME.reciprocal_rank of two runs or more; the features have {said}. Fuse TREC runs with `querywise "
            "fuse`, or give a text collection vectors."
        )
    return found


def check_normalise(whose: type, normalise: str) -> None:
    """Raise DataError for a normalization that no engine has."""
    if normalise not in ENGINE_NORMALISATIONS:
        known = ", ".join(ENGINE_NORMALISATIONS)
        raise DataError(f"{whose.__name__}(normalise={normalise!r}) is unknown. Known: {known}.")


def normalised_runs(candidates: Candidates, runs: list[RunColumns], normalise: str) -> Candidates:
    """Return the documents with one feature per run: its score, normalized over its own list; 0 if it is absent."""
    names = tuple(run.name for run in runs)
    if not len(candidates.features):
        return replace(candidates, features=np.zeros((0, len(runs))), feature_names=names)
    _refuse_tiny(candidates, runs)
    reciprocal = candidates.features[:, [run.reciprocal_rank for run in runs]]
    wrong = np.argwhere((reciprocal < 0) | (reciprocal > 1))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise DataError(
            f"Document {candidates.document_label(row)}: run.{runs[column].name}.reciprocal_rank is "
            f"{reciprocal[row, column]}; expected 1 / rank, or 0 where the run did not find the document."
        )
    scores = candidates.features[:, [run.score for run in runs]]
    found = np.zeros(scores.shape)
    for query in range(len(candidates)):
        rows = candidates.rows(query)
        for column in range(len(runs)):
            listed = np.flatnonzero(reciprocal[rows, column]) + rows.start
            if len(listed):
                ranks = 1 / reciprocal[listed, column]
                found[listed, column] = as_in_engine(normalise, scores[listed, column], ranks)
    return replace(candidates, features=found, feature_names=names)


def _refuse_tiny(candidates: Candidates, runs: list[RunColumns]) -> None:
    """Raise DataError for runs whose scores are all 0 to engines, which compute in 32 bits."""
    for run in runs:
        largest = float(np.abs(candidates.features[:, run.score]).max(initial=0.0))
        if 0 < largest < _LEAST:
            raise DataError(
                f"The scores in run.{run.name}.score lie within {_LEAST:g} of 0, which engines treat as 0. Multiply "
                "them by a number that brings them near 1."
            )


def together(data: Judged, valid: Judged | None) -> Judged:
    """Return training and validation queries as one set, each query once."""
    if valid is None or not len(valid):
        return data
    known = set(data.query_ids)
    new = [number for number, query in enumerate(valid.query_ids) if query not in known]
    return concatenate([data, valid if len(new) == len(valid) else valid.select(new)]) if new else data


@dataclass(frozen=True, eq=False)
class RunLists:
    """Judged queries with their runs.

    Attributes:
        data: The judged set as given.
        seen: The candidates with one feature per run.
        measure: The measure that weights maximize.
        options: The weights to try, one row each.
        table: Queries × options: the measure of every query under each.

    """

    data: Judged
    seen: Candidates
    measure: str
    options: Floats
    table: Floats

    @staticmethod
    def of(data: Judged, runs: list[RunColumns], normalise: str, measure: str) -> RunLists:
        """Build the lists of a judged set."""
        seen, options = normalised_runs(data.candidates, runs, normalise), options_for(len(runs))
        worth = Worth(data, measure)
        table = np.column_stack([worth.of(linear_scores(seen.features, each)) for each in options])
        return RunLists(data, seen, measure, options, table)

    def select(self, queries: Ints) -> RunLists:
        """Return the lists of some queries."""
        return replace(self, data=self.data.select(queries), seen=self.seen.select(queries), table=self.table[queries])

    def values(self, weights: Floats) -> Floats:
        """Return the measure of every query, each under its own row of weights."""
        by_row = weights[self.seen.query_of_row]
        return Worth(self.data, self.measure).of(np.einsum("ij,ij->i", self.seen.features, by_row))

    @cached_property
    def best(self) -> Floats:
        """w̄, the weights with the highest mean over all queries; of ties the nearest to equal weights."""
        count = self.options.shape[1]
        found = self.options[best_of(self.table.mean(axis=0), self.options, np.full(count, 1 / count))]
        worth = Worth(self.data, self.measure)
        return improved(found, lambda each: float(worth.of(linear_scores(self.seen.features, each)).mean()))

    def with_best(self) -> RunLists:
        """Add w̄ to the options if it is not among them, because a search beyond the grid found it."""
        if bool((self.options == self.best).all(axis=1).any()):
            return self
        values = self.values(np.tile(self.best, (len(self.data), 1)))
        found = replace(self, options=np.vstack([self.options, self.best]), table=np.column_stack([self.table, values]))
        found.__dict__["best"] = self.best
        return found


class OwnWeights(NamedTuple):
    """Queries × runs, and which queries have their own weights; the others have the common ones."""

    weights: Floats
    local: Bools


class Fusion(AnyRanker):
    """A weighted sum of the runs' normalized scores. `weights_` are the common weights.

    Args:
        normalise: how a run's scores are made comparable over its own list, as engines do it. opensearch-min-max, l2
            and z-score are OpenSearch's; rank is 1/(60 + rank), as in reciprocal rank fusion. A document that a run did
            not retrieve counts 0 there.
    """

    normalise: EngineNormalisation
    weights_: Floats

    stored = contents(FITTED, weights_=floats("runs", least=0.0))

    @property
    def runs_(self) -> tuple[str, ...]:
        """The names of the runs."""
        return tuple(run.name for run in self._columns())

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return the answer by one set of weights for all queries."""
        return self.fused(self.lists(seen))

    def run_weights(self, candidates: Candidates, /) -> Floats:
        """Return queries × runs: the weight of each run."""
        return run_weights(self.answer(candidates))

    def lists(self, candidates: Candidates) -> Candidates:
        """Return the documents with one feature per run."""
        return normalised_runs(ready(self, candidates), self._columns(), self.normalise)

    def judged_lists(self, data: Judged, valid: Judged | None, measure: str) -> RunLists:
        """Return the lists of training and validation queries; remember the columns."""
        check_normalise(type(self), self.normalise)
        check_worth(measure)
        self.remember(data)
        whole = together(data, valid)
        refuse_weights(whole, type(self).__name__, "it chooses weights of runs by the plain mean over queries")
        return RunLists.of(whole, self._columns(), self.normalise, measure)

    def remember(self, data: Judged) -> None:
        """Remember the columns; raise DataError if there are fewer than two runs."""
        data.require_learnable()
        runs_of(type(self), data.feature_names)
        self._remember_features(data)

    def fused(
        self,
        seen: Candidates,
        own: Callable[[], OwnWeights] | None = None,
        *,
        place: Place | None = None,
        gains: tuple[Gain, ...] = (),
    ) -> Answer:
        """Return the answer by the common weights, or by those that some queries have of their own."""
        common, facts = LinearModel(self.weights_), partial(Facts, gains=gains, refused=refusal(type(self)))
        if own is None:
            runs = Fused(self.runs_, self.weights_, lambda: np.tile(self.weights_, (len(seen), 1)))
            return alone(common, seen)._replace(runs=runs, facts=facts)
        found = Once(own)
        weights = Once(lambda: np.where(found().local[:, None], found().weights, self.weights_))
        models: Once[Models] = Once(lambda: LinearModels(found().weights[found().local]))
        return Answer(
            seen,
            lambda: common,
            Once(
                lambda: local_or_global(
                    seen, found().local, lambda queries, part: models().pick(part, np.arange(len(queries))), common
                )
            ),
            varies=True,
            local=Local(models, Once(lambda: own_each(found().local))),
            place=place,
            runs=Fused(self.runs_, self.weights_, weights),
            facts=facts,
        )

    def _columns(self) -> list[RunColumns]:
        return run_columns(self.feature_names_)

    def _check_stored(self, known: Known) -> None:
        """Check that the features include two or more runs, and that each has a weight."""
        known.tie("runs", len(run_columns(self.feature_names_)), "Fusion.weights_")
        require(known.sizes["runs"] > 1, "Fusion.feature_names_ name fewer than two runs")


def refusal(whose: type) -> Refusal:
    """Return the reason why weights of runs cannot be exported as an engine's model."""
    return depends_on_the_list(
        whose,
        "adds up scores of several runs, each normalised over its own list",
        "Its weights go into a hybrid query instead.",
    )


@dataclass(eq=False, repr=False)
class EqualWeights(Fusion):
    """Equal weights for all runs: CombSUM; with `rank`, reciprocal rank fusion. Nothing is learned."""

    normalise: EngineNormalisation = "opensearch-min-max"

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the columns; there is nothing to learn, and weights of queries or documents change nothing."""
        check_normalise(type(self), self.normalise)
        self.remember(data)
        count = len(self.runs_)
        self.weights_ = np.full(count, 1 / count)
        return self


@dataclass(eq=False, repr=False)
class Weights(Fusion):
    """One weight per run for all queries: the weights that rank training and validation queries best.

    w̄ maximizes the mean measure over all weights in steps of 0.05; of equally good ones it is the nearest to equal
    weights. With more than three runs a coarser grid is tried, and then moves of 0.05 from one run to another.
    Judgments of documents beyond the candidates count.

    Args:
        measure: the measure that weights maximize: map, ndcg or ndcg@k.
    """

    normalise: EngineNormalisation = "opensearch-min-max"
    _: KW_ONLY
    measure: str = "map"

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Find the weights on training and validation queries together."""
        return self.found_in(self.judged_lists(data, valid, self.measure))

    def found_in(self, lists: RunLists) -> Self:
        """Find the weights on prepared lists."""
        self.remember(lists.data)
        self.weights_ = lists.best
        return self


class _Vote(OneModel):
    """The common part of the fusion methods: everything but the formula."""

    stored = FITTED

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the columns; there is nothing to learn."""
        data.require_learnable()
        return self

    def form(self) -> Refusal:
        """Refuse: engines cannot count votes."""
        return depends_on_the_list(type(self), "votes among the documents of the query")


class CombSUM(_Vote):
    """The sum of a document's scores (Fox and Shaw, 1994)."""

    def _predict(self, seen: Candidates, /) -> Floats:
        return _sums(seen.features)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms:
        """Return the scores themselves."""
        return Terms.of(seen, rows, seen.features[rows] * np.ones(seen.features.shape[1]))


class CombMNZ(_Vote):
    """The sum of a document's scores, times the number of rankers that have it (Fox and Shaw, 1994)."""

    def _predict(self, seen: Candidates, /) -> Floats:
        votes = np.sum(seen.features > 0, axis=1, dtype=np.float64)
        return _sums(seen.features) * votes


@dataclass(eq=False, repr=False)
class ReciprocalRank(_Vote):
    """Reciprocal rank fusion: Σ 1 / (k + rank) over the rankers that have the document (Cormack and others, 2009).

    Tied documents share their mean rank.
    """

    k: float = 60.0

    stored = contents(k=Number(least=0.0))

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the columns; there is nothing to learn."""
        if not 0 <= self.k < np.inf:
            raise DataError(f"ReciprocalRank(k={self.k}) must be a number from 0 up.")
        return super().fit(data, valid=valid)

    def _predict(self, seen: Candidates, /) -> Floats:
        return _by_ranker(seen, self._votes)

    def _votes(self, scores: Floats) -> Floats:
        ranks = (len(scores) + 1 - borda(scores)) / 2
        return np.where(scores > 0, 1 / (self.k + ranks), 0.0)


class Borda(_Vote):
    """Borda count: over all rankers, the number of documents below this one, minus the number above.

    Documents that a ranker does not have share its last ranks.
    """

    def _predict(self, seen: Candidates, /) -> Floats:
        return _by_ranker(seen, borda)


def _sums(features: Floats) -> Floats:
    total = np.zeros(len(features))
    for column in features.T:  # one by one: a document's sum has the same bits whatever other rows there are
        total += column
    return total


def _by_ranker(candidates: Candidates, votes: Callable[[Floats], Floats]) -> Floats:
    total = np.zeros(len(candidates.features))
    for query in range(len(candidates)):
        rows = candidates.rows(query)
        for column in candidates.features[rows].T:
            total[rows] += votes(column)
    return total


@dataclass(eq=False, repr=False)
class Confidence(Fusion):
    """One run's weight is its confidence in a query; the other runs share the rest. Labels are not used.

    The confidence is the share of training queries in which that run is less sure than here: by the margin of its top
    score over the second, or by the entropy of its scores (lower is surer).

    Args:
        sign: the measure of confidence.
        run: the run whose confidence decides, by name; none is the last run for margin, and the first for entropy.
    """

    sign: Literal["margin", "entropy"] = "margin"
    run: str | None = None
    _: KW_ONLY
    normalise: EngineNormalisation = "opensearch-min-max"

    stored = contents(run_=Whole(below="runs"), levels_=floats("queries"))

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the run's confidence in every training query."""
        check_normalise(type(self), self.normalise)
        if self.sign not in SIGNS:
            raise DataError(f"Confidence(sign={self.sign!r}) is unknown. Known: {', '.join(SIGNS)}.")
        refuse_weights(data, type(self).__name__, "it compares a query with all training queries, which count the same")
        self.remember(data)
        runs = self.runs_
        if self.run is not None and self.run not in runs:
            raise DataError(f"Confidence(run={self.run!r}): there is no such run. There are: {', '.join(runs)}.")
        usual = len(runs) - 1 if self.sign == "margin" else 0
        self.run_ = usual if self.run is None else runs.index(self.run)
        self.weights_ = self._weights(np.full(1, 0.5))[0]
        self.levels_ = np.sort(self._sureness(data.candidates))
        return self

    def _answer(self, seen: Candidates, /) -> Answer:
        """Return the answer by weights for each query with documents."""
        return self.fused(self.lists(seen), lambda: OwnWeights(self._own(seen), seen.sizes > 0))

    def _own(self, candidates: Candidates) -> Floats:
        sure = self._sureness(candidates)
        below = np.searchsorted(self.levels_, sure, "left") + np.searchsorted(self.levels_, sure, "right")
        return self._weights(below / max(2 * len(self.levels_), 1))

    def _weights(self, confidence: Floats) -> Floats:
        count = len(self.runs_)
        found = np.repeat((1 - confidence)[:, None] / (count - 1), count, axis=1)
        found[:, self.run_] = confidence
        return found

    def _sureness(self, candidates: Candidates) -> Floats:
        names, values = signals(replace(candidates, feature_names=self.feature_names_))
        found = values[:, names.index(f"{self.runs_[self.run_]}.{self.sign}")]
        # Round, so that the order of summation makes no difference.
        return np.round(found if self.sign == "margin" else -found, 12)
