"""Small worlds whose right answer is visible, and where real data is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.judged import Candidates, Judged
from querywise.runtime.arrays import Floats

GOLDEN = Path(__file__).parent / "golden"
REAL_DATA = Path(__file__).parent.parent.parent / "shared" / "data"

# Real data is not part of the project; a machine that builds it must have it.
needs_real_data = pytest.mark.skipif(
    not REAL_DATA.is_dir() and not os.environ.get("CI"), reason="real judged data is not on this machine"
)


def inside(thing: object) -> Any:
    """Something of which a contract tells less than a test looks at."""
    return thing


def two_faced(queries: int, documents: int = 5) -> Judged:
    """Even queries want feature 0 high, odd queries want it low; feature 1 tells which."""
    value = np.linspace(-1.0, 1.0, documents)
    moods = [1.0 if query % 2 == 0 else -1.0 for query in range(queries)]
    features = np.vstack([np.column_stack([value, np.full(documents, mood)]) for mood in moods])
    labels = np.concatenate([(mood * value > 0.5).astype(np.int64) for mood in moods])
    starts = np.arange(queries + 1) * documents
    return Judged(Candidates(features, starts, tuple(map(str, range(queries)))), labels)


def ragged(seed: int = 0, queries: int = 12, features: int = 4, grades: int = 3) -> Judged:
    """Queries of 1 to 9 documents with random features, ties among them, and grades that follow the first feature.

    The last three are a single document, a query without a relevant document, and one where all documents are alike.
    """
    rng = np.random.default_rng(seed)
    sizes = np.concatenate([rng.integers(3, 10, size=queries), [1, 4, 3]])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    x = rng.normal(size=(starts[-1], features)).round(1)
    merit = x[:, 0] + 0.5 * rng.normal(size=len(x))
    labels = np.clip(np.floor(merit + 1), 0, grades - 1).astype(np.int64)
    labels[starts[-3] : starts[-2]] = 0
    x[starts[-2] :] = x[starts[-2]]
    return Judged(Candidates(x, starts, tuple(f"q{number}" for number in range(len(sizes)))), labels)


def explicit_pairs(data: Judged, features: Floats | None = None) -> tuple[Floats, Floats]:
    """Every preference pair written down: the difference of its features, and its query's number."""
    x = data.candidates.features if features is None else features
    differences, owners = [], []
    for query in range(len(data)):
        rows = range(*data.candidates.rows(query).indices(len(x)))
        for a in rows:
            for b in rows:
                if data.labels[a] > data.labels[b]:
                    differences.append(x[a] - x[b])
                    owners.append(float(query))
    return np.array(differences).reshape(-1, x.shape[1]), np.array(owners)
