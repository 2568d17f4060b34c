"""The vectors of queries in a request: decoded once they are known to have the length that is expected."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Raw

from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.threads import checkpoint
from querywise.service.errors import RequestDataError
from querywise.service.schema import Query, read_vector


def check_vectors(queries: Sequence[Query], lengths: Collection[int], places: Sequence[str]) -> None:
    """Refuse vectors that were sent to a model that looks at none, or at those of other lengths.

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
    """The vectors of the queries, zeros for one without; of no numbers if none has one."""
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
    """How many numbers a vector has, or would have if it were one, without a look at each."""
    if not isinstance(vector, Raw):
        return len(vector)
    return bytes(vector).count(b",") + 1
