"""Fit several rankers on the same folds, score the test queries and compare them; and the result, `Compared`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from querywise.data.coverage import Coverage, coverage_of, whole_grades
from querywise.data.folds import Fold
from querywise.data.judged import Judged, LostData, concatenate
from querywise.data.judgements import Grades
from querywise.data.labels import require_same_labels
from querywise.data.run_columns import Run, run_columns
from querywise.data.runs import in_judged, runs_in
from querywise.display.tables import Frame, as_frame
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.evaluation.differences import Differences, plot_differences, require_known
from querywise.evaluation.evaluate import Evaluation, evaluate, evaluate_run
from querywise.evaluation.foreign import System
from querywise.evaluation.leaks import FoldQueries, Leaks, TwinGain, known_of
from querywise.evaluation.pace import FOLDS, Pace
from querywise.evaluation.resume import Kept
from querywise.evaluation.significance import TEST_NAMES, Comparison, find_test
from querywise.evaluation.systems import FoldsGiven, folds_of, systems_of
from querywise.evaluation.trained import Explain, Extra, Fit, Observe, Trained, train
from querywise.evaluation.tuning import Edge, edges_in, hint_at
from querywise.measures.formulas import find_measures
from querywise.measures.order import find_flavour
from querywise.retrieval.adapting import Taught, taught_by
from querywise.retrieval.twins import TwinFacts
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.cache import caching
from querywise.runtime.progress import doing
from querywise.runtime.values import JsonObject
from querywise.runtime.workers import ThisProcess, workers

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
    fold_of: Ints  # the fold that tested each query
    trained: dict[str, tuple[Trained, ...]]  # by ranker, one for each fold
    baseline: str
    measures: tuple[str, ...]
    flavour: str
    runs: Mapping[str, Run] = field(default_factory=dict)  # other systems' own lists, where all judgments are known
    given: tuple[str, ...] = ()  # systems that were already fitted and are used unchanged
    learned: FoldQueries | None = None  # the queries that each fold learned from; None if nothing was fitted
    taught: tuple[Taught, ...] = ()  # what each fold's query vectors learned; empty if they do not learn

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
        """Return a row per method, or per method and query; pandas, else polars, else Arrow.

        For every measure, a method's row has the mean, the difference from the baseline, the p of the paired test, and
        the p after Holm's correction for the number of methods.
        """
        require_known(by)
        found = self.differences
        return as_frame(found.by_query(self.fold_of.tolist()) if by == "query" else found.columns(test))

    def plot(self, measure: str | None = None, *, test: str = "t", ax: Axes | None = None) -> Axes:
        """Plot every method's difference from the baseline with its interval; by default in the first measure."""
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
        """Every ranker's scores for all test documents."""
        return {name: np.concatenate([each.scores for each in parts]) for name, parts in self.trained.items()}

    @cached_property
    def evaluations(self) -> dict[str, Evaluation]:
        """Every measure of every test query."""
        return {name: self.measured(name, self.measures) for name in self.names}

    def measured(self, name: str, measures: Sequence[str]) -> Evaluation:
        """Evaluate one ranker on every test query; a system that is one run is evaluated on its own list."""
        if name in self.lists:
            return evaluate_run(self.lists[name], self.judgements, measures=measures, flavour=self.flavour)
        return evaluate(self.scores[name], self.judged, measures=measures, flavour=self.flavour, order="grouped")

    @cached_property
    def lists(self) -> dict[str, Run]:
        """Rankers that are one system's run, with the run's own list: without documents that only others retrieved."""
        return own_lists(self.judged, self.fold_of, self.trained) | dict(self.runs)

    @cached_property
    def judgements(self) -> Grades:
        """All judgments: query → document → grade."""
        return dict(zip(self.judged.query_ids, whole_grades(self.judged), strict=True))

    @property
    def coverage(self) -> Coverage | None:
        """How many of the judged documents are candidates of the test queries; None if unknown."""
        return None if self.judged.missed is None else coverage_of(self.judged)

    @property
    def losses(self) -> tuple[LostData, ...]:
        """Data that was read and dropped or truncated, as far as known."""
        return self.judged.losses

    def counted(self) -> list[str]:
        """Explain in a few sentences what was evaluated, what retrieval missed and what was not fitted here."""
        known, before = self.coverage, _used_as_given(self.given)
        if known is None:
            return before
        told = [_found_by(name, run, own_coverage(run, self.judgements)) for name, run in self.lists.items()]
        told += [_UNCUT] if self.lists and "mean_ndcg" in self.measures else []
        return [f"The flavour {find_flavour(self.flavour).conventions}.", *known.lines(), *told, *before]

    def against_baseline(self, name: str, measure: str, queries: Bools | None = None, *, test: str = "t") -> Comparison:
        """Test one ranker against the baseline, paired, over all queries or some."""
        ours, theirs = self.evaluations[name][measure], self.evaluations[self.baseline][measure]
        chosen = slice(None) if queries is None else queries
        return find_test(test)(ours[chosen], theirs[chosen])

    def test(self, first: str, second: str, measure: str | None = None, *, test: str = "t") -> Comparison:
        """Test any two methods against each other, query by query.

        Args:
            first: The name of one method.
            second: The name of the other.
            measure: One of those evaluated; by default the first.
            test: The paired test: `t`, `wilcoxon` or `randomisation`.

        Returns:
            A Comparison: `.difference`, the first method's mean minus the second's, and `.p`, for these two alone;
            `holm` corrects the p-values of several tests.

        Raises:
            DataError: If the method, measure or test is unknown.

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
        """Test queries with a near-duplicate, or a query of their group, in training; None if nothing was trained."""
        return None if self.learned is None else self.learned.leaks()

    def on_twins(self, measure: str, *, test: str = "t") -> dict[str, TwinGain]:
        """Test every other method on queries with a near-duplicate and on the rest; empty if nothing leaks."""
        if self.twins is None or not self.twins.is_told:
            return {}

        def tested(name: str, chosen: Bools) -> Comparison | None:
            return self.against_baseline(name, measure, chosen, test=test) if chosen.any() else None

        near, others = self.twins.found, [name for name in self.names if name != self.baseline]
        return {name: TwinGain(tested(name, near), tested(name, ~near)) for name in others}

    def twins_json(self, test: str) -> JsonObject:
        """Return the leaks and every method's gain from them, by measure, as JSON; empty if nothing leaks."""
        if self.twins is None or not self.twins.text:
            return {}
        gains = {measure: self.on_twins(measure, test=test) for measure in self.measures}
        told: JsonObject = {
            name: {measure: found[name].as_json() for measure, found in gains.items()}
            for name in gains[self.measures[0]]
        }
        return {"near_twins": self.twins.as_json(told)}

    def corrected(self, test: str = "t") -> dict[str, dict[str, float]]:
        """Return each method's Holm-corrected p against the baseline, by measure."""
        return self.differences.corrected(test)

    def fit_seconds(self, name: str) -> float:
        """Return the seconds of training and tuning in all folds."""
        return sum(each.fit_seconds for each in self.trained[name])

    def predict_milliseconds(self, name: str) -> float:
        """Return the milliseconds of ranking per query."""
        return 1000 * sum(each.predict_seconds for each in self.trained[name]) / max(len(self.judged), 1)

    def megabytes(self, name: str) -> float:
        """Return the size of a fitted ranker, averaged over the folds; NaN for given scores."""
        sizes = [np.nan if np.isnan(each.fit_seconds) else each.extra.megabytes for each in self.trained[name]]
        return float(np.mean(sizes))

    @property
    def classes(self) -> dict[str, Bools]:
        """The test queries of each class, if queries have classes."""
        known = self.judged.classes
        return {name: np.array([each == name for each in known]) for name in sorted({name for name in known if name})}

    def moved(self, name: str) -> Floats | None:
        """Return each test query's (α, β) as a training query, averaged over other folds; NaN if it never was one."""
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
        """Return a per-query value that a ranker reports, such as its distances; None unless every fold reports it."""
        parts = [told(each.extra) for each in self.trained[name]]
        return None if any(part is None for part in parts) else np.concatenate([np.array(part) for part in parts])

    def parameters(self, name: str) -> list[JsonObject | None]:
        """Return the setting chosen in each fold; None if nothing was tuned."""
        choices = [each.choice for each in self.trained[name]]
        return [None if each is None else {**each.parameters, **each.final} for each in choices]

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The parameters chosen at an edge of their grid, and in how many folds."""
        every = {name: folds for name, folds in self.trained.items() if name != CHOSEN}
        return edges_in({name: [each.choice.edges for each in folds if each.choice] for name, folds in every.items()})

    def with_choice(self, among: Sequence[str]) -> Compared:
        """Add a ranker that is, in each fold, the one of `among` that did best on the validation part."""
        parts = []
        for fold in range(len(self.trained[self.baseline])):
            # Choose a ranker without a validation value only if none has one.
            values = {name: np.nan_to_num(self.trained[name][fold].valid_value, nan=-np.inf) for name in among}
            best = max(among, key=lambda name: (values[name], -among.index(name)))
            parts.append(replace(self.trained[best][fold], method=best))
        return replace(self, trained={**self.trained, CHOSEN: tuple(parts)})

    def as_json(self, test: str = "t") -> JsonObject:
        """Return everything the table shows as JSON."""
        return {
            "queries": len(self.judged),
            "flavour": self.flavour,
            "baseline": self.baseline,
            "test": TEST_NAMES[test],
            **({} if self.coverage is None else {"coverage": asdict(self.coverage)}),
            "losses": [each.as_json() for each in self.losses],
            **({"edges": [each.as_json() for each in self.edges]} if self.edges else {}),
            **self.twins_json(test),
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


def own_lists(test: Judged, fold_of: Ints, trained: Mapping[str, Sequence[Trained]]) -> dict[str, Run]:
    """Return the lists of rankers that rank by one run in every fold: the whole run, or what its columns hold."""
    by_fold = {name: [each.extra.run for each in folds] for name, folds in trained.items()}
    alone = {name: [run for run in runs if run is not None] for name, runs in by_fold.items() if None not in runs}
    if not alone or test.gains is not None:  # lists are evaluated by integer grades
        return {}
    known = {run.name: run for run in (*runs_in(test), *test.runs)}
    return {name: _joined(name, test, fold_of, [known[run] for run in runs]) for name, runs in alone.items()}


def _joined(name: str, test: Judged, fold_of: Ints, runs: Sequence[Run]) -> Run:
    """Join one run per fold: every test query has the list of its fold's run."""
    if all(run is runs[0] for run in runs):
        return Run(name, runs[0].scores)
    queries = zip(test.query_ids, fold_of.tolist(), strict=True)
    return Run(name, {query: runs[fold].scores.get(query, {}) for query, fold in queries})


