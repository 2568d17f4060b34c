"""The forms of a model that an engine can run: a weighted sum, a forest, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from querywise.runtime.arrays import Floats

_WITHIN = "an engine's model sees one document at a time and cannot know that."


@dataclass(frozen=True, eq=False)
class Linear:
    """A weighted sum of the features."""

    weights: Floats


@dataclass(frozen=True)
class Leaf:
    """A leaf and the value that it gives a document."""

    value: float


@dataclass(frozen=True)
class Split:
    """A split: documents whose feature value is at most the threshold go to the low side."""

    column: int
    threshold: float
    low: Split | Leaf
    high: Split | Leaf


@dataclass(frozen=True)
class Forest:
    """A sum of trees."""

    trees: tuple[Split | Leaf, ...]


@dataclass(frozen=True)
class Refusal:
    """A sentence that explains why something is not available."""

    reason: str


Runnable: TypeAlias = Linear | Forest
Form: TypeAlias = Linear | Forest | Refusal


def nodes(form: Runnable) -> Iterator[Split | Leaf]:
    """Yield every node of the trees, depth first from each root, the low side first; a weighted sum has no nodes."""
    waiting = [] if isinstance(form, Linear) else list(reversed(form.trees))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Split):
            waiting += [node.high, node.low]


def depends_on_the_list(whose: type, does: str, instead: str = "") -> Refusal:
    """Return why a model whose scores depend on all documents of the query cannot be exported."""
    return Refusal(f"A {whose.__name__} cannot be exported: it {does}; {_WITHIN} {instead}".rstrip())


def no_form(whose: type) -> Refusal:
    """Return why a model that is neither a weighted sum nor a forest cannot be exported."""
    return Refusal(
        f"A {whose.__name__} cannot be exported: the engines run weighted sums and trees, and it is neither."
    )


def no_missing(whose: type, does: str) -> Refusal:
    """Return why a model that handles missing values cannot be exported."""
    return Refusal(
        f"A {whose.__name__} cannot be exported: {does}, and an engine's model gets 0 for a feature that a document "
        "does not have, as if that were its value. Fill missing values as the engine does, with 0, fit that and export "
        "it; or serve this model over HTTP."
    )


def no_sum(whose: type) -> Refusal:
    """Return why a score that is not a sum over features has no contributions to show."""
    return Refusal(
        f"A {whose.__name__}'s score is not a sum over features, so there are no parts to show. Linear "
        "models, trees, and rankers made of them have some."
    )


def name_in_engine(name: str, number: int, stored: int | None) -> str:
    """Return the name of a model in an engine, from the name of its export.

    Args:
        name: the name of the export.
        number: the index of the stored model, −1 for the global one.
        stored: the number of stored models; None if one model scores all queries.

    Example:
        >>> name_in_engine("shop", -1, None), name_in_engine("shop", -1, 20), name_in_engine("shop", 3, 20)
        ('shop', 'shop-global', 'shop-03')

    """
    if stored is None:
        return name
    return f"{name}-global" if number < 0 else f"{name}-{number:0{len(str(stored - 1))}d}"
