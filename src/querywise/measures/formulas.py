"""Measures of a ranking: pure functions of one query's labels, best-ranked document first.

Evaluators disagree about four things; a `Flavour` names the choices, and every table prints which one it used:

- the *gain* of a label and the *discount* of a position in DCG;
- what a list *without a relevant document* counts (0 or 1; it always stays in the mean);
- what NDCG@k means on a list *shorter than k* (the whole list, or a hole that counts 0);
- from which label on a document is *relevant* to binary measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.threads import in_threads

_HIGHEST = 960  # the highest grade for which sums of 2^grade surely are finite
_BLOCK = 1_000_000  # scores at a time, in each thread


@dataclass(frozen=True)
class Flavour:
    """One evaluator's conventions.

    gain: exponential is 2^label − 1, linear is the label itself. discount: `log2(i + 1)` at position i, or LETOR's,
    which leaves positions 1 and 2 undiscounted and divides by `log2(i)` from 3 on. `max_grade` is the grade ERR calls
    perfect; None means the largest label in the data.
    """

    name: str
    description: str
    gain: Literal["exponential", "linear"] = "exponential"
    discount: Literal["standard", "letor"] = "standard"
    relevant_from: int = 1
    without_relevant: float = 0.0
    short_lists: Literal["whole", "hole"] = "whole"
    ties: Literal["file order", "document id"] = "file order"
    max_grade: int | None = None


FLAVOURS = {
    flavour.name: flavour
    for flavour in (
        Flavour("standard", "the textbook's: gain 2^r - 1, discount log2(i + 1)"),
        Flavour("letor4", "the official LETOR 4.0 evaluator", discount="letor", short_lists="hole"),
        Flavour("mslr", "the official MSLR evaluator", discount="letor", short_lists="hole", relevant_from=2),
        Flavour("trec", "trec_eval: linear gain, ties by document id, last first", gain="linear", ties="document id"),
        Flavour("lightgbm", "LightGBM: a list without a relevant document counts 1", without_relevant=1.0),
    )
}


def gains(labels: Ints, flavour: Flavour) -> Floats:
    """What each label is worth: 2^label − 1, or the label itself."""
    return np.exp2(labels) - 1 if flavour.gain == "exponential" else labels.astype(np.float64)


def discounts(positions: int, flavour: Flavour) -> Floats:
    """What divides the gain at positions 1, 2 and so on."""
    place = np.arange(1, positions + 1)
    return np.log2(place + 1) if flavour.discount == "standard" else np.log2(np.maximum(place, 2))


def dcg_curve(labels: Ints, flavour: Flavour) -> Floats:
    r"""DCG at every position [jarvelin2002]_.

    .. math:: \mathrm{dcg}_k = \sum_{i=1}^{k} \mathrm{gains}_i / \mathrm{discounts}_i

    >>> dcg_curve(np.array([2, 0, 1]), FLAVOURS["standard"])
    array([3. , 3. , 3.5])
    """
    return np.cumsum(gains(labels, flavour) / discounts(len(labels), flavour))


def _comparable(labels: Ints, flavour: Flavour) -> Floats:
    """The gains of labels, those of very high grades all divided by one power of two, which no ratio of them shows."""
    excess = float(labels.max(initial=0)) - _HIGHEST
    if flavour.gain != "exponential" or excess <= 0:
        return gains(labels, flavour)
    found: Floats = np.exp2(labels - excess) - np.exp2(-excess)
    return found


def ndcg_curve(labels: Ints, flavour: Flavour) -> Floats:
    r"""DCG at every position divided by that of the best possible order [jarvelin2002]_.

    >>> ndcg_curve(np.array([0, 1]), FLAVOURS["letor4"])
    array([0., 1.])
    """
    worth, discount = _comparable(labels, flavour), discounts(len(labels), flavour)
    ideal = np.cumsum(np.sort(worth)[::-1] / discount)
    if not len(ideal) or ideal[-1] == 0:
        return np.full(len(labels), flavour.without_relevant)
    return np.cumsum(worth / discount) / ideal


def ndcg(labels: Ints, k: int | None, flavour: Flavour) -> float:
    """NDCG@k: the curve at position k. Beyond a list's end it is the last value, or a hole that counts 0."""
    if not len(labels):
        return flavour.without_relevant
    curve = ndcg_curve(labels, flavour)
    if k is None or k <= len(curve):
        return float(curve[-1 if k is None else k - 1])
    return float(curve[-1]) if flavour.short_lists == "whole" else 0.0


