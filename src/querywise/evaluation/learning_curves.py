"""The same comparison with fewer training queries: 30, twice as many, and so on up to all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.data.judged import Judged
from querywise.data.query_groups import first_groups
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.evaluation.compare import compare, find_baseline
from querywise.evaluation.compared import Compared
from querywise.evaluation.curves import LearningCurves
from querywise.evaluation.edges import without_hints
from querywise.evaluation.evaluate import Evaluation
from querywise.evaluation.foreign import System
from querywise.evaluation.resume import Kept
from querywise.evaluation.systems import FoldsGiven, folds_of, systems_of
from querywise.evaluation.trained import Fit
from querywise.runtime.progress import track

SMALLEST = 30  # training queries
FEWEST = 2 * SMALLEST  # training queries of a fold, of which there is a curve
_FEWEST_VALID = 10  # validation queries


def learning_curves(
    systems: Mapping[str, Fit | System] | Sequence[Fit | System],
    folds: FoldsGiven | Judged | None = None,
    valid: Judged | None = None,
    test: Judged | None = None,
    *,
    train: Judged | None = None,
    measures: str | Sequence[str] = ("map", "ndcg@10"),
    flavour: str = "standard",
    baseline: str | System | None = None,
    kept: Kept | None = None,
) -> LearningCurves:
    """Compare with 30 training queries, twice as many and so on up to all of them: would more of them help?

    Every system is fitted at every size as `compare` fits it, on a part of the training queries drawn at random, the
    smaller parts within the larger ones, with as small a share of the validation queries, 10 or more. Of groups of
    queries, whole ones are drawn, as many as fit. What a function chooses on validation data, it chooses anew at every
    size. All are measured on the whole test part.

    systems: in a list, or by name, as `compare` takes them. One that was fitted before is the same at every size.
    folds: folds, as `make_folds` makes them or a list of `(train, valid, test)`; one fold; or in its place train, valid
    and test; 60 training queries or more in each.
    train: the training part, instead of folds; also as the second argument.
    valid, test: the validation and the test part beside it.
    measures: names such as `map` or `ndcg@10`, in a list or with commas between; docs/measures.md has the formulas.
    flavour: whose conventions count: `standard`, `letor4`, `mslr`, `trec` or `lightgbm`.
    baseline: what the others are compared with at every size, by name or as the system itself; None is the first.
    kept: where finished parts are stored, and read from if they are there already.

    Returns: LearningCurves, which prints a table by size and method, with p of paired tests against the baseline,
    corrected by Holm for the whole table; `.said("map")` has in words what it says, `.to_frame()` and `.as_json()` all
    numbers, `.plot()` draws them.

    Refused: with DataError, fewer than 60 training queries, nothing to train, and what `compare` refuses.

    >>> from querywise import RankSVM, learning_curves, make_judged, split
    >>> train, valid, test = split(make_judged(120, 10, 4))
    >>> found = learning_curves({"svm": RankSVM(), "first": lambda X: X[:, 0]}, train, valid, test, measures="map")
    >>> found.sizes, found.names, found.given
    ((30, 60, 72), ('svm', 'first'), ('first',))
    """
    known = systems_of(systems)
    parts = folds_of(train if folds is None else folds, valid, test, fitted_before=len(known.given) == len(known.fits))
    find_baseline(known.fits, known.name_of(baseline))
    learning = {name: each for name, each in known.objects.items() if name not in known.given}
    if not learning:
        raise DataError(
            f"There is nothing to train: {', '.join(known.given)} learned what they know before. Give rankers that are "
            "not fitted, or a function of a training and a validation part that fits one."
        )
    counts = training_queries(parts)
    if counts and min(counts) < FEWEST:
        few = counted(min(counts), "training query", "training queries")
        raise DataError(
            f"fold {counts.index(min(counts)) + 1} of {len(counts)}: {few}. Learning curves begin with {SMALLEST} and "
            f"need {FEWEST} or more: give more queries, or compare with all of them alone."
        )
    whole = compare(systems, parts, measures=measures, flavour=flavour, baseline=baseline, kept=kept)
    return curves_up_to(whole, learning, parts, counts, kept=kept)


def curves_up_to(
    whole: Compared,
    learning: Mapping[str, Fit | System],
    folds: Sequence[Fold] | Folds,
    counts: Sequence[int],
    *,
    kept: Kept | None = None,
) -> LearningCurves:
    """The curves that end in a comparison: its methods that learn, trained on parts of the same folds' queries.

    whole: the comparison with all training queries, which is not made again. learning: its methods that are trained;
    the others are the same at every size. counts: the training queries of each fold; where they are too few, nothing is
    trained, and the curves say so.
    """
    sizes = sizes_for(counts) if learning else (min(counts),)
    found: dict[int, dict[str, Evaluation]] = {}
    refused: dict[int, dict[str, str]] = {}
    given = {name: each for name, each in whole.evaluations.items() if name not in learning}
    for size in track(sizes[:-1], "Learning curves"):
        trained, why = _with_fewer(size, whole, learning, folds, None if kept is None else kept.part(f"with-{size}"))
        if why:
            refused[size] = why
        if trained:
            found[size] = {name: each for name in whole.names if (each := (trained | given).get(name)) is not None}
    found[sizes[-1]] = dict(whole.evaluations)
    return LearningCurves(found, whole.baseline, whole.measures, whole.flavour, tuple(counts), tuple(given), refused)


def _with_fewer(
    size: int, whole: Compared, learning: Mapping[str, Fit | System], folds: Sequence[Fold] | Folds, kept: Kept | None
) -> tuple[dict[str, Evaluation], dict[str, str]]:
    """What methods reach with so many training queries, and why some cannot be trained on so few."""
    smaller = Folds([partial(_cut_one, folds, number, size) for number in range(len(folds))])

    def compared(some: Mapping[str, Fit | System]) -> dict[str, Evaluation]:
        with without_hints():
            return compare(some, smaller, measures=whole.measures, flavour=whole.flavour, kept=kept).evaluations

    try:
        return compared(learning), {}
    except DataError:
        pass  # which of them it is, is seen when each is trained by itself
    found: dict[str, Evaluation] = {}
    refused: dict[str, str] = {}
    for name, each in learning.items():
        try:
            found |= compared({name: each})
        except DataError as refusal:
            refused[name] = str(refusal)
    return found, refused


def _cut_one(folds: Sequence[Fold] | Folds, number: int, size: int) -> Fold:
    return cut(folds[number], size)


def training_queries(folds: Sequence[Fold] | Folds) -> list[int]:
    """How many training queries every fold has."""
    return [len(folds[number].train) for number in range(len(folds))]


def sizes_for(counts: Sequence[int]) -> tuple[int, ...]:
    """The sizes of curves where folds have so many training queries; where these are too few, that with all alone."""
    return sizes_up_to(min(counts)) if min(counts) >= FEWEST else (min(counts),)


def sizes_up_to(most: int) -> tuple[int, ...]:
    """30 and twice as many each time, and all of them.

    >>> sizes_up_to(300)
    (30, 60, 120, 240, 300)
    """
    sizes, size = [], SMALLEST
    while size < most:
        sizes.append(size)
        size *= 2
    return (*sizes, most)


def cut(fold: Fold, size: int) -> Fold:
    """A fold with so many of its training queries, and as small a share of its validation queries."""
    share = size / len(fold.train)
    few = min(max(round(share * len(fold.valid)), _FEWEST_VALID), len(fold.valid))
    return Fold(some(fold.train, size), some(fold.valid, few), fold.test)


def some(data: Judged, count: int) -> Judged:
    """So many queries, drawn at random; fewer are among those of more. Of groups, whole ones, as many as fit."""
    return data.select(first_groups(np.random.default_rng(0).permutation(len(data)), count, data.groups))
