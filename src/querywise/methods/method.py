"""A ranker by name: its settings (from signatures and docstrings), the values worth trying, and how it is built.

A parameter with a default is a setting, of its annotation's type. A parameter can also stand for something that has
settings of its own, which then become settings of the function too:

- `Annotated[type[Nearest], "querywise.locality.neighborhoods:Nearest", "k", "metric"]` is the class, imported when
  needed, with these parameters filled in;
- `Annotated[QueryView, view_named]` is the return value of that function.

The names are those that can be set, by default all; a mapping gives some another default. If two settings have the same
name, the later one is used, and its value goes to both.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from querywise.errors import DataError
from querywise.methods.parts import normalised, with_missing
from querywise.runtime.values import Grid, Json, JsonObject, Settings

if TYPE_CHECKING:
    from querywise.contracts.protocols import Ranker
    from querywise.data.training import Training

Value: TypeAlias = "Json | Ranker"

NOTHING = ("none", "null")
JOINED = "+"  # joins the names of a setting that takes several
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a name", NoneType: "none"}
Maker: TypeAlias = Callable[..., Any]  # any class or function
_CITED = re.compile(r" \[\w+\]_")
Made: TypeAlias = "Callable[..., Ranker]"  # a ranker's class, with the values of its own settings
TEXT_VIEW = "gradient:text"  # tried beside a method's own view if queries have texts and no view is given
SIGNALS = "signals"  # a setting of trees that can be chosen on validation data


@dataclass(frozen=True)
class Setting:
    """A setting of a method. `kinds` are its types (`object`: any); `several` means that names are joined by +."""

    name: str
    kinds: tuple[type, ...]
    default: Json
    choices: tuple[str, ...]
    help: str
    several: bool = False

    @property
    def type(self) -> str:
        """The types in words: `number or none`."""
        return _or([words.removeprefix("a ") for words in self._kinds_in_words()])

    @property
    def expected(self) -> str:
        """What an error message expects: the choices, or else the types."""
        nothing = [WORDS[NoneType]] if NoneType in self.kinds else []
        return _or([*self.choices, *nothing] if self.choices else self._kinds_in_words())

    def read(self, text: str, said: str) -> Json:
        """Parse the value from text; `said` is the beginning of an error message."""
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
        """Return the value if it is valid; otherwise raise DataError."""
        if object not in self.kinds and not self._takes(value):
            raise DataError(f"{self.name}={typed(value)}: expected {self.expected}.")
        return value

    def argument(self, value: Value) -> Value:
        """Return the value as an argument of the constructor."""
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
        """Return the setting as JSON."""
        return {
            "name": self.name,
            "type": self.type,
            "default": self.default,
            "choices": list(self.choices),
            "help": self.help,
        }


def typed(value: Value) -> str:
    """Format a value as users type it: `none`, `true`, `0.2`."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _or(words: Sequence[str]) -> str:
    """Join words: `a`, `a or b`, `a, b or c`."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def imported(home: str) -> Maker:
    """Import the class or function at `module:name`."""
    module, _, name = home.partition(":")
    found: Maker = getattr(importlib.import_module(module), name)
    return found


def settings_of(
    made: Maker, *names: str | Mapping[str, Json], ranker: Mapping[str, Setting] | None = None
) -> dict[str, Setting]:
    """Return the settings of a class or function, by name; `ranker` has those of its parameter of that name."""
    found: dict[str, Setting] = {}
    helps = _explained(made)
    for name, parameter in _parameters(made).items():
        if get_origin(parameter.annotation) is Annotated:
            found |= settings_of(*_inner(parameter.annotation))
        elif name == "ranker":
            found |= ranker or {}
        elif parameter.default is not parameter.empty:
            found[name] = _setting(name, parameter.annotation, parameter.default, helps.get(name, ""))
    only = [each for each in names if isinstance(each, str)] or [*found]
    defaults = {name: value for each in names if not isinstance(each, str) for name, value in each.items()}
    return {name: replace(found[name], default=defaults.get(name, found[name].default)) for name in only}


def make(made: Maker, values: Mapping[str, Any], **given: Any) -> Any:  # of any class
    """Call a class or function with the values of its settings and the other arguments given."""
    for name, parameter in _parameters(made).items():
        if get_origin(parameter.annotation) is Annotated:
            inner, *names = _inner(parameter.annotation)
            inside = {each: values[each] for each in settings_of(inner, *names) if each in values}
            given[name] = partial(inner, **inside) if isinstance(inner, type) else make(inner, inside)
        elif name in values:
            given[name] = values[name]
    return made(**given)


def _inner(annotation: Any) -> tuple[Any, ...]:
    """Return the class or function behind a parameter, and the names of its settings."""
    made, *names = annotation.__metadata__
    return (imported(made) if isinstance(made, str) else made, *names)


class _Names(dict[str, Any]):
    """The names of a module; names imported only for type checkers can be anything."""

    def __missing__(self, name: str) -> Any:
        return object


@cache
def _parameters(made: Maker) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function, with evaluated annotations."""
    function: Any = made.__init__ if isinstance(made, type) else made  # type: ignore[misc]
    names = _Names({**vars(builtins), **function.__globals__})
    return inspect.signature(made, locals=names, eval_str=True).parameters