def mean_ndcg(labels: Ints, k: int | None, flavour: Flavour) -> float:
    """The mean of NDCG@1..@n over all n positions of the list (LETOR 4's), or of NDCG@1..@k."""
    if not len(labels):
        return flavour.without_relevant
    curve = ndcg_curve(labels, flavour)
    if k is None:
        return float(curve.mean())
    beyond = curve[-1] if flavour.short_lists == "whole" else 0.0
    return float((curve[:k].sum() + max(k - len(curve), 0) * beyond) / k)


def dcg(labels: Ints, k: int | None, flavour: Flavour) -> float:
    """DCG@k, not normalised; refused for grades so high that it is no finite number."""
    if flavour.gain == "exponential" and labels.max(initial=0) > _HIGHEST:
        raise DataError(
            f"DCG with grade {labels.max()}: its gain, 2^{labels.max()}, is too large to add up. Give the grades lower "
            "numbers in the same order, ask for ndcg, or take the flavour trec, whose gain is the grade itself."
        )
    return float(dcg_curve(labels[:k], flavour)[-1]) if len(labels) else 0.0


def average_precision(labels: Ints, k: int | None, flavour: Flavour) -> float:
    """The mean, over the relevant documents, of the precision at their positions.

    >>> average_precision(np.array([1, 0, 1]), None, FLAVOURS["standard"]) == (1 / 1 + 2 / 3) / 2
    True
    """
    positions = _relevant_positions(labels, flavour)
    if not len(positions):
        return flavour.without_relevant
    return float((np.arange(1, len(positions) + 1) / positions).mean())


def average_precisions(labels: Ints, scores: Floats, flavour: Flavour) -> Floats:
    """One query's average precision under many scorings, a column each; tied documents keep their order.

    >>> average_precisions(np.array([1, 0]), np.array([[2.0, 1.0], [1.0, 2.0]]), FLAVOURS["standard"])
    array([1. , 0.5])
    """
    relevant = labels >= flavour.relevant_from
    if not relevant.any():
        return np.full(scores.shape[1], flavour.without_relevant)
    hits = relevant[np.argsort(-scores, axis=0, kind="stable")]
    precisions = np.cumsum(hits, axis=0) / np.arange(1, len(labels) + 1)[:, None]
    found: Floats = (precisions * hits).sum(axis=0) / relevant.sum()
    return found


class Scorers(Protocol):
    """Several scoring functions."""

    def __len__(self) -> int:
        """How many."""
        ...

    def scores(self, candidates: Candidates, /) -> Floats:
        """Documents × functions: every document under every function."""
        ...


