"""Static embeddings: a text's vector is the mean of its tokens' vectors from a table, fast and without a network.

The files are those of the package wordllama (the extra `static`), or any tokenizer of the library tokenizers (.json)
with a .safetensors file that holds one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.vectors import read_safetensors
from querywise.errors import DataError
from querywise.runtime.arrays import Floats

_INSTALL = "pip install 'querywise[static]'"
_WORDLLAMA = ("tokenizers/l2_supercat_tokenizer_config.json", "weights/l2_supercat_256.safetensors")


class StaticEmbedder:
    """The mean of the vectors of a text's tokens; zeros for a text without tokens."""

    def __init__(self, tokenizer: Path, table: Path) -> None:
        self._tokenizer = _tokenizer(tokenizer)
        _, values = read_safetensors(table)
        self._table = np.asarray(values, dtype=np.float32)
        if self._tokenizer.get_vocab_size() > len(self._table):
            raise DataError(
                f"{table}: {len(self._table)} rows, but {tokenizer} has {self._tokenizer.get_vocab_size()} tokens. Do "
                "they belong together?"
            )

    @staticmethod
    def from_folder(folder: str | None) -> StaticEmbedder:
        """Return the embedder with the files in a folder, or with those of the package wordllama for None."""
        if folder is None:
            found = find_spec("wordllama")
            places = [] if found is None else list(found.submodule_search_locations or [])
            paths = [Path(places[0], each) for each in _WORDLLAMA] if places else []
            if not paths or not all(path.is_file() for path in paths):
                what = "is not installed" if not paths else f"has no {next(p for p in paths if not p.is_file())}"
                raise DataError(f"static: the package wordllama {what}: {_INSTALL}, or name a folder: static:FOLDER.")
            return StaticEmbedder(*paths)
        return StaticEmbedder(*(_only(Path(folder), pattern) for pattern in ("*.json", "*.safetensors")))

    def __call__(self, texts: Sequence[str], /) -> Floats:
        """Return one row per text."""
        rows = np.zeros((len(texts), self._table.shape[1]))
        try:
            every = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        except Exception as error:  # noqa: BLE001 - the library raises this class alone
            raise DataError(f"static: the tokenizer cannot read these texts ({error}).") from None
        for row, coded in zip(rows, every, strict=True):
            if coded.ids:
                row[:] = self._table[coded.ids].mean(axis=0, dtype=np.float64)
        return rows


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(path for path in folder.glob(pattern) if path.is_file())
    if len(found) != 1:
        raise DataError(f"static:{folder}: {len(found)} files {pattern}; expected one tokenizer and one table.")
    return found[0]


def _tokenizer(path: Path) -> Any:  # the library has no types
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise DataError(f"static: the package tokenizers is not installed: {_INSTALL}.") from None
    try:
        made = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises this class alone
        raise DataError(f"{path}: this is not a tokenizer ({error}).") from None
    made.no_truncation()
    made.no_padding()
    return made
