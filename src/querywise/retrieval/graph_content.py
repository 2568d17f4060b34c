"""What usearch keeps of a graph, byte by byte, looked through before usearch reads it: it trusts what it is given.

A table of vectors (rows and bytes of a row as two uint32, then half precision numbers), a head of 64 bytes, five uint64
(documents, links on upper levels, links on the lowest, highest level, where search begins), the level of each document
as int16, and then for each document its number (uint64), its level again, and per level how many links it has and their
targets (uint32, as many places as there can be links).

usearch does not describe this format: `Graph.built` refuses a version of it that writes another one. pyproject.toml
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
_KINDS = bytes((99, 12, 14, 15))  # cosine, half precision, uint64 numbers, uint32 places
_HIGHEST = 64
_BLOCK = 10_000  # vectors looked at at once
_FAR = 0.02  # more than half precision can take a number of a vector of length 1 away


def check_content(content: Bytes, documents: Ints, dimension: int) -> Halves:
    """Refuse a graph that is not sound or not of these documents; gives the vectors it holds."""
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
    """Refuse links that lead out of the graph, levels that do not fit, and other documents."""
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
    """Refuse a graph of other vectors than the index has."""
    if len(held) and float(np.abs(held - units).max()) > _FAR:
        raise unsound("it was made of other vectors")


def unsound(why: str) -> ModelFileError:
    """Why a graph cannot be used, and what to do."""
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
    """The first place whose number, level or links do not fit; −1 if all do."""
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
