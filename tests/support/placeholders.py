"""What a router has put in the place of every placeholder of an exported request, whatever the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from querywise.exports.target import VECTOR, weight_of


def placed(folder: Path, request: Any) -> dict[str, Any]:
    """The value of each placeholder, by its name."""
    if "sql" in request:
        given = dict(request["parameters"])
        known = {weight_of(name.removeprefix("weight_")): given[name] for name in given if name.startswith("weight_")}
        return known | {VECTOR: json.loads(given["vector"])}
    return dict(_pairs(json.loads((folder / "request.json").read_text()), request))


def weights_in(folder: Path, request: Any) -> dict[str, float]:
    """The weights of the runs that the request names."""
    prefix = weight_of("")
    return {name.removeprefix(prefix): each for name, each in placed(folder, request).items() if prefix in name}


def _pairs(form: Any, request: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(form, dict):
        for name in form:
            yield from _pairs(form[name], request[name])
    elif isinstance(form, list):
        for old, new in zip(form, request, strict=True):
            yield from _pairs(old, new)
    elif isinstance(form, str) and form.startswith("$"):
        yield form, request
