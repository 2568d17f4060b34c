"""All that was judged of a set of shards, beside them: `judgements.parquet`, a query, a document and a grade a row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from querywise.data.judgements import Grades
from querywise.data.parquet.arrow import arrow, checked, ids_of, open_parquet, to_numpy, write_table
from querywise.data.parquet.budget import require_room_to_read
from querywise.errors import DataError
from querywise.runtime.files import checksum_of

JUDGEMENTS = "judgements.parquet"
_COLUMNS = ("query", "document", "grade")


def write_grades(path: Path, grades: Grades) -> None:
    """Write the judgements of all queries, query after query."""
    pa, _ = arrow()
    queries = [query for query, own in grades.items() for _ in own]
    documents = [document for own in grades.values() for document in own]
    values = np.array([grade for own in grades.values() for grade in own.values()], np.int64)
    schema = pa.schema([("query", pa.string()), ("document", pa.string()), ("grade", pa.int64())])
    write_table(path, schema, len(values), lambda rows: [queries[rows], documents[rows], values[rows]])


def read_grades(folder: Path, checksum: str) -> Grades:
    """The judgements of all queries, checked against the manifest's checksum."""
    path = folder / JUDGEMENTS
    if not path.is_file():
        raise DataError(f"{path}: the judgements are missing; the manifest lists them. Convert the data anew.")
    if checksum_of(path) != checksum:
        raise DataError(
            f"{path}: damaged, or changed since it was written with the shards: its SHA-256 is not the manifest's. "
            "Fetch it again, or convert the data anew."
        )
    pa, _ = arrow()
    file = open_parquet(path, coded=True)
    require_room_to_read(path, file, _COLUMNS, _COLUMNS[:2], "Judge fewer documents, or allow more memory.")
    try:
        table = checked(file.read(columns=list(_COLUMNS), use_threads=False))
        values = table.column("grade").cast(pa.int64())
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path}: the judgements cannot be read ({error}). Convert the data anew.") from None
    queries, documents = ids_of(path, table, "query"), ids_of(path, table, "document")
    if queries is None or documents is None or values.null_count:
        raise DataError(f"{path}: expected the columns query, document and grade; found {file.schema_arrow.names}.")
    found: dict[str, dict[str, int]] = {}
    for query, document, grade in zip(queries, documents, to_numpy(values).tolist(), strict=True):
        found.setdefault(query, {})[document] = grade
    return found


def of_queries(grades: Grades, query_ids: tuple[str, ...]) -> Mapping[str, Mapping[str, int]]:
    """Those of some queries."""
    return {query: grades[query] for query in query_ids if query in grades}
