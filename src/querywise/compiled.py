"""The one place that knows numba: a typed decorator for functions that are compiled on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def compiled(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Compile `function` when it is first called, keep the machine code on disk, release the GIL while it runs."""
    return cast("Callable[_Parameters, _Result]", numba.njit(cache=True, nogil=True)(function))


def compiled_loosely(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The same, where sums may be added up in any order, several numbers at a time."""
    freedom = {"reassoc", "contract", "nsz"}  # but infinities stay infinities
    return cast("Callable[_Parameters, _Result]", numba.njit(cache=True, nogil=True, fastmath=freedom)(function))
