"""Minutes of mixed load, and everything that can go wrong meanwhile: no request may fail, and nothing may pile up."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import attacks
from benchmarks.bench_interleaving import measure_events
from benchmarks.bench_service import request
from benchmarks.costly import measure_explanations
from benchmarks.fault_injection import measure_injected_faults
from benchmarks.hostile import measure_hostile
from benchmarks.intruders import measure_intruders
from benchmarks.predicted_costs import measure_predictions
from benchmarks.results import Result, above, alone
from benchmarks.worlds import World
from benchmarks.writers import measure_kills, measure_reloads, measure_writers
from querywise import KnnOffline2, KnnOnline, RankSVM, Single, save
from querywise.rankers.ensemble.ensemble import SSER
from tests.serving import COMMAND, started

_MINUTES = float(os.environ.get("QUERYWISE_SOAK_MINUTES", "10"))
_FEATURES, _CLIENTS, _LEFT = 46, 4, 3000
_NEW = 0.1  # of requests over a new connection
_SLOW = 1.0  # seconds that a good client may wait
_WRONG = (b"", b"[" * 50_000, b'{"query": {}, "documents": [{"id": "a", "features": ["x"]}]}', b"\xff\xfe", b"NaN")


def measure_soak() -> Iterator[Result]:
    """Soak: ten minutes of mixed load, a model replaced every twenty seconds.

    Four clients send single rankings of 1 to 1,000 documents, batches, explanations and requests that are wrong; four
    kinds of model take turns. Memory is that of the server process whenever the first model has been served for
    twenty seconds, the median of ten looks at it. QUERYWISE_SOAK_MINUTES sets another length.
    """
    data = World(_FEATURES, kinds=3).draw(300, 20, seed=1)
    models: list[Any] = [
        Single(RankSVM()),
        KnnOffline2(RankSVM(tolerance=None)),
        KnnOnline(RankSVM(tolerance=None)),
        SSER(),
    ]
    fitted = [model.fit(data) for model in models]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        save(fitted[0], folder)
        with started([COMMAND, "serve", folder, "--port", 0]) as server:
            url, process = server.url, server.process
            clients = _Clients(url)
            memory: list[float] = []
            end, turn = time.monotonic() + 60 * _MINUTES, 0
            while time.monotonic() < end:
                turn += 1
                save(fitted[turn % len(fitted)], folder)
                time.sleep(min(20.0, max(end - time.monotonic(), 1.0)))
                if turn % len(fitted) == 0:
                    memory.append(_usual_megabytes(process))
            clients.stop()
    yield alone("soak", "requests answered", ours=float(sum(clients.seen.values())), unit="")
    yield alone("soak", "requests that failed", ours=float(clients.failed), unit="", below=1)
    yield alone("soak", "memory at the end", ours=memory[-1], unit="MB")
    if len(memory) > 2:
        half = memory[-1] - memory[len(memory) // 2]
        yield alone("soak", "growth from the second turn of models on", ours=memory[-1] - memory[1], unit="MB")
        yield above(0.0, alone("soak", "growth in the second half", ours=half, unit="MB", below=1))


def measure_faults() -> Iterator[Result]:
    """Faults: what is done to the server while two clients ask without a pause.

    Ours are the requests of these clients that failed or took over a second meanwhile; none may, and nothing may need
    a restart. Memory is that of the server process before and after the attacks, from the connections left on.
    """
    data = World(_FEATURES, kinds=3).draw(300, 20, seed=1)
    first, second = Single(RankSVM()).fit(data), KnnOffline2(RankSVM(tolerance=None)).fit(data)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        save(first, folder)
        with started([COMMAND, "serve", folder, "--port", 0]) as server:
            url, process = server.url, server.process
            left = f"{_LEFT} connections opened and left"
            deeds: dict[str, Callable[[], None]] = {
                "the model replaced ten times": lambda: _replace(folder, [first, second]),
                "the model cut short": lambda: _cut(folder),
                "the model removed": lambda: shutil.rmtree(folder),
                "a model again": lambda: save(second, folder),
                "a body of a million documents": lambda: _giant(url),
                "a body without an end": lambda: _endless(url),
                left: lambda: _left(url),
                "a thousand requests that are wrong": lambda: _wrong(url),
                f"{attacks.DRIPPING} connections that drip": lambda: attacks.attack("drip", url),
                "100 MB of headers": lambda: attacks.attack("head", url),
            }
            memory: dict[str, float] = {}
            for name, deed in deeds.items():
                memory[name] = _megabytes(process)
                answered, failed = _meanwhile(url, deed)
                yield alone("faults", f"{name}: failed, of {answered}", ours=float(failed), unit="", below=1)
            before, after = memory[left], _megabytes(process)
            yield alone("faults", "memory before the attacks", ours=before, unit="MB")
            yield alone("faults", "growth by the attacks", ours=after - before, unit="MB", below=20)
            for deed in list(deeds.values())[list(deeds).index(left) :]:
                _meanwhile(url, deed)
            assert process.poll() is None, "the server is gone"
            again = _megabytes(process) - after
            yield alone("faults", "growth by the same attacks again", ours=again, unit="MB", below=5)
    yield from measure_explanations(data)
    yield from measure_intruders()
    yield from measure_events()
    yield from measure_writers()
    yield from measure_kills()
    yield from measure_reloads()
    yield from measure_predictions()
    yield from measure_injected_faults()
    yield from measure_hostile()


def _meanwhile(url: str, deed: Callable[[], None]) -> tuple[int, int]:
    """Requests of two clients that were answered while something was done, and those that failed or waited too long."""
    clients = _Clients(url, count=2, wrong=False)
    time.sleep(1)
    deed()
    time.sleep(2)
    clients.stop()
    answered = sum(clients.seen.values())
    assert answered > 0, "nobody was answered"
    return answered, clients.failed + clients.slow


class _Clients:
    """Threads that ask and count."""

    def __init__(self, url: str, *, count: int = _CLIENTS, wrong: bool = True) -> None:
        self.seen: Counter[int] = Counter()
        self.failed = 0
        self.slow = 0
        self._wrong = wrong
        self._where = url.removeprefix("http://")
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=[seed]) for seed in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, seed: int) -> None:
        rng = random.Random(seed)
        line = http.client.HTTPConnection(self._where, timeout=60)
        bodies = _bodies(seed)
        while not self._stop.is_set():
            path, body, expected = rng.choice(bodies if self._wrong else bodies[:3])
            if rng.random() < _NEW:
                line.close()
            begun = time.monotonic()
            try:
                line.request("POST", path, body, {"Content-Type": "application/json"})
                answer = line.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                self.failed += 1
                line.close()
                continue
            self.seen[answer.status] += 1
            self.failed += answer.status not in expected
            self.slow += time.monotonic() - begun > _SLOW


def _bodies(seed: int) -> list[tuple[str, bytes, tuple[int, ...]]]:
    one = request(seed)
    documents = one["documents"]
    many = [{"id": f"d{row}", "features": documents[row % 100]["features"]} for row in range(1000)]
    pair = {"above": "d1", "below": "d2"}
    good: list[tuple[str, Any]] = [
        ("/v1/rank", one),
        ("/v1/rank", {**one, "documents": documents[:1]}),
        ("/v1/rank", {**one, "documents": many}),
        ("/v1/rank/batch", {"requests": [one] * 5}),
        ("/v1/explain", {**one, **pair}),
    ]
    said = [(path, json.dumps(content).encode(), (200,)) for path, content in good]
    return said + [("/v1/rank", body, (400, 422)) for body in _WRONG]


def _replace(folder: Path, models: list[Any]) -> None:
    for turn in range(10):
        save(models[turn % 2], folder)
        time.sleep(0.5)


def _cut(folder: Path) -> None:
    arrays = next(folder.glob("arrays-*"))
    arrays.write_bytes(arrays.read_bytes()[:100])


def _giant(url: str) -> None:
    """A million documents, sent as long as the server listens."""
    host, port = url.removeprefix("http://").split(":")
    row = json.dumps({"id": "d", "features": np.zeros(_FEATURES).tolist()}).encode() + b","
    with socket.create_connection((host, int(port)), timeout=30) as line:
        head = f"POST /v1/rank HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(row) * 1_000_000}\r\n\r\n"
        try:
            line.sendall(head.encode())
            for _ in range(1_000_000):
                line.sendall(row)
        except OSError:
            return
    raise AssertionError("a million documents were taken")


def _endless(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(f"POST /v1/rank HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        try:
            while True:
                line.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        except OSError:
            return


def _left(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    script = f"""
import resource, socket, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
lines = [socket.create_connection(({host!r}, {port}), timeout=60) for _ in range({_LEFT})]
for line in lines[::2]:
    line.sendall(b"POST /v1/rank HTTP/1.1\\r\\nContent-Le")
time.sleep(5)
"""
    subprocess.run(["python3", "-c", script], check=True)


def _wrong(url: str) -> None:
    for turn in range(1000):
        line = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        line.request("POST", "/v1/rank", _WRONG[turn % len(_WRONG)])
        assert line.getresponse().status in (400, 422)
        line.close()


def _usual_megabytes(process: subprocess.Popen[str]) -> float:
    """The median of ten looks, half a second apart: the requests of a moment need more or less."""
    looks = []
    for _ in range(10):
        looks.append(_megabytes(process))
        time.sleep(0.5)
    return statistics.median(looks)


def _megabytes(process: subprocess.Popen[str]) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1e3
