"""What an engine is to an export, the files written for it, and the checks that all engines share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from querywise.errors import DataError
from querywise.exports.arithmetic import Arithmetic
from querywise.exports.models import Exported
from querywise.runtime.values import Json, Settings

UNFINISHED = "EDIT_ME"  # a placeholder, for the user to say how the engine computes a feature


@dataclass(frozen=True)
class Files:
    """What is written for an engine.

    texts: the files' contents by their paths in the export. in_engine: the features' names in the engine. places: the
    path of each model's file by the model's name. others: features that the engine computes and the model does not use.
    """

    texts: Mapping[str, str]
    in_engine: tuple[str, ...]
    places: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """A search engine: its arithmetic, and what is written for it.

    write: makes the files, from the models, the name of the export, and the user's features or None for a template.
    steps: makes the part of the export's README on uploading and querying. scripts: which of the scripts check_NAME.py
    and route_NAME.py are for this engine. check: the options check_parity.py needs. takes_weights: whether a request
    can carry a model's weights, so that the model need not be stored in the engine. no_sums: why the engine cannot run
    weighted sums, and what to do instead; None where it can. least: the least value that a feature has in the engine.
    """

    title: str
    arithmetic: Arithmetic
    write: Callable[[Exported, str, Json], Files]
    steps: Callable[[Exported, str], str]
    scripts: str
    check: str = "--url URL"
    takes_weights: bool = False
    no_sums: str | None = None
    least: float = -math.inf


def as_text(content: Json) -> str:
    """JSON, indented."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def others_among(wanted: tuple[str, ...], given: Sequence[Settings]) -> tuple[str, ...]:
    """The user's features that the model does not use."""
    names = [each["name"] for each in given]
    return tuple(name for name in names if isinstance(name, str) and name not in wanted)


def check_feature_names(wanted: tuple[str, ...], found: Sequence[Json], where: str) -> None:
    """Refuse the user's features where one of the model's is missing or a name is repeated."""
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
