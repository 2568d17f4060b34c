"""Work that can be given up: whoever started it says so, and the work looks between its blocks."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator


class GivenUpError(Exception):
    """Nobody waits for this work any longer. Raised by `checkpoint`, for whoever started the work."""


class Job:
    """Some work, on any number of threads; `given_up`: whether it should stop.

    until: when whoever waits for it will give it up, by `time.monotonic`.
    """

    __slots__ = ("given_up", "until")

    def __init__(self, until: float = math.inf) -> None:
        self.given_up = False
        self.until = until


_here = threading.local()


def checkpoint() -> None:
    """Stop here, by a GivenUpError, if the work that this thread does has been given up."""
    job: Job | None = getattr(_here, "job", None)
    if job is not None and job.given_up:
        raise GivenUpError


def time_left() -> float:
    """The seconds until the work that this thread does will be given up; infinite where nobody waits for it."""
    job = current_job()
    return math.inf if job is None else job.until - time.monotonic()


def current_job() -> Job | None:
    """What this thread works for; None where nobody can give it up."""
    found: Job | None = getattr(_here, "job", None)
    return found


@contextlib.contextmanager
def working_for(job: Job | None) -> Iterator[None]:
    """Everything that this thread does in the block is work for that job."""
    before, _here.job = current_job(), job
    try:
        yield
    finally:
        _here.job = before
