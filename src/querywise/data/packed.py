"""Bytes written as base64, read by one compiled pass: readers of JSON take several times as long."""

from __future__ import annotations

import binascii

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.arrays import Bytes
from querywise.runtime.compiled import compiled

Numbers = NDArray[np.uint32]

_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_NO_LETTER = np.uint32(1 << 31)
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
_BYTE, _TWO_BYTES = np.uint32(8), np.uint32(16)


def _shifted(bits: int) -> Numbers:
    """What each letter adds to a number of 24 bits where it has so many bits of it to its right."""
    found = np.full(256, _NO_LETTER)
    found[_LETTERS] = np.arange(64, dtype=np.uint32) << np.uint32(bits)
    return found


# Arguments of the kernel: as its constants they would be slow.
_FIRST, _SECOND, _THIRD, _FOURTH = map(_shifted, (18, 12, 6, 0))


def read_base64(letters: Bytes) -> Bytes | None:
    """The bytes that some letters stand for; None if these are no base64, or have anything else between them.

    >>> read_base64(np.frombuffer(b"aHR0cA==", np.uint8)).tobytes()
    b'http'
    """
    whole = max(len(letters) - 1, 0) // 4  # groups of four; the last may be filled up
    try:
        last = binascii.a2b_base64(letters[4 * whole :].tobytes(), strict_mode=True)
    except binascii.Error:
        return None
    found = np.empty(3 * whole + len(last), np.uint8)
    found[3 * whole :] = np.frombuffer(last, np.uint8)
    return found if _unpack(letters, whole, _FIRST, _SECOND, _THIRD, _FOURTH, found) else None


@compiled
def _unpack(
    letters: Bytes, groups: int, first: Numbers, second: Numbers, third: Numbers, fourth: Numbers, found: Bytes
) -> bool:
    """Four letters to three bytes, so many times, by what each letter adds; whether all are letters of base64."""
    seen = np.uint32(0)
    for group in range(np.uint64(groups)):
        i, place = _FOUR * group, _THREE * group
        bits = first[letters[i]] | second[letters[i + _ONE]] | third[letters[i + _TWO]] | fourth[letters[i + _THREE]]
        seen |= bits
        found[place] = np.uint8(bits >> _TWO_BYTES)
        found[place + _ONE] = np.uint8(bits >> _BYTE)
        found[place + _TWO] = np.uint8(bits)
    return bool(seen < _NO_LETTER)
