"""What tells one set of data from another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from querywise.runtime.arrays import Bools, Floats, Ints


def fingerprint_of(parts: Iterable[str | Floats | Ints | Bools | None]) -> str:
    """A checksum of texts and of arrays, one after the other; None is nothing."""
    found = hashlib.sha256()
    for part in parts:
        if part is not None:
            found.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).data)
    return found.hexdigest()
