"""Plain values, which JSON can hold: settings that people type, notes beside a model, results in files.

Numbers are read in the digits 0 to 9 alone: Python itself also reads 1_0 and the digits of other scripts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

# Sequence and Mapping rather than list and dict: a list of numbers is then a list of plain values too.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"
Settings: TypeAlias = "Mapping[str, Json]"  # by name
Grid: TypeAlias = "Mapping[str, Sequence[Json]]"  # what to try of each setting


def json_text(content: Json) -> str:
    """Some lines of JSON. A number that is not finite, which JSON does not have, is null."""
    try:
        return json.dumps(content, indent=1, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"


def _finite(content: Json) -> Json:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {name: _finite(each) for name, each in content.items()}
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [_finite(each) for each in content]
    return content


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
