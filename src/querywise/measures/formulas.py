"""Ranking measures: pure functions of one query's ranked list."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.measures.order import Flavour, RankedList, as_compared
from querywise.runtime.arrays import Bools, Floats, Ints, for_kernels
from querywise.runtime.threads import in_threads

_HIGHEST = 960  # the highest grade for which sums of 2^grade are certainly finite
PERSISTENCE = 0.8  # of RBP: the probability that the reader goes on to the next document
_BLOCK = 1_000_000  # scores per block, in each thread


def gains(labels: Ints, flavour: Flavour, table: Floats | None = None) -> Floats:
    """Return the gain of each label: from the table if there is one, else 2^label − 1 or the label itself."""
    if table is not None:
        found: Floats = table[labels]
        return found
    return np.exp2(labels) - 1 if flavour.gain == "exponential" else labels.astype(np.float64)


def discounts(positions: int, flavour: Flavour) -> Floats:
    """Return the discount at positions 1, 2, and so on; gains are divided by it."""
    place = np.arange(1, positions + 1)
    return np.log2(place + 1) if flavour.discount == "standard" else np.log2(np.maximum(place, 2))


def dcg_curve(labels: Ints, flavour: Flavour, table: Floats | None = None) -> Floats:
    r"""Return DCG at every position [jarvelin2002]_.

    .. math:: \mathrm{dcg}_k = \sum_{i=1}^{k} \mathrm{gains}_i / \mathrm{discounts}_i

    >>> from querywise.measures.order import FLAVOURS
    >>> dcg_curve(np.array([2, 0, 1]), FLAVOURS["standard"])
    array([3. , 3. , 3.5])
    """
    return np.cumsum(gains(labels, flavour, table) / discounts(len(labels), flavour))


def _comparable(ranked: RankedList, flavour: Flavour) -> Floats:
    """Return the gains of labels.

    Very high grades are all divided by the same power of two, which cancels out in ratios.
    """
    labels = ranked.all_grades
    highest = labels.max(initial=0)
    if ranked.gains is not None or flavour.gain != "exponential" or highest <= _HIGHEST:
        return gains(labels, flavour, ranked.gains)
    nothing = np.exp2(_HIGHEST - float(highest))
    found: Floats = np.maximum(np.exp2((labels - highest).astype(np.float64) + _HIGHEST) - nothing, 0.0)
    return found


def ndcg_curve(ranked: RankedList, flavour: Flavour) -> Floats:
    r"""Return DCG at every position, divided by that of the ideal order of all counted documents [jarvelin2002]_.

    ndcg@k = dcg@k / ideal dcg@k with dcg@k = Σ_{i ≤ k} gain(yᵢ) / discount(i); the flavour defines gain and discount.
    The curve extends beyond the list's end if judged documents are missing from the list.

    >>> from querywise.measures.order import FLAVOURS
    >>> ndcg_curve(RankedList(np.array([0, 1])), FLAVOURS["letor4"])
    array([0., 1.])
    """
    worth = _comparable(ranked, flavour)
    discount = discounts(len(worth), flavour)
    ideal = np.cumsum(np.sort(worth)[::-1] / discount)
    if not len(ideal) or ideal[-1] == 0:
        return np.full(len(worth), flavour.without_relevant)
    worth[len(ranked) :] = 0.0
    return np.cumsum(worth / discount) / ideal


def ndcg(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return NDCG@k: the curve at position k.

    Beyond the curve's end it is the last value or 0, depending on the flavour.
    """
    curve = ndcg_curve(ranked, flavour)
    if not len(curve):
        return flavour.without_relevant
    if k is None or k <= len(curve):
        return float(curve[-1 if k is None else k - 1])
    return float(curve[-1]) if flavour.short_lists == "whole" else 0.0


