"""Plain JSON values: settings that users type, notes beside a model, results in files.

Numbers consist of the digits 0 to 9 only: Python itself also accepts 1_0 and the digits of other scripts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from types import GenericAlias, UnionType
from typing import TypeAlias, TypeGuard, get_args, get_origin, get_type_hints, is_typeddict

# Sequence and Mapping rather than list and dict, so that a list of numbers is also a list of plain values.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"
Settings: TypeAlias = "Mapping[str, Json]"  # by name
Grid: TypeAlias = "Mapping[str, Sequence[Json]]"  # values to try for each setting
MODERATE = 1e150  # the largest number to plot or compute with


def has_type(value: Json, kind: type | UnionType | GenericAlias) -> bool:
    """Return whether a value read from JSON has a type: a plain type, a list, a dictionary, a TypedDict, or a union.

    Numbers must be moderate, or NaN for unknown; a whole number counts as a float.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        entries = get_type_hints(kind).items()
        return isinstance(value, dict) and all(has_type(value.get(name), each) for name, each in entries)
    if origin is UnionType:
        return any(has_type(value, each) for each in parts)
    if origin is list:
        return isinstance(value, list) and all(has_type(each, parts[0]) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(has_type(each, parts[1]) for each in value.values())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return not abs(value) > MODERATE if kind is float else type(value) is kind and abs(value) < 2**53
    return type(value) is kind


def json_text(content: Json) -> str:
    """Return formatted JSON; numbers that are not finite, which JSON lacks, become null."""
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
    """Return the number in a text such as `-1.5e3` or `nan`; None if it is not a number.

    >>> number("1e3"), number("inf"), number("1_0"), number("ten")
    (1000.0, inf, None, None)
    """
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def finite_number(text: str) -> float | None:
    """Return the number in a text; None if it is not a finite number."""
    value = number(text)
    return value if value is not None and math.isfinite(value) else None


def is_finite_number(value: Json | Real) -> TypeGuard[int | float]:
    """Return whether a value is a number, possibly numpy's, that a double can hold.

    >>> is_finite_number(2), is_finite_number(True), is_finite_number(10**400), is_finite_number("2")
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, Real)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number larger than any double
        return False


def is_whole(text: str) -> bool:
    """Return whether a text is a whole number without a sign.

    >>> is_whole("12"), is_whole("²"), is_whole("")
    (True, False, False)
    """
    return text.isascii() and text.isdigit()
