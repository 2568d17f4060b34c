"""Counts of how often every pair was shown and clicked in each case of examination, and examination from them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from querywise.clicks import kernels
from querywise.clicks.impressions import Codes, Impressions
from querywise.runtime.arrays import Bools, Floats, Ints

_STEPS, _SMALL = 30, 1e-8  # of Newton's method
_HELD = 1.0  # clicks by which a position is held to the click rates: they remain where nothing was exchanged


class Cells(NamedTuple):
    """Counts of every pair shown and clicked in each slot, sorted by pair; a slot is a case of examination."""

    pair: Codes
    slot: Codes
    shown: Floats
    clicks: Floats

    def starts(self, pairs: int) -> Ints:
        """Return where the cells of every pair begin."""
        return np.searchsorted(self.pair, np.arange(pairs + 1)).astype(np.int64)


def counted_cells(pair: Codes, slot: Codes, clicked: Bools, slots: int) -> Cells:
    """Count rows with the same pair and slot."""
    keys = pair.astype(np.int64) * slots + slot
    clicks_at = np.sort(keys[clicked])
    keys.sort()
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    distinct = keys[first]
    shown = np.diff(np.append(first, len(keys))).astype(np.float64)
    clicks = np.searchsorted(clicks_at, distinct, "right") - np.searchsorted(clicks_at, distinct, "left")
    return Cells(
        (distinct // slots).astype(np.int32), (distinct % slots).astype(np.int32), shown, clicks.astype(np.float64)
    )


def position_cells(log: Impressions, pair: Codes) -> Cells:
    """Return counts by pair and position."""
    return counted_cells(pair, log.position.astype(np.int32), log.clicked, log.positions + 1)


def browsing_cells(log: Impressions, pair: Codes) -> Cells:
    """Return counts by pair, position and position of the last click."""
    last, side = np.zeros(len(log.position), np.int16), log.positions + 1
    kernels.last_clicks(log.starts, log.position, log.clicked, last)
    slot = log.position.astype(np.int32) * side + last
    return counted_cells(pair, slot, log.clicked, side * side)


def summed(codes: Codes | Ints, values: Floats, size: int) -> Floats:
    """Return the sum of the values of every code."""
    return np.bincount(codes, values, size).astype(np.float64, copy=False)


def exchanged_theta(cells: Cells, start: Floats, anchor: int) -> Floats:
    """Return examination by position from exchanged documents alone, whatever the attractiveness of each.

    Given a pair's clicks, they fall on positions with probabilities w_p = n_p θ_p / Σ n_q θ_q. Newton's method
    maximizes Σ clicks log w, which is concave in log θ, minus (log θ − log start)² / 2 so that every position has a
    solution.
    """
    clicks = summed(cells.slot, cells.clicks, len(start))
    first = np.log(np.maximum(start, 1e-9))
    found, free = first.copy(), np.flatnonzero(np.arange(len(start)) != anchor)
    for _ in range(_STEPS):
        table, total = _shares(cells, np.exp(found))
        slope = clicks - table.T @ total - _HELD * (found - first)
        curve = information_of(cells, np.exp(found)) + _HELD * np.eye(len(start))
        step = np.linalg.solve(curve[np.ix_(free, free)], slope[free])
        found[free] += np.clip(step, -1.0, 1.0)
        if np.abs(step).max(initial=0.0) < _SMALL:
            break
    return np.clip(np.exp(found), 1e-6, 1.0)


def _shares(cells: Cells, theta: Floats) -> tuple[csr_array, Floats]:
    """Return the probabilities w of every pair, and its clicks."""
    pairs = int(cells.pair[-1]) + 1
    exposed = cells.shown * theta[cells.slot]
    share = exposed / summed(cells.pair, exposed, pairs)[cells.pair]
    table = csr_array((share, (cells.pair, cells.slot)), shape=(pairs, len(theta)))
    return table, summed(cells.pair, cells.clicks, pairs)


def information_of(cells: Cells, theta: Floats) -> Floats:
    """Return the information on log θ, positions × positions."""
    shares, clicks = _shares(cells, theta)
    table = shares.multiply(np.sqrt(clicks)[:, None]).tocsr()
    found: Floats = -(table.T @ table).toarray()
    # Compute the diagonal from the other sums, so that positions without neighbors have exactly 0.
    np.fill_diagonal(found, 0.0)
    found[np.diag_indices(len(theta))] = -found.sum(axis=1)
    return found
