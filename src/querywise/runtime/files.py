"""Reading and writing of files: readers never get a partial file, and an interrupted write loses nothing.

Also checksums of files, and of manifests, which contain their own checksum.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import shutil
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO, TypeVar

from querywise.errors import DataError, ModelFileError, QuerywiseError
from querywise.runtime.locks import ForeignError, lock_beside, locked, part_beside
from querywise.runtime.values import Json

if TYPE_CHECKING:
    from numpy import generic
    from numpy.typing import NDArray

_PIECE = 1_000_000
SEAL = "sha256"

_HERE = -100  # AT_FDCWD: relative paths are relative to the working folder
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
# errors of systems and file systems that lack the call
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EXDEV}

PathLike = str | os.PathLike[str]

_Found = TypeVar("_Found")
_LONGEST = 1_000_000_000  # bytes of a stored text
_READINGS = 50  # attempts to read a folder that keeps being replaced
_LOOKS = 3  # checks of an output folder that another writer may be replacing


def paths_of(data: PathLike | Sequence[PathLike]) -> list[Path]:
    """Return one path or several as a list."""
    return [Path(data)] if isinstance(data, (str, os.PathLike)) else [Path(each) for each in data]


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raise DataError if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file (looked in {path.absolute().parent}).") from None
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder; a file was expected.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def read_text(path: Path) -> str:
    """Return the content of a UTF-8 file, without its byte-order mark."""
    return as_text(read_bytes(path), path)


def as_text(content: bytes, path: Path) -> str:
    """Decode the content of a UTF-8 file."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8 text. Convert the file to UTF-8.") from None


@contextlib.contextmanager
def atomic_text(path: Path) -> Iterator[TextIO]:
    """Write beside `path`, then rename: until the block succeeds, the previous file stays."""
    with atomic_file(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as out:
        yield out


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file: until everything is written, the previous file stays."""
    with atomic_file(path) as beside:
        beside.write_bytes(content)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to, then rename it: until the block succeeds, the previous file stays.

    The file's permissions stay the same.
    """
    check_writable(path)
    with refused_if_not_written(path), part_beside(path) as beside:
        mode = stat.S_IMODE(path.stat().st_mode) if path.is_file() else None
        if mode is not None:
            beside.chmod(mode | stat.S_IWUSR)
        yield beside
        if mode is not None:
            beside.chmod(mode)
        _sync(beside)
        os.replace(beside, path)
        _sync(path.absolute().parent)


def append_bytes(path: Path, content: bytes, *, after: int, like: Path) -> None:
    """Write to a regular file at offset `after`, dropping what followed, and sync it to disk.

    A new file gets the permissions of `like`, if that exists.
    """
    mode = stat.S_IMODE(like.stat().st_mode) if like.is_file() else None
    new = not path.exists()
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags, 0o666), "r+b", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DataError(f"{path}: not a regular file.")
        if os.fstat(file.fileno()).st_nlink > 1:
            raise DataError(f"{path}: a file with several names (hard links) is not added to. Put a copy in its place.")
        if new and mode is not None:
            path.chmod(mode)
        try:
            file.truncate(after)
            file.seek(after)
            if file.write(content) != len(content):
                raise OSError(f"{path}: not all of it could be written")
            os.fsync(file.fileno())
        except OSError:
            file.truncate(after)
            raise
    if new:
        _sync(path.absolute().parent)


@contextlib.contextmanager
def refused_if_not_written(path: Path) -> Iterator[None]:
    """Raise DataError for an OSError while the block writes to `path`."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}).") from None


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Write a folder beside `path`, then move it there: until the block succeeds, the previous folder stays whole."""
    check_folder(path)
    target = path.resolve()
    make_folder(target.parent)
    _refuse_foreign(_aside(target))
    try:
        recover_folder(target)
        with part_beside(target, folder=True) as made:
            yield made
            replace_folder(made, target)
    except OSError as error:
        raise DataError(f"{path}: the folder cannot be written ({error.strerror or error}).") from None


def replace_folder(made: Path, path: Path) -> None:
    """Replace a folder by a finished one and remove the old one.

    This is one step if the system can exchange two paths. Elsewhere there is a moment with nothing at `path`; if the
    process ends just then, `recover_folder` restores the old folder.
    """
    for each in (*made.rglob("*"), made):
        _sync(each)
    aside = _aside(path)
    with locked(lock_beside(path)):
        _refuse_foreign(aside)
        shutil.rmtree(aside, ignore_errors=True)  # left by a run that was killed after the replacement
        if not path.exists() or not any(path.iterdir()):
            os.replace(made, path)  # replaces an empty folder as it would a file
        elif exchange(made, path):
            os.rename(made, aside)
        else:
            os.rename(path, aside)
            try:
                os.rename(made, path)
            except BaseException:  # including interrupts
                os.rename(aside, path)
                raise
        _sync(path.parent)
        shutil.rmtree(aside, ignore_errors=True)


