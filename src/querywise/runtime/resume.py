"""Resuming interrupted work: finished results are kept in a folder, keyed by the content that they were computed from.

A result is reused only if everything that it depends on is identical: data, settings, version. The order of the
computations does not matter.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from querywise.errors import DataError, QuerywiseError
from querywise.runtime.cache import signature
from querywise.runtime.files import (
    atomic_file,
    atomic_text,
    make_folder,
    make_own_folder,
    map_array,
    read_stored_text,
    refuse_link,
)
from querywise.runtime.locks import locked
from querywise.runtime.progress import keeping, track
from querywise.runtime.values import Json, JsonObject, Settings
from querywise.runtime.workers import Arguments, Workers, workers

RECORD = "record.json"

_Model = TypeVar("_Model")
_Thing = TypeVar("_Thing")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Record:
    """A JSON file with the settings that the files beside it were made with.

    `settings` are everything that the result depends on.
    """

    path: Path
    settings: Json

    def read(self) -> JsonObject | None:
        """Return what was written with the same settings; None if they differ or the record is incomplete."""
        if not self.path.is_file():
            return None
        try:
            content: JsonObject = json.loads(read_stored_text(self.path))
            same = _as_text(content.pop("settings")) == _as_text(self.settings)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, DataError):
            return None
        return content if same else None

    def write(self, content: Settings | None = None) -> None:
        """Write the settings and further information about the result."""
        with atomic_text(self.path) as out:
            json.dump({"settings": self.settings, **(content or {})}, out, indent=1)


@contextlib.contextmanager
def resume_folder(folder: Path, settings: Json) -> Iterator[None]:
    """Keep a folder for finished parts while the block runs; parts made with other settings are removed.

    Parts are written under a name that begins with a dot and then renamed, so that each is either complete or absent.
    The folder is removed when the block succeeds, or fails with no part finished. Only one run at a time may use it.
    """
    make_folder(folder.parent)
    with locked(folder.with_name(f"{folder.name}.lock"), busy=f"{folder}: another run keeps its finished parts here"):
        make_own_folder(folder)
        record = Record(folder / RECORD, settings)
        if record.read() is None or any(each.is_symlink() for each in folder.rglob("*")):  # no run creates links
            shutil.rmtree(folder, ignore_errors=True)
            make_own_folder(folder)
            record.write()
        over = False
        try:
            with keeping(lambda: f"what is finished is kept in {folder}" if _has_parts(folder) else ""):
                yield
            over = True
        finally:
            if over or not _has_parts(folder):
                shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Store:
    """Arrays and models in a folder, each under a checksum of what it was computed from.

    `save` and `load` write a model to a folder of its own, and read it.
    """

    folder: Path
    save: Callable[[Any, Path], object]  # models of any class
    load: Callable[[Path], Any]
    used: bool = False  # whether a kept result has been used

    def get(self, name: str) -> Any:
        """Return the result kept under a checksum, or None if there is no complete one."""
        stem = self.folder / name
        try:
            found = self.load(stem) if stem.is_dir() else _array(stem.with_suffix(".npy"))
        except (QuerywiseError, ValueError, EOFError, OSError):
            shutil.rmtree(stem, ignore_errors=True)  # incomplete when the run ended
            return None
        self.used = self.used or found is not None
        return found

    def put(self, name: str, result: Any) -> None:
        """Keep an array or a model."""
        stem = self.folder / name
        refuse_link(stem)
        if isinstance(result, np.ndarray):
            with atomic_file(stem.with_suffix(".npy")) as beside, beside.open("wb") as out:
                np.save(out, result, allow_pickle=False)
        else:
            self.save(result, stem)


_store: ContextVar[_Store | None] = ContextVar("querywise_store", default=None)


def is_resumable() -> bool:
    """Return whether finished work is being kept, so that computing checksums is worthwhile."""
    return _store.get() is not None


@contextlib.contextmanager
def resuming(
    folder: Path, record: Json, *, save: Callable[[_Model, Path], None], load: Callable[[Path], _Model]
) -> Iterator[None]:
    """Keep finished work in a folder while the block runs, and reuse results of a run with the same record.

    The folder is removed when the block succeeds, or fails with nothing finished.
    """
    store = _Store(folder, save, load)
    token = _store.set(store)
    try:
        with resume_folder(folder, record):
            yield
    except (QuerywiseError, OSError, MemoryError):
        raise
    except Exception as error:
        if not store.used:
            raise
        raise DataError(
            f"{folder}: the saved work there does not match this training ({type(error).__name__}: {error}). Remove "
            "the "
            "folder, and run the command again."
        ) from error
    finally:
        _store.reset(token)


def finish_jobs(
    pool: Workers,
    job: Callable[[_Item], _Result],
    items: Sequence[_Item],
    label: str,
    key: str | None,
    *,
    side_by_side: bool = False,
) -> list[_Result]:
    """Return the results of `pool.together`, arrays or models, each kept as soon as it is finished.

    `key` is the `content` of everything that the results depend on besides the items; None keeps nothing.
    """
    store = _store.get()
    if store is None or key is None:
        return pool.together(job, items, label, side_by_side=side_by_side)

    def one(item: _Item) -> _Result:
        name = content((key, item))
        found: _Result | None = store.get(name)
        if found is None:
            found = job(item)
            store.put(name, found)
        return found

    return pool.together(one, items, label, side_by_side=side_by_side)


def finish_calls(work: Callable[..., _Result], *columns: Arguments, shared: Arguments, label: str) -> list[_Result]:
    """Return the results of `workers().each`, arrays or models, computed in parallel and kept as soon as finished."""
    pool, store, rows = workers(), _store.get(), list(zip(*columns, strict=True))
    if store is None:
        return pool.each(work, *columns, shared=shared, label=label, side_by_side=True)
    key = content((work, shared))
    if pool.parts == 1:
        return finish_jobs(pool, lambda row: work(*row, *shared), rows, label, key, side_by_side=True)
    names = [content((key, row)) for row in rows]
    results = [store.get(name) for name in names]
    missing = [place for place, result in enumerate(results) if result is None]
    done = pool.stream(work, *([column[place] for place in missing] for column in columns), shared=shared)
    for place in track(missing, label):
        results[place] = next(done)
        store.put(names[place], results[place])
    return results


def content(thing: _Thing) -> str:
    """Return a checksum of values, arrays, data and estimators that is the same in every process."""
    return hashlib.sha256(repr(signature(thing, of=_content)).encode()).hexdigest()


def _content(thing: Any) -> tuple[object, ...]:
    if isinstance(thing, np.ndarray):
        return (str(thing.dtype), thing.shape, hashlib.sha256(np.ascontiguousarray(thing).data).hexdigest())
    if isinstance(thing, slice):
        return (thing.start, thing.stop, thing.step)
    if hasattr(thing, "fingerprint"):
        return tuple(thing.fingerprint())
    return (thing.__module__, thing.__qualname__)  # a class or a function


def _array(path: Path) -> Any:
    """Return the array in a file, or None if there is no file. Raise ValueError unless its numbers are finite."""
    if not path.exists():
        return None
    found = np.array(map_array(path, path.parent))
    if found.dtype.kind != "f" or not np.isfinite(found).all():
        raise ValueError(path)
    return found


def _has_parts(folder: Path) -> bool:
    return folder.is_dir() and any(each.name != RECORD and not each.name.startswith(".") for each in folder.iterdir())


def _as_text(settings: Json) -> str:
    return json.dumps(settings, sort_keys=True)
