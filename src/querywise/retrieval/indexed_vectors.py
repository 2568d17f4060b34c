"""The vectors of an index's documents, stored with it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from querywise.data.vectors import CollectionVectors, Vectors, lengths_of
from querywise.errors import DataError, Hint, ModelFileError
from querywise.retrieval.approximate import NAME, Graph, require_usearch
from querywise.retrieval.field_texts import PREFIX
from querywise.retrieval.index import Index
from querywise.retrieval.side_by_side import documents_of
from querywise.retrieval.vector_search import Recall, VectorIndex
from querywise.runtime.arrays import Arrays, Bytes
from querywise.runtime.values import Json, JsonObject

_DOCUMENTS, _TITLES = "vectors", "title_vectors"
_EMBEDDER, _EMBEDDERS, _BLOCKS, _WORDS = "embedder", "embedders", "blocks", "words"
_GRAPH, _RECALL = "vectors.usearch", "usearch"
_TOP = 50  # best documents for which the recall of approximate search is measured


def with_vectors(
    index: Index, vectors: CollectionVectors, *, skip_unknown: bool = False, embedder: JsonObject | None = None
) -> Index:
    """Return the index with its documents' vectors, one for each.

    `skip_unknown` drops vectors of other documents instead of raising DataError; `embedder` is the record of the
    embedder.
    """
    # the graph belongs to the previous vectors
    kept = {name: each for name, each in index.extra.items() if name != _GRAPH}
    extra = kept | _aligned(vectors.documents, index, _DOCUMENTS, skip_unknown=skip_unknown)
    if vectors.titles is not None:
        extra |= _aligned(vectors.titles, index, _TITLES, skip_unknown=skip_unknown)
    notes = {name: each for name, each in index.notes.items() if name != _RECALL}
    notes |= {} if embedder is None else {_EMBEDDER: embedder}
    return replace(index, extra=extra, notes=notes)


def side_by_side(index: Index, parts: Sequence[Index]) -> Index:
    """Return the index with the concatenated vectors of several indexes, each with those of one embedder.

    Titles have vectors if every embedder has made some.
    """
    made = [each for each in map(vectors_of, parts) if each is not None]
    tables = {_DOCUMENTS: made, _TITLES: [each.titles for each in made if each.titles is not None]}
    extra = {name: each for part in parts for name, each in part.extra.items() if name.partition(".")[0] not in tables}
    for name, own in tables.items():
        if len(own) == len(parts):
            values = documents_of([(each.of(slice(None)), each.lengths) for each in own])
            extra |= {name: values, f"{name}.lengths": np.asarray(values.any(axis=1), dtype=np.float64)}
    notes: JsonObject = {**index.notes, _BLOCKS: [each.dimension for each in made]}
    return replace(index, extra=extra, notes={**notes, _EMBEDDERS: [known_embedders(each.notes)[0] for each in parts]})


def with_usearch(index: Index) -> Index:
    """Return the index with a stored graph, so that its vectors are searched approximately.

    This is for collections where exact search takes too long. Documents found have the same similarities and order as
    in exact search, but some may be missed. The recall is measured on a hundred of the documents, reported by a hint,
    and stored.
    """
    require_usearch()
    exact = vectors_of(index)
    if exact is None:
        raise DataError("This index has no vectors, so there is nothing for usearch to search. with_vectors adds them.")
    made = replace(exact, graph=None).with_graph()
    assert made.graph is not None
    sample = np.unique(np.linspace(0, len(made) - 1, min(len(made), 100)).astype(np.int64))
    recall = made.recall(np.asarray(made.of(sample), dtype=np.float64), top=_TOP)
    notes: JsonObject = {**index.notes, _RECALL: {**recall._asdict()}}
    found = replace(index, extra=index.extra | {_GRAPH: made.graph.content}, notes=notes)
    found._made[_DOCUMENTS] = made
    hint_at_recall(recall, "documents as queries")
    return found


def hint_at_recall(recall: Recall, sample: str) -> None:
    """Report the recall of approximate search."""
    said = (
        f"Vectors are searched approximately, by {NAME}: recall {recall.share:.4f} of the best {recall.top} that exact "
        f"search finds, on {recall.queries} {sample}."
    )
    warnings.warn(said, Hint, stacklevel=3)


def has_vectors(index: Index) -> bool:
    """Return whether an index has its documents' vectors."""
    return _DOCUMENTS in index.extra


