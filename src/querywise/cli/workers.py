"""The workers of a command: `--cluster` and `--memory`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from querywise.data.training import Training

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
    """Use the workers given, while the block runs."""
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
        from querywise.runtime.workers import ThisProcess, use_workers

        with use_workers(ThisProcess(budget)):
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


def bytes_from(text: str) -> int:
    """A number of bytes from texts like 4GB, 1.5g and 800 MB."""
    from querywise.errors import DataError

    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    number = 0 if found is None else float(found[1]) * _UNITS[found[2].lower()]
    if number < 1:
        raise DataError(f"--memory {text}: expected a size like 4GB or 800MB.")
    return int(number)
