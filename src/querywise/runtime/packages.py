"""Packages that are not always installed."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType
from typing import NamedTuple

from querywise.errors import DataError


class Package(NamedTuple):
    """An optional package that a class needs, which it names in its attribute `package`.

    name: what it is imported by. install: the command that installs it.
    """

    name: str
    install: str

    def missing(self, user: str) -> str | None:
        """A sentence on what to install, where it is not installed. user: what needs it."""
        return (
            None if find_spec(self.name) else f"{user} needs the package {self.name}. Install it with: {self.install}"
        )

    def load(self, user: str) -> ModuleType:
        """The package, loaded now."""
        if problem := self.missing(user):
            raise DataError(problem)
        return importlib.import_module(self.name)