def recover_folder(path: Path) -> None:
    """Restore the old folder at `path` if a killed run had moved it away and not yet replaced it."""
    target = path.resolve()
    aside = _aside(target)
    if target.exists() or aside.is_symlink() or not aside.is_dir():
        return
    with contextlib.suppress(OSError), locked(lock_beside(target)):  # without write permission, only read
        if not target.exists():
            os.rename(aside, target)


def read_steadily(folder: Path, manifest: str, read: Callable[[], _Found]) -> _Found:
    """Return what `read` returns for a folder of several files, reading again if the folder was replaced meanwhile."""
    for _ in range(_READINGS):
        recover_folder(folder)
        before = _generation(folder, manifest)
        try:
            found = read()
        except (QuerywiseError, OSError):
            recover_folder(folder)  # waits for a writer that has just moved the old folder away
            if _generation(folder, manifest) == before and not (before is None and _is_being_replaced(folder)):
                raise
            continue
        if _generation(folder, manifest) == before:
            return found
    raise ModelFileError(f"{folder}: the folder is replaced faster than it can be read. Try again.")


def _is_being_replaced(folder: Path) -> bool:
    """Return whether a writer is replacing a folder, so that there may be nothing at its path for a moment."""
    target = folder.resolve()
    return _aside(target).exists() or lock_beside(target).exists()


def _generation(folder: Path, manifest: str) -> tuple[int, ...] | None:
    """Return a value that changes when the folder or its manifest is replaced."""
    try:
        whole, file = folder.stat(), (folder / manifest).stat()
    except OSError:
        return None
    return whole.st_dev, whole.st_ino, file.st_ino, file.st_mtime_ns, file.st_size


def _refuse_foreign(aside: Path) -> None:
    if aside.is_symlink() or aside.is_file():
        raise ForeignError(aside)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot sync folders
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_writable(path: Path) -> None:
    """Raise DataError if a file cannot be written, before any long work is done for it."""
    parent = path.absolute().parent
    if path.is_dir():
        raise DataError(f"{path}: this is a folder; name a file to write.")
    if not parent.is_dir():
        raise DataError(f"{path}: the folder {parent} does not exist; create it first.")
    if not os.access(parent, os.W_OK):
        raise DataError(f"{path}: no permission to write in the folder {parent}.")


def check_folder(path: Path) -> None:
    """Raise DataError if a folder cannot be created or written to, before any long work is done for it."""
    for _ in range(_LOOKS):
        problem = _problem_of(path)
        if problem is None:
            return
        time.sleep(0.001)
    raise DataError(f"{path}: {problem}")


def _problem_of(path: Path) -> str | None:
    """Return why a folder cannot be created or written to, or None; another writer may be replacing it right now."""
    whole = path.absolute()
    there, found = next((each, found) for each in (whole, *whole.parents) if (found := _found(each)) is not None)
    if not stat.S_ISDIR(found.st_mode):
        return f"the folder cannot be made ({there} is a file)."
    if os.access(there, os.W_OK) or _found(there) != found:  # replaced meanwhile
        return None
    return f"no permission to write in the folder {there}."


def _found(path: Path) -> os.stat_result | None:
    """Return the status of a path from a single call: another writer may move a folder away at any moment."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder for several files. Raise DataError if that fails."""
    try:
        path.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: the folder cannot be made ({error.strerror}).") from None
    if not os.access(path, os.W_OK):
        raise DataError(f"{path}: no permission to write in this folder.")


def make_own_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder that the user did not name, in or beside an output. Raise ForeignError if a link is there."""
    refuse_link(path)
    make_folder(path, mode)


def refuse_link(path: Path) -> None:
    """Raise ForeignError for a link where an internal folder belongs: it may lead to anyone's files."""
    if path.is_symlink():
        raise ForeignError(path)


