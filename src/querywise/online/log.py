"""The log of an experiment: impressions and clicks as User Behavior Insights, one record per line.

Every service writes its own files, so that several can share a folder. Waiting lines are written together, flushed to
disk, and only then acknowledged. A line is either complete or absent: the remains of a failed write are cut off, and
an unfinished last line of a killed process is not read. Impression ids are signed, so that nobody else can make one,
and contain everything needed to draw the list again.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import hmac
import json
import logging
import math
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from querywise.data.click_files import GROWING, PACKED, events_of
from querywise.errors import DataError
from querywise.online.interleaving import DEPTH, Draw, interleave, propensities
from querywise.runtime.files import (
    OutputFolder,
    append_bytes,
    atomic_file,
    make_folder,
    read_regular_file,
    refused_if_not_written,
)
from querywise.runtime.locks import locked
from querywise.runtime.threads import DaemonThreadPool
from querywise.runtime.values import Json

LONGEST = 400  # characters
ARM = r"[A-Za-z0-9_-]{1,60}"
_ID = re.compile(rf"([0-9a-f]{{16}})\.([0-9a-f]{{1,12}})\.({ARM}(?:~{ARM})*)\.([A-Za-z0-9_-]{{22}})", re.ASCII)


class ImpressionId(NamedTuple):
    """The content of an id: the seed of the draw, when it was first made, and the names of the rankings."""

    seed: bytes
    seconds: int
    arms: tuple[str, ...]

    def signed(self, key: bytes) -> str:
        """Format the signed id.

        >>> ImpressionId(bytes(8), 1, ("a", "b")).signed(b"key")
        '0000000000000000.1.a~b.2W8v90iW50pnzvqFfQoAqA'
        """
        text = f"{self.seed.hex()}.{self.seconds:x}.{'~'.join(self.arms)}"
        return f"{text}.{_signature(text, key)}"


def read_id(text: str, key: bytes | None) -> ImpressionId | None:
    """Parse an id; return None unless it was signed with the key. If `key` is None, the signature is not checked."""
    found = _ID.fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        return None
    signed = text.rpartition(".")[0]
    if key is not None and not hmac.compare_digest(_signature(signed, key), found[4]):
        return None
    return ImpressionId(bytes.fromhex(found[1]), int(found[2], 16), tuple(found[3].split("~")))


def seed_of(key: bytes, session: str | None, query: str, arms: Sequence[str]) -> bytes:
    """Return the seed of a draw: the same whenever a session repeats a query; random without a session."""
    if session is None:
        return os.urandom(8)
    said = b"\0".join(each.encode(errors="surrogatepass") for each in ("draw", session, query, *arms))
    return hmac.digest(key, said, "sha256")[:8]


def pseudonym(key: bytes, session: str) -> str:
    """Return a session's name in the log, from which only the owner of the key can tell the session."""
    return hmac.digest(key, b"session\0" + session.encode(errors="surrogatepass"), "sha256").hex()[:16]


def share_of(seed: bytes) -> float:
    """Return a number from 0 to 1 derived from a seed, independent of the draw, to compare with a traffic share."""
    return int.from_bytes(hashlib.sha256(b"share" + seed).digest()[:7], "big") / 2**56


def _signature(text: str, key: bytes) -> str:
    return base64.urlsafe_b64encode(hmac.digest(key, text.encode(), "sha256")[:16]).decode().rstrip("=")


WINDOW_SECONDS = 30 * 60  # after an impression, in which its clicks count
_WITH_CHANCES = 10  # positions with computed and logged probabilities: those of a first page


class Shown(NamedTuple):
    """An interleaved list that was shown: its id, the draw and its rankings, and the session.

    Attributes:
        text: The query's text, or its id.
        kind: The query's class.
        far: Whether it is far from all training queries; None if unknown.
        session: A pseudonym.

    """

    id: ImpressionId
    rankings: Sequence[Sequence[str]]
    draw: Draw
    text: str
    kind: str | None = None
    far: bool | None = None
    session: str | None = None

    def record(self, signed: str) -> bytes:
        """Format the line of the log, with the probabilities of documents at their positions."""
        documents = self.draw.documents[:DEPTH]
        chances = propensities(self.rankings, documents[:_WITH_CHANCES])
        attributes: dict[str, Json] = {
            "draw": self.id.seed.hex(),
            "arms": list(self.id.arms),
            "teams": list(self.draw.teams[:DEPTH]),
            "propensities": [None if math.isnan(each) else round(each, 9) for each in chances],
        }
        known = {"class": self.kind, "far": self.far}
        attributes |= {name: value for name, value in known.items() if value is not None}
        content: dict[str, Json] = {
            "query_id": signed,
            "user_query": self.text,
            "timestamp": _written(self.id.seconds),
            "application": "querywise",
            "query_response_hit_ids": list(documents),
            "query_attributes": attributes,
        }
        return _line(content | ({} if self.session is None else {"client_id": self.session}))


