"""Who does the work of a command: `--cluster` and `--memory`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from querywise.data.judged import Judged
    from querywise.data.training import Training
    from querywise.runtime.values import Settings

ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Let a Ray cluster do the work: auto starts one here, ray://host:port is one that runs already.",
        show_default=False,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="How much memory to keep to, as in 4GB, when training on shards; the rest waits on disk.",
        show_default=False,
    ),
]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@contextlib.contextmanager
def working(cluster: str | None, memory: str | None = None) -> Iterator[None]:
    """The crew asked for, at work while the block runs."""
    from querywise.errors import DataError

    if cluster is not None and memory is not None:
        raise DataError("--memory is for one machine; a cluster keeps to what Ray was started with.")
    budget = None if memory is None else bytes_from(memory)
    if cluster is not None:
        from querywise.runtime.ray import Cluster, keep_quiet

        keep_quiet()
        with Cluster(cluster):
            yield
    elif budget is not None:
        from querywise.runtime.workers import Here, at_work

        with at_work(Here(budget)):
            yield
    else:
        yield


def require_parts(data: Training, memory: str | None) -> None:
    """Refuse a memory budget for data that is in memory whole."""
    from querywise.errors import DataError

    if memory is not None and data.in_memory:
        raise DataError(
            "--memory is kept to on one set of shards as it is, without --features, --queries or --fold. `querywise "
            "convert` makes one of this data, and takes --features and --queries."
        )


@contextlib.contextmanager
def resumable(out: Path, train: Training, valid: Judged | None, settings: Settings, *, spread: bool) -> Iterator[None]:
    """Training of which what is finished is kept beside the model to be, where it is on shards or on a cluster."""
    if not spread and train.in_memory:
        yield
        return
    from importlib.metadata import version

    from querywise.jobs.resume import resuming
    from querywise.runtime.workers import crew

    data = [each.fingerprint() for each in (train, valid) if each is not None]
    cut = {"parts": crew().parts, "memory": crew().memory}  # what work is cut up by
    record = {**settings, "data": data, "version": version("querywise"), **cut}
    with resuming(out.absolute().parent / f".{out.name}.unfinished", record):
        yield


def bytes_from(text: str) -> int:
    """A number of bytes from texts like 4GB, 1.5g and 800 MB."""
    from querywise.errors import DataError

    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    number = 0 if found is None else float(found[1]) * _UNITS[found[2].lower()]
    if number < 1:
        raise DataError(f"--memory {text}: expected a size like 4GB or 800MB.")
    return int(number)
