"""One ranker on one fold: trained, its test documents scored, what it cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypedDict, runtime_checkable

import numpy as np

from querywise.contracts.answers import Answer, Scorer, answer_of
from querywise.data.folds import Fold
from querywise.data.judged import Judged
from querywise.evaluation.oracle import gap_in
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import not_sharing
from querywise.runtime.parameters import learned_bytes
from querywise.runtime.values import JsonObject, Settings


@runtime_checkable
class Chosen(Protocol):
    """What tuning found: a fitted ranker, and how its parameters were chosen."""

    @property
    def ranker(self) -> Scorer:
        """The best ranker."""
        ...

    def as_notes(self) -> JsonObject:
        """Its parameters, and what was tried to find them."""
        ...


# Given the training and the validation part, a fitted ranker, or what tuning found; never the test part.
Fit = Callable[[Judged, Judged], Scorer | Chosen]
# Told of every ranker once it is fitted: fold, name, ranker.
Observe = Callable[[Fold, str, Scorer], None]


class Extra(TypedDict, total=False):
    """What only a fitted ranker knows: of itself, and of each test query, in their order."""

    megabytes: float  # what it has learned takes
    distances: list[float]  # of each query from the nearest training query
    best_model: list[float]  # what the best of its models would reach on each query
    by_rank: list[float]  # the mean over the queries of what the best, the second best, … of its models reach
    relevant_only: list[float]  # of each query, where the model is chosen by its relevant documents
    moved: dict[str, list[float]]  # the scale and the shift of each training query, by its id
    places: list[list[float]]  # each query in a plane


@dataclass(frozen=True)
class Trained:
    """One ranker on one fold: its scores of the test documents, what it cost, and how its parameters were chosen.

    `notes` and `extra` are as JSON can hold them.
    """

    scores: Floats
    fit_seconds: float
    predict_seconds: float
    notes: JsonObject = field(default_factory=dict)
    extra: Extra = field(default_factory=Extra)

    @property
    def parameters(self) -> Settings:
        """The chosen setting, where one was chosen."""
        found = self.notes.get("parameters")
        return found if isinstance(found, Mapping) else {}

    @property
    def tried(self) -> list[tuple[Settings, float]]:
        """Every setting that was tried, and what it reached on the validation part."""
        found = self.notes.get("tried")
        trials = found if isinstance(found, Sequence) else ()
        return [_trial(each) for each in trials if isinstance(each, Mapping)]

    @property
    def valid_value(self) -> float:
        """What the chosen setting reached on the validation part; NaN where nothing was chosen."""
        return max((value for _, value in self.tried), default=float("nan"))


def _trial(found: Settings) -> tuple[Settings, float]:
    parameters, value = found.get("parameters"), found.get("value")
    known = parameters if isinstance(parameters, Mapping) else {}
    return known, value if isinstance(value, (int, float)) else float("nan")


def train(name: str, fit: Fit, fold: Fold, observe: Observe | None = None, *, flavour: str = "standard") -> Trained:
    """Fit one ranker on one fold and score the fold's test documents."""
    begin = time.perf_counter()
    made = fit(fold.train, fold.valid)
    fitted = time.perf_counter()
    ranker, notes = (made.ranker, made.as_notes()) if isinstance(made, Chosen) else (made, {})
    with not_sharing():
        ready = time.perf_counter()
        answer = answer_of(ranker, fold.test.candidates)
        scores = answer.scores()
        done = time.perf_counter()
    if observe is not None:
        observe(fold, name, ranker)
    spent = (np.nan, np.nan) if answer.facts().elsewhere else (fitted - begin, done - ready)
    return Trained(scores, *spent, notes, _extra(ranker, answer, fold, flavour))


def _extra(ranker: Scorer, answer: Answer, fold: Fold, flavour: str) -> Extra:
    extra: Extra = {"megabytes": learned_bytes(ranker) / 1e6}
    place = answer.place
    if place is not None and place.known is not None:
        extra["distances"] = place.known.distances().tolist()
    gap = gap_in(answer, fold.test, flavour=flavour)
    if gap is not None:
        extra["best_model"] = gap.best.tolist()
        extra["by_rank"] = gap.by_rank.tolist()
        if gap.relevant_only is not None:
            extra["relevant_only"] = gap.relevant_only.tolist()
    moved = answer.facts().moved
    if moved is not None:
        extra["moved"] = {each.query_id: [each.scale, each.shift] for each in moved()}
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
