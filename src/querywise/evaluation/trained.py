"""One ranker trained on one fold: scores of the test documents, costs, and choices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from querywise.contracts.answers import Answer, Scorer, answer_of
from querywise.contracts.protocols import Fittable
from querywise.data.folds import Fold
from querywise.data.judged import Judged
from querywise.data.run_columns import run_ranked_by
from querywise.display.words import counted
from querywise.evaluation.oracle import gap_in
from querywise.evaluation.tuning import Choice, Trial, Tuned
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import not_caching
from querywise.runtime.parameters import learned_bytes
from querywise.runtime.values import JsonObject, Settings

# From the training and the validation part, a fitted ranker or a tuning result; never sees the test part.
Fit = Callable[[Judged, Judged], Scorer | Tuned[Fittable]]
# Called with every ranker once it is fitted: fold, name, ranker.
Observe = Callable[[Fold, str, Scorer], None]


@dataclass(frozen=True)
class Reasons:
    """Explanations of one ranker's order of one fold's test documents; all values are JSON-compatible.

    Attributes:
        refused: Why there is no explanation; empty if there is one.
        here: The share of each feature in the ranking under the models that score, averaged over `queries` queries.
        everyone: The same under the ranker's global model.
        moved: The mean absolute difference of the two.
        why: For each query, a list for each of some documents: its row within the query, then pairs of a feature's
            number and its contribution to the score, the largest first.

    """

    refused: str = ""
    features: list[str] = field(default_factory=list)
    queries: int = 0
    here: list[float] = field(default_factory=list)
    everyone: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    why: list[list[list[float]]] = field(default_factory=list)

    def as_json(self) -> JsonObject:
        """Return everything by name."""
        return asdict(self)


# From an answer to the queries of a test part, the reasons for its ranking.
Explain = Callable[[Answer, Judged], Reasons]


@dataclass(frozen=True)
class Use:
    """A feature's importance for a ranker over all folds: under its models, its global model, and the difference."""

    feature: str
    here: float
    everyone: float
    moved: float


def uses(folds: Sequence[Reasons]) -> tuple[Use, ...]:
    """Return every feature of a ranker by importance: means over the queries of all folds."""
    queries = sum(each.queries for each in folds)
    total: dict[str, Floats] = {}
    for each in folds:
        for name, *shares in zip(each.features, each.here, each.everyone, each.moved, strict=True):
            total[name] = total.get(name, np.zeros(3)) + each.queries * np.array(shares)
    found = [Use(name, *(sums / max(queries, 1)).tolist()) for name, sums in total.items()]
    return tuple(sorted(found, key=lambda each: -each.here))


@dataclass(frozen=True)
class Extra:
    """Facts known only to a fitted ranker: about itself, and about each test query, in order; None if unknown.

    Values are JSON-compatible.
    """

    megabytes: float = 0.0  # size of what it has learned
    distances: list[float] | None = None  # of each query from the nearest training query
    best_model: list[float] | None = None  # what the best of its models would reach on each query
    by_rank: list[float] | None = None  # what its best, second best, … model reaches, averaged over the queries
    relevant_only: list[float] | None = None  # by query, if the model is chosen by its relevant documents
    halves: dict[str, list[float]] | None = None  # on halves of some queries: oracle.Halves, by name
    moved: dict[str, list[float]] | None = None  # the scale and the shift of each training query, by its id
    places: list[list[float]] | None = None  # each query's position in a plane
    run: str | None = None  # the first-stage run, if it ranks by one alone

    def __repr__(self) -> str:
        return f"Extra({', '.join(self.as_json())})"

    def as_json(self) -> JsonObject:
        """Return the known values, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Trained:
    """One ranker on one fold: its scores of the test documents, its costs, and how its parameters were chosen.

    Attributes:
        choice: None if nothing was tuned.
        method: The chosen method, if it was chosen among several.
        reasons: Explanations of its rankings, if requested.

    """

    scores: Floats
    fit_seconds: float
    predict_seconds: float
    choice: Choice | None = None
    extra: Extra = field(default_factory=Extra)
    method: str | None = None
    reasons: Reasons | None = None

    def __repr__(self) -> str:
        chosen = "" if self.choice is None else f", chosen {self.choice.parameters}"
        return f"Trained({counted(len(self.scores), 'score')}, fitted in {self.fit_seconds:.3g} s{chosen})"

    @property
    def parameters(self) -> Settings:
        """The chosen setting, if any."""
        return {} if self.choice is None else {**self.choice.parameters, **self.choice.final}

    @property
    def tried(self) -> tuple[Trial, ...]:
        """Every setting tried, and its value on the validation part."""
        return () if self.choice is None else self.choice.tried

    @property
    def valid_value(self) -> float:
        """The validation value of the chosen setting; NaN if nothing was tuned."""
        return float("nan") if self.choice is None else self.choice.value


def train(
    name: str,
    fit: Fit,
    fold: Fold,
    observe: Observe | None = None,
    *,
    flavour: str = "standard",
    explain: Explain | None = None,
) -> Trained:
    """Fit one ranker on one fold and score the fold's test documents."""
    begin = time.perf_counter()
    made = fit(fold.train, fold.valid)
    fitted = time.perf_counter()
    ranker, choice = (made.ranker, made.choice) if isinstance(made, Tuned) else (made, None)
    with not_caching():
        ready = time.perf_counter()
        answer = answer_of(ranker, fold.test.candidates)
        scores = answer.scores()
        done = time.perf_counter()
    if observe is not None:
        observe(fold, name, ranker)
    spent = (np.nan, np.nan) if answer.facts().elsewhere else (fitted - begin, done - ready)
    reasons = None if explain is None else explain(answer, fold.test)
    return Trained(scores, *spent, choice, _extra(ranker, answer, fold, flavour), reasons=reasons)


def _extra(ranker: Scorer, answer: Answer, fold: Fold, flavour: str) -> Extra:
    place, gap, moved = answer.place, gap_in(answer, fold.test, flavour=flavour), answer.facts().moved
    known = answer_of(ranker, fold.train.candidates).place
    plane = None
    if place is not None and known is not None and place.points is not None and known.points is not None:
        plane = _plane(known.points(), place.points())
    return Extra(
        megabytes=learned_bytes(ranker) / 1e6,
        distances=None if place is None or place.known is None else place.known.distances().tolist(),
        best_model=None if gap is None else gap.best.tolist(),
        by_rank=None if gap is None else gap.by_rank.tolist(),
        relevant_only=None if gap is None or gap.relevant_only is None else gap.relevant_only.tolist(),
        halves=None if gap is None or gap.halves is None else gap.halves.as_lists(),
        moved=None if moved is None else {each.query_id: [each.scale, each.shift] for each in moved()},
        places=plane,
        run=_run(answer.facts().feature, fold.test),
    )


def _run(feature: str | None, test: Judged) -> str | None:
    """Return the run if ranking by this feature is the run's ranking; otherwise None."""
    if feature is None:
        return None
    known = next((run.name for run in test.runs if run.feature == feature), None)
    return known or run_ranked_by(feature, test.candidates.features, test.feature_names)


def _plane(train: Floats, test: Floats) -> list[list[float]]:
    """Project test queries on the first two principal components of the training queries."""
    centre = train.mean(axis=0)
    main = np.linalg.svd(train - centre, full_matrices=False)[2][:2]
    largest = np.take_along_axis(main, np.abs(main).argmax(axis=1)[:, None], axis=1)
    flat: list[list[float]] = ((test - centre) @ (main * np.where(largest < 0, -1.0, 1.0)).T).tolist()
    return flat
