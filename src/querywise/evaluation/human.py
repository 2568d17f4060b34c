"""Comparisons that people judge too: by a few judgments beside the cheap labels of all queries, and beside clicks.

Methods were trained and chosen by the cheap labels. Human judgments only evaluate: every method's mean and every
paired difference is a prediction-powered estimate over queries: the mean of a few human values, made more precise by
the cheap values of many queries. Whether correcting clicks for position bias matters is judged by later clicks, and
by people where they gave grades.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from querywise.data.judged import Judged, judged_by
from querywise.data.judgements import Grades
from querywise.data.rows import rows_of
from querywise.display.words import counted, p_in_words
from querywise.errors import DataError
from querywise.evaluation.compare import Compared
from querywise.evaluation.differences import Differences
from querywise.evaluation.evaluate import Evaluation, evaluate, evaluate_run
from querywise.evaluation.significance import (
    SIGNIFICANT,
    TEST_NAMES,
    Comparison,
    bootstrap_interval,
    corrected,
    paired_t_test,
)
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.values import JsonObject

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over queries, or a mean difference, with its standard error.

    Attributes:
        interval: The 95 % confidence interval of the true mean.
        weight: λ, the weight of the cheap values.
        human, cheap: The mean of the human values alone, and that of the cheap values of all queries.
        worth: The number of human queries that would give the same error without cheap values.

    """

    value: float
    error: float
    interval: tuple[float, float]
    p: float
    weight: float
    human: float
    cheap: float
    worth: float


def estimate(human: Floats, cheap: Floats, chosen: Ints, *, weight: float | None = None) -> MeanEstimate:
    """Estimate the mean human value over all queries that have a cheap value.

    Args:
        human: The values of the human queries.
        cheap: The values of all queries.
        chosen: The indices of the human queries among all.
        weight: λ; None is the best for these values.

    Returns:
        The estimate with its error, interval and p.

    >>> found = estimate(np.array([0.2, 0.6, 0.7]), np.array([0.3, 0.5, 0.8, 0.4, 0.6]), np.array([0, 1, 2]))
    >>> round(found.value, 3), round(found.weight, 3)
    (0.487, 0.947)
    >>> round(estimate(np.array([0.2, 0.6, 0.7]), np.ones(5), np.array([0, 1, 2])).value, 3)  # constant: λ = 0
    0.5

    """
    from scipy.special import stdtr, stdtrit  # scipy.stats takes a second to import

    count, every = len(human), len(cheap)
    if len(chosen) != count or count < 2:
        raise DataError(f"{count} human values of {len(chosen)} queries; a mean and its error need two or more.")
    own = cheap[chosen]
    if weight is None:
        spread = float(own.var(ddof=1))
        best = float(np.cov(human, own)[0, 1]) / spread if spread > 0 else 0.0
        weight = min(max(best, 0.0), 1.0)
    rest = human - weight * own
    value = weight * float(cheap.mean()) + float(rest.mean())
    shared = float(np.cov(own, rest)[0, 1])
    variance = weight**2 * float(cheap.var(ddof=1)) / every + float(rest.var(ddof=1)) / count
    error = float(np.sqrt(max(variance + 2 * weight * shared / every, 0.0)))
    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * error
    p = float(2 * stdtr(count - 1, -abs(value) / error)) if error > 0 else float(value == 0)
    worth = float(human.var(ddof=1)) / error**2 if error > 0 else float(count)
    means = float(human.mean()), float(cheap.mean())
    return MeanEstimate(value, error, (value - half, value + half), p, weight, *means, worth)


TEST = "prediction-powered t-test"
_DEPTH = "judged@10"
_SURE = 0.01  # p below which human queries are reported not to be a random sample
_JUDGED = 0.9  # the share of a method's top ten that should have human labels
_FEW = 10  # human queries on which the two kinds of labels should differ, or intervals may be too narrow


