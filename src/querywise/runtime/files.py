"""Files read whole and written whole: a reader never gets a partial file, an interrupt loses nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from querywise.errors import DataError


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
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8 text. Convert the file to UTF-8.") from None


@contextlib.contextmanager
def atomic_text(path: Path) -> Iterator[TextIO]:
    """Write beside `path`, then rename: until the block ends well, what was there before stays."""
    with atomic_file(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole: until all is written, what was there before stays."""
    with atomic_file(path) as beside, beside.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, then renamed: until the block ends well, what was there before stays."""
    check_writable(path)
    beside = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}).") from None
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Write a folder beside `path`, then rename it: until the block ends well, what was there before stays whole."""
    check_folder(path)
    make_folder(path.absolute().parent)
    made = path.absolute().with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    try:
        made.mkdir()
        yield made
        replace_folder(made, path.absolute())
    except OSError as error:
        raise DataError(f"{path}: the folder cannot be written ({error.strerror or error}).") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def replace_folder(made: Path, path: Path) -> None:
    """Put a finished folder in the place of another; `made` is then the old one, or nothing."""
    if not path.exists() or not any(path.iterdir()):
        os.replace(made, path)  # an empty folder is replaced like a file
        return
    aside = made.with_suffix(".old")
    shutil.rmtree(aside, ignore_errors=True)  # of a run that was cut short just here
    os.rename(path, aside)
    try:
        os.rename(made, path)
    except BaseException:  # an interrupt too
        os.rename(aside, path)
        raise
    os.rename(aside, made)


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
    there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    if not there.is_dir():
        raise DataError(f"{path}: the folder cannot be made ({there} is a file).")
    if not os.access(there, os.W_OK):
        raise DataError(f"{path}: no permission to write in the folder {there}.")


def make_folder(path: Path) -> None:
    """Make a folder to write several files to, or say why that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: the folder cannot be made ({error.strerror}).") from None
    if not os.access(path, os.W_OK):
        raise DataError(f"{path}: no permission to write in this folder.")


@dataclass(frozen=True)
class OutputFolder:
    """A kind of folder that is written as a whole: how it is recognised, and the refusals of other paths.

    a_file, other: the messages for a file, and for a folder that holds something else. manifest: the file that every
    such folder has. belongs: which names may be in it; stray: the message for another. makes_parents: whether its
    parent folders are made. in_place: whether its files are replaced one by one, and not the folder as a whole.
    """

    a_file: str | None = None
    other: str = ""
    manifest: str | None = None
    belongs: Callable[[str], bool] | None = None
    stray: str = ""
    makes_parents: bool = True
    in_place: bool = False

    def check(self, path: Path) -> None:
        """Refuse a path that the folder cannot have, before any long work is done for it."""
        parent = path.absolute().parent
        if self.a_file is not None and path.exists() and not path.is_dir():
            raise DataError(f"{path}: {self.a_file}")
        if not self.makes_parents and not parent.is_dir():
            raise DataError(f"{path}: the folder {parent} does not exist; make it first.")
        check_folder(path)
        if path.is_dir() and not self.in_place and not os.access(parent, os.W_OK):
            raise DataError(f"{path}: no permission to write in the folder {parent}.")
        found = sorted(each.name for each in path.iterdir()) if path.is_dir() else []
        if found and self.manifest is not None and self.manifest not in found:
            raise DataError(f"{path}: {self.other}")
        strays = [name for name in found if self.belongs is not None and not self.belongs(name)]
        if strays:
            raise DataError(f"{path}: {strays[0]!r} {self.stray}")