def own_coverage(run: Run, grades: Grades) -> Coverage:
    """Return how many of the judged documents a run's own list has."""
    return coverage_of(in_judged(run, grades))


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


def compare(
    systems: Mapping[str, Fit | System] | Sequence[Fit | System],
    folds: FoldsGiven | Judged | None = None,
    valid: Judged | None = None,
    test: Judged | None = None,
    *,
    train: Judged | None = None,
    measures: str | Sequence[str] = ("map", "ndcg@10"),
    flavour: str = "standard",
    baseline: str | System | None = None,
    observe: Observe | None = None,
    kept: Kept | None = None,
    explain: Explain | None = None,
) -> Compared:
    """Fit every system on every fold and score the fold's test queries; the first is the baseline, unless one is named.

    Args:
        systems: in a list, or by name. Each is a ranker (an unfitted one is fitted on `train`, with `valid` for early
            stopping; a fitted one is used unchanged, and the table says so), a model of LightGBM, XGBoost, CatBoost or
            scikit-learn (the same), a function of features (its parameters `group` and `qid` get the sizes of the
            groups and the query of each row), or a function of a training and a validation part that returns a fitted
            ranker.
        folds: folds, from `make_folds` or as a list of `(train, valid, test)`; one fold; or instead train, valid and
            test. If all systems are fitted, `test` is enough.
        train: the training part, instead of folds; also as the second argument.
        valid, test: the validation and the test part that go with it.
        measures: names such as `map` or `ndcg@10`, in a list or separated by commas; docs/measures.md has the formulas.
        flavour: the evaluation conventions: `standard`, `letor4`, `mslr`, `trec` or `lightgbm`.
        baseline: the system that the others are compared with, by name or as the system itself; None is the first.
        observe: called with the fold, the name and every fitted ranker, in this process.
        kept: a store of finished results, from which those already there are read.
        explain: explains the rankings of test queries, for a report; `explanations.importance.reasons` is one.

    Returns:
        Compared, which prints means, differences from the baseline and p of paired tests, corrected by Holm;
        `.to_frame()` has them as a table, `.evaluations` the values by query.

    Raises:
        DataError: No system or no fold, a system that gives no scores, and a baseline that is not among them.

    >>> from querywise import RankSVM, compare, make_judged, split
    >>> train, valid, test = split(make_judged(30, 10, 4))
    >>> found = compare({"svm": RankSVM(), "first feature": lambda X: X[:, 0]}, train, valid, test, measures="map")
    >>> found.names, found.baseline, len(found.judged)
    (('svm', 'first feature'), 'svm', 6)
    """
    known = systems_of(systems)
    fits = known.fits
    folds = folds_of(train if folds is None else folds, valid, test, fitted_before=len(known.given) == len(fits))
    base = find_baseline(fits, known.name_of(baseline))
    if not len(folds):
        raise DataError("There is nothing to compare: no fold was given.")
    # An observer sees a fitted ranker in the process where it was fitted.
    pool = workers() if observe is None else ThisProcess()
    pace = Pace(len(folds), fits, alone=pool.parts == 1)

    def one(number: int) -> tuple[Judged, dict[str, Trained], tuple[TwinFacts, TwinFacts], Taught | None]:
        fold = folds[number]
        require_same_labels(fold)
        found = {} if kept is None else {name: kept.get(number, name, fold) for name in fits}
        missing = [name for name in fits if found.get(name) is None]
        pace.begin_fold(fold, missing)
        with caching():
            asked, shared = [fits[name] for name in missing], (fold, observe, flavour, explain)
            for name, done in zip(missing, pool.stream(_trained, missing, asked, shared=shared), strict=True):
                found[name] = done
                if kept is not None:
                    kept.put(number, name, fold, done)
                pace.end_method(name)
        pace.end_fold(number, fold)
        every = {name: each for name, each in found.items() if each is not None}
        every |= {name: replace(every[name], fit_seconds=np.nan) for name in known.given}  # not trained here
        return _without_features(fold.test), every, known_of(fold), taught_by(fold)

    parts = pool.together(one, range(len(folds)), FOLDS)
    tests, _, facts, taught = zip(*parts, strict=True)
    compared = Compared(
        judged=concatenate(tests),
        fold_of=np.repeat(np.arange(len(tests)), [len(each) for each in tests]),
        trained={name: tuple(each[1][name] for each in parts) for name in fits},
        baseline=base,
        measures=tuple(measure.name for measure in find_measures(measures)),
        flavour=flavour,
        given=known.given,
        learned=FoldQueries.of(facts) if len(known.given) < len(fits) else None,
        taught=tuple(filter(None, taught)),
    )
    hint_at(compared.edges)
    return compared


def _trained(
    name: str, fit: Fit, fold: Fold, observe: Observe | None, flavour: str, explain: Explain | None
) -> Trained:
    with doing(name):
        return train(name, fit, fold, observe, flavour=flavour, explain=explain)


def find_baseline(fits: Mapping[str, Fit], name: str | None) -> str:
    """Return the name of the baseline: the one given, or the first system."""
    if not fits:
        raise DataError("There is nothing to compare: no ranker was given.")
    if name is not None and name not in fits:
        raise DataError(f"The baseline {name!r} is not among the methods: {', '.join(fits)}.")
    return next(iter(fits)) if name is None else name


def _without_features(data: Judged) -> Judged:
    names = data.feature_names or ()
    kept = [column for run in run_columns(names) for column in run[1:]]  # columns of runs, which coverage needs
    return replace(
        data,
        candidates=replace(
            data.candidates,
            features=data.candidates.features[:, kept],
            feature_names=tuple(names[column] for column in kept) or None,
            source_rows=None,
        ),
    )
