"""Parameters of estimators: by name, for unfitted copies, and numbers given as shares; the packages that they need."""

from __future__ import annotations

import importlib
import inspect
import math
from functools import cached_property
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from querywise.errors import DataError

_Thing = TypeVar("_Thing")


def parameter_names(kind: type) -> list[str]:
    """Return the names of the constructor's arguments, which are also the names of their attributes."""
    return [name for name in inspect.signature(kind).parameters if name != "self"]


def parameters_of(thing: object) -> dict[str, Any]:  # any class, with arguments of any type
    """Return the arguments that an estimator was constructed with."""
    return {name: getattr(thing, name) for name in parameter_names(type(thing))}


def unfitted(thing: _Thing) -> _Thing:
    """Return an unfitted copy with the same parameters, so that fitting it does not change the original."""
    if isinstance(thing, type):
        raise DataError(f"{thing.__name__} is a class; expected an object of it: {thing.__name__}(…).")
    if not hasattr(thing, "fit"):
        raise DataError(f"{thing!r} cannot be fitted; expected an object with a method fit, such as RankSVM().")
    return type(thing)(**parameters_of(thing))


def is_fitted(thing: object) -> bool:  # any class
    """Return whether an estimator has learned anything: names of learned values end in an underscore."""
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(thing, name)]
    return any(name.endswith("_") and not name.startswith("_") for name in (*getattr(thing, "__dict__", {}), *slots))


def forget_derived(thing: _Thing) -> None:
    """Drop cached properties, which an estimator must do when it is fitted again."""
    for name in [name for name in vars(thing) if _is_derived(thing, name)]:
        del vars(thing)[name]


def _is_derived(thing: object, name: str) -> bool:
    return isinstance(getattr(type(thing), name, None), cached_property)


def learned_bytes(thing: Any, seen: set[int] | None = None) -> int:  # any object inside an estimator
    """Return the size in bytes of an estimator's learned arrays and texts, each counted once.

    >>> from types import SimpleNamespace
    >>> learned_bytes(SimpleNamespace(k=3, weights_=memoryview(bytes(16)), model_="a forest"))
    24
    """
    seen = set() if seen is None else seen
    if thing is None or id(thing) in seen:
        return 0
    seen.add(id(thing))
    if hasattr(thing, "nbytes"):
        return int(thing.nbytes)
    if isinstance(thing, (str, bytes)):
        return len(thing)
    if isinstance(thing, (tuple, list)):
        return sum(learned_bytes(each, seen) for each in thing)
    if hasattr(thing, "indptr"):  # a sparse matrix
        return sum(learned_bytes(each, seen) for each in (thing.data, thing.indices, thing.indptr))
    inside = getattr(thing, "__dict__", {})
    own = [value for name, value in inside.items() if not (name.startswith("_") or _is_derived(thing, name))]
    return sum(learned_bytes(value, seen) for value in own)


def number_of(k: float, available: int, what: str, *, beyond: bool = False) -> int:
    """Return a number of queries, given as a number or a share of those available; `beyond` allows more than available.

    >>> number_of(7, 100, "k"), number_of(0.25, 100, "k"), number_of(1.0, 100, "k")
    (7, 25, 100)
    """
    share = isinstance(k, float) and not isinstance(k, bool) and 0 < k <= 1
    count = max(1, round(k * available)) if share else k
    most = math.inf if beyond else available
    if isinstance(count, bool) or not 1 <= count <= most or count == math.inf or count != int(count):
        whole = "a whole number from 1 up" if beyond else f"1 to {available}, the number of training queries"
        whose = f"the {available} training queries" if beyond else "them"
        raise DataError(f"{what.replace('…', str(k))} must be {whole}, or a share of {whose} above 0.0 and up to 1.0.")
    return int(count)


class Package(NamedTuple):
    """An optional package that a class needs, named in the class attribute `package`.

    Attributes:
        name: the name to import it by.
        install: the command that installs it.
    """

    name: str
    install: str

    def missing(self, user: str) -> str | None:
        """Return a sentence that tells how to install the package that `user` needs, or None if it is installed."""
        return (
            None if find_spec(self.name) else f"{user} needs the package {self.name}. Install it with: {self.install}"
        )

    def load(self, user: str) -> ModuleType:
        """Import and return the package."""
        if problem := self.missing(user):
            raise DataError(problem)
        return importlib.import_module(self.name)
