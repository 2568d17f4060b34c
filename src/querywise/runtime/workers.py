"""Workers, either this process or a cluster within `use_workers`; and the memory available for their work.

Expensive work is either a sum over queries or a list of independent models. It is written once, as functions of parts
that workers call; results come back in the order of the parts, so sums are always added in the same order.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NewType, Protocol, TypeAlias, TypeVar

from querywise.errors import DataError
from querywise.runtime.progress import track
from querywise.runtime.threads import in_threads

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Other = TypeVar("_Other")

# A value for each call, or one for all of them, of any type, possibly kept: the work's own signature defines the type.
Arguments: TypeAlias = Sequence[Any]
# Results that workers keep, of any type, or references to them. They can only be passed to further calls.
Kept = NewType("Kept", object)

_GROUP = 8  # calls in threads per update of the progress bar
ITSELF = 300_000_000  # bytes that Python and the libraries take
_RETURNED = 0.9  # share of the allowed memory, since freed memory is not always returned at once
_SAFE = 0.8  # share of the existing memory, since the data and other programs need some
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # limits of a container
WORKING = 4  # memory to build or process a part, as a multiple of its size


class Workers(Protocol):
    """Calls `work(*row, *shared)` for every row of some columns.

    A column holds a value for each call. Kept results stay on their worker; they can be passed to further calls and are
    recomputed if that worker is lost. The work must be a pure function of its arguments.
    """

    parts: int  # number of parts of data in memory
    memory: int | None  # budget in bytes, if any

    def stream(self, work: Callable[..., _Result], *columns: Arguments, shared: Arguments = ()) -> Iterator[_Result]:
        """Yield the results in order, each as soon as it and all before it are ready."""

    def each(
        self,
        work: Callable[..., _Result],
        *columns: Arguments,
        shared: Arguments = (),
        label: str | None = None,
        side_by_side: bool = False,
    ) -> list[_Result]:
        """Return all results.

        With `side_by_side`, compute them in threads unless they are on several machines anyway.
        """
        results, calls = self.stream(work, *columns, shared=shared), list(zip(*columns, strict=True))
        return [next(results) for _ in (calls if label is None else track(calls, label))]

    def keep(self, work: Callable[..., _Result], *columns: Arguments, shared: Arguments = ()) -> list[Kept]:
        """Return the results, kept on their workers."""

    def both(
        self, work: Callable[..., tuple[_Result, _Other]], *columns: Arguments, shared: Arguments = ()
    ) -> tuple[list[_Result], list[Kept]]:
        """Return the first items of results that are pairs, and the second items kept on their workers."""

    def together(
        self, job: Callable[[_Item], _Result], items: Sequence[_Item], label: str, *, side_by_side: bool = False
    ) -> list[_Result]:
        """Return the result of a job for each item, several at once; jobs may call the workers themselves."""


class ThisProcess(Workers):
    """The current process; `memory` is its limit in bytes, beyond which kept results are stored on disk."""

    parts = 1

    def __init__(self, memory: int | None = None) -> None:
        self.memory = memory
        self._room = None if memory is None else _Room(memory)

    def stream(self, work: Callable[..., _Result], *columns: Arguments, shared: Arguments = ()) -> Iterator[_Result]:
        """Yield the result of one call after the other, on demand."""
        given = [_resolved(each) for each in shared]
        return (work(*map(_resolved, row), *given) for row in zip(*columns, strict=True))

    def each(
        self,
        work: Callable[..., _Result],
        *columns: Arguments,
        shared: Arguments = (),
        label: str | None = None,
        side_by_side: bool = False,
    ) -> list[_Result]:
        """Make one call after the other, or several in threads."""
        if not side_by_side:
            return super().each(work, *columns, shared=shared, label=label)
        rows = list(zip(*columns, strict=True))
        given = [_resolved(each) for each in shared]

        def call(row: Sequence[Any]) -> Any:
            return work(*map(_resolved, row), *given)

        groups = [rows[first : first + _GROUP] for first in range(0, len(rows), _GROUP)]
        done = [in_threads(call, group) for group in (groups if label is None else track(groups, label))]
        return [result for group in done for result in group]

    def keep(self, work: Callable[..., _Result], *columns: Arguments, shared: Arguments = ()) -> list[Kept]:
        """Return the results themselves, while there is memory."""
        return [self._put(result) for result in self.stream(work, *columns, shared=shared)]

    def both(
        self, work: Callable[..., tuple[_Result, _Other]], *columns: Arguments, shared: Arguments = ()
    ) -> tuple[list[_Result], list[Kept]]:
        """Return both items of the results, the second ones in memory as long as it lasts."""
        pairs = [(first, self._put(second)) for first, second in self.stream(work, *columns, shared=shared)]
        return [first for first, _ in pairs], [second for _, second in pairs]

    def together(
        self, job: Callable[[_Item], _Result], items: Sequence[_Item], label: str, *, side_by_side: bool = False
    ) -> list[_Result]:
        """Run one job after the other, or several in threads."""
        return self.each(job, items, label=label if len(items) > 1 else None, side_by_side=side_by_side)

    def _put(self, value: Any) -> Any:
        return value if self._room is None else self._room.put(value)


_workers: ContextVar[Workers] = ContextVar("querywise_crew", default=ThisProcess())  # noqa: B039  it keeps nothing


def workers() -> Workers:
    """Return the current workers."""
    return _workers.get()


@contextlib.contextmanager
def use_workers(those: Workers) -> Iterator[Workers]:
    """Use these workers while the block runs."""
    token = _workers.set(those)
    try:
        yield those
    finally:
        _workers.reset(token)


class _Room:
    """Kept results within a process's memory limit; those that do not fit are in files of a private folder."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self._kept = 0
        self._largest = 0
        self._files = itertools.count()
        self._folder = tempfile.mkdtemp(prefix="querywise-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def put(self, value: Any) -> Any:
        buffers: list[pickle.PickleBuffer] = []
        frame = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        size = len(frame) + sum(each.raw().nbytes for each in buffers)
        self._largest = max(self._largest, size)
        # Computing the next result takes several times the memory of a finished one.
        if _resident(self._kept + size) + WORKING * self._largest <= _RETURNED * self.memory:
            self._kept += size
            kept = _InMemory(value)
            weakref.finalize(kept, self._give_back, size)
            return kept
        path = Path(self._folder, str(next(self._files)))
        with path.open("wb") as out:
            pickle.dump((frame, [each.raw().nbytes for each in buffers]), out)
            for each in buffers:
                out.write(each.raw())
        stored = _OnDisk(path, self)
        weakref.finalize(stored, path.unlink, missing_ok=True)
        return stored

    def _give_back(self, size: int) -> None:
        self._kept -= size


def _resident(kept: int) -> int:
    """Return the process's memory in bytes, or an estimate if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return kept + ITSELF


class _InMemory:
    def __init__(self, value: Any) -> None:
        self.value = value

    def taken(self) -> Any:
        return self.value


class _OnDisk:
    def __init__(self, path: Path, room: _Room) -> None:
        self.path = path
        self.room = room  # keep it alive, since its folder is removed with it

    def taken(self) -> Any:
        with self.path.open("rb") as file:
            frame, sizes = pickle.load(file)  # safe: written by this process, in a private folder
            buffers = []
            for size in sizes:
                buffers.append(bytearray(size))
                file.readinto(buffers[-1])
        return pickle.loads(frame, buffers=buffers)


def _resolved(thing: Any) -> Any:
    return thing.taken() if isinstance(thing, (_InMemory, _OnDisk)) else thing


def machine_memory() -> int:
    """Return the memory in bytes of this machine, or the limit of the container."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            found = min(found, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return found


def require_memory(needed: int, what: str, instead: str) -> None:
    """Raise DataError if work needs more bytes than the machine has or the budget allows."""
    budget = workers().memory
    allowed = int(_SAFE * machine_memory()) if budget is None else budget
    if needed > allowed:
        whose = "of this machine's memory can be used" if budget is None else "are allowed"
        raise DataError(f"{what} {needed / 1e9:.1f} GB of memory; {allowed / 1e9:.1f} GB {whose}. {instead}")
