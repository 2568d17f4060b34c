"""Flavours: what evaluators disagree about.

A `Flavour` names one evaluator's choices, and every table prints which one it used:

- which documents *count*: all that anybody judged, or only those that are ranked;
- the *gain* of a grade and the *discount* of a position in DCG;
- what a query *without a relevant document* counts (0 or 1; it always stays in the mean);
- what NDCG@k means on a list *shorter than k* (the whole list, or a hole that counts 0);
- from which grade on a document is *relevant* to binary measures;
- which documents are *tied*, and how ties are broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from querywise.errors import DataError


@dataclass(frozen=True)
class Flavour:
    """One evaluator's conventions.

    gain: exponential is 2^label − 1, linear is the label itself. discount: `log2(i + 1)` at position i, or LETOR's,
    which leaves positions 1 and 2 undiscounted and divides by `log2(i)` from 3 on. `max_grade` is the grade ERR calls
    perfect; None means the largest in the data. counts: AP, recall and the ideal list of NDCG count every judged
    document, or only the candidates that were ranked.
    """

    name: str
    description: str
    gain: Literal["exponential", "linear"] = "exponential"
    discount: Literal["standard", "letor"] = "standard"
    relevant_from: int = 1
    without_relevant: float = 0.0
    short_lists: Literal["whole", "hole"] = "whole"
    ties: Literal["file order", "document id"] = "file order"
    scores: Literal["64 bits", "32 bits"] = "64 bits"
    counts: Literal["judged", "candidates"] = "judged"
    max_grade: int | None = None

    @property
    def conventions(self) -> str:
        """What it counts and which gain it takes, in words."""
        counted = "all judged documents" if self.counts == "judged" else "judged candidates only"
        gain = "2^grade - 1, exponential" if self.gain == "exponential" else "the grade, linear"
        return f"counts {counted}; gain: {gain}"


FLAVOURS = {
    flavour.name: flavour
    for flavour in (
        Flavour("standard", "the textbook's: gain 2^r - 1, discount log2(i + 1), all that is judged counts"),
        Flavour(
            "letor4",
            "the official LETOR 4.0 evaluator: candidates count",
            discount="letor",
            short_lists="hole",
            counts="candidates",
        ),
        Flavour(
            "mslr",
            "the official MSLR evaluator: candidates count, relevant from grade 2",
            discount="letor",
            short_lists="hole",
            relevant_from=2,
            counts="candidates",
        ),
        Flavour(
            "trec",
            "trec_eval -c: linear gain, 32-bit scores, ties by document id, last first; all that is judged counts",
            gain="linear",
            ties="document id",
            scores="32 bits",
        ),
        Flavour(
            "lightgbm",
            "LightGBM: candidates count, a list without a relevant document counts 1",
            without_relevant=1.0,
            counts="candidates",
        ),
    )
}


def find_flavour(name: str) -> Flavour:
    """The flavour of that name."""
    try:
        return FLAVOURS[name]
    except KeyError:
        raise DataError(f"Unknown flavour {name!r}. Known: {', '.join(FLAVOURS)}.") from None