def draw_once(
    key: bytes,
    rankings: Mapping[str, Sequence[str]],
    query: str,
    session: str | None,
    top: int | None,
    *,
    kind: str | None = None,
    far: bool | None = None,
) -> Shown:
    """Interleave named rankings for a query: a session that repeats the query gets the same list."""
    arms = tuple(rankings)
    seed = seed_of(key, session, query, arms)
    lists = list(rankings.values())
    who = None if session is None else pseudonym(key, session)
    drawn = interleave(lists, seed, top)
    return Shown(ImpressionId(seed, int(time.time()), arms), lists, drawn, query, kind, far, who)


def is_drawn(key: bytes, share: float, query: str, session: str | None) -> bool:
    """Whether a query is in the experiment, at this share of traffic; consistent for repeats within a session."""
    return share >= 1 or share_of(seed_of(key, session, query, ("share",))) < share


def click_record(id_: str, document: str, action: str, position: int | None, when: float) -> bytes:
    """Format the line of the log for a click, or another action, at `when` seconds since 1970."""
    where: dict[str, Json] = {"object": {"object_id": document}}
    if position is not None:
        where["position"] = {"ordinal": position}
    return _line({"action_name": action, "query_id": id_, "timestamp": _written(when), "event_attributes": where})


def is_arm(name: str) -> bool:
    """Whether a ranking can have this name in an id."""
    return re.fullmatch(ARM, name, re.ASCII) is not None


def _written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(content: Mapping[str, Json]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


MOST_BYTES = 10_000_000_000  # of a folder
FILE_BYTES = 50_000_000  # size at which another file is begun, and this one packed as Parquet
_WAITING_BYTES = 16_000_000  # of lines that are not written yet
_CLOSING_SECONDS = 5.0  # for the last lines
_GATHER_SECONDS = 0.5  # for lines that no caller waits for
_KEY = "signing.key"
_KEY_BYTES = 32
logger = logging.getLogger("querywise.service")
FOLDER = OutputFolder(
    a_file="this is a file; the log of an experiment is a folder.",
    makes_parents=False,
    in_place=True,
    belongs=lambda name: name == _KEY or name.startswith((GROWING, ".")),
    stray="is not of the log of an experiment. Name another folder, or a new one.",
)


class _Waiting(NamedTuple):
    """Lines to write: the function that makes them, their approximate size, and the future to resolve."""

    made: Callable[[], bytes]
    size: int
    done: Future[None] | None


class EventLog:
    """A folder that lines are appended to.

    `key` signs ids; services with the same folder share it. `lost` counts lines that could not be written and that no
    caller waited for. `problem` is why the last write failed, or None.

    Args:
        path: The folder, created if its parent exists.
        most_bytes: The most bytes of all files in it.
        file_bytes: The approximate size of one file.

    """

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES, file_bytes: int = FILE_BYTES) -> None:
        FOLDER.check(path)
        make_folder(path)
        self.path = path.resolve()
        self.key = _signing_key(self.path)
        self.lost = self.written = 0
        self.problem: str | None = None
        self._most, self._file_bytes = most_bytes, file_bytes
        self._changing = threading.Lock()
        self._urgent = threading.Event()
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._closed = False
        self._file: Path | None = None  # the file that lines are appended to, once there are any
        self._end = 0  # the end of its complete lines
        self._total = self._size()
        self._writer = DaemonThreadPool(1)
        self._packer = DaemonThreadPool(1)

    def add(self, made: Callable[[], bytes], size: int, *, awaited: bool) -> Future[None] | None:
        """Queue lines, made when they are written, of about `size` bytes.

        With `awaited`, return a future that resolves once they are on disk, or has a DataError if they are not.
        Otherwise they are written with the next lines, or after half a second.
        """
        done: Future[None] | None = Future() if awaited else None
        with self._changing:
            if self._waiting_bytes + size > _WAITING_BYTES:
                if done is None:
                    self.lost += 1
                    return None
                raise DataError("More events are waiting to be written than fit in memory. Try again in a moment.")
            if self._closed:
                raise DataError("The service is stopping. Try again in a moment.")
            first = not self._waiting
            self._waiting.append(_Waiting(made, size, done))
            self._waiting_bytes += size
            if awaited:
                self._urgent.set()
            if first:
                self._writer.submit(self._write_waiting)
        return done

    def close(self) -> None:
        """Write all waiting lines."""
        with self._changing:
            self._closed = True
            self._urgent.set()
        with contextlib.suppress(RuntimeError, TimeoutError):  # already closed, or the disk does not respond
            self._writer.submit(lambda: None).result(_CLOSING_SECONDS)
        self._writer.shutdown()
        self._packer.shutdown()

    def _write_waiting(self) -> None:
        self._urgent.wait(_GATHER_SECONDS)
        with self._changing:
            batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self._urgent.clear()
        error: DataError | None = None
        try:
            self._write(b"".join(each.made() for each in batch))
        except Exception as failed:  # noqa: BLE001 - whatever it is, waiting callers are told; the service goes on
            reason = failed.strerror or failed if isinstance(failed, OSError) else failed
            error = DataError(str(failed)) if isinstance(failed, DataError) else DataError(f"{self.path}: {reason}")
            if self.problem is None:
                logger.warning("the log of the experiment cannot be written: %s", error)
        self.problem = None if error is None else str(error)
        self.lost += sum(each.done is None for each in batch) if error is not None else 0
        self.written += len(batch) if error is None else 0
        for each in batch:
            if each.done is not None and error is None:
                each.done.set_result(None)
            elif each.done is not None:
                each.done.set_exception(error)

    def _write(self, content: bytes) -> None:
        if self._total + len(content) > self._most:
            self._total = self._size()  # files may have been removed
        if self._total + len(content) > self._most:
            raise DataError(
                f"{self.path}: the log is full; it may have {self._most} bytes. Move files away, or name another."
            )
        if self._file is None:
            name = f"{GROWING}{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(4).hex()}.ndjson"
            self._file, self._end = self.path / name, 0
        append_bytes(self._file, content, after=self._end, like=self._file)
        self._end += len(content)
        self._total += len(content)
        if self._end >= self._file_bytes:
            self._packer.submit(_packed, self._file)
            self._file = None

    def _size(self) -> int:
        return sum(each.stat().st_size for each in self.path.glob(f"{GROWING}*") if each.is_file())


