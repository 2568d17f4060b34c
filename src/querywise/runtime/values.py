"""Plain values, which JSON can hold: settings that people type, notes beside a model, results in files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

# Sequence and Mapping rather than list and dict: a list of numbers is then a list of plain values too.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"
Settings: TypeAlias = "Mapping[str, Json]"  # by name
Grid: TypeAlias = "Mapping[str, Sequence[Json]]"  # what to try of each setting


def json_text(content: Json) -> str:
    """Some lines of JSON. A number that is not finite, which JSON does not have, is null."""
    try:
        return json.dumps(content, indent=1, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"


def _finite(content: Json) -> Json:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {name: _finite(each) for name, each in content.items()}
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [_finite(each) for each in content]
    return content
