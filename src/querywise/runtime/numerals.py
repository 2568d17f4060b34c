"""Numbers from text, in the digits 0 to 9 alone: Python itself also reads 1_0 and the digits of other scripts."""

from __future__ import annotations

import math


def number(text: str) -> float | None:
    """The number that a text stands for, like `-1.5e3` or `nan`; None where it is none.

    >>> number("1e3"), number("inf"), number("1_0"), number("ten")
    (1000.0, inf, None, None)
    """
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def finite_number(text: str) -> float | None:
    """The same, and None where it is not finite."""
    value = number(text)
    return value if value is not None and math.isfinite(value) else None


def is_whole(text: str) -> bool:
    """Whether a text is a whole number without a sign.

    >>> is_whole("12"), is_whole("²"), is_whole("")
    (True, False, False)
    """
    return text.isascii() and text.isdigit()
