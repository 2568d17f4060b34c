"""Files read whole and written whole: a reader never gets a partial file, an interrupt loses nothing.

And their checksums: of a file, and of a manifest, which carries its own.
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
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EXDEV}  # of systems and file systems that cannot

PathLike = str | os.PathLike[str]

_Found = TypeVar("_Found")
_LONGEST = 1_000_000_000  # bytes of a stored text
_READINGS = 50  # of a folder that is replaced all the time
_LOOKS = 3  # at an output folder that another writer may be replacing


def paths_of(data: PathLike | Sequence[PathLike]) -> list[Path]:
    """One path or several, as a list."""
    return [Path(data)] if isinstance(data, (str, os.PathLike)) else [Path(each) for each in data]


def read_bytes(path: Path) -> bytes:
    """The content of a file, or a DataError that says why there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file (looked in {path.absolute().parent}).") from None
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder; a file was expected.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def read_text(path: Path) -> str:
    """The content of a UTF-8 file, without its byte-order mark."""
    return as_text(read_bytes(path), path)


def as_text(content: bytes, path: Path) -> str:
    """The text of a UTF-8 file, from its content."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8 text. Convert the file to UTF-8.") from None


@contextlib.contextmanager
def atomic_text(path: Path) -> Iterator[TextIO]:
    """Write beside `path`, then rename: until the block ends well, what was there before stays."""
    with atomic_file(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as out:
        yield out


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole: until all is written, what was there before stays."""
    with atomic_file(path) as beside:
        beside.write_bytes(content)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, then renamed: until the block ends well, what was there before stays.

    So do its permissions.
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
    """Write to the end of a regular file, after so many bytes, and to the disk; what follows them is dropped.

    like: the file whose permissions a new one gets, if it is there.
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
    """Refuse with a DataError what the system refuses while the block writes to `path`."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}).") from None


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Write a folder beside `path`, then put it there: until the block ends well, what was there before stays whole."""
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
    """Put a finished folder in the place of another, which is then removed.

    In one step where the system can exchange two paths. Elsewhere there is a moment in which nothing is at `path`; if
    the process ends just then, `recover_folder` puts the old folder back.
    """
    for each in (*made.rglob("*"), made):
        _sync(each)
    aside = _aside(path)
    with locked(lock_beside(path)):
        _refuse_foreign(aside)
        shutil.rmtree(aside, ignore_errors=True)  # of a run that was killed after its folder was in place
        if not path.exists() or not any(path.iterdir()):
            os.replace(made, path)  # an empty folder is replaced like a file
        elif exchange(made, path):
            os.rename(made, aside)
        else:
            os.rename(path, aside)
            try:
                os.rename(made, path)
            except BaseException:  # an interrupt too
                os.rename(aside, path)
                raise
        _sync(path.parent)
        shutil.rmtree(aside, ignore_errors=True)


def recover_folder(path: Path) -> None:
    """Put back the folder that a killed run had moved away from `path` and not yet replaced, if there is one."""
    target = path.resolve()
    aside = _aside(target)
    if target.exists() or aside.is_symlink() or not aside.is_dir():
        return
    with contextlib.suppress(OSError), locked(lock_beside(target)):  # whoever may not write here only reads
        if not target.exists():
            os.rename(aside, target)


def read_steadily(folder: Path, manifest: str, read: Callable[[], _Found]) -> _Found:
    """What `read` finds in a folder of several files; read again if the folder was replaced meanwhile."""
    for _ in range(_READINGS):
        recover_folder(folder)
        before = _generation(folder, manifest)
        try:
            found = read()
        except (QuerywiseError, OSError):
            recover_folder(folder)  # waits for a writer who has just moved the old folder away
            if _generation(folder, manifest) == before and not (before is None and _is_being_replaced(folder)):
                raise
            continue
        if _generation(folder, manifest) == before:
            return found
    raise ModelFileError(f"{folder}: the folder is replaced faster than it can be read. Try again.")


def _is_being_replaced(folder: Path) -> bool:
    """Whether a writer holds the place of a folder, at which there may be nothing for a moment."""
    target = folder.resolve()
    return _aside(target).exists() or lock_beside(target).exists()


def _generation(folder: Path, manifest: str) -> tuple[int, ...] | None:
    """What is another once the folder or its manifest has been replaced."""
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
    """Have the system write a file, or the names in a folder, to the disk."""
    if os.name == "nt" and path.is_dir():
        return  # no such thing there
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_writable(path: Path) -> None:
    """Refuse an output that cannot be written, before any long work is done for it."""
    parent = path.absolute().parent
    if path.is_dir():
        raise DataError(f"{path}: this is a folder; name a file to write.")
    if not parent.is_dir():
        raise DataError(f"{path}: the folder {parent} does not exist; make it first.")
    if not os.access(parent, os.W_OK):
        raise DataError(f"{path}: no permission to write in the folder {parent}.")


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be made or written to, before any long work is done for it."""
    for _ in range(_LOOKS):
        problem = _problem_of(path)
        if problem is None:
            return
        time.sleep(0.001)
    raise DataError(f"{path}: {problem}")


def _problem_of(path: Path) -> str | None:
    """Why a folder cannot be made or written to; also of one that another writer replaces at this very moment."""
    whole = path.absolute()
    there, found = next((each, found) for each in (whole, *whole.parents) if (found := _found(each)) is not None)
    if not stat.S_ISDIR(found.st_mode):
        return f"the folder cannot be made ({there} is a file)."
    if os.access(there, os.W_OK) or _found(there) != found:  # another one by now
        return None
    return f"no permission to write in the folder {there}."


