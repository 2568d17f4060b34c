"""Group sizes, as LightGBM has them: how many consecutive rows each query has."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.compressed import lines_of, read_packed_text
from querywise.data.rows import refuse_masked
from querywise.errors import DataError
from querywise.runtime.arrays import Ints


def ids_from_groups(group: ArrayLike | os.PathLike[str], rows: int) -> list[str]:
    """A query id for every row: "1" for the rows of the first group, "2" for those of the second, and so on.

    group: the sizes, or the file that has them, one a line.

    >>> ids_from_groups([2, 1], 3)
    ['1', '1', '2']
    """
    sizes = read_groups(group) if isinstance(group, (str, os.PathLike)) else _sizes(group)
    if sizes.sum() != rows:
        raise DataError(
            f"X has {rows} rows but the {len(sizes)} group sizes add up to {sizes.sum()}. group= is how many rows each "
            "query has, in the order of the rows; an id for every row is qid=."
        )
    return [str(number) for number in np.repeat(np.arange(1, len(sizes) + 1), sizes).tolist()]


def read_groups(path: str | os.PathLike[str]) -> Ints:
    """The group sizes of a file, one a line, as in LightGBM's `train.query` and `train.group` files."""
    sizes = []
    for number, line in enumerate(lines_of(read_packed_text(Path(path))), start=1):
        word = line.strip()
        if not word:
            continue
        if not re.fullmatch(r"[0-9]{1,15}", word) or not int(word):
            raise DataError(f"{path}:{number}: expected a group size, a whole number from 1 up; found {line[:80]!r}.")
        sizes.append(int(word))
    return np.array(sizes, np.int64)


def _sizes(group: ArrayLike) -> Ints:
    refuse_masked(group, "group")
    given = np.asarray(group)
    if given.ndim != 1 or given.dtype.kind not in "iuf":
        raise DataError(f"group must be one whole number per query; found {given.dtype} of shape {given.shape}.")
    with np.errstate(invalid="ignore"):
        sizes = given.astype(np.int64)
    wrong = np.flatnonzero((sizes != given) | (sizes < 1))
    if len(wrong):
        raise DataError(
            f"Group {wrong[0] + 1} has size {given[wrong[0]]}; a group size is a whole number from 1 up. Leave out "
            "queries without rows."
        )
    return sizes
