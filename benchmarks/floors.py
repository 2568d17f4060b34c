"""The least time that some work can take on this machine: what must be read from memory, what must be multiplied."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.timing import best_seconds

_READ = 32_000_000  # numbers of eight bytes, far more than any cache holds
_SIDE = 1_500  # of the square matrices that are multiplied


def least_seconds(*, read: float = 0.0, multiplied: float = 0.0) -> float:
    """The longer of the two, since a processor reads ahead while it computes.

    read: bytes that must come from memory. multiplied: multiplications, each with an addition, in double precision.
    """
    return max(read / bytes_per_second(), multiplied / multiplications_per_second())


@functools.cache
def bytes_per_second() -> float:
    """How fast all cores together read memory."""
    cores = os.cpu_count() or 1
    parts = np.array_split(np.ones(_READ), cores)
    with ThreadPoolExecutor(cores) as pool:
        took = best_seconds(lambda: list(pool.map(np.max, parts)), times=5)
    return 8 * _READ / took


@functools.cache
def multiplications_per_second() -> float:
    """How fast all cores together multiply two matrices in double precision."""
    matrix = np.random.default_rng(0).normal(size=(_SIDE, _SIDE))
    return _SIDE**3 / best_seconds(lambda: matrix @ matrix, times=5)
