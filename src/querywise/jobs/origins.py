"""The origin of a report: data, command, versions, date, duration."""

from __future__ import annotations

import platform
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from querywise.methods.table import METHODS
from querywise.report.contents import Origin, Titles, shown_command
from querywise.retrieval.reading import collection_from, is_collection

_PACKAGES = ("querywise", "numpy", "scipy", "lightgbm")


def begun(command: str, data: str, note: str = "") -> Origin:
    """Return the origin of a report whose run begins now, for the running `command`, such as `compare`."""
    typed = shown_command(["querywise", *sys.argv[1:]]) if sys.argv[1:2] == [command] else ""
    methods = {name: each.description for name, each in METHODS.items()}
    return Origin(data, typed, _versions(), datetime.now(UTC), note=note, methods=methods)


def ended(origin: Origin | None) -> Origin | None:
    """Return the origin with the duration of its run, which has ended."""
    if origin is None or origin.date is None:
        return origin
    return replace(origin, seconds=(datetime.now(UTC) - origin.date).total_seconds())


def titles_of(data: Path) -> Titles | None:
    """Return a function that looks up titles of documents in a text collection; None for other data."""
    if not is_collection(data):
        return None

    def titles(ids: Collection[str]) -> Mapping[str, str]:
        documents = collection_from(data).documents()
        return {each.id: each.title for each in documents if each.id in ids and each.title}

    return titles


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**found, "Python": platform.python_version()}
