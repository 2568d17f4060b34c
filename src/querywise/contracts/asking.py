"""What a ranker may be given: `predict` takes Candidates, a Judged set or a table; `fit` says what it takes.

Labels are taken off in one place, here. A score belongs to a row: those of a table come back in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from querywise.contracts.estimators import Estimator
from querywise.data.judged import Candidates, Judged
from querywise.data.labels import require_same_labels
from querywise.data.rows import ZERO, reading_for
from querywise.data.training import Training
from querywise.errors import DataError, NotFittedError
from querywise.runtime.arrays import Floats
from querywise.runtime.stored import MovesQueries

if TYPE_CHECKING:
    from querywise.data.frames import Table

Asked: TypeAlias = "Candidates | Judged | Table"
_Ranker = TypeVar("_Ranker")
_Answer = TypeVar("_Answer")


class AnyRanker(Estimator):
    """What all rankers have in common: parameters by name, a repr, and a `fit` that explains what it is given.

    After `fit`, `feature_count_` and `feature_names_` are those of the data; a `fit` that needs them sets them. Where
    the candidates were found by adapted query vectors, `adapter_` adapts those of new queries.
    """

    feature_count_: int
    feature_names_: tuple[str, ...] | None
    adapter_: MovesQueries

    def _remember_features(self, data: Training) -> None:
        self.feature_count_ = data.feature_count
        self.feature_names_ = data.feature_names

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "fit" in vars(cls):
            cls.fit = _explained(cls.fit)  # type: ignore[attr-defined]


def predicts(method: Callable[[_Ranker, Candidates], Floats]) -> Callable[[_Ranker, Asked], Floats]:
    """A method `predict` of Candidates, for whatever can be asked: one score per row, in the order of the rows."""

    @wraps(method)
    def predict(self: _Ranker, candidates: Asked, /) -> Floats:
        if isinstance(candidates, Candidates):
            return method(self, candidates)
        documents = as_candidates(candidates, self)
        scores = method(self, documents)
        return scores if isinstance(candidates, Judged) else documents.in_source_order(scores)

    return predict


def answers(method: Callable[[_Ranker, Candidates], _Answer]) -> Callable[[_Ranker, Asked], _Answer]:
    """A method `answer` of Candidates, for whatever can be asked; its `seen` are the documents, grouped by query."""

    @wraps(method)
    def answer(self: _Ranker, candidates: Asked, /) -> _Answer:
        return method(self, candidates if isinstance(candidates, Candidates) else as_candidates(candidates, self))

    return answer


def as_candidates(asked: Asked, ranker: _Ranker) -> Candidates:
    """The documents without their labels, of whatever a fitted ranker is asked about.

    Of a table: the columns that the ranker was trained on where these have names, else as `from_frame` finds them.
    """
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    if isinstance(asked, Candidates):
        return asked
    if isinstance(asked, Judged):
        return asked.candidates
    from querywise.data.frames import candidates_of, is_table

    if is_table(asked):
        missing = reading_for(getattr(ranker, "missing_policy", ZERO))
        return candidates_of(asked, getattr(ranker, "feature_names_", None), missing)
    todo = "Group its rows by query first: from_arrays(X, qid=…).candidates."
    if hasattr(asked, "collect"):  # a table that has not been computed yet
        todo = "Call its collect() first."
    raise DataError(f"predict takes Candidates, a Judged set or a table; found {_named(asked)}. {todo}")


def _explained(fit: Callable[..., _Answer]) -> Callable[..., _Answer]:
    """A method `fit` that says what it takes where it is called as others are called: with a table, or with X and y.

    Its validation part is looked at too, whether it is used or not.
    """

    @wraps(fit)
    def explained(self: Any, *data: Any, **options: Any) -> _Answer:
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
    """What something is, in a few words."""
    kind, shape = type(thing), getattr(thing, "shape", None)
    module = "" if kind.__module__ in ("builtins", "numpy") else f"{kind.__module__.partition('.')[0]} "
    name = "numpy array" if kind.__name__ == "ndarray" else f"{module}{kind.__name__}"
    return f"a {name}" + (f" of shape {shape}" if isinstance(shape, tuple) else "")
