"""Adaptive target value transformation, aTVT: one function for all queries, learned as if they differed [zha2006]_.

    min_{h, α, β}  Σ_q Σ_j (y_qj − β_q − α_q h(x_qj))²  +  λ_β ‖β‖_p^p  +  λ_α ‖α − 1‖_p^p  +  λ_h Ω(h),     α_q ≥ 0

α_q and β_q absorb each training query's scale and level, so that h need not fit them. A new query is ranked by h alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from querywise.contracts.answers import ALL, Answer, Facts, Moved, Rows, Terms
from querywise.contracts.asking import OneModel
from querywise.contracts.forms import Form, Refusal, no_sum
from querywise.contracts.protocols import Regressor, Transparent, Watching
from querywise.data.judged import Candidates, Judged
from querywise.data.labels import refuse_gains, refuse_weights, values_of
from querywise.errors import DataError
from querywise.learners.regression import (
    Penalty,
    Transforms,
    bent,
    nearest_lines,
    penalties,
    squared_errors,
    transforms,
)
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.progress import track
from querywise.runtime.stored import ANY_NUMBER, FITTED, Added, Several, Text, contents, floats, part

Variant = Literal["weighted", "running", "updating"]
Stop = Literal["mean", "norms"]
Transform = Literal["linear", "monotone"]
Per = Literal["query", "class"]
_KNOWN = {
    "penalty": ("l2", "l1"),
    "variant": ("weighted", "running", "updating"),
    "stop": ("mean", "norms"),
    "transform": ("linear", "monotone"),
    "per": ("query", "class"),
}
_LEAST = 1e-6  # |α| below which a query's rows would only add noise to h


@dataclass(eq=False, repr=False)
class ATVT(OneModel):
    """Alternate between a regression h and every query's (α, β): one model for queries whose grades differ in scale.

    Args:
        regressor: TreeRegression, KernelRidge, or anything with fit(features, targets, weights) and predict(features).
            One that also has fit_watching, as TreeRegression does, sets tree_count_, which later calls of fit get as
            trees.
        scale_penalty: λ_α, how strongly scales α are shrunk toward 1, from 0 up; infinite fixes them at 1.
        shift_penalty: λ_β, how strongly shifts β are shrunk toward 0, from 0 up; infinite fixes them at 0. Both: plain
            regression.
        penalty: the norm of the penalties on α and β: squares (l2) or absolute values (l1).
        variant: weighted is the objective as written, h fitted to (y − β)/α with weights α²; running fits h to α y + β
            without weights, and its α is on the inverse scale; updating, the paper's own algorithm, does the same with
            the targets of the round before instead of y, so that the penalties act on each round's own step.
        rounds: the most (α, β) steps, from 0 up, each followed by another h; it stops once α and β change by no more
            than `tolerance` from one round to the next.
        tolerance: the change below which it stops, from 0 up.
        stop: how that change is measured: by the mean of the absolute changes of α or of β, the larger one, or by the
            sum of the norms of both changes, the paper's rule.
        nonnegative: scales α are kept from falling below 0; the paper's own algorithm does not.
        transform: linear is α and β; monotone is any non-decreasing function of the targets, with shift_penalty on the
            squares of how far it moves each distinct target. It needs variant running or updating, and penalty l2.
        per: one transformation for each query, or for each class of query; queries without a class are one more class.
        values: the value of each grade, a number for every grade from 0 up; None is the grade itself.

    `scale_` and `shift_` are the α and β of every training query; over all rounds if the variant is updating, of the
    nearest line if the transformation is monotone. `trace_` is the objective after every half step, λ_h Ω(h) included
    if the regressor knows its norm.

    Raises:
        DataError: A parameter is out of range, a grade has no value, or per="class" has no classes.

    >>> from querywise import ATVT, make_judged, split
    >>> from querywise.learners.trees.boosting import TreeRegression
    >>> train, valid, test = split(make_judged(30, 10, 4))
    >>> ranker = ATVT(TreeRegression(20)).fit(train)
    >>> ranker.predict(test).shape, ranker.scale_.shape
    ((60,), (18,))
    """

    regressor: Regressor
    _: KW_ONLY
    scale_penalty: float = 100.0
    shift_penalty: float = 1.0
    penalty: Penalty = "l2"
    variant: Variant = "weighted"
    rounds: int = 4
    tolerance: float = 1e-3
    values: Sequence[float] | None = None
    stop: Stop = "mean"
    nonnegative: bool = True
    transform: Transform = "linear"
    per: Per = "query"

    stored = contents(
        FITTED,
        regressor_=part(Regressor),
        query_ids_=Several(Text(), "queries"),
        scale_=floats("queries"),
        shift_=floats("queries"),
        trace_=Several(ANY_NUMBER, "steps"),
        stop=Added("mean"),
        nonnegative=Added(True),
        transform=Added("linear"),
        per=Added("query"),
    )

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Learn h. Trees choose their number by the plain regression's error on `valid`, if given."""
        self._check()
        data.require_learnable()
        candidates = data.candidates
        if valid is not None:
            valid.candidates.require_features(candidates.features.shape[1], candidates.feature_names)
        targets = self._targets(data)
        if not len(targets):
            raise DataError(f"There is no document to learn from in any of the {len(data)} queries.")
        weights = self._weights(data)
        self.regressor_, watched = self._first(data, targets, valid, weights)
        growth = {"trees": self.regressor_.tree_count_} if watched else {}
        groups = self._groups(data)._replace(weights=weights)
        self.scale_, self.shift_ = self._alternate(targets, candidates, groups, growth)
        self.query_ids_ = candidates.query_ids
        return self

    def _predict(self, seen: Candidates, /) -> Floats:
        scores: Floats = self.regressor_.predict(seen.features) if len(seen.features) else np.zeros(0)
        return scores

    def _answer(self, seen: Candidates, /) -> Answer:
        return super()._answer(seen)._replace(facts=lambda: Facts(moved=self.moved))

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms | Refusal:
        """Return the terms of h: what each feature adds to the scores of `rows` of the documents `seen`."""
        source = self.regressor_
        if not isinstance(source, Transparent):
            return no_sum(type(source))
        return Terms.of(seen, rows, source.contributions(seen.features[rows]))

    def form(self) -> Form:
        """Return the form of h."""
        if isinstance(self.regressor_, Transparent):
            return self.regressor_.form()
        return Refusal(
            f"aTVT over {type(self.regressor_).__name__} cannot be exported: the engines run weighted sums and "
            "trees. Fit it over trees: base=trees."
        )

    def moved(self) -> tuple[Moved, ...]:
        """The (α, β) of every training query."""
        return tuple(
            Moved(name, float(scale), float(shift))
            for name, scale, shift in zip(self.query_ids_, self.scale_, self.shift_, strict=True)
        )

    def _targets(self, data: Judged) -> Floats:
        if self.values is None:
            return values_of(data)
        refuse_gains(data, "ATVT(values=…)", "the labels have values of their own; leave out values")
        worth = np.asarray(self.values, dtype=np.float64)
        if not np.isfinite(worth).all():
            raise DataError(f"values={self.values!r} must be finite numbers.")
        if data.labels.max(initial=0) >= len(worth):
            raise DataError(f"values has {len(worth)} entries, but there is a grade {int(data.labels.max())}.")
        return worth[data.labels]

    def _weights(self, data: Judged) -> _Weights | None:
        """Return the weight of every row and query, 1 on average; raise DataError if the objective cannot use them."""
        if data.query_weights is None and data.document_weights is None:
            return None
        if self.rounds and not np.inf == self.scale_penalty == self.shift_penalty:  # otherwise it is plain regression
            refuse_weights(data, "ATVT", "every query's α and β count all of its documents the same", queries=False)
            if self.per == "class" or self.transform == "monotone":
                why = f"with per={self.per!r} and transform={self.transform!r} it transforms rows without weights"
                refuse_weights(data, "ATVT", why)
        by_query = np.ones(len(data)) if data.query_weights is None else data.query_weights
        rows = np.repeat(by_query, data.candidates.sizes)
        rows = rows if data.document_weights is None else rows * data.document_weights
        return _Weights(rows / rows.mean(), by_query / rows.mean())

    def _first(self, data: Judged, targets: Floats, valid: Judged | None, given: _Weights | None) -> tuple[Any, bool]:
        """Fit plain regression, which ignores the penalties; also return whether `valid` chose the tree count."""
        features, weights = data.candidates.features, np.ones(len(targets)) if given is None else given.rows
        watched = valid is not None and isinstance(self.regressor, Watching)

        def made() -> Any:
            regressor = unfitted(self.regressor)
            if valid is None or not isinstance(regressor, Watching):
                return regressor.fit(features, targets, weights)
            return regressor.fit_watching(features, targets, weights, valid.candidates.features, self._targets(valid))

        # It will be fitted again: copy it, so that the next setting of a grid finds the cached one unchanged.
        return copy.copy(cached("plain regression", (self.regressor, self.values, id(valid)), data, made)), watched

    def _groups(self, data: Judged) -> _Groups:
        """Return the rows that share a transformation."""
        if self.per == "query":
            return _Groups(np.arange(len(data)), data.candidates.starts, None)
        names = ["" if name is None else name for name in data.classes]
        if not any(names):
            raise DataError(
                "ATVT(per='class'): no training query has a class. Give the queries' classes, or set per='query'."
            )
        known, own = np.unique(names, return_inverse=True)
        of_row = np.repeat(own, data.candidates.sizes)
        starts = np.searchsorted(np.sort(of_row), np.arange(len(known) + 1))
        return _Groups(own, starts, np.argsort(of_row, kind="stable"))

    def _alternate(
        self, targets: Floats, candidates: Candidates, groups: _Groups, growth: Mapping[str, int]
    ) -> Transforms:
        """Alternate (α, β), h, (α, β), h, …; return the (α, β) of every query, composed over all rounds."""
        fitted = self.regressor_.predict(candidates.features)
        whole = Transforms.none(len(candidates))
        step = _Step(whole, targets, 0.0)
        trace = [self._objective(targets, fitted, candidates, step, groups.weights)]
        for _ in track(range(int(self.rounds)), "Rounds of aTVT") if self.rounds else ():
            before, step = step, self._step(targets, fitted, candidates, groups)
            whole = whole.then(step.found) if self.variant == "updating" else step.found
            trace.append(self._objective(targets, fitted, candidates, step, groups.weights))
            moved = self._change(before.found, step.found)
            if moved <= self.tolerance or not self._fit_again(targets, step, candidates, growth, groups.weights):
                break
            fitted = self.regressor_.predict(candidates.features)
            trace.append(self._objective(targets, fitted, candidates, step, groups.weights))
            targets = step.targets if self.variant == "updating" else targets
        self.trace_ = tuple(trace)
        return whole

    def _change(self, before: Transforms, found: Transforms) -> float:
        """Return how much α and β have changed since the last round."""
        changes = [now - then for now, then in zip(found, before, strict=True)]
        if self.stop == "norms":
            return float(sum(np.linalg.norm(each) for each in changes))
        return max(float(np.mean(np.abs(each))) for each in changes)

    def _step(self, targets: Floats, fitted: Floats, candidates: Candidates, groups: _Groups) -> _Step:
        """Return the best transformation of every group, given h."""
        y, h = groups.together(targets), groups.together(fitted)
        if self.transform == "monotone":
            goals, cost = bent(y, h, groups.starts, self.shift_penalty)
            lines = nearest_lines(y, goals, groups.starts)
            return _Step(groups.by_query(lines), groups.apart(goals), cost)
        # In running and updating, targets are transformed to fit h, not h to fit targets, so the two swap roles.
        held: Any = {"scale_penalty": self.scale_penalty, "shift_penalty": self.shift_penalty, "penalty": self.penalty}
        goal, mover = (y, h) if self.variant == "weighted" else (h, y)
        each = transforms(goal, mover, groups.starts, nonnegative=bool(self.nonnegative), **held)
        found = groups.by_query(each)
        scale, shift = (np.repeat(numbers, candidates.sizes) for numbers in found)
        moved = targets if self.variant == "weighted" else scale * targets + shift
        counted = None if groups.weights is None or self.per == "class" else groups.weights.queries
        return _Step(found, moved, penalties(each, **held, weights=counted))

    def _fit_again(
        self,
        targets: Floats,
        step: _Step,
        candidates: Candidates,
        growth: Mapping[str, int],
        weights: _Weights | None,
    ) -> bool:
        """Refit h to the transformed targets; return False and keep the last h if no query is left."""
        rows = np.ones(len(targets)) if weights is None else weights.rows
        if self.variant != "weighted":
            self.regressor_.fit(candidates.features, step.targets, rows, **growth)
            return True
        scale, shift = (np.repeat(each, candidates.sizes) for each in step.found)
        kept = np.abs(scale) > _LEAST
        if not kept.any():
            return False
        goals = np.divide(targets - shift, scale, out=np.zeros(len(targets)), where=kept)
        self.regressor_.fit(candidates.features, goals, np.where(kept, scale**2, 0.0) * rows, **growth)
        return True

    def _objective(
        self, targets: Floats, fitted: Floats, candidates: Candidates, step: _Step, weights: _Weights | None
    ) -> float:
        """Return the squared errors plus the penalties of this round's step."""
        rows = None if weights is None else weights.rows
        held = self.regressor_.l2 * self.regressor_.squared_norm if hasattr(self.regressor_, "squared_norm") else 0.0
        if self.variant == "weighted":
            errors = squared_errors(targets, fitted, candidates.starts, step.found, rows)
        else:
            squares = (fitted - step.targets) ** 2
            errors = float(np.sum(squares if rows is None else rows * squares))
        return float(errors + step.penalty + held)

    def _check(self) -> None:
        for name, known in _KNOWN.items():
            if getattr(self, name) not in known:
                raise DataError(f"{name}={getattr(self, name)!r} is unknown. Known: {', '.join(known)}.")
        for name in ("scale_penalty", "shift_penalty", "tolerance"):
            if not getattr(self, name) >= 0:
                raise DataError(f"ATVT({name}={getattr(self, name)}) must be 0 or more.")
        if not 0 <= self.rounds < np.inf or self.rounds != int(self.rounds):
            raise DataError(f"ATVT(rounds={self.rounds}) must be a whole number, 0 or more.")
        if self.transform == "monotone" and (self.variant == "weighted" or self.penalty != "l2"):
            raise DataError(
                f"ATVT(transform='monotone', variant={self.variant!r}, penalty={self.penalty!r}): expected variant "
                "'running' or 'updating' and penalty 'l2', because a monotone function is not inverted."
            )


class _Weights(NamedTuple):
    """The weight of every row and every query."""

    rows: Floats
    queries: Floats


class _Step(NamedTuple):
    """One round's transformations: α and β of every query, the resulting targets, and the penalties."""

    found: Transforms
    targets: Floats
    penalty: float


class _Groups(NamedTuple):
    """Rows that share a transformation: those of a query, or of all queries of a class."""

    of_query: Ints
    starts: Ints
    order: Ints | None  # rows sorted by group; None if they already are
    weights: _Weights | None = None

    def together(self, values: Floats) -> Floats:
        """Return row values sorted by group."""
        return values if self.order is None else values[self.order]

    def apart(self, values: Floats) -> Floats:
        """Return values in the original row order."""
        if self.order is None:
            return values
        found = np.empty_like(values)
        found[self.order] = values
        return found

    def by_query(self, found: Transforms) -> Transforms:
        """Expand the numbers of every group to its queries."""
        return Transforms(found.scale[self.of_query], found.shift[self.of_query])
