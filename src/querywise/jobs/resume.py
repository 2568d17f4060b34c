"""A long training is resumed: what its workers have finished is kept in a folder, and not done again after a crash.

For lists of local models, which are most of a long training: blocks of linear models are kept as arrays, others as
models.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from querywise.errors import DataError, QuerywiseError
from querywise.runtime.array_files import map_array
from querywise.runtime.files import atomic_file, refuse_link
from querywise.runtime.progress import track
from querywise.runtime.resume import resume_folder
from querywise.runtime.values import Json
from querywise.runtime.workers import Arguments, Workers, use_workers, workers
from querywise.storage import load, save

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_GROUP = 8  # results that threads make before any is kept


@contextlib.contextmanager
def resuming(folder: Path, record: Json) -> Iterator[None]:
    """Keep finished work in a folder while the block runs, and use what a run with the same record has left there.

    The folder is removed when the block ends well, or badly with nothing finished.
    """
    pool = _Resuming(workers(), folder)
    try:
        with resume_folder(folder, record), use_workers(pool):
            yield
    except (QuerywiseError, OSError, MemoryError):
        raise
    except Exception as error:
        if not pool.taken:
            raise
        raise DataError(
            f"{folder}: what was kept there does not fit this training ({type(error).__name__}: {error}). Remove the "
            "folder, and run the command again."
        ) from error


class _Resuming:
    """Workers whose finished results are kept in a folder: those of the calls that show progress, by their order."""

    def __init__(self, pool: Workers, folder: Path) -> None:
        self._pool, self._folder = pool, folder
        self.parts, self.memory = pool.parts, pool.memory
        self.stream, self.keep, self.both = pool.stream, pool.keep, pool.both
        self._calls = itertools.count()
        self._within = False
        self.taken = False  # whether anything that was kept has been used
        self._thread = threading.get_ident()

    def each(
        self,
        work: Callable[..., _Result],
        *columns: Arguments,
        shared: Arguments = (),
        label: str | None = None,
        side_by_side: bool = False,
    ) -> list[_Result]:
        """All results, those kept and the others."""
        if label is None or self._nested():
            return self._pool.each(work, *columns, shared=shared, label=label, side_by_side=side_by_side)
        number = next(self._calls)
        results = [self._kept(number, place) for place in range(len(columns[0]))]
        missing = [place for place, result in enumerate(results) if result is None]
        chosen = [[column[place] for place in missing] for column in columns]
        done = self._streamed(work, chosen, shared, side_by_side)
        for place in track(missing, label):
            results[place] = next(done)
            self._keep(number, place, results[place])
        return results

    def _streamed(
        self, work: Callable[..., _Result], columns: Sequence[Arguments], shared: Arguments, side_by_side: bool
    ) -> Iterator[_Result]:
        """Results as they come, or, where threads make them, some at a time."""
        if self._pool.parts > 1 or not side_by_side:
            yield from self._pool.stream(work, *columns, shared=shared)
            return
        for first in range(0, len(columns[0]), _GROUP):
            group = [column[first : first + _GROUP] for column in columns]
            yield from self._pool.each(work, *group, shared=shared, side_by_side=True)

    def together(
        self, job: Callable[[_Item], _Result], items: Sequence[_Item], label: str, *, side_by_side: bool = False
    ) -> list[_Result]:
        """All results of jobs, those kept and the others."""
        if self._nested():
            return self._pool.together(job, items, label, side_by_side=side_by_side)
        number = next(self._calls)

        def cached(place: int) -> _Result:
            found: _Result | None = self._kept(number, place)
            if found is None:
                found = job(items[place])
                self._keep(number, place, found)
            return found

        self._within = True
        try:
            return self._pool.together(cached, range(len(items)), label, side_by_side=side_by_side)
        finally:
            self._within = False

    def _nested(self) -> bool:
        """Whether the call is part of a job, which is kept as a whole."""
        return self._within or threading.get_ident() != self._thread

    def _keep(self, number: int, place: int, result: Any) -> None:
        stem = self._folder / f"{number}-{place}"
        refuse_link(stem)
        if isinstance(result, np.ndarray):
            with atomic_file(stem.with_suffix(".npy")) as beside, beside.open("wb") as out:
                np.save(out, result, allow_pickle=False)
        elif hasattr(result, "predict"):
            save(result, stem)

    def _kept(self, number: int, place: int) -> Any:
        stem = self._folder / f"{number}-{place}"
        try:
            found = _array(stem.with_suffix(".npy")) if not stem.is_dir() else load(stem)
        except (QuerywiseError, ValueError, EOFError, OSError):
            shutil.rmtree(stem, ignore_errors=True)  # it was being written when the run ended
            return None
        self.taken = self.taken or found is not None
        return found


def _array(path: Path) -> Any:
    """The array in a file, where there is one; ValueError if it is no array of finite numbers, as large as it says."""
    if not path.exists():
        return None
    found = np.array(map_array(path, path.parent))
    if found.dtype.kind != "f" or not np.isfinite(found).all():
        raise ValueError(path)
    return found
