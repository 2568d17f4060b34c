"""What the constructor of a class takes, read from its signature: arguments from a folder are held to it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from querywise.runtime.stored import AnyOf, Check, Known, Part, Text, Value, WrongValueError, described, is_number


@cache
def argument_checks(kind: type) -> dict[str, Check]:
    """What each argument of a class's constructor must be."""
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    names = [name for name in inspect.signature(kind).parameters if name != "self"]
    return {name: _check_for(hints[name]) for name in names}


@dataclass(frozen=True)
class _Plain:
    """A plain value of one type. A whole number may be written as 5.0, and a truth value as 0 or 1."""

    type: type

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is none."""
        if self.type is NoneType:
            fits = value is None
        elif self.type is bool:
            fits = isinstance(value, (bool, int)) and value in (0, 1)
        else:
            fits = is_number(value) and isinstance(value, (int, float)) and not math.isnan(value)
            if fits and self.type is int:
                fits = math.isfinite(value) and value == int(value)  # type: ignore[arg-type]
        if not fits:
            raise WrongValueError(f"{where} is {described(value)}; expected {_SAID[self.type]}")


_SAID = {NoneType: "none", bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class _Sequence:
    """A tuple or a list of values of one kind, or a row of numbers."""

    each: Check

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is none."""
        if isinstance(value, str):  # a name by itself stands for a list of one
            value = [value]
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = value.tolist()
        if not isinstance(value, (tuple, list)):
            raise WrongValueError(f"{where} is {described(value)}; expected a list")
        for number, item in enumerate(value):
            self.each.check(item, f"{where}[{number}]", known)


class _Array:
    """An array of any type, of which the class declares more."""

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is none."""
        if not isinstance(value, np.ndarray):
            raise WrongValueError(f"{where} is {described(value)}; expected an array")


def _check_for(hint: Any) -> Check:
    if get_origin(hint) in (Union, UnionType):
        every = tuple(map(_check_for, get_args(hint)))
        return AnyOf(every, " or ".join(map(_in_words, get_args(hint))))
    if get_origin(hint) is Literal:
        return Text(get_args(hint))
    if get_origin(hint) is Sequence:
        return _Sequence(_check_for(get_args(hint)[0]))
    if get_origin(hint) is np.ndarray:
        return _Array()
    if hint is str:
        return Text()
    if hint in _SAID:
        return _Plain(hint)
    return Part(hint, None, fitted=False)


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    return _SAID.get(hint, f"a {getattr(hint, '__name__', 'list')}")
