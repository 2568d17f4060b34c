"""Vectors from a service: any address that answers as OpenAI's `/v1/embeddings` does.

Texts are sent in batches; an answer that is late or says that the service is busy is asked for again, later each time.
What has been answered is kept on disk by address, model and text, a file for each batch, written whole: a run that is
cut short loses at most one batch. A key is read from the environment, is sent as the bearer token, and is written
nowhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

import numpy as np

from querywise.errors import DataError
from querywise.retrieval.embedders.kept import KeptVectors
from querywise.runtime.arrays import Floats, Singles
from querywise.runtime.cancellation import checkpoint
from querywise.runtime.files import cache_folder
from querywise.runtime.progress import track
from querywise.runtime.values import Json

KEY = "QUERYWISE_EMBEDDINGS_KEY"
_BATCH = 64  # texts in a request
_BUSY = (408, 425, 429, 500, 502, 503, 504)  # answers after which it is worth asking again
_LONGEST_PAUSE = 30.0  # seconds
_SECRET = re.compile("key|token|secret|passw|^sig", re.IGNORECASE)  # in the name of a parameter
_LARGEST = 256_000_000  # bytes of an answer


class RemoteEmbedder:
    """An address, whose part after # is the name of the model.

    timeout: seconds to wait for a sign of the service. deadline: seconds in which the whole answer must have come.
    attempts: how often a batch is asked for. pause: seconds before the second time, twice as many before each further
    one. cache: the folder of kept answers; None is `default_cache`.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 60.0,
        deadline: float = 120.0,
        attempts: int = 5,
        pause: float = 0.5,
        cache: Path | None = None,
    ) -> None:
        self._parts = check_address(address)
        self._where = self._parts._replace(fragment="").geturl()
        self._model = self._parts.fragment or "default"
        self._timeout, self._deadline, self._attempts, self._pause = timeout, deadline, attempts, pause
        self._kept = KeptVectors(default_cache() if cache is None else cache, f"{self._where}#{self._model}")

    def __call__(self, texts: Sequence[str], /) -> Floats:
        """One row per text; what was answered before is not asked for again."""
        wanted = [text for text in dict.fromkeys(texts) if text.strip() and not self._kept.has(text)]
        batches = [wanted[first : first + _BATCH] for first in range(0, len(wanted), _BATCH)]
        for batch in track(batches, "Embedding"):
            checkpoint()
            self._kept.add(batch, self._asked(batch))
        if not any(text.strip() for text in texts):
            return np.zeros((len(texts), self._kept.dimension or 1))
        return self._kept.of(texts)

    def _asked(self, texts: Sequence[str]) -> Singles:
        """The vectors of one batch."""
        pause, said = self._pause, ""
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(min(pause, _LONGEST_PAUSE))
                pause *= 2
            try:
                status, content, wait = self._request(texts)
            except (OSError, HTTPException) as error:
                said = str(error) or type(error).__name__
                continue
            if status == 200:
                return self._vectors(content, len(texts))
            said = f"status {status}: {content[:200].decode(errors='replace')!r}"
            if status not in _BUSY:
                raise DataError(f"{self._where}: {said}. {_advice(status)}")
            pause = max(pause, wait)
        raise DataError(
            f"{self._where}: no answer in {self._attempts} attempts ({said}). What was answered before is kept; try "
            "again later."
        )

    def _request(self, texts: Sequence[str]) -> tuple[int, bytes, float]:
        """One request: status, content, and for how many seconds the service asks to be left alone."""
        parts, key = self._parts, os.environ.get(KEY, "").strip()
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self._timeout)
        body = json.dumps({"model": self._model, "input": list(texts), "encoding_format": "float"}).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        with _ended_after(self._deadline, connection):
            connection.request("POST", target, body, headers)
            with connection.getresponse() as answer:
                content = answer.read(_LARGEST + 1)
                wait = answer.headers.get("Retry-After", "")
                if answer.length:  # bytes that were announced and did not come, or more than are read
                    raise HTTPException(f"{len(content)} bytes came, and {answer.length} more were announced")
        if key:
            content = content.replace(key.encode(), b"***")  # a service may repeat what it was sent
        return answer.status, content, float(wait) if wait.isdecimal() else 0.0

    def _vectors(self, content: bytes, count: int) -> Singles:
        try:
            found = _table(_rows(json.loads(content), count))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            said = f"{self._where}: the answer is not what /v1/embeddings gives ({error}): {content[:120]!r}."
            raise DataError(f"{said} {_advice(200)}") from None
        before = self._kept.dimension
        if before is not None and found.shape[1] != before:
            raise DataError(
                f"{self._where}: vectors of {found.shape[1]} numbers; those before had {before}. If the model was "
                f"replaced, remove {self._kept.folder} and start anew."
            )
        return found


