"""The findings of a comparison: every number of a report, computed once from the scores; tests of any two methods."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from querywise.display.words import p_in_words, p_value
from querywise.evaluation.compare import Compared
from querywise.evaluation.differences import Differences
from querywise.evaluation.human import TEST, ByHumans, Debiasing
from querywise.evaluation.leaks import TwinGain
from querywise.evaluation.learning_curves import LearningCurves
from querywise.evaluation.oracle import Halves, best_of, reachable
from querywise.evaluation.query_vectors import VectorGains, vector_gains
from querywise.evaluation.rankings import Breakdown, Example, breakdowns, extremes, relevant_documents
from querywise.evaluation.significance import (
    SIGNIFICANT,
    TEST_NAMES,
    TESTS,
    Comparison,
    Corrected,
    bootstrap_interval,
    corrected,
    effect_size,
    find_test,
)
from querywise.evaluation.trained import Trained, Use, uses
from querywise.runtime.values import JsonObject

_ALIKE = 1.1  # times within ten percent count as equal: a second run could swap them
_CURVE = tuple(f"ndcg@{position}" for position in range(1, 11))
_NUMBERS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True)
class PairTest:
    """One method's mean minus another's, with the paired test. `p_holm` is corrected for the number of pairs tested."""

    first: str
    second: str
    difference: float
    p: float
    p_holm: float

    @property
    def is_significant(self) -> bool:
        """Whether the corrected p is below 0.05."""
        return self.p_holm < SIGNIFICANT

    @property
    def is_worse(self) -> bool:
        """Whether the first method is significantly worse than the second."""
        return self.is_significant and self.difference < 0


def _tested(
    compared: Compared, pairs: Iterable[tuple[str, str]], measure: str, test: str, human: ByHumans | None
) -> tuple[PairTest, ...]:
    """Return the paired test of each pair, by human judgments if any, with Holm's correction for the pairs."""

    def tested(first: str, second: str) -> Comparison:
        if human is not None:
            return human.test(first, second, measure)
        return compared.test(first, second, measure, test=test)

    found = corrected({names: tested(*names) for names in pairs})
    return tuple(PairTest(*names, *each.numbers) for names, each in found.items())


@dataclass(frozen=True)
class Costs:
    """Seconds of training in all folds, and milliseconds of ranking per query; NaN if unknown."""

    training: float
    ranking: float

    @property
    def are_known(self) -> bool:
        """Whether both costs are known."""
        return math.isfinite(self.training) and math.isfinite(self.ranking)


