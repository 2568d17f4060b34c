"""The names people type, and what they stand for: one table that the command line, comparisons and the docs read."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from querywise.contracts import Ranker
from querywise.errors import DataError


@dataclass(frozen=True)
class Method:
    """A ranker by name: how to build it, which parameters are worth trying, and one line on what it is."""

    name: str
    description: str
    build: Callable[..., Ranker]
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def _ranksvm(**parameters: Any) -> Ranker:
    from querywise.learners.ranksvm import RankSVM

    return RankSVM(**parameters)


def _lambdamart(**parameters: Any) -> Ranker:
    from querywise.learners.trees import LambdaMART

    return LambdaMART(**parameters)


METHODS = {
    method.name: method
    for method in (
        Method(
            "ranksvm",
            "one linear model for all queries, trained on preference pairs",
            _ranksvm,
            {"l2": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)},
        ),
        Method(
            "lambdamart",
            "one forest of boosted trees for all queries (LightGBM)",
            _lambdamart,
            {"leaves": (7, 15, 31), "learning_rate": (0.03, 0.1)},
        ),
    )
}


def find_method(name: str) -> Method:
    """The method of that name."""
    try:
        return METHODS[name]
    except KeyError:
        raise DataError(f"Unknown method {name!r}. Known: {', '.join(METHODS)}.") from None


def parse_settings(method: Method, settings: Sequence[str]) -> dict[str, Any]:
    """Parameters from texts like `l2=0.3`; names and kinds are checked against the method's own."""
    known = inspect.signature(type(method.build())).parameters
    chosen: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in known:
            raise DataError(f"{setting!r} is not a setting of {method.name}. Known: {', '.join(known)}, as in l2=0.3.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        default = known[name].default
        numeric = isinstance(default, (int, float)) and not isinstance(default, bool)
        whole = isinstance(default, int)
        fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if numeric and not fits:
            raise DataError(f"{setting!r}: {name} must be a {'whole ' if whole else ''}number.")
        chosen[name] = value
    return chosen
