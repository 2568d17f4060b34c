"""What an estimator was constructed with: its parameters by name, and an unfitted copy of it."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

_Thing = TypeVar("_Thing")


def parameter_names(kind: type) -> list[str]:
    """The names of the constructor's arguments, which are the names it stores them under."""
    return [name for name in inspect.signature(kind).parameters if name != "self"]


def parameters_of(thing: object) -> dict[str, Any]:
    """The arguments an estimator was constructed with."""
    return {name: getattr(thing, name) for name in parameter_names(type(thing))}


def unfitted(thing: _Thing) -> _Thing:
    """A new one with the same parameters that has learned nothing, so that fitting it changes nobody else's."""
    return type(thing)(**parameters_of(thing))


def is_fitted(thing: object) -> bool:
    """Whether it has learned anything: learned names end in an underscore."""
    return any(name.endswith("_") and not name.startswith("_") for name in vars(thing))
