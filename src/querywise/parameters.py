"""What an estimator was constructed with: its parameters by name, an unfitted copy of it, numbers given as shares."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from querywise.errors import DataError

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


def number_of(k: float, available: int, what: str) -> int:
    """A number of queries from a number or a share of those available.

    >>> number_of(7, 100, "k"), number_of(0.25, 100, "k"), number_of(1.0, 100, "k")
    (7, 25, 100)
    """
    share = isinstance(k, float) and not isinstance(k, bool) and 0 < k <= 1
    count = max(1, round(k * available)) if share else k
    if isinstance(count, bool) or not 1 <= count <= available or count != int(count):
        raise DataError(
            f"{what.replace('…', str(k))} must be 1 to {available}, the number of training queries, or a share of them "
            "above 0.0 and up to 1.0."
        )
    return int(count)
