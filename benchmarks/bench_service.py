"""Requests per second, against a route of the same server that reads the same body and ranks nothing."""

from __future__ import annotations

import statistics
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import Result, above, alone
from benchmarks.serving import Load, drive, is_there, waits
from benchmarks.worlds import World
from querywise import KnnOffline2, KnnOnline, LambdaMART, RankSVM, Single, save
from querywise.rankers.ensemble.ensemble import SSER
from tests.serving import started

_FEATURES, _DOCUMENTS, _TRAINING, _SECONDS, _ROUNDS = 46, 100, 500, 1.0, 19
_AIMS = {"KNN Offline-2": 0.8, "KNN Online": 0.6, "LambdaMART": 0.7}  # of the requests that are only read
_LEAST = {"SSER": 500.0}  # requests per second


def rankers() -> dict[str, Any]:
    """What is served."""
    return {
        "Single": Single(RankSVM()),
        "KNN Offline-2": KnnOffline2(RankSVM(tolerance=None)),
        "KNN Online": KnnOnline(RankSVM(tolerance=None)),
        "KNN Online, certified": KnnOnline(RankSVM()),
        "SSER": SSER(),
        "LambdaMART": Single(LambdaMART(100)),
    }


def request(seed: int = 9) -> dict[str, Any]:
    """One query's documents, as numbers of six digits."""
    features = World(_FEATURES, kinds=3).draw(1, _DOCUMENTS, seed=seed).candidates.features
    documents = [{"id": f"d{row}", "features": np.round(each, 6).tolist()} for row, each in enumerate(features)]
    return {"query": {"id": "q", "text": "a query"}, "documents": documents}


def as_bytes(content: dict[str, Any]) -> dict[str, Any]:
    """The same request with its features as bytes."""
    rows = np.array([each["features"] for each in content["documents"]])
    sent = {"base64": b64encode(rows.astype("<f8").tobytes()).decode(), "dtype": "float64", "shape": rows.shape}
    return {**content, "documents": {"ids": [each["id"] for each in content["documents"]], "features": sent}}


def measure() -> Iterator[Result]:
    """Service: 100 documents × 46 features per request, over loopback, 500 training queries.

    wrk drives it from a process of its own over 8 connections. Theirs is a route that this benchmark adds to the same
    server; it is found and called as ours is, reads the same body as JSON into Python's objects and ranks nothing. Both
    are driven in turn, nineteen times a second each, and the middle run counts. The ratio is ours / theirs, the middle
    one of nineteen, each of two runs after one another: machines do not keep their pace for a minute. Latencies are
    those of a busy server: eight requests wait. Features as bytes are the same request with a table in base64 in the
    place of numbers; theirs is still the request in JSON that is only read.
    """
    if not is_there():
        return
    data = World(_FEATURES, kinds=3).draw(_TRAINING, 35, seed=1)
    for name, ranker in rankers().items():
        with tempfile.TemporaryDirectory() as place:
            save(ranker.fit(data), Path(place) / "model")
            with started([sys.executable, "-m", "benchmarks.echo_server", Path(place) / "model"]) as server:
                yield from _compared(name, server.url)


def _compared(name: str, url: str) -> Iterator[Result]:
    content = request()
    waits(url + "/v1/rank", content, times=1)  # whatever is compiled only once
    asked = (("/v1/echo", content), ("/v1/rank", content), ("/v1/rank", as_bytes(content)))
    runs = [[_run(url, path, body) for path, body in asked] for _ in range(_ROUNDS)]
    empty, full, packed = (sorted(each, key=_pace)[_ROUNDS // 2] for each in zip(*runs, strict=True))
    of_full, of_packed = (statistics.median(_pace(each[way]) / _pace(each[0]) for each in runs) for way in (1, 2))
    failures = sum(load.failures for each in runs for load in each)
    assert failures == 0, f"{failures} requests failed"
    ratio, aim = of_full, _AIMS.get(name)
    said, reached = ("", None) if aim is None else (f"≥ {aim:g}×", ratio >= aim)
    if name in _LEAST:
        said, reached = f"≥ {_LEAST[name]:g} /s", full.per_second >= _LEAST[name]
    found = Result("service", f"{name}, requests", full.per_second, empty.per_second, "/s", ratio, said, reached)
    yield found if aim is None else above(empty.per_second, found)
    yield Result(
        "service", f"{name}, features as bytes", packed.per_second, empty.per_second, "/s", of_packed, "", None
    )
    yield alone("service", f"{name}, half of them within", ours=full.p50, unit="ms")
    yield alone("service", f"{name}, 99 % of them within", ours=full.p99, unit="ms")


def _pace(load: Load) -> float:
    return load.per_second


def _run(url: str, path: str, content: object) -> Load:
    return drive(url + path, content, seconds=_SECONDS)
