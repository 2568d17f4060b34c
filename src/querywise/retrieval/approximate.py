"""Approximate vector search with a graph of near vectors (HNSW), for collections too large for exact search.

Only this module uses usearch (the extra `usearch`). The graph only preselects documents: the caller computes their
similarities and orders them. Documents are added one after another, in one thread, so the same vectors give the same
graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from querywise.data.vectors import Numbers
from querywise.errors import DataError, ModelFileError
from querywise.retrieval.graph_content import LINKS, check_content, check_vectors, unsound
from querywise.runtime.arrays import Bytes, Floats, Ints, Singles
from querywise.runtime.progress import track
from querywise.runtime.threads import available_cores, checkpoint

if TYPE_CHECKING:
    from usearch.index import Index as UsearchIndex

NAME = "usearch"
_INSTALL = "pip install 'querywise[usearch]'"
_BLOCK = 1_024  # documents added at once
_WIDTH = 128  # near documents examined when one is added, and at least as many per query
_MORE = 4  # documents examined, as a multiple of those requested

VectorsOf = Callable[[Ints], Numbers]


class Graph:
    """The documents with a non-zero vector, each linked to near ones; `content` is the stored form."""

    def __init__(self, content: Bytes, dimension: int) -> None:
        self.content, self._dimension = content, dimension

    @staticmethod
    def built(vectors_of: VectorsOf, lengths: Floats, dimension: int) -> Graph:
        """Build the graph of some documents, given the lengths of their vectors."""
        made, documents = _empty(dimension), np.flatnonzero(lengths > 0)
        blocks = [documents[first : first + _BLOCK] for first in range(0, len(documents), _BLOCK)]
        for block in track(blocks, "Linking vectors"):
            checkpoint()
            made.add(block.astype(np.uint64), _units(vectors_of, lengths, block), threads=1)
        content = np.frombuffer(made.save(), np.uint8)
        try:
            return Graph.checked(content, vectors_of, lengths, dimension)
        except ModelFileError:
            version = getattr(import_module(NAME), "__version__", "unknown")
            raise DataError(f"usearch {version} keeps its graphs in a way not known here: {_INSTALL} -U.") from None

    @staticmethod
    def checked(content: Bytes, vectors_of: VectorsOf, lengths: Floats, dimension: int) -> Graph:
        """Return a stored graph. Raise ModelFileError if it is invalid, or made from other vectors."""
        copied = np.array(content)  # a copy, so that nothing can change it after the check
        documents = np.flatnonzero(lengths > 0)
        held = check_content(copied, documents, dimension)
        sample = np.unique(np.linspace(0, len(documents) - 1, min(len(documents), 1_000)).astype(np.int64))
        check_vectors(held[sample], _units(vectors_of, lengths, documents[sample]))
        found = Graph(copied, dimension)
        try:
            _ = found._opened
        except RuntimeError as error:  # made by another version of usearch, or claims to be
            raise unsound(f"the installed usearch does not read it ({error})") from None
        return found

    def near(self, queries: Singles, top: int) -> list[Ints]:
        """Return documents near each query, several times `top` of them if there are as many."""
        if not len(queries):
            return []
        wanted, threads = max(_MORE * top, _WIDTH), available_cores() if len(queries) > 1 else 1
        found = self._opened.search(queries, wanted, threads=threads)
        if len(queries) == 1:
            return [found.keys.astype(np.int64)]
        return [keys[:count].astype(np.int64) for keys, count in zip(found.keys, found.counts, strict=True)]

    @cached_property
    def _opened(self) -> UsearchIndex:
        opened = _empty(self._dimension)
        opened.view(self.content)
        return opened

    def __reduce__(self) -> tuple[type[Graph], tuple[Bytes, int]]:
        return Graph, (self.content, self._dimension)


def require_usearch() -> None:
    """Raise DataError if usearch is not installed, before any long work is done."""
    _library()


def _library() -> Any:  # a module without types
    try:
        return import_module("usearch.index")
    except ImportError:
        raise DataError(
            f"Approximate search by vectors needs usearch, which is not installed: {_INSTALL}. "
            "vector_search='exact' needs nothing.",
            arguments=("vector_search",),
        ) from None


def _empty(dimension: int) -> Any:  # a class without types
    return _library().Index(
        ndim=dimension,
        metric="cos",
        dtype="f16",
        connectivity=LINKS,
        expansion_add=_WIDTH,
        expansion_search=_WIDTH,
    )


def _units(vectors_of: VectorsOf, lengths: Floats, documents: Ints) -> Singles:
    """Return vectors of unit length, since the original ones may be too large for the graph's half precision."""
    rows = np.asarray(vectors_of(documents), dtype=np.float64)
    return (rows / lengths[documents, None]).astype(np.float32)
