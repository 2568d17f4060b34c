"""The measured costs of training on a cluster, carried forward on paper: `python -m benchmarks.projection`.

Computing grows with queries and shrinks with cores; looking for neighbours grows with their square. What travels is
counted: sums over shards to the machine that runs the command, and packed curvatures between workers.
"""

from __future__ import annotations

from benchmarks.bench_cluster import DOCUMENTS, FEATURES, MANY, NEIGHBOURS, ONE, WHOLE, K
from benchmarks.results import Result, load

_CORES_HERE = 2
_QUERIES, _MACHINES, _CORES = 10_000_000, 40, 16
_ROWS = 1_000_000  # in a shard
_NETWORK = 1.25e9  # bytes a second to each machine: ten gigabits
_TASK = 1e-3  # seconds the command's machine spends on handing out a task
_STEPS = 10  # of Newton
_ANCHORS = 10_000


def main() -> None:
    """Print the table."""
    report = load()
    found = {} if report is None else {each.what: each for each in report.results if each.bench == "cluster"}
    needed = (ONE, MANY, NEIGHBOURS)
    if any(what not in found for what in needed):
        raise SystemExit("Run `python -m benchmarks cluster` first.")
    print(table(*(found[what] for what in needed)))


def table(single: Result, local: Result, neighbours: Result) -> str:
    """A row for each part of the work: where it runs, and how long it takes."""
    cores, packed = _MACHINES * _CORES, 4 * FEATURES * (FEATURES + 1) // 2
    shards = _QUERIES * DOCUMENTS // _ROWS
    grown = _QUERIES / WHOLE * _CORES_HERE / cores
    features, curvature = 8 * _QUERIES * DOCUMENTS * FEATURES, packed * _QUERIES
    searching = neighbours.ours * (_QUERIES / WHOLE) ** 2 * _CORES_HERE / cores
    solving = (local.ours - single.ours - neighbours.ours) * grown
    travelling = _QUERIES * min(K, shards) * packed / (_MACHINES * _NETWORK)
    dispatch = _STEPS * 2 * shards * (_TASK + 8 * FEATURES**2 / _NETWORK / 2)
    share = _ANCHORS / _QUERIES
    rows = [
        ("features, in the workers' memory", _held(features)),
        ("curvature of every query, there too", _held(curvature)),
        ("RankSVM: workers", f"{single.ours * grown:.0f} s"),
        (f"RankSVM: handing out {_STEPS} steps over {shards:,} shards, and adding up", f"{dispatch:.0f} s"),
        ("a model for every query: neighbours, workers", f"{searching:,.0f} s"),
        ("… solving and certifying, workers", f"{solving:,.0f} s"),
        ("… packed curvatures over the network", f"{travelling:,.0f} s"),
        ("… V on the machine that runs the command", f"{16 * K * _QUERIES / 1e9:.0f} GB"),
        (f"{_ANCHORS:,} models (`models=`): neighbours, workers", f"{searching * share:,.0f} s"),
        ("… solving and certifying, workers", f"{solving * share:,.1f} s"),
        ("… packed curvatures over the network", f"{travelling * share:,.0f} s"),
        ("… V on the machine that runs the command", f"{16 * K * _ANCHORS / 1e9:.1f} GB"),
    ]
    head = f"| {_QUERIES:,} queries, {_MACHINES} machines of {_CORES} cores, 10 Gb/s | |\n|---|---|"
    return "\n".join([head, *(f"| {what} | {cost} |" for what, cost in rows)])


def _held(size: float) -> str:
    return f"{size / 1e9:,.0f} GB, {size / 1e9 / _MACHINES:.0f} GB a machine"


if __name__ == "__main__":
    main()
