"""Embedding the documents of an index, and recording the embedder, so that later a different one raises an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

import numpy as np

from querywise.contracts.protocols import Embedder, Probing
from querywise.data.collections import Document
from querywise.data.vectors import CollectionVectors, as_vectors
from querywise.errors import DataError, ModelFileError
from querywise.retrieval.embedders.named import check_name, embedded, find_embedder, require_allowed
from querywise.retrieval.index import Index
from querywise.retrieval.indexed_vectors import known_embedders, with_vectors
from querywise.retrieval.side_by_side import queries_of
from querywise.runtime.arrays import Floats, Singles
from querywise.runtime.progress import doing
from querywise.runtime.values import Json, JsonObject, is_finite_number

_PROBE = "The quick brown fox jumps over the lazy dog."
_BATCH = 1_024  # texts per call
_ALIKE = 0.999  # minimum cosine of two probes of one embedder: machines differ in the last digits


@dataclass(frozen=True)
class EmbedderRecord:
    """The identity of an embedder: its name, the dimension of its vectors, and the vector of a fixed text."""

    name: str
    dimension: int
    probe: tuple[float, ...]

    def as_json(self) -> JsonObject:
        """Return the record as stored in manifests."""
        return {"name": self.name, "dimension": self.dimension, "probe": list(self.probe)}

    @staticmethod
    def from_json(value: Json, where: str) -> EmbedderRecord:
        """Return the record from a manifest. Raise ModelFileError if it is invalid."""
        found = value if isinstance(value, dict) else {}
        name, dimension, probe = (found.get(each) for each in ("name", "dimension", "probe"))
        if not (
            isinstance(name, str)
            and type(dimension) is int
            and dimension > 0
            and isinstance(probe, list)
            and len(probe) == dimension
        ):
            raise ModelFileError(f"{where}: its description of the embedder is invalid. Create it again.")
        numbers = [float(each) for each in probe if is_finite_number(each)]
        if len(numbers) != dimension:
            raise ModelFileError(f"{where}: the probe of its embedder has values that are no numbers. Create it again.")
        return EmbedderRecord(name, dimension, tuple(numbers))

    def require(self, other: EmbedderRecord, whose: str) -> None:
        """Raise DataError for a different embedder; `whose` names what this one embedded, for the message."""
        if other.dimension != self.dimension:
            raise DataError(
                f"{other.name} makes vectors of {other.dimension} numbers; those of {whose} have {self.dimension}, "
                f"from {self.name}. Use the same embedder."
            )
        first, second = np.array(self.probe), np.array(other.probe)
        lengths = np.sqrt(first @ first) * np.sqrt(second @ second)
        if first @ second < _ALIKE * lengths or (lengths == 0) != (not first.any() and not second.any()):
            raise DataError(
                f"{other.name} is not the embedder that made the vectors of {whose}, {self.name}: it gives the same "
                "text a different vector. Use the same one, or rebuild everything with this one."
            )


QueryEmbedders: TypeAlias = list[tuple[Embedder, EmbedderRecord]]


def record_of(embedder: Embedder, name: str) -> EmbedderRecord:
    """Return the record of an embedder, computed from its vector of a fixed text."""
    probe = embedder.probe() if isinstance(embedder, Probing) else embedded(embedder, [_PROBE], name=name)[0]
    return EmbedderRecord(name, len(probe), tuple(probe.tolist()))


def with_embedded(index: Index, documents: Iterable[Document], name: str, names: Sequence[str] = ()) -> Index:
    """Return the index with vectors of its documents, and of their titles if they have any.

    `documents` are those of the index, in order; a document is embedded as `title. text`. `names` are all embedders
    that the operator names, including this one; by default only this one.
    """
    from querywise.retrieval.embedders.lsa import KEPT, LsaEmbedder

    with doing("Embedding"):
        embedder = find_embedder(name, index, names or (name,))
        record = record_of(embedder, name)
        values, ids = _embedded_documents(embedder, documents, record), list(index.document_ids)
        given = [index.titles[place] for place in range(len(index))] if any(map(len, index.titles)) else []
        titles = np.concatenate([_vectors(embedder, part, record) for part in _batches(given)]) if given else None
    vectors = CollectionVectors(
        as_vectors(ids, values, where=name),
        titles=None if titles is None else as_vectors(ids, titles, where=name),
    )
    made = with_vectors(index, vectors, embedder=record.as_json())
    if isinstance(embedder, LsaEmbedder):
        made = replace(made, extra=made.extra | {KEPT: embedder.projection})
    return made


def embedded_queries(embedders: QueryEmbedders, texts: Sequence[str | None]) -> Floats:
    """Return the vectors of queries, concatenated for several embedders; zeros for a query without a text."""
    found: list[Floats] = []
    for embedder, record in embedders:
        parts = [_vectors(embedder, part, record) for part in _batches([text or "" for text in texts])]
        found.append(np.concatenate([np.zeros((0, record.dimension)), *parts]).astype(np.float64))
    return found[0] if len(found) == 1 else queries_of(found)


def query_vector(
    index: Index, text: str, *, embed: Sequence[str] = (), trained: Json = None, model: str = "the model"
) -> Floats:
    """Return a query's vector for a model trained with vectors. Raise DataError if the embedder differs.

    Args:
        index: the index.
        text: the query.
        embed: the embedders to use, as in `embedder_names`.
        trained: the model's note `vectors` on the vectors it was trained on.
        model: its name in messages.
    """
    embedders = query_embedders(index, embed)
    known = trained if isinstance(trained, dict) else {}
    require_trained(known, [record for _, record in embedders], model)
    found: Floats = embedded_queries(embedders, [text])[0]
    return found


def require_trained(trained: JsonObject, records: Sequence[EmbedderRecord | None], model: str) -> None:
    """Raise DataError for embedders other than those a model was trained with, as far as they are known."""
    if not trained:
        return
    remembered = known_embedders(trained)
    dimension = sum(0 if each is None else each.dimension for each in records)
    whole = None not in records and (len(remembered) > 1 or remembered[0] is None)
    if len(remembered) != len(records) or (whole and trained.get("dimension") not in (None, dimension)):
        names = " and ".join("vectors from files" if each is None else each.name for each in records)
        raise DataError(
            f"{names} makes vectors of {dimension} numbers; {model} was trained with vectors of "
            f"{trained.get('dimension')}. Use the embedding model that made those."
        )
    for known, record in zip(remembered, records, strict=True):
        if known is not None and record is not None:
            EmbedderRecord.from_json(known, model).require(record, model)


def query_embedders(index: Index, names: Sequence[str] = (), *, most: int | None = None) -> QueryEmbedders:
    """Return the embedders for the queries of an index: those that embedded its documents, or those named.

    They are loaded here, and must give the same vectors as when the index was made. An embedder that only the index
    names raises DataError unless the operator allows it (`require_allowed`). `most` is as in `find_embedder`.
    """
    found: QueryEmbedders = []
    for name, known in zip(embedder_names(index, names), known_embedders(index.notes), strict=True):
        embedder = find_embedder(name, index, names, most=most)
        found.append((embedder, record_of(embedder, name)))
        if known is not None:
            EmbedderRecord.from_json(known, "The index").require(found[-1][1], "this index")
    return found


def embedder_names(index: Index, names: Sequence[str] = ()) -> list[str]:
    """Return the names of the embedders for an index's queries, without loading them: those given, or the index's own.

    `names` are those of all embedders, or of those that the index does not know. Raises DataError if a name is unknown,
    or if the index names an embedder that the operator does not allow.
    """
    made = known_embedders(index.notes)
    known = [None if each is None else EmbedderRecord.from_json(each, "The index").name for each in made]
    unknown = [place for place, each in enumerate(known) if each is None]
    for name in names:
        check_name(name)
    if len(names) == len(known):
        return list(names)
    if len(names) != len(unknown):
        if not names:
            raise DataError(
                "The vectors of this index came from files, so what makes the vector of a query is not known. Name the "
                "same embedding model with embed=NAME.",
                arguments=("embed",),
            )
        raise DataError(
            f"{len(names)} embedders are named; the vectors of this index are of {len(known)}, {len(unknown)} of which "
            "it does not know. Name these, or all.",
            arguments=("embed",),
        )
    for name in filter(None, known):
        require_allowed(name)
    for place, name in zip(unknown, names, strict=True):
        known[place] = name
    return [each or "" for each in known]


def _embedded_documents(embedder: Embedder, documents: Iterable[Document], record: EmbedderRecord) -> Singles:
    texts = (f"{each.title}. {each.text}" if each.title else each.text for each in documents)
    return np.concatenate([_vectors(embedder, part, record) for part in _batches(texts)])


def _vectors(embedder: Embedder, texts: Sequence[str], record: EmbedderRecord) -> Singles:
    """Return the vectors of some texts; blank texts are not embedded and get zeros."""
    found = np.zeros((len(texts), record.dimension), np.float32)
    said = [place for place, text in enumerate(texts) if text.strip()]
    if said:
        asked = [texts[place] for place in said]
        found[said] = embedded(embedder, asked, name=record.name, dimension=record.dimension)
    return found


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    while part := list(islice(rest, _BATCH)):
        yield part
