"""Numbers in JSON bodies, read by compiled code in one pass; JSON parsers take several times as long.

`cut_rows` removes rows of numbers from the text, which leaves little for a JSON parser; `read_base64` reads bytes.
"""

from __future__ import annotations

import binascii
import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querywise.data.decimals import EXACT, NOT_A_NUMBER, read_number, round_exactly
from querywise.runtime.arrays import Bits, Bytes, Floats
from querywise.runtime.compiled import compiled, eight_bytes, inlined, put_eight_bytes, trailing_zeros

_POWERS = 10.0 ** np.arange(23)
_WHOLE_POWERS = 10 ** np.arange(9, dtype=np.uint64)
_FITTING = 18  # digits that always fit into 64 bits
_EXACT = np.uint64(2**53)  # whole numbers up to this one are exact in double precision

# Eight characters as one number, the first in its lowest byte. _ZEROS turns each byte into a digit; _ABOVE sets the
# highest bit of bytes above 9. Then adjacent digits are combined: into pairs, fours and eights.
_ZEROS, _ABOVE, _HIGHEST = np.uint64(0x3030303030303030), np.uint64(0x7676767676767676), np.uint64(0x8080808080808080)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_EIGHT, _ONE, _FOUR, _BYTE, _HALF = np.uint64(0xFFFFFFFF), np.uint64(1), np.uint64(4), np.uint64(8), np.uint64(32)
_FIRST, _TEN, _NOUGHT, _POINT = np.uint64(0xFF), np.uint64(10), np.uint64(48), np.uint64(46)
_COMMA, _BRACKET, _TWO, _THREE = np.uint64(44), np.uint64(93), np.uint64(2), np.uint64(3)
_ONES, _QUOTES = np.uint64(0x0101010101010101), np.uint64(0x2222222222222222)
_BACKSLASHES, _BRACKETS = np.uint64(0x5C5C5C5C5C5C5C5C), np.uint64(0x5D5D5D5D5D5D5D5D)
_RUN = 128  # bytes
_KEYED = re.compile(rb'"features"\s*:\s*(.)')
_KEY = b'"features"'
_KEY_LENGTH = len(_KEY)
_KEY_BEGINS, _KEY_ENDS = (np.uint64(int.from_bytes(_KEY[i : i + 8], "little")) for i in (0, 2))

Numbers = NDArray[np.uint32]

_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_NO_LETTER, _EIGHT_BITS, _SIXTEEN_BITS = np.uint32(1 << 31), np.uint32(8), np.uint32(16)


class Cut(NamedTuple):
    """Rows of numbers, and the text that they were cut out of, with an empty array in place of each."""

    rest: bytes
    rows: Floats


def cut_rows(text: bytes, width: int, absent: float) -> Cut | None:
    """Cut the arrays of `width` numbers after the keys "features" out of a JSON text; null is read as `absent`.

    The rest is JSON of the same structure if and only if the text is; checking that is left to the caller. None if one
    of these arrays is malformed, or if a key contains escapes, since it might be such a key.
    """
    first = _KEYED.search(text)
    if not width or (first is not None and first[1] != b"["):  # features by name, or as bytes
        return None
    padded = text + b" " * 16  # so that eight bytes can be read from any position, and from two positions later
    table, rows, rest, length = _cut(np.frombuffer(padded, np.uint8), width, absent)
    return None if rows < 0 else Cut(rest[:length].tobytes(), table[:rows])


