"""Checks of a set of shards against a memory budget, before anything is read."""

from __future__ import annotations

from pathlib import Path

from querywise.errors import DataError
from querywise.runtime.workers import ITSELF, WORKING, workers


def require_room_for_a_shard(folder: Path, rows: int, features: int) -> None:
    """Refuse a budget in which the largest shard, of so many rows, cannot be worked on."""
    shard = 8 * rows * features
    memory, needed = workers().memory, ITSELF + (WORKING + 1) * shard
    if memory is not None and memory <= ITSELF:
        raise DataError(
            f"{memory / 1e6:.0f} MB are allowed; Python and its libraries alone take {ITSELF / 1e6:.0f} MB. Allow more."
        )
    if memory is not None and needed > memory:
        raise DataError(
            f"{folder}: its largest shard takes {shard / 1e6:.0f} MB, and working on it {needed / 1e6:.0f} MB in all; "
            f"{memory / 1e6:.0f} MB are allowed. Allow more, or convert the data into smaller shards."
        )


def require_room_for_all(folder: Path, rows: int, features: int) -> None:
    """Refuse a budget in which all shards, of so many rows together, cannot be in memory at once."""
    memory, size = workers().memory, 8 * rows * features
    if memory is not None and 2 * size + ITSELF > memory:
        raise DataError(
            f"{folder}: what is asked for needs all {rows} documents in memory at once, {size / 1e9:.1f} GB; "
            f"{memory / 1e9:.1f} GB are allowed. ranksvm, single and the knn-offline methods go shard by shard."
        )
