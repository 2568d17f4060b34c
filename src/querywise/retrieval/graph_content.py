"""Validation of usearch's stored graphs, byte by byte, before usearch reads them: usearch trusts its input.

The format: a table of vectors (rows and bytes per row as two uint32, then half-precision numbers), a header of 64
bytes, five uint64 (documents, links on upper levels, links on the lowest, highest level, where search begins), the
level of each document as int16, and then for each document its number (uint64), its level again, and per level the
number of links and their targets (uint32, with room for the maximum number of links).

usearch does not document this format: `Graph.built` rejects a version that writes a different one. pyproject.toml
bounds the versions, and `make oldest` tests the oldest.
"""

from __future__ import annotations

import numpy as np

from querywise.errors import ModelFileError
from querywise.runtime.arrays import Bytes, Halves, Ints, Singles
from querywise.runtime.compiled import compiled

LINKS, BASE_LINKS = 16, 32  # of a document on upper levels, and on the lowest
_HEAD, _SIZES = 64, 40
_NODE, _BASE, _UPPER = 10, 4 + 4 * BASE_LINKS, 4 + 4 * LINKS  # bytes
_KINDS = bytes((99, 12, 14, 15))  # cosine, half precision, uint64 numbers, uint32 positions
_HIGHEST = 64
_BLOCK = 10_000  # vectors checked at a time
_FAR = 0.02  # more than the rounding error of half precision for unit vectors


def check_content(content: Bytes, documents: Ints, dimension: int) -> Halves:
    """Return the vectors in a graph. Raise ModelFileError if it is invalid or has other documents."""
    count, row = len(documents), 2 * dimension
    begin = 8 + count * row + _HEAD + _SIZES
    if len(content) < begin + count * (2 + _NODE + _BASE) or content[:8].view(np.uint32).tolist() != [count, row]:
        raise unsound("it has another number of documents or another dimension")
    head = content[begin - _HEAD - _SIZES : begin - _SIZES]
    counts = np.frombuffer(head[17:41].tobytes(), np.uint64)
    if bytes(head[:7]) != b"usearch" or bytes(head[13:17]) != _KINDS or counts.tolist() != [count, 0, dimension]:
        raise unsound("its head is not that of a graph made here")
    _check_links(content[begin - _SIZES :], documents)
    vectors = content[8 : 8 + count * row].view(np.float16).reshape(count, dimension)
    if not all(np.isfinite(vectors[first : first + _BLOCK]).all() for first in range(0, count, _BLOCK)):
        raise unsound("its vectors have numbers that are not finite")
    return vectors


def _check_links(content: Bytes, documents: Ints) -> None:
    """Raise ModelFileError for links that lead outside, inconsistent levels, or other documents."""
    count = len(documents)
    sizes = np.frombuffer(content[:_SIZES].tobytes(), np.int64)
    levels = np.frombuffer(content[_SIZES : _SIZES + 2 * count].tobytes(), np.int16).astype(np.int64)
    if sizes[:3].tolist() != [count, LINKS, BASE_LINKS] or (count and not 0 <= sizes[4] < count):
        raise unsound("its sizes do not fit")
    if count and not (levels.min() >= 0 and levels.max() < _HIGHEST and sizes[3] == levels.max() == levels[sizes[4]]):
        raise unsound("its levels do not fit")
    starts = np.concatenate([[0], np.cumsum(_NODE + _BASE + levels * _UPPER)]) + _SIZES + 2 * count
    if starts[-1] != len(content):
        raise unsound("it is cut short or has more than it should")
    wrong = firstunsound(content, starts, levels, documents)
    if wrong >= 0:
        raise unsound(f"what it says of document {documents[wrong]} does not fit")


def check_vectors(held: Halves, units: Singles) -> None:
    """Raise ModelFileError for a graph of vectors other than the index's."""
    if len(held) and float(np.abs(held - units).max()) > _FAR:
        raise unsound("it was made of other vectors")


def unsound(why: str) -> ModelFileError:
    """Return an error that says why a graph cannot be used, and what to do."""
    return ModelFileError(
        f"The graph for approximate search that is kept with this index cannot be used: {why}. Make the index anew."
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
