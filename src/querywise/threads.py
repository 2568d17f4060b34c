"""Work cut into pieces, a thread per core, and BLAS kept to one thread meanwhile.

Threads of BLAS below threads of ours would wait for each other in busy loops: on a machine that has anything else to
do, that costs many times what it saves.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_threads(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """The results in the order of the items. The work must release the GIL to gain anything."""
    cores = os.cpu_count() or 1
    if len(items) < 2 or cores < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(cores) as pool:
        return list(pool.map(work, items))


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread per caller while the block runs."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _controller() -> ThreadpoolController:
    import numpy  # noqa: F401  the libraries to be kept in check must be there to be found
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
