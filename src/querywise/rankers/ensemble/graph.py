"""The graph Laplacian of a query's documents: similar ones should get similar scores [hoi2008]_.

For long lists, distances are computed a block of documents at a time, with the same numbers. They are computed two or
three times over, so that memory grows with the number of documents and not with its square: once for the neighbors,
once for the weights of edges, and once more if ties make too many edges to keep.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled, compiled_loosely
from querywise.runtime.threads import in_threads

_WHOLE = 1_024  # documents up to which all distances are kept
_TIED = 1e-12  # of a distance: neighbors within it of the last one are equally near
_FAR = 1e3  # in median edges: exp(−½ · 1e6) is 0 already
_BLOCK = 128  # documents at a time, in each thread
_TILE = 64  # other documents at a time, so that they stay in the processor's cache
_KEPT = 64  # edges kept per document


def roughness(documents: Floats, neighbours: int) -> Floats:
    """Return GᵀLG: wᵀ(GᵀLG)w is how much scores Gw differ between neighbors.

    L = I − D^(−½) S D^(−½); S_kl = exp(−dist² / 2σ²) if one of two documents is among the other's nearest, including
    all that tie with the last; σ is the median edge, 1 if that is 0. A document without neighbors has no row in L.
    """
    count, width = documents.shape
    if count < 2:
        return np.zeros((width, width))
    documents, neighbours = np.ascontiguousarray(documents), min(neighbours, count - 1)
    if count > _WHOLE:
        energy = energy_in_blocks(documents, neighbours)
    else:
        energy = _energy(_likeness(_distances(documents), neighbours), documents)
    return (energy + energy.T) / 2


@compiled_loosely
def _distances(documents: Floats) -> Floats:
    """Return the distances between documents; infinite from one to itself."""
    count, width = documents.shape
    found = np.full((count, count), np.inf)
    for k in range(count):
        for other in range(k):
            total = 0.0
            for j in range(width):
                gap = documents[k, j] - documents[other, j]
                total += gap * gap
            found[k, other] = found[other, k] = np.sqrt(total)
    return found


@compiled
def _likeness(gaps: Floats, neighbours: int) -> Floats:
    """Return S from distances."""
    count = len(gaps)
    edges, many = np.empty(count * count), 0
    likeness = np.zeros((count, count))
    nearest = np.empty(neighbours)
    cuts = np.empty(count)
    for k in range(count):
        cuts[k] = _reach(gaps[k], nearest)
        for other in range(count):
            if other != k and gaps[k, other] <= cuts[k]:
                edges[many] = gaps[k, other]
                many += 1
    middle = float(np.median(edges[:many]))
    span = middle if middle > 0.0 else 1.0
    for k in range(count):
        for other in range(count):
            if other != k and gaps[k, other] <= max(cuts[k], cuts[other]):
                likeness[k, other] = np.exp(-(min(gaps[k, other] / span, _FAR) ** 2) / 2)
    return likeness


@compiled
def _energy(likeness: Floats, documents: Floats) -> Floats:
    """Return GᵀLG: over documents with neighbors, each times its difference from their weighted sum."""
    count, width = documents.shape
    found, degree = np.zeros((width, width)), np.zeros(count)
    for k in range(count):
        degree[k] = np.sum(likeness[k])
    for k in range(count):
        if degree[k] > 0.0:
            differs = documents[k].copy()
            for other in range(count):
                if likeness[k, other] > 0.0:
                    share = likeness[k, other] / np.sqrt(degree[k]) / np.sqrt(degree[other])
                    for j in range(width):
                        differs[j] -= share * documents[other, j]
            for i in range(width):
                for j in range(width):
                    found[i, j] += documents[k, i] * differs[j]
    return found


class _Edges(NamedTuple):
    """The edges of a block of documents: where each one's begin, the other ends, and the weights S_kl."""

    starts: Ints
    others: Ints
    weights: Floats


def energy_in_blocks(documents: Floats, neighbours: int) -> Floats:
    """Return GᵀLG, not yet symmetric to the last bit."""
    count = len(documents)
    blocks = [(first, min(first + _BLOCK, count)) for first in range(0, count, _BLOCK)]
    near = in_threads(lambda block: _near(_distances_of_some(documents, *block), neighbours), blocks)
    cuts = np.concatenate([each[0] for each in near])
    middle = _median(np.concatenate([each[1] for each in near]), np.concatenate([each[2] for each in near]))
    span = middle if middle > 0.0 else 1.0

    def edges_of(block: tuple[int, int]) -> _Edges:
        return _Edges(*_edges(_distances_of_some(documents, *block), block[0], cuts, span))

    def weighed(block: tuple[int, int]) -> tuple[Floats, _Edges | None]:
        edges = edges_of(block)
        return _degrees(*edges), edges if len(edges.others) <= _KEPT * _BLOCK else None

    found = in_threads(weighed, blocks)
    degrees, kept = np.concatenate([each[0] for each in found]), [each[1] for each in found]

    def differences(number: int) -> Floats:
        edges = kept[number]
        return _differences(documents, degrees, blocks[number][0], *(edges or edges_of(blocks[number])))

    return _gathered(documents, degrees, np.concatenate(in_threads(differences, range(len(blocks)))))


