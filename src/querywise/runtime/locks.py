"""Locks between processes that write to the same path. The system releases a lock when its process ends for any reason.

The process that holds a lock removes its file. A leftover lock file belongs to a process that was killed; it blocks
nobody, and the next process removes it.
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
except ImportError:  # systems without such locks, such as Windows
    fcntl = None  # type: ignore[assignment]

_AGAIN_SECONDS = 0.02  # between attempts to get a lock
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL}  # errors of file systems without locks
_FOREIGN = {errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO}  # links, folders, files, sockets
_KINDS = {stat.S_IFREG: "a file that was not made here, or a hard link to one", stat.S_IFDIR: "a folder"}

_WRITERS = 100  # to one path at the same time


@contextlib.contextmanager
def locked(path: Path, *, busy: str | None = None, seconds: float = 0.0) -> Iterator[bool]:
    """Hold the lock file `path` while the block runs; yield False if the file system has no locks.

    If another process holds the lock, wait for it; with `busy`, wait at most so many seconds, then raise DataError with
    this message and the holder's name.
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
        with contextlib.suppress(OSError):  # a leftover file blocks nobody
            # before the release: waiting processes then see a different file and open that
            path.unlink(missing_ok=True)
        os.close(held)


def try_lock(path: Path, *, folder: bool) -> int | None:
    """Open and lock a folder, or a file, which is created. Return None if another process holds the lock.

    The caller closes it. Raises NoLocksError if the file system has no locks, ForeignError if there is a link or
    something else at the path.
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
        os.close(opened)  # it was renamed or removed before it was locked


class NoLocksError(OSError):
    """An error for file systems without locks."""


class ForeignError(DataError):
    """An error for something that no run creates at a path, such as a link: its target belongs to somebody else."""

    def __init__(self, path: Path) -> None:
        found = "a file of another kind"
        with contextlib.suppress(OSError):  # it may be gone by now
            mode = os.lstat(path).st_mode
            found = f"a link to {os.readlink(path)}" if stat.S_ISLNK(mode) else _KINDS.get(stat.S_IFMT(mode), found)
        super().__init__(f"{path}: this is {found}, where querywise makes a file or folder of its own. Remove it.")


def _open_own(path: Path, *, folder: bool = False) -> int:
    """Open a folder, or a file, which is created.

    Raise ForeignError for anything else, without following or waiting.
    """
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
        path.parent.mkdir(exist_ok=True)  # the lock's previous holder may have removed the folder
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
                f"{busy}: {owner or 'its process is unknown'}. Wait for it, or name another place."
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
    """Return whether a path still names the open file."""
    try:
        there, ours = os.lstat(path), os.fstat(opened)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


@contextlib.contextmanager
def part_beside(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield an empty file or folder beside `path` that no other process writes to.

    Remove it at the end if it still exists.

    Leftovers of this user's killed processes are overwritten. If a link or another user's file has the name, another
    name is used.
    """
    # While folders are exchanged, the part's name briefly holds the old folder, which nobody may take.
    with locked(lock_beside(path)) if folder else contextlib.nullcontext():
        beside, held = _free_part(path, folder)
    try:
        _clear(beside, held)
        yield beside
    finally:
        _remove(beside, held)


def _free_part(path: Path, folder: bool) -> tuple[Path, int | None]:
    """Return the first path that no process holds, and the lock on it; any path if there are no locks."""
    for number in range(1, _WRITERS + 1):
        beside = path.with_name(f".{path.name}.part" if number == 1 else f".{path.name}.{number}.part")
        try:
            if not _made(beside, folder):
                _require_own(beside)
            held = try_lock(beside, folder=folder)
        except NoLocksError:
            break
        # Just renamed, or left by another user.
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
    """Create a part; return False if it already exists."""
    try:
        if folder:
            beside.mkdir()
        else:
            os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        return False
    return True


def _require_own(beside: Path) -> None:
    """Raise ForeignError for another user's file: that user would own what is written into it."""
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
    """Remove a part that was not renamed, unless another process now owns the name."""
    ours = held is None or is_still(beside, held)
    if ours and beside.is_dir():
        shutil.rmtree(beside, ignore_errors=True)
    elif ours:
        beside.unlink(missing_ok=True)
    if held is not None:
        os.close(held)


def lock_beside(path: Path) -> Path:
    """Return the lock file for replacing a folder at a path."""
    return path.with_name(f".{path.name}.lock")
