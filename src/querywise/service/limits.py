"""What a request may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on one request, and on how many are worked on at a time.

    body_bytes, documents and queries bound what is read, seconds how long reading and answering may each take, waiting
    how many requests may stand in line for a thread.
    """

    body_bytes: int = 16_000_000
    documents: int = 20_000
    queries: int = 1_000
    seconds: float = 10.0
    waiting: int = 64
