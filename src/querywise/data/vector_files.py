"""Tables of vectors in `.npy` and `.safetensors` files, mapped into memory, and their ids."""

from __future__ import annotations

import json
from pathlib import Path
from tokenize import TokenError
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from querywise.errors import DataError
from querywise.runtime.files import parse_json, read_text
from querywise.runtime.values import Json, JsonObject

_Kind: TypeAlias = np.dtype[np.float16] | np.dtype[np.float32] | np.dtype[np.float64]
_KINDS: dict[str, _Kind] = {"F16": np.dtype(np.float16), "F32": np.dtype(np.float32), "F64": np.dtype(np.float64)}
_LONGEST_HEADER = 100_000_000  # bytes, as safetensors itself allows
_Table = NDArray[np.float16 | np.float32 | np.float64]


def read_npy(path: Path) -> tuple[None, _Table]:
    """The table of a `.npy` file; its ids are in a file beside it."""
    try:
        return None, np.asarray(np.lib.format.open_memmap(path, mode="r"))
    except (OSError, ValueError, EOFError, SyntaxError, TokenError, OverflowError) as error:
        if not path.stat().st_size:
            raise DataError(f"{path}: the file is empty. Write it again, with numpy.save.") from None
        raise DataError(f"{path}: not a .npy file of numbers, or cut short ({error}). Write it again.") from None


def read_safetensors(path: Path) -> tuple[list[str] | None, _Table]:
    """The one table of a `.safetensors` file, and the ids where its metadata has them."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(size - 8, _LONGEST_HEADER):
            raise DataError(f"{path}: not a safetensors file, or cut short. Write it again.")
        header = parse_json(file.read(length), path)
    if not isinstance(header, dict):
        raise DataError(f"{path}: not a safetensors file: its header is no JSON object. Write it again.")
    tables = {name: entry for name, entry in header.items() if name != "__metadata__"}
    if len(tables) != 1:
        raise DataError(f"{path}: {len(tables)} tables ({', '.join(sorted(tables)[:5])}); expected one, the vectors.")
    entry = next(iter(tables.values()))
    described = _described(entry if isinstance(entry, dict) else {}, size - 8 - length)
    if described is None:
        raise DataError(
            f"{path}: {json.dumps(entry)[:120]} describes no table of F16, F32 or F64 numbers in this file. Write it "
            "again."
        )
    kind, shape, first = described
    metadata = header.get("__metadata__")
    ids = metadata.get("ids") if isinstance(metadata, dict) else None
    values = np.memmap(path, kind, "r", 8 + length + first, shape) if shape[0] and shape[1] else np.zeros(shape, kind)
    return (_ids(parse_json(ids, path), path) if isinstance(ids, str) else None), np.asarray(values)


def read_ids(path: Path) -> list[str]:
    """A list of ids in a JSON file."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file. Expected the ids of the vectors, a list in their order.")
    return _ids(parse_json(read_text(path), path), path)


def _described(entry: JsonObject, size: int) -> tuple[_Kind, tuple[int, int], int] | None:
    """Type, shape and first byte of a table that lies in a file of so many bytes; None where it does not."""
    kind, shape, ends = _KINDS.get(str(entry.get("dtype"))), _pair(entry.get("shape")), _pair(entry.get("data_offsets"))
    if kind is None or shape is None or ends is None:
        return None
    inside = ends[1] - ends[0] == shape[0] * shape[1] * kind.itemsize and ends[1] <= size
    return (kind, shape, ends[0]) if inside else None


def _pair(value: Json) -> tuple[int, int] | None:
    """Two whole numbers from 0 up; None if it is anything else."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    first, second = value
    both = type(first) is int and type(second) is int and min(first, second) >= 0
    return (first, second) if both else None


def _ids(value: Json, path: Path) -> list[str]:
    if not isinstance(value, list):
        raise DataError(f'{path}: expected the ids as a list, like ["D1", "D2"]; found {type(value).__name__}.')
    for place, each in enumerate(value):
        if type(each) not in (str, int) or not str(each).strip():
            raise DataError(f"{path}: id {place + 1} is {each!r:.60}; expected a text that is not empty.")
    return [str(each) for each in value]
