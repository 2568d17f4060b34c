"""The importance of features in a ranker's order: over many queries, and for single queries.

With c_j(d) the contribution of feature j to the score of document d under the model that scores its query, the
importance by contributions is the mean over queries of the spread of c_j over the query's documents. Under a linear
model that is |w_j| times the spread of the feature within the query. Permutation gives a feature's values to other
documents of the same query; its importance is the decrease of the measure.

For single queries, a few candidates are taken, spread evenly over the ranking: a document's amount of a feature is
c_j(d) minus its mean over these candidates, divided by the spread of their scores. The feature's share in the query's
order is the spread of c_j over them, divided by the sum of these spreads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from querywise.contracts.answers import Answer, Answers, Model, Scorer, answer_of
from querywise.contracts.forms import Linear, Refusal, no_sum
from querywise.contracts.protocols import KnowsGains
from querywise.data.judged import Candidates, Judged
from querywise.display.tables import Column, Frame, as_frame, axes_or_new, bars, table
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.foreign import Foreign, System, scorer_of
from querywise.evaluation.trained import Reasons
from querywise.explanations.contributions import contributions_in, one_query
from querywise.measures.order import order
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.progress import track
from querywise.runtime.threads import checkpoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

How: TypeAlias = Literal["contributions", "gain", "permutation"]
_HOWS: tuple[How, ...] = ("contributions", "gain", "permutation")
_MOST = 15  # rows of a table, or bars of a figure
FIRST = 5  # documents of a ranking
FURTHER = 3  # relevant documents below them
MOST_QUERIES = 150  # if a score is not a weighted sum of features: Shapley values take long
_SPREAD = 8  # candidates of a query that represent all of them
_FEATURES = 3  # of a document
_LEAST = 0.005  # smaller amounts are not shown


@dataclass(frozen=True, eq=False)
class FeatureImportance:
    """Features and their importance, the most important first.

    Attributes:
        how: `contributions`, `gain` or `permutation`.
        unit: The unit of the numbers, in words.
        errors: The standard error of each, over the queries; None by gain.

    """

    features: tuple[str, ...]
    values: Floats
    how: How
    unit: str
    errors: Floats | None = None

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        first = ", ".join(f"{name}: {value:.4g}" for name, value in zip(self.features[:3], self.values, strict=False))
        left = f" and {counted(len(self) - 3, 'feature')} more" if len(self) > 3 else ""
        return f"FeatureImportance(by {self.how}: {first}{left})"

    def _repr_html_(self) -> str:
        numbers = [self.values.tolist(), *([] if self.errors is None else [self.errors.tolist()])]
        rows = list(zip(self.features, *numbers, strict=True))
        left = [f"and {len(self) - _MOST:,} more"] if len(self) > _MOST else []
        headings = ("feature", "importance", "standard error")[: len(numbers) + 1]
        title = f"Feature importance by {self.how}"
        return table(headings, rows[:_MOST], title=title, notes=[*left, self.unit])

    def __getitem__(self, feature: str) -> float:
        """Return the importance of one feature."""
        if feature not in self.features:
            raise DataError(f"There is no feature {feature!r}. There are: {', '.join(self.features[:20])}.")
        return float(self.values[self.features.index(feature)])

    def to_frame(self) -> Frame:
        """Return a row per feature: name, importance, standard error, and method; pandas, else polars, else Arrow."""
        errors = np.full(len(self), np.nan) if self.errors is None else self.errors
        columns: dict[str, Column] = {"feature": list(self.features), "importance": self.values, "error": errors}
        return as_frame({**columns, "how": [self.how] * len(self)})

    def plot(self, most: int = _MOST, *, ax: Axes | None = None) -> Axes:
        """Plot the most important features as bars, with two standard errors to either side if known."""
        count = min(most, len(self))
        errors = None if self.errors is None else (2 * self.errors[:count]).tolist()
        axes = axes_or_new(ax, height=1.1 + 0.28 * count)
        bars(axes, self.features[:count], self.values[:count].tolist(), errors)
        axes.set_xlabel(self.unit)
        return axes


def feature_importance(
    ranker: System,
    data: Judged | Candidates,
    *,
    how: How | None = None,
    measure: str = "ndcg@10",
    flavour: str = "standard",
    repeats: int = 5,
    seed: int = 0,
) -> FeatureImportance:
    """Measure the importance of each feature in a fitted ranker's order of these queries' documents.

    Args:
        ranker: a fitted ranker; or another library's model or a function of features, as `evaluate` takes them, which
            have importance only by permutation.
        data: the queries and their documents; permutation needs labels.
        how: `contributions`, the mean over queries of the spread of the feature's contributions to the scores, exact
            for linear models and local ones of them; `gain`, the gain of the splits of LightGBM's trees in training;
            `permutation`, the decrease of the measure when the feature's values are exchanged between documents of the
            same query. By default contributions if all models are linear, else permutation. Trees have contributions
            too, as Shapley values.
        measure, flavour: of permutation: the measure, and its conventions.
        repeats: of permutation: how often values are exchanged, from 1 up.
        seed: of permutation: how they are exchanged.

    Returns:
        A FeatureImportance: `.features` and `.values`, the most important first, `.errors` and `.unit` in words.

    Raises:
        DataError: The ranker does not support `how`, permutation lacks labels, or there are no documents.

    >>> from querywise import RankSVM, feature_importance, make_judged
    >>> data = make_judged(30, 10, 4)
    >>> found = feature_importance(RankSVM().fit(data), data)
    >>> found.how, len(found)
    ('contributions', 4)
    """
    if how is not None and how not in _HOWS:
        raise DataError(f"feature_importance(how={how!r}) is unknown. Known: {', '.join(map(repr, _HOWS))}.")
    scorer = scorer_of(ranker)
    candidates = data.candidates if isinstance(data, Judged) else data
    candidates = candidates if isinstance(scorer, Foreign) else _named(candidates, ranker)
    if not len(candidates.features):
        raise DataError("There is no document to compute the importance of features on.")
    answer = answer_of(scorer, candidates)
    chosen = how or ("contributions" if is_linear(answer) else "permutation")
    if chosen == "gain":
        return _by_gain(answer)
    if chosen == "contributions":
        if not isinstance(scorer, Answers):
            raise DataError(f"{no_sum(type(ranker)).reason} Use how='permutation'.")
        return _by_contributions(scorer, answer)
    if not isinstance(data, Judged):
        raise DataError("Importance by permutation needs labels; give Judged instead of Candidates.")
    if repeats < 1:
        raise DataError(f"feature_importance(repeats={repeats}) must be from 1 up.")
    return _by_permutation(
        scorer, replace(data, candidates=candidates), measure=measure, flavour=flavour, repeats=repeats, seed=seed
    )


def _named(candidates: Candidates, ranker: System) -> Candidates:
    """Name the columns of candidates as in training, if they have no names."""
    names: tuple[str, ...] | None = getattr(ranker, "feature_names_", None)
    if candidates.feature_names is not None or names is None or len(names) != candidates.features.shape[1]:
        return candidates
    return replace(candidates, feature_names=names)


def is_linear(answer: Answer) -> bool:
    """Whether every score is a weighted sum of features, with weights that may differ by query."""
    if answer.members:
        return answer.local.scale != "rank" and all(map(is_linear, answer.members))
    return isinstance(answer.everyone.form(), Linear)


def _sorted(
    labels: tuple[str, ...], values: Floats, how: How, unit: str, errors: Floats | None = None
) -> FeatureImportance:
    turn = np.argsort(-values, kind="stable")
    names = tuple(labels[column] for column in turn.tolist())
    return FeatureImportance(names, values[turn], how, unit, None if errors is None else errors[turn])


def _by_gain(answer: Answer) -> FeatureImportance:
    model = answer.everyone
    if answer.varies or answer.members or not isinstance(model, KnowsGains):
        raise DataError(
            "Importance by gain is for one model of boosted trees, such as a LambdaMART; this ranker is another. "
            "Use how='permutation'."
        )
    labels = tuple(map(answer.seen.feature_label, range(answer.seen.features.shape[1])))
    return _sorted(labels, model.gains(), "gain", "sum of the gains of the splits by it, in training")


def _by_contributions(ranker: Scorer, answer: Answer) -> FeatureImportance:
    unit = "mean over queries of the spread of what it adds to the scores"
    if answer.members or answer.local.scale == "range":
        labels, spreads = _one_by_one(ranker, answer.seen)
    else:
        labels, spreads = _model_by_model(answer)
    return _sorted(labels, spreads.mean(axis=0), "contributions", unit, _errors(spreads))


def _one_by_one(ranker: Scorer, candidates: Candidates) -> tuple[tuple[str, ...], Floats]:
    """Return queries × features, if contributions depend on all scores of the query."""
    labels: tuple[str, ...] = ()
    spreads = []
    for query in track(range(len(candidates)), "Contributions"):
        checkpoint()
        if candidates.sizes[query]:
            found = contributions_in(answer_of(ranker, candidates.select([query])))
            labels = found.labels
            spreads.append(found.here.std(axis=0))
    return labels, np.array(spreads)


def _model_by_model(answer: Answer) -> tuple[tuple[str, ...], Floats]:
    """Return queries × features, if one model scores each query: all queries of a model together."""
    seen, chosen = answer.seen, answer.chosen() if answer.varies else np.full(len(answer.seen), -1, np.int64)
    labels: tuple[str, ...] = ()
    spreads: list[Floats] = []
    for number in track(np.unique(chosen).tolist(), "Contributions"):
        checkpoint()
        queries = np.flatnonzero((chosen == number) & (seen.sizes > 0))
        if len(queries):
            labels, found = _of_model(answer.everyone if number < 0 else answer.local.models()[number], seen, queries)
            spreads.append(found)
    return labels, np.concatenate(spreads)


def _of_model(model: Model, seen: Candidates, queries: Ints) -> tuple[tuple[str, ...], Floats]:
    """Return the spread of one model's contributions within each of some queries."""
    own = seen if len(queries) == len(seen) else seen.select(queries)
    found = model.terms(own)
    if isinstance(found, Refusal):
        raise DataError(f"{found.reason} Use how='permutation'.")
    return found.labels, np.array([found.parts[own.rows(query)].std(axis=0) for query in range(len(own))])


