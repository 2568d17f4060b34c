"""The data of a request: documents with ids and features, and queries with vectors, read once their length is known."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Raw

from querywise.data.json_rows import read_base64
from querywise.data.query_table import QueryTable
from querywise.data.rows import is_moderate
from querywise.errors import DataError
from querywise.runtime.arrays import Bytes, Floats
from querywise.runtime.threads import checkpoint
from querywise.service.api import RequestDataError
from querywise.service.schema import Document, Documents, Numbers, Query, Table, read_bytes, read_values, read_vector


class FeatureColumns(NamedTuple):
    """The names of the features, in order, and the column of each name.

    absent: what a feature is that a document does not have, by the model's policy for missing values.
    """

    names: tuple[str, ...]
    columns: Mapping[str, int]
    absent: float

    @staticmethod
    def named(names: tuple[str, ...], absent: float) -> FeatureColumns:
        """The features of these names, in this order."""
        return FeatureColumns(names, {name: column for column, name in enumerate(names)}, absent)

    def table(self, documents: Sequence[Documents], places: Sequence[str]) -> Floats:
        """The features of the documents of some queries, read one by one: given by name, as numbers, or wrongly.

        places: where the documents of each query are in the request.
        """
        table, row = np.full((sum(map(len, documents)), len(self.names)), self.absent), 0
        for part, where in zip(documents, places, strict=True):
            distinct_ids(part, where)
            if isinstance(part, Table):
                table[row : row + len(part)] = self.unpacked(part, where)
                row += len(part)
                continue
            for place, document in enumerate(part):
                checkpoint()
                _fill(table[row], document, self, f"{where}[{place}]")
                row += 1
        return table

    def unpacked(self, documents: Table, where: str) -> Floats:
        """The features of documents that are sent as a table of bytes: a view of these, where they are doubles."""
        sent, width, place = documents.features, len(self.names), f"{where}.features"
        if sent.shape != [len(documents), width]:
            raise RequestDataError(
                f"The shape is {sent.shape}; there are {len(documents)} ids, and the model was trained on {width} "
                "features. Send a row for each id and a column for each feature, in the model's order.",
                f"{place}.shape",
            )
        kind = np.dtype("<f8" if sent.dtype == "float64" else "<f4")
        expected, content = len(documents) * width * kind.itemsize, _bytes(sent, f"{place}.base64")
        if len(content) != expected:
            raise RequestDataError(
                f"Found {len(content)} bytes; {sent.dtype} of shape {sent.shape} takes {expected}. Send "
                "the bytes of the whole table, row by row.",
                f"{place}.base64",
            )
        table = np.frombuffer(content, kind).astype(np.float64, copy=False).reshape(sent.shape)
        if not is_moderate(table):
            self._require_numbers(table, documents.ids, f"{place}.base64")
        return table

    def _require_numbers(self, table: Floats, ids: Sequence[str], where: str) -> None:
        """Raise an error for infinite values, and for NaN if the model does not support missing values."""
        wrong = ~np.isfinite(table) if self.absent == 0 else np.isinf(table)
        if wrong.any():
            row, column = np.argwhere(wrong)[0].tolist()
            found = f"Document {ids[row]!r} has {table[row, column]} for feature {self.names[column]!r}"
            instead = "0" if self.absent == 0 else "NaN"
            message = f"{found}; every value must be a finite number. Send {instead} for a missing one."
            raise RequestDataError(message, where)


def distinct_ids(documents: Documents, where: str) -> tuple[str, ...]:
    """Return the ids of documents. Raise an error if two have the same one."""
    packed = isinstance(documents, Table)
    ids = tuple(documents.ids if isinstance(documents, Table) else [document.id for document in documents])
    if len(set(ids)) != len(ids):
        raise _repeated(ids, f"{where}.ids[{{}}]" if packed else f"{where}[{{}}]", "" if packed else ".id")
    return ids


def _fill(row: Floats, document: Document, features: FeatureColumns, where: str) -> None:
    """Put the features of one document into its row, where all are missing so far: 0 or NaN, as in training."""
    given, absent = _values(document, where), features.absent
    if isinstance(given, dict):
        columns = list(map(features.columns.get, given))  # only of names that were sent: a model can have thousands
        if None in columns:
            raise _unknown(document, list(given)[columns.index(None)], features, where)
        if columns:
            row[np.array(columns, np.intp)] = _numbers(given.values(), absent)
        return
    if len(given) != len(features.names):
        raise RequestDataError(
            f"Document {document.id!r} has {len(given)} features; the model was trained on {len(features.names)}. Give "
            "them all, null for one that is missing, or give them by name.",
            f"{where}.features",
        )
    row[:] = _numbers(given, absent)


def _numbers(given: Iterable[float | None], absent: float) -> list[float]:
    if absent == 0:
        return [value or 0.0 for value in given]
    return [absent if value is None else value or 0.0 for value in given]


def _unknown(document: Document, name: str, features: FeatureColumns, where: str) -> RequestDataError:
    known = f"{', '.join(features.names[:8])}{' …' if len(features.names) > 8 else ''}"
    return RequestDataError(
        f"Document {document.id!r} has a feature {name!r}, which the model does not know. It knows {known}.",
        f"{where}.features",
    )


def _bytes(sent: Numbers, where: str) -> Bytes | bytes:
    """Return the bytes of a table. What one pass cannot read may be base64 with escapes; otherwise raise an error."""
    text = np.frombuffer(sent.base64, np.uint8)
    found = read_base64(text[1:-1]) if text[0] == ord('"') else None
    if found is not None:
        return found
    try:
        return read_bytes(sent.base64)
    except ValueError as error:
        raise RequestDataError(f"{error}.", where) from None


def _values(document: Document, where: str) -> Any:
    try:
        return read_values(document.features)
    except ValueError as error:
        message, _, place = str(error).partition(" - at ")
        inside = place.strip("`").removeprefix("$")
        raise RequestDataError(f"{message}.", f"{where}.features{inside}") from None


def _repeated(ids: Sequence[str], where: str, inside: str) -> RequestDataError:
    """Return the error for the first repeated id; `where` is a document's location, `inside` that of its id in it."""
    seen: dict[str, int] = {}
    for place, name in enumerate(ids):
        if name in seen:
            break
        seen[name] = place
    return RequestDataError(
        f"Id {name!r} is also that of {where.format(seen[name])}; every document needs a unique id.",
        f"{where.format(place)}{inside}",
    )


