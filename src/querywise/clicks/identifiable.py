"""Whether position bias can be told from relevance in a log, how well, and what shuffled traffic would add.

The same pair seen at two positions tells how much more one is examined than the other. Given how often a pair with c
clicks was shown at each position (n_p), its clicks fall on positions with probabilities w_p = n_p θ_p / Σ n_q θ_q,
whatever its attractiveness. So the information on log θ is Σ c (diag(w) − w wᵀ), the Laplacian of a graph of positions:
joined if a pair was shown at both and clicked. Without a path between two positions nothing is known of their ratio,
and EM returns what the prior implies. All this assumes that positions did not change because relevance did.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from querywise.clicks.impressions import Impressions
from querywise.clicks.models import exchanged, information_of, position_cells, position_rates
from querywise.runtime.arrays import Floats, Ints

_WORST = 0.5  # standard error of log θ: a factor of 1.65
_ENOUGH = 0.95  # of the impressions, at positions known that well
_AIM = 0.1  # standard error of log θ that shuffled traffic is planned for


class Swap(NamedTuple):
    """Pages with two neighboring positions exchanged at random, half of them in each order."""

    position: int
    pages: int


class Knowledge(NamedTuple):
    """What is known about position bias from a log.

    Attributes:
        known: Whether judgments can be debiased.
        reason: Why, in a sentence or two.
        positions: The positions shown.
        component: The component index of each.
        theta: Examination by position from 0, estimated from exchanged documents; 1 at the anchor.
        error: The standard error of log θ at the positions shown; infinite without a path to the anchor.
        covariance: The covariance of log θ, by position from 0.
        swaps: The number of clicks on exchanged documents with the same information.
        plan: Shuffled pages for an error of 10 %.

    """

    known: bool
    reason: str
    anchor: int
    positions: Ints
    component: Ints
    theta: Floats
    error: Floats
    covariance: Floats
    swaps: Floats
    plan: tuple[Swap, ...]


def what_is_known(log: Impressions) -> Knowledge:
    """Estimate position bias and its errors from a log, by the positions of every pair."""
    none = np.zeros(0)
    if not log.has_positions:
        why = "The log has no positions, so nothing can be said of position bias."
        return Knowledge(False, why, 0, none.astype(np.int64), none.astype(np.int64), none, none, none, none, ())
    shown = np.bincount(log.position)
    positions = np.flatnonzero(shown)
    cells = position_cells(log, np.unique(log.keys, return_inverse=True)[1].astype(np.int32))
    anchor, theta = exchanged(log, cells)
    information = information_of(cells, theta)
    component = connected_components(csr_array(information != 0), directed=False)[1].astype(np.int64)
    covariance = _inverse(information, component, anchor)
    error = np.where(component == component[anchor], np.sqrt(np.maximum(np.diag(covariance), 0)), np.inf)
    with np.errstate(divide="ignore"):
        swaps = np.where(np.isfinite(error), 4 / error**2, 0.0)
    plan = traffic_plan(log)
    good = float(shown[error <= _WORST].sum() / shown.sum())
    known, why = _verdict(log, component[positions], good, error[positions])
    seen = component[positions], theta, error[positions]
    return Knowledge(known, why, anchor, positions, *seen, covariance, swaps[positions], plan)


def _inverse(information: Floats, component: Ints, anchor: int) -> Floats:
    """Return the covariance of log θ relative to the anchor; 0 for positions without a path to it."""
    found = np.zeros_like(information)
    others = np.flatnonzero((component == component[anchor]) & (np.arange(len(information)) != anchor))
    if len(others):
        found[np.ix_(others, others)] = np.linalg.inv(information[np.ix_(others, others)])
    return found


def traffic_plan(log: Impressions, error: float = _AIM) -> tuple[Swap, ...]:
    """Return how many pages with neighbors exchanged give the last log θ the given standard error.

    A page with positions p and p + 1 exchanged at random adds (ρ_p + ρ_{p+1}) w (1 − w) to the information on
    log θ_{p+1} − log θ_p, with w = ρ_p / (ρ_p + ρ_{p+1}) at worst. Variances add up along the positions, so each
    neighbor gets an equal part of error². Positions that hold the last twentieth of the clicks are left out.
    """
    rates = position_rates(log)
    clicks = np.bincount(log.position[log.clicked], minlength=len(rates)).cumsum()
    last = int(np.searchsorted(clicks, _ENOUGH * clicks[-1])) if clicks[-1] else 1
    first = int(log.position.min())
    steps = range(first, last)
    found = []
    for position in steps:
        near, far = rates[position], rates[position + 1]
        share = near / (near + far)
        information = (near + far) * share * (1 - share)
        found.append(Swap(position, int(np.ceil(len(steps) / (error**2 * information)))))
    return tuple(found)


def _verdict(log: Impressions, component: Ints, good: float, error: Floats) -> tuple[bool, str]:
    if len(error) == 1:
        return True, "All documents were shown at one position, so there is no position bias to correct."
    if not log.clicked.any():
        return False, "There is no click in the log, so position bias cannot be told from relevance."
    parts = len(np.unique(component))
    if good >= _ENOUGH:
        worst = float(error[np.isfinite(error)].max())
        return True, (
            f"Position bias can be told from relevance: {good:.0%} of the impressions are at positions whose "
            f"examination is known to a standard error of {_WORST:g} in its logarithm or better (worst: {worst:.2f}), "
            "provided that documents did not change their positions because of their relevance."
        )
    if parts == len(component):
        return False, (
            "Position bias cannot be told from relevance: no clicked document was shown at two positions for the same "
            "query. Any debiased number would come from a prior alone."
        )
    apart = f"positions are in {parts} unconnected groups" if parts > 1 else "documents were too seldom exchanged"
    return False, (
        f"Position bias cannot be told from relevance: {apart}, and only {good:.0%} of the impressions are at "
        f"positions whose examination is known to a standard error of {_WORST:g} in its logarithm; "
        f"{_ENOUGH:.0%} are needed."
    )
