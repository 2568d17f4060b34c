"""Array types for signatures, and how to make arrays read-only or pass read-only ones to compiled kernels."""

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


# np.einsum without numpy's dispatch to other array types, which takes as long as the sums of one query.
sums_of_products: Callable[..., Floats] = getattr(np.einsum, "__wrapped__", np.einsum)


def frozen(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return a read-only view of `array`; the array itself stays writable."""
    view = array.view()
    view.flags.writeable = False
    return view


def for_kernels(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return an array that compiled kernels accept: the array itself, or a writable view of a read-only one.

    Kernels are compiled for writable arrays, and would be compiled again for the read-only arrays in memory shared
    between processes. The array stays read-only; kernels only read the view.
    """
    if array.flags.writeable:
        return array
    return np.asarray(_Unmarked(array)) if array.size else array.copy()


class _Unmarked:
    """The same memory marked as writable; it keeps the original array alive."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}