def check_vectors(queries: Sequence[Query], lengths: Collection[int], places: Sequence[str]) -> None:
    """Raise an error for vectors that the model does not use, or whose lengths differ from its own.

    lengths: those of the vectors that the model looks at.
    places: where each query is in the request.
    """
    for query, where in zip(queries, places, strict=True):
        if not isinstance(query.vector, Raw):
            continue
        if not lengths:
            message = "This model does not look at vectors of queries. Leave `vector` out."
            raise RequestDataError(message, f"{where}.vector")
        if _length(query.vector) not in lengths:
            raise RequestDataError(
                f"The vector has {_length(query.vector)} numbers; the model was trained with "
                f"{' or '.join(map(str, sorted(lengths)))}. Use the same embedding model.",
                f"{where}.vector",
            )


def vector_table(queries: Sequence[Query], places: Sequence[str]) -> Floats:
    """Return the queries' vectors, zeros for a query without one; without columns if no query has one."""
    width = next((_length(query.vector) for query in queries if query.vector is not None), 0)
    table = np.zeros((len(queries), width))
    for row, query, where in zip(table, queries, places, strict=True):
        checkpoint()
        if query.vector is None:
            continue
        if _length(query.vector) != width:
            raise DataError(
                f"Query {query.id!r} has a vector of {_length(query.vector)} numbers; the first has {width}. All must "
                "come from the same embedding model."
            )
        row[:] = decoded(query.vector, where)
    return table


def packed(vector: Floats, dtype: Literal["float64", "float32"]) -> Numbers:
    """A vector as a table of one row, in base64."""
    content = base64.b64encode(vector.astype(np.dtype(dtype).newbyteorder("<")).tobytes())
    return Numbers(Raw(b'"' + content + b'"'), dtype, [1, len(vector)])


def decoded(vector: Raw | list[float], where: str = "query") -> list[float]:
    """The numbers of a vector."""
    if not isinstance(vector, Raw):
        return vector
    try:
        found: list[float] = read_vector(vector)
        return found
    except ValueError as error:
        message, _, place = str(error).partition(" - at ")
        raise RequestDataError(f"{message}.", f"{where}.vector{place.strip('`').removeprefix('$')}") from None


def _length(vector: Raw | list[float]) -> int:
    """Return how many numbers a vector has, or would have if it were valid, without checking each."""
    if not isinstance(vector, Raw):
        return len(vector)
    return bytes(vector).count(b",") + 1


def places_of(queries: Sequence[Query]) -> list[str]:
    """Where each query is in its request."""
    return ["query"] if len(queries) == 1 else [f"requests[{number}].query" for number in range(len(queries))]


def query_table(ids: Sequence[str], queries: Sequence[Query]) -> QueryTable:
    """Return the queries' texts, classes, columns and vectors; a vector that is not sent is unknown."""
    texts, classes = tuple(query.text for query in queries), tuple(query.class_ for query in queries)
    columns, vectors = [query.columns for query in queries], vector_table(queries, places_of(queries))
    if not any(columns) and not vectors.shape[1] and not any(each is not None for each in (*texts, *classes)):
        return QueryTable(tuple(ids), vectors=vectors)
    names = tuple(columns[0] or ())
    for query, own in zip(queries, columns, strict=True):
        if set(own or ()) != set(names):
            raise DataError(
                f"Query {query.id!r} has the columns {sorted(own or ())}; the first has {sorted(names)}. All need the "
                "same ones."
            )
    values = np.array([[(own or {})[name] for name in names] for own in columns]) if names else None
    return QueryTable(tuple(ids), texts, classes, values, names, vectors)
