"""Compiled code that reads decimal numbers from bytes exactly, to the last bit."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.compiled import compiled

Bytes = NDArray[np.uint8]

# The states that `read_number` returns; HARD marks the few numbers that need more than this arithmetic.
EXACT, HARD, NOT_A_NUMBER = range(3)

_POWERS = 10.0 ** np.arange(23)  # all exact in double precision
_SPLITTER = 134217729.0  # 2**27 + 1
_ABSURD = 1 << 40  # larger whole numbers are capped, so that they do not wrap around
_FAR = 100_000  # larger powers of ten are left to Python, since as many zeros may follow the point


@compiled
def round_exactly(digits: np.uint64, exponent: int) -> tuple[float, int]:
    """Return digits × 10^exponent for |exponent| ≤ 22, correctly rounded, or HARD if it is too close to a tie."""
    high = float(digits)
    whole = np.uint64(high)
    low = -float(whole - digits) if whole > digits else float(digits - whole)
    power = _POWERS[abs(exponent)]
    first = high / power if exponent < 0 else high
    # Dekker's exact product of `first` and `power`, as product + rest.
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
def read_whole(text: Bytes, i: int) -> tuple[int, int]:
    """Return the whole number whose digits start at `i`, capped if absurdly large, and the position after it."""
    number, digit = 0, text[i] - 48
    while 0 <= digit <= 9:
        if number < _ABSURD:
            number = number * 10 + digit
        i += 1
        digit = text[i] - 48
    return number, i


@compiled
def read_number(text: Bytes, i: int) -> tuple[float, int, int]:
    """Return the number that starts at `i`, the position after it, and its state (HARD if Python must read it).

    It is the whole number formed by as many digits as fit, times a power of ten. A character that is not part of a
    number must follow in the text.
    """
    byte = text[i]
    negative = byte == 45
    if negative or byte == 43:
        i += 1
    digits, count, point, exponent, power, first = np.uint64(0), 0, 0, 0, 0, i
    while True:
        byte = text[i]
        if 48 <= byte <= 57:
            if count < 19:  # leading zeros do not count; 20 means that there are more than fit
                digits = digits * np.uint64(10) + np.uint64(byte - 48)
                if digits:
                    count += 1
                exponent -= point
            else:
                count = 20
        elif byte == 46 and point == 0:
            point = 1
        else:
            break
        i += 1
    seen = i - first > point
    if seen and (byte == 101 or byte == 69):
        sign = 44 - text[i + 1]  # 1 for a plus, −1 for a minus
        first = i + 2 if abs(sign) == 1 else i + 1
        power, i = read_whole(text, first)
        exponent += -power if sign == -1 else power
        seen = i > first
    if not seen:
        return 0.0, i, NOT_A_NUMBER
    value, state = 0.0, EXACT
    if count == 20 or (digits and (abs(exponent) > 22 or power >= _FAR)):
        state = HARD
    elif digits > np.uint64(9007199254740992):
        value, state = round_exactly(digits, exponent)
    elif digits:
        value = float(digits) / _POWERS[-exponent] if exponent < 0 else float(digits) * _POWERS[exponent]
    return (-value if negative else value), i, state
