"""The files of a model folder as they are read: regular files, whose sizes and types are known before their content."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

from querywise.errors import DataError, ModelFileError
from querywise.runtime.files import read_regular_file, regular_file
from querywise.runtime.values import Json, JsonObject

_LONGEST_MANIFEST = 256_000_000  # bytes
_MOST_OBJECTS = (
    1_000_000  # of a manifest, lists counted: Python takes a second for three million, and nothing else runs
)
_LONGEST_HEADER = 100_000_000  # bytes, what safetensors allows
_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8}
_BYTES |= {"F64": 8}
AGAIN = "Copy the folder again, or fit the model anew."


def read_json(path: Path, folder: Path) -> Json:
    """What a file of JSON holds; an object that has a name twice is refused."""
    try:
        content = read_regular_file(path, folder, _LONGEST_MANIFEST)
        if content.count(b"[") + content.count(b"{") > _MOST_OBJECTS:
            raise ValueError(f"more than {_MOST_OBJECTS} objects and lists")
        found: Json = json.loads(content, object_pairs_hook=_object)
    except DataError as error:
        raise ModelFileError(f"{error} {AGAIN}") from None
    except (ValueError, RecursionError, OSError, MemoryError) as error:
        raise ModelFileError(f"{path}: damaged: {error}. {AGAIN}") from None
    return found


def read_array_file(folder: Path, file: str) -> bytes:
    """The content of the arrays file that a manifest names; a FileNotFoundError where there is none."""
    path = folder / file
    if not _is_name(file):
        raise ModelFileError(f"{folder}: the manifest names a file outside the model folder.")
    try:
        with regular_file(path, folder) as opened:
            return _checked_content(path, opened)
    except FileNotFoundError:
        raise
    except DataError as error:
        raise ModelFileError(f"{error} {AGAIN}") from None
    except (OSError, MemoryError) as error:
        raise ModelFileError(f"{path}: cannot be read ({error or 'there is not enough memory'}).") from None


def _is_name(file: str) -> bool:
    """Whether it is the name of a file, and no way to another folder."""
    return file not in ("", ".", "..") and Path(file).name == file and file.isprintable()


def _checked_content(path: Path, file: BinaryIO) -> bytes:
    """The content of a file of arrays, whose header says how long it is."""
    size = os.fstat(file.fileno()).st_size
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf
    if size > most:
        raise ModelFileError(f"{path}: {size} bytes, more than the memory of this machine.")
    begin = file.read(8)
    length = int.from_bytes(begin, "little")
    if len(begin) < 8 or length > min(size - 8, _LONGEST_HEADER):
        raise ModelFileError(f"{path}: damaged or cut short (its header is longer than the file). {AGAIN}")
    header = file.read(length)
    expected = 8 + length + _length_of_arrays(path, header)
    if expected != size:
        raise ModelFileError(f"{path}: damaged or cut short ({size} bytes; expected {expected}). {AGAIN}")
    return begin + header + file.read(size - 8 - length)


def _length_of_arrays(path: Path, header: bytes) -> int:
    """How many bytes the arrays of a header take together; types that no model has are refused."""
    total = 0
    try:
        for name, entry in json.loads(header, object_pairs_hook=_object).items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in _BYTES:
                raise ModelFileError(
                    f"{path}: the array {name[:60]!r} is of type {entry['dtype']!r}, which no model has."
                )
            total += _BYTES[entry["dtype"]] * math.prod(map(_count, entry["shape"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{path}: damaged or cut short (its header cannot be read: {error}). {AGAIN}") from None
    return total


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r:.60} is not a size")
    return value


def _object(pairs: list[tuple[str, Json]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice in one object")
    return found
