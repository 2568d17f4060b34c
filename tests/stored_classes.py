"""Every class that a model folder can name, found by looking through the rooms that have some."""

from __future__ import annotations

import importlib
import pkgutil

from querywise.storage.objects import name_of


def stored_classes() -> dict[str, type]:
    """By their names in folders; rankers that cannot be fitted are there for others to extend."""
    found = {}
    for room in ("learners", "locality", "rankers", "retrieval", "runtime"):
        package = importlib.import_module(f"querywise.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for kind in vars(importlib.import_module(module.name)).values():
                if isinstance(kind, type) and kind.__module__ == module.name and (name := name_of(kind)):
                    found[name] = kind
    return {name: kind for name, kind in found.items() if hasattr(kind, "fit") or not hasattr(kind, "answer")}


STORED = stored_classes()
