"""Workers: this process, or a cluster within `use_workers`; and how much memory there is for their work.

What is expensive here is a sum over queries or a list of independent models. It is written once, as functions of parts
that workers call; results come back in the order of the parts, so sums are added up in one order, whatever the workers.
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

# A value for each call, or one for all of them: of any type, also kept, since the work's own signature says which.
Arguments: TypeAlias = Sequence[Any]
# What workers keep: of any type, or a mark of where it is. Only to be handed to further calls.
Kept = NewType("Kept", object)

_GROUP = 8  # calls in threads between two updates of the progress bar
ITSELF = 300_000_000  # bytes that Python and the libraries take
_RETURNED = 0.9  # of the memory allowed, since freed memory is not always returned at once
_SAFE = 0.8  # of the memory there is, since the data and everything else needs some too
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container
WORKING = 4  # how many times its size a part takes while it is made or worked on


class Workers(Protocol):
    """Calls `work(*row, *shared)` for every row of some columns.

    A column holds a value for each call. What is kept stays on its worker; it can be passed to further calls, and
    is computed again should that worker be lost. The work must be a function of its arguments alone.
    """

    parts: int  # into how many parts data in memory is cut
    memory: int | None  # the budget in bytes, where there is one

    def stream(self, work: Callable[..., _Result], *columns: Arguments, shared: Arguments = ()) -> Iterator[_Result]:
        """The results one by one, as soon as each and all before it are ready."""

    def each(
        self,
        work: Callable[..., _Result],
        *columns: Arguments,
        shared: Arguments = (),
        label: str | None = None,
        side_by_side: bool = False,
    ) -> list[_Result]:
        """All results. side_by_side: a thread each, where they are not on several machines anyway."""
        results, calls = self.stream(work, *columns, shared=shared), list(zip(*columns, strict=True))
        return [next(results) for _ in (calls if label is None else track(calls, label))]

    def keep(self, work: Callable[..., _Result], *columns: Arguments, shared: Arguments = ()) -> list[Kept]:
        """The results, kept."""

    def both(
        self, work: Callable[..., tuple[_Result, _Other]], *columns: Arguments, shared: Arguments = ()
    ) -> tuple[list[_Result], list[Kept]]:
        """Of results that are pairs, the first ones, and the second ones kept."""

    def together(
        self, job: Callable[[_Item], _Result], items: Sequence[_Item], label: str, *, side_by_side: bool = False
    ) -> list[_Result]:
        """The result of a job for each item, where jobs call the workers themselves; several at once."""


class ThisProcess(Workers):
    """The process itself. memory: how many bytes it may take in all; kept results beyond are on disk until needed."""

    parts = 1

    def __init__(self, memory: int | None = None) -> None:
        self.memory = memory
        self._room = None if memory is None else _Room(memory)

    def stream(self, work: Callable[..., _Result], *columns: Arguments, shared: Arguments = ()) -> Iterator[_Result]:
        """One call after the other, each when its result is asked for."""
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
        """One call after the other, or several in threads."""
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
        """The results themselves, while there is room."""
        return [self._put(result) for result in self.stream(work, *columns, shared=shared)]

    def both(
        self, work: Callable[..., tuple[_Result, _Other]], *columns: Arguments, shared: Arguments = ()
    ) -> tuple[list[_Result], list[Kept]]:
        """Both halves, the second while there is room."""
        pairs = [(first, self._put(second)) for first, second in self.stream(work, *columns, shared=shared)]
        return [first for first, _ in pairs], [second for _, second in pairs]

    def together(
        self, job: Callable[[_Item], _Result], items: Sequence[_Item], label: str, *, side_by_side: bool = False
    ) -> list[_Result]:
        """One after the other, or several in threads."""
        return self.each(job, items, label=label if len(items) > 1 else None, side_by_side=side_by_side)

    def _put(self, value: Any) -> Any:
        return value if self._room is None else self._room.put(value)


_workers: ContextVar[Workers] = ContextVar("querywise_crew", default=ThisProcess())  # noqa: B039  it keeps nothing


def workers() -> Workers:
    """The current workers."""
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
    """Kept results within what a process may take in all; the ones that do not fit are in files of a private folder."""

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
        # Making the next one takes several times the memory of the finished one.
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
    """The bytes of memory the process has now; where the system does not report it, an estimate."""
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
        self.room = room  # kept alive, since its folder is removed with it

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
    """The bytes of memory that this machine has, or that a container on it may take."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            found = min(found, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return found


def require_memory(needed: int, what: str, instead: str) -> None:
    """Refuse work that needs so many bytes where that is more than there is, or than the budget allows."""
    budget = workers().memory
    allowed = int(_SAFE * machine_memory()) if budget is None else budget
    if needed > allowed:
        whose = "of this machine's memory can be used" if budget is None else "are allowed"
        raise DataError(f"{what} {needed / 1e9:.1f} GB of memory; {allowed / 1e9:.1f} GB {whose}. {instead}")
