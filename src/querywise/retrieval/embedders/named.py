"""Embedders by the names people type. Each is imported, and its model started, only when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from querywise.errors import DataError

if TYPE_CHECKING:
    from querywise.contracts.protocols import Embedder
    from querywise.retrieval.index import Index
    from querywise.runtime.arrays import Floats

_KNOWN = (
    "lsa, static, static:FOLDER, sentence-transformers:NAME_OR_FOLDER, or an address that ends in /embeddings, as in "
    "http://localhost:8080/v1/embeddings#MODEL"
)


def check_name(name: str) -> None:
    """Refuse a name that no embedder has, before any long work is done for it."""
    kind, _, rest = name.partition(":")
    if kind in ("http", "https"):
        from querywise.retrieval.embedders.remote import check_address

        check_address(name)
    elif not (name in ("lsa", "static") or (kind in ("static", "sentence-transformers") and rest)):
        raise DataError(f"embed={name!r}: there is no such embedder. Known: {_KNOWN}.", arguments=("embed",))


def find_embedder(name: str, index: Index) -> Embedder:
    """An embedder by its name; `lsa` is made of the index's documents, or is the one that is kept with the index."""
    check_name(name)
    if name == "lsa":
        from querywise.retrieval.embedders.lsa import lsa_of

        return lsa_of(index)
    return _started(name)


@lru_cache(2)
def _started(name: str) -> Embedder:
    """An embedder that does not depend on an index; it is started once."""
    kind, _, rest = name.partition(":")
    if kind == "static":
        from querywise.retrieval.embedders.static import StaticEmbedder

        return StaticEmbedder.from_folder(rest or None)
    if kind == "sentence-transformers":
        from querywise.retrieval.embedders.sentences import SentenceEmbedder

        return SentenceEmbedder(rest)
    from querywise.retrieval.embedders.remote import RemoteEmbedder

    return RemoteEmbedder(name)


def embedded(embedder: Embedder, texts: Sequence[str], *, name: str, dimension: int | None = None) -> Floats:
    """The vectors of some texts, checked: one for each, of one dimension, every number finite."""
    found = np.asarray(embedder(texts), dtype=np.float64)
    if found.ndim != 2 or len(found) != len(texts) or (len(texts) and not found.shape[1]):
        raise DataError(f"{name}: {len(texts)} texts became {found.shape}; expected a vector for each of them.")
    if dimension is not None and found.shape[1] != dimension:
        raise DataError(f"{name}: vectors of {found.shape[1]} numbers; those before had {dimension}. Start anew.")
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0, 0])
        raise DataError(f"{name}: the vector of {texts[row]!r:.60} has a number that is not finite.")
    return found
