"""The settings that a grid search tried, as columns, and along one parameter."""

from __future__ import annotations

from collections.abc import Sequence

from querywise.display.tables import Column
from querywise.errors import DataError
from querywise.runtime.values import Json, Settings


def tried_columns(
    settings: Sequence[Settings], values: Sequence[float], measure: str, chosen: Settings
) -> dict[str, Column]:
    """A row per setting: its parameters, the value of the measure, and whether it is the one that was chosen."""
    names = list(dict.fromkeys(name for each in settings for name in each))
    found: dict[str, Column] = {name: _alike([each.get(name) for each in settings]) for name in names}
    return {**found, measure: list(values), "chosen": [each == chosen for each in settings]}


def tried_values(
    settings: Sequence[Settings], values: Sequence[float], parameter: str | None
) -> tuple[str, dict[float | str, float]]:
    """The parameter, and the best value reached at each value of it; numbers in their order."""
    several = [
        name
        for name in dict.fromkeys(name for each in settings for name in each)
        if len({_key(each.get(name)) for each in settings}) > 1
    ]
    if parameter is None and len(several) != 1:
        what = f"{len(several)} parameters ({', '.join(several)})" if several else "no parameter"
        raise DataError(f"There are several values of {what}; plot(parameter=…) says which one to draw.")
    name = several[0] if parameter is None else parameter
    if not any(name in each for each in settings):
        known = ", ".join(dict.fromkeys(each for one in settings for each in one)) or "none"
        raise DataError(f"The parameter {name!r} was not tried. Tried: {known}.")
    best: dict[float | str, float] = {}
    for each, value in zip(settings, values, strict=True):
        key = _key(each.get(name))
        best[key] = max(best.get(key, value), value)
    numbers = all(isinstance(key, (int, float)) for key in best)
    return name, {key: best[key] for key in sorted(best, key=float)} if numbers else best


def _key(value: Json) -> float | str:
    """A number as it is; anything else as text."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _alike(column: Sequence[Json]) -> Column:
    """A column that every library of data frames takes: numbers, truth values and texts as they are, others as text."""
    kinds = {type(each) for each in column if each is not None}
    if kinds <= {int, float} or (len(kinds) <= 1 and kinds <= {str, bool}):
        return [each for each in column if each is None or isinstance(each, (str, int, float))]
    return [None if each is None else str(each) for each in column]