def mean_ndcg(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return the mean of NDCG@1..@n over all n positions of the list (LETOR 4's), or of NDCG@1..@k."""
    curve = ndcg_curve(ranked, flavour)
    if not len(curve):
        return flavour.without_relevant
    if k is None:
        return float(curve[: max(len(ranked), 1)].mean())
    beyond = curve[-1] if flavour.short_lists == "whole" else 0.0
    return float((curve[:k].sum() + max(k - len(curve), 0) * beyond) / k)


def dcg(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return DCG@k, not normalized. Raise DataError if a grade is too high for the sum to be finite."""
    labels = ranked.labels
    if ranked.gains is None and flavour.gain == "exponential" and labels.max(initial=0) > _HIGHEST:
        raise DataError(
            f"DCG with grade {labels.max()}: its gain, 2^{labels.max()}, is too large to add up. Give the grades lower "
            "numbers in the same order, ask for ndcg, or take the flavour trec, whose gain is the grade itself."
        )
    return float(dcg_curve(labels[:k], flavour, ranked.gains)[-1]) if len(labels) else 0.0


def average_precision(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return the precision at each relevant document's position, averaged over all relevant documents.

    >>> from querywise.measures.order import FLAVOURS
    >>> average_precision(RankedList(np.array([1, 0, 1])), None, FLAVOURS["standard"]) == (1 / 1 + 2 / 3) / 2
    True
    """
    relevant = ranked.relevant(flavour.relevant_from)
    if not relevant:
        return flavour.without_relevant
    positions = _relevant_positions(ranked.grades, flavour)
    return float((np.arange(1, len(positions) + 1) / positions).sum() / relevant)


def average_precisions(labels: Ints, scores: Floats, flavour: Flavour) -> Floats:
    """Return one query's average precision for many scorings, one per column; tied documents keep their order.

    >>> from querywise.measures.order import FLAVOURS
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
        """Return the number of functions."""

    def scores(self, candidates: Candidates, /) -> Floats:
        """Return documents × functions: the score of every document by every function."""


def precision_table(
    models: Scorers | Floats,
    data: Judged,
    flavour: Flavour,
    tie_break: Ints | None = None,
    *,
    only: Bools | None = None,
) -> Floats:
    """Return queries × models: each query's average precision by each model.

    Ties are broken by `tie_break`, else by order.

    Args:
        models: scoring functions, or the scores themselves, documents × functions.
        data: the judged queries.
        flavour: the conventions of the measure.
        tie_break: the order of tied documents, lowest first.
        only: the entries to compute, queries × models; the others are 0.

    """
    from querywise.measures.precision_kernels import fill_precisions

    table = np.zeros((len(data), _count(models)))
    wanted, totals = np.ones(table.shape, np.bool_) if only is None else only, _relevant_of(data, flavour)

    def fill(first: int, last: int, relevant: Bools, _: Ints, scores: Floats, starts: Ints) -> None:
        own = slice(first, last)
        fill_precisions(relevant, scores, starts, totals[own], wanted[own], flavour.without_relevant, table[own])

    _by_blocks(models, data, flavour, tie_break, fill)
    return table


def precision_halves(
    models: Scorers | Floats, data: Judged, flavour: Flavour, half: Bools, tie_break: Ints | None = None
) -> Floats:
    """Return 3 × queries × models: `precision_table` for all documents, for one half of them, and for the other half.

    The models see all documents. Within a half only the order of its own documents counts, and relevant documents that
    the candidates missed are ignored.
    """
    from querywise.measures.precision_kernels import fill_halves

    relevant, query = data.labels >= flavour.relevant_from, data.candidates.query_of_row
    counts = [np.bincount(query[relevant & side], minlength=len(data)) for side in (half, ~half)]
    totals = np.ascontiguousarray(np.stack([_relevant_of(data, flavour), *counts], axis=1))
    tables, sides = np.zeros((len(data), 3, _count(models))), np.where(half, 0, 1)

    def fill(first: int, last: int, relevant: Bools, rows: Ints, scores: Floats, starts: Ints) -> None:
        own = slice(first, last)
        fill_halves(relevant, sides[rows], scores, starts, totals[own], flavour.without_relevant, tables[own])

    _by_blocks(models, data, flavour, tie_break, fill)
    return tables.transpose(1, 0, 2)


def _by_blocks(
    models: Scorers | Floats, data: Judged, flavour: Flavour, tie_break: Ints | None, fill: Callable[..., None]
) -> None:
    """Call `fill` for each block of queries with the block's bounds and its documents.

    Its arguments: the first query, the one after the last, which documents are relevant, their rows, their scores, and
    where each query's documents start, with ties in order.
    """
    candidates, relevant = data.candidates, data.labels >= flavour.relevant_from

    def filled(block: tuple[int, int]) -> None:
        first, last = block
        part = candidates if last - first == len(candidates) else candidates.select(np.arange(first, last))
        rows = np.arange(candidates.starts[first], candidates.starts[last])
        found = models[rows] if isinstance(models, np.ndarray) else models.scores(part)
        scores = as_compared(found, flavour)
        if tie_break is not None:
            turn = np.lexsort((tie_break[rows], part.query_of_row))
            rows, scores = rows[turn], scores[turn]
        fill(first, last, relevant[rows], rows, for_kernels(np.ascontiguousarray(scores)), for_kernels(part.starts))

    in_threads(filled, list(candidates.blocks(_BLOCK // max(_count(models), 1))))


def _count(models: Scorers | Floats) -> int:
    return models.shape[1] if isinstance(models, np.ndarray) else len(models)


def _relevant_of(data: Judged, flavour: Flavour) -> Ints:
    """Return the number of relevant documents of each query, including missed ones if the flavour counts them."""
    totals = np.bincount(data.candidates.query_of_row[data.labels >= flavour.relevant_from], minlength=len(data))
    if flavour.counts == "judged" and data.missed is not None:
        totals = totals + data.missed.relevant(flavour.relevant_from)
    return totals


def ideal_shares(data: Judged, k: int, flavour: Flavour) -> Floats:
    """Return each query's highest possible NDCG@k: below 1 if relevant documents are missing from its candidates.

    NDCG over the candidates times this value is NDCG over all judged documents.
    """
    missed = data.missed
    if missed is None:
        return np.ones(len(data))
    best = [np.sort(data.labels[data.candidates.rows(query)])[::-1] for query in range(len(data))]
    lists = [RankedList(own, missed=missed.grades[missed.rows(query)]) for query, own in enumerate(best)]
    return np.array([ndcg(each, k, flavour) for each in lists])


def reciprocal_rank(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return 1 / position of the first relevant document (among the first k), or 0 if there is none."""
    positions = _relevant_positions(ranked.grades[:k], flavour)
    return float(1 / positions[0]) if len(positions) else 0.0


def precision(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return the share of relevant documents among the first k.

    Positions beyond the list's end count as not relevant.
    """
    size = len(ranked) if k is None else k
    return float(len(_relevant_positions(ranked.grades[:k], flavour)) / size) if size else 0.0


def recall(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return the share of all relevant documents that are among the first k.

    >>> from querywise.measures.order import FLAVOURS
    >>> recall(RankedList(np.array([1, 0]), missed=np.array([1])), 2, FLAVOURS["standard"])
    0.5
    """
    relevant = ranked.relevant(flavour.relevant_from)
    return len(_relevant_positions(ranked.grades[:k], flavour)) / relevant if relevant else flavour.without_relevant


def success(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return 1 if a relevant document is among the first k, else 0."""
    return float(len(_relevant_positions(ranked.grades[:k], flavour)) > 0)


def r_precision(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return the precision at R, where R is the number of all relevant documents."""
    relevant = ranked.relevant(flavour.relevant_from)
    return precision(ranked, relevant, flavour) if relevant else flavour.without_relevant


def bpref(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    r"""Return bpref: how rarely documents judged not relevant come before relevant ones [buckley2004]_.

    .. math:: \frac{1}{R} \sum_{r} \Bigl(1 - \frac{\min(n_r, R)}{\min(N, R)}\Bigr)

    summed over the relevant documents r in the list: R is the number of all relevant documents, N the number of
    documents judged not relevant, and n_r the number of those ranked before r. Documents that are unjudged or have a
    grade below 0 do not count.
    """
    relevant, others = ranked.relevant(flavour.relevant_from), ranked.not_relevant(flavour.relevant_from)
    if not relevant:
        return flavour.without_relevant
    before = np.cumsum(ranked.is_not_relevant(flavour.relevant_from))[_relevant_positions(ranked.grades, flavour) - 1]
    return float(np.sum(1 - np.minimum(before, relevant) / max(min(others, relevant), 1)) / relevant)


def judged_share(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return the share of the first k documents that are judged, whatever their grade; 0 for an empty list."""
    top = ranked.is_judged[:k]
    return float(top.mean()) if len(top) else 0.0


def rank_biased_precision(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    r"""Return RBP: the gain of a reader who goes on to the next document with probability p = 0.8 [moffat2008]_.

    .. math:: (1 - p) \sum_{i} p^{i-1} [\text{the i-th document is relevant}]
    """
    places = _relevant_positions(ranked.grades[:k], flavour) - 1
    return float((1 - PERSISTENCE) * np.sum(PERSISTENCE**places))


def expected_reciprocal_rank(ranked: RankedList, k: int | None, flavour: Flavour) -> float:
    """Return ERR: the expected 1 / position at which a reader stops [chapelle2009]_.

    Each document stops the reader with probability (2^label − 1) / 2^max_grade. Raises DataError for real-valued
    labels, from which no such probability follows.
    """
    if ranked.gains is not None:
        raise DataError(
            "ERR cannot be measured on real-valued labels (gains): its reader stops with probability "
            "(2^grade - 1) / 2^(highest grade), which values do not give. Ask for ndcg, dcg or rbp."
        )
    labels = ranked.labels
    highest = flavour.max_grade if flavour.max_grade is not None else int(labels.max(initial=0))
    top = np.minimum(labels[:k], highest)
    stops = np.exp2(top - float(highest)) - np.exp2(-float(highest))
    arrives = np.concatenate([[1.0], np.cumprod(1 - stops)[:-1]]) if len(top) else np.zeros(0)
    return float(np.sum(arrives * stops / np.arange(1, len(top) + 1)))


def _relevant_positions(grades: Ints, flavour: Flavour) -> Ints:
    return np.flatnonzero(grades >= flavour.relevant_from) + 1


ListMeasure = Callable[[RankedList, int | None, Flavour], float]


@dataclass(frozen=True)
class Measure:
    """A measure with its cutoff k, if it has one, written as in `ndcg@10`."""

    name: str
    function: ListMeasure
    k: int | None

    def of(self, ranked: RankedList, flavour: Flavour) -> float:
        """Return the measure's value for one ranked list."""
        return self.function(ranked if flavour.counts == "judged" else ranked.alone(), self.k, flavour)


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
    "recall": _Entry(recall, "optional", "share of all relevant documents among the first k, or in the list"),
    "r_precision": _Entry(r_precision, "none", "precision at the number of relevant documents"),
    "bpref": _Entry(bpref, "none", "relevant documents before judged ones that are not"),
    "success": _Entry(success, "required", "whether a relevant document is among the first k"),
    "rbp": _Entry(rank_biased_precision, "optional", "rank-biased precision with persistence 0.8"),
    "judged": _Entry(judged_share, "required", "share of the first k documents that anyone judged"),
}


def find_measure(name: str) -> Measure:
    """Return the measure with a name such as `ndcg@10`."""
    match = re.fullmatch(r"([a-z_]+)(?:@([1-9][0-9]{0,8}))?", name.strip().lower())
    entry = MEASURES.get(match.group(1)) if match else None
    if match is None or entry is None:
        raise DataError(f"Unknown measure {name!r}. Known: {', '.join(map(_written, MEASURES))}.")
    k = None if match.group(2) is None else int(match.group(2))
    if (entry.cut == "none" and k is not None) or (entry.cut == "required" and k is None):
        raise DataError(f"Measure {name!r} is written {_written(match.group(1))}.")
    return Measure(match.group(0), entry.function, k)


def find_measures(names: str | Sequence[str]) -> list[Measure]:
    """Return several measures, given as a list or as one comma-separated text."""
    listed = names.split(",") if isinstance(names, str) else list(names)
    if not listed:
        raise DataError(f"No measure was given. Known: {', '.join(map(_written, MEASURES))}.")
    return [find_measure(name) for name in listed]


def _written(name: str) -> str:
    return {"none": name, "optional": f"{name} or {name}@k", "required": f"{name}@k"}[MEASURES[name].cut]
