"""Decompression in pieces, of all streams of a file, within a limit on size."""

from __future__ import annotations

import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from querywise.errors import DataError
from querywise.runtime.files import as_text, read_bytes
from querywise.runtime.workers import machine_memory

_TAKEN, _PIECE = 1_000_000, 16_000_000  # bytes decompressed at a time, and the most that they decompress to
_SMALL = 64_000_000  # bytes that any file may decompress to
_RATIO = 1_000  # largest compression ratio: text with features reaches 10 to 50, zeros alone 7,000
_DICTIONARY = 1_000_000_000  # bytes of memory for decompressing an .xz file
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_ANYTHING = re.compile(r"\S")
_LONGEST_LINE = 1_000_000  # bytes read of a first line


def unpacked(path: Path, raw: bytes) -> bytes:
    """Return the content of a file, decompressed if its first bytes are those of gzip or xz.

    Every stream in the file must be complete: data after the first stream is read or raises DataError, and is never
    skipped.
    """
    if not raw.startswith((_GZIP, _XZ)):
        return raw
    whole = io.BytesIO()
    for piece in _pieces(path, raw):
        whole.write(piece)
    return whole.getvalue()  # the buffer itself, not a copy


def read_packed_text(path: Path) -> str:
    """Return the text of a UTF-8 file, plain or compressed by gzip or xz."""
    return as_text(unpacked(path, read_bytes(path)), path)


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines of a text with their numbers, counted from 1.

    A list of short lines would take many times their memory, and a loop over blank ones would take long: half a
    gigabyte of them compresses to half a megabyte.
    """
    number, begin = 1, 0
    while (found := _ANYTHING.search(text, begin)) is not None:
        first = found.start()
        number += text.count("\n", begin, first)
        begin = max(text.rfind("\n", begin, first) + 1, begin)
        end = text.find("\n", first)
        if end < 0:
            yield number, text[begin:]
            return
        yield number, text[begin:end]
        number, begin = number + 1, end + 1


def first_words(path: Path) -> list[str]:
    """Return the words of a text file's first non-blank line; empty if it is not a text file.

    No more than that line is decompressed, and a line of more than a megabyte counts as empty.
    """
    if not path.is_file() or path.suffix == ".parquet":
        return []
    try:
        begun = b""
        for piece in _pieces(path, read_bytes(path)):
            *whole, begun = (begun + piece).removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)
            if whole or len(begun) > _LONGEST_LINE:
                return whole[0].decode().split() if whole and len(whole[0]) <= _LONGEST_LINE else []
        return begun.decode().split()
    except (DataError, UnicodeDecodeError):
        return []


def _pieces(path: Path, raw: bytes) -> Iterator[bytes]:
    """Yield the content of a file, compressed or not, in pieces."""
    if raw.startswith(_GZIP):
        return _streams(path, raw, lambda: zlib.decompressobj(wbits=31), padding=1)
    if raw.startswith(_XZ):
        return _streams(path, raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DICTIONARY), padding=4)
    return iter((raw,))


def _streams(path: Path, raw: bytes, begin: Callable[[], Any], *, padding: int) -> Iterator[bytes]:
    """Yield all streams one after the other; between and after them there may be zeros, in multiples of `padding`."""
    most = min(max(_SMALL, _RATIO * len(raw)), machine_memory() // 2)
    size = place = 0
    try:
        while place < len(raw):
            stream, waiting = begin(), b""
            while not stream.eof:
                if not waiting and getattr(stream, "needs_input", True):  # lzma buffers pending input itself
                    waiting = raw[place : place + _TAKEN]
                    place += len(waiting)
                piece = stream.decompress(waiting, _PIECE)
                if not piece and not waiting:
                    raise EOFError("it ends too early")
                waiting = getattr(stream, "unconsumed_tail", b"")
                size += len(piece)
                if size > most:
                    raise DataError(
                        f"{path}: its {len(raw)} bytes unpack to more than {most / 1e9:.2g} GB, too much for a feature "
                        "file. If the size is right, unpack the file first, or split it."
                    )
                yield piece
            place = _past_zeros(raw, place - len(stream.unused_data), padding)
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: the compressed file is damaged ({error}). Fetch or pack it again.") from None


def _past_zeros(raw: bytes, place: int, padding: int) -> int:
    begin = place
    while place < len(raw) and raw[place] == 0:
        place += 1
    if (place - begin) % padding:
        raise EOFError("the number of zeros behind it is wrong")
    return place