def _by_permutation(
    ranker: Scorer, data: Judged, *, measure: str, flavour: str, repeats: int, seed: int
) -> FeatureImportance:
    candidates = data.candidates

    def values(seen: Candidates) -> Floats:
        scores = ranker.predict(seen)
        return evaluate(scores, data, measures=[measure], flavour=flavour, order="grouped").values[:, 0]

    before = values(candidates)
    width = candidates.features.shape[1]
    drops = np.zeros((len(data), width))
    for column in track(range(width), "Permuting features"):
        for repeat in range(repeats):
            checkpoint()
            moved = _permuted(candidates, column, np.random.default_rng([seed, column, repeat]))
            drops[:, column] += (before - values(moved)) / repeats
    labels = tuple(map(candidates.feature_label, range(width)))
    unit = f"fall of {measure}, from {before.mean():.4f}, once its values are permuted within queries"
    return _sorted(labels, drops.mean(axis=0), "permutation", unit, _errors(drops))


def _permuted(candidates: Candidates, column: int, rng: np.random.Generator) -> Candidates:
    """Shuffle one feature's values within each query."""
    turn = np.lexsort((rng.random(len(candidates.features)), candidates.query_of_row))
    features = candidates.features.copy()
    features[:, column] = candidates.features[turn, column]
    return replace(candidates, features=features)


