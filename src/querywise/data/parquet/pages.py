"""What the heads of a Parquet file's pages say: how large each becomes. Arrow goes by them, whatever the footer says.

A head is a record in Thrift's compact form: fields of a type and a number, the latter as a step from the one before.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from querywise.data.parquet.arrow import Arrow
from querywise.errors import DataError

_UNPACKED, _PACKED = 2, 3  # the fields of a head: the bytes of its page unpacked, and as they are
_NOTHING, _BYTE, _INTEGERS, _DOUBLE, _TEXT, _LISTS, _RECORD = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
_DEEPEST = 8  # records in records
_HEADS = 4_096, 16_000_000  # bytes in which a head is looked for: statistics, of long texts, may be in it


def unpacked_bytes(path: Path, file: BinaryIO, column: Arrow) -> int:
    """The bytes of a column's pages, unpacked, by the heads of the pages.

    file: the opened file. column: what its footer says of the column in one row group: where its pages are, and how
    many bytes they have.
    """
    if column.num_values == 0:  # Arrow reads none of its pages, and their places may be anything
        return 0
    place, total = int(column.data_page_offset), 0
    if column.has_dictionary_page and column.dictionary_page_offset:
        place = min(place, int(column.dictionary_page_offset))
    end = place + column.total_compressed_size
    try:
        if not 0 <= place <= end <= os.fstat(file.fileno()).st_size:
            raise ValueError
        while place < end:
            length, said = _head(file, place)
            if min(said[_PACKED], said[_UNPACKED]) < 0:
                raise ValueError
            place, total = place + length + said[_PACKED], total + said[_UNPACKED]
    except (KeyError, ValueError):
        raise DataError(
            f"{path}: this Parquet file is damaged (the pages of column {column.path_in_schema} are not where, or not "
            "what, its footer says)."
        ) from None
    return total


def _head(file: BinaryIO, place: int) -> tuple[int, dict[int, int]]:
    """The length of the head at a place, and its whole numbers by the numbers of their fields."""
    for most in _HEADS:
        file.seek(place)
        said: dict[int, int] = {}
        try:
            return _record(file.read(most), 0, said, _DEEPEST), said
        except IndexError:  # it is longer
            continue
    raise ValueError


def _record(content: bytes, at: int, said: dict[int, int], deeper: int) -> int:
    """Read the whole numbers of a record by the numbers of their fields; gives where it ends."""
    if not deeper:
        raise ValueError
    field = 0
    while head := content[at]:
        at, kind = at + 1, head & 15
        if head >> 4:
            field += head >> 4
        else:
            number, at = _number(content, at)
            field = _signed(number)
        if kind in _INTEGERS:
            number, at = _number(content, at)
            said[field] = _signed(number)
        elif kind not in _NOTHING:  # yes or no is the type itself
            at = _past(content, at, kind, deeper)
    return at + 1


def _past(content: bytes, at: int, kind: int, deeper: int) -> int:
    """Where a value of a type ends."""
    if kind == _RECORD:
        return _record(content, at, {}, deeper - 1)
    if kind == _TEXT:
        length, at = _number(content, at)
        return at + length
    if kind in _INTEGERS:
        return _number(content, at)[1]
    if kind not in _LISTS:
        return at + {_BYTE: 1, _DOUBLE: 8, **dict.fromkeys(_NOTHING, 1)}[kind]
    count, inner = content[at] >> 4, content[at] & 15
    at += 1
    if count == 15:  # a longer list
        count, at = _number(content, at)
    for _ in range(count):
        at = _past(content, at, inner, deeper - 1)
    return at


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    found = 0
    for shift in range(0, 70, 7):
        found |= (content[at] & 127) << shift
        at += 1
        if content[at - 1] < 128:
            return found, at
    raise ValueError


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
