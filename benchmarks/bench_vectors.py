"""Search by vectors: exact, against the flat indexes of faiss and usearch, and approximate, against exact."""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.results import Result, alone, compared
from benchmarks.timing import seconds
from querywise.data.judged import Candidates
from querywise.data.run_columns import run_feature_names
from querywise.retrieval.signals import signals
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.arrays import Floats, Singles
from querywise.runtime.threads import available_cores

_DOCUMENTS = int(os.environ.get("QUERYWISE_BENCH_VECTORS", "1000000"))
_DIMENSION, _TOP = 384, 100
_LATENT = 32  # directions in which the vectors of approximate search differ most
_LINKED = min(_DOCUMENTS, 200_000)
_BLOCK = 50_000
_CASES = {"one query": 1, "128 queries at once": 128}
_TIMES = 5
_MOST = 1.3
_SIGNALLED = 1_000  # queries, with a hundred candidates each

Search = Callable[[Floats], object]


def measure() -> Iterator[Result]:
    """Vectors: VectorIndex.search against faiss's flat index and usearch's exact search.

    A million made-up vectors of 384 numbers, of length 1, in single precision and in memory; the best 100 of each
    query, by cosine here and by inner product there. Times are medians of runs by turns, per query; the ratio is ours /
    theirs. All use as many threads as there are cores. Ours computes the similarities of what it found again in double
    precision, and so finds the same whatever else is asked beside a query. What is not installed is left out:
    pip install 'querywise[peers]'. QUERYWISE_BENCH_VECTORS sets another number of vectors.

    Signals are those of a query with two lists, 50 documents each.
    """
    values, queries = _made()
    index = _index(values)
    others = dict(_others(values))
    for name, count in _CASES.items():
        asked = queries[:count]
        ours = _by_turns({"ours": lambda asked: index.search(asked, top=_TOP), **others}, asked)
        yield alone("vectors", f"{name}, ours", ours=ours["ours"], unit="ms")
        for other in others:
            ratio = ours["ours"] / ours[other]
            aim, reached = (f"≤ {_MOST:g}×", ratio <= _MOST) if other == "faiss" else ("", None)
            yield Result("vectors", f"{name}, {other}", ours["ours"], ours[other], "ms", ratio, aim, reached)
    candidates = _lists()
    spent = statistics.median(seconds(lambda: signals(candidates)) for _ in range(_TIMES))
    yield alone("vectors", "signals of a query", ours=1e3 * spent / _SIGNALLED, unit="ms")


def measure_approximate() -> Iterator[Result]:
    """Approximate search: VectorIndex.search with a graph by usearch against exact search of the same vectors.

    200,000 made-up vectors of 384 numbers that differ mostly in 32 directions, as those of texts do; the best 100 of
    each query. Recall is the share of these that is found, the mean over 100 queries. Times are medians of runs by
    turns, per query; the ratio is exact / approximate. Linking is in one thread. What is kept is the graph with its own
    copy of the vectors, in half precision. QUERYWISE_BENCH_VECTORS sets another number of vectors.
    """
    if importlib.util.find_spec("usearch") is None:
        print("usearch is not installed, so nothing is measured: pip install 'querywise[usearch]'")
        return
    values, queries = _alike()
    exact = _index(values)
    begun = time.perf_counter()
    made = exact.with_graph()
    spent = time.perf_counter() - begun
    yield alone("approximate", f"linking, per vector, {_LINKED:,} in all", ours=1e3 * spent / _LINKED, unit="ms")
    assert made.graph is not None
    yield alone("approximate", "what is kept, per vector", ours=len(made.graph.content) / _LINKED / 1e3, unit="kB")
    yield alone("approximate", "recall of the best 100", ours=made.recall(queries, top=_TOP).share, unit="")
    for name, count in _CASES.items():
        both: dict[str, Search] = {
            "ours": lambda asked: made.search(asked, top=_TOP),
            "exact": lambda asked: exact.search(asked, top=_TOP),
        }
        taken = _by_turns(both, queries[:count])
        yield compared("approximate", name, ours=taken["ours"], theirs=taken["exact"], unit="ms")


def _index(values: Singles) -> VectorIndex:
    return VectorIndex(values, np.linalg.norm(values, axis=1).astype(np.float64))


def _alike() -> tuple[Singles, Floats]:
    """Documents and queries that differ mostly in a few directions."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((_LATENT, _DIMENSION)).astype(np.float32)

    def drawn(count: int) -> Singles:
        latent = rng.standard_normal((count, _LATENT), np.float32)
        return latent @ directions + rng.standard_normal((count, _DIMENSION), np.float32)

    return drawn(_LINKED), drawn(max(_CASES.values())).astype(np.float64)


def _made() -> tuple[Singles, Floats]:
    rng = np.random.default_rng(0)
    values = np.empty((_DOCUMENTS, _DIMENSION), np.float32)
    for first in range(0, _DOCUMENTS, _BLOCK):
        part = rng.standard_normal((min(_BLOCK, _DOCUMENTS - first), _DIMENSION), np.float32)
        values[first : first + _BLOCK] = part / np.linalg.norm(part, axis=1, keepdims=True)
    return values, rng.standard_normal((max(_CASES.values()), _DIMENSION))


def _others(values: Singles) -> Iterator[tuple[str, Search]]:
    """What is installed of the others."""
    for name, maker in (("faiss", _faiss), ("usearch", _usearch)):
        try:
            yield name, maker(values)
        except ImportError:
            print(f"{name} is not installed, so it is left out.")


def _faiss(values: Singles) -> Search:
    faiss = importlib.import_module("faiss")
    faiss.omp_set_num_threads(available_cores())
    index = faiss.IndexFlatIP(_DIMENSION)
    index.add(values)
    return lambda asked: index.search(asked.astype(np.float32), _TOP)


def _usearch(values: Singles) -> Search:
    usearch = importlib.import_module("usearch.index")
    how = {"exact": True, "metric": usearch.MetricKind.IP, "threads": available_cores()}
    return lambda asked: usearch.search(values, asked.astype(np.float32), _TOP, **how)


def _by_turns(searches: dict[str, Search], asked: Floats) -> dict[str, float]:
    """The median milliseconds of each per query, after one run that nobody counts."""
    spent: dict[str, list[float]] = {name: [] for name in searches}
    for turn in range(_TIMES + 1):
        for name, search in searches.items():
            taken = seconds(lambda search=search: search(asked))  # type: ignore[misc]
            if turn:
                spent[name].append(1e3 * taken / len(asked))
    return {name: statistics.median(times) for name, times in spent.items()}


def _lists() -> Candidates:
    """Queries with two lists of fifty documents, ten of them the same."""
    rng = np.random.default_rng(0)
    scores, ranks = -np.sort(-rng.random((_SIGNALLED, 2, 50)), axis=2), 1 / np.arange(1.0, 51.0)
    rows = np.zeros((_SIGNALLED, 90, 4))
    for run, first in ((0, 0), (1, 40)):
        rows[:, first : first + 50, 2 * run] = scores[:, run]
        rows[:, first : first + 50, 2 * run + 1] = ranks
    names, ids = run_feature_names(["bm25", "vectors"]), tuple(map(str, range(_SIGNALLED)))
    return Candidates(rows.reshape(-1, 4), np.arange(_SIGNALLED + 1) * 90, ids, feature_names=names)
