"""Adapted query vectors without querywise: an adapter's tables, and a script that applies them with numpy alone."""

from __future__ import annotations

import io
from importlib.resources import files as resources

import numpy as np

from querywise.retrieval.adapted_vectors import AdaptedVectors

SCRIPT, TABLES = "transform.py", "adapter.npz"


def transform_files(adapter: AdaptedVectors) -> dict[str, bytes]:
    """Return the files' contents by their names."""
    content = io.BytesIO()
    np.savez(
        content,
        gamma=np.float64(0.0 if adapter.gamma_ is None else adapter.gamma_),
        landmarks=adapter.queries_[adapter.landmarks_],
        responses=adapter.responses_,
        map=adapter.map_,
        blocks=np.array(adapter.blocks or (), dtype=np.int64),
        shares=np.array(adapter.shares_ if adapter.blocks else (), dtype=np.float64),
    )
    script = resources("querywise.exports.scripts").joinpath(SCRIPT).read_bytes()
    return {TABLES: content.getvalue(), SCRIPT: script}
