"""Vectors from a service: any address that responds like OpenAI's `/v1/embeddings`.

Texts are sent in batches; late or busy responses are retried, with growing pauses. Responses are cached on disk by
address, model and text, one file per batch, written atomically: an interrupted run loses at most one batch. The key is
read from the environment, sent as a bearer token, and never written. A response may contain only as many bytes and
numbers as the vectors of its texts need.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import threading
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import SplitResult

import numpy as np

from querywise.data.query_table import odd_lengths
from querywise.errors import DataError, Hint
from querywise.runtime.arrays import Floats, Singles
from querywise.runtime.files import cache_folder, checksum_of, make_own_folder, map_array, write_bytes
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
_ENDING = ".npy"  # of files with kept vectors
_KEY_BYTES = 32  # of a kept text's checksum
_IN_MEMORY = 1_000_000  # vectors, if the folder cannot be used


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


class KeptVectors:
    """The vectors of one model's texts, in a folder of their own. Damaged files count as missing.

    `most` keeps only this many of the latest vectors, in memory, for texts that anyone may send; None keeps all on
    disk.
    """

    def __init__(self, folder: Path, model: str, most: int | None = None) -> None:
        self.folder = folder / hashlib.sha256(model.encode()).hexdigest()[:32]
        self._known: dict[bytes, Singles] = {}
        self._most, self._adding = most, threading.Lock()
        self.dimension: int | None = None  # dimension of the vectors; None while there are none
        if most is not None or not self.folder.is_dir():
            return
        if _may_be_anybodys(self.folder):
            self._most = _IN_MEMORY
            said = f"{self.folder}: a link, or a folder that other users may write to, so its vectors are not used."
            warnings.warn(
                f"{said} Vectors are kept in memory alone. Remove it, or make it yours alone.", Hint, stacklevel=3
            )
            return
        for path in sorted(self.folder.glob(f"*{_ENDING}")):
            self._take(_read(path, self.dimension))

    def _take(self, vectors: dict[bytes, Singles]) -> None:
        self._known |= vectors
        self.dimension = len(next(iter(vectors.values()))) if vectors else self.dimension

    def found(self, texts: Iterable[str]) -> dict[str, Singles]:
        """Return the known vectors of some texts."""
        looked = {text: self._known.get(_key(text)) for text in texts}
        return {text: vector for text, vector in looked.items() if vector is not None}

    def add(self, texts: Sequence[str], vectors: Singles) -> None:
        """Store the vectors of some texts, except zero vectors, which a retry may improve."""
        self.dimension, some = vectors.shape[1], np.flatnonzero(vectors.any(axis=1)).tolist()
        keys, vectors = [_key(texts[row]) for row in some], vectors[some]
        content = io.BytesIO()
        if not keys:
            return
        if self._most is not None:
            with self._adding:
                self._take(dict(zip(keys, vectors, strict=True)))
                for key in list(self._known)[: -self._most]:
                    del self._known[key]
            return
        rows = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), _KEY_BYTES)
        np.save(content, np.hstack([rows, np.ascontiguousarray(vectors, "<f4").view(np.uint8)]), allow_pickle=False)
        make_own_folder(self.folder, 0o755)  # not writable for the group, whatever the umask
        name = hashlib.sha256(content.getvalue()).hexdigest()[:32]
        write_bytes(self.folder / f"{name}{_ENDING}", content.getvalue())
        self._take(dict(zip(keys, vectors, strict=True)))


def _may_be_anybodys(folder: Path) -> bool:
    """Return whether other users, or members of its group, could have put vectors into a folder."""
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        return True
    others = stat.S_IWGRP | stat.S_IWOTH
    return os.name != "nt" and (found.st_uid not in (os.geteuid(), 0) or bool(found.st_mode & others))


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _read(path: Path, dimension: int | None) -> dict[bytes, Singles]:
    """Return the vectors in a file; none if its name shows that it was changed, or if it is invalid."""
    try:
        rows = map_array(path, path.parent)
        if checksum_of(path)[:32] != path.stem:
            return {}
    except (OSError, DataError):
        return {}
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] <= _KEY_BYTES or (rows.shape[1] - _KEY_BYTES) % 4:
        return {}
    vectors = np.ascontiguousarray(rows[:, _KEY_BYTES:]).view("<f4").astype(np.float32)
    if len(odd_lengths(vectors)):
        return {}
    if dimension is not None and vectors.shape[1] != dimension:
        raise DataError(
            f"{path}: the vectors have a different dimension from the others in this folder. Remove {path.parent}."
        )
    return {row[:_KEY_BYTES].tobytes(): vector for row, vector in zip(rows, vectors, strict=True)}