@dataclass(frozen=True)
class Cheapest:
    """The methods that are not significantly worse than the best one, and the cheapest of them.

    Attributes:
        best: The winner of the comparison; if nothing beats the baseline, the method with the highest mean.
        test: The name of the test.
        tests: Every other method of known cost against the best one.
        training, ranking: The cheapest to train and to rank with; the best one itself if no other is cheaper.
        pairs: Any two methods, corrected for all pairs.

    """

    best: str
    is_winner: bool
    measure: str
    test: str
    tests: tuple[PairTest, ...]
    costs: dict[str, Costs]
    training: str
    ranking: str
    pairs: tuple[PairTest, ...] = ()

    @property
    def others(self) -> tuple[str, ...]:
        """The methods to consider instead of the best one: none, the cheapest in both ways, or one for each."""
        return tuple(dict.fromkeys(name for name in (self.training, self.ranking) if name != self.best))

    @property
    def text(self) -> str:
        """The conclusion, with a sentence for each of these methods."""
        than = self.best if self.is_winner else f"{self.best}, which has the highest mean"
        if not self.others:
            return self._none(f"{than}{'' if self.is_winner else ','}") if self.tests else ""
        if self.training == self.ranking:
            return self._sentence(self.training, "is the cheapest method", than)
        ways = ((self.training, "is the cheapest method to train"), (self.ranking, "is the cheapest method to rank by"))
        return " ".join(self._sentence(name, f"{how} that is", than) for name, how in ways if name != self.best)

    def _none(self, than: str) -> str:
        """Say that there is no such method, and name the closest of the cheaper ones."""
        best = self.costs[self.best]
        cheaper = [
            each
            for each in self.tests
            if not best.are_known
            or self.costs[each.first].training < best.training
            or self.costs[each.first].ranking < best.ranking
        ]
        if not cheaper:
            return f"No method is cheaper than {than.rstrip(',')}."
        closest = max(cheaper, key=lambda each: each.difference).first
        which = f"cheaper than {than}" if best.are_known else "whose cost is known"
        worse = "significantly worse" if best.are_known else f"significantly worse than {than.rstrip(',')}"
        return f"Every method {which} is {worse}; the closest is {closest}: {self.told(closest)}."

    def _sentence(self, name: str, how: str, than: str) -> str:
        return f"{name} {how} not significantly worse than {than}: {self.told(name)}."

    def told(self, name: str) -> str:
        """Describe a method's difference from the best one, its p, and both costs, in a few words."""
        pair = next(each for each in self.tests if each.first == name)
        many = f"Holm, {len(self.tests)} tests" if len(self.tests) > 1 else self.test
        luck = f"{p_in_words(pair.p_holm)} ({many}{self._among_all(pair)})"
        ours, theirs = self.costs[name], self.costs[self.best]
        seconds, milliseconds = f"trained in {_plain(ours.training)} s", f"{_plain(ours.ranking)} ms per query"
        if theirs.are_known:
            seconds += f" instead of {_plain(theirs.training)} s"
            milliseconds += f" instead of {_plain(theirs.ranking)}"
        return f"{self.measure} {pair.difference:+.4f}, {luck}, {seconds}, {milliseconds}"

    def _among_all(self, pair: PairTest) -> str:
        """Return the p among all pairs if it changes the decision, so that a report never contradicts itself."""
        same = {pair.first, pair.second}
        other = next((each for each in self.pairs if {each.first, each.second} == same), pair)
        if other.is_significant == pair.is_significant:
            return ""
        return f"; borderline: {p_value(other.p_holm)} if all {len(self.pairs)} pairs are tested"

    def as_json(self) -> JsonObject:
        """Return everything, with costs, as JSON."""
        return {
            "than": self.best,
            "to_train": self.training,
            "to_rank": self.ranking,
            "said": self.text,
            "costs": {
                name: {"fit_seconds": each.training, "predict_milliseconds": each.ranking}
                for name, each in self.costs.items()
                if each.are_known
            },
            **self.tests_as_json(),
        }

    def tests_as_json(self) -> JsonObject:
        """Return everything that does not depend on times: every method's test against the best one."""
        return {"than": self.best, "tests": [{**asdict(each), "worse": each.is_worse} for each in self.tests]}


def _plain(number: float) -> str:
    """Format a time with two digits and no exponent."""
    return "less than 0.001" if number < 0.001 else f"{number:.0f}" if number >= 100 else f"{number:.2g}"


@dataclass(frozen=True)
class MethodFinding:
    """One method compared with the baseline."""

    name: str
    means: dict[str, float]
    difference: float
    interval: tuple[float, float]
    effect: float
    wins: int
    ties: int
    losses: int
    p: dict[str, float]  # in the main measure, by test
    corrected: float | None  # p of the chosen test after Holm's correction for the methods; None if left out of it
    direction: int  # the direction of the chosen test: 1 if this method is ahead, -1 if the baseline is
    p_by_measure: dict[str, float]  # p of the chosen test, uncorrected
    fit_seconds: float
    predict_milliseconds: float
    megabytes: float

    @property
    def is_better(self) -> bool:
        """Whether it is significantly better than the baseline, by both the mean and the test."""
        return self.is_significant and self.difference > 0 and self.direction > 0

    @property
    def is_significant(self) -> bool:
        """Whether it differs significantly from the baseline after the correction."""
        return self.corrected is not None and self.corrected < SIGNIFICANT


