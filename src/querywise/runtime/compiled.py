"""The one place that uses numba: a typed decorator for functions that are compiled on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba
from numba.core import event

from querywise.runtime.progress import Ongoing

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def compiled(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Compile `function` when it is first called, keep the machine code on disk, release the GIL while it runs."""
    return cast("Callable[_Parameters, _Result]", numba.njit(cache=True, nogil=True)(function))


def compiled_loosely(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The same, where sums may be added up in any order, several numbers at a time."""
    freedom = {"reassoc", "contract", "nsz"}  # but infinities stay infinities
    return cast("Callable[_Parameters, _Result]", numba.njit(cache=True, nogil=True, fastmath=freedom)(function))


class _Announcer(event.Listener):  # type: ignore[misc]
    """Says in the progress line that something is being compiled, which happens once on a machine."""

    def __init__(self) -> None:
        self._compiling = Ongoing("Compiling, the first time only")

    def on_start(self, _: object) -> None:
        self._compiling.begin()

    def on_end(self, _: object) -> None:
        self._compiling.end()


event.register("numba:compile", _Announcer())
