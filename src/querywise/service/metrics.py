"""Metrics, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BACK_OFFS = "Queries nowhere near a training query, answered by the global model."
_RELOADS = "Changes of the model folder, by what became of them."
_NEAREST = "Distance to the nearest training query, of queries looked at."
_DISTANCES = tuple(2.0**power for power in range(-6, 11))


class Histogram:
    """Counts of values per bucket, and their sum. `bounds` are the upper bounds of the buckets."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> Iterable[str]:
        """The lines of the text format."""
        joined, below = f"{labels}," if labels else "", 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            yield f'{name}_bucket{{{joined}le="{bound}"}} {below}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.total}"
        yield f"{name}_count{braces} {below}"


class Metrics:
    """Counts since the start. Only the event loop changes them, so that they need no lock."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.documents = 0
        self.back_offs = 0
        self.distances = Histogram(_DISTANCES)
        self.reloads: Counter[str] = Counter()
        self.in_flight = 0

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        self.requests[path, status] += 1
        if path not in self.seconds:
            self.seconds[path] = Histogram(_SECONDS)
        self.seconds[path].add(seconds)

    def text(self, version: str, ranker: str, stale: bool) -> str:
        """All metrics as text."""
        requests = (
            f'querywise_requests_total{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(self.requests.items())
        )
        seconds = (
            line
            for path, each in sorted(self.seconds.items())
            for line in each.lines("querywise_request_seconds", f'path="{path}"')
        )
        distances = self.distances.lines("querywise_nearest_distance", "")
        reloads = (
            f'querywise_model_reloads_total{{outcome="{outcome}"}} {self.reloads[outcome]}'
            for outcome in ("replaced", "refused")
        )
        info = f'querywise_model_info{{version="{version}",ranker="{ranker}"}} 1'
        return "".join(
            (
                metric("requests_total", "counter", "Requests answered, by path and status.", requests),
                metric("request_seconds", "histogram", "Time to answer, by path.", seconds),
                metric("requests_in_flight", "gauge", "Requests being answered.", self.in_flight),
                metric("documents_total", "counter", "Documents ranked.", self.documents),
                metric("back_offs_total", "counter", _BACK_OFFS, self.back_offs),
                metric("nearest_distance", "histogram", _NEAREST, distances),
                metric("model_reloads_total", "counter", _RELOADS, reloads),
                metric("model_stale", "gauge", "1 while the folder holds a model that cannot be served.", int(stale)),
                metric("model_info", "gauge", "The model that is served.", [info]),
            )
        )


def metric(name: str, kind: str, about: str, value: int | Iterable[str]) -> str:
    """One metric in the text format: what it is, and its value, or a line for each of several."""
    name = f"querywise_{name}"
    lines = [f"{name} {value}"] if isinstance(value, int) else value
    return "\n".join([f"# HELP {name} {about}", f"# TYPE {name} {kind}", *lines, ""])