@dataclass(frozen=True)
class OracleFinding:
    """The gap between a ranker and the oracle choice among its own models."""

    name: str
    models: int
    reached: float
    upper_bound: float
    reachable: float | None  # UpperBound minus luck; None if no query can tell
    relevant_only: float | None
    baseline: float
    baseline_rank: int | None
    by_rank: tuple[float, ...]
    by_number: dict[int, float]  # UpperBound with this many of the models, drawn at random

    @property
    def closed(self) -> float | None:
        """The share of the gap between the baseline and the reachable value that the ranker closes.

        None if there is no gap, or if the ranker is below the baseline.
        """
        gap = (self.upper_bound if self.reachable is None else self.reachable) - self.baseline
        return (self.reached - self.baseline) / gap if gap > 0 and self.reached >= self.baseline else None


@dataclass(frozen=True)
class Findings:
    """Everything that a report shows."""

    compared: Compared
    measure: str
    test: str
    methods: tuple[MethodFinding, ...]
    breakdowns: tuple[Breakdown, ...]
    best: tuple[Example, ...]
    worst: tuple[Example, ...]
    oracles: tuple[OracleFinding, ...]
    shown: str | None  # the method whose queries are shown: the best other one, of the better ones if any
    compared_with: int  # the number of methods in the correction
    ndcg: dict[str, tuple[float, ...]]  # NDCG at 1 to 10
    relevant: tuple[int, ...]  # the number of relevant documents of each test query
    against_k: dict[str, dict[float, float]]  # the best validation value at every k tried, averaged over folds
    uses: dict[str, tuple[Use, ...]]  # the features of each method that could be explained, by importance
    unexplained: dict[str, str]  # for each other method, why it could not be
    pairs: tuple[PairTest, ...]  # any two methods tested against each other
    cheapest: Cheapest | None  # of those not significantly worse than the best; None if there is one method
    curves: LearningCurves | None = None  # if they were requested
    on_twins: Mapping[str, TwinGain] = field(default_factory=dict)  # by method; empty if nothing leaks
    vectors: VectorGains | None = None  # what training the query vectors gained, if they learn
    debiasing: Debiasing | None = None  # whether it matters, for methods that learn from clicks
    human: ByHumans | None = None  # if people judged some queries: then the conclusions rest on their labels

    @property
    def tested(self) -> str:
        """The name of the test that the verdict rests on."""
        return TEST_NAMES[self.test] if self.human is None else TEST

    @property
    def queries(self) -> str:
        """The number of queries that the verdict rests on, in words."""
        return f"{len(self.compared.judged)} queries" if self.human is None else self.human.queries

    @property
    def baseline(self) -> MethodFinding:
        """The finding of the baseline."""
        return next(each for each in self.methods if each.name == self.compared.baseline)

    @property
    def others(self) -> tuple[MethodFinding, ...]:
        """Every method but the baseline."""
        return tuple(each for each in self.methods if each.name != self.compared.baseline)

    @property
    def top(self) -> MethodFinding | None:
        """The method whose queries are shown."""
        return next((each for each in self.others if each.name == self.shown), None)

    @property
    def winner(self) -> str | None:
        """The best of the methods that are significantly better than the baseline; None if there is none."""
        return self.shown if self.top is not None and self.top.is_better else None

    @property
    def verdict(self) -> str:
        """The conclusion, in a sentence or two."""
        return _verdict(self)

    @property
    def advice(self) -> str:
        """The cheapest method that is not significantly worse than the best, in a sentence; empty if there is none."""
        return "" if self.cheapest is None else self.cheapest.text

    def decided(self) -> JsonObject:
        """Return the verdict, the cheapest method not significantly worse and all pairs, for a command's JSON."""
        return {
            "verdict": self.verdict,
            "cheapest": None if self.cheapest is None else self.cheapest.as_json(),
            "pairs": [asdict(each) for each in self.pairs],
            **({} if self.vectors is None else {"query_vectors": self.vectors.as_json()}),
            **({} if self.debiasing is None else {"debiasing": self.debiasing.as_json()}),
            **({} if self.human is None else {"human": self.human.as_json(self.measure)}),
        }


