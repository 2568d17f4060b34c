"""Checksums: of files, and of a manifest, which carries its own."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from querywise.errors import DataError
from querywise.runtime.values import Json

_PIECE = 1_000_000
SEAL = "sha256"


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
    return {**manifest, SEAL: _digest(manifest)}


def is_sealed(manifest: Mapping[str, Json]) -> bool:
    """Whether a manifest says what it said when it was sealed."""
    return manifest.get(SEAL) == _digest({name: each for name, each in manifest.items() if name != SEAL})


def _digest(content: Mapping[str, Json]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
