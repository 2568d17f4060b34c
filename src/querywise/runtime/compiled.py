"""The only module that uses numba: typed decorators for functions that are compiled on first use."""

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
from numba.core.types.misc import unliteral
from numba.extending import intrinsic
from numpy.typing import NDArray

from querywise.errors import Hint
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.progress import COMPILING, Ongoing

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def compiled(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Compile `function` on its first call, cache the machine code on disk, and release the GIL while it runs."""
    return cast("Callable[_Parameters, _Result]", _kept(function, nogil=True))


def compiled_loosely(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Compile like `compiled`, but let sums be reordered, so that several numbers are added at a time."""
    freedom = {"reassoc", "contract", "nsz"}  # infinities stay infinities
    return cast("Callable[_Parameters, _Result]", _kept(function, nogil=True, fastmath=freedom))


def inlined(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Compile a helper of other compiled functions, which is inlined into each of its callers."""
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


# For use in compiled functions only. The number of trailing zero bits; 64 for 0.
trailing_zeros = cast("Callable[[np.uint64], np.uint64]", intrinsic(_trailing_zeros))
# Eight bytes from an offset as one number, the first byte lowest; the caller ensures that there are eight.
eight_bytes = cast("Callable[[NDArray[np.uint8], np.uint64], np.uint64]", intrinsic(_eight_bytes))
# Write such a number as eight bytes at an offset; there must be room for them.
put_eight_bytes = cast("Callable[[NDArray[np.uint8], np.uint64, np.uint64], None]", intrinsic(_put_eight_bytes))


def kept_in(function: Callable[_Parameters, _Result]) -> str | None:
    """Return the folder that caches a compiled function's machine code, or None if it cannot be cached."""
    folder: str | None = cast("Any", function).stats.cache_path
    return folder


def _kept(function: Any, **how: Any) -> Any:
    """Compile a function with numba, caching its machine code on disk if possible."""
    how["no_cfunc_wrapper"] = True  # they are never called from C, and the wrappers are slow to compile
    if _no_place:
        return _for_any_constant(numba.njit(**how)(function))
    try:
        return _for_any_constant(numba.njit(cache=True, **how)(function))
    except RuntimeError:  # neither the package's folder nor the home folder is writable
        tried, folder = numba.config.CACHE_DIR, _private_folder()
        folder = None if folder == tried else folder
        place = "nowhere" if folder is None else f"in {folder} until it is removed"
        warnings.warn(
            "Neither querywise's own folder nor the home folder can be written to, so compiled code is kept "
            f"{place}. Set NUMBA_CACHE_DIR to a writable folder, and starting takes seconds less.",
            Hint,
            stacklevel=2,
        )
        if folder is None:
            _no_place.append(True)
        else:
            numba.config.CACHE_DIR = folder  # for all functions compiled later
        return _kept(function, **how)


def _for_any_constant(made: Any) -> Any:
    """Let calls with constants use the code for any number: numba would compile it anew for every constant."""
    of_types = made.get_call_template

    def get_call_template(given: Any, named: Any) -> Any:
        return of_types(tuple(map(unliteral, given)), {name: unliteral(each) for name, each in named.items()})

    made.get_call_template = get_call_template
    return made


def _private_folder() -> str | None:
    """Return a temporary folder that only this user can access, or None if there cannot be one."""
    folder = Path(tempfile.gettempdir(), f"querywise-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return str(folder) if own and os.access(folder, os.W_OK) else None


_no_place: list[bool] = []  # not empty once caching has failed


class _Announcer(event.Listener):  # type: ignore[misc]
    """Shows in the progress display that code is being compiled, which happens once per machine."""

    def on_start(self, _: object) -> None:
        compiling.begin()

    def on_end(self, _: object) -> None:
        compiling.end()


compiling = Ongoing(COMPILING)  # what of it this process does
event.register("numba:compile", _Announcer())


@compiled
def sort_by(scores: Floats, order: Ints) -> None:
    """Sort `order` by ascending score with a bottom-up merge sort; ties keep their order."""
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
    """Return the indices of the scores in ascending order; ties keep their order."""
    order = np.empty(len(scores), np.int64)
    for i in range(len(scores)):
        order[i] = i
    sort_by(scores, order)
    return order


@compiled
def smallest(values: Floats, k: int) -> float:
    """Return the k-th smallest value.

    Quickselect: the values are partitioned around a pivot until the k-th remains. Partitioning is branch-free, since
    the processor cannot predict whether a value is smaller than the pivot.
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
        if k - 1 < equal or equal == low:  # or a NaN
            return float(pivot)
        low = equal
    return float(own[k - 1])


@compiled
def _moved_down(own: Floats, low: int, high: int, pivot: float, equal: bool) -> int:
    """Move values below (or equal to) a pivot to the beginning of a range; return where they end."""
    end = low
    for i in range(low, high + 1):
        value = own[i]
        own[i] = own[end]
        own[end] = value
        end += (value < pivot) | (equal & (value == pivot))
    return end