@compiled
def _cut(text: Bytes, width: int, absent: float) -> tuple[Floats, int, Bytes, int]:
    """Return a table, how many of its rows were read (−1 if it is unusable), the rest, and its length."""
    end = len(text)
    while end and _is_space(text[end - 1]):
        end -= 1
    # No more rows than arrays: unused rows cost more than reading does, because of fresh memory pages.
    room = min(_arrays(text), end // (2 * width))
    table, rest, spans = np.empty((room, width)), np.empty(end + 8, np.uint8), np.empty((room, 2), np.uint64)
    if not end or text[end - 1] != 125:  # }, at which every loop below stops
        return table, -1, rest, 0
    row = kept = length = 0
    i = _first(text, 0, end, _QUOTES, _QUOTES)
    while i < end:
        after, escaped = _string_end(text, i, end)
        named = after - i == _KEY_LENGTH and _is_key(text, i)
        i = after
        if named or escaped:
            after = _past_space(text, i) if i < end else end
            if after < end and text[after] == 58:  # a key
                if escaped or row == len(table):
                    return table, -1, rest, 0
                length = _copy(text, kept, i, rest, length)
                begin = _past_space(text, after + 1)
                i = _first(text, begin, end, _BRACKETS, _BRACKETS)
                if i == end or text[begin] != 91:  # [
                    return table, -1, rest, 0
                spans[row, 0], spans[row, 1] = np.uint64(begin), np.uint64(i)
                i = kept = i + 1
                rest[length], rest[length + 1], rest[length + 2] = 58, 91, 93  # :[]
                row, length = row + 1, length + 3
        i = _first(text, i, end, _QUOTES, _QUOTES)
    length = _copy(text, kept, end, rest, length)
    return table, row if _read_rows(text, spans[:row], end, table, absent) else -1, rest, length


@compiled
def _arrays(text: Bytes) -> int:
    """Count the opening brackets, in single bytes, many at once, as far as a byte can count."""
    whole, found = len(text) // _RUN * _RUN, 0
    for first in range(0, whole, _RUN):
        run, here = text[first : first + _RUN], np.uint8(0)
        for i in range(_RUN):
            here = np.uint8(here + np.uint8(run[i] == 91))  # [
        found += int(np.int64(here))
    for i in range(whole, len(text)):
        found += text[i] == 91
    return found


@compiled
def _first(text: Bytes, i: int, end: int, one: np.uint64, other: np.uint64) -> int:
    """Return the first position from `i` on of either of two characters, each repeated eight times.

    The result is `end` if there is none.
    """
    for place in range(i, end, 8):
        word = eight_bytes(text, np.uint64(place))
        x, y = word ^ one, word ^ other
        found = (((x - _ONES) & ~x) | ((y - _ONES) & ~y)) & _HIGHEST  # the lowest bit marks the first
        if found:
            return min(place + int(np.int64(trailing_zeros(found) >> _THREE)), end)
    return end


@compiled
def _string_end(text: Bytes, i: int, end: int) -> tuple[int, bool]:
    """Return the position after the string that begins at `i`, and whether it contains escapes."""
    i, escaped = _first(text, i + 1, end, _QUOTES, _BACKSLASHES), False
    while i < end and text[i] == 92:
        i, escaped = _first(text, i + 2, end, _QUOTES, _BACKSLASHES), True
    return min(i + 1, end), escaped


@compiled
def _copy(text: Bytes, begin: int, end: int, rest: Bytes, length: int) -> int:
    """Append text to the rest, eight characters at a time, and return the new length."""
    for place in range(begin, end, 8):
        put_eight_bytes(rest, np.uint64(length + place - begin), eight_bytes(text, np.uint64(place)))
    return length + end - begin


@compiled
def _is_key(text: Bytes, i: int) -> bool:
    """Return whether "features", in quotes, begins at `i`, by its first and its last eight characters."""
    begins, ends = eight_bytes(text, np.uint64(i)), eight_bytes(text, np.uint64(i + 2))
    return bool(begins == _KEY_BEGINS) and bool(ends == _KEY_ENDS)


@compiled
def _read_rows(text: Bytes, spans: Bits, end: int, table: Floats, absent: float) -> bool:
    """Fill a table from arrays, given the positions of their brackets; return False if one is malformed.

    Each number begins where the previous one ends, which takes longer to find than to read, so two rows are read
    alternately: one is processed while the other waits.
    """
    last = table.shape[1] - 1
    for row in range(0, len(spans), 2):
        other = min(row + 1, len(spans) - 1)
        after, behind = spans[row, 0], spans[other, 0]
        for column in range(last + 1):
            at, by = after + _ONE, behind + _ONE
            stop = _BRACKET if column == last else _COMMA
            table[row, column], after, fine = _usual(text, at, stop)
            table[other, column], behind, well = _usual(text, by, stop)
            if fine & well:
                continue
            if not fine:
                table[row, column], after = _any(text, at, stop, end, absent)
            if not well:
                table[other, column], behind = _any(text, by, stop, end, absent)
            if (after == 0) | (behind == 0):
                return False
        if (after != spans[row, 1]) | (behind != spans[other, 1]):
            return False
    return True


@inlined
def _usual(text: Bytes, at: np.uint64, stop: np.uint64) -> tuple[float, np.uint64, bool]:
    """Return the number at `at`, the position after it, and whether it has the usual form.

    The usual form is a digit, a point, up to seven digits and `stop`; for any other the result is meaningless.
    Positions are unsigned: signed ones are checked before each use, because they could count from the end.
    """
    while _is_space(text[at]):
        at += _ONE
    negative = np.uint64(text[at] == 45)
    sign = 1.0 - 2.0 * float(np.int64(negative))  # branch-free, since signs are unpredictable
    first = at + negative
    head, tail = eight_bytes(text, first), eight_bytes(text, first + _TWO)
    whole, digits, before = (head & _FIRST) - _NOUGHT, *_eight(tail ^ _ZEROS)
    follows = (tail >> (_BYTE * before)) & _FIRST
    usual = (whole < _TEN) & ((head >> _BYTE) & _FIRST == _POINT) & (before > 0) & (follows == stop)
    value = float(np.int64(whole * _WHOLE_POWERS[before] + digits)) / _POWERS[before]
    return sign * value, first + _TWO + before, usual


@compiled
def _any(text: Bytes, at: np.uint64, stop: np.uint64, end: int, absent: float) -> tuple[float, np.uint64]:
    """Return the number at `at`, and the position of the character after it, or 0 if that is not `stop`."""
    first = _past_space(text, int(np.int64(at)))
    negative = text[first] == 45
    value, i, state = _number(text, first + negative, end, absent)
    i = _past_space(text, i)
    fine = state == EXACT and np.uint64(text[i]) == stop
    return -value if negative else value, np.uint64(i if fine else 0)


@compiled
def _number(text: Bytes, first: int, end: int, absent: float) -> tuple[float, int, int]:
    """Return the unsigned number that begins at `first`, the position after it, and its state."""
    i, digits = first, np.uint64(0)
    while 48 <= text[i] <= 57:
        digits = digits * _TEN + np.uint64(text[i] - 48)
        i += 1
    whole, places = i - first, 0
    if text[i] == 46:
        digits, i = _after_point(text, i + 1, digits)
        places = i - first - whole - 1
    # One branch for all of these cases, which are rare.
    odd = (whole == 0) | (whole + places > _FITTING) | (text[i - 1] == 46) | (text[i] | 32 == 101)
    if odd | ((whole > 1) & (text[first] == 48)):
        return _unusual(text, first, end, absent)
    if digits > _EXACT:
        value, state = round_exactly(digits, -places)
        return value, i, state
    return float(np.int64(digits)) / _POWERS[min(places, 22)], i, EXACT


@compiled
def _after_point(text: Bytes, i: int, digits: np.uint64) -> tuple[np.uint64, int]:
    """Append the digits from `i` on to a number; return it and the position after them."""
    while True:
        more, before = _eight(eight_bytes(text, np.uint64(i)) ^ _ZEROS)
        digits = digits * _WHOLE_POWERS[before] + more
        i += int(np.int64(before))
        if before < _BYTE:
            return digits, i


@compiled
def _eight(word: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the number formed by up to eight leading digits, and how many there are."""
    others = ((word + _ABOVE) | word) & _HIGHEST
    before = trailing_zeros(others) >> _THREE  # the lowest bit marks the first character that is not a digit
    # in two steps, because a shift by 64 bits is undefined
    word = (word << (_HALF - _FOUR * before)) << (_HALF - _FOUR * before)
    word = (word * _TEN + (word >> _BYTE)) & _PAIRS
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & _FOURS
    word = (word * np.uint64(10000) + (word >> np.uint64(32))) & _EIGHT
    return word, before


@compiled
def _unusual(text: Bytes, i: int, end: int, absent: float) -> tuple[float, int, int]:
    """Return a long number, one with an exponent, or null, without its sign; the position after it, and its state."""
    if text[i] == 110 and text[i + 1] == 117 and text[i + 2] == 108 and text[i + 3] == 108:
        return absent, i + 4, NOT_A_NUMBER if text[i - 1] == 45 else EXACT  # −null is invalid
    first = i + (text[i] == 45)
    point = _past_digits(text, first)
    fraction = point + (text[point] == 46)
    after = _past_digits(text, fraction) if fraction > point else point
    power = after
    if text[after] | 32 == 101:
        power += 2 if text[after + 1] == 45 or text[after + 1] == 43 else 1
    bare = point == first or (text[point] == 46 and after == fraction)
    if bare or (text[first] == 48 and point > first + 1) or (power > after and _past_digits(text, power) == power):
        return 0.0, i, NOT_A_NUMBER
    return read_number(text, first)


@compiled
def _past_digits(text: Bytes, i: int) -> int:
    while 48 <= text[i] <= 57:
        i += 1
    return i


@compiled
def _past_space(text: Bytes, i: int) -> int:
    while _is_space(text[i]):
        i += 1
    return i


@compiled
def _is_space(byte: int) -> bool:
    return byte == 32 or byte == 10 or byte == 13 or byte == 9


def _shifted(bits: int) -> Numbers:
    """Return the value that each letter contributes to a 24-bit number at this bit offset."""
    found = np.full(256, _NO_LETTER)
    found[_LETTERS] = np.arange(64, dtype=np.uint32) << np.uint32(bits)
    return found


# Passed to the kernel as arguments: as its constants they would be slow.
_FIRSTS, _SECONDS, _THIRDS, _FOURTHS = map(_shifted, (18, 12, 6, 0))


def read_base64(letters: Bytes) -> Bytes | None:
    """Decode base64; return None if the text is not base64 or contains any other character.

    >>> read_base64(np.frombuffer(b"aHR0cA==", np.uint8)).tobytes()
    b'http'
    """
    whole = max(len(letters) - 1, 0) // 4  # groups of four; the last may be padded
    try:
        last = binascii.a2b_base64(letters[4 * whole :].tobytes(), strict_mode=True)
    except binascii.Error:
        return None
    found = np.empty(3 * whole + len(last), np.uint8)
    found[3 * whole :] = np.frombuffer(last, np.uint8)
    return found if _unpack(letters, whole, _FIRSTS, _SECONDS, _THIRDS, _FOURTHS, found) else None


@compiled
def _unpack(
    letters: Bytes, groups: int, first: Numbers, second: Numbers, third: Numbers, fourth: Numbers, found: Bytes
) -> bool:
    """Decode groups of four letters to three bytes by table lookup; return whether all are base64 letters."""
    seen = np.uint32(0)
    for group in range(np.uint64(groups)):
        i, place = _FOUR * group, _THREE * group
        bits = first[letters[i]] | second[letters[i + _ONE]] | third[letters[i + _TWO]] | fourth[letters[i + _THREE]]
        seen |= bits
        found[place] = np.uint8(bits >> _SIXTEEN_BITS)
        found[place + _ONE] = np.uint8(bits >> _EIGHT_BITS)
        found[place + _TWO] = np.uint8(bits)
    return bool(seen < _NO_LETTER)