def _setting(name: str, hint: Any, default: Any, help_: str) -> Setting:
    alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    several = any(get_origin(each) is Sequence for each in alternatives)
    choices = [choice for each in alternatives if get_origin(each) is Literal for choice in get_args(each)]
    kinds = [kind for each in alternatives for kind in _kinds(each)] + ([NoneType] if default is None else [])
    value = (JOINED.join(default) or NOTHING[0]) if several and default is not None else default
    return Setting(name, tuple(dict.fromkeys(kinds)), value, tuple(choices), help_, several)


def _kinds(hint: Any) -> tuple[type, ...]:
    if get_origin(hint) in (Literal, Sequence):
        return (str,)
    return (int, str, object) if hint is Any else (hint if hint in WORDS else object,)


@cache
def _explained(made: Any) -> dict[str, str]:
    """Return the explanation of each parameter from the `Args:` of a function, or of a class and those it extends."""
    found: dict[str, str] = {}
    for each in reversed(made.__mro__) if isinstance(made, type) else (made,):
        _, _, section = inspect.cleandoc(each.__doc__ or "").partition("Args:\n")
        names: list[str] = []
        for line in itertools.takewhile(lambda line: line.startswith("    "), section.split("\n")):
            if line.startswith(" " * 8):
                found |= {name: f"{found[name]} {line.strip()}" for name in names}
            else:
                start, _, rest = line.strip().partition(": ")
                names = start.split(", ")
                found |= dict.fromkeys(names, rest)
    return {name: _CITED.sub("", text) for name, text in found.items()}


def _made(ranker: Made) -> Ranker:
    return ranker()


@dataclass(frozen=True)
class Method:
    """A ranker by name: how it is built, the settings worth trying, and a one-line description.

    Attributes:
        home: The class of the ranker as `module:Class`, imported when needed.
        takes: The parameters of the class that can be set.
        factory: Builds the ranker from the class (the parameter `ranker`) and other parts; see the top of this module.
        around: Wrappers of the ranker, each controlled by one more setting.

    """

    name: str
    description: str
    home: str
    takes: tuple[str, ...] = ()
    grid: Grid = field(default_factory=dict)
    grids: Mapping[str, Grid] = field(default_factory=dict)  # other grids, by base
    factory: Callable[..., Ranker] = _made
    around: tuple[Callable[..., Ranker], ...] = (normalised, with_missing)

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """The settings by name. The classes are imported on first use."""
        own = settings_of(imported(self.home), *self.takes) if self.takes else {}
        found = settings_of(self.factory, ranker=own)
        for each in self.around:
            found |= settings_of(each)
        return found

    def build(self, **settings: Value) -> Ranker:
        """Build the unfitted ranker from some settings, with defaults for the others."""
        chosen = {name: each.default for name, each in self.settings.items()} | self.checked(settings)
        values = {name: each.argument(chosen[name]) for name, each in self.settings.items()}
        own = {name: values[name] for name in self.takes}
        ranker: Ranker = make(self.factory, values, ranker=partial(imported(self.home), **own))
        for each in self.around:
            ranker = make(each, values, ranker=ranker)
        return ranker

    def checked(self, settings: Mapping[str, Value]) -> dict[str, Value]:
        """Return the settings if they are valid; otherwise raise DataError."""
        stray = next((name for name in settings if name not in self.settings), None)
        if stray is not None:
            raise DataError(f"{stray!r} is not a setting of {self.name}. Known: {', '.join(self.settings)}.")
        return {name: self.settings[name].checked(value) for name, value in settings.items()}

    def grid_on(self, data: Training, base: str | None = None) -> Grid:
        """Return the grid for some data and base; if queries have texts, it includes a view of the text."""
        if base is not None and base in self.grids:
            return self.grids[base]
        view = None if "view" in self.grid else self.settings.get("view")
        return {**self.grid, "view": (view.default, TEXT_VIEW)} if view is not None and data.has_texts() else self.grid

    def opened(self, grid: Grid, fixed: Settings) -> tuple[Grid, Settings]:
        """Move signals from the fixed settings to the grid if they are to be chosen."""
        if SIGNALS not in self.settings or fixed.get(SIGNALS) != "chosen":
            return grid, fixed
        return {**grid, SIGNALS: ("off", "on")}, {name: value for name, value in fixed.items() if name != SIGNALS}

    def as_json(self) -> JsonObject:
        """Return the method as JSON, without its settings."""
        return {
            "name": self.name,
            "description": self.description,
            "grid": {name: list(values) for name, values in self.grid.items()},
        }


def parse_settings(method: Method, texts: Sequence[str], flag: str = "") -> JsonObject:
    """Parse settings from texts like `l2=0.3`, checked against the method's own. `flag` precedes them in errors."""
    chosen: JsonObject = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in method.settings:
            known = ", ".join(method.settings)
            raise DataError(f"{flag}{text}: this is not a setting of {method.name}. Known: {known}, as in l2=0.3.")
        chosen[name] = method.settings[name].read(value, f"{flag}{text}")
    return chosen


def settings_of_several(methods: Sequence[Method], texts: Sequence[str], flag: str = "") -> JsonObject:
    """Parse settings for the methods that have them; raise DataError for a setting that no method has."""
    chosen: JsonObject = {}
    for text in texts:
        name = text.partition("=")[0]
        having = [method for method in methods if name in method.settings]
        if not having:
            said = ", ".join(method.name for method in methods) or "no method"
            raise DataError(
                f"{flag}{text}: none of the methods compared has this setting ({said}). See them by "
                "`querywise methods NAME`."
            )
        for method in having:
            chosen |= parse_settings(method, [text], flag)
    return chosen