@dataclass(frozen=True)
class OutputFolder:
    """A kind of folder that is written as a whole: how it is recognized, and the errors for other paths.

    Attributes:
        a_file: the message for a file.
        other: the message for a folder that holds something else.
        manifest: the file that every such folder has.
        belongs: returns whether a name may be in the folder.
        stray: the message for a name that may not.
        makes_parents: whether parent folders are created.
        in_place: whether files are replaced one by one rather than the folder as a whole.
        unfinished: returns whether a killed run leaves a name in a new folder, which then counts as empty.
    """

    a_file: str | None = None
    other: str = ""
    manifest: str | None = None
    belongs: Callable[[str], bool] | None = None
    stray: str = ""
    makes_parents: bool = True
    in_place: bool = False
    unfinished: Callable[[str], bool] | None = None

    def check(self, path: Path) -> None:
        """Raise DataError for a path that cannot be such a folder, before any long work is done for it."""
        parent = path.absolute().parent
        if self.a_file is not None and (found := _found(path)) is not None and not stat.S_ISDIR(found.st_mode):
            raise DataError(f"{path}: {self.a_file}")
        if not self.makes_parents and not parent.is_dir():
            raise DataError(f"{path}: the folder {parent} does not exist; create it first.")
        check_folder(path)
        if path.is_dir() and not self.in_place and not os.access(parent, os.W_OK):
            raise DataError(f"{path}: no permission to write in the folder {parent}.")
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # nothing there, perhaps only for a moment
            names = sorted(each.name for each in path.iterdir())
        whole = [name for name in names if self.unfinished is None or not self.unfinished(name)]
        if whole and self.manifest is not None and self.manifest not in whole:
            raise DataError(f"{path}: {self.other}")
        strays = [name for name in names if self.belongs is not None and not self.belongs(name)]
        if strays:
            raise DataError(f"{path}: {strays[0]!r} {self.stray}")


@contextlib.contextmanager
def regular_file(path: Path, folder: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading that lies in the folder after resolving links.

    Raise DataError for anything else, such as a device or a pipe, without waiting for it; raise FileNotFoundError if
    there is no file.
    """
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(folder.resolve(strict=True)):
            raise DataError(f"{path}: leads to {real}, outside of the folder. Copy the file into it.")
        if not stat.S_ISREG(real.stat().st_mode):
            raise DataError(f"{path}: not a regular file.")
        # Open without blocking: a pipe may have replaced it meanwhile.
        number = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    with open(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise DataError(f"{path}: not a regular file.")
        yield file


def read_regular_file(path: Path, folder: Path, at_most: int) -> bytes:
    """Return the content of a regular file in the folder, of at most so many bytes; see `regular_file`."""
    with regular_file(path, folder) as file:
        size = os.fstat(file.fileno()).st_size
        if size > at_most:
            raise DataError(f"{path}: {size} bytes; expected {at_most} at most.")
        return file.read(size)


def read_stored_text(path: Path) -> str:
    """Return the text of a regular file that a program stored in its folder; the file may come from elsewhere."""
    try:
        return as_text(read_regular_file(path, path.parent, _LONGEST), path)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file (looked in {path.absolute().parent}).") from None


def cache_folder() -> Path:
    """Return the folder of the user's cached files: under `XDG_CACHE_HOME`, or in `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(home) if home else Path.home() / ".cache") / "querywise"


def parse_json(content: str | bytes, path: Path) -> Json:
    """Parse the content of a JSON file."""
    try:
        found: Json = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: this is not JSON ({error}).") from None
    return found


def map_array(path: Path, folder: Path) -> NDArray[generic]:
    """Memory-map the array of a regular `.npy` file in the folder, after checking its size.

    Raise DataError for anything else; raise FileNotFoundError if there is no file.
    """
    import numpy as np  # text-only users need not wait for this import

    with regular_file(path, folder):
        pass  # only check that it is one
    try:
        found = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # noqa: BLE001 - a header written to do harm could raise anything
        raise DataError(f"{path}: not a .npy file of numbers, or cut short ({error}). Write it again.") from None
    if found.offset + found.nbytes != path.stat().st_size:
        raise DataError(f"{path}: longer than its array. Write it again.")
    return np.asarray(found)


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def crc32_of(path: Path) -> int:
    """Return the CRC-32 of a file's bytes, a fast check for damage, but not for forgery."""
    with open(path, "rb") as file:
        return crc32_of_open(file)


def crc32_of_open(file: BinaryIO) -> int:
    """Return the CRC-32 of an open file."""
    found = 0
    while piece := file.read(_PIECE):
        found = zlib.crc32(piece, found)
    return found


def sealed(manifest: Mapping[str, Json]) -> dict[str, Json]:
    """Return a manifest with a checksum of its other entries."""
    return {**manifest, SEAL: digest_of(manifest)}


def is_sealed(manifest: Mapping[str, Json]) -> bool:
    """Return whether a manifest's checksum is correct."""
    return manifest.get(SEAL) == digest_of({name: each for name, each in manifest.items() if name != SEAL})


def digest_of(content: Mapping[str, Json]) -> str:
    """Return the checksum of a manifest, excluding its own checksum."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def exchange(first: Path, second: Path) -> bool:
    """Exchange two paths in one step; return False, with nothing done, if the system cannot."""
    names = os.fsencode(first), os.fsencode(second)
    try:
        system = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            failed = system.renamex_np(names[0], names[1], ctypes.c_uint(_EXCHANGE))
        else:
            failed = system.renameat2(_HERE, names[0], _HERE, names[1], ctypes.c_uint(_EXCHANGE))
    except (AttributeError, OSError, TypeError):  # a system without the call
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(first), None, str(second))
