"""Vectors of documents and queries, made elsewhere: a table of numbers and the id of every row.

A folder holds `documents` and `queries`, and `titles` where documents have a vector of their title too. Each is a
`.npy` file with the ids beside it (`documents.json`, a list, in order), a `.safetensors` file with one table and ids
beside it or in its metadata (`ids`), or a `.parquet` file with the columns `_id` and `vector`. Numbers are float16,
float32 or float64. The first two kinds are mapped into memory and not read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from querywise.data.parquet.vectors import read_parquet_vectors
from querywise.data.query_table import LONGEST, SHORTEST
from querywise.data.vector_files import read_ids, read_npy, read_safetensors
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints, frozen
from querywise.runtime.files import PathLike
from querywise.runtime.threads import in_threads

Numbers: TypeAlias = NDArray[np.float16 | np.float32 | np.float64]
ROWS = 16_384  # rows at a time


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of some documents or queries.

    lengths: of every vector; one of length 0 is allowed and is similar to nothing. where: what messages call the table.
    what: one of its rows, `document` or `query`.
    """

    ids: tuple[str, ...]
    values: Numbers
    lengths: Floats
    where: str = "vectors"
    what: str = "document"

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        many = "queries" if self.what == "query" else None
        return f"Vectors({counted(len(self), self.what, many)}, vectors of {counted(self.dimension, 'number')})"

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        return int(self.values.shape[1])

    @property
    def zeros(self) -> int:
        """How many vectors are 0 throughout, and so similar to nothing."""
        return int(np.sum(self.lengths == 0))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {each: row for row, each in enumerate(self.ids)}

    def rows_of(self, ids: Sequence[str], source: str) -> Ints:
        """The row of every id; one that has none is an error. source: what names these ids, for the message."""
        rows = [self._places.get(each, -1) for each in ids]
        missing = [each for each, row in zip(ids, rows, strict=True) if row < 0]
        if missing:
            raise DataError(
                f"{self.where}: {len(missing)} of {len(ids)} {_plural(self.what)} in {source} have no vector here; the "
                f"first is {missing[0]!r}. Every {self.what} needs one: make the vectors of this collection anew."
            )
        return np.array(rows, dtype=np.int64)

    def refuse_unknown(self, known: Sequence[str], source: str) -> None:
        """Refuse vectors of things that are nowhere in the data."""
        unknown = sorted(set(self.ids).difference(known), key=self._places.__getitem__)
        if unknown:
            raise DataError(
                f"{self.where}: row {self._places[unknown[0]] + 1} is the vector of {self.what} {unknown[0]!r}, which "
                f"is not in {source}; there are {len(unknown)} such rows. Remove them, or leave them out with "
                "skip_unknown=True.",
                arguments=("skip_unknown",),
            )

    def of(self, ids: Sequence[str], source: str) -> Floats:
        """The vectors of some ids, in that order, in double precision."""
        return np.asarray(self.values[self.rows_of(ids, source)], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class CollectionVectors:
    """The vectors of a collection's documents, of its queries, and of the documents' titles where there are such."""

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
    """Vectors with their ids, checked: as many ids as rows, none twice, every number finite.

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
    """The vectors in a folder; `queries` may be missing where queries are embedded when they are asked."""
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


_READERS: dict[str, Callable[[Path], tuple[list[str] | None, Numbers]]] = {
    ".npy": read_npy,
    ".safetensors": read_safetensors,
    ".parquet": read_parquet_vectors,
}


def _read(root: Path, name: str, what: str) -> Vectors | None:
    """One table of a folder; None where it is not there."""
    found = [path for ending in _READERS if (path := root / f"{name}{ending}").is_file()]
    if len(found) > 1:
        raise DataError(f"{found[0]}: there is {found[1].name} beside it; which of them counts? Keep one.")
    if not found:
        return None
    ids, values = _READERS[found[0].suffix](found[0])
    return as_vectors(
        read_ids(found[0].with_suffix(".json")) if ids is None else ids, values, where=str(found[0]), what=what
    )


def lengths_of(ids: Sequence[str | int], values: Numbers, where: str, what: str) -> Floats:
    """The length of every vector; one that is not finite, or that products cannot hold, is an error with its place."""
    found = np.zeros(len(values))

    def measure(first: int) -> None:
        block = np.asarray(values[first : first + ROWS], dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
            odd = np.flatnonzero(~((lengths <= LONGEST) & ((lengths >= SHORTEST) | (lengths == 0))))
        if len(odd):
            row = int(odd[0])
            raise DataError(_odd(f"{where}: row {first + row + 1} ({what} {ids[first + row]!r})", block[row]))
        found[first : first + len(block)] = lengths

    in_threads(measure, range(0, len(values), ROWS))
    return found


def _odd(place: str, vector: Floats) -> str:
    wrong = np.flatnonzero(~np.isfinite(vector))
    if len(wrong):
        return f"{place}, column {wrong[0] + 1} is {vector[wrong[0]]}; every number must be finite. Make it anew."
    return (
        f"{place}: the largest of its numbers is {np.abs(vector).max():g}; a vector's length must be between "
        f"{SHORTEST:g} and {LONGEST:g}, or 0. Divide all vectors by a constant."
    )


def _plural(what: str) -> str:
    return "queries" if what == "query" else f"{what}s"
