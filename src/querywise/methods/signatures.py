"""What can be set of a class or a function, as its signature and its docstring say, and how it is called with that.

A parameter with a default is a setting, of its annotation's type. A parameter can also stand for something that has
settings of its own, which are then settings of the function too:

- `Annotated[type[Nearest], "querywise.locality.neighborhoods:Nearest", "k", "metric"]` is the class, imported when that
  is needed, with these parameters filled in;
- `Annotated[QueryView, view_named]` is what that function returns.

The names are those that can be set, by default all; a mapping gives some another default. Of two settings with one name
the later one counts, and its value goes to both.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from querywise.methods.settings import JOINED, NOTHING, WORDS, Setting
from querywise.runtime.values import Json

Maker: TypeAlias = Callable[..., Any]  # any class or function
_CITED = re.compile(r" \[\w+\]_")


def imported(home: str) -> Maker:
    """The class or the function at `module:name`, imported now."""
    module, _, name = home.partition(":")
    found: Maker = getattr(importlib.import_module(module), name)
    return found


def settings_of(
    made: Maker, *names: str | Mapping[str, Json], ranker: Mapping[str, Setting] | None = None
) -> dict[str, Setting]:
    """What can be set of a class or a function, by name; `ranker` is what can be set of its parameter of that name."""
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


def make(made: Maker, values: Mapping[str, Any], **given: Any) -> Any:  # of whatever class
    """What a class or a function returns, called with the values of its settings and with what is given beside them."""
    for name, parameter in _parameters(made).items():
        if get_origin(parameter.annotation) is Annotated:
            inner, *names = _inner(parameter.annotation)
            inside = {each: values[each] for each in settings_of(inner, *names) if each in values}
            given[name] = partial(inner, **inside) if isinstance(inner, type) else make(inner, inside)
        elif name in values:
            given[name] = values[name]
    return made(**given)


def _inner(annotation: Any) -> tuple[Any, ...]:
    """The class or the function that a parameter stands for, and which settings it has."""
    made, *names = annotation.__metadata__
    return (imported(made) if isinstance(made, str) else made, *names)


class _Names(dict[str, Any]):
    """The names of a module; one that is imported for type checkers alone can be anything."""

    def __missing__(self, name: str) -> Any:
        return object


@cache
def _parameters(made: Maker) -> Mapping[str, inspect.Parameter]:
    """The parameters of a class or a function, with their annotations evaluated."""
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
    """What docstrings say of parameters, in lines that begin with `name: ` or `name, other: ` and go on to a blank one.

    A class's own words replace those of the classes it extends.
    """
    found: dict[str, str] = {}
    for each in reversed(made.__mro__) if isinstance(made, type) else (made,):
        names: list[str] = []
        for line in inspect.cleandoc(each.__doc__ or "").split("\n"):
            start, colon, rest = line.partition(": ")
            if colon and all(word.isidentifier() for word in start.split(", ")):
                names = start.split(", ")
                found |= dict.fromkeys(names, rest)
            else:
                names = names if line else []
                found |= {name: f"{found[name]} {line}" for name in names}
    return {name: _CITED.sub("", text) for name, text in found.items()}
