"""Embedders by name. Each is imported, and its model loaded, only on demand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from querywise.data.query_table import LONGEST, SHORTEST, odd_lengths
from querywise.errors import DataError
from querywise.runtime.http_client import RequestError, origin_of, split_url

if TYPE_CHECKING:
    from querywise.contracts.protocols import Embedder
    from querywise.retrieval.index import Index
    from querywise.runtime.arrays import Floats

_KNOWN = (
    "lsa, static, lsa:DIMENSION, static:FOLDER, sentence-transformers:NAME_OR_FOLDER, or an address that ends in "
    "/embeddings, as in http://localhost:8080/v1/embeddings#MODEL"
)
ALLOW = "QUERYWISE_EMBEDDINGS_ALLOW"


def check_name(name: str) -> None:
    """Raise DataError for an unknown embedder name, before any long work is done."""
    kind, _, rest = name.partition(":")
    if kind in ("http", "https"):
        from querywise.retrieval.embedders.remote import check_address

        check_address(name)
    elif kind == "lsa":
        from querywise.retrieval.embedders.lsa import MOST, dimension_of

        if dimension_of(name) is None:
            said = f"embed={name!r}: expected lsa, or lsa:DIMENSION with a whole number from 1 to {MOST}."
            raise DataError(said, arguments=("embed",))
    elif not (name == "static" or (kind in ("static", "sentence-transformers") and rest)):
        raise DataError(f"embed={name!r}: there is no such embedder. Known: {_KNOWN}.", arguments=("embed",))


def find_embedder(name: str, index: Index, names: Sequence[str], *, most: int | None = None) -> Embedder:
    """Return an embedder by name; `lsa` is stored with the index or built from its documents.

    `names` are all embedders that the operator names. Any other name was read from a folder and raises DataError unless
    the operator allows it. `most` limits the number of vectors that a service keeps in memory; None keeps all on disk.
    """
    check_name(name)
    if name not in names:
        require_allowed(name)
    if name.partition(":")[0] == "lsa":
        from querywise.retrieval.embedders.lsa import lsa_of

        return lsa_of(index, name)
    return _started(name, _has_key(name, names), most)


def require_allowed(name: str) -> None:
    """Raise DataError for an embedder that a folder names but the operator does not: it could belong to anyone.

    `lsa` and `static` are always allowed: they are in the index itself, and in an installed package.
    """
    if name.partition(":")[0] == "lsa" or name == "static" or any(_allows(each, name) for each in _allowed()):
        return
    raise DataError(
        f"The index names the embedder {name!r:.300}, and an index may come from anybody, so it is not called. If it "
        "is "
        f"yours, name it too, with embed={name!r:.300}, or in the environment variable {ALLOW}.",
        arguments=("embed",),
    )


def _allowed() -> list[str]:
    """Return the names that the operator allows folders to use, from the environment."""
    return [each.strip() for each in os.environ.get(ALLOW, "").split(",") if each.strip()]


def _allows(entry: str, name: str) -> bool:
    """Return whether an entry of the allow list matches an embedder, by name, address without the model, or origin."""
    if entry == name:
        return True
    try:
        own, other = split_url(entry), split_url(name.partition("#")[0])
        same = origin_of(entry) == origin_of(other.geturl())
    except RequestError:
        return False
    anywhere = own.path in ("", "/") and other.path.endswith("/embeddings") and ".." not in other.path
    return same and (anywhere or (own.path, own.query) == (other.path, other.query))


def _has_key(name: str, names: Sequence[str]) -> bool:
    """Return whether an embedder is sent the key.

    The key belongs to one origin: that of the first address that the operator names, or else of the first that is
    allowed.
    """
    named, allowed = ([each for each in own if each.startswith(("http://", "https://"))] for own in (names, _allowed()))
    if named:
        return name.startswith(("http://", "https://")) and origin_of(named[0]) == origin_of(name)
    return bool(allowed) and _allows(allowed[0], name)


@lru_cache(4)
def _started(name: str, keyed: bool, most: int | None) -> Embedder:
    """Return an embedder that does not depend on an index, loaded once.

    `keyed` says whether a service is sent the key.
    """
    kind, _, rest = name.partition(":")
    if kind == "static":
        from querywise.retrieval.embedders.static import StaticEmbedder

        return StaticEmbedder.from_folder(rest or None)
    if kind == "sentence-transformers":
        from querywise.retrieval.embedders.sentences import SentenceEmbedder

        return SentenceEmbedder(rest)
    from querywise.retrieval.embedders.remote import RemoteEmbedder

    return RemoteEmbedder(name, keyed=keyed, most=most)


def embedded(embedder: Embedder, texts: Sequence[str], *, name: str, dimension: int | None = None) -> Floats:
    """Return the vectors of some texts, after checking their number, dimension and values."""
    found = np.asarray(embedder(texts), dtype=np.float64)
    if found.ndim != 2 or len(found) != len(texts) or (len(texts) and not found.shape[1]):
        raise DataError(f"{name}: {len(texts)} texts became {found.shape}; expected a vector for each of them.")
    if dimension is not None and found.shape[1] != dimension:
        raise DataError(f"{name}: vectors of {found.shape[1]} numbers; those before had {dimension}. Start again.")
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0, 0])
        raise DataError(f"{name}: the vector of {texts[row]!r:.60} has a number that is not finite.")
    odd = odd_lengths(found)
    if len(odd):
        raise DataError(
            f"{name}: the vector of {texts[odd[0]]!r:.60} has {np.abs(found[odd[0]]).max():g} as its largest number; "
            f"its length must be between {SHORTEST:g} and {LONGEST:g}, or 0."
        )
    return found
