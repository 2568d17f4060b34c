"""A cache for grids of settings: within `caching()`, `cached` computes what several settings share only once.

Curvature does not depend on k or on the prior, and a view does not depend on the learner: a grid of settings on the
same data fits each of them once. Outside `caching()` nothing is cached.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import is_dataclass
from typing import Any, TypeVar

import numpy as np

from querywise.runtime.parameters import is_fitted, parameters_of

_Value = TypeVar("_Value")
_ROOM = 2_000_000_000  # bytes of cached arrays at most

_memory: ContextVar[_Memory | None] = ContextVar("querywise_sharing", default=None)


class _Memory:
    """Values by key; the least recently used are evicted when they take too much memory."""

    def __init__(self, only: tuple[str, ...]) -> None:
        self.only = only
        self._values: OrderedDict[Any, tuple[Any, Any, int]] = OrderedDict()
        self._used = 0

    def get(self, key: Any, of: Any, make: Callable[[], _Value]) -> _Value:
        if key in self._values:
            self._values.move_to_end(key)
            found: _Value = self._values[key][1]
            return found
        value = make()
        size = _size(value)
        self._values[key] = (of, value, size)  # keep `of` alive, so that its id in the key is not reused
        self._used += size
        while self._used > _ROOM and len(self._values) > 1:
            self._used -= self._values.popitem(last=False)[1][2]
        return value


@contextlib.contextmanager
def caching(*only: str) -> Iterator[None]:
    """Cache what `cached` computes until the block ends; a nested block uses the outer block's cache.

    `only` limits caching to these kinds of values: for cheap ones, comparing settings takes longer than computing.
    """
    if _memory.get() is not None:
        yield
        return
    token = _memory.set(_Memory(only))
    try:
        yield
    finally:
        _memory.reset(token)


@contextlib.contextmanager
def not_caching() -> Iterator[None]:
    """Neither store nor use cached values while the block runs, so that timings measure the work itself."""
    token = _memory.set(None)
    try:
        yield
    finally:
        _memory.reset(token)


def cached(what: str, settings: object, of: object, make: Callable[[], _Value]) -> _Value:  # of any type
    """Return what `make` computes from some data with some settings; a cached value is the same object each time."""
    memory = _memory.get()
    if memory is None or (memory.only and what not in memory.only):
        return make()
    return memory.get((what, signature(settings), id(of)), (of, settings), make)


def signature(thing: object, of: Callable[[Any], Hashable] = id) -> Hashable:  # of any type
    """Return a hashable key for settings: values by value, estimators by class and parameters, data by `of`."""
    if thing is None or type(thing) is str:
        return thing
    if isinstance(thing, (str, int, float, np.generic)):
        return (type(thing).__name__, str(thing))
    if isinstance(thing, dict):
        return tuple((name, signature(value, of)) for name, value in thing.items())
    if isinstance(thing, (tuple, list)):
        return tuple(signature(each, of) for each in thing)
    by_identity = is_dataclass(thing) and type(thing).__eq__ is object.__eq__ and not hasattr(thing, "get_params")
    if by_identity or not type(thing).__module__.startswith("querywise."):
        return of(thing)
    if is_fitted(thing):
        learned = {name: value for name, value in vars(thing).items() if name.endswith("_")}
        return (type(thing).__name__, signature(learned, of))
    return (type(thing).__name__, signature(parameters_of(thing), of))


def _size(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(each.nbytes for each in getattr(value, "__dict__", {}).values() if isinstance(each, np.ndarray))
