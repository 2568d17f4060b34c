"""Arrays in `.npy` files that may come from elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from querywise.errors import DataError
from querywise.runtime.files import regular_file


def map_array(path: Path, folder: Path) -> NDArray[np.generic]:
    """The array of a regular `.npy` file that lies in the folder, mapped into memory: it is as large as it says.

    Anything else is refused with a DataError; a file that is not there is a FileNotFoundError.
    """
    with regular_file(path, folder):
        pass  # it is one
    try:
        found = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # noqa: BLE001 - a header written to do harm could raise anything
        raise DataError(f"{path}: not a .npy file of numbers, or cut short ({error}). Write it again.") from None
    if found.offset + found.nbytes != path.stat().st_size:
        raise DataError(f"{path}: longer than its array. Write it again.")
    return np.asarray(found)