def _signing_key(folder: Path) -> bytes:
    """Return the key in a folder, created by the first service; only its owner can read the file."""
    path = folder / _KEY
    with contextlib.suppress(FileNotFoundError):
        return _read_key(path)
    with refused_if_not_written(path), locked(folder / f".{_KEY}.lock"):
        with contextlib.suppress(FileNotFoundError):
            return _read_key(path)
        made = os.urandom(_KEY_BYTES)
        with atomic_file(path) as beside:
            beside.chmod(0o600)
            beside.write_bytes(made)
    return made


def _read_key(path: Path) -> bytes:
    found = read_regular_file(path, path.parent, _KEY_BYTES)
    if len(found) != _KEY_BYTES:
        raise DataError(
            f"{path}: {len(found)} bytes; expected {_KEY_BYTES}. Remove it; ids signed with it become invalid."
        )
    return found


def key_of(folder: Path) -> bytes | None:
    """Return the key in a folder; None if it is absent or unreadable, as in somebody else's log."""
    try:
        return _read_key(folder / _KEY)
    except (DataError, OSError):
        return None


def _is_table(path: Path) -> bool:
    """Convert a file to Parquet; return False if Arrow is not installed, or if columns cannot hold the content."""
    from querywise.data.parquet.events import write_events

    unfit = False
    try:
        with atomic_file(path.with_suffix(PACKED)) as beside:
            try:
                write_events((record for _, record in events_of(path)), beside)
            except DataError:
                unfit = True
                raise
    except DataError as error:
        if not unfit:  # a disk error
            raise
        logger.info("%s is not packed as Parquet: %s", path, error)
    return not unfit


def _packed(path: Path) -> None:
    """Pack a file that is complete; it stays unchanged until the packed one is complete."""
    try:
        if not _is_table(path):
            packed = atomic_file(path.with_name(f"{path.name}.gz"))
            with packed as beside, open(path, "rb") as plain, gzip.open(beside, "wb", compresslevel=6) as out:
                shutil.copyfileobj(plain, out)
        path.unlink()
    except (DataError, OSError) as error:
        logger.warning("%s stays as it is: %s", path, error)
