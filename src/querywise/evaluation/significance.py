"""Is a difference more than luck? Paired tests over the queries both rankers answered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querywise.arrays import Floats
from querywise.errors import DataError


@dataclass(frozen=True)
class Comparison:
    """Our values against theirs, query by query."""

    test: str
    difference: float
    p: float
    wins: int
    ties: int
    losses: int


def paired_t_test(ours: Floats, theirs: Floats) -> Comparison:
    """Student's paired t-test, two-sided. Identical values are no evidence: p = 1.

    >>> result = paired_t_test(np.array([0.5, 0.7, 0.9]), np.array([0.4, 0.5, 0.6]))
    >>> result.wins, round(result.p, 4)
    (3, 0.0742)
    """
    if ours.shape != theirs.shape:
        raise DataError(f"Paired values must cover the same queries: {ours.size} against {theirs.size}.")
    from scipy.special import stdtr  # scipy.stats takes a second to import

    gain = ours - theirs
    count = len(gain)
    spread = float(gain.std(ddof=1)) if count > 1 else 0.0
    mean = float(gain.mean()) if count else 0.0
    if spread > 0:
        p = float(2 * stdtr(count - 1, -abs(mean) / (spread / np.sqrt(count))))
    else:
        p = 1.0 if mean == 0 or count < 2 else 0.0
    return Comparison(
        test="paired t-test",
        difference=mean,
        p=p,
        wins=int(np.sum(gain > 0)),
        ties=int(np.sum(gain == 0)),
        losses=int(np.sum(gain < 0)),
    )
