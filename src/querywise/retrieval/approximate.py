"""Approximate vector search with a graph of nearby vectors (HNSW), for collections too large for exact search.

Only this module uses usearch (the extra `usearch`). The graph only preselects documents: the caller computes their
similarities and orders them. Documents are added one after another, in one thread, so the same vectors give the same
graph. A stored graph is validated byte by byte before usearch reads it: usearch trusts its input.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from querywise.data.vectors import Numbers
from querywise.errors import DataError, ModelFileError
from querywise.runtime.arrays import Bytes, Floats, Halves, Ints, Singles
from querywise.runtime.compiled import compiled
from querywise.runtime.progress import track
from querywise.runtime.threads import available_cores, checkpoint

if TYPE_CHECKING:
    from usearch.index import Index as UsearchIndex

LINKS, BASE_LINKS = 16, 32  # of a document on upper levels, and on the lowest
_HEAD, _SIZES = 64, 40
_NODE, _BASE, _UPPER = 10, 4 + 4 * BASE_LINKS, 4 + 4 * LINKS  # bytes
_KINDS = bytes((99, 12, 14, 15))  # cosine, half precision, uint64 numbers, uint32 positions
_HIGHEST = 64
_CHECKED_AT_ONCE = 10_000  # vectors checked at a time
_FAR = 0.02  # more than the rounding error of half precision for unit vectors


def check_content(content: Bytes, documents: Ints, dimension: int) -> Halves:
    """Return the vectors in a graph. Raise ModelFileError if it is invalid or has other documents."""
    count, row = len(documents), 2 * dimension
    begin = 8 + count * row + _HEAD + _SIZES
    if len(content) < begin + count * (2 + _NODE + _BASE) or content[:8].view(np.uint32).tolist() != [count, row]:
        raise unsound("its number of documents or its dimension is different")
    head = content[begin - _HEAD - _SIZES : begin - _SIZES]
    counts = np.frombuffer(head[17:41].tobytes(), np.uint64)
    if bytes(head[:7]) != b"usearch" or bytes(head[13:17]) != _KINDS or counts.tolist() != [count, 0, dimension]:
        raise unsound("its header is not that of a graph written by querywise")
    _check_links(content[begin - _SIZES :], documents)
    vectors = content[8 : 8 + count * row].view(np.float16).reshape(count, dimension)
    if not all(
        np.isfinite(vectors[first : first + _CHECKED_AT_ONCE]).all() for first in range(0, count, _CHECKED_AT_ONCE)
    ):
        raise unsound("its vectors have numbers that are not finite")
    return vectors


def _check_links(content: Bytes, documents: Ints) -> None:
    """Raise ModelFileError for links that lead outside, inconsistent levels, or other documents."""
    count = len(documents)
    sizes = np.frombuffer(content[:_SIZES].tobytes(), np.int64)
    levels = np.frombuffer(content[_SIZES : _SIZES + 2 * count].tobytes(), np.int16).astype(np.int64)
    if sizes[:3].tolist() != [count, LINKS, BASE_LINKS] or (count and not 0 <= sizes[4] < count):
        raise unsound("its sizes are inconsistent")
    if count and not (levels.min() >= 0 and levels.max() < _HIGHEST and sizes[3] == levels.max() == levels[sizes[4]]):
        raise unsound("its levels are inconsistent")
    starts = np.concatenate([[0], np.cumsum(_NODE + _BASE + levels * _UPPER)]) + _SIZES + 2 * count
    if starts[-1] != len(content):
        raise unsound("it is cut short or has more than it should")
    wrong = firstunsound(content, starts, levels, documents)
    if wrong >= 0:
        raise unsound(f"its entry for document {documents[wrong]} is inconsistent")


def check_vectors(held: Halves, units: Singles) -> None:
    """Raise ModelFileError for a graph of vectors other than the index's."""
    if len(held) and float(np.abs(held - units).max()) > _FAR:
        raise unsound("it was made from other vectors")


def unsound(why: str) -> ModelFileError:
    """Return an error that says why a graph cannot be used, and what to do."""
    return ModelFileError(
        f"The graph for approximate search that is kept with this index cannot be used: {why}. Rebuild the index."
    )


@compiled
def _number(content: Bytes, place: int, width: int) -> int:
    found = np.int64(0)
    for byte in range(width):
        found |= np.int64(content[place + byte]) << (8 * byte)
    return int(found)


@compiled
def firstunsound(content: Bytes, starts: Ints, levels: Ints, documents: Ints) -> int:
    """Return the first position with an invalid number, level or links; −1 if there is none."""
    for place in range(len(levels)):
        at = starts[place]
        if _number(content, at, 8) != documents[place] or _number(content, at + 8, 2) != levels[place]:
            return place
        at += _NODE
        for level in range(levels[place] + 1):
            most = BASE_LINKS if level == 0 else LINKS
            count = _number(content, at, 4)
            if count > most:
                return place
            for link in range(count):
                target = _number(content, at + 4 + 4 * link, 4)
                if target >= len(levels) or levels[target] < level:
                    return place
            at += 4 + 4 * most
    return -1


NAME = "usearch"
_INSTALL = "pip install 'querywise[usearch]'"
_BLOCK = 1_024  # documents added at once
_WIDTH = 128  # near documents examined when one is added, and at least as many per query
_MORE = 4  # documents examined, as a multiple of those requested

VectorsOf = Callable[[Ints], Numbers]


class Graph:
    """The documents with a non-zero vector, each linked to nearby ones; `content` is the stored form."""

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
            raise DataError(f"usearch {version} writes graphs in an unknown format: {_INSTALL} -U.") from None

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
        """Return documents near each query: several times `top`, or all if there are fewer."""
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
            "vector_search='exact' works without it.",
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