def precision_table(models: Scorers, data: Judged, flavour: Flavour, tie_break: Ints | None = None) -> Floats:
    """Queries × models: every query's average precision under every model; ties by `tie_break`, else by order."""
    candidates = data.candidates
    table = np.zeros((len(data), len(models)))

    def fill(block: tuple[int, int]) -> None:
        first, last = block
        part = candidates if last - first == len(candidates) else candidates.select(np.arange(first, last))
        scores = models.scores(part)
        for query in range(first, last):
            own, rows = scores[part.rows(query - first)], candidates.rows(query)
            turn = slice(None) if tie_break is None else np.argsort(tie_break[rows], kind="stable")
            table[query] = average_precisions(data.labels[rows][turn], own[turn], flavour)

    in_threads(fill, list(candidates.blocks(_BLOCK // max(len(models), 1))))
    return table


def reciprocal_rank(labels: Ints, k: int | None, flavour: Flavour) -> float:
    """1 / position of the first relevant document, 0 where there is none (among the first k)."""
    positions = _relevant_positions(labels[:k], flavour)
    return float(1 / positions[0]) if len(positions) else 0.0


def precision(labels: Ints, k: int | None, flavour: Flavour) -> float:
    """The share of relevant documents among the first k; positions beyond the list's end are not relevant."""
    size = len(labels) if k is None else k
    return float(len(_relevant_positions(labels[:k], flavour)) / size) if size else 0.0


def expected_reciprocal_rank(labels: Ints, k: int | None, flavour: Flavour) -> float:
    """ERR: the expected 1 / position at which a reader stops [chapelle2009]_.

    Each document stops the reader with probability (2^label − 1) / 2^max_grade.
    """
    highest = flavour.max_grade if flavour.max_grade is not None else int(labels.max(initial=0))
    top = labels[:k]
    stops = np.exp2(top - float(highest)) - np.exp2(-float(highest))
    arrives = np.concatenate([[1.0], np.cumprod(1 - stops)[:-1]]) if len(top) else np.zeros(0)
    return float(np.sum(arrives * stops / np.arange(1, len(top) + 1)))


def _relevant_positions(labels: Ints, flavour: Flavour) -> Ints:
    return np.flatnonzero(labels >= flavour.relevant_from) + 1


ListMeasure = Callable[[Ints, int | None, Flavour], float]


@dataclass(frozen=True)
class Measure:
    """A measure as people write it, `ndcg@10`: a function of ranked labels and the cut k, if it has one."""

    name: str
    function: ListMeasure
    k: int | None

    def of(self, labels: Ints, flavour: Flavour) -> float:
        """Its value for one ranked list."""
        return self.function(labels, self.k, flavour)


@dataclass(frozen=True)
class _Entry:
    function: ListMeasure
    cut: Literal["none", "optional", "required"]
    description: str


MEASURES = {
    "map": _Entry(average_precision, "none", "mean average precision"),
    "mrr": _Entry(reciprocal_rank, "optional", "mean reciprocal rank of the first relevant document"),
    "p": _Entry(precision, "required", "precision among the first k"),
    "ndcg": _Entry(ndcg, "optional", "normalised discounted cumulative gain"),
    "mean_ndcg": _Entry(mean_ndcg, "optional", "mean of NDCG over all positions, or over the first k"),
    "dcg": _Entry(dcg, "optional", "discounted cumulative gain"),
    "err": _Entry(expected_reciprocal_rank, "optional", "expected reciprocal rank"),
}


def find_measure(name: str) -> Measure:
    """The measure a name like `ndcg@10` stands for."""
    match = re.fullmatch(r"([a-z_]+)(?:@([1-9][0-9]{0,8}))?", name.strip().lower())
    entry = MEASURES.get(match.group(1)) if match else None
    if match is None or entry is None:
        raise DataError(f"Unknown measure {name!r}. Known: {', '.join(map(_written, MEASURES))}.")
    k = None if match.group(2) is None else int(match.group(2))
    if (entry.cut == "none" and k is not None) or (entry.cut == "required" and k is None):
        raise DataError(f"Measure {name!r} is written {_written(match.group(1))}.")
    return Measure(match.group(0), entry.function, k)


def find_measures(names: str | Sequence[str]) -> list[Measure]:
    """Several measures, given as a list or as one text with commas."""
    listed = names.split(",") if isinstance(names, str) else list(names)
    if not listed:
        raise DataError(f"No measure was given. Known: {', '.join(map(_written, MEASURES))}.")
    return [find_measure(name) for name in listed]


def find_flavour(name: str) -> Flavour:
    """The flavour of that name."""
    try:
        return FLAVOURS[name]
    except KeyError:
        raise DataError(f"Unknown flavour {name!r}. Known: {', '.join(FLAVOURS)}.") from None


def _written(name: str) -> str:
    return {"none": name, "optional": f"{name} or {name}@k", "required": f"{name}@k"}[MEASURES[name].cut]
