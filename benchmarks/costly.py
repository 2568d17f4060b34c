"""Requests that cost the server much, and what those of others suffer meanwhile."""

from __future__ import annotations

import http.client
import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.bench_service import request
from benchmarks.results import Result, alone
from querywise import recommended, save
from querywise.data.judged import Judged
from tests.serving import COMMAND, Serving, started

_EXPLANATIONS, _DOCUMENTS, _TREES, _ROUNDS = 10, 2_000, 200, 3
_NAME = "ten expensive explanations at once"


def measure_explanations(data: Judged) -> Iterator[Result]:
    """Ten explanations of two among 2,000 documents by the recommended blend, all at once, three times over.

    A client ranks 100 documents again and again meanwhile. Memory is compared from the end of the first round on.
    """
    width = data.feature_count
    features = np.random.default_rng(1).normal(size=(_DOCUMENTS, width)).round(6)
    documents = [{"id": f"d{row}", "features": each.tolist()} for row, each in enumerate(features)]
    body = json.dumps({"query": {"id": "q"}, "documents": documents, "above": "d1", "below": "d2"}).encode()
    with tempfile.TemporaryDirectory() as place:
        save(recommended(trees=_TREES).fit(data), Path(place) / "model")
        with started([COMMAND, "serve", Path(place) / "model", "--port", 0]) as server:
            client = _Client(server)
            memory, answers = [], []
            for _ in range(_ROUNDS):
                answers += _at_once(server, body)
                memory.append(_megabytes(server))
            client.stop()
    assert client.waits, "nobody was answered"
    failed, answered = float(client.failed), len(client.waits)
    lost = len(answers) - sum(status in (200, 503) for status in answers)
    yield alone("faults", f"{_NAME}: failed, of {answered}", ours=failed, unit="", below=1)
    yield alone("faults", f"{_NAME}: lost, of {len(answers)}", ours=float(lost), unit="", below=1)
    yield alone("faults", f"{_NAME}: longest wait of others", ours=1000 * max(client.waits), unit="ms", below=1000)
    yield alone("faults", f"{_NAME}: growth", ours=memory[-1] - memory[0], unit="MB", below=50)


class _Client:
    """A thread that ranks again and again, and keeps how long each answer took."""

    def __init__(self, server: Serving) -> None:
        self.waits: list[float] = []
        self.failed = 0
        self._line = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        body = json.dumps(request()).encode()
        while not self._stop.is_set():
            begun = time.monotonic()
            self.failed += _status(self._line, "/v1/rank", body) != 200
            self.waits.append(time.monotonic() - begun)


def _at_once(server: Serving, body: bytes) -> list[int]:
    """The statuses of explanations that are asked for together; 0 where there was no answer."""
    found: list[int] = []

    def ask() -> None:
        line = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
        found.append(_status(line, "/v1/explain", body))
        line.close()

    threads = [threading.Thread(target=ask) for _ in range(_EXPLANATIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _status(line: http.client.HTTPConnection, path: str, body: bytes) -> int:
    try:
        line.request("POST", path, body, {"Content-Type": "application/json"})
        answer = line.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        line.close()
        return 0
    return answer.status


def _megabytes(server: Serving) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1e3
