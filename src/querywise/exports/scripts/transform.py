"""Move query vectors as the adapter beside this does, by numpy alone: python transform.py queries.npy adapted.npy"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def unit(vectors: Any) -> Any:
    """Scale vectors to length 1; zero vectors stay unchanged."""
    lengths = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def transform(queries: Any, adapter: Mapping[str, Any]) -> Any:
    """Return adapted vectors, one row per query: f(q) = q + map · q + the sum of exp(gamma · (cos − 1)) · response."""
    given = np.asarray(queries, dtype=np.float64)
    # The vectors of several embedders are concatenated: each part has length 1, times the embedder's share.
    parts = np.split(given, np.cumsum(adapter["blocks"])[:-1], axis=1)
    scale = np.sqrt(np.repeat(adapter["shares"], adapter["blocks"])) if len(parts) > 1 else np.ones(given.shape[1])
    plain = unit((np.hstack([unit(each) for each in parts]) * scale)[:, scale > 0])
    single, moved = plain.astype(np.float32), plain
    if len(adapter["map"]):
        moved = moved + single @ adapter["map"]
    if len(adapter["responses"]):
        near = np.minimum(single @ adapter["landmarks"].T - 1, 0) * np.float32(adapter["gamma"])
        moved = moved + np.exp(near) @ adapter["responses"]
    found = np.zeros_like(given)
    found[:, scale > 0] = np.where(plain.any(axis=1, keepdims=True), unit(moved.astype(np.float64)), 0.0)
    return found * scale


if __name__ == "__main__":
    with np.load(Path(__file__).with_name("adapter.npz")) as stored:
        np.save(sys.argv[2], transform(np.load(sys.argv[1]), dict(stored)))