def _median(values: Floats, counts: Ints) -> float:
    """Return the median of values that occur `counts` times each."""
    turn = np.argsort(values, kind="stable")
    ends = np.cumsum(counts[turn])
    half, odd = divmod(int(ends[-1]), 2)
    upper = values[turn[np.searchsorted(ends, half, side="right")]]
    lower = upper if odd else values[turn[np.searchsorted(ends, half - 1, side="right")]]
    return float(upper if odd else (lower + upper) / 2)


@compiled_loosely
def _distances_of_some(documents: Floats, first: int, last: int) -> Floats:
    """Return the distances of some documents from all; infinite from one to itself."""
    count, width = documents.shape
    found = np.full((last - first, count), np.inf)
    for begin in range(0, count, _TILE):
        for k in range(first, last):
            for other in range(begin, min(begin + _TILE, count)):
                if other != k:
                    total = 0.0
                    for j in range(width):
                        gap = documents[k, j] - documents[other, j]
                        total += gap * gap
                    found[k - first, other] = np.sqrt(total)
    return found


@compiled
def _reach(gaps: Floats, nearest: Floats) -> float:
    """Return the distance of one document's last neighbor, with a margin for ties; `nearest` is a buffer for them."""
    nearest[:] = np.inf
    for gap in gaps:
        if gap < nearest[-1]:
            place = len(nearest) - 1
            while place > 0 and nearest[place - 1] > gap:
                nearest[place] = nearest[place - 1]
                place -= 1
            nearest[place] = gap
    return float(nearest[-1] * (1 + _TIED))


@compiled
def _near(gaps: Floats, neighbours: int) -> tuple[Floats, Floats, Ints]:
    """Return how far each document's neighbors reach, and the lengths of their edges with the number of each."""
    cuts, nearest = np.empty(len(gaps)), np.empty(neighbours)
    values, counts, many = np.empty(gaps.size), np.empty(gaps.size, np.int64), 0
    for k in range(len(gaps)):
        cuts[k] = _reach(gaps[k], nearest)
        begin = many
        for gap in np.sort(gaps[k][gaps[k] <= cuts[k]]):
            if many > begin and values[many - 1] == gap:
                counts[many - 1] += 1
            else:
                values[many], counts[many] = gap, 1
                many += 1
    return cuts, values[:many].copy(), counts[:many].copy()


@compiled
def _edges(gaps: Floats, first: int, cuts: Floats, span: float) -> tuple[Ints, Ints, Floats]:
    """Return the edges of the documents from `first` on, by their distances."""
    starts, many = np.zeros(len(gaps) + 1, np.int64), 0
    for k in range(len(gaps)):
        for other in range(gaps.shape[1]):
            many += other != first + k and gaps[k, other] <= max(cuts[first + k], cuts[other])
        starts[k + 1] = many
    others, weights, place = np.empty(many, np.int64), np.empty(many), 0
    for k in range(len(gaps)):
        for other in range(gaps.shape[1]):
            if other != first + k and gaps[k, other] <= max(cuts[first + k], cuts[other]):
                others[place] = other
                weights[place] = np.exp(-(min(gaps[k, other] / span, _FAR) ** 2) / 2)
                place += 1
    return starts, others, weights


@compiled
def _degrees(starts: Ints, others: Ints, weights: Floats) -> Floats:
    """Return the sum of each document's weights."""
    found = np.zeros(len(starts) - 1)
    for k in range(len(found)):
        for place in range(starts[k], starts[k + 1]):
            found[k] += weights[place]
    return found


@compiled
def _differences(documents: Floats, degrees: Floats, first: int, starts: Ints, others: Ints, weights: Floats) -> Floats:
    """Return LG for the documents from `first` on: each one's difference from the weighted sum of its neighbors."""
    width = documents.shape[1]
    found = np.zeros((len(starts) - 1, width))
    for k in range(len(found)):
        if degrees[first + k] > 0.0:
            found[k] = documents[first + k]
            for place in range(starts[k], starts[k + 1]):
                if weights[place] > 0.0:
                    share = weights[place] / np.sqrt(degrees[first + k]) / np.sqrt(degrees[others[place]])
                    for j in range(width):
                        found[k, j] -= share * documents[others[place], j]
    return found


@compiled
def _gathered(documents: Floats, degrees: Floats, differs: Floats) -> Floats:
    """Return Gᵀ(LG), summed document by document."""
    count, width = documents.shape
    found = np.zeros((width, width))
    for k in range(count):
        if degrees[k] > 0.0:
            for i in range(width):
                for j in range(width):
                    found[i, j] += documents[k, i] * differs[k, j]
    return found
