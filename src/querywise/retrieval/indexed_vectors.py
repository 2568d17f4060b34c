"""The vectors of an index's documents, kept with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from querywise.data.vectors import CollectionVectors, Vectors
from querywise.errors import ModelFileError
from querywise.retrieval.index import Index
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.arrays import Arrays
from querywise.runtime.values import JsonObject

_DOCUMENTS, _TITLES = "vectors", "title_vectors"
_EMBEDDER = "embedder"


def with_vectors(
    index: Index, vectors: CollectionVectors, *, skip_unknown: bool = False, embedder: JsonObject | None = None
) -> Index:
    """The same index with its documents' vectors; each document needs one.

    skip_unknown: leave out vectors of other documents instead of refusing them. embedder: what made the vectors.
    """
    extra = index.extra | _aligned(vectors.documents, index, _DOCUMENTS, skip_unknown=skip_unknown)
    if vectors.titles is not None:
        extra |= _aligned(vectors.titles, index, _TITLES, skip_unknown=skip_unknown)
    notes = index.notes if embedder is None else {**index.notes, _EMBEDDER: embedder}
    return replace(index, extra=extra, notes=notes, _cache={**index._cache})


def has_vectors(index: Index) -> bool:
    """Whether an index has its documents' vectors."""
    return _DOCUMENTS in index.extra


def without_vectors(index: Index) -> Index:
    """The same index as one that was made of words alone."""
    return replace(index, extra={}, _cache={**index._cache}) if has_vectors(index) else index


def vectors_of(index: Index) -> VectorIndex | None:
    """The vectors of an index's documents; None where it has none."""
    if not has_vectors(index):
        return None
    if _DOCUMENTS not in index._cache:
        titles = _read(index, _TITLES) if _TITLES in index.extra else None
        index._cache[_DOCUMENTS] = replace(_read(index, _DOCUMENTS), titles=titles)
    found: VectorIndex = index._cache[_DOCUMENTS]
    return found


def embedder_of(index: Index) -> JsonObject | None:
    """What made the vectors; None where that is not known."""
    found = index.notes.get(_EMBEDDER)
    return dict(found) if isinstance(found, dict) else None


def _aligned(vectors: Vectors, index: Index, name: str, *, skip_unknown: bool) -> Arrays:
    """The arrays to keep; rows only where the vectors are in another order than the documents."""
    ids: Sequence[str] = list(index.document_ids)
    rows = vectors.rows_of(ids, "the corpus")
    if not skip_unknown:
        vectors.refuse_unknown(ids, "the corpus")
    arrays: Arrays = {name: vectors.values, f"{name}.lengths": vectors.lengths[rows]}
    in_order = len(rows) == len(vectors) and bool((np.diff(rows) == 1).all())
    return arrays if in_order else arrays | {f"{name}.rows": rows}


def _read(index: Index, name: str) -> VectorIndex:
    values, lengths, rows = index.extra[name], index.extra.get(f"{name}.lengths"), index.extra.get(f"{name}.rows")
    sound = (
        values.ndim == 2
        and values.dtype.kind == "f"
        and lengths is not None
        and lengths.shape == (len(index),)
        and lengths.dtype == np.float64
    )
    if rows is None:
        sound = sound and len(values) == len(index)
    else:
        sound = sound and rows.shape == (len(index),) and rows.dtype == np.int64
        sound = sound and (not len(rows) or 0 <= int(rows.min()) <= int(rows.max()) < len(values))
    if not sound or lengths is None:
        raise ModelFileError("The vectors of this index do not fit its documents. Make the index anew.")
    return VectorIndex(values.view(), lengths, rows)  # type: ignore[arg-type]  # checked above