def findings(
    compared: Compared,
    measure: str,
    *,
    test: str = "t",
    left_out: Sequence[str] = (),
    plain: Compared | None = None,
    human: ByHumans | None = None,
) -> Findings:
    """Compute everything.

    `left_out` names methods, such as oracles, that are in the tables but cannot win. `plain` is the same comparison
    with fixed query vectors. `human` is the same by human judgments, which then decide: means, differences, intervals
    and tests are prediction-powered estimates.
    """
    names = compared.names
    counted = [name for name in names if name != compared.baseline and name not in left_out]
    if human is None:
        tables = {name: compared.evaluations[name] for name in (compared.baseline, *counted)}
        tested = Differences(tables, compared.baseline).tested(measure, test)
    else:
        tested = corrected({name: human.test(name, compared.baseline, measure) for name in counted})
    methods = tuple(_method(compared, name, measure, test, tested.get(name)) for name in names)
    if human is not None:
        methods = tuple(_by_humans(each, human, measure) for each in methods)
    by_name = {each.name: each for each in methods}
    # A significantly better method comes before one whose higher mean is not significant.
    shown = max(counted, key=lambda name: (by_name[name].is_better, by_name[name].means[measure]), default=None)
    best, worst = ((), ()) if shown is None else extremes(compared, shown, measure)
    used, unexplained = _uses(compared)
    pairs = _tested(compared, itertools.combinations(names, 2), measure, test, human)
    return Findings(
        compared,
        measure,
        test,
        methods,
        tuple(breakdowns(compared, measure)),
        best,
        worst,
        tuple(found for name in names if (found := oracle_of(compared, name)) is not None),
        shown,
        len(counted),
        {name: tuple(compared.measured(name, _CURVE).mean().values()) for name in names},
        tuple(relevant_documents(compared).tolist()),
        {name: points for name in names if len(points := _against_k(compared.trained[name])) > 1},
        used,
        unexplained,
        pairs,
        _cheapest(compared, counted, by_name, shown, pairs, measure, test, human),
        on_twins=compared.on_twins(measure, test=test),
        vectors=vector_gains(compared, measure, test=test, plain=plain),
        human=human,
    )


def with_curves(found: Findings, curves: LearningCurves) -> Findings:
    """Add learning curves."""
    if found.vectors is None:
        return replace(found, curves=curves)
    by_size = {**curves.lists, curves.sizes[-1]: found.vectors.lists}
    return replace(found, curves=curves, vectors=replace(found.vectors, by_size=by_size))


def _cheapest(
    compared: Compared,
    counted: Sequence[str],
    by_name: Mapping[str, MethodFinding],
    shown: str | None,
    pairs: tuple[PairTest, ...],
    measure: str,
    test: str,
    human: ByHumans | None,
) -> Cheapest | None:
    """Return the cheapest method not significantly worse than the winner or, without one, than the highest mean.

    Methods of unknown cost are left out.
    """
    if shown is None:
        return None
    won, among = by_name[shown].is_better, (compared.baseline, *counted)
    best = shown if won else max(among, key=lambda name: by_name[name].means[measure])
    costs = {name: Costs(by_name[name].fit_seconds, by_name[name].predict_milliseconds) for name in (best, *among)}
    timed = [name for name in among if name != best and costs[name].are_known]
    tests = _tested(compared, ((name, best) for name in timed), measure, test, human)
    allowed = [each.first for each in tests if not each.is_worse]

    def least(cost: Callable[[Costs], float], first: str | None = None) -> str:
        """Return the cheapest; of those that cost about the same, prefer `first`, then the best one."""
        known = {name: cost(costs[name]) for name in (best, *allowed) if costs[name].are_known}
        limit = min(known.values(), default=0.0) * _ALIKE
        alike = [name for name in known if known[name] <= limit]
        return first if first in alike else alike[0] if alike else best

    training = least(lambda each: each.training)
    ranking = least(lambda each: each.ranking, training)
    how = TEST_NAMES[test] if human is None else TEST
    return Cheapest(best, won, measure, how, tests, costs, training, ranking, pairs)


