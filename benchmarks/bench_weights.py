"""Weights of runs over HTTP: how long one query takes, and how many are answered in a second."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import Result, alone
from benchmarks.serving import drive, is_there, waits
from benchmarks.timing import seconds
from querywise import save
from querywise.contracts.run_weights import weights_of_query
from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import run_feature_names
from querywise.locality.views.columns import VectorView
from querywise.rankers.weights.by_query import WeightsByQuery
from tests.serving import started

_TRAINING, _DOCUMENTS, _DIMENSION, _WORDS = 1_000, 50, 384, 3_000
_TIMES, _ROUNDS, _SECONDS = 500, 5, 4.0
_BELOW = 1.0  # ms
_ECHO, _WEIGHTS = "/v1/echo", "/v1/weights"


def measure() -> Iterator[Result]:
    """Weights of runs: POST /v1/weights of weights by query, from 1,000 training queries.

    By text and by vector (384 numbers) a query's weights come from its neighbours; by signals from the scores of its
    two lists, 50 documents each. One client on this machine asks over one connection, each time when it has its answer;
    the median counts. Theirs is a route of the same server that reads the same body as JSON and does nothing; both are
    asked by turns, and the ratio is ours / theirs. In Python is the same without HTTP. Requests per second are those of
    wrk over 8 connections, where it is installed.
    """
    data = _world()
    for name, (ranker, request) in _cases(data).items():
        with tempfile.TemporaryDirectory() as place:
            save(ranker.fit(data), Path(place) / "model")
            yield alone("weights", f"{name}, in Python", ours=_in_python(ranker, request), unit="ms")
            with started([sys.executable, "-m", "benchmarks.echo_server", Path(place) / "model"]) as server:
                yield from _served(name, server.url, request)


def _served(name: str, url: str, request: dict[str, Any]) -> Iterator[Result]:
    taken: dict[str, list[float]] = {_ECHO: [], _WEIGHTS: []}
    for path in taken:
        waits(url + path, request, times=50)
    for _ in range(_ROUNDS):
        for path in taken:
            taken[path] += waits(url + path, request, times=_TIMES // _ROUNDS)
    theirs, ours = (statistics.median(own) for own in taken.values())
    reached = ours < _BELOW
    yield Result("weights", f"{name}, a request", ours, theirs, "ms", ours / theirs, f"< {_BELOW:g} ms", reached)
    yield alone(
        "weights", f"{name}, 99 % of requests within", ours=float(np.quantile(taken[_WEIGHTS], 0.99)), unit="ms"
    )
    if is_there():
        theirs, ours = (drive(url + path, request, seconds=_SECONDS).per_second for path in taken)
        yield Result("weights", f"{name}, requests", ours, theirs, "/s", ours / theirs, "", None)


def _cases(data: Judged) -> dict[str, tuple[WeightsByQuery, dict[str, Any]]]:
    """What is served, and a request for it."""
    table = data.candidates.queries
    assert table is not None
    assert table.texts is not None
    assert table.vectors is not None
    near, signals = {"way": "neighbours", "kappa": 1.0, "shrinkage": 0.5}, {"signals_l2": 1.0, "shrinkage": 0.5}
    by_text, by_vector = WeightsByQuery(**near), WeightsByQuery(view=VectorView(), **near)  # type: ignore[arg-type]
    by_signals = WeightsByQuery(way="signals", **signals)  # type: ignore[arg-type]
    features = data.candidates.features[:_DOCUMENTS]
    lists = {
        run: dict(zip(map(str, range(_DOCUMENTS)), features[:, column].tolist(), strict=True))
        for run, column in (("bm25", 0), ("vectors", 2))
    }
    return {
        "text": (by_text, {"query": {"text": table.texts[0]}}),
        "vector": (by_vector, {"query": {"vector": table.vectors[0].tolist()}}),
        "signals": (by_signals, {"query": {"text": table.texts[0]}, "runs": lists}),
    }


def _in_python(ranker: WeightsByQuery, request: dict[str, Any]) -> float:
    """The median milliseconds of one call."""
    asked = request["query"]
    vector = np.array([asked["vector"]]) if "vector" in asked else None
    table = QueryTable(("query",), texts=(asked.get("text"),), vectors=vector)
    taken = [seconds(lambda: weights_of_query(ranker, table, request.get("runs"))) for _ in range(_TIMES)]
    return 1e3 * statistics.median(taken)


def _world() -> Judged:
    """Two kinds of query, told by words and by vectors; relevant documents stand out in the one list or the other."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=_TRAINING)
    relevant = rng.random((_TRAINING, _DOCUMENTS)) < 0.2
    scores = rng.random((_TRAINING, _DOCUMENTS, 2))
    scores[np.arange(_TRAINING), :, kind] += 0.8 * relevant
    ranks = np.argsort(np.argsort(-scores, axis=1), axis=1) + 1
    features = np.stack([scores[..., 0], 1 / ranks[..., 0], scores[..., 1], 1 / ranks[..., 1]], axis=2)
    words = rng.integers(_WORDS // 2, size=(_TRAINING, 6)) + kind[:, None] * (_WORDS // 2)
    ids = tuple(f"q{number}" for number in range(_TRAINING))
    table = QueryTable(
        ids,
        texts=tuple(" ".join(f"word{each}" for each in own) for own in words.tolist()),
        vectors=rng.standard_normal((_TRAINING, _DIMENSION)) + np.where(kind, 0.3, -0.3)[:, None],
    )
    starts, names = np.arange(_TRAINING + 1) * _DOCUMENTS, run_feature_names(["bm25", "vectors"])
    candidates = Candidates(features.reshape(-1, 4), starts, ids, feature_names=names, queries=table)
    return Judged(candidates, relevant.ravel().astype(np.int64))
