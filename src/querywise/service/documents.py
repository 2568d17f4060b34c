"""The documents of a request: their ids, and their features as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from querywise.runtime.arrays import Floats
from querywise.runtime.cancellation import checkpoint
from querywise.service.errors import RequestDataError
from querywise.service.schema import Document, read_values


class Features(NamedTuple):
    """What the features are called, in their order, and as a set: models of ten thousand features have names too.

    absent: what a feature is that a document does not have, by the model's policy for missing values.
    """

    names: tuple[str, ...]
    known: frozenset[str]
    absent: float

    def table(self, documents: Sequence[Sequence[Document]], places: Sequence[str]) -> Floats:
        """The features of the documents of some queries, read one by one: given by name, as numbers, or wrongly.

        places: where the documents of each query are in the request.
        """
        table, row = np.empty((sum(map(len, documents)), len(self.names))), 0
        for part, where in zip(documents, places, strict=True):
            require_distinct(part, where)
            for place, document in enumerate(part):
                checkpoint()
                table[row] = _row(document, self, f"{where}[{place}]")
                row += 1
        return table


def require_distinct(documents: Sequence[Document], where: str) -> None:
    """Refuse documents of which two have the same id."""
    if len({document.id for document in documents}) != len(documents):
        raise _repeated(documents, where)


def _row(document: Document, features: Features, where: str) -> list[float]:
    """The features of one document; a missing one is what it was in training, 0 or NaN."""
    given, names, absent = _values(document, where), features.names, features.absent
    if isinstance(given, dict):
        unknown = next((name for name in given if name not in features.known), None)
        if unknown is not None:
            raise RequestDataError(
                f"Document {document.id!r} has a feature {unknown!r}, which the model does not know. It knows "
                f"{', '.join(names[:8])}{' …' if len(names) > 8 else ''}.",
                f"{where}.features",
            )
        if absent == 0:  # the common case, without a call per value
            return [given.get(name) or 0.0 for name in names]
        given = [given.get(name) for name in names]
    elif len(given) != len(names):
        raise RequestDataError(
            f"Document {document.id!r} has {len(given)} features; the model was trained on {len(names)}. Give them "
            "all, null for one that is missing, or give them by name.",
            f"{where}.features",
        )
    if absent == 0:
        return [value or 0.0 for value in given]
    return [absent if value is None else value or 0.0 for value in given]


def _values(document: Document, where: str) -> Any:
    try:
        return read_values(document.features)
    except ValueError as error:
        message, _, place = str(error).partition(" - at ")
        inside = place.strip("`").removeprefix("$")
        raise RequestDataError(f"{message}.", f"{where}.features{inside}") from None


def _repeated(documents: Sequence[Document], where: str) -> RequestDataError:
    seen: dict[str, int] = {}
    for place, document in enumerate(documents):
        if document.id in seen:
            break
        seen[document.id] = place
    return RequestDataError(
        f"Id {document.id!r} is also that of {where}[{seen[document.id]}]; every document needs an id of its own.",
        f"{where}[{place}].id",
    )
