"""The documents of an index embedded, and the record of what embedded them: another embedder is refused later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from querywise.contracts.protocols import Embedder, Probing
from querywise.data.collections import Document
from querywise.data.vectors import CollectionVectors, as_vectors
from querywise.errors import DataError, ModelFileError
from querywise.retrieval.embedders.named import check_name, embedded, find_embedder, require_allowed
from querywise.retrieval.index import Index
from querywise.retrieval.indexed_vectors import embedder_of, with_vectors
from querywise.runtime.arrays import Floats, Singles
from querywise.runtime.progress import doing
from querywise.runtime.values import Json, JsonObject, is_finite_number

_PROBE = "The quick brown fox jumps over the lazy dog."
_BATCH = 1_024  # texts handed over at once
_ALIKE = 0.999  # the cosine of two probes of one embedder, at least: machines differ in the last digits


@dataclass(frozen=True)
class EmbedderRecord:
    """What tells an embedder from another: its name, the dimension of its vectors, and the vector of a fixed text."""

    name: str
    dimension: int
    probe: tuple[float, ...]

    def as_json(self) -> JsonObject:
        """As manifests hold it."""
        return {"name": self.name, "dimension": self.dimension, "probe": list(self.probe)}

    @staticmethod
    def from_json(value: Json, where: str) -> EmbedderRecord:
        """What a manifest holds; anything else is refused."""
        found = value if isinstance(value, dict) else {}
        name, dimension, probe = (found.get(each) for each in ("name", "dimension", "probe"))
        if not (
            isinstance(name, str)
            and type(dimension) is int
            and dimension > 0
            and isinstance(probe, list)
            and len(probe) == dimension
        ):
            raise ModelFileError(f"{where}: what it says of its embedder cannot be read. Make it anew.")
        numbers = [float(each) for each in probe if is_finite_number(each)]
        if len(numbers) != dimension:
            raise ModelFileError(f"{where}: the probe of its embedder has values that are no numbers. Make it anew.")
        return EmbedderRecord(name, dimension, tuple(numbers))

    def require(self, other: EmbedderRecord, whose: str) -> None:
        """Refuse another embedder than this one. whose: what this one made, for the message."""
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
                "text another vector. Use the same one, or make everything anew with this one."
            )


def record_of(embedder: Embedder, name: str) -> EmbedderRecord:
    """The record of an embedder, which is asked for the vector of a fixed text."""
    probe = embedder.probe() if isinstance(embedder, Probing) else embedded(embedder, [_PROBE], name=name)[0]
    return EmbedderRecord(name, len(probe), tuple(probe.tolist()))


def with_embedded(index: Index, documents: Iterable[Document], name: str) -> Index:
    """The same index with vectors of its documents, and of their titles if they have some.

    documents: those of the index, in its order. A document is embedded as `title. text`.
    """
    from querywise.retrieval.embedders.lsa import KEPT, LsaEmbedder

    with doing("Embedding"):
        embedder = find_embedder(name, index)
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


def embedded_queries(embedder: Embedder, texts: Sequence[str | None], record: EmbedderRecord) -> Floats:
    """The vectors of queries; zeros for one without a text."""
    parts = [_vectors(embedder, part, record) for part in _batches([text or "" for text in texts])]
    return np.concatenate([np.zeros((0, record.dimension)), *parts]).astype(np.float64)


def query_vector(
    index: Index, text: str, *, embed: str | None = None, trained: Json = None, model: str = "the model"
) -> Floats:
    """The vector of a query for a model that was trained with vectors; refused where another embedder would make it.

    embed: the embedder to use; None is the one that made the index's vectors, if the operator allows it. trained: what
    the model remembers of the vectors it was trained on, its note `vectors`. model: what messages call it.
    """
    embedder, record = query_embedder(index, embed)
    known = trained if isinstance(trained, dict) else {}
    if known.get("embedder") is not None:
        EmbedderRecord.from_json(known["embedder"], model).require(record, model)
    elif known.get("dimension") not in (None, record.dimension):
        raise DataError(
            f"{record.name} makes vectors of {record.dimension} numbers; {model} was trained with vectors of "
            f"{known['dimension']}. Use the embedding model that made those."
        )
    found: Floats = embedded_queries(embedder, [text], record)[0]
    return found


def query_embedder(
    index: Index, name: str | None = None, *, most: int | None = None
) -> tuple[Embedder, EmbedderRecord]:
    """What embeds the queries of an index with vectors: the embedder that made them, or one that is named.

    It is started here, and must give the vectors that it gave when the index was made. One that the index alone names
    is refused unless the operator allows it (`require_allowed`). most: as in `find_embedder`.
    """
    asked, known = embedder_name(index, name), embedder_of(index)
    embedder = find_embedder(asked, index, named_by_index=name is None, most=most)
    found = record_of(embedder, asked)
    if known is not None:
        EmbedderRecord.from_json(known, "The index").require(found, "this index")
    return embedder, found


def embedder_name(index: Index, name: str | None = None) -> str:
    """The name of what embeds the queries of an index, before it is started: one that is given, or the index's own.

    Refused where nobody knows one, and where the index names one that the operator does not allow.
    """
    if name is not None:
        check_name(name)
        return name
    known = embedder_of(index)
    if known is None:
        raise DataError(
            "The vectors of this index came from files, so what makes the vector of a query is not known. Name the "
            "same embedding model with embed=NAME.",
            arguments=("embed",),
        )
    own = EmbedderRecord.from_json(known, "The index").name
    require_allowed(own)
    return own


def _embedded_documents(embedder: Embedder, documents: Iterable[Document], record: EmbedderRecord) -> Singles:
    texts = (f"{each.title}. {each.text}" if each.title else each.text for each in documents)
    return np.concatenate([_vectors(embedder, part, record) for part in _batches(texts)])


def _vectors(embedder: Embedder, texts: Sequence[str], record: EmbedderRecord) -> Singles:
    """The vectors of some texts; those without a word are not embedded, and have zeros."""
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
