"""Parts: what is being written, under a name beside the one that it gets once it is whole."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from querywise.runtime.locks import ForeignError, NoLocksError, is_still, locked, try_lock

_WRITERS = 100  # to one path at the same time


@contextlib.contextmanager
def part_beside(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """An empty file or folder beside `path` that no other process writes to, removed at the end if it is still there.

    What a killed process left under the name is written over. Where there is a link or the like, another name is taken.
    """
    # While folders change places, the name of a part is for a moment that of the old folder, which nobody may take.
    with locked(lock_beside(path)) if folder else contextlib.nullcontext():
        beside, held = _free_part(path, folder)
    try:
        _clear(beside, held)
        yield beside
    finally:
        _remove(beside, held)


def _free_part(path: Path, folder: bool) -> tuple[Path, int | None]:
    """The first name that no process holds, and the lock on it; any name where there are no locks."""
    for number in range(1, _WRITERS + 1):
        beside = path.with_name(f".{path.name}.part" if number == 1 else f".{path.name}.{number}.part")
        try:
            if folder:
                beside.mkdir(exist_ok=True)
            held = try_lock(beside, folder=folder)
        except NoLocksError:
            break
        # Put in its place just now, or left by somebody else.
        except (FileNotFoundError, PermissionError, FileExistsError, ForeignError):
            if number == _WRITERS or not path.parent.is_dir():
                raise
            continue
        if held is not None:
            return beside, held
    beside = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    beside.mkdir() if folder else beside.touch(exist_ok=False)
    return beside, None


def _clear(beside: Path, held: int | None) -> None:
    if not beside.is_dir():
        if held is not None:
            os.ftruncate(held, 0)
        return
    for each in beside.iterdir():
        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()


def _remove(beside: Path, held: int | None) -> None:
    """Remove a part that was not put in its place; under its name there may be another process's by now."""
    ours = held is None or is_still(beside, held)
    if ours and beside.is_dir():
        shutil.rmtree(beside, ignore_errors=True)
    elif ours:
        beside.unlink(missing_ok=True)
    if held is not None:
        os.close(held)


def lock_beside(path: Path) -> Path:
    """The lock file of whoever puts a folder at a path."""
    return path.with_name(f".{path.name}.lock")
