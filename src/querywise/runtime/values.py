"""Plain values, which JSON can hold: settings that people type, notes beside a model, results in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

# Sequence and Mapping rather than list and dict: a list of numbers is then a list of plain values too.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"
Settings: TypeAlias = "Mapping[str, Json]"  # by name
Grid: TypeAlias = "Mapping[str, Sequence[Json]]"  # what to try of each setting
