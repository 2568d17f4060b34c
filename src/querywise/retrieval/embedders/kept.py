"""Vectors kept on disk, so that a text is embedded once: a file for each batch, written whole or not at all."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Singles
from querywise.runtime.files import make_folder, write_bytes

_ENDING = ".npy"
_KEY = 32  # bytes


class KeptVectors:
    """The vectors of one model's texts, in a folder of their own. A file that is damaged counts as not there."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder = folder / hashlib.sha256(model.encode()).hexdigest()[:32]
        self._known: dict[bytes, Singles] = {}
        for path in sorted(self.folder.glob(f"*{_ENDING}")) if self.folder.is_dir() else []:
            self._known |= _read(path, self.dimension)

    @property
    def dimension(self) -> int | None:
        """How many numbers a vector has; None while there is none."""
        return len(next(iter(self._known.values()))) if self._known else None

    def has(self, text: str) -> bool:
        """Whether the vector of a text is known."""
        return _key(text) in self._known

    def of(self, texts: Sequence[str]) -> Floats:
        """The vectors of texts that are known; zeros for a text without any."""
        found = np.zeros((len(texts), self.dimension or 1))
        for row, text in zip(found, texts, strict=True):
            if text.strip():
                row[:] = self._known[_key(text)]
        return found

    def add(self, texts: Sequence[str], vectors: Singles) -> None:
        """Keep the vectors of some texts, on disk first."""
        keys, content = [_key(text) for text in texts], io.BytesIO()
        rows = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), _KEY)
        np.save(content, np.hstack([rows, np.ascontiguousarray(vectors, "<f4").view(np.uint8)]), allow_pickle=False)
        make_folder(self.folder)
        name = hashlib.sha256(content.getvalue()).hexdigest()[:32]
        write_bytes(self.folder / f"{name}{_ENDING}", content.getvalue())
        self._known |= dict(zip(keys, vectors, strict=True))


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _read(path: Path, dimension: int | None) -> dict[bytes, Singles]:
    """The vectors of one file; none if it is not as it was written, which its name tells."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest()[:32] != path.stem:
            return {}
        rows = np.load(io.BytesIO(content), allow_pickle=False)
    except (OSError, ValueError):
        return {}
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] <= _KEY or (rows.shape[1] - _KEY) % 4:
        return {}
    vectors = np.ascontiguousarray(rows[:, _KEY:]).view("<f4").astype(np.float32)
    if dimension is not None and vectors.shape[1] != dimension:
        raise DataError(f"{path}: the vectors have another dimension than those beside it. Remove {path.parent}.")
    return {row[:_KEY].tobytes(): vector for row, vector in zip(rows, vectors, strict=True)}
