"""What can be set, as the constructors say it: name, kind, default, choices and a line of help.

Name, default and annotation are those of the constructor, or of a function that takes its place. The help is what the
docstring says in the lines that begin with `name: `, or with `name, other: ` where one sentence explains several; they
end with a blank line or with the next such line. Where a constructor takes anything, people type a number or a name.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from querywise.errors import DataError
from querywise.runtime.values import Json, JsonObject

if TYPE_CHECKING:
    from querywise.contracts.protocols import Ranker

Value: TypeAlias = "Json | Ranker"

_NOTHING = ("none", "null")
_JOINED = "+"  # between the names of a setting that takes several
_ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)")
_CITED = re.compile(r" \[\w+\]_")
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a name", NoneType: "none"}


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
        nothing = [_WORDS[NoneType]] if NoneType in self.kinds else []
        return _or([*self.choices, *nothing] if self.choices else self._kinds_in_words())

    def read(self, text: str, said: str) -> Json:
        """The value that a text stands for; `said` is how a refusal begins."""
        if NoneType in self.kinds and text.lower() in _NOTHING:
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
            return [] if value in _NOTHING else value.split(_JOINED)
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
        words = {**_WORDS, str: f"names joined by {_JOINED}"} if self.several else _WORDS
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


def imported(home: str) -> Callable[..., Any]:  # a class or a function, whichever the table names
    """The class or the function at `module:name`, imported now."""
    module, _, name = home.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


@cache
def settings_of(home: str) -> Mapping[str, Setting]:
    """Every parameter at `module:name` that a plain value can be given for."""
    made = imported(home)
    constructor: Any = made.__init__ if isinstance(made, type) else made  # type: ignore[misc]
    taken = {name: each for name, each in inspect.signature(made).parameters.items() if each.default is not each.empty}
    hints = _hints({name: each.annotation for name, each in taken.items()}, constructor.__globals__)
    helps = dict(_explained(made))
    return {name: _setting(name, hints[name], taken[name].default, helps.get(name, "")) for name in hints}


class _Names(dict[str, Any]):
    """The names of a module; one that is imported for type checkers alone counts as Any."""

    def __missing__(self, name: str) -> Any:
        return vars(builtins).get(name, object)


def _hints(annotations: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    holder: Any = SimpleNamespace(__annotations__=dict(annotations))
    return get_type_hints(holder, globalns=dict(names), localns=_Names(names))


def _setting(name: str, hint: Any, default: Any, help_: str) -> Setting:
    several = any(get_origin(each) is Sequence for each in _alternatives(hint))
    value = (_JOINED.join(default) or _NOTHING[0]) if several and default is not None else default
    kinds = dict.fromkeys([*_kinds(hint), *([NoneType] if default is None else [])])
    return Setting(name, tuple(kinds), value, tuple(_choices(hint)), help_, several)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _kinds(hint: Any) -> Iterator[type]:
    for each in _alternatives(hint):
        if each is Any:
            yield from (int, str, object)
        elif get_origin(each) in (Literal, Sequence):
            yield str
        else:
            yield each if each in _WORDS else object


def _choices(hint: Any) -> Iterator[str]:
    for each in _alternatives(hint):
        if get_origin(each) is Literal:
            yield from get_args(each)


def _explained(made: Any) -> Iterator[tuple[str, str]]:
    """Names and what is said of them, a class's own words after those of the classes it extends."""
    for each in reversed(made.__mro__) if isinstance(made, type) else (made,):
        for paragraph in (inspect.cleandoc(each.__doc__ or "")).split("\n\n"):
            yield from _entries(paragraph.split("\n"))


def _entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    names, words = "", list[str]()
    for line in (*lines, None):
        begins = None if line is None else _ENTRY.fullmatch(line)
        if begins is None and line is not None:
            words.append(line)
            continue
        for name in filter(None, names.split(", ")):
            yield name, _CITED.sub("", " ".join(words))
        names, words = (begins[1], [begins[2]]) if begins else ("", [])


def _or(words: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
