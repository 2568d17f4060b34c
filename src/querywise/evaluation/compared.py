"""What a comparison gives: every ranker on the test queries of all folds, its measures, tests and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from querywise.data.coverage import Coverage, coverage_of, whole_grades
from querywise.data.judged import Judged, Loss
from querywise.data.judgements import Grades
from querywise.data.runs import Run
from querywise.display.tables import Frame, as_frame
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.evaluation.differences import Differences, require_known
from querywise.evaluation.edges import Edge, edges_in
from querywise.evaluation.evaluate import Evaluation, evaluate, evaluate_run
from querywise.evaluation.leaks import Leaks, Learned, TwinGain, gains_on_twins, twins_json
from querywise.evaluation.own_lists import own_coverage, own_lists
from querywise.evaluation.plots import plot_differences
from querywise.evaluation.significance import TEST_NAMES, Comparison, find_test
from querywise.evaluation.trained import Extra, Trained
from querywise.measures.flavours import find_flavour
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.values import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHOSEN = "chosen on validation"
_UNCUT = (
    "mean_ndcg averages NDCG over all positions of a list, so lists of different lengths cannot be compared by it; "
    "mean_ndcg@10 averages over the first ten of each."
)


@dataclass(frozen=True, eq=False)
class Compared:
    """The test queries of all folds together, under every ranker. `judged` carries no features."""

    judged: Judged
    fold_of: Ints  # which fold tested each query
    trained: dict[str, tuple[Trained, ...]]  # a ranker's folds
    baseline: str
    measures: tuple[str, ...]
    flavour: str
    runs: Mapping[str, Run] = field(
        default_factory=dict
    )  # other systems' own lists, where all that was judged is known
    given: tuple[str, ...] = ()  # systems that were fitted before and used as they are
    learned: Learned | None = None  # the queries that each fold learned from; None where nothing was fitted

    def __repr__(self) -> str:
        first = f"Compared({self._title}, flavour {self.flavour!r}, baseline {self.baseline!r})"
        return "\n  ".join([self.differences.text(first), *self._notes])

    def _repr_html_(self) -> str:
        return self.differences.html(f"{self._title}, flavour {self.flavour}", notes=self._notes)

    @property
    def _notes(self) -> list[str]:
        leaks = [] if self.twins is None or self.twins.are_few else [self.twins.text, self.twins.advice]
        return [*_used_as_given(self.given), *filter(None, leaks)]

    @property
    def _title(self) -> str:
        queries, folds = counted(len(self.judged), "test query", "test queries"), int(self.fold_of.max(initial=-1)) + 1
        return f"{counted(len(self.names), 'method')} on {queries}{f' of {folds} folds' if folds > 1 else ''}"

    @property
    def differences(self) -> Differences:
        """Every method against the baseline."""
        return Differences(self.evaluations, self.baseline)

    def to_frame(self, by: Literal["method", "query"] = "method", *, test: str = "t") -> Frame:
        """A row per method, or per method and query; pandas, else polars, else Arrow.

        A method's row has, of every measure, the mean, the difference from the baseline, p of the paired test, and p by
        Holm's correction for the number of methods.
        """
        require_known(by)
        found = self.differences
        return as_frame(found.by_query(self.fold_of.tolist()) if by == "query" else found.columns(test))

    def plot(self, measure: str | None = None, *, test: str = "t", ax: Axes | None = None) -> Axes:
        """Every method's difference from the baseline with its interval; by default in the first measure."""
        chosen = self.measures[0] if measure is None else measure
        base = float(self.evaluations[self.baseline][chosen].mean())
        found = self.differences.with_intervals(chosen, test)
        return plot_differences(found, self.names, self.baseline, base, chosen, ax)

    @property
    def names(self) -> tuple[str, ...]:
        """The rankers, in the order given."""
        return tuple(self.trained)

    @cached_property
    def scores(self) -> dict[str, Floats]:
        """Every ranker's scores of all test documents."""
        return {name: np.concatenate([each.scores for each in parts]) for name, parts in self.trained.items()}

    @cached_property
    def evaluations(self) -> dict[str, Evaluation]:
        """Every measure of every test query."""
        return {name: self.measured(name, self.measures) for name in self.names}

    def measured(self, name: str, measures: Sequence[str]) -> Evaluation:
        """Some measures of one ranker on every test query; the run of one system is measured on its own list."""
        if name in self.lists:
            return evaluate_run(self.lists[name], self.judgements, measures=measures, flavour=self.flavour)
        return evaluate(self.scores[name], self.judged, measures=measures, flavour=self.flavour, order="grouped")

    @cached_property
    def lists(self) -> dict[str, Run]:
        """The rankers that are the run of one system, each with its own list: no document that only others found."""
        return own_lists(self.judged, self.fold_of, self.trained) | dict(self.runs)

    @cached_property
    def judgements(self) -> Grades:
        """All that was judged: query → document → grade."""
        return dict(zip(self.judged.query_ids, whole_grades(self.judged), strict=True))

    @property
    def coverage(self) -> Coverage | None:
        """What the candidates of the test queries hold of all that was judged; None where that is not known."""
        return None if self.judged.missed is None else coverage_of(self.judged)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What was read and left out, or shortened, as far as the data tells."""
        return self.judged.losses

    def counted(self) -> list[str]:
        """What was counted, what retrieval missed and what was not fitted here, in a few sentences, as far as known."""
        known, before = self.coverage, _used_as_given(self.given)
        if known is None:
            return before
        told = [_found_by(name, run, own_coverage(run, self.judgements)) for name, run in self.lists.items()]
        told += [_UNCUT] if self.lists and "mean_ndcg" in self.measures else []
        return [f"The flavour {find_flavour(self.flavour).conventions}.", *known.lines(), *told, *before]

    def against_baseline(self, name: str, measure: str, queries: Bools | None = None, *, test: str = "t") -> Comparison:
        """One ranker's paired test against the baseline, over all queries or some."""
        ours, theirs = self.evaluations[name][measure], self.evaluations[self.baseline][measure]
        chosen = slice(None) if queries is None else queries
        return find_test(test)(ours[chosen], theirs[chosen])

    def test(self, first: str, second: str, measure: str | None = None, *, test: str = "t") -> Comparison:
        """Test any two methods against each other, query by query.

        first, second: their names.
        measure: one of those evaluated; by default the first.
        test: the paired test: `t`, `wilcoxon` or `randomisation`.

        Returns: a Comparison: `.difference`, the first method's mean less the second's, and `.p`, for these two alone;
        `holm` corrects the p of several.

        Refused: with DataError, a method, measure or test that is not there.

        >>> from querywise import RankSVM, compare, make_judged, split
        >>> train, valid, test = split(make_judged(30, 10, 4))
        >>> compared = compare({"svm": RankSVM(), "a": lambda X: X[:, 0], "b": lambda X: X[:, 1]}, train, valid, test)
        >>> found = compared.test("a", "b", "ndcg@10")
        >>> found.test, found.wins + found.ties + found.losses
        ('paired t-test', 6)
        """
        for name in (first, second):
            if name not in self.trained:
                raise DataError(f"There is no method {name!r} in this comparison. There are: {', '.join(self.names)}.")
        chosen = self.measures[0] if measure is None else measure
        return find_test(test)(self.evaluations[first][chosen], self.evaluations[second][chosen])

    @cached_property
    def twins(self) -> Leaks | None:
        """The test queries that have a near twin among those learned from, or their group; None if nothing learned."""
        return None if self.learned is None else self.learned.leaks()

    def on_twins(self, measure: str, *, test: str = "t") -> dict[str, TwinGain]:
        """Every other method against the baseline on queries with a near twin and on the rest; empty if none leaks."""
        return gains_on_twins(self, measure, test)

    def corrected(self, test: str = "t") -> dict[str, dict[str, float]]:
        """The p of every measure of each but the baseline, against the baseline, by Holm for their number."""
        return self.differences.corrected(test)

    def fit_seconds(self, name: str) -> float:
        """The seconds of training and tuning in all folds."""
        return sum(each.fit_seconds for each in self.trained[name])

    def predict_milliseconds(self, name: str) -> float:
        """The milliseconds of ranking, per query."""
        return 1000 * sum(each.predict_seconds for each in self.trained[name]) / max(len(self.judged), 1)

    def megabytes(self, name: str) -> float:
        """How much a fitted ranker holds, the mean over the folds; NaN for given scores."""
        sizes = [np.nan if np.isnan(each.fit_seconds) else each.extra.megabytes for each in self.trained[name]]
        return float(np.mean(sizes))

    @property
    def classes(self) -> dict[str, Bools]:
        """The test queries of each class, where they have one."""
        known = self.judged.classes
        return {name: np.array([each == name for each in known]) for name in sorted({name for name in known if name})}

    def moved(self, name: str) -> Floats | None:
        """The (α, β) of each test query as a training query of other folds, their mean; NaN for one that never was."""
        found = [each.extra.moved for each in self.trained[name] if each.extra.moved is not None]
        if not found:
            return None
        nothing = [[np.nan, np.nan]]
        return np.array(
            [
                np.mean([each[query] for each in found if query in each] or nothing, axis=0)
                for query in self.judged.candidates.query_ids
            ]
        )

    def extra(self, name: str, told: Callable[[Extra], list[float] | None]) -> Floats | None:
        """Something a ranker reports of every test query, such as its distances; None unless it did in every fold."""
        parts = [told(each.extra) for each in self.trained[name]]
        return None if any(part is None for part in parts) else np.concatenate([np.array(part) for part in parts])

    def parameters(self, name: str) -> list[JsonObject | None]:
        """The setting that was chosen in each fold; None where nothing was chosen."""
        choices = [each.choice for each in self.trained[name]]
        return [None if each is None else {**each.parameters, **each.final} for each in choices]

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The parameters that were chosen at the edge of what was tried, and in how many folds."""
        every = {name: folds for name, folds in self.trained.items() if name != CHOSEN}
        return edges_in({name: [each.choice.edges for each in folds if each.choice] for name, folds in every.items()})

    def with_choice(self, among: Sequence[str]) -> Compared:
        """The same with one more ranker: in each fold the one, among some, that did best on the validation part."""
        parts = []
        for fold in range(len(self.trained[self.baseline])):
            # A ranker without a validation value is chosen only where none has one.
            values = {name: np.nan_to_num(self.trained[name][fold].valid_value, nan=-np.inf) for name in among}
            best = max(among, key=lambda name: (values[name], -among.index(name)))
            parts.append(replace(self.trained[best][fold], method=best))
        return replace(self, trained={**self.trained, CHOSEN: tuple(parts)})

    def as_json(self, test: str = "t") -> JsonObject:
        """Everything the table shows, as JSON can hold it."""
        return {
            "queries": len(self.judged),
            "flavour": self.flavour,
            "baseline": self.baseline,
            "test": TEST_NAMES[test],
            **({} if self.coverage is None else {"coverage": asdict(self.coverage)}),
            "losses": [each.as_json() for each in self.losses],
            **({"edges": [each.as_json() for each in self.edges]} if self.edges else {}),
            **twins_json(self, test),
            "methods": {
                name: {
                    "mean": self.evaluations[name].mean(),
                    "p": {each: self.against_baseline(name, each, test=test).p for each in self.measures},
                    "fit_seconds": _known(self.fit_seconds(name)),
                    "predict_milliseconds": _known(self.predict_milliseconds(name)),
                    "megabytes": _known(self.megabytes(name)),
                }
                for name in self.names
            },
        }


def _found_by(name: str, run: Run, own: Coverage) -> str:
    answered = f"{own.queries - own.without_candidates} of {own.queries} queries answered"
    deep = f"its own list, at most {max(map(len, run.scores.values()), default=0)} a query"
    return f"{name}: {own.found} of {own.relevant} relevant documents are in {deep}; {answered}."


def _used_as_given(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [
        f"Fitted before and used as given: {', '.join(names)}; whether what they learned from has test queries in it "
        "is not known here."
    ]


def _known(cost: float) -> float | None:
    return cost if np.isfinite(cost) else None  # JSON has no NaN
