"""Arrays of a model mapped from a private copy of its file, so that processes that serve one model share its pages.

The model folder itself is never mapped: a file that is cut short there would kill every process that reads on.
"""

from __future__ import annotations

import json
import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from querywise.errors import DataError
from querywise.runtime.arrays import Arrays
from querywise.runtime.files import atomic_file
from querywise.runtime.locks import locked

_SUFFIX = ".arrays"


def shared(arrays: Arrays, content: bytes, digest: str, place: Path) -> Arrays:
    """The same arrays, mapped from a copy of their file in `place`; as they are where no copy can be made.

    Pages are shared until they are written to, as after a fork: no process sees what another writes.

    content: of the file, which has been checked. digest: of the content, names the copy; older copies are removed.
    place: a folder that nobody but this service writes to.
    """
    path = place / f"{digest}{_SUFFIX}"
    try:
        with locked(place / ".lock"):
            if not path.exists():
                with atomic_file(path) as beside:
                    beside.write_bytes(content)
                for each in place.glob(f"*{_SUFFIX}"):
                    if each != path:
                        each.unlink()  # who has mapped it keeps it
        with open(path, "rb") as opened:
            mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    except (DataError, OSError):
        return arrays
    first = 8 + int.from_bytes(content[:8], "little")
    begins = {name: first + entry["data_offsets"][0] for name, entry in _header(content[8:first]).items()}
    return {
        name: np.ndarray(each.shape, each.dtype, mapped, begins[name]) if _fits(each, begins[name]) else each
        for name, each in arrays.items()
    }


def _header(content: bytes) -> dict[str, dict[str, list[int]]]:
    found = json.loads(content)
    return {name: entry for name, entry in found.items() if name != "__metadata__"}


def _fits(array: NDArray[np.generic], begin: int) -> bool:
    """Whether an array can be used where it begins in the file: kernels take aligned arrays."""
    return array.size > 0 and begin % array.dtype.itemsize == 0
