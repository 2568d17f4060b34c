"""Adaptive target value transformation, aTVT: one function for all queries, learned as if they differed [zha2006]_.

    min_{h, α, β}  Σ_q Σ_j (y_qj − β_q − α_q h(x_qj))²  +  λ_β ‖β‖_p^p  +  λ_α ‖α − 1‖_p^p  +  λ_h Ω(h),     α_q ≥ 0

α_q and β_q absorb each training query's scale and level, so that h need not fit them. A new query is ranked by h alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from querywise.contracts.answers import ALL, Answer, Facts, Moved, Rows, Terms, alone, ready
from querywise.contracts.forms import Form, Refusal, no_sum
from querywise.contracts.protocols import Regressor, Transparent, Watching
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.learners.regression.targets import Penalty, Transforms, penalties, squared_errors, transforms
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.progress import track

Variant = Literal["weighted", "running"]
_LEAST = 1e-6  # α below which a query's rows would only add noise to h


class ATVT:
    """Alternate between a regression h and every query's (α, β).

    regressor: TreeRegression, KernelRidge, or anything with fit(features, targets, weights) and predict(features). One
    that also has fit_watching, as TreeRegression does, sets tree_count_, which later calls of fit get as trees.
    scale_penalty: λ_α, how strongly scales α are shrunk towards 1; infinite fixes them at 1.
    shift_penalty: λ_β, how strongly shifts β are shrunk towards 0; infinite fixes them at 0. Both: plain regression.
    penalty: the norm that α and β are penalised by: squares (l2) or absolute values (l1).
    variant: weighted is the objective as written, h fitted to (y − β)/α with weights α²; running fits h to α y + β
    without weights, and its α is on the inverse scale.
    rounds: at most so many (α, β) steps, each followed by another h; it stops once α and β move by no more than
    `tolerance` on average.
    values: what each grade is worth, the grade itself by default.

    `trace_` is the objective after every half step, λ_h Ω(h) in it where the regressor knows its norm.
    """

    def __init__(
        self,
        regressor: Regressor,
        *,
        scale_penalty: float = 100.0,
        shift_penalty: float = 1.0,
        penalty: Penalty = "l2",
        variant: Variant = "weighted",
        rounds: int = 4,
        tolerance: float = 1e-3,
        values: Sequence[float] | None = None,
    ) -> None:
        self.regressor = regressor
        self.scale_penalty = scale_penalty
        self.shift_penalty = shift_penalty
        self.penalty = penalty
        self.variant = variant
        self.rounds = rounds
        self.tolerance = tolerance
        self.values = values

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Learn h. Trees choose their number by the plain regression's error on `valid`, where it is given."""
        self._check()
        data.require_learnable()
        candidates = data.candidates
        if valid is not None:
            valid.candidates.require_features(candidates.features.shape[1], candidates.feature_names)
        targets = self._targets(data)
        if not len(targets):
            raise DataError(f"There is no document to learn from in any of the {len(data)} queries.")
        self.regressor_, watched = self._first(data, targets, valid)
        growth = {"trees": self.regressor_.tree_count_} if watched else {}
        fitted = self.regressor_.predict(candidates.features)
        found = Transforms.none(len(data))
        trace = [self._objective(targets, fitted, candidates, found)]
        for _ in track(range(int(self.rounds)), "Rounds of aTVT") if self.rounds else ():
            before, found = found, self._step(targets, fitted, candidates)
            trace.append(self._objective(targets, fitted, candidates, found))
            moved = max(float(np.mean(np.abs(now - then))) for now, then in zip(found, before, strict=True))
            if moved <= self.tolerance or not self._fit_again(targets, found, candidates, growth):
                break
            fitted = self.regressor_.predict(candidates.features)
            trace.append(self._objective(targets, fitted, candidates, found))
        self.scale_, self.shift_ = found
        self.query_ids_ = candidates.query_ids
        self.trace_ = tuple(trace)
        self.feature_count_ = candidates.features.shape[1]
        self.feature_names_ = candidates.feature_names
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        """One score per document: h."""
        if not len(ready(self, candidates).features):
            return np.zeros(0)
        scores: Floats = self.regressor_.predict(candidates.features)
        return scores

    def answer(self, candidates: Candidates, /) -> Answer:
        """One model for all queries: h."""
        return replace(alone(self, ready(self, candidates)), facts=lambda: Facts(moved=self.moved))

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms | Refusal:
        """Those of h."""
        source = self.regressor_
        if not isinstance(source, Transparent):
            return no_sum(type(source))
        return Terms.of(seen, rows, source.contributions(seen.features[rows]))

    def form(self) -> Form:
        """That of h."""
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
            return data.labels.astype(np.float64)
        worth = np.asarray(self.values, dtype=np.float64)
        if not np.isfinite(worth).all():
            raise DataError(f"values={self.values!r} must be finite numbers.")
        if data.labels.max(initial=0) >= len(worth):
            raise DataError(f"values has {len(worth)} entries, but there is a grade {int(data.labels.max())}.")
        return worth[data.labels]

    def _first(self, data: Judged, targets: Floats, valid: Judged | None) -> tuple[Any, bool]:
        """Plain regression, which does not depend on the penalties, and whether `valid` chose its number of trees."""
        features, weights = data.candidates.features, np.ones(len(targets))
        watched = valid is not None and isinstance(self.regressor, Watching)

        def made() -> Any:
            regressor = unfitted(self.regressor)
            if valid is None or not isinstance(regressor, Watching):
                return regressor.fit(features, targets, weights)
            return regressor.fit_watching(features, targets, weights, valid.candidates.features, self._targets(valid))

        # Fitted again later on: a copy, so that the next setting of a grid finds it as it is.
        return copy.copy(cached("plain regression", (self.regressor, self.values, id(valid)), data, made)), watched

    def _step(self, targets: Floats, fitted: Floats, candidates: Candidates) -> Transforms:
        # Running: the targets are transformed to fit h, not h to fit the targets, so the two swap roles.
        goal, mover = (targets, fitted) if self.variant == "weighted" else (fitted, targets)
        return transforms(
            goal,
            mover,
            candidates.starts,
            scale_penalty=self.scale_penalty,
            shift_penalty=self.shift_penalty,
            penalty=self.penalty,
        )

    def _fit_again(self, targets: Floats, found: Transforms, candidates: Candidates, growth: Mapping[str, int]) -> bool:
        """Refit h to the targets transformed by (α, β); False, and the last h stays, where no query is left."""
        scale, shift = (np.repeat(each, candidates.sizes) for each in found)
        if self.variant == "running":
            self.regressor_.fit(candidates.features, scale * targets + shift, np.ones(len(targets)), **growth)
            return True
        kept = scale > _LEAST
        if not kept.any():
            return False
        goals = np.divide(targets - shift, scale, out=np.zeros(len(targets)), where=kept)
        self.regressor_.fit(candidates.features, goals, np.where(kept, scale**2, 0.0), **growth)
        return True

    def _objective(self, targets: Floats, fitted: Floats, candidates: Candidates, found: Transforms) -> float:
        goal, mover = (targets, fitted) if self.variant == "weighted" else (fitted, targets)
        settings: Any = {"scale_penalty": self.scale_penalty, "shift_penalty": self.shift_penalty}
        held = self.regressor_.l2 * self.regressor_.squared_norm if hasattr(self.regressor_, "squared_norm") else 0.0
        errors = squared_errors(goal, mover, candidates.starts, found)
        return float(errors + penalties(found, penalty=self.penalty, **settings) + held)

    def _check(self) -> None:
        for name, known in (("penalty", ("l2", "l1")), ("variant", ("weighted", "running"))):
            if getattr(self, name) not in known:
                raise DataError(f"{name}={getattr(self, name)!r} is unknown. Known: {', '.join(known)}.")
        for name in ("scale_penalty", "shift_penalty", "tolerance"):
            if not getattr(self, name) >= 0:
                raise DataError(f"ATVT({name}={getattr(self, name)}) must be 0 or more.")
        if not 0 <= self.rounds < np.inf or self.rounds != int(self.rounds):
            raise DataError(f"ATVT(rounds={self.rounds}) must be a whole number, 0 or more.")
