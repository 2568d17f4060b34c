"""Training on shards: within a budget of memory, and on a Ray cluster on this machine's own cores."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import Result, alone
from benchmarks.timing import PRINT_PEAK, numbers_from_python, seconds
from benchmarks.worlds import World
from querywise import Judged, KnnOffline2, RankSVM, open_shards
from querywise.data.parquet.writing import write_shards
from querywise.locality.neighborhoods import Nearest

DOCUMENTS, FEATURES, K, _GRADES = 120, 136, 500, 5
WHOLE, _EIGHTH = 18_919, 2_365  # queries: as many as MSLR-WEB30K has, and an eighth
ONE, MANY = "RankSVM", f"KnnOffline2, {WHOLE:,} models"
NEIGHBOURS = "of which the neighbours of every query, no cluster"
_BUDGET, _TIMES = 1.0, 3  # gigabytes, and how many of them the training set has
_AIM = 1.2
_STORE = 4_000_000_000  # bytes of shared memory; test clusters are given a twentieth of that otherwise

_FIT = "from benchmarks.bench_cluster import fit\nfit({folder!r}, {method!r}, {cluster!r})"
_COMMAND = """
import sys
from querywise.cli import app
sys.argv = ["querywise", "fit", {folder!r}, "--method", "ranksvm", "--out", {out!r}, "--quiet", *{more!r}]
import time
begin = time.perf_counter()
try:
    app()
except SystemExit as ended:
    assert not ended.code, ended.code
print(time.perf_counter() - begin)
"""


def measure_memory() -> Iterator[Result]:
    """A training set three times the memory: `querywise fit SHARDS --method ranksvm --memory 1GB`.

    3 GB of features, made up, in shards of 50,000 documents. Theirs is the same without a budget.
    """
    with tempfile.TemporaryDirectory(prefix="querywise-bench-") as root:
        folder = Path(root, "train.parquet")
        queries = round(_TIMES * _BUDGET * 1e9 / (8 * FEATURES * DOCUMENTS))
        shards = write_shards(_drawn(queries), folder, rows=50_000)
        size = 8 * shards.rows * FEATURES / 1e9
        yield alone("memory", f"the training set, {len(shards.files)} shards", ours=size, unit="GB")
        found = [
            numbers_from_python(
                _COMMAND.format(folder=str(folder), out=str(Path(root, "model")), more=more) + PRINT_PEAK
            )
            for more in (["--memory", f"{_BUDGET:g}GB"], [])
        ]
        (ours, our_peak), (theirs, their_peak) = found
        yield alone("memory", "peak within the budget", ours=our_peak / 1e3, unit="GB", below=_BUDGET)
        yield alone("memory", "peak without one", ours=their_peak / 1e3, unit="GB")
        yield Result("memory", "training", ours, theirs, "s", ours / theirs, "", None)


def measure_cluster() -> Iterator[Result]:
    """Ray on this machine: the same training with `--cluster auto` and without, on as many cores.

    The shape of MSLR-WEB30K: 18,919 queries × 120 documents × 136 features, made up, in 16 shards; KnnOffline2 has
    k = 500. Starting Ray is not in the times, reading the shards is. The ratio is ours / theirs.
    """
    with tempfile.TemporaryDirectory(prefix="querywise-bench-") as root:
        folder = str(Path(root, "whole.parquet"))
        write_shards(_drawn(WHOLE), folder, rows=WHOLE * DOCUMENTS // 16 + DOCUMENTS)
        for method, what in (("one", ONE), ("many", MANY)):
            (theirs,) = numbers_from_python(_FIT.format(folder=folder, method=method, cluster=None))
            start, ours = numbers_from_python(_FIT.format(folder=folder, method=method, cluster="auto"))
            yield Result("cluster", what, ours, theirs, "s", ours / theirs, f"≤ {_AIM:g}×", ours / theirs <= _AIM)
        points = np.random.default_rng(0).normal(size=(WHOLE, FEATURES))
        yield alone("cluster", NEIGHBOURS, ours=seconds(lambda: Nearest(K).fit(points).weights(points)), unit="s")
        yield alone("cluster", "starting Ray", ours=start, unit="s")


def measure_growth() -> Iterator[Result]:
    """Shards and workers: KnnOffline2 on an eighth of that, in more shards, and by more workers than there are cores.

    Without a cluster, and on a cluster of one machine with so many workers. Theirs is the first of each kind.
    """
    with tempfile.TemporaryDirectory(prefix="querywise-bench-") as root:
        for count in (1, 4, 16, 64):
            folder = str(Path(root, f"{count}.parquet"))
            write_shards(_drawn(_EIGHTH), folder, shards=count)
        ways = [(f"{count} shards, no cluster", count, None) for count in (1, 4, 16, 64)]
        yield from _beside_the_first(ways, root)
        yield from _beside_the_first([(f"16 shards, {count} workers", 16, count) for count in (1, 2, 4)], root)


def _beside_the_first(ways: Sequence[tuple[str, int, int | None]], root: str) -> Iterator[Result]:
    first = 0.0
    for what, shards, workers in ways:
        folder = str(Path(root, f"{shards}.parquet"))
        took = numbers_from_python(_FIT.format(folder=folder, method="many", cluster=workers))[-1]
        first = first or took
        yield Result("growth", what, took, first, "s", took / first, "", None)


def fit(folder: str, method: str, cluster: str | int | None) -> None:
    """What a fresh process does: prints how long Ray took to start, where it is asked for, and how long training."""
    small = World(FEATURES, kinds=3).draw(20, 10, seed=1)
    KnnOffline2(RankSVM(), k=5).fit(small)  # whatever is compiled or loaded only once
    begin = time.perf_counter()
    with _workers(cluster) as pool:
        if pool is not None:
            KnnOffline2(RankSVM(), k=5).fit(small)  # by every worker too
            print(time.perf_counter() - begin)
        ranker: Any = RankSVM() if method == "one" else KnnOffline2(RankSVM(), k=K, back_off=None)
        begin = time.perf_counter()
        ranker.fit(open_shards(folder))
        print(time.perf_counter() - begin)


@contextlib.contextmanager
def _workers(cluster: str | int | None) -> Iterator[Any]:
    if cluster is None:
        yield None
        return
    from querywise.runtime.ray import RayCluster

    if isinstance(cluster, str):
        with RayCluster(cluster) as pool:
            yield pool
        return
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(
        initialize_head=True,
        head_node_args={"num_cpus": cluster, "include_dashboard": False, "object_store_memory": _STORE},
    )
    try:
        with RayCluster(nodes.address) as pool:
            yield pool
    finally:
        nodes.shutdown()


def _drawn(queries: int) -> Iterator[Judged]:
    """Queries of one world, some hundreds at a time."""
    world = World(FEATURES, kinds=3)
    for number, first in enumerate(range(0, queries, 500), start=1):
        yield world.draw(min(500, queries - first), DOCUMENTS, grades=_GRADES, seed=number)
