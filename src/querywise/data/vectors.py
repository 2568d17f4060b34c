"""Vectors of documents and queries from other programs: a table of numbers and the id of every row.

A folder holds `documents` and `queries`, and `titles` if documents also have vectors of their titles. Each is a
`.npy` file with the ids beside it (`documents.json`, a list, in order), a `.safetensors` file with one table and ids
beside it or in its metadata (`ids`), or a `.parquet` file with the columns `_id` and `vector`. Numbers are float16,
float32 or float64. The first two kinds are memory-mapped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from querywise.data.parquet.tables import read_parquet_vectors
from querywise.data.query_table import odd_lengths, odd_vector
from querywise.display.words import counted, plural
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints, frozen
from querywise.runtime.files import PathLike, parse_json, read_text
from querywise.runtime.threads import in_threads
from querywise.runtime.values import Json, JsonObject

Numbers: TypeAlias = NDArray[np.float16 | np.float32 | np.float64]
ROWS = 16_384  # rows at a time

_Kind: TypeAlias = np.dtype[np.float16] | np.dtype[np.float32] | np.dtype[np.float64]
_KINDS: dict[str, _Kind] = {"F16": np.dtype(np.float16), "F32": np.dtype(np.float32), "F64": np.dtype(np.float64)}
_LONGEST_HEADER = 100_000_000  # bytes; the limit of safetensors
_Table = NDArray[np.float16 | np.float32 | np.float64]


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of some documents or queries.

    Attributes:
        lengths: the length of every vector; a vector of length 0 is allowed and similar to nothing.
        where: the table's name in messages.
        what: the kind of its rows, `document` or `query`.
    """

    ids: tuple[str, ...]
    values: Numbers
    lengths: Floats
    where: str = "vectors"
    what: str = "document"

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Vectors({counted(len(self), self.what)}, vectors of {counted(self.dimension, 'number')})"

    @property
    def dimension(self) -> int:
        """The number of dimensions."""
        return int(self.values.shape[1])

    @property
    def zeros(self) -> int:
        """The number of zero vectors, which are similar to nothing."""
        return int(np.sum(self.lengths == 0))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {each: row for row, each in enumerate(self.ids)}

    def rows_of(self, ids: Sequence[str], source: str) -> Ints:
        """Return the row of every id. Raise DataError for an id without one; `source` names the origin of the ids."""
        rows = [self._places.get(each, -1) for each in ids]
        missing = [each for each, row in zip(ids, rows, strict=True) if row < 0]
        if missing:
            raise DataError(
                f"{self.where}: {len(missing)} of {len(ids)} {plural(self.what)} in {source} have no vector here; the "
                f"first is {missing[0]!r}. Every {self.what} needs one: create the vectors of this collection again."
            )
        return np.array(rows, dtype=np.int64)

    def refuse_unknown(self, known: Sequence[str], source: str) -> None:
        """Raise DataError for vectors of ids that do not occur in the data."""
        unknown = sorted(set(self.ids).difference(known), key=self._places.__getitem__)
        if unknown:
            raise DataError(
                f"{self.where}: row {self._places[unknown[0]] + 1} is the vector of {self.what} {unknown[0]!r}, which "
                f"is not in {source}; there are {len(unknown)} such rows. Remove them, or leave them out with "
                "skip_unknown=True.",
                arguments=("skip_unknown",),
            )

    def of(self, ids: Sequence[str], source: str) -> Floats:
        """Return the vectors of some ids, in that order, in double precision."""
        return np.asarray(self.values[self.rows_of(ids, source)], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class CollectionVectors:
    """The vectors of a collection's documents, of its queries, and optionally of the documents' titles."""

    documents: Vectors
    queries: Vectors | None = None
    titles: Vectors | None = None

    def __post_init__(self) -> None:
        for other in (self.queries, self.titles):
            if other is not None and other.dimension != self.documents.dimension:
                raise DataError(
                    f"{other.where}: the vectors have {other.dimension} numbers; those of {self.documents.where} have "
                    f"{self.documents.dimension}. All must come from the same embedding model."
                )


def as_vectors(ids: Sequence[str], values: Numbers, *, where: str = "vectors", what: str = "document") -> Vectors:
    """Return vectors with their ids, checking that there is one distinct id per row and that all numbers are finite.

    >>> as_vectors(["a", "b"], np.array([[3.0, 4.0], [0.0, 0.0]])).lengths.tolist()
    [5.0, 0.0]
    """
    if values.ndim != 2 or not values.shape[1]:
        raise DataError(f"{where}: expected a table, a row per {what}; found the shape {values.shape}.")
    if values.dtype.kind != "f" or values.dtype.itemsize not in (2, 4, 8):
        raise DataError(f"{where}: the numbers are {values.dtype}; expected float16, float32 or float64.")
    if len(ids) != len(values):
        raise DataError(f"{where}: {len(values)} rows but {len(ids)} ids; every row needs one, in the same order.")
    first: dict[str, int] = {}
    for row, each in enumerate(ids):
        if first.setdefault(each, row) != row:
            raise DataError(
                f"{where}: {what} {each!r} has two vectors, in rows {first[each] + 1} and {row + 1}. Keep one of them."
            )
    return Vectors(tuple(ids), frozen(values), frozen(lengths_of(ids, values, where, what)), where, what)


def read_vectors(folder: PathLike) -> CollectionVectors:
    """Read the vectors in a folder; `queries` may be missing if queries are embedded on demand."""
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder. Expected one with documents.npy and documents.json in it.")
    documents = _read(root, "documents", "document")
    if documents is None:
        raise DataError(
            f"{root}: there are no vectors of documents here. Expected documents.npy or documents.safetensors, with "
            "the ids in documents.json, or documents.parquet with the columns _id and vector."
        )
    return CollectionVectors(documents, _read(root, "queries", "query"), _read(root, "titles", "document"))


def _read(root: Path, name: str, what: str) -> Vectors | None:
    """Read one table of a folder, or return None if it does not exist."""
    found = [path for ending in _READERS if (path := root / f"{name}{ending}").is_file()]
    if len(found) > 1:
        raise DataError(f"{found[0]}: there is {found[1].name} beside it; keep only one of them.")
    if not found:
        return None
    ids, values = _READERS[found[0].suffix](found[0])
    return as_vectors(
        read_ids(found[0].with_suffix(".json")) if ids is None else ids, values, where=str(found[0]), what=what
    )


def lengths_of(ids: Sequence[str | int], values: Numbers, where: str, what: str) -> Floats:
    """Return the length of every vector. Raise DataError, naming the row, for invalid vectors."""
    found = np.zeros(len(values))

    def measure(first: int) -> None:
        block = np.asarray(values[first : first + ROWS], dtype=np.float64)
        odd = odd_lengths(block)
        if len(odd):
            row = int(odd[0])
            raise DataError(odd_vector(f"{where}: row {first + row + 1} ({what} {ids[first + row]!r})", block[row]))
        found[first : first + len(block)] = np.sqrt(np.einsum("ij,ij->i", block, block))

    in_threads(measure, range(0, len(values), ROWS))
    return found


def read_npy(path: Path) -> tuple[None, _Table]:
    """Read the table of a `.npy` file; its ids are in a separate file."""
    try:
        return None, np.asarray(np.lib.format.open_memmap(path, mode="r"))
    except Exception as error:  # noqa: BLE001 - a header written to do harm could raise anything
        if not path.stat().st_size:
            raise DataError(f"{path}: the file is empty. Write it again, with numpy.save.") from None
        raise DataError(f"{path}: not a .npy file of numbers, or cut short ({error}). Write it again.") from None


def read_safetensors(path: Path) -> tuple[list[str] | None, _Table]:
    """Read the only table of a `.safetensors` file, and the ids if its metadata contains them."""
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
    """Read a list of ids from a JSON file."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file. Expected the ids of the vectors, a list in their order.")
    return _ids(parse_json(read_text(path), path), path)


def _described(entry: JsonObject, size: int) -> tuple[_Kind, tuple[int, int], int] | None:
    """Return type, shape and offset of a table within a file of this size; None if it does not fit."""
    kind, shape, ends = _KINDS.get(str(entry.get("dtype"))), _pair(entry.get("shape")), _pair(entry.get("data_offsets"))
    if kind is None or shape is None or ends is None:
        return None
    inside = ends[1] - ends[0] == shape[0] * shape[1] * kind.itemsize and ends[1] <= size
    return (kind, shape, ends[0]) if inside else None


def _pair(value: Json) -> tuple[int, int] | None:
    """Return two non-negative whole numbers, or None if the value is anything else."""
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


_READERS: dict[str, Callable[[Path], tuple[list[str] | None, Numbers]]] = {
    ".npy": read_npy,
    ".safetensors": read_safetensors,
    ".parquet": read_parquet_vectors,
}
