"""wrk, which drives a server from another process."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
local file = io.open("{body}", "rb")
wrk.method = "POST"
wrk.body = file:read("*all")
wrk.headers["Content-Type"] = "application/json"
file:close()
"""
_MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


@dataclass(frozen=True)
class Load:
    """What wrk saw: requests per second, the middle and the slowest hundredth in milliseconds, and failures."""

    per_second: float
    p50: float
    p99: float
    requests: int
    failures: int


def is_there() -> bool:
    """Whether wrk is installed; says how to get it where it is not."""
    if shutil.which("wrk") is None:
        print("wrk is not installed, so nothing is driven. On Debian: apt-get install wrk")
        return False
    return True


def drive(url: str, content: object, *, seconds: float, connections: int = 8) -> Load:
    """Send the same body over and over, from another process with a thread of its own."""
    with tempfile.TemporaryDirectory() as place:
        body, script = Path(place) / "body.json", Path(place) / "post.lua"
        body.write_text(json.dumps(content), encoding="utf-8")
        script.write_text(_SCRIPT.format(body=body), encoding="utf-8")
        words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "-s", str(script), url]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return Load(
        per_second=float(_first(r"Requests/sec:\s+(\S+)", said)),
        p50=_time(_first(r"(?m)^\s+50%\s+(\S+)", said)),
        p99=_time(_first(r"(?m)^\s+99%\s+(\S+)", said)),
        requests=int(_first(r"(\d+) requests in", said)),
        failures=sum(map(int, re.findall(r"(?:Non-2xx or 3xx responses:|connect|read|write|timeout) (\d+)", said))),
    )


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found.group(1)


def _time(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)([a-z]+)", text).groups()  # type: ignore[union-attr]
    return float(number) * _MILLISECONDS[unit]
