"""Input checks that all rankers share.

`predict` and `answer` take Candidates, a Judged set or a table; each `fit` documents its own input. Labels are removed
here and nowhere else. Scores follow rows: the scores of a table come back in the table's order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import numpy as np

from querywise.contracts.answers import ALL, Answer, Facts, Rows, Scorer, Terms, alone, answer_of
from querywise.contracts.estimators import Estimator
from querywise.contracts.forms import Form, Refusal, no_form, no_sum
from querywise.data.judged import Candidates, Judged
from querywise.data.labels import require_same_labels
from querywise.data.rows import ZERO, Missing, reading_for
from querywise.data.training import Training
from querywise.errors import DataError, NotFittedError
from querywise.runtime.arrays import Floats
from querywise.runtime.stored import QueryAdapter

if TYPE_CHECKING:
    from querywise.data.frames import Table

Asked: TypeAlias = "Candidates | Judged | Table"
_Fitted = TypeVar("_Fitted")


class AnyRanker(Estimator):
    """Base class of rankers: parameters by name, a repr, and clear errors for unsuitable input.

    A ranker has `fit` and `_answer`, which takes Candidates with the features it was trained on, and `_predict` if
    scores
    alone can be computed faster. After `fit`, `feature_count_` and `feature_names_` are those of the data; a `fit` that
    needs
    them earlier sets them itself. If the candidates were found by adapted query vectors, `adapter_` adapts those of new
    queries.
    """

    feature_count_: int
    feature_names_: tuple[str, ...] | None
    adapter_: QueryAdapter

    @property
    def missing_policy(self) -> str:
        """How missing values are handled.

        zero: features missing in a file or request are 0, and NaN is an error. mean: NaN becomes the training mean, and
        an extra
        column marks it. native: NaN goes to the side of the split that the trees learned for it.
        """
        return ZERO

    def predict(self, candidates: Asked, /) -> Floats:
        """Return one score per document, in the order of the rows; scores are comparable only within a query."""
        seen = ready(self, candidates)
        scores = self._predict(seen)
        return scores if isinstance(candidates, (Candidates, Judged)) else seen.in_source_order(scores)

    def answer(self, candidates: Asked, /) -> Answer:
        """Return how these queries are scored: the scores, the models behind them, and what explains them.

        The answer's `seen` holds the documents, grouped by query.
        """
        return self._answer(ready(self, candidates))

    def _predict(self, seen: Candidates, /) -> Floats:
        return self._answer(seen).scores()

    def _answer(self, seen: Candidates, /) -> Answer:
        raise NotImplementedError

    def with_adapter(self, adapter: QueryAdapter) -> Self:
        """Store the adapter of the query vectors that found the candidates, so that it also adapts new queries."""
        self.adapter_ = adapter
        return self

    def _remember_features(self, data: Training) -> None:
        self.feature_count_ = data.feature_count
        self.feature_names_ = data.feature_names

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "fit" in vars(cls):
            cls.fit = _explained(cls.fit)  # type: ignore[attr-defined]


class OneModel(AnyRanker):
    """Base class of rankers that are themselves one model for all queries, with `fit` and `_predict`.

    Subclasses override `terms` and `form` if they have feature contributions or an exportable form.
    """

    def _predict(self, seen: Candidates, /) -> Floats:
        raise NotImplementedError

    def _answer(self, seen: Candidates, /) -> Answer:
        return alone(self, seen)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms | Refusal:
        """Return each feature's contribution to some documents' scores; by default, a refusal."""
        return no_sum(type(self))

    def form(self) -> Form:
        """Return the model as an engine can run it; by default, a refusal."""
        return no_form(type(self))


def ready(ranker: AnyRanker, asked: Asked) -> Candidates:
    """Return the candidates, after checking that the ranker is fitted and that they have its features."""
    candidates = asked if isinstance(asked, Candidates) else as_candidates(asked, ranker)
    try:
        count, names = ranker.feature_count_, ranker.feature_names_
    except AttributeError:
        raise NotFittedError(ranker) from None
    if not candidates.surely_has(count, names):
        candidates.require_features(count, names, missing=reading_for(ranker.missing_policy))
    return candidates


def as_candidates(asked: Asked, ranker: Scorer) -> Candidates:
    """Return the documents without their labels, from any input that a fitted ranker accepts.

    From a table, the columns that the ranker was trained on if these have names, else the columns `from_frame` would
    use.
    """
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    if isinstance(asked, Candidates):
        return asked
    if isinstance(asked, Judged):
        return asked.candidates
    from querywise.data.frames import candidates_of, is_table

    if is_table(asked):
        return candidates_of(asked, getattr(ranker, "feature_names_", None), missing_for(ranker))
    todo = "Group its rows by query first: from_arrays(X, qid=…).candidates."
    if hasattr(asked, "collect"):  # a table that has not been computed yet
        todo = "Call its collect() first."
    raise DataError(f"predict takes Candidates, a Judged set or a table; found {_named(asked)}. {todo}")


def policy_of(ranker: _Fitted) -> str:
    """Return how a ranker handles missing values; see AnyRanker.missing_policy."""
    policy: str = getattr(ranker, "missing_policy", ZERO)  # users' own rankers need not inherit from AnyRanker
    return policy


def missing_for(ranker: Scorer) -> Missing:
    """Return how to read missing values for a ranker."""
    return reading_for(policy_of(ranker))


def facts_of(ranker: Scorer) -> Facts:
    """Return the results of fitting a ranker."""
    count, names = getattr(ranker, "feature_count_", 0), getattr(ranker, "feature_names_", None)
    return answer_of(ranker, nobody(count, names)).facts()


def nobody(feature_count: int, feature_names: tuple[str, ...] | None) -> Candidates:
    """Return candidates with no query, to read what a ranker's answers have in common for all queries."""
    return Candidates(np.zeros((0, feature_count)), np.zeros(1, np.int64), (), feature_names=feature_names)


