"""Concatenated vectors of several embedders, each with a share in the similarity.

A query is q = (√v₁·q¹, √v₂·q², …) and a document d = (√v₁·d¹, √v₂·d², …), where every part has length 1 and the shares
v sum to 1, so that similarities add up: qᵀd = Σ v_b cos(q^b, d^b). Documents are stored without shares, as (d¹, d², …),
and a search query carries the full shares, v_b · q^b, so that changing the shares does not change the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

import numpy as np

from querywise.data.vectors import Numbers
from querywise.runtime.arrays import Floats, Ints, Singles

_STEPS = {2: 10, 3: 5}  # steps of the grid of shares, by the number of embedders
_COARSE = 4  # with more embedders


def unit(vectors: Floats) -> Floats:
    """Return the vectors scaled to length 1; zero vectors stay zero."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    found: Floats = vectors / np.where(lengths > 0, lengths, 1.0)
    return found


def documents_of(tables: Sequence[tuple[Numbers, Floats]]) -> Singles:
    """Concatenate document vectors, given with their lengths, after scaling each part to length 1."""
    parts = [
        np.asarray(values, dtype=np.float32)
        * np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)[:, None]
        for values, lengths in tables
    ]
    return np.hstack(parts).astype(np.float32)


def queries_of(tables: Sequence[Floats]) -> Floats:
    """Concatenate query vectors after scaling each part to length 1."""
    return np.hstack([unit(each) for each in tables])


def columns_of(blocks: Sequence[int]) -> list[slice]:
    """Return the columns of each embedder, given their dimensions."""
    ends = np.cumsum([0, *blocks]).tolist()
    return [slice(first, last) for first, last in pairwise(ends)]


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Converts between concatenated vectors, those to learn from, and those to search with.

    Attributes:
        blocks: the dimensions of the embedders; empty for a single embedder.
        shares: one each, with sum 1.
    """

    blocks: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()

    def queries(self, table: Floats) -> Floats:
        """Return query vectors to learn from, of length 1, with only the embedders that have a share."""
        if not self.blocks:
            return unit(table)
        found = queries_of([table[:, each] for each in columns_of(self.blocks)])[:, self._columns]
        return found if max(self.shares) == 1 else unit(found * self._scale)

    def documents(self, table: Singles) -> Singles:
        """Return document vectors to learn from, given the stored concatenated ones."""
        return np.asarray(table[:, self._columns] * self._scale, dtype=np.float32) if self.blocks else table

    def asked(self, learned: Floats) -> Floats:
        """Return query vectors to search with, given those to learn from."""
        if not self.blocks:
            return learned
        found = np.zeros((len(learned), sum(self.blocks)))
        found[:, self._columns] = learned * self._scale
        return found

    @cached_property
    def _columns(self) -> Ints:
        return np.flatnonzero(np.repeat(self.shares, self.blocks))

    @cached_property
    def _scale(self) -> Floats:
        found: Floats = np.sqrt(np.repeat(self.shares, self.blocks))[self._columns]
        return found


def equal_shares(blocks: Sequence[int]) -> tuple[float, ...]:
    """Return equal shares for all embedders."""
    return tuple(1 / len(blocks) for _ in blocks)


def shares_tried(count: int) -> list[tuple[float, ...]]:
    """Return a grid of shares with sum 1, those of single embedders first.

    >>> shares_tried(2)[:4]
    [(1.0, 0.0), (0.0, 1.0), (0.1, 0.9), (0.2, 0.8)]
    """
    steps = _STEPS.get(count, _COARSE)
    every = [each for each in product(range(steps + 1), repeat=count) if sum(each) == steps]
    every.sort(key=lambda each: (max(each) < steps, each if max(each) < steps else tuple(-one for one in each)))
    return [tuple(one / steps for one in each) for each in every]
