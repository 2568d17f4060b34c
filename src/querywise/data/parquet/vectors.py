"""Vectors in a Parquet file: a column of ids and a column of lists of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from querywise.data.id_columns import values_of
from querywise.data.parquet.arrow import Arrow, arrow, checked, open_parquet, require_short
from querywise.data.parquet.budget import require_room_to_read
from querywise.errors import DataError

_ID, _VECTOR = "_id", "vector"
_KINDS = {"halffloat": np.float16, "float": np.float32, "double": np.float64}


def read_parquet_vectors(path: Path) -> tuple[list[str], NDArray[np.float16 | np.float32 | np.float64]]:
    """The ids and the vectors of a file; every list must be as long as the first."""
    pa, _ = arrow()
    file = open_parquet(path, coded=True)
    lacking = next((name for name in (_ID, _VECTOR) if file.schema_arrow.names.count(name) != 1), None)
    if lacking is not None:
        found = "more than one column" if lacking in file.schema_arrow.names else "no column"
        raise DataError(
            f"{path}: there is {found} {lacking!r}; expected {_ID} and {_VECTOR}, found "
            f"{', '.join(file.schema_arrow.names[:8])}."
        )
    require_room_to_read(path, file, [_ID, _VECTOR], [_ID], "A .npy file is mapped into memory instead.")
    try:
        table = checked(file.read(columns=[_ID, _VECTOR], use_threads=False))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: this Parquet file is damaged ({error}).") from None
    require_short(path, table.column(_ID), _ID)
    ids = values_of(table.column(_ID))
    wrong = next((row for row, each in enumerate(ids) if type(each) not in (str, int) or not str(each).strip()), None)
    if wrong is not None:
        raise DataError(f"{path}: row {wrong + 1} has the {_ID} {ids[wrong]!r:.60}; expected a text.")
    return [str(each) for each in ids], _table(path, table.column(_VECTOR))


def _table(path: Path, column: Arrow) -> NDArray[np.float16 | np.float32 | np.float64]:
    """A column of lists of numbers as a table."""
    pa, _ = arrow()
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    fixed = pa.types.is_fixed_size_list(column.type)
    kind = _KINDS.get(str(column.type.value_type)) if is_list or fixed else None
    if kind is None:
        raise DataError(f"{path}: the column {_VECTOR} is of type {column.type}; expected lists of float or double.")
    parts, width, first = [], None, 0
    for chunk in column.chunks:
        _refuse_nulls(path, chunk, first)
        if len(chunk):
            lengths = np.diff(chunk.offsets.to_numpy()) if is_list else np.full(len(chunk), column.type.list_size)
            width = int(lengths[0]) if width is None else width
            odd = np.flatnonzero(lengths != width)
            if len(odd):
                row = int(odd[0])
                raise DataError(f"{path}: row {first + row + 1} has {lengths[row]} numbers; the first has {width}.")
            parts.append(np.asarray(chunk.flatten().to_numpy(zero_copy_only=False), kind).reshape(len(chunk), width))
        first += len(chunk)
    return np.concatenate(parts) if parts else np.zeros((0, 1), kind)


def _refuse_nulls(path: Path, chunk: Arrow, first: int) -> None:
    if chunk.null_count:
        row = first + int(np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{path}: row {row + 1} has no {_VECTOR}; give every row one, or leave the row out.")
