"""Base class of estimators: parameters by name, as in scikit-learn, and a repr that is the code to construct them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from html import escape
from typing import Any, NamedTuple, Self, TypeAlias

from querywise.display.tables import table
from querywise.errors import DataError
from querywise.runtime.parameters import is_fitted, parameter_names, parameters_of

Parameter: TypeAlias = Any  # anything that an estimator's constructor takes
_WIDTH = 100  # longest repr that stays on one line, in characters
_LONGEST = 500  # longest repr of a value that is not an estimator, in characters


class Estimator:
    """Parameters by name and a short repr, for any class that stores its constructor's arguments under their names.

    Names of nested parameters are joined by two underscores: `learner__l2` is `l2` of the learner, `rankers__0` the
    first
    ranker of a list. scikit-learn's `clone`, pipelines and searches need nothing else.
    """

    def get_params(self, deep: bool = True) -> dict[str, Parameter]:
        """Return the constructor's arguments by name; with `deep`, also those of nested estimators."""
        found = parameters_of(self)
        for name, part in [*_parts_of(found)] if deep else ():
            found |= {name: part, **{f"{name}__{each}": value for each, value in part.get_params().items()}}
        return found

    def set_params(self, **parameters: Parameter) -> Self:
        """Set parameters by name, including nested ones; learned values stay until the next fit."""
        own = parameter_names(type(self))
        # an estimator first, then its own parameters
        for name in sorted(parameters, key=lambda each: each.count("__")):
            first, _, rest = name.partition("__")
            if first not in own:
                raise DataError(_unknown(self, first, own))
            present = getattr(self, first)
            parts = dict(_parts_of({first: present}))
            part = next((each for each in parts if name.startswith(f"{each}__")), None)
            if not rest:
                setattr(self, name, parameters[name])
            elif name in parts:  # an item of a list
                changed = [parameters[name] if each == int(rest) else old for each, old in enumerate(present)]
                setattr(self, first, type(present)(changed))
            elif part is not None:
                parts[part].set_params(**{name.removeprefix(f"{part}__"): parameters[name]})
            else:
                raise DataError(_no_part(self, name, first, [*parts]))
        return self

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy with copies of the parameters.

        A nested estimator that was passed fitted stays fitted.
        """
        return type(self)(**{name: _copied(value) for name, value in parameters_of(self).items()})

    def __repr__(self) -> str:
        """Return the expression that constructs the estimator, with the parameters that differ from their defaults."""
        given = [*_given(self)]
        line = f"{type(self).__name__}({', '.join(given)})"
        if len(line) <= _WIDTH and "\n" not in line:
            return line
        inside = ",\n".join(given).replace("\n", "\n    ")
        return f"{type(self).__name__}(\n    {inside},\n)"

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: a table of the non-default parameters, and one of all parameters."""
        every = [*_rows(self)]
        told = [each for each in every if each.told]
        state = "fitted" if is_fitted(self) else "not fitted"
        title = f"<b>{escape(type(self).__name__)}</b>, {state}"
        short = _table(told) if told else ""
        if len(told) == len(every):
            return f"<div>{title}{short}</div>"
        whole = f"<details><summary>All {len(every)} parameters</summary>{_table(every)}</details>"
        return f"<div>{title}{short}{whole}</div>"


def _parts_of(parameters: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the estimators among the parameters by name, and those in lists by name and index."""
    for name, value in parameters.items():
        several = isinstance(value, (list, tuple))
        for number, each in enumerate(value if several else (value,)):
            if hasattr(each, "get_params") and not isinstance(each, type):
                yield f"{name}__{number}" if several else name, each


def _unknown(thing: Estimator, name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1, 0.5)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"{type(thing).__name__} has no parameter {name!r}. It has: {', '.join(known) or 'none'}.{meant}"


def _no_part(thing: Estimator, name: str, first: str, parts: list[str]) -> str:
    value = getattr(thing, first)
    said = f"Name one of {', '.join(f'{each}__…' for each in parts)}" if parts else f"Set {first} first"
    found = f"a {type(value).__name__} of {len(value)}" if isinstance(value, (list, tuple)) else _written(value)
    return f"{type(thing).__name__} has no parameter {name!r}: {first} is {found}. {said}."


def _copied(value: Any) -> Any:
    """Return a copy of a parameter for another estimator; nested estimators keep what they have learned."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copied, value)) if type(value) in (list, tuple) else copy.deepcopy(value)
    if not isinstance(value, Estimator):
        return copy.deepcopy(value)
    twin = copy.copy(value)
    for name, each in parameters_of(value).items():
        setattr(twin, name, _copied(each))
    return twin


def _given(thing: Estimator) -> Iterator[str]:
    """Yield the arguments that differ from their defaults, as source code; those without a default come first."""
    for name, parameter in inspect.signature(type(thing)).parameters.items():
        value = getattr(thing, name)
        if parameter.default is parameter.empty:
            yield _written(value)
        elif repr(value) != repr(parameter.default):
            yield f"{name}={_written(value)}"


class _Row(NamedTuple):
    """A parameter in a table; `told` marks nested estimators and parameters that differ from their defaults."""

    name: str
    value: str
    told: bool


def _rows(thing: Estimator, before: str = "") -> Iterator[_Row]:
    """Yield every parameter of an estimator by its full name, each followed by its own nested parameters."""
    for name, parameter in inspect.signature(type(thing)).parameters.items():
        value = getattr(thing, name)
        parts = dict(_parts_of({name: value}))
        if name not in parts:
            shown = f"{len(value)} parts" if parts else _written(value)
            yield _Row(f"{before}{name}", shown, bool(parts) or repr(value) != repr(parameter.default))
        for each, part in parts.items():
            yield _Row(f"{before}{each}", type(part).__name__, True)
            yield from _rows(part, f"{before}{each}__") if isinstance(part, Estimator) else ()


def _table(rows: list[_Row]) -> str:
    return table(("parameter", "value"), [(row.name, row.value) for row in rows], text=(0, 1))


def _written(value: Any) -> str:
    """Return a value as source code, or only its class name if its repr would show a memory address."""
    if isinstance(value, Estimator):
        return repr(value)
    if type(value) in (list, tuple):
        inside = ", ".join(map(_written, value)) + ("," if isinstance(value, tuple) and len(value) == 1 else "")
        if len(inside) > _WIDTH:
            inside = "\n    " + ",\n".join(map(_written, value)).replace("\n", "\n    ") + ",\n"
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    text = repr(value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value)
    if " at 0x" in text:
        return f"{getattr(value, '__name__', type(value).__name__)}(…)"
    return text if len(text) <= _LONGEST else f"{type(value).__name__}(…)"
