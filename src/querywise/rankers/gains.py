"""What several options would gain on a query, from its signs: by a line through all queries, or by those most like it.

Both can say what they would have predicted of each query they learned from without what that query gained.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from querywise.arrays import Floats
from querywise.neighborhoods import Nearest, Search
from querywise.scaling import Scaling
from querywise.threads import one_blas_thread


class LinearGains:
    """Ridge regression on standardised signs. strength: the penalty beside the variance of a sign, which is 1."""

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def fit(self, signs: Floats, gains: Floats, /) -> Self:
        """Learn from queries × signs and queries × options."""
        self.scaling_ = Scaling.learn(signs, "standard")
        places = self.scaling_.apply(signs)
        self.level_ = gains.mean(axis=0)
        with one_blas_thread():
            inner = places.T @ places + self.strength * len(places) * np.eye(places.shape[1])
            self.slopes_ = np.linalg.solve(inner, places.T @ (gains - self.level_))
        return self

    def predict(self, signs: Floats, /) -> Floats:
        """Queries × options."""
        places = self.scaling_.apply(signs)
        found = np.tile(self.level_, (len(signs), 1))
        for column, slope in zip(places.T, self.slopes_, strict=True):  # the same bits whatever queries are beside it
            found += column[:, None] * slope
        return found

    def left_out(self, signs: Floats, gains: Floats, /) -> Floats:
        """The same of the queries learned from, each predicted from the others alone."""
        places = self.scaling_.apply(signs)
        with one_blas_thread():
            inner = places.T @ places + self.strength * len(places) * np.eye(places.shape[1])
            own = 1 / len(places) + np.einsum("ij,ji->i", places, np.linalg.solve(inner, places.T))
        found: Floats = (self.predict(signs) - own[:, None] * gains) / (1 - own)[:, None]
        return found


class NearbyGains:
    """The mean of the queries whose standardised signs are nearest. share: how many of all queries these are."""

    def __init__(self, share: float = 0.1) -> None:
        self.share = share

    def fit(self, signs: Floats, gains: Floats, /) -> Self:
        """Remember where the queries are, and what each gained."""
        self.scaling_ = Scaling.learn(signs, "standard")
        self.count_ = max(1, min(round(self.share * len(signs)), len(signs) - 1))
        self.nearest_ = Nearest(self.count_).fit(self.scaling_.apply(signs))
        self.gains_ = gains
        return self

    def predict(self, signs: Floats, /) -> Floats:
        """Queries × options."""
        found: Floats = self.nearest_.weights(self.scaling_.apply(signs)) @ self.gains_ / self.count_
        return found

    def left_out(self, signs: Floats, gains: Floats, /) -> Floats:
        """The same of the queries learned from, each predicted from the others alone."""
        places = self.scaling_.apply(signs)
        near = Search(places).nearest(places, self.count_ + 1)
        others = near != np.arange(len(near))[:, None]
        others[others.all(axis=1), -1] = False  # a query with so many twins that it is not among them
        found: Floats = gains[near[others].reshape(len(near), self.count_)].mean(axis=1)
        return found