def _errors(by_query: Floats) -> Floats:
    """Return the standard error of each mean over queries; 0 for a single query."""
    count = len(by_query)
    found: Floats = by_query.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.zeros(by_query.shape[1])
    return found


class _Found(NamedTuple):
    """For one query: feature names, their shares under its model and under the global one, and some documents."""

    labels: tuple[str, ...]
    here: Floats
    everyone: Floats
    why: list[list[float]]


def reasons(answer: Answer, test: Judged) -> Reasons:
    """Explain the queries of a test part, or return why scores that are not sums over features cannot be explained."""
    if answer.facts().elsewhere:
        return Reasons(refused="Its scores were computed elsewhere.")
    chosen = _chosen(answer, test)
    found: dict[int, _Found] = {}
    try:
        for query in track(chosen.tolist(), "Explaining rankings", "queries"):
            checkpoint()
            told = _of_query(one_query(answer, query), test.labels[test.candidates.rows(query)])
            if told is not None:
                found[query] = told
    except DataError as error:
        return Reasons(refused=str(error))
    if not found:
        return Reasons(refused="All documents of a query have the same score.")
    here, everyone = (np.array([getattr(each, side) for each in found.values()]) for side in ("here", "everyone"))
    mean = [each.mean(axis=0).round(6).tolist() for each in (here, everyone, np.abs(here - everyone))]
    return Reasons(
        features=[_called(label) for label in next(iter(found.values())).labels],
        queries=len(found),
        here=mean[0],
        everyone=mean[1],
        moved=mean[2],
        why=[found[query].why if query in found else [] for query in range(len(test))],
    )


def _chosen(answer: Answer, test: Judged) -> Ints:
    """Return the queries to explain: all with two documents or more, or as many of them as time allows."""
    several = np.flatnonzero(test.candidates.sizes > 1)
    if is_linear(answer) or len(several) <= MOST_QUERIES:
        return several
    return several[_spread(len(several), MOST_QUERIES)]


def _of_query(answer: Answer, labels: Ints) -> _Found | None:
    ranked = order(answer.scores(), np.array([0, len(labels)]))
    spread, below = ranked[_spread(len(ranked), _SPREAD)], ranked[FIRST:]
    shown = np.concatenate([ranked[:FIRST], below[labels[below] > 0][:FURTHER]])
    rows = np.unique(np.concatenate([spread, shown]))
    found = contributions_in(answer, rows)
    among = np.searchsorted(rows, spread)
    here, everyone = _shares(found.here[among]), _shares(found.everyone[among])
    unit = float(found.here[among].sum(axis=1).std())
    if here is None or everyone is None or not unit:
        return None
    parts = (found.here[np.searchsorted(rows, shown)] - found.here[among].mean(axis=0)) / unit
    return _Found(found.labels, here, everyone, [_told(*each) for each in zip(shown.tolist(), parts, strict=True)])


def _shares(parts: Floats) -> Floats | None:
    """Return the share of each feature in the spread of scores; None if there is no spread."""
    spreads: Floats = parts.std(axis=0)
    total = float(spreads.sum())
    return spreads / total if total > 0 else None


def _told(row: int, parts: Floats) -> list[float]:
    largest = np.argsort(-np.abs(parts), kind="stable")[:_FEATURES].tolist()
    pairs = [(column, round(float(parts[column]), 2)) for column in largest if abs(parts[column]) >= _LEAST]
    return [row, *(number for pair in pairs for number in pair)]


def _called(label: str) -> str:
    return f"feature {label}" if label.isdecimal() else label


def _spread(count: int, most: int) -> Ints:
    """Return at most `most` indices from the first to the last, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))