def _uses(compared: Compared) -> tuple[dict[str, tuple[Use, ...]], dict[str, str]]:
    """Return what each method uses, and why that is unknown for some; empty if it was not requested."""
    told: dict[str, tuple[Use, ...]] = {}
    refused: dict[str, str] = {}
    for name, folds in compared.trained.items():
        found = [each.reasons for each in folds if each.reasons is not None]
        why = next((each.refused for each in found if each.refused), "")
        if why:
            refused[name] = why
        elif len(found) == len(folds):
            told[name] = uses(found)
    return told, refused


def _method(compared: Compared, name: str, measure: str, test: str, tested: Corrected | None) -> MethodFinding:
    base = compared.evaluations[compared.baseline]
    table = compared.evaluations[name]
    ours, theirs = table[measure], base[measure]
    pair = TESTS["t"](ours, theirs)
    return MethodFinding(
        name=name,
        means=table.mean(),
        difference=pair.difference,
        interval=bootstrap_interval(ours, theirs),
        effect=effect_size(ours, theirs),
        wins=pair.wins,
        ties=pair.ties,
        losses=pair.losses,
        p={each: compute(ours, theirs).p for each, compute in TESTS.items()},
        corrected=None if tested is None else tested.p_holm,
        direction=find_test(test)(ours, theirs).direction,
        p_by_measure={each: find_test(test)(table[each], base[each]).p for each in compared.measures},
        fit_seconds=compared.fit_seconds(name),
        predict_milliseconds=compared.predict_milliseconds(name),
        megabytes=compared.megabytes(name),
    )


def _by_humans(each: MethodFinding, human: ByHumans, measure: str) -> MethodFinding:
    """Replace a method's numbers by those of human judgments; wins, ties, losses and effect are of judged queries."""
    base, found = human.baseline, human.difference(each.name, human.baseline, measure)
    pair = human.test(each.name, base, measure)
    return replace(
        each,
        means={name: human.mean(each.name, name).value for name in each.means},
        difference=found.value,
        interval=found.interval,
        effect=effect_size(human.human[each.name][measure], human.human[base][measure]),
        **{name: getattr(pair, name) for name in ("wins", "ties", "losses", "direction")},
        p={"t": pair.p},
        p_by_measure={name: human.test(each.name, base, name).p for name in each.p_by_measure},
    )


def _against_k(folds: Sequence[Trained]) -> dict[float, float]:
    """Return k → the best validation value that any setting with that k reached, averaged over folds."""
    values: dict[float, list[float]] = {}
    for each in folds:
        best: dict[float, float] = {}
        for trial in each.tried:
            k = trial.parameters.get("k")
            if isinstance(k, (int, float)):
                best[k] = max(best.get(k, -np.inf), trial.value)
        for k, value in best.items():
            values.setdefault(k, []).append(value)
    return {k: float(np.mean(found)) for k, found in sorted(values.items()) if len(found) == len(folds)}


def oracle_of(compared: Compared, name: str, baseline: str | None = None) -> OracleFinding | None:
    """Return a method's oracle gap, relative to the baseline or another method; None if it has no stored models."""
    best = compared.extra(name, lambda extra: extra.best_model)
    if best is None:
        return None
    single = _precision(compared, baseline or compared.baseline)
    curves = [np.array(each.extra.by_rank or []) for each in compared.trained[name]]
    sizes = np.bincount(compared.fold_of)
    length = min(map(len, curves))
    curve = sum(size * each[:length] for size, each in zip(sizes, curves, strict=True)) / sizes.sum()
    below = np.flatnonzero(curve <= single)
    only = compared.extra(name, lambda extra: extra.relevant_only)
    reached, halves = _precision(compared, name), [each.extra.halves for each in compared.trained[name]]
    told = [Halves(**{key: np.array(values) for key, values in each.items()}) for each in halves if each is not None]
    return OracleFinding(
        name=name,
        models=length,
        reached=reached,
        upper_bound=float(best.mean()),
        reachable=reachable(reached, float(best.mean()), told) if told else None,
        relevant_only=None if only is None else float(only.mean()),
        baseline=single,
        baseline_rank=int(below[0]) + 1 if len(below) else None,
        by_rank=tuple(curve.tolist()),
        by_number={
            count: float(np.average([best_of(each, count) for each in curves], weights=sizes))
            for count in sorted({*_NUMBERS, length})
            if count <= length
        },
    )


