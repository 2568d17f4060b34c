"""Optional packages."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType
from typing import NamedTuple

from querywise.errors import DataError


class Package(NamedTuple):
    """An optional package that a class needs, named in the class attribute `package`.

    Attributes:
        name: the name to import it by.
        install: the command that installs it.
    """

    name: str
    install: str

    def missing(self, user: str) -> str | None:
        """Return a sentence that tells how to install the package that `user` needs, or None if it is installed."""
        return (
            None if find_spec(self.name) else f"{user} needs the package {self.name}. Install it with: {self.install}"
        )

    def load(self, user: str) -> ModuleType:
        """Import and return the package."""
        if problem := self.missing(user):
            raise DataError(problem)
        return importlib.import_module(self.name)
