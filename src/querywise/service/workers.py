"""Several processes that answer at one address, as copies of the process that has loaded the model.

The first process listens, starts the others and never answers. All wait at its one socket; each takes a connection
unless another has fewer. What they have in common is a folder (counts, and copies of arrays that they map) and some
memory (how many connections each has, which events were logged). A fork shares the model's pages, and so does the
map of a model that takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import mmap
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

import numpy as np
from fastapi import FastAPI

from querywise.errors import DataError
from querywise.runtime.threads import DaemonThreadPool, one_blas_thread
from querywise.service import server
from querywise.service.connection import Connection
from querywise.service.hosting import Hosting
from querywise.service.metrics import added_up
from querywise.service.online import Seen
from querywise.service.routes import create_api
from querywise.service.server import DRAIN_SECONDS, Opened, Server, freeze, opened
from querywise.service.service import Counts, Service

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AWAY = 2**40  # in the place of a number of connections: this worker takes none
_NOBODY = -1  # in the place of a worker's number
_AT_ONCE = 32  # connections that a worker takes in one turn of its loop
_YIELD_SECONDS = 0.005  # that a worker with more connections than another leaves new ones to that
_COUNTS_SECONDS = 1.0  # between two notes of what was counted, and what others are waited for that are asked
_AGAIN_SECONDS = 1.0  # from one start of a worker to the next in its place
_LOOK_SECONDS = 0.1  # between two looks of the first process at everything
_BUCKETS, _BUCKET, _NAME = 2**15, 8, 16  # of events: how many, the names in each, and the bytes of a name
logger = logging.getLogger("querywise.service")


def run(
    service: Hosting,
    host: str,
    port: int,
    workers: int,
    api: FastAPI | None = None,
    *,
    allowed_host: Sequence[str] = (),
) -> None:
    """Serve by so many processes until a signal to stop; by this one alone if that is 1. See `server.run`."""
    if workers < 1:
        raise DataError(f"workers={workers}: expected a number from 1 up.", arguments=("workers",))
    if workers == 1:
        server.run(service, host, port, api, allowed_host=allowed_host)
        return
    if not isinstance(service, Service):
        raise DataError(f"workers={workers}: the judging page is served by one. Use 1.", arguments=("workers",))
    if not hasattr(os, "fork"):
        said = f"workers={workers}: this system cannot copy a process, which several workers need. Use 1."
        raise DataError(said, arguments=("workers",))
    with tempfile.TemporaryDirectory(prefix="querywise-") as place:
        desk = _Desk(Path(place), workers)
        if service.online is not None:
            service.online.seen = SharedSeen()
        crew = _Crew(service, create_api(service) if api is None else api, desk)
        crew.run(opened(service, host, port, allowed_host))


class SharedSeen(Seen):
    """The newest of the events that any worker has logged: about 260,000, the oldest of each bucket forgotten first.

    There is no lock: of two workers that add to one bucket at the same moment one may lose its name.
    """

    def __init__(self) -> None:
        super().__init__()
        self._memory = mmap.mmap(-1, _BUCKETS * _BUCKET * _NAME)

    def __contains__(self, name: bytes) -> bool:
        begin = self._begin(name)
        found = self._memory[begin : begin + _BUCKET * _NAME]
        return any(found[first : first + _NAME] == name for first in range(0, len(found), _NAME))

    def add(self, names: Iterable[bytes]) -> None:
        """Remember some more, and forget the oldest."""
        for name in names:
            begin = self._begin(name)
            end = begin + _BUCKET * _NAME
            self._memory[begin:end] = name + self._memory[begin : end - _NAME]

    def _begin(self, name: bytes) -> int:
        return int.from_bytes(name[:4], "little") % _BUCKETS * _BUCKET * _NAME


class _Desk:
    """What the workers have in common.

    place: a folder that is theirs alone. count: of the workers.

    `connections`: how many each has. `serials`: the number of each worker, which no other had before. `noted`: when
    each has last noted what it counted, by `time.monotonic_ns`. `asked`: when that was last asked for.
    """

    def __init__(self, place: Path, count: int) -> None:
        self.place = place
        numbers = np.frombuffer(mmap.mmap(-1, 8 * (3 * count + 1)), np.int64)
        self.connections, self.serials, self.noted = numbers[:-1].reshape(3, count)
        self.asked = numbers[-1:]
        self.connections[:], self.serials[:] = _AWAY, _NOBODY

    def note(self, serial: int, counts: Counts) -> None:
        """Keep what a worker has counted; on a full disk, the note before stays."""
        path = self._path(serial)
        with contextlib.suppress(OSError):
            path.with_suffix(".part").write_text(json.dumps(counts))
            os.replace(path.with_suffix(".part"), path)

    def counts(self, serials: Iterable[int]) -> tuple[list[Counts], list[Counts]]:
        """The notes of these workers, and of those that have ended."""
        found = {each: self._read(self._path(each)) for each in serials}
        ended = self._read(self._ended)
        last = ended.hour.get("last") if ended is not None else None
        # One that has ended just now is among the others already.
        running = [each for serial, each in found.items() if each is not None and serial != last]
        return running, [] if ended is None else [ended]

    def end(self, slot: int) -> None:
        """Add the counts of a worker that has ended to those of the others that have."""
        serial = int(self.serials[slot])
        self.connections[slot] = _AWAY
        before, own = self._read(self._ended), self._read(self._path(serial))
        if own is not None:
            made = added_up([], [each.metrics for each in (before, own) if each is not None])
            with contextlib.suppress(OSError):
                part = self._ended.with_suffix(".part")
                part.write_text(json.dumps(Counts(made, {"last": serial})))
                os.replace(part, self._ended)
        self.serials[slot] = _NOBODY
        with contextlib.suppress(OSError):
            self._path(serial).unlink()

    @property
    def _ended(self) -> Path:
        return self.place / "ended.json"

    def _path(self, serial: int) -> Path:
        return self.place / f"{serial}.json"

    def _read(self, path: Path) -> Counts | None:
        try:
            return Counts(*json.loads(path.read_text()))
        except OSError:
            return None


class _Worker(Server):
    """One of the processes that answer.

    slot: its place among them; serial: its number. alive: a pipe that ends with the first process.
    """

    def __init__(
        self, service: Service, api: FastAPI, at: Opened, desk: _Desk, slot: int, serial: int, alive: int
    ) -> None:
        super().__init__(service, api, at.hosts, at.connections)
        self._listening, self._desk, self._slot, self._serial, self._alive = at.listening, desk, slot, serial, alive
        self._connecting: set[asyncio.Task[None]] = set()
        self._counted = service.counts
        self._told: Counts | None = None
        self._tell_at = 0.0
        self._orphaned = False
        service.colleagues = self

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections from the socket that all workers have."""
        loop = self._loop = asyncio.get_running_loop()
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(1)  # uvicorn has logged why
        self.servers = []
        self._listening.setblocking(False)
        self._desk.connections[self._slot], self._desk.serials[self._slot] = 0, self._serial
        loop.add_reader(self._listening, self._accept)
        loop.add_reader(self._alive, self._left_alone)
        self.started = True
        self._sweep(loop)

    def _left_alone(self) -> None:
        asyncio.get_running_loop().remove_reader(self._alive)
        self._orphaned = True
        self.handle_exit(signal.SIGTERM, None)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop when the first process says so; a terminal sends SIGINT to all at once."""
        if sig != signal.SIGINT:
            super().handle_exit(sig, frame)

    # Connections

    def _accept(self, whoever: bool = False) -> None:
        """Take the connections that wait, unless another worker has fewer; `whoever`: all the same."""
        for _ in range(_AT_ONCE):
            own = self._connections.count + len(self._connecting)
            self._desk.connections[self._slot] = own
            if not whoever and own > int(self._desk.connections.min()) + own // 8:
                self._yield()
                return
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError):  # another was quicker
                return
            except OSError:  # too many open files; or the socket is being closed
                self._yield()
                return
            accepted.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._connect(accepted))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _yield(self) -> None:
        """Leave the connections that wait to others for a moment; what they do not take by then is taken here."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening)
        loop.call_later(_YIELD_SECONDS, self._take_again)

    def _take_again(self) -> None:
        if not self._service.closing:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)
            self._accept(whoever=True)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._connection, accepted)
        except OSError:
            accepted.close()

    def _connection(self) -> Connection:
        return Connection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and close those there are when their requests are answered."""
        asyncio.get_running_loop().remove_reader(self._listening)
        self._desk.connections[self._slot] = _AWAY
        if self._connecting:
            await asyncio.wait(self._connecting)
        await super().shutdown()
        self._tell()
        if self._orphaned:  # nobody else is left to do it
            shutil.rmtree(self._desk.place, ignore_errors=True)

    # Counts

    async def on_tick(self, counter: int) -> bool:
        """What uvicorn does ten times a second; and tell what was counted, if it is asked for or a while ago."""
        self._desk.connections[self._slot] = self._connections.count + len(self._connecting)
        if self._desk.asked[0] > self._desk.noted[self._slot] or time.monotonic() > self._tell_at:
            self._tell()
        return await super().on_tick(counter)

    def _tell(self) -> None:
        """Keep what was counted where the others, and those that come after this process, find it."""
        counts, now = self._counted(), time.monotonic_ns()
        if counts != self._told:
            self._desk.note(self._serial, counts)
        self._told, self._tell_at = counts, time.monotonic() + _COUNTS_SECONDS
        self._desk.noted[self._slot] = now

    async def counts(self) -> tuple[list[Counts], list[Counts]]:
        """What the other workers have counted by now, and what those had that have ended."""
        desk, now = self._desk, time.monotonic_ns()
        others = np.arange(len(desk.serials)) != self._slot
        desk.asked[0] = now
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COUNTS_SECONDS):
                while (desk.noted[others & (desk.serials != _NOBODY)] < now).any():
                    await asyncio.sleep(0.01)
        return desk.counts(desk.serials[others].tolist())


class _Crew:
    """The first process: it starts workers, another for each that dies, and ends when all have."""

    def __init__(self, service: Service, api: FastAPI, desk: _Desk) -> None:
        self._service, self._api, self._desk = service, api, desk
        against = None if service.online is None else service.online.against
        self._models = [each for each in (service.models, against) if each is not None]
        for number, each in enumerate(self._models):
            each.place = desk.place / f"model-{number}"
            each.place.mkdir()
        self._workers: dict[int, BaseProcess] = {}  # by slot
        self._start_at = dict.fromkeys(range(len(desk.serials)), 0.0)  # when the next of a slot may be started
        self._serial = 0
        self._stop_at: float | None = None  # when no more connections are taken
        self._watcher = DaemonThreadPool(1)
        self._looking: Future[None] | None = None
        self._looked_at = time.monotonic()

    def run(self, at: Opened) -> None:
        """Serve until a signal to stop."""
        alive, ours = os.pipe()
        freeze()
        before = {each: signal.signal(each, self._stop) for each in _SIGNALS}
        try:
            while self._stop_at is None or self._workers:
                self._start_missing(at, alive, ours)
                for ended in wait([each.sentinel for each in self._workers.values()], _LOOK_SECONDS):
                    self._note_end(ended)
                self._look()
                if self._stop_at is not None and time.monotonic() > self._stop_at:
                    with contextlib.suppress(OSError):  # closing is not enough while another process has the socket
                        at.listening.shutdown(socket.SHUT_RDWR)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            for pipe in (alive, ours):
                os.close(pipe)
            at.listening.close()

    def _stop(self, sig: int, frame: FrameType | None) -> None:
        """Have all workers stop, as one process would: at a second signal at once."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + DRAIN_SECONDS
        for each in self._workers.values():
            each.terminate()

    def _start_missing(self, at: Opened, alive: int, ours: int) -> None:
        for slot, moment in self._start_at.items():
            # A copy of a process has its memory, not its threads: what they hold at that moment is held forever.
            quiet = self._looking is None or self._looking.done() or self._is_overdue()
            if slot not in self._workers and self._stop_at is None and quiet and time.monotonic() >= moment:
                self._start(slot, at, alive, ours)

    def _start(self, slot: int, at: Opened, alive: int, ours: int) -> None:
        self._serial += 1
        self._start_at[slot] = time.monotonic() + _AGAIN_SECONDS
        given = (slot, self._serial, at, alive, ours)
        process = get_context("fork").Process(target=self._work, args=given)
        with _signals_held():
            process.start()
            self._workers[slot] = process
        logger.info("worker %d is process %d", slot + 1, process.pid)

    def _work(self, slot: int, serial: int, at: Opened, alive: int, ours: int) -> None:
        """What a worker does, from its first moment to its last."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(ours)
        with one_blas_thread():
            _Worker(self._service, self._api, at, self._desk, slot, serial, alive).run()

    def _note_end(self, sentinel: object) -> None:
        slot, process = next(each for each in self._workers.items() if each[1].sentinel == sentinel)
        process.join()
        del self._workers[slot]
        if self._stop_at is None:
            code = process.exitcode or 0
            reason = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            logger.error("worker %d, process %d, has ended %s; another is started", slot + 1, process.pid, reason)
            self._desk.end(slot)

    def _look(self) -> None:
        """Follow the model folders, so that a worker that is started later begins with what the others serve."""
        if (self._looking is None or self._looking.done()) and (
            time.monotonic() > self._looked_at + self._service.poll_seconds
        ):
            self._looked_at = time.monotonic()
            self._looking = self._watcher.submit(self._refresh)

    def _refresh(self) -> None:
        for each in self._models:
            with contextlib.suppress(Exception):  # the workers tell
                each.refresh()

    def _is_overdue(self) -> bool:
        return time.monotonic() > self._looked_at + self._service.refresh_seconds


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Have signals to stop wait until the block ends: a process that begins in it would take them for its parent's."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
