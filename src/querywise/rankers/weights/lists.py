"""The lists of first-stage runs as fusion sees them, and the weights that are tried: points of the simplex."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations
from math import comb

import numpy as np

from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.normalisation import ENGINE_NORMALISATIONS, as_in_engine
from querywise.data.run_columns import RunColumns, run_columns
from querywise.errors import DataError
from querywise.learners.classic.lists import Worth
from querywise.learners.linear import linear_scores
from querywise.runtime.arrays import Floats, Ints

STEP = 0.05
_STEPS = 20  # 1 / STEP
_WHOLE_GRID = 3  # runs up to which the whole grid of that step is tried
_MOST = 1000  # points of the coarser grid of more runs
_TIED = 1e-12  # of a measure: less is rounding
_RISE = 1e-9
_LEAST = 1e-35  # what scores of 32 bits can be told from 0 by


def options_for(runs: int) -> Floats:
    """Weights of so many runs, none negative, that sum to 1: all in steps of 0.05; of more than three runs, coarser.

    The steps of more runs are the finest of 0.1, 0.2, 0.25, 0.5 and 1 that make no more than 1,000 points.

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
    """The number of the option with the highest value; of equals the nearest to `near`, then the first."""
    tied = np.flatnonzero(values >= values.max() - _TIED)
    gaps = np.sum((options[tied] - near) ** 2, axis=1)
    return int(tied[np.flatnonzero(gaps <= gaps.min() + _TIED)[0]])


def improved(weights: Floats, value: Callable[[Floats], float]) -> Floats:
    """Of more than three runs: the weights after a coordinate search from these.

    The one move of 0.05 from one run to another that raises the value most is made, the first of equals, as long as
    there is one.
    """
    count = len(weights)
    if count <= _WHOLE_GRID:
        return weights
    highest = value(weights)
    while True:
        moves = [_moved(weights, *pair) for pair in permutations(range(count), 2) if weights[pair[0]] > 0]
        values = [value(each) for each in moves]
        best = int(np.argmax(values))
        if values[best] <= highest + _RISE:
            return weights
        weights, highest = moves[best], values[best]


def _moved(weights: Floats, giver: int, taker: int) -> Floats:
    places = np.rint(weights * _STEPS)
    places[giver] -= 1
    places[taker] += 1
    moved: Floats = places / _STEPS
    return moved


def runs_of(whose: type, feature_names: tuple[str, ...] | None) -> list[RunColumns]:
    """The runs among the features; fewer than two are refused."""
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
    """Refuse a normalisation that no engine has."""
    if normalise not in ENGINE_NORMALISATIONS:
        known = ", ".join(ENGINE_NORMALISATIONS)
        raise DataError(f"{whose.__name__}(normalise={normalise!r}) is unknown. Known: {known}.")


def normalised_runs(candidates: Candidates, runs: list[RunColumns], normalise: str) -> Candidates:
    """The same documents with a feature per run: its score, normalised over its own list; 0 where it is not there."""
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
    """Refuse runs all of whose scores are nothing to engines, which compute in 32 bits."""
    for run in runs:
        largest = float(np.abs(candidates.features[:, run.score]).max(initial=0.0))
        if 0 < largest < _LEAST:
            raise DataError(
                f"The scores in run.{run.name}.score lie within {_LEAST:g} of 0, which engines take for 0. Multiply "
                "them by a number that brings them near 1."
            )


def together(data: Judged, valid: Judged | None) -> Judged:
    """Training and validation queries as one set, each query once."""
    if valid is None or not len(valid):
        return data
    known = set(data.query_ids)
    new = [number for number, query in enumerate(valid.query_ids) if query not in known]
    return concatenate([data, valid if len(new) == len(valid) else valid.select(new)]) if new else data


@dataclass(frozen=True, eq=False)
class Lists:
    """Judged queries with their runs.

    data: as given. seen: with a feature per run. measure: what weights maximise. options: the weights that are tried, a
    row each. table: queries × options, the measure of every query under each.
    """

    data: Judged
    seen: Candidates
    measure: str
    options: Floats
    table: Floats

    @staticmethod
    def of(data: Judged, runs: list[RunColumns], normalise: str, measure: str) -> Lists:
        """Those of a judged set."""
        seen, options = normalised_runs(data.candidates, runs, normalise), options_for(len(runs))
        worth = Worth(data, measure)
        table = np.column_stack([worth.of(linear_scores(seen.features, each)) for each in options])
        return Lists(data, seen, measure, options, table)

    def select(self, queries: Ints) -> Lists:
        """Those of some queries."""
        return replace(self, data=self.data.select(queries), seen=self.seen.select(queries), table=self.table[queries])

    def values(self, weights: Floats) -> Floats:
        """The measure of every query, each under its own row of weights."""
        by_row = weights[self.seen.query_of_row]
        return Worth(self.data, self.measure).of(np.einsum("ij,ij->i", self.seen.features, by_row))

    @cached_property
    def best(self) -> Floats:
        """w̄, the weights under which the mean over all queries is highest; of equals the nearest to equal weights."""
        count = self.options.shape[1]
        found = self.options[best_of(self.table.mean(axis=0), self.options, np.full(count, 1 / count))]
        worth = Worth(self.data, self.measure)
        return improved(found, lambda each: float(worth.of(linear_scores(self.seen.features, each)).mean()))

    def with_best(self) -> Lists:
        """The same with w̄ among the options, where it is none of them: a search beyond the grid found it."""
        if bool((self.options == self.best).all(axis=1).any()):
            return self
        values = self.values(np.tile(self.best, (len(self.data), 1)))
        found = replace(self, options=np.vstack([self.options, self.best]), table=np.column_stack([self.table, values]))
        found.__dict__["best"] = self.best
        return found
