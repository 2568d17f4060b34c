"""One ranker on one fold: trained, its test documents scored, what it cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from querywise.answers import Answer, Scorer, answer_of
from querywise.arrays import Floats
from querywise.data.folds import Fold
from querywise.data.groups import Judged
from querywise.evaluation.oracle import gap_in
from querywise.parameters import learned_bytes
from querywise.ranking import GivenScores
from querywise.sharing import not_sharing

# Given the training and the validation part, a fitted ranker, or what tuning found; never the test part.
Fit = Callable[[Judged, Judged], Any]
# Told of every ranker once it is fitted: fold, name, ranker.
Observe = Callable[[Fold, str, Any], None]


@dataclass(frozen=True)
class Trained:
    """One ranker on one fold: its scores of the test documents, what it cost, and how its parameters were chosen.

    `extra` is what only the fitted ranker knows of the test queries, as JSON can hold it: how far each is from the
    nearest training query, what the best of the ranker's models would reach on it.
    """

    scores: Floats
    fit_seconds: float
    predict_seconds: float
    notes: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def valid_value(self) -> float:
        """What the chosen setting reached on the validation part; NaN where nothing was chosen."""
        return max((trial["value"] for trial in self.notes.get("tried", ())), default=float("nan"))


def train(name: str, fit: Fit, fold: Fold, observe: Observe | None = None, *, flavour: str = "standard") -> Trained:
    """Fit one ranker on one fold and score the fold's test documents."""
    begin = time.perf_counter()
    made = fit(fold.train, fold.valid)
    fitted = time.perf_counter()
    ranker: Any = getattr(made, "ranker", made)
    with not_sharing():
        ready = time.perf_counter()
        answer = answer_of(ranker, fold.test.candidates)
        scores = answer.scores()
        done = time.perf_counter()
    if observe is not None:
        observe(fold, name, ranker)
    notes = made.as_notes() if hasattr(made, "as_notes") else {}
    spent = (np.nan, np.nan) if isinstance(ranker, GivenScores) else (fitted - begin, done - ready)
    return Trained(scores, *spent, notes, _extra(ranker, answer, fold, flavour))


def _extra(ranker: Scorer, answer: Answer, fold: Fold, flavour: str) -> dict[str, Any]:
    extra: dict[str, Any] = {"megabytes": learned_bytes(ranker) / 1e6}
    place = answer.place
    if place is not None and place.known is not None:
        extra["distances"] = place.known.distances().tolist()
    gap = gap_in(answer, fold.test, flavour=flavour)
    if gap is not None:
        extra["best_model"] = gap.best.tolist()
        extra["by_rank"] = gap.by_rank.tolist()
        if gap.relevant_only is not None:
            extra["relevant_only"] = gap.relevant_only.tolist()
    if answer.facts.moved is not None:
        extra["moved"] = {each.query_id: [each.scale, each.shift] for each in answer.facts.moved()}
    known = answer_of(ranker, fold.train.candidates).place
    if place is not None and known is not None and place.points is not None and known.points is not None:
        extra["places"] = _plane(known.points(), place.points())
    return extra


def _plane(train: Floats, test: Floats) -> list[list[float]]:
    """Test queries in the first two principal components of the training queries."""
    centre = train.mean(axis=0)
    main = np.linalg.svd(train - centre, full_matrices=False)[2][:2]
    largest = np.take_along_axis(main, np.abs(main).argmax(axis=1)[:, None], axis=1)
    flat: list[list[float]] = ((test - centre) @ (main * np.where(largest < 0, -1.0, 1.0)).T).tolist()
    return flat
