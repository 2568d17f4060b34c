"""The graph of a query's documents: near ones should get near scores [hoi2008]_."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from querywise.arrays import Floats

_TIED = 1e-12  # of a distance: those within it of the last neighbour's are equally near
_FAR = 1e3  # in median edges: exp(−½ · 1e6) is 0 already


def roughness(documents: Floats, neighbours: int) -> Floats:
    """GᵀLG: wᵀ(GᵀLG)w is how much scores Gw differ between neighbours.

    L = I − D^(−½) S D^(−½); S_kl = exp(−dist² / 2σ²) where one of two documents is among the other's nearest, those
    equally near at the last place all joining; σ is the median edge, 1 if that is 0. A document without neighbours has
    no row in L.
    """
    count, width = documents.shape
    if count < 2:
        return np.zeros((width, width))
    gaps = cdist(documents, documents)
    np.fill_diagonal(gaps, np.inf)
    last = min(neighbours, count - 1) - 1
    cut = np.partition(gaps, last, axis=1)[:, last]
    near = gaps <= cut[:, None] * (1 + _TIED)
    span = float(np.median(gaps[near])) or 1.0
    likeness = np.where(near, np.exp(-(np.minimum(np.where(near, gaps, 0.0) / span, _FAR) ** 2) / 2), 0.0)
    likeness = np.maximum(likeness, likeness.T)
    degree = likeness.sum(axis=1)
    joined = degree > 0
    scaled = np.where(joined, 1 / np.sqrt(np.where(joined, degree, 1.0)), 0.0)[:, None] * documents
    own = documents[joined]
    energy: Floats = own.T @ own - scaled.T @ likeness @ scaled
    return (energy + energy.T) / 2