@dataclass(frozen=True, eq=False)
class ByHumans:
    """Every method's values by cheap labels on all test queries, and by human labels on some.

    Attributes:
        chosen: The indices of the queries that people judged.
        left_out: The number of human queries that are not test queries.

    """

    cheap: Mapping[str, Evaluation]
    human: Mapping[str, Evaluation]
    chosen: Ints
    baseline: str
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.chosen)

    def __repr__(self) -> str:
        return f"ByHumans({self.queries})"

    @property
    def queries(self) -> str:
        """How many of the queries people judged, in words."""
        return f"{counted(len(next(iter(self.cheap.values()))), 'query')}, {len(self):,} of them judged by people"

    def mean(self, name: str, measure: str) -> MeanEstimate:
        """Estimate a method's mean of a measure over all queries, by human judgment."""
        return estimate(self.human[name][measure], self.cheap[name][measure], self.chosen)

    def difference(self, first: str, second: str, measure: str) -> MeanEstimate:
        """Estimate the first method's mean minus the second's."""
        human, cheap = (each[first][measure] - each[second][measure] for each in (self.human, self.cheap))
        return estimate(human, cheap, self.chosen)

    def test(self, first: str, second: str, measure: str) -> Comparison:
        """Return the difference as a paired test; wins, ties and losses are counted on the human queries."""
        found = self.difference(first, second, measure)
        gain: Floats = self.human[first][measure] - self.human[second][measure]
        counts = (int(np.sum(gain > 0)), int(np.sum(gain == 0)), int(np.sum(gain < 0)))
        return Comparison(TEST, found.value, found.p, *counts, direction=int(np.sign(found.value)))

    def said(self, measure: str) -> list[str]:
        """Summarize what the cheap labels were worth, where they disagree with people, and what to be careful about."""
        return [*self._worth(measure), *self._contradicted(measure), *self._biased(measure), *self._cautions(measure)]

    def _others(self) -> list[str]:
        return [name for name in self.human if name != self.baseline]

    def _worth(self, measure: str) -> list[str]:
        found = {name: self.difference(name, self.baseline, measure) for name in self._others()}
        if not found:
            return []
        weights, worth = [each.weight for each in found.values()], [each.worth for each in found.values()]
        if max(weights) == 0:
            return ["The cheap labels tell nothing about these differences (λ = 0): human judgments alone count."]
        return [
            f"Differences are estimated as surely as by {_range(worth)} human queries alone "
            f"(λ {_range(weights, '.2f')}; 0: cheap labels count nothing)."
        ]

    def _contradicted(self, measure: str) -> list[str]:
        """Return conclusions of the cheap labels alone that people do not confirm."""
        alone = Differences(self.cheap, self.baseline).tested(measure, "t")
        by_people = corrected({name: self.test(name, self.baseline, measure) for name in self._others()})
        return [
            f"By the cheap labels alone {name} would be {'better' if each.side > 0 else 'worse'} than {self.baseline} "
            f"({each.found.difference:+.4f}, {p_in_words(each.p_holm)}); people do not bear that out."
            for name, each in alone.items()
            if each.side and by_people[name].side != each.side
        ]

    def _biased(self, measure: str) -> list[str]:
        """Return methods that the cheap labels favor or disfavor against the baseline, on queries with both labels."""
        tests = {}
        for name in self._others():
            human, cheap = (each[name][measure] - each[self.baseline][measure] for each in (self.human, self.cheap))
            tests[name] = paired_t_test(cheap[self.chosen], human)
        return [
            f"Cheap labels {'favor' if each.found.difference > 0 else 'disfavor'} {name} against {self.baseline}: on "
            f"the queries with both labels its difference in {measure} is {each.found.difference:+.4f} away from "
            f"people's ({p_in_words(each.p_holm)}, Holm)."
            for name, each in corrected(tests).items()
            if each.is_significant
        ]

    def _cautions(self, measure: str) -> list[str]:
        """Return warnings if the human queries are not a random sample, too few, or not judged as deeply."""
        said = (
            [f"Left out: {counted(self.left_out, 'human query')} not among the test queries."] if self.left_out else []
        )
        base, rest = self.cheap[self.baseline][measure], np.ones(len(self.cheap[self.baseline]), np.bool_)
        rest[self.chosen] = False
        p = _welch(base[self.chosen], base[rest])
        if p < _SURE:
            said.append(
                f"Caution: people's queries are no random sample of all: by cheap labels {measure} of {self.baseline} "
                f"is {base[self.chosen].mean():.4f} on them and {base[rest].mean():.4f} on the others "
                f"({p_in_words(p)}). Estimates and intervals hold for a random sample alone."
            )
        shares = {name: float(each[_DEPTH].mean()) for name, each in self.human.items()}
        least = min(shares, key=lambda name: shares[name])
        if shares[least] < _JUDGED:
            said.append(
                f"Caution: people judged {shares[least]:.0%} of the first ten documents of {least}; what nobody judged "
                "counts as not relevant. Judge the first documents of every method."
            )
        for name in self._others():
            human, cheap = (each[name][measure] - each[self.baseline][measure] for each in (self.human, self.cheap))
            differ = int(np.sum(np.abs(human - cheap[self.chosen]) > 1e-12))
            if 0 < differ < _FEW:
                said.append(
                    f"Caution: {name} and {self.baseline} differ by another amount for people than by cheap labels on "
                    f"{counted(differ, 'query')} alone, so the interval of their difference may be too narrow."
                )
        return said

    def as_json(self, measure: str) -> JsonObject:
        """Return all estimates as JSON."""
        measures = self.cheap[self.baseline].measures
        return {
            "queries": len(self.cheap[self.baseline]),
            "human_queries": len(self),
            "test": TEST,
            "means": {name: {each: asdict(self.mean(name, each)) for each in measures} for name in self.human},
            "differences": {
                name: {each: asdict(self.difference(name, self.baseline, each)) for each in measures}
                for name in self._others()
            },
            "said": self.said(measure),
        }


