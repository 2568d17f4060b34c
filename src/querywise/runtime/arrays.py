"""The array types of every signature, the one way to freeze an array, and the one to hand a frozen one to a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Bits = NDArray[np.uint64]
Shorts = NDArray[np.uint16]
Halves = NDArray[np.float16]

Arrays = dict[str, NDArray[np.generic]]  # of any type, by name

_Scalar = TypeVar("_Scalar", bound=np.generic)


# np.einsum of numpy's own arrays: it does not look for other kinds first, which takes as long as the sums of a query.
sums_of_products: Callable[..., Floats] = getattr(np.einsum, "__wrapped__", np.einsum)


def frozen(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """A read-only view of `array`; the array itself stays as it is."""
    view = array.view()
    view.flags.writeable = False
    return view


def for_kernels(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """An array as compiled kernels take it: itself, or of one that is marked read-only a view without the mark.

    Kernels are compiled for writable arrays, and would be compiled again for those in memory that processes share, all
    of which are marked. The array keeps its mark; kernels only read the view.
    """
    if array.flags.writeable:
        return array
    return np.asarray(_Unmarked(array)) if array.size else array.copy()


class _Unmarked:
    """The same memory without the mark; keeps it from being given back."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}
