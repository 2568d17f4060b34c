"""What tells one judged set from another."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from querywise.data.judged import Judged


def fingerprint_of(data: Judged) -> str:
    """A checksum of documents, labels, query data, judgements and weights."""
    rows, table = data.candidates, data.candidates.queries
    known = () if table is None else (table.texts, table.classes, table.column_names)
    found = hashlib.sha256(repr((rows.query_ids, rows.document_ids, rows.feature_names, known)).encode())
    own = () if table is None else (table.columns, table.vectors)
    for array in (rows.features, rows.starts, data.labels, data.judged, *own):
        if array is not None:
            found.update(np.ascontiguousarray(array).data)
    if data.missed is not None:
        found.update(repr(data.missed.document_ids).encode())
        found.update(np.concatenate([data.missed.starts, data.missed.grades]).data)
    for name in ("gains", "query_weights", "document_weights"):
        values = getattr(data, name)
        if values is not None:
            found.update(name.encode())
            found.update(np.ascontiguousarray(values).data)
    return found.hexdigest()
