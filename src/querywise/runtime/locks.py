"""Locks between processes that write to one place. The system takes a lock back when its process ends, however it ends.

A lock file is removed by whoever held it. One that is left over belongs to a process that was killed, holds nobody up,
and is removed by the next.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from querywise.errors import DataError

try:
    import fcntl
except ImportError:  # a system without such locks, as Windows
    fcntl = None  # type: ignore[assignment]

_AGAIN_SECONDS = 0.02  # until a lock that was held is tried again
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL}  # what file systems without locks answer
_FOREIGN = {errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO}  # links, folders, files, sockets
_KINDS = {stat.S_IFREG: "a file that was not made here, or a hard link to one", stat.S_IFDIR: "a folder"}

_WRITERS = 100  # to one path at the same time


@contextlib.contextmanager
def locked(path: Path, *, busy: str | None = None, seconds: float = 0.0) -> Iterator[bool]:
    """Hold the lock file `path` while the block runs; False where the file system has no locks.

    busy: refuse with this message if another process holds it for so many seconds, and say which; without, wait until
    it is free.
    """
    held = None if fcntl is None else _acquire(path, busy, time.monotonic() + seconds)
    if held is None:
        yield False
        return
    try:
        os.ftruncate(held, 0)
        os.pwrite(
            held, f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T %z')}".encode(), 0
        )
        yield True
    finally:
        with contextlib.suppress(OSError):  # one that is left over holds nobody up
            path.unlink(missing_ok=True)  # first: whoever waits sees that the file is another, and opens that
        os.close(held)


def try_lock(path: Path, *, folder: bool) -> int | None:
    """Open and lock a folder, or a file, which is made; None if another process has it. The caller closes it.

    Raises NoLocksError where the file system has no locks, ForeignError where a link or the like is at the path.
    """
    if fcntl is None:
        raise NoLocksError
    while True:
        opened = _open_own(path, folder=folder)
        try:
            _lock(opened, wait=False)
        except BlockingIOError:
            os.close(opened)
            return None
        except BaseException:
            os.close(opened)
            raise
        if is_still(path, opened):
            return opened
        os.close(opened)  # it was put in its place, or removed, before it was locked


class NoLocksError(OSError):
    """The file system has no locks."""


class ForeignError(DataError):
    """Something is at a path that no run leaves there, such as a link: what it leads to belongs to somebody else."""

    def __init__(self, path: Path) -> None:
        found = "a file of another kind"
        with contextlib.suppress(OSError):  # it may be gone by now
            mode = os.lstat(path).st_mode
            found = f"a link to {os.readlink(path)}" if stat.S_ISLNK(mode) else _KINDS.get(stat.S_IFMT(mode), found)
        super().__init__(f"{path}: this is {found}, where querywise makes a file or folder of its own. Remove it.")


def _open_own(path: Path, *, folder: bool = False) -> int:
    """Open a folder, or a file, which is made; anything else that is there is refused, never followed or waited for."""
    flags = os.O_RDONLY | os.O_DIRECTORY if folder else os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
    try:
        opened = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno in _FOREIGN:
            raise ForeignError(path) from None
        raise
    found = os.fstat(opened)
    if not folder and (not stat.S_ISREG(found.st_mode) or found.st_nlink > 1):
        os.close(opened)
        raise ForeignError(path)
    return opened


def _acquire(path: Path, busy: str | None, until: float) -> int | None:
    while True:
        path.parent.mkdir(exist_ok=True)  # whoever held the lock may have removed the folder
        try:
            opened = _open_own(path)
        except FileNotFoundError:
            continue
        try:
            _lock(opened, wait=busy is None)
        except NoLocksError:
            os.close(opened)
            return None
        except BlockingIOError:
            owner = os.pread(opened, 1000, 0).decode(errors="replace")
            os.close(opened)
            if time.monotonic() < until:
                time.sleep(_AGAIN_SECONDS)
                continue
            raise DataError(
                f"{busy}: {owner or 'its process is not known'}. Wait for it, or name another place."
            ) from None
        except BaseException:
            os.close(opened)
            raise
        if is_still(path, opened):
            return opened
        os.close(opened)


def _lock(opened: int, *, wait: bool) -> None:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise NoLocksError from None
        raise


def is_still(path: Path, opened: int) -> bool:
    """Whether a path still names what was opened."""
    try:
        there, ours = os.lstat(path), os.fstat(opened)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


@contextlib.contextmanager
def part_beside(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """An empty file or folder beside `path` that no other process writes to, removed at the end if it is still there.

    What a killed process of this user left under the name is written over. Where there is a link or the like, or
    something of another user's, another name is taken.
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
            if not _made(beside, folder):
                _require_own(beside)
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


def _made(beside: Path, folder: bool) -> bool:
    """Make a part; False where there is one already."""
    try:
        if folder:
            beside.mkdir()
        else:
            os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        return False
    return True


def _require_own(beside: Path) -> None:
    """Refuse what another user made: what is written into it, and what it becomes, would be that user's."""
    if os.name != "nt" and os.lstat(beside).st_uid != os.geteuid():
        raise ForeignError(beside)


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