def _explained(fit: Callable[..., _Fitted]) -> Callable[..., _Fitted]:
    """Wrap `fit` so that a table, or X and y, raises an error that says what to pass instead.

    The validation set is checked too, even if the ranker does not use it.
    """

    @wraps(fit)
    def explained(self: Any, *data: Any, **options: Any) -> _Fitted:
        if len(data) != 1 or not (hasattr(data[0], "load") and hasattr(data[0], "pairs")):  # a Training
            raise DataError(_not_taken(type(self).__name__, data))
        valid = options.get("valid")
        if valid is not None and not isinstance(valid, Judged):
            raise DataError(_not_taken(type(self).__name__, (valid,), "fit(…, valid=…)"), arguments=("valid",))
        if valid is not None:
            require_same_labels([data[0], valid])
        fitted = fit(self, *data, **options)
        self._remember_features(data[0])
        return fitted

    return explained


def _not_taken(name: str, data: tuple[Any, ...], call: str = "fit") -> str:
    from querywise.data.frames import is_table

    found, made = ", ".join(map(_named, data)) or "nothing", "from_arrays(X, y, qid=…), or with group=…,"
    if len(data) == 1 and is_table(data[0]):
        made = "from_frame(table)"
    return (
        f"{name}.{call} takes a Judged set; found {found}. {made} makes one. "
        "For scikit-learn's fit(X, y, qid=…) see querywise.sklearn.Ranker."
    )


def _named(thing: Any) -> str:
    """Return a short description of an object."""
    kind, shape = type(thing), getattr(thing, "shape", None)
    module = "" if kind.__module__ in ("builtins", "numpy") else f"{kind.__module__.partition('.')[0]} "
    name = "numpy array" if kind.__name__ == "ndarray" else f"{module}{kind.__name__}"
    return f"a {name}" + (f" of shape {shape}" if isinstance(shape, tuple) else "")
