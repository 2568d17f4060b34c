"""The same comparison with fewer training queries, 30, 60, 120 and so on: values, tests, and conclusions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from querywise.data.folds import Fold, Folds, some_queries
from querywise.data.judged import Judged
from querywise.display.tables import Column, Frame, as_frame, axes_or_new, finish, legend, looks, plain, table, together
from querywise.display.words import counted, in_columns, p_in_words, p_value, short
from querywise.errors import DataError
from querywise.evaluation.compare import Compared, compare, find_baseline
from querywise.evaluation.evaluate import Evaluation
from querywise.evaluation.foreign import System
from querywise.evaluation.query_vectors import VectorLists, lists_of
from querywise.evaluation.resume import Kept
from querywise.evaluation.significance import TEST_NAMES, Corrected, corrected, find_test
from querywise.evaluation.systems import FoldsGiven, folds_of, systems_of
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import without_hints
from querywise.runtime.progress import track
from querywise.runtime.values import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOM = 0.06  # share of the width that a number below the axis needs
_UNKNOWN = "whether more judged queries would help is not known from this"
SMALLEST = 30  # training queries
FEWEST = 2 * SMALLEST  # the fewest training queries of a fold that give a curve
_FEWEST_VALID = 10  # validation queries


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """The values of every method with some of the training queries and with all of them, on the same test queries.

    Attributes:
        evaluations: By number of training queries, then by method; the last with all queries. Methods that cannot be
            trained on so few are absent.
        counts: The number of training queries of every fold.
        given: Systems that are not trained here, the same at every size.
        refused: Why absent methods could not be trained.
        lists: By number of training queries, what plain and adapted query vectors retrieve, if these learn.

    """

    evaluations: Mapping[int, Mapping[str, Evaluation]]
    baseline: str
    measures: tuple[str, ...]
    flavour: str
    counts: tuple[int, ...]
    given: tuple[str, ...] = ()
    refused: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    lists: Mapping[int, VectorLists] = field(default_factory=dict)
    # Finished tests, by measure and name: a randomization test takes a while.
    _found: dict[tuple[str, str], dict[tuple[int, str], Corrected]] = field(default_factory=dict, init=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of training queries; the last is the number of the smallest fold."""
        return tuple(self.evaluations)

    @property
    def names(self) -> tuple[str, ...]:
        """The methods, in the order given."""
        return tuple(self.evaluations[self.sizes[-1]])

    @property
    def queries(self) -> int:
        """The number of test queries."""
        return len(self.evaluations[self.sizes[-1]][self.baseline])

    @property
    def since(self) -> int | None:
        """The size nearest to half of all, where the last doubling begins; None if there is one size only."""
        most = self.sizes[-1]
        return min(self.sizes[:-1], key=lambda size: abs(math.log(most / (2 * size))), default=None)

    def mean(self, size: int, name: str, measure: str) -> float | None:
        """Return a method's mean with that many training queries; None if it cannot be trained on so few."""
        known = self.evaluations[size]
        return float(known[name][measure].mean()) if name in known else None

    def against_baseline(self, measure: str, test: str = "t") -> dict[tuple[int, str], Corrected]:
        """Return, by size and method, the paired test against the baseline at that size, Holm-corrected for all."""
        if (measure, test) not in self._found:
            every, base = self.evaluations, self.baseline
            self._found[measure, test] = corrected(
                {
                    (size, name): find_test(test)(every[size][name][measure], every[size][base][measure])
                    for size, name in self._compared()
                }
            )
        return self._found[measure, test]

    def _compared(self) -> list[tuple[int, str]]:
        """Return the tested pairs: every method but the baseline, at sizes where both are trained."""
        return [
            (size, name)
            for size, known in self.evaluations.items()
            for name in known
            if name != self.baseline and self.baseline in known
        ]

    def rises(self, measure: str, test: str = "t") -> dict[str, Corrected]:
        """Test every trained method with all queries against itself at `since`, Holm-corrected for the methods."""
        if self.since is None:
            return {}
        before, after = self.evaluations[self.since], self.evaluations[self.sizes[-1]]
        names = [name for name in self.names if name in before and name not in self.given]
        return corrected({name: find_test(test)(after[name][measure], before[name][measure]) for name in names})

    def said(self, measure: str, test: str = "t") -> list[str]:
        """Summarize what the curves show of one measure, and what they cannot show, in a few sentences."""
        if len(self.sizes) < 2:
            return [self._nothing()]
        return [*self._ahead(measure, test), *self._rising(measure, test), *self._left_out()]

    def all_queries(self) -> str:
        """The number of all training queries, as text: one number, or a range from the smallest fold to the largest."""
        fewest, most = min(self.counts), max(self.counts)
        return f"all {fewest:,}" if fewest == most else f"all {fewest:,} to {most:,}"

    def _nothing(self) -> str:
        if set(self.given) == set(self.names):
            return "There are no learning curves to draw: nothing that is compared here is trained here."
        if self.refused:
            return " ".join(["There are no learning curves to draw.", *self._left_out()])
        few = counted(min(self.counts), "training query", "training queries")
        return (
            f"There are no learning curves to draw: the smallest fold has {few}. They begin with 30 queries, and need "
            "twice as many."
        )

    def _ahead(self, measure: str, test: str) -> list[str]:
        """Say where methods are significantly ahead of or behind the baseline, grouping equal results."""
        tested = self.against_baseline(measure, test)
        alike: dict[str, list[str]] = {}
        for name in self.names:
            if name != self.baseline:
                known = {size: tested[size, name] for size in self.sizes if (size, name) in tested}
                alike.setdefault(_where(known, self.sizes), []).append(name)
        return [
            f"{_and(names)} {'is' if len(names) == 1 else 'are'} {where.format(base=self.baseline)}."
            for where, names in alike.items()
        ]

    def _rising(self, measure: str, test: str) -> list[str]:
        """Say whether the best trained method gained by the last doubling, and whether that may be luck."""
        rises = self.rises(measure, test)
        if not rises:
            return []
        best = max(rises, key=lambda name: self.mean(self.sizes[-1], name, measure) or 0.0)
        rise = rises[best]
        many = f", Holm's correction for {len(rises)} methods" if len(rises) > 1 else ""
        luck = f"{p_in_words(rise.p_holm)}{many}"
        moved = f"{'lost' if rise.found.difference < 0 else 'gained'} {abs(rise.found.difference):.4f}"
        who = f"{best}, the best of what is trained," if len(rises) > 1 else best
        told = f"From {self.since:,} to {self.all_queries()} training queries, {who} {moved} in {measure} ({luck})"
        if rise.side < 0:
            return [f"{told}: more queries did not help."]
        if rise.side == 0:
            return [f"{told}, which may be luck: {_UNKNOWN}."]
        before, after = (self.mean(size, best, measure) or 0.0 for size in self.sizes[-2:])
        if after <= before:
            return [f"{told}, but nothing from {self.sizes[-2]:,} on: {_UNKNOWN}."]
        return [f"{told}: it still rises, and more judged queries would probably help."]

    def _left_out(self) -> list[str]:
        return [
            f"Not trained on {size:,} queries: {name}. {why}"
            for size, refused in self.refused.items()
            for name, why in refused.items()
        ]

    def __repr__(self) -> str:
        title = f"LearningCurves({self._title}, flavour {self.flavour!r}, baseline {self.baseline!r})"
        lines = [title]
        for measure in self.measures:
            headings, rows = self._rows(measure)
            lines += [measure, *in_columns([headings, *rows], first_to_the_right=True)]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        parts = []
        for measure in self.measures:
            headings, rows = self._rows(measure)
            title = f"{measure} of {self._title}, flavour {self.flavour}"
            parts.append(table(headings, rows, title=title, notes=[self.how()], text=()))
        return together(parts)

    @property
    def _title(self) -> str:
        return f"{counted(len(self.names), 'method')} on {counted(self.queries, 'test query', 'test queries')}"

    def how(self, test: str = "t") -> str:
        """Say which test the p of a table is from; empty if there is none."""
        count = len(self._compared())
        if not count:
            return ""
        many = f", Holm's correction for {count} comparisons" if count > 1 else ""
        return f"p: {TEST_NAMES[test]} against {self.baseline} at the same size{many}"

    def _rows(self, measure: str, test: str = "t") -> tuple[list[str], list[list[str]]]:
        tested = self.against_baseline(measure, test)
        headings = ["training queries"]
        for name in self.names:
            headings += [short(name)] if name == self.baseline else [short(name), "p (Holm)"]
        rows: list[list[str]] = []
        for size in self.sizes:
            row = [f"{size:,}"]
            for name in self.names:
                mean, found = self.mean(size, name, measure), tested.get((size, name))
                row.append("" if mean is None else f"{mean:.4f}")
                row += [] if name == self.baseline else ["" if found is None else p_value(found.p_holm)]
            rows.append(row)
        return headings, rows

    def to_frame(self, *, test: str = "t") -> Frame:
        """Return a row per size and method: for every measure the mean, the difference, p and Holm-corrected p."""
        keys = [(size, name) for size, known in self.evaluations.items() for name in known]
        found: dict[str, Column] = {"queries": [size for size, _ in keys], "method": [name for _, name in keys]}
        for measure in self.measures:
            tested = self.against_baseline(measure, test)
            every = [tested.get(key) for key in keys]
            found[measure] = [self.mean(*key, measure) for key in keys]
            numbers = [(np.nan,) * 3 if each is None else each.numbers for each in every]
            for place, what in enumerate(("difference", "p", "p_holm")):
                found[f"{measure}_{what}"] = [each[place] for each in numbers]
        return as_frame(found)

    def plot(self, measure: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot every method against the number of training queries; by default in the first measure."""
        chosen = self.measures[0] if measure is None else measure
        return _draw(self.lines(chosen), self.names, ("training queries", chosen), ax)

    def lines(self, measure: str) -> dict[str, list[tuple[float, float]]]:
        """Return every method's values by number of training queries, as points."""
        every = {name: [(size, self.mean(size, name, measure)) for size in self.sizes] for name in self.names}
        return {name: [(size, up) for size, up in each if up is not None] for name, each in every.items()}

    def as_json(self, test: str = "t") -> JsonObject:
        """Return everything that is printed, as JSON."""
        return {
            "sizes": list(self.sizes),
            "training_queries": list(self.counts),
            "queries": self.queries,
            "flavour": self.flavour,
            "baseline": self.baseline,
            "test": TEST_NAMES[test],
            "measures": {measure: self._of_measure(measure, test) for measure in self.measures},
            **({"given": list(self.given)} if self.given else {}),
            **({"refused": {str(size): dict(each) for size, each in self.refused.items()}} if self.refused else {}),
        }

    def _of_measure(self, measure: str, test: str) -> JsonObject:
        tested, rises = self.against_baseline(measure, test), self.rises(measure, test)
        methods: JsonObject = {}
        for name in self.names:
            found = [tested.get((size, name)) for size in self.sizes]
            methods[name] = {
                "mean": [self.mean(size, name, measure) for size in self.sizes],
                "p": [None if each is None else each.found.p for each in found],
                "p_holm": [None if each is None else each.p_holm for each in found],
            }
        last: JsonObject = {
            name: {"gain": each.found.difference, "p": each.found.p, "p_holm": each.p_holm}
            for name, each in rises.items()
        }
        return {
            "methods": methods,
            "last_doubling": {"from": self.since, "methods": last} if last else None,
            "said": list(self.said(measure, test)),
        }


def _draw(
    lines: Mapping[str, Sequence[tuple[float, float]]], names: Sequence[str], labels: tuple[str, str], ax: Axes | None
) -> Axes:
    """Plot lines over a log scale of sizes, labeled where there is room; `names` of all methods set the colors."""
    axes, colours, drawn = axes_or_new(ax), looks(names), []
    for name, points in lines.items():
        colour, marker = colours[name]
        across, up = [place for place, _ in points], [value for _, value in points]
        (line,) = axes.plot(across, up, color=colour, marker=marker, markersize=5, linewidth=1.5)
        drawn.append((name, line))
    places = sorted({place for points in lines.values() for place, _ in points})
    axes.set_xscale("log", base=2)
    least = (places[-1] / places[0]) ** _ROOM
    room = [after > least * each for each, after in pairwise([*places, np.inf])]
    axes.set_xticks(places, [f"{each:g}" if there else "" for each, there in zip(places, room, strict=True)])
    axes.minorticks_off()
    axes.set_xlabel(plain(labels[0]))
    axes.set_ylabel(plain(labels[1]))
    legend(axes, drawn, fontsize=8.5)
    return finish(axes)


def _where(tested: Mapping[int, Corrected], sizes: Sequence[int]) -> str:
    """Say at which sizes a method is significantly ahead of the baseline, {base}, and at which behind it."""
    found = [
        f"significantly {word} {{base}} {_at(chosen, sizes)}"
        for side, word in ((1, "ahead of"), (-1, "behind"))
        if (chosen := [size for size, each in tested.items() if each.side == side])
    ]
    return ", and ".join(found) if found else "not significantly different from {base} at any size"


def _at(chosen: Sequence[int], sizes: Sequence[int]) -> str:
    """Format sizes in words.

    >>> sizes = (30, 60, 120, 200)
    >>> _at(sizes, sizes), _at((60, 120, 200), sizes)
    ('at every size', 'from 60 training queries on')
    >>> _at((200,), sizes), _at((30, 120), sizes)
    ('with all training queries alone', 'with 30 and 120 training queries alone')
    """
    if list(chosen) == list(sizes):
        return "at every size"
    if list(chosen) == [sizes[-1]]:
        return "with all training queries alone"
    if list(chosen) == list(sizes)[-len(chosen) :]:
        return f"from {chosen[0]:,} training queries on"
    return f"with {_and([f'{each:,}' for each in chosen])} training queries alone"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


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

    Every system is fitted at every size as `compare` fits it, on a random part of the training queries (the smaller
    parts within the larger ones) and the same share of the validation queries, at least 10. If queries have groups,
    whole groups are drawn, as many as fit. A function that tunes on validation data tunes anew at every size. All are
    evaluated on the whole test part.

    Args:
        systems: in a list, or by name, as `compare` takes them. One that was already fitted is the same at every size.
        folds: folds, from `make_folds` or as a list of `(train, valid, test)`; one fold; or instead train, valid and
            test; 60 training queries or more in each.
        train: the training part, instead of folds; also as the second argument.
        valid, test: the validation and the test part that go with it.
        measures: names such as `map` or `ndcg@10`, in a list or separated by commas; docs/measures.md has the formulas.
        flavour: the evaluation conventions: `standard`, `letor4`, `mslr`, `trec` or `lightgbm`.
        baseline: the system that the others are compared with at every size, by name or as the system itself; None is
            the first.
        kept: a store of finished results, from which those already there are read.

    Returns:
        LearningCurves, which prints a table by size and method, with p of paired tests against the baseline, corrected
        by Holm for the whole table; `.said("map")` summarizes it in words, `.to_frame()` and `.as_json()` all numbers,
        `.plot()` draws them.

    Raises:
        DataError: Fewer than 60 training queries, nothing to train, and what `compare` refuses.

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
            f"There is nothing to train: {', '.join(known.given)} were fitted before. Give rankers that are "
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
    """Compute the curves that end in a finished comparison, by training its methods on fewer of the folds' queries.

    Args:
        whole: The comparison with all training queries, which is not repeated.
        learning: Its methods that are trained; the others are the same at every size.
        folds: The folds of the comparison.
        counts: The training queries of each fold. If there are too few, nothing is trained, and the curves say so.
        kept: A store of finished results.

    """
    sizes = sizes_for(counts) if learning else (min(counts),)
    found: dict[int, dict[str, Evaluation]] = {}
    refused: dict[int, dict[str, str]] = {}
    lists: dict[int, VectorLists] = {}
    given = {name: each for name, each in whole.evaluations.items() if name not in learning}
    for size in track(sizes[:-1], "Learning curves"):
        made, why = _with_fewer(size, whole, learning, folds, None if kept is None else kept.part(f"with-{size}"))
        trained = {name: table for each in made for name, table in each.evaluations.items()}
        own = lists_of(made[0]) if made else None
        if own is not None:
            lists[size] = own
        if why:
            refused[size] = why
        if trained:
            found[size] = {name: each for name in whole.names if (each := (trained | given).get(name)) is not None}
    found[sizes[-1]] = dict(whole.evaluations)
    known = (whole.baseline, whole.measures, whole.flavour, tuple(counts), tuple(given), refused)
    return LearningCurves(found, *known, lists)


def _with_fewer(
    size: int, whole: Compared, learning: Mapping[str, Fit | System], folds: Sequence[Fold] | Folds, kept: Kept | None
) -> tuple[list[Compared], dict[str, str]]:
    """Compare the methods at one size, and return why some cannot be trained on so few queries."""
    smaller = _as_folds(folds).map(partial(cut, size=size))

    def compared(some: Mapping[str, Fit | System]) -> Compared:
        with without_hints():
            return compare(some, smaller, measures=whole.measures, flavour=whole.flavour, kept=kept)

    try:
        return [compared(learning)], {}
    except DataError:
        pass  # training each by itself shows which one failed
    found: list[Compared] = []
    refused: dict[str, str] = {}
    for name, each in learning.items():
        try:
            found.append(compared({name: each}))
        except DataError as refusal:
            refused[name] = str(refusal)
    return found, refused


def _as_folds(folds: Sequence[Fold] | Folds) -> Folds:
    if isinstance(folds, Folds):
        return folds
    return Folds([partial(folds.__getitem__, number) for number in range(len(folds))])


def training_queries(folds: Sequence[Fold] | Folds) -> list[int]:
    """Return the number of training queries of every fold."""
    return _as_folds(folds).sizes()


def sizes_for(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of curves for these training counts; if they are too small, only the full size."""
    return sizes_up_to(min(counts)) if min(counts) >= FEWEST else (min(counts),)


def sizes_up_to(most: int) -> tuple[int, ...]:
    """Return 30, doubled each time, and all of them.

    >>> sizes_up_to(300)
    (30, 60, 120, 240, 300)
    """
    sizes, size = [], SMALLEST
    while size < most:
        sizes.append(size)
        size *= 2
    return (*sizes, most)


def cut(fold: Fold, size: int) -> Fold:
    """Return a fold with `size` of its training queries, and the same share of its validation queries."""
    share = size / len(fold.train)
    few = min(max(round(share * len(fold.valid)), _FEWEST_VALID), len(fold.valid))
    return Fold(some_queries(fold.train, size), some_queries(fold.valid, few), fold.test)
