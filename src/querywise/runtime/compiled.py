"""The one place that uses numba: a typed decorator for functions that are compiled on first use."""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core import cgutils, event, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from querywise.errors import Hint
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.progress import COMPILING, Ongoing

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def compiled(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Compile `function` when it is first called, keep the machine code on disk, release the GIL while it runs."""
    return cast("Callable[_Parameters, _Result]", _kept(function, nogil=True))


def compiled_loosely(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The same, where sums may be added up in any order, several numbers at a time."""
    freedom = {"reassoc", "contract", "nsz"}  # but infinities stay infinities
    return cast("Callable[_Parameters, _Result]", _kept(function, nogil=True, fastmath=freedom))


def inlined(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The same of a part of other compiled functions, put into each of its callers."""
    return cast("Callable[_Parameters, _Result]", _kept(function, nogil=True, forceinline=True))


def _trailing_zeros(_: Any, word: Any) -> Any:
    def made(_: Any, builder: Any, __: Any, given: Any) -> Any:
        return builder.cttz(given[0], cgutils.false_bit)

    return types.uint64(word), made


def _eight_bytes(_: Any, text: Any, __: Any) -> Any:
    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, given[0])
        first = builder.bitcast(builder.gep(array.data, [given[1]]), context.get_value_type(types.uint64).as_pointer())
        return builder.load(first, align=1)

    return types.uint64(text, types.uint64), made


def _put_eight_bytes(_: Any, text: Any, __: Any, ___: Any) -> Any:
    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, given[0])
        first = builder.bitcast(builder.gep(array.data, [given[1]]), context.get_value_type(types.uint64).as_pointer())
        builder.store(given[2], first, align=1)
        return context.get_dummy_value()

    return types.none(text, types.uint64, types.uint64), made


# For compiled functions alone. How many of the lowest bits of a number are 0; 64 of 0.
trailing_zeros = cast("Callable[[np.uint64], np.uint64]", intrinsic(_trailing_zeros))
# The bytes from a place on as one number, the first in its lowest byte; whoever calls sees to it that there are eight.
eight_bytes = cast("Callable[[NDArray[np.uint8], np.uint64], np.uint64]", intrinsic(_eight_bytes))
# Such a number written as bytes from a place on; there must be room for eight.
put_eight_bytes = cast("Callable[[NDArray[np.uint8], np.uint64, np.uint64], None]", intrinsic(_put_eight_bytes))


def kept_in(function: Callable[_Parameters, _Result]) -> str | None:
    """The folder that the machine code of a compiled function is kept in; None where there is no place for it."""
    folder: str | None = cast("Any", function).stats.cache_path
    return folder


def _kept(function: Any, **how: Any) -> Any:
    """The function as numba compiles it, its machine code kept on disk where there is a place for it."""
    how["no_cfunc_wrapper"] = True  # nobody calls them from C, and its wrappers take a while to compile
    if _no_place:
        return numba.njit(**how)(function)
    try:
        return numba.njit(cache=True, **how)(function)
    except RuntimeError:  # neither the package's folder nor the home folder can be written to
        tried, folder = numba.config.CACHE_DIR, _private_folder()
        folder = None if folder == tried else folder
        place = "nowhere" if folder is None else f"in {folder} until it is removed"
        warnings.warn(
            "Neither querywise's own folder nor the home folder can be written to, so compiled code is kept "
            f"{place}. Set NUMBA_CACHE_DIR to a folder that can, and starting takes seconds less.",
            Hint,
            stacklevel=2,
        )
        if folder is None:
            _no_place.append(True)
        else:
            numba.config.CACHE_DIR = folder  # for all that follow
        return _kept(function, **how)


def _private_folder() -> str | None:
    """A folder for temporary files that belongs to this user alone; None where there cannot be one."""
    folder = Path(tempfile.gettempdir(), f"querywise-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return str(folder) if own and os.access(folder, os.W_OK) else None


_no_place: list[bool] = []  # not empty once nothing can be kept


class _Announcer(event.Listener):  # type: ignore[misc]
    """Says in the progress line that something is being compiled, which happens once on a machine."""

    def on_start(self, _: object) -> None:
        compiling.begin()

    def on_end(self, _: object) -> None:
        compiling.end()


compiling = Ongoing(COMPILING)  # what of it this process does
event.register("numba:compile", _Announcer())


@compiled
def sort_by(scores: Floats, order: Ints) -> None:
    """Put `order` into ascending order of scores by merging longer and longer runs; equal ones stay in their order."""
    n, width = len(order), 1
    source, target = order, np.empty(n, np.int64)
    while width < n:
        for begin in range(0, n, 2 * width):
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            i, j = begin, middle
            for place in range(begin, end):
                if i < middle and (j >= end or scores[source[i]] <= scores[source[j]]):
                    target[place] = source[i]
                    i += 1
                else:
                    target[place] = source[j]
                    j += 1
        source, target = target, source
        width *= 2
    for i in range(n):
        order[i] = source[i]


@compiled
def ascending(scores: Floats) -> Ints:
    """The numbers of the scores in ascending order; equal ones in their own order."""
    order = np.empty(len(scores), np.int64)
    for i in range(len(scores)):
        order[i] = i
    sort_by(scores, order)
    return order


@compiled
def smallest(values: Floats, k: int) -> float:
    """The k-th smallest of some values.

    They are divided around one of them until it is the one. Whether a value is smaller moves a count and not the next
    instruction: nobody can tell beforehand.
    """
    own, low, high = values.copy(), 0, len(values) - 1
    while low < high:
        first, middle, last = own[low], own[(low + high) // 2], own[high]
        pivot = max(min(first, middle), min(max(first, middle), last))
        below = _moved_down(own, low, high, pivot, False)
        if k - 1 < below:
            high = below - 1
            continue
        equal = _moved_down(own, below, high, pivot, True)
        if k - 1 < equal or equal == low:  # not a number
            return float(pivot)
        low = equal
    return float(own[k - 1])


@compiled
def _moved_down(own: Floats, low: int, high: int, pivot: float, equal: bool) -> int:
    """Move what is below a pivot, or equal to it, to the beginning of a part, and say where that ends."""
    end = low
    for i in range(low, high + 1):
        value = own[i]
        own[i] = own[end]
        own[end] = value
        end += (value < pivot) | (equal & (value == pivot))
    return end