def without_vectors(index: Index) -> Index:
    """Return the index as if it had been built from words only."""
    if not has_vectors(index):
        return index
    if _WORDS not in index._made:
        kept = {name: each for name, each in index.extra.items() if name.startswith(PREFIX)}
        index._made[_WORDS] = replace(index, extra=kept)
    found: Index = index._made[_WORDS]
    return found


def vectors_of(index: Index) -> VectorIndex | None:
    """Return the vectors of an index's documents, or None if it has none."""
    if not has_vectors(index):
        return None
    if _DOCUMENTS not in index._made:
        titles = _read(index, _TITLES) if _TITLES in index.extra else None
        made = replace(_read(index, _DOCUMENTS), titles=titles)
        index._made[_DOCUMENTS] = made if _GRAPH not in index.extra else _with_kept_graph(made, index)
    found: VectorIndex = index._made[_DOCUMENTS]
    return found


def _with_kept_graph(vectors: VectorIndex, index: Index) -> VectorIndex:
    """Return the vectors with their stored graph, reporting its recall."""
    require_usearch()
    content, recall = index.extra[_GRAPH], _kept_recall(index)
    if content.ndim != 1 or content.dtype != np.uint8 or recall is None:
        raise ModelFileError("The graph of this index's vectors does not match the stored one. Rebuild the index.")
    kept: Bytes = content.view(np.uint8)
    graph = Graph.checked(kept, vectors.of, vectors.lengths, vectors.dimension)
    hint_at_recall(recall, "documents as queries")
    return replace(vectors, graph=graph)


def _kept_recall(index: Index) -> Recall | None:
    """Return the recall that was measured when the graph was made, or None if it was not stored correctly."""
    known = index.notes.get(_RECALL)
    told = known if isinstance(known, dict) else {}
    share, top, queries = (told.get(name) for name in Recall._fields)
    if isinstance(share, float) and 0 <= share <= 1 and type(top) is int and type(queries) is int:
        return Recall(share, top, queries)
    return None


def known_embedders(notes: Mapping[str, Json]) -> list[JsonObject | None]:
    """Return the record of each embedder, None if unknown, from the notes of an index or a model."""
    several = notes.get(_EMBEDDERS)
    found = several if isinstance(several, list) and several else [notes.get(_EMBEDDER)]
    return [dict(each) if isinstance(each, dict) else None for each in found]


def _aligned(vectors: Vectors, index: Index, name: str, *, skip_unknown: bool) -> Arrays:
    """Return the arrays to store; row numbers only if vectors and documents are in different orders."""
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
        and values.dtype in (np.float16, np.float32, np.float64)
        and lengths is not None
        and lengths.shape == (len(index),)
        and lengths.dtype == np.float64
    )
    if rows is None:
        sound = sound and len(values) == len(index)
    else:
        sound = sound and rows.shape == (len(index),) and rows.dtype == np.int64
        sound = sound and (not len(rows) or 0 <= int(rows.min()) <= int(rows.max()) < len(values))
    blocks = _blocks(index, values.shape[-1])
    if not sound or lengths is None or blocks is None:
        raise _unfit()
    found = VectorIndex(values.view(), lengths, rows, blocks=blocks)  # type: ignore[arg-type]  # checked above
    _check_lengths(found)
    return found


def _blocks(index: Index, dimension: int) -> tuple[int, ...] | None:
    """Return the dimensions of several embedders, or None if they are not as stored."""
    kept, several = index.notes.get(_BLOCKS), index.notes.get(_EMBEDDERS)
    if kept is None and several is None:
        return ()
    blocks = tuple(each for each in kept if type(each) is int and each > 0) if isinstance(kept, list) else ()
    sound = isinstance(several, list) and len(several) == len(blocks) > 1 and sum(blocks) == dimension
    return blocks if sound else None


def _check_lengths(vectors: VectorIndex) -> None:
    """Raise ModelFileError for vectors that are not finite or whose lengths differ from the stored ones."""
    try:
        own = lengths_of(range(len(vectors.values)), vectors.values, "vectors", "document")
        parts = [lengths_of(range(len(each.values)), each.values, "", "") for _, each in vectors.by_embedder]
    except DataError:
        raise _unfit() from None
    if parts:
        own = np.max(parts, axis=0)
        if not all(np.allclose(each[each > 0], 1.0, rtol=1e-5) for each in parts):
            raise _unfit()
    if not np.allclose(
        vectors.lengths, own if vectors.rows is None else own[vectors.rows], rtol=1e-5 if parts else 1e-6, atol=0.0
    ):
        raise _unfit()


def _unfit() -> ModelFileError:
    return ModelFileError("The vectors of this index do not fit its documents. Rebuild the index.")
