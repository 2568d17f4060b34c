"""The models of a fitted ranker that an engine can run: linear models and forests, each with a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from querywise.contracts.answers import Answer, Model, Stored, nobody
from querywise.contracts.forms import Linear, Refusal, Runnable, Split, name_in_engine, nodes
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates
from querywise.errors import DataError, NotFittedError
from querywise.runtime.arrays import Floats

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True, eq=False)
class NamedModel:
    """One model for the engine.

    number: the number of the model in routing, −1 for the global model. what: which queries it answers, in words. own:
    the fitted ranker's scores of a table of features by this model, which the engine's scores are compared with.
    """

    name: str
    number: int
    what: str
    form: Runnable
    own: Callable[[Floats], Floats]


@dataclass(frozen=True)
class Exported:
    """The names of a ranker's features, and its models, the global one first.

    trained_on_arrival: whether a model is trained for every query when it arrives; then only the global one is here.
    numbers: the features that are a number of the document, whatever the query, as far as the data shows it.
    """

    features: tuple[str, ...]
    models: tuple[NamedModel, ...]
    trained_on_arrival: bool = False
    numbers: frozenset[str] = frozenset()

    @property
    def is_linear(self) -> bool:
        """Whether all models are weighted sums."""
        return all(isinstance(model.form, Linear) for model in self.models)


def exported(ranker: Ranker, name: str) -> Exported:
    """The models of a fitted ranker under names that begin with this one."""
    if not _NAME.fullmatch(name):
        raise DataError(f"{name!r}: engines take names of small letters, digits, - and _ that begin with a letter.")
    answer = answer_to_nobody(ranker)
    if answer.refused is not None:
        raise DataError(answer.refused.reason)
    names = exported_names(ranker)
    if not answer.varies:
        return Exported(names, (_one(answer.everyone, name, "all queries"),))
    everyone = _one(answer.everyone, name_in_engine(name, -1, 0), _EVERYONE)
    if answer.stored is None:
        return Exported(names, (everyone,), trained_on_arrival=True)
    return Exported(names, (everyone, *_several(answer.stored, name)))


def exported_names(ranker: Ranker) -> tuple[str, ...]:
    """The names of a fitted ranker's features in an engine; f1, f2, … where it was trained without names."""
    return ranker.feature_names_ or tuple(f"f{column + 1}" for column in range(ranker.feature_count_))


_EVERYONE = "the global model, for queries without one of their own"


def answer_to_nobody(ranker: Ranker) -> Answer:
    """A fitted ranker's answer to no queries: what it says of itself that does not depend on the query."""
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    return ranker.answer(nobody(ranker.feature_count_, ranker.feature_names_))


def _several(stored: Stored, name: str) -> list[NamedModel]:
    count = len(stored.models)
    return [
        _one(stored.models[number], name_in_engine(name, number, count), stored.whom(number), number)
        for number in np.flatnonzero(stored.usable).tolist()
    ]


def _one(model: Model, name: str, what: str, number: int = -1) -> NamedModel:
    def own(features: Floats) -> Floats:
        return model.predict(Candidates(features, np.array([0, len(features)]), ("sample",)))

    return NamedModel(name, number, what, runnable(model), own)


def runnable(model: Model) -> Runnable:
    """A fitted model as weights or trees; DataError with the reason where an engine cannot run it."""
    form = model.form()
    if isinstance(form, Refusal):
        raise DataError(form.reason)
    return form


def largest_number(form: Runnable) -> float:
    """The largest absolute value of a weight, or of a threshold or leaf."""
    if isinstance(form, Linear):
        return float(np.abs(form.weights).max(initial=0.0))
    numbers = (node.threshold if isinstance(node, Split) else node.value for node in nodes(form))
    return max(map(abs, numbers), default=0.0)
