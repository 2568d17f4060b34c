"""One thing that can be set: its name, kind, default, choices and a line of help, and how a text is read as it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType
from typing import TYPE_CHECKING, TypeAlias

from querywise.errors import DataError
from querywise.runtime.values import Json, JsonObject

if TYPE_CHECKING:
    from querywise.contracts.protocols import Ranker

Value: TypeAlias = "Json | Ranker"

NOTHING = ("none", "null")
JOINED = "+"  # between the names of a setting that takes several
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a name", NoneType: "none"}


@dataclass(frozen=True)
class Setting:
    """Something that can be set. `kinds` are the types it takes, `object` anything; `several` names are joined by +."""

    name: str
    kinds: tuple[type, ...]
    default: Json
    choices: tuple[str, ...]
    help: str
    several: bool = False

    @property
    def type(self) -> str:
        """The kinds in words: `number or none`."""
        return _or([words.removeprefix("a ") for words in self._kinds_in_words()])

    @property
    def expected(self) -> str:
        """What a refusal asks for: the choices, or else the kinds."""
        nothing = [WORDS[NoneType]] if NoneType in self.kinds else []
        return _or([*self.choices, *nothing] if self.choices else self._kinds_in_words())

    def read(self, text: str, said: str) -> Json:
        """The value that a text stands for; `said` is how a refusal begins."""
        if NoneType in self.kinds and text.lower() in NOTHING:
            return None
        if bool in self.kinds and text.lower() in ("true", "false"):
            return text.lower() == "true"
        try:
            plain = json.loads(text)
        except ValueError:
            plain = text
        number = isinstance(plain, (int, float)) and not isinstance(plain, bool) and {int, float} & {*self.kinds}
        value = plain if number or isinstance(plain, str) else text
        if not self._takes(value):
            raise DataError(f"{said}: expected {self.expected}.")
        return value

    def checked(self, value: Value) -> Value:
        """The value, if it is valid; else a refusal."""
        if object not in self.kinds and not self._takes(value):
            raise DataError(f"{self.name}={typed(value)}: expected {self.expected}.")
        return value

    def argument(self, value: Value) -> Value:
        """The constructor's argument."""
        if self.several and isinstance(value, str):
            return [] if value in NOTHING else value.split(JOINED)
        return value

    def _takes(self, value: Value) -> bool:
        if value is None:
            return NoneType in self.kinds
        if isinstance(value, bool):
            return bool in self.kinds
        if isinstance(value, str):
            return str in self.kinds and (not self.choices or value in self.choices)
        whole = isinstance(value, Integral)
        return (whole and int in self.kinds) or (isinstance(value, Real) and float in self.kinds)

    def _kinds_in_words(self) -> list[str]:
        words = {**WORDS, str: f"names joined by {JOINED}"} if self.several else WORDS
        return [words[kind] for kind in words if kind in self.kinds]

    def as_json(self) -> JsonObject:
        """The setting as JSON can hold it."""
        return {
            "name": self.name,
            "type": self.type,
            "default": self.default,
            "choices": list(self.choices),
            "help": self.help,
        }


def typed(value: Value) -> str:
    """A value as people type it: `none`, `true`, `0.2`."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _or(words: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
