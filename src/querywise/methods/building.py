"""A ranker from settings: the parts a method is made of, what can be set of each, and how they are put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from querywise.methods.settings import Setting, imported, settings_of
from querywise.runtime.values import Json


@dataclass(frozen=True)
class Part:
    """A class, or a function that returns an object, and the arguments a method gives it.

    home: `module:name`, imported only when it is needed.
    settings: the parameters that people can set.
    inside: the parameters that are parts themselves; several of them make a list.
    differs: values other than the constructor's own: defaults of settings, or values that nobody can set.
    called: settings that have another name than the parameter.
    """

    home: str
    settings: tuple[str, ...] = ()
    inside: Mapping[str, Part | tuple[Part, ...]] = field(default_factory=dict)
    differs: Mapping[str, Json] = field(default_factory=dict)
    called: Mapping[str, str] = field(default_factory=dict)

    def schema(self) -> dict[str, Setting]:
        """Every setting by name. One that several parts have goes to all of them, as the outermost or first has it."""
        found: dict[str, Setting] = {}
        for inner in self._parts():
            found = {**found, **{name: each for name, each in inner.schema().items() if name not in found}}
        known = settings_of(self.home)
        for parameter in self.settings:
            each = known[parameter]
            name = self.called.get(parameter, parameter)
            found[name] = replace(each, name=name, default=self.differs.get(parameter, each.default))
        return found

    def made(self, arguments: Mapping[str, Any]) -> Any:  # an object of any class
        """The part, from the arguments of all settings by name."""
        given: dict[str, Any] = dict(self.differs)
        given |= {parameter: arguments[self.called.get(parameter, parameter)] for parameter in self.settings}
        for parameter, inner in self.inside.items():
            if isinstance(inner, Part):
                given[parameter] = inner.made(arguments)
            else:
                given[parameter] = [each.made(arguments) for each in inner]
        return imported(self.home)(**given)

    def _parts(self) -> Iterator[Part]:
        for inner in self.inside.values():
            yield from inner if isinstance(inner, tuple) else (inner,)
