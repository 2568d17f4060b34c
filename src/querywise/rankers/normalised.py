"""Query-level feature normalisation as part of the model, so that training and serving use the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from querywise.contracts.answers import Answer, refused
from querywise.contracts.asking import AnyRanker
from querywise.contracts.forms import depends_on_the_list
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import FITTED, contents, part


@dataclass(eq=False, repr=False)
class QueryNormalised(AnyRanker):
    """A ranker on features normalised within each query's candidates, 0 the smallest, 1 the largest.

    As LETOR's query-level normalisation; a feature that is the same for all candidates is 0. It takes the whole list
    of candidates to score one of them, which a search engine's own models cannot do.
    """

    ranker: Ranker

    stored = contents(FITTED, ranker_=part(Ranker))

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Fit the ranker on normalised features."""
        for each in (data,) if valid is None else (data, valid):
            each.candidates.require_moderate()
        held_out = None if valid is None else replace(valid, candidates=normalised(valid.candidates))
        self.ranker_ = unfitted(self.ranker).fit(replace(data, candidates=normalised(data.candidates)), valid=held_out)
        return self

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.ranker_.predict(normalised(seen))

    def _answer(self, seen: Candidates, /) -> Answer:
        why = depends_on_the_list(
            type(self),
            "sees every feature on the scale of its query's candidates",
            "Fit the ranker inside it on raw features, and export that.",
        )
        return refused(self.ranker_.answer(normalised(seen)), why)


def normalised(candidates: Candidates) -> Candidates:
    """The same candidates, (x − min) / (max − min) over each query.

    >>> features = np.array([[2.0, 5.0], [4.0, 5.0], [3.0, 5.0]])
    >>> normalised(Candidates(features, np.array([0, 3]), ("q",))).features[:, 0].tolist()
    [0.0, 1.0, 0.5]
    """
    filled = np.flatnonzero(candidates.sizes)
    if not len(filled):
        return candidates
    first, sizes = candidates.starts[filled], candidates.sizes[filled]
    low = np.repeat(np.minimum.reduceat(candidates.features, first), sizes, axis=0)
    high = np.repeat(np.maximum.reduceat(candidates.features, first), sizes, axis=0)
    spread = high / 2 - low / 2  # halves, so that the largest numbers do not overflow
    return replace(candidates, features=(candidates.features / 2 - low / 2) / np.where(spread > 0, spread, 1.0))
