"""Decimal numbers read from bytes exactly, to the last bit, by compiled code."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.compiled import compiled

Bytes = NDArray[np.uint8]

# What `read_number` returns beside the number; HARD are the few that need more than this arithmetic.
EXACT, HARD, NOT_A_NUMBER = range(3)

_POWERS = 10.0 ** np.arange(23)  # all exact in double precision
_SPLITTER = 134217729.0  # 2**27 + 1
_FAR = 100_000  # powers of ten from here on are left to Python: as many zeros may stand after the point


@compiled
def round_exactly(digits: np.uint64, exponent: int) -> tuple[float, int]:
    """Digits × 10^exponent for |exponent| ≤ 22, correctly rounded, or HARD when it is too close to a tie."""
    high = float(digits)
    whole = np.uint64(high)
    low = -float(whole - digits) if whole > digits else float(digits - whole)
    power = _POWERS[abs(exponent)]
    first = high / power if exponent < 0 else high
    # Dekker's product of `first` and `power`, exact as product + rest.
    product = first * power
    a = first * _SPLITTER
    a_high = a - (a - first)
    a_low = first - a_high
    b = power * _SPLITTER
    b_high = b - (b - power)
    b_low = power - b_high
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    if exponent < 0:
        lead, tail = first, (((high - product) - rest) + low) / power
    else:
        lead, tail = product, rest + low * power
    value = lead + tail
    error = tail - (value - lead)
    unit = math.ldexp(1.0, math.frexp(value)[1] - 53)
    share = abs(error) / unit
    # Half a unit is a tie; a quarter is one just below a power of two.
    close = abs(share - 0.5) < 1e-9 or abs(share - 0.25) < 1e-9
    return value, HARD if close else EXACT


@compiled
def _read_digits(text: Bytes, i: int, end: int) -> tuple[np.uint64, int, int, int, bool]:
    """The digits from `i` on, with at most one point among them.

    Returns them as a whole number, how many there are after leading zeros (20: more than fit), the power of ten that
    the point stands for, the position after them, and whether there is any digit.
    """
    digits, count, seen, exponent, point = np.uint64(0), 0, False, 0, False
    while i < end:
        byte = text[i]
        if 48 <= byte <= 57:
            seen = True
            if count < 19:
                digits = digits * np.uint64(10) + np.uint64(byte - 48)
                if digits:
                    count += 1
                if point:
                    exponent -= 1
            else:
                count = 20
        elif byte == 46 and not point:
            point = True
        else:
            break
        i += 1
    return digits, count, exponent, i, seen


@compiled
def _read_power(text: Bytes, i: int, end: int) -> tuple[int, int, bool]:
    """The whole number after an `e` that is before `i`, the position after it, and whether it has a digit."""
    sign = 1
    if i < end and (text[i] == 45 or text[i] == 43):
        sign = -1 if text[i] == 45 else 1
        i += 1
    power, seen = 0, False
    while i < end and 48 <= text[i] <= 57:
        power = min(power * 10 + (text[i] - 48), _FAR)
        seen = True
        i += 1
    return sign * power, i, seen


@compiled
def read_number(text: Bytes, i: int, end: int) -> tuple[float, int, int]:
    """The number that starts at `i`, the position after it, and its state (HARD where Python must read it)."""
    negative = False
    if i < end and (text[i] == 45 or text[i] == 43):
        negative = text[i] == 45
        i += 1
    digits, count, exponent, i, seen = _read_digits(text, i, end)
    power = 0
    if seen and i < end and (text[i] == 101 or text[i] == 69):
        power, i, seen = _read_power(text, i + 1, end)
        exponent += power
    if not seen:
        return 0.0, i, NOT_A_NUMBER
    value, state = 0.0, EXACT
    if count == 20 or (digits and (abs(exponent) > 22 or abs(power) >= _FAR)):
        state = HARD
    elif digits and digits <= np.uint64(9007199254740992):
        value = float(digits) / _POWERS[-exponent] if exponent < 0 else float(digits) * _POWERS[exponent]
    elif digits:
        value, state = round_exactly(digits, exponent)
    return (-value if negative else value), i, state