def by_humans(compared: Compared, grades: Grades) -> ByHumans:
    """Evaluate every method of a comparison on the test queries that people judged.

    `grades` (query → document → grade) are human. Their queries must be a random sample of the test queries, judged as
    deeply as the cheap labels go.
    """
    names = compared.judged.query_ids
    chosen = np.array([number for number, query in enumerate(names) if grades.get(query)], np.int64)
    if len(chosen) < 2:
        first = next(iter(grades), None)
        raise DataError(
            f"Of {counted(len(grades), 'query')} that people judged, {len(chosen)} are among the {len(names):,} test "
            f"queries; two or more are needed. The first judged one is {first!r}, the first test query {names[0]!r}."
        )
    candidates = compared.judged.candidates
    judged = judged_by(candidates.select(chosen), grades)
    rows = rows_of(candidates.starts, chosen)
    human = {name: _measured(compared, name, judged, rows, grades) for name in compared.names}
    return ByHumans(compared.evaluations, human, chosen, compared.baseline, len(grades) - len(chosen))


def _measured(compared: Compared, name: str, judged: Judged, rows: Ints, grades: Grades) -> Evaluation:
    """Evaluate one method by human labels; a system's run is evaluated on its own list."""
    measures = (*compared.measures, *(() if _DEPTH in compared.measures else (_DEPTH,)))
    if name in compared.lists:
        own = {query: grades[query] for query in judged.query_ids}
        return evaluate_run(compared.lists[name], own, measures=measures, flavour=compared.flavour)
    scores = compared.scores[name][rows]
    return evaluate(scores, judged, measures=measures, flavour=compared.flavour, order="grouped")


def _welch(ours: Floats, theirs: Floats) -> float:
    """Return the p of Welch's test of two groups of values, by the normal distribution; 1 if neither varies."""
    from scipy.special import ndtr

    if min(len(ours), len(theirs)) < 2:
        return 1.0
    error = float(np.sqrt(ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs)))
    return float(2 * ndtr(-abs(ours.mean() - theirs.mean()) / error)) if error > 0 else 1.0


def _range(values: list[float], form: str = ".0f") -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


@dataclass(frozen=True, eq=False)
class Debiasing:
    """A method trained on debiased clicks against the same method on raw clicks.

    Attributes:
        model: The click model that judges the later clicks.
        reason: Why the log cannot be debiased, if so.
        debiased, naive: The method's two names; empty if the log cannot be debiased.
        clicks: All methods by clicks on later pages.
        people: All methods by human grades; None without any.

    """

    model: str
    reason: str
    debiased: str
    naive: str
    measure: str
    test: str
    clicks: Differences
    people: Differences | None

    @property
    def said(self) -> list[str]:
        """Whether debiasing matters by clicks and, if known, by people, in sentences."""
        judge = f"Methods learned from the earlier pages of the log, and clicks on the last fifth judge ({self.model})."
        if not self.naive:
            return [f"Nothing is debiased here. {self.reason}", judge]
        told = [f"Debiasing {self._found(self.clicks, 'later clicks')}.", judge]
        return told if self.people is None else [*told, f"People: it {self._found(self.people, 'grades of people')}."]

    def _found(self, every: Differences, judges: str) -> str:
        test = every.tested(self.measure, self.test)[self.debiased]
        ours, theirs = (every.evaluations[name][self.measure] for name in (self.debiased, self.naive))
        low, high = bootstrap_interval(ours, theirs)
        sure = test.p_holm < SIGNIFICANT
        how = ("matters" if test.found.difference > 0 else "hurts") if sure else "makes no significant difference"
        others = len(every.evaluations) - 1
        return (
            f"{how} by {judges} on {counted(len(ours), 'query', 'queries')}: {self.measure} of {self.debiased} is "
            f"{ours.mean():.4f} against {theirs.mean():.4f} of {self.naive} ({test.found.difference:+.4f}, 95 % "
            f"interval {low:+.4f} to {high:+.4f}; {p_in_words(test.p_holm)}, {TEST_NAMES[self.test]}, Holm's "
            f"correction for {counted(others, 'method')})"
        )

    def as_json(self) -> JsonObject:
        """Return everything as JSON."""
        judges = {"later clicks": self.clicks} | ({} if self.people is None else {"people": self.people})
        means: JsonObject = {
            judge: {name: dict(each.mean()) for name, each in found.evaluations.items()}
            for judge, found in judges.items()
        }
        return {"model": self.model, "debiased": self.debiased, "naive": self.naive, "said": self.said, "means": means}


def debiasing(
    compared: Compared,
    people: tuple[Judged, Ints],
    measure: str,
    *,
    model: str,
    reason: str,
    names: tuple[str, str],
    test: str,
) -> Debiasing:
    """Evaluate every method of a comparison by people too; `people` holds the queries they judged and their rows."""
    judged, rows = people
    by_people = None
    if len(judged):
        values = {
            name: evaluate(scores[rows], judged, measures=compared.measures, flavour=compared.flavour, order="grouped")
            for name, scores in compared.scores.items()
        }
        by_people = Differences(values, names[1] or compared.baseline)
    clicks = Differences(compared.evaluations, names[1] or compared.baseline)
    return Debiasing(model, reason, *names, measure, test, clicks, by_people)
