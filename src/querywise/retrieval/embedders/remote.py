"""Vectors from a service: any address that responds like OpenAI's `/v1/embeddings`.

Texts are sent in batches; late or busy responses are retried, with growing pauses. Responses are cached on disk by
address, model and text, one file per batch, written atomically: an interrupted run loses at most one batch. The key is
read from the environment, sent as a bearer token, and never written. A response may contain only as many bytes and
numbers as the vectors of its texts need.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import SplitResult

import numpy as np

from querywise.data.query_table import odd_lengths
from querywise.errors import DataError
from querywise.retrieval.embedders.kept import KeptVectors
from querywise.runtime.arrays import Floats, Singles
from querywise.runtime.files import cache_folder
from querywise.runtime.http_client import HttpResponse, ask
from querywise.runtime.progress import track
from querywise.runtime.services import advice, ask_again, check_service_address
from querywise.runtime.threads import checkpoint, time_left
from querywise.runtime.values import Json

KEY = "QUERYWISE_EMBEDDINGS_KEY"
_BATCH = 64  # texts in a request
_MOST_NUMBERS = 16_384  # in a vector of unknown dimension
_NUMBER = 32  # bytes of a number in JSON, with spaces
_AROUND = 1_024  # bytes of a response besides the numbers, for each text
_MARKS = 16  # commas and brackets besides those of the numbers, for each text


class RemoteEmbedder:
    """An address, whose part after # is the name of the model.

    Args:
        address: the address.
        timeout: seconds to wait for the service to send anything.
        deadline: seconds within which the whole response must arrive.
        attempts: the maximum number of requests for a batch.
        pause: seconds before the second attempt, doubled before each further one.
        cache: the folder of cached responses; None means `default_cache`.
        most: keep only this many vectors, in memory.
        keyed: whether the key is sent to the service.
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
        most: int | None = None,
        keyed: bool = True,
    ) -> None:
        self._parts = check_address(address)
        self._where = self._parts._replace(fragment="").geturl()
        self._model = self._parts.fragment or "default"
        self._timeout, self._deadline, self._attempts, self._pause = timeout, deadline, attempts, pause
        self._keyed = keyed
        self._kept = KeptVectors(default_cache() if cache is None else cache, f"{self._where}#{self._model}", most)

    def __call__(self, texts: Sequence[str], /) -> Floats:
        """Return one row per text; cached texts are not requested again."""
        known = self._kept.found(text for text in texts if text.strip())
        wanted = [text for text in dict.fromkeys(texts) if text.strip() and text not in known]
        batches = [wanted[first : first + _BATCH] for first in range(0, len(wanted), _BATCH)]
        for batch in track(batches, "Embedding"):
            checkpoint()
            vectors = self._asked(batch)
            self._kept.add(batch, vectors)
            known |= dict(zip(batch, vectors, strict=True))
        found = np.zeros((len(texts), self._kept.dimension or 1))
        for row, text in zip(found, texts, strict=True):
            if text in known:
                row[:] = known[text]
        return found

    def _asked(self, texts: Sequence[str]) -> Singles:
        """Return the vectors of one batch."""

        def request() -> HttpResponse:
            return self._request(texts)

        answer = ask_again(request, self._where, key=KEY, attempts=self._attempts, pause=self._pause)
        return self._vectors(answer, len(texts))

    def _request(self, texts: Sequence[str]) -> HttpResponse:
        key = os.environ.get(KEY, "").strip() if self._keyed else ""
        body = json.dumps({"model": self._model, "input": list(texts), "encoding_format": "float"}).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        largest = len(texts) * (_AROUND + _NUMBER * self._width) + _AROUND * _MARKS
        left = max(time_left(), 0.001)
        silence, seconds = min(self._timeout, left), min(self._deadline, left)
        return ask("POST", self._where, body, headers, largest=largest, silence=silence, seconds=seconds)

    @property
    def _width(self) -> int:
        """The highest possible dimension of a vector."""
        return self._kept.dimension or _MOST_NUMBERS

    def _vectors(self, answer: HttpResponse, count: int) -> Singles:
        try:
            self._check_marks(answer.content, count)
            found = _table(_rows(json.loads(answer.content), count))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            said = f"{self._where}: the answer is not what /v1/embeddings gives ({error}): {answer.shown(120)!r}."
            raise DataError(f"{said} {advice(200, KEY)}") from None
        before = self._kept.dimension
        if before is not None and found.shape[1] != before:
            raise DataError(
                f"{self._where}: vectors of {found.shape[1]} numbers; those before had {before}. If the model was "
                f"replaced, remove {self._kept.folder} and start again."
            )
        return found

    def _check_marks(self, content: bytes, count: int) -> None:
        """Raise ValueError for JSON with many more values than the vectors have, before it is parsed."""
        if content.count(b",") > count * (self._width + _MARKS) or (
            content.count(b"[") + content.count(b"{") > (count + 1) * _MARKS
        ):
            raise ValueError(f"more values than {count} vectors have")


def check_address(address: str) -> SplitResult:
    """Return the parts of an address. Raise DataError if it is invalid."""
    return check_service_address(address, KEY, "http://localhost:8080/v1/embeddings#MODEL")


def default_cache() -> Path:
    """Return the default folder for cached responses."""
    return cache_folder() / "embeddings"


def _rows(answer: Json, count: int) -> list[Json]:
    """Return the vectors in a response, in the order of the texts."""
    data = answer["data"] if isinstance(answer, dict) else None
    if not isinstance(data, list) or len(data) != count:
        found = len(data) if isinstance(data, list) else "no"
        raise ValueError(f"{found} vectors for {count} texts")
    rows: dict[int, Json] = {}
    for place, entry in enumerate(data):
        if not isinstance(entry, dict):
            raise ValueError(f"entry {place} is not an object")
        number = entry.get("index", place)
        if type(number) is not int or number in rows or not 0 <= number < count:
            raise ValueError(f"entry {place} has the index {number!r:.20}")
        rows[number] = entry["embedding"]
    return [rows[number] for number in range(count)]


def _table(rows: list[Json]) -> Singles:
    """Return the vectors as a table. Raise ValueError unless all are lists of equally many finite numbers."""
    kinds = {type(number) for row in rows if isinstance(row, list) for number in row}
    if not all(isinstance(row, list) for row in rows) or not kinds <= {int, float}:
        raise ValueError("a vector is not a list of numbers")
    lengths = sorted({len(row) for row in rows if isinstance(row, list)})
    if len(lengths) != 1 or not lengths[0]:
        raise ValueError(f"vectors of {' and '.join(map(str, lengths[:3]))} numbers")
    with np.errstate(over="ignore"):
        found = np.array(rows, dtype=np.float32)
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0, 0])
        raise ValueError(f"vector {row} is not one of finite numbers in single precision")
    odd = odd_lengths(found)
    if len(odd):
        raise ValueError(
            f"the length of vector {odd[0]} is out of range: its largest number is {np.abs(found[odd[0]]).max():g}"
        )
    return found
