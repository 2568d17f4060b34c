"""Stored vectors, so that each text is embedded once: one file per batch, written atomically."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import threading
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from querywise.data.query_table import odd_lengths
from querywise.errors import DataError, Hint
from querywise.runtime.arrays import Singles
from querywise.runtime.files import checksum_of, make_own_folder, map_array, write_bytes

_ENDING = ".npy"
_KEY = 32  # bytes
_IN_MEMORY = 1_000_000  # vectors, if the folder cannot be used


class KeptVectors:
    """The vectors of one model's texts, in a folder of their own. Damaged files count as missing.

    `most` keeps only this many of the latest vectors, in memory, for texts that anyone may send; None keeps all on
    disk.
    """

    def __init__(self, folder: Path, model: str, most: int | None = None) -> None:
        self.folder = folder / hashlib.sha256(model.encode()).hexdigest()[:32]
        self._known: dict[bytes, Singles] = {}
        self._most, self._adding = most, threading.Lock()
        self.dimension: int | None = None  # dimension of the vectors; None while there are none
        if most is not None or not self.folder.is_dir():
            return
        if _may_be_anybodys(self.folder):
            self._most = _IN_MEMORY
            said = f"{self.folder}: a link, or a folder that other users may write to, so its vectors are not used."
            warnings.warn(
                f"{said} Vectors are kept in memory alone. Remove it, or make it yours alone.", Hint, stacklevel=3
            )
            return
        for path in sorted(self.folder.glob(f"*{_ENDING}")):
            self._take(_read(path, self.dimension))

    def _take(self, vectors: dict[bytes, Singles]) -> None:
        self._known |= vectors
        self.dimension = len(next(iter(vectors.values()))) if vectors else self.dimension

    def found(self, texts: Iterable[str]) -> dict[str, Singles]:
        """Return the known vectors of some texts."""
        looked = {text: self._known.get(_key(text)) for text in texts}
        return {text: vector for text, vector in looked.items() if vector is not None}

    def add(self, texts: Sequence[str], vectors: Singles) -> None:
        """Store the vectors of some texts, except zero vectors, which a retry may improve."""
        self.dimension, some = vectors.shape[1], np.flatnonzero(vectors.any(axis=1)).tolist()
        keys, vectors = [_key(texts[row]) for row in some], vectors[some]
        content = io.BytesIO()
        if not keys:
            return
        if self._most is not None:
            with self._adding:
                self._take(dict(zip(keys, vectors, strict=True)))
                for key in list(self._known)[: -self._most]:
                    del self._known[key]
            return
        rows = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), _KEY)
        np.save(content, np.hstack([rows, np.ascontiguousarray(vectors, "<f4").view(np.uint8)]), allow_pickle=False)
        make_own_folder(self.folder, 0o755)  # not writable for the group, whatever the umask
        name = hashlib.sha256(content.getvalue()).hexdigest()[:32]
        write_bytes(self.folder / f"{name}{_ENDING}", content.getvalue())
        self._take(dict(zip(keys, vectors, strict=True)))


def _may_be_anybodys(folder: Path) -> bool:
    """Return whether other users, or members of its group, could have put vectors into a folder."""
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        return True
    others = stat.S_IWGRP | stat.S_IWOTH
    return os.name != "nt" and (found.st_uid not in (os.geteuid(), 0) or bool(found.st_mode & others))


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _read(path: Path, dimension: int | None) -> dict[bytes, Singles]:
    """Return the vectors in a file; none if its name shows that it was changed, or if it is invalid."""
    try:
        rows = map_array(path, path.parent)
        if checksum_of(path)[:32] != path.stem:
            return {}
    except (OSError, DataError):
        return {}
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] <= _KEY or (rows.shape[1] - _KEY) % 4:
        return {}
    vectors = np.ascontiguousarray(rows[:, _KEY:]).view("<f4").astype(np.float32)
    if len(odd_lengths(vectors)):
        return {}
    if dimension is not None and vectors.shape[1] != dimension:
        raise DataError(
            f"{path}: the vectors have a different dimension from the others in this folder. Remove {path.parent}."
        )
    return {row[:_KEY].tobytes(): vector for row, vector in zip(rows, vectors, strict=True)}