@contextlib.contextmanager
def _ended_after(seconds: float, connection: HTTPConnection) -> Iterator[None]:
    """Connect, and end the connection with the block, or after so many seconds, however slowly bytes keep coming."""
    connection.connect()
    line, over = connection.sock, threading.Event()

    def end() -> None:
        over.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(line, socket.SHUT_RDWR)  # below TLS, whose state belongs to the other thread

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    late = TimeoutError(f"the whole answer did not come within {seconds:g} seconds")
    try:
        yield
    except (OSError, HTTPException):
        if over.is_set():
            raise late from None
        raise
    finally:
        timer.cancel()
        connection.close()
    if over.is_set():
        raise late


def check_address(address: str) -> SplitResult:
    """The parts of an address; one that cannot be asked is refused."""
    try:
        parts = urlsplit(address)
        sound = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, sound = urlsplit(""), False
    if not sound or parts.scheme not in ("http", "https"):
        shown = re.sub("//[^/]*@", "//…@", address)
        raise DataError(f"{shown!r:.100}: expected an address like http://localhost:8080/v1/embeddings#MODEL.")
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if _SECRET.search(name)]
    if parts.username is not None or parts.password is not None or names:
        what = f"a parameter {names[0]!r}" if names else "a name or password"
        raise DataError(
            f"The address at {parts.hostname} has {what} in it, which would be written to models and messages. Put a "
            f"key into the environment variable {KEY}."
        )
    return parts


def default_cache() -> Path:
    """Where answers are kept unless another folder is named."""
    return cache_folder() / "embeddings"


def _rows(answer: Json, count: int) -> list[Json]:
    """The vectors of an answer in the order of the texts."""
    data = answer["data"] if isinstance(answer, dict) else None
    if not isinstance(data, list) or len(data) != count:
        found = len(data) if isinstance(data, list) else "no"
        raise ValueError(f"{found} vectors for {count} texts")
    rows: dict[int, Json] = {}
    for place, entry in enumerate(data):
        if not isinstance(entry, dict):
            raise ValueError(f"entry {place} is no object")
        number = entry.get("index", place)
        if type(number) is not int or number in rows or not 0 <= number < count:
            raise ValueError(f"entry {place} has the index {number!r:.20}")
        rows[number] = entry["embedding"]
    return [rows[number] for number in range(count)]


def _table(rows: list[Json]) -> Singles:
    """The vectors as a table; anything but lists of so many finite numbers each is an error."""
    kinds = {type(number) for row in rows if isinstance(row, list) for number in row}
    if not all(isinstance(row, list) for row in rows) or not kinds <= {int, float}:
        raise ValueError("a vector is no list of numbers")
    lengths = sorted({len(row) for row in rows if isinstance(row, list)})
    if len(lengths) != 1 or not lengths[0]:
        raise ValueError(f"vectors of {' and '.join(map(str, lengths[:3]))} numbers")
    with np.errstate(over="ignore"):
        found = np.array(rows, dtype=np.float32)
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0, 0])
        raise ValueError(f"vector {row} is not one of finite numbers in single precision")
    return found


def _advice(status: int) -> str:
    if status in (401, 403):
        return f"Put the key into the environment variable {KEY}."
    return "Check the address, and the model's name after #."
