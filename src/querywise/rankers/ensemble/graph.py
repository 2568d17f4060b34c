"""The graph Laplacian of a query's documents: similar ones should get similar scores [hoi2008]_."""

from __future__ import annotations

import numpy as np

from querywise.rankers.ensemble.long_lists import FAR, energy_in_blocks, reach
from querywise.runtime.arrays import Floats
from querywise.runtime.compiled import compiled, compiled_loosely

_WHOLE = 1_024  # documents up to which all distances are kept


def roughness(documents: Floats, neighbours: int) -> Floats:
    """GᵀLG: wᵀ(GᵀLG)w is how much scores Gw differ between neighbours.

    L = I − D^(−½) S D^(−½); S_kl = exp(−dist² / 2σ²) where one of two documents is among the other's nearest, those
    equally near at the last place all joining; σ is the median edge, 1 if that is 0. A document without neighbours has
    no row in L.
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
    """Between any two documents; of one to itself, infinite."""
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
    """S, from distances."""
    count = len(gaps)
    edges, many = np.empty(count * count), 0
    likeness = np.zeros((count, count))
    nearest = np.empty(neighbours)
    cuts = np.empty(count)
    for k in range(count):
        cuts[k] = reach(gaps[k], nearest)
        for other in range(count):
            if other != k and gaps[k, other] <= cuts[k]:
                edges[many] = gaps[k, other]
                many += 1
    middle = float(np.median(edges[:many]))
    span = middle if middle > 0.0 else 1.0
    for k in range(count):
        for other in range(count):
            if other != k and gaps[k, other] <= max(cuts[k], cuts[other]):
                likeness[k, other] = np.exp(-(min(gaps[k, other] / span, FAR) ** 2) / 2)
    return likeness


@compiled
def _energy(likeness: Floats, documents: Floats) -> Floats:
    """GᵀLG: over documents with neighbours, each times its difference from the weighted sum of these."""
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