def _found(path: Path) -> os.stat_result | None:
    """What is there, asked once: another writer may put a folder aside at any moment."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder to write several files to, or say why that cannot be."""
    try:
        path.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: the folder cannot be made ({error.strerror}).") from None
    if not os.access(path, os.W_OK):
        raise DataError(f"{path}: no permission to write in this folder.")


def make_own_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder that nobody named, within an output or beside it; a link there is refused, not followed."""
    refuse_link(path)
    make_folder(path, mode)


def refuse_link(path: Path) -> None:
    """Refuse a link where a folder that nobody named is to be: it may lead to anybody's files."""
    if path.is_symlink():
        raise ForeignError(path)


@dataclass(frozen=True)
class OutputFolder:
    """A kind of folder that is written as a whole: how it is recognised, and the refusals of other paths.

    a_file, other: the messages for a file, and for a folder that holds something else. manifest: the file that every
    such folder has. belongs: which names may be in it; stray: the message for another. makes_parents: whether its
    parent folders are made. in_place: whether its files are replaced one by one, and not the folder as a whole.
    unfinished: names that a killed run leaves in a new folder, which is then like an empty one.
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
        """Refuse a path that the folder cannot have, before any long work is done for it."""
        parent = path.absolute().parent
        if self.a_file is not None and (found := _found(path)) is not None and not stat.S_ISDIR(found.st_mode):
            raise DataError(f"{path}: {self.a_file}")
        if not self.makes_parents and not parent.is_dir():
            raise DataError(f"{path}: the folder {parent} does not exist; make it first.")
        check_folder(path)
        if path.is_dir() and not self.in_place and not os.access(parent, os.W_OK):
            raise DataError(f"{path}: no permission to write in the folder {parent}.")
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # nothing there, perhaps for a moment
            names = sorted(each.name for each in path.iterdir())
        whole = [name for name in names if self.unfinished is None or not self.unfinished(name)]
        if whole and self.manifest is not None and self.manifest not in whole:
            raise DataError(f"{path}: {self.other}")
        strays = [name for name in names if self.belongs is not None and not self.belongs(name)]
        if strays:
            raise DataError(f"{path}: {strays[0]!r} {self.stray}")


@contextlib.contextmanager
def regular_file(path: Path, folder: Path) -> Iterator[BinaryIO]:
    """A file opened for reading: a regular one that lies in the folder, wherever links on the way lead.

    Anything else, such as a device or a pipe that nobody writes to, is refused with a DataError and never waited for.
    A file that is not there is a FileNotFoundError.
    """
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(folder.resolve(strict=True)):
            raise DataError(f"{path}: leads to {real}, outside of the folder. Copy the file into it.")
        if not stat.S_ISREG(real.stat().st_mode):
            raise DataError(f"{path}: not a regular file.")
        # Without blocking: it may have been replaced by a pipe meanwhile.
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
    """The content of a regular file that lies in the folder, of so many bytes at most; see `regular_file`."""
    with regular_file(path, folder) as file:
        size = os.fstat(file.fileno()).st_size
        if size > at_most:
            raise DataError(f"{path}: {size} bytes; expected {at_most} at most.")
        return file.read(size)


def read_stored_text(path: Path) -> str:
    """The text of a regular file that lies in its folder, of what was stored by a program and may be from elsewhere."""
    try:
        return as_text(read_regular_file(path, path.parent, _LONGEST), path)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file (looked in {path.absolute().parent}).") from None


def cache_folder() -> Path:
    """Where the user's cached files are: under `XDG_CACHE_HOME`, or in `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(home) if home else Path.home() / ".cache") / "querywise"


def parse_json(content: str | bytes, path: Path) -> Json:
    """What a file of JSON holds, from its content."""
    try:
        found: Json = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: this is not JSON ({error}).") from None
    return found


def map_array(path: Path, folder: Path) -> NDArray[generic]:
    """The array of a regular `.npy` file that lies in the folder, mapped into memory: it is as large as it says.

    Anything else is refused with a DataError; a file that is not there is a FileNotFoundError.
    """
    import numpy as np  # whoever only reads or writes text need not wait for it

    with regular_file(path, folder):
        pass  # it is one
    try:
        found = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # noqa: BLE001 - a header written to do harm could raise anything
        raise DataError(f"{path}: not a .npy file of numbers, or cut short ({error}). Write it again.") from None
    if found.offset + found.nbytes != path.stat().st_size:
        raise DataError(f"{path}: longer than its array. Write it again.")
    return np.asarray(found)


def checksum_of(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def crc32_of(path: Path) -> int:
    """The CRC-32 of a file's bytes, which is quick, and shows damage though not forgery."""
    with open(path, "rb") as file:
        return crc32_of_open(file)


def crc32_of_open(file: BinaryIO) -> int:
    """The CRC-32 of a file that is open."""
    found = 0
    while piece := file.read(_PIECE):
        found = zlib.crc32(piece, found)
    return found


def sealed(manifest: Mapping[str, Json]) -> dict[str, Json]:
    """A manifest with a checksum of all else that it says."""
    return {**manifest, SEAL: digest_of(manifest)}


def is_sealed(manifest: Mapping[str, Json]) -> bool:
    """Whether a manifest says what it said when it was sealed."""
    return manifest.get(SEAL) == digest_of({name: each for name, each in manifest.items() if name != SEAL})


def digest_of(content: Mapping[str, Json]) -> str:
    """The checksum of a manifest without its checksum."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def exchange(first: Path, second: Path) -> bool:
    """Let two paths change places; False, and nothing done, where the system cannot do it in one step."""
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
