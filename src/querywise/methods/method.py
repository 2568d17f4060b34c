"""A ranker by name: what can be set, what is worth trying, and how it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

from querywise.errors import DataError
from querywise.methods.settings import Setting, Value
from querywise.methods.signatures import imported, make, settings_of
from querywise.methods.wrappers import normalised, with_missing
from querywise.runtime.values import Grid, JsonObject, Settings

if TYPE_CHECKING:
    from querywise.contracts.protocols import Ranker
    from querywise.data.training import Training

Made: TypeAlias = "Callable[..., Ranker]"  # a ranker's class, with the values of its own settings

TEXT_VIEW = "gradient:text"  # tried beside a method's own where queries have a text and no view is asked for
SIGNALS = "signals"  # a setting of trees that validation data can choose


def _made(ranker: Made) -> Ranker:
    return ranker()


@dataclass(frozen=True)
class Method:
    """A ranker by name: how it is built, which settings are worth trying, and one line on what it is.

    home: the class of the ranker as `module:Class`, imported when it is needed.
    takes: the parameters of the class that can be set.
    factory: builds the ranker of the class, the parameter `ranker`, and of other parts; see `signatures`.
    around: what can be put around the ranker, as one more setting says.
    """

    name: str
    description: str
    home: str
    takes: tuple[str, ...] = ()
    grid: Grid = field(default_factory=dict)
    grids: Mapping[str, Grid] = field(default_factory=dict)  # other ones, by base
    factory: Callable[..., Ranker] = _made
    around: tuple[Callable[..., Ranker], ...] = (normalised, with_missing)

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """What can be set, by name. The classes are imported when this is first asked for."""
        own = settings_of(imported(self.home), *self.takes) if self.takes else {}
        found = settings_of(self.factory, ranker=own)
        for each in self.around:
            found |= settings_of(each)
        return found

    def build(self, **settings: Value) -> Ranker:
        """The ranker, not fitted, with some settings and the defaults of the others."""
        chosen = {name: each.default for name, each in self.settings.items()} | self.checked(settings)
        values = {name: each.argument(chosen[name]) for name, each in self.settings.items()}
        own = {name: values[name] for name in self.takes}
        ranker: Ranker = make(self.factory, values, ranker=partial(imported(self.home), **own))
        for each in self.around:
            ranker = make(each, values, ranker=ranker)
        return ranker

    def checked(self, settings: Mapping[str, Value]) -> dict[str, Value]:
        """Valid settings; others are refused."""
        stray = next((name for name in settings if name not in self.settings), None)
        if stray is not None:
            raise DataError(f"{stray!r} is not a setting of {self.name}. Known: {', '.join(self.settings)}.")
        return {name: self.settings[name].checked(value) for name, value in settings.items()}

    def grid_on(self, data: Training, base: str | None = None) -> Grid:
        """What is worth trying on some data, with some base: where queries have a text, a view of it too."""
        if base is not None and base in self.grids:
            return self.grids[base]
        view = None if "view" in self.grid else self.settings.get("view")
        return {**self.grid, "view": (view.default, TEXT_VIEW)} if view is not None and data.has_texts() else self.grid

    def opened(self, grid: Grid, fixed: Settings) -> tuple[Grid, Settings]:
        """A grid and what is fixed beside it, where signals that are to be chosen are tried instead of fixed."""
        if SIGNALS not in self.settings or fixed.get(SIGNALS) != "chosen":
            return grid, fixed
        return {**grid, SIGNALS: ("off", "on")}, {name: value for name, value in fixed.items() if name != SIGNALS}

    def as_json(self) -> JsonObject:
        """The method as JSON can hold it, without its settings."""
        return {
            "name": self.name,
            "description": self.description,
            "grid": {name: list(values) for name, values in self.grid.items()},
        }


def parse_settings(method: Method, texts: Sequence[str], flag: str = "") -> JsonObject:
    """Settings from texts like `l2=0.3`, checked against the method's own. `flag` precedes a text in refusals."""
    chosen: JsonObject = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in method.settings:
            known = ", ".join(method.settings)
            raise DataError(f"{flag}{text}: this is not a setting of {method.name}. Known: {known}, as in l2=0.3.")
        chosen[name] = method.settings[name].read(value, f"{flag}{text}")
    return chosen


def settings_of_several(methods: Sequence[Method], texts: Sequence[str], flag: str = "") -> JsonObject:
    """Settings from texts, each checked against the methods that have it; one that none has is refused."""
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
