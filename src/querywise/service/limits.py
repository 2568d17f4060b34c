"""Limits on requests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits on the size and time of one request, and on how many wait and are held at a time.

    body_bytes: the longest body that is read.
    documents, queries: the most of each in one request.
    seconds: the longest time for reading the body, and the longest for computing the answer.
    waiting: the most requests that wait for a free thread.
    table_bytes: of the features of all documents of one request.
    held_bytes: of all large bodies that are being answered; one alone may be longer.
    """

    body_bytes: int = 16_000_000
    documents: int = 20_000
    queries: int = 1_000
    seconds: float = 10.0
    waiting: int = 64
    table_bytes: int = 256_000_000
    held_bytes: int = 128_000_000