def _precision(compared: Compared, name: str) -> float:
    if "map" in compared.measures:
        return compared.evaluations[name].mean()["map"]
    return compared.measured(name, ["map"]).mean()["map"]


def _verdict(found: Findings) -> str:
    base, top, queries = found.baseline, found.top, found.queries
    if top is None:
        return f"Only {base.name} was evaluated: {found.measure} {base.means[found.measure]:.4f} on {queries}."
    before = base.means[found.measure]
    share = f" ({100 * top.difference / before:+.1f} %)" if before else ""
    number = f"{found.measure} {top.means[found.measure]:.4f} against {before:.4f}{share}"
    many = f", Holm's correction for {found.compared_with} methods" if found.compared_with > 1 else ""
    luck = f"{p_in_words(1.0 if top.corrected is None else top.corrected)}, {found.tested}{many}"
    if top.is_better:
        return f"{top.name} is better than {base.name}: {number}, {luck}, on {queries}{_cost(top, base)}."
    worse = top.is_significant and top.difference < 0 and top.direction < 0
    sure = "makes no difference that is sure" if top.is_significant else "makes no significant difference"
    how = "is worse" if worse else sure
    return f"Nothing beats {base.name} here. The best of the others, {top.name}, {how}: {number}, {luck}, on {queries}."


def _cost(top: MethodFinding, base: MethodFinding) -> str:
    if not (np.isfinite(top.predict_milliseconds) and np.isfinite(base.predict_milliseconds)):
        return ""
    return f", at {top.predict_milliseconds:.2g} ms per query against {base.predict_milliseconds:.2g}"


def _of_method(each: MethodFinding) -> JsonObject:
    names = ("means", "difference", "interval", "effect", "wins", "ties", "losses", "p", "corrected", "p_by_measure")
    known = asdict(each)
    return {"p_holm" if name == "corrected" else name: known[name] for name in names}


def as_json(found: Findings) -> JsonObject:
    """Return everything but the timings as JSON."""
    features: JsonObject = {
        name: {each.feature: {"share": each.here, "global": each.everyone, "moved": each.moved} for each in used}
        for name, used in found.uses.items()
    }
    return {
        "verdict_measure": found.measure,
        "flavour": found.compared.flavour,
        "test": found.test,
        "baseline": found.compared.baseline,
        "queries": len(found.compared.judged),
        **({} if found.compared.coverage is None else {"coverage": asdict(found.compared.coverage)}),
        "losses": [each.as_json() for each in found.compared.losses],
        **({"edges": [each.as_json() for each in found.compared.edges]} if found.compared.edges else {}),
        **found.compared.twins_json(found.test),
        "methods": {each.name: _of_method(each) for each in found.methods},
        **({} if found.cheapest is None else {"against_the_best": found.cheapest.tests_as_json()}),
        "pairs": [asdict(each) for each in found.pairs],
        "breakdowns": {
            each.title: {group.label: group._asdict() for group in each.groups} for each in found.breakdowns
        },
        **({"features": features} if features else {}),
        **({} if found.vectors is None else {"query_vectors": found.vectors.as_json()}),
        **({} if found.debiasing is None else {"debiasing": found.debiasing.as_json()}),
        **({} if found.human is None else {"human": found.human.as_json(found.measure)}),
        **({} if found.curves is None else {"learning_curves": found.curves.as_json(found.test)}),
        "oracles": {
            each.name: {
                "models": each.models,
                "map": each.reached,
                "upper_bound": each.upper_bound,
                "reachable": each.reachable,
                "relevant_only": each.relevant_only,
                "baseline": each.baseline,
                "baseline_rank": each.baseline_rank,
                "gap_closed": each.closed,
                "by_number": {str(models): bound for models, bound in each.by_number.items()},
            }
            for each in found.oracles
        },
    }
