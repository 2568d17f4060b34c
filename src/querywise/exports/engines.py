"""What every engine's export has in common: the files it is made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from querywise.errors import DataError
from querywise.exports.arithmetic import Arithmetic
from querywise.exports.models import Exported
from querywise.runtime.values import Json, Settings

UNFINISHED = "EDIT_ME"  # stands where only the user knows what the engine is to compute


@dataclass(frozen=True)
class Files:
    """Texts by their place in the export, the features' names in the engine, and where each model went.

    others: what the engine computes beside the model's features.
    """

    texts: Mapping[str, str]
    in_engine: tuple[str, ...]
    places: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """An engine: how it computes, what is written for it, and how its models are brought to it and asked.

    write is given the models, the name of the export, and the user's own features, or None for a template of them.
    steps is the part of the export's README that is the engine's own, check what its check needs beside an address.
    """

    title: str
    arithmetic: Arithmetic
    write: Callable[[Exported, str, Json], Files]
    steps: Callable[[Exported, str], str]
    router: str
    check: str = "--url URL"


def as_text(content: Json) -> str:
    """JSON, indented."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def others_among(wanted: tuple[str, ...], given: Sequence[Settings]) -> tuple[str, ...]:
    """The user's features that the model does not use."""
    names = [each["name"] for each in given]
    return tuple(name for name in names if isinstance(name, str) and name not in wanted)


def check_feature_names(wanted: tuple[str, ...], found: Sequence[Json], where: str) -> None:
    """Refuse the user's features where one of the model's is missing or one is there twice."""
    names: list[str] = []
    for name in found:
        if not isinstance(name, str) or not name:
            raise DataError(f"{where}: every feature needs a name; found {name!r}.")
        names.append(name)
    repeated = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if repeated is not None:
        raise DataError(f"{where}: the feature {repeated!r} is there twice; names must be unique.")
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(
            f"{where}: the model's feature {missing[0]!r} is not among its {len(names)} features "
            f"({len(missing)} of {len(wanted)} are missing). It has: {', '.join(names[:8])}."
        )
