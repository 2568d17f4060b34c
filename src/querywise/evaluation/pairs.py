"""Any two methods of a comparison tested against each other, and the cheapest method not significantly worse."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from querywise.display.words import p_value
from querywise.evaluation.compared import Compared
from querywise.evaluation.significance import TEST_NAMES, holm
from querywise.runtime.values import JsonObject

SIGNIFICANT = 0.05
_ALIKE = 1.1  # times within ten per cent are equal: a second run could swap them


@dataclass(frozen=True)
class Pair:
    """One method's mean less another's, with the paired test. p_holm: corrected for the number of pairs tested."""

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

    def as_json(self) -> JsonObject:
        """All of it, by name."""
        numbers = {"difference": self.difference, "p": self.p, "p_holm": self.p_holm}
        return {"first": self.first, "second": self.second, **numbers}


def corrected_pairs(
    compared: Compared, pairs: Iterable[tuple[str, str]], measure: str, test: str = "t"
) -> tuple[Pair, ...]:
    """The paired test of each pair, corrected by Holm for their number."""
    named = list(pairs)
    found = [compared.test(*each, measure, test=test) for each in named]
    corrected = holm([each.p for each in found]) if found else []
    return tuple(
        Pair(*names, each.difference, each.p, p) for names, each, p in zip(named, found, corrected, strict=True)
    )


def all_pairs(compared: Compared, measure: str, test: str = "t") -> tuple[Pair, ...]:
    """Every two methods, each pair once."""
    return corrected_pairs(compared, itertools.combinations(compared.names, 2), measure, test)


@dataclass(frozen=True)
class Costs:
    """Seconds of training in all folds, and milliseconds of ranking per query; NaN where they are not known."""

    training: float
    ranking: float

    @staticmethod
    def of(compared: Compared, name: str) -> Costs:
        """Those of one method."""
        return Costs(compared.fit_seconds(name), compared.predict_milliseconds(name))

    @property
    def are_known(self) -> bool:
        """Whether both are."""
        return math.isfinite(self.training) and math.isfinite(self.ranking)


@dataclass(frozen=True)
class Cheapest:
    """The methods that are not significantly worse than the best one, and the cheapest of them.

    best: the winner of the comparison; where nothing beats the baseline, the method with the highest mean. tests:
    every other method of known cost against it. training, ranking: the cheapest to train and to rank by of the best
    one and those that are not significantly worse; the best one itself where no other is cheaper. pairs: any two
    methods, corrected for all pairs.
    """

    best: str
    is_winner: bool
    measure: str
    test: str
    tests: tuple[Pair, ...]
    costs: dict[str, Costs]
    training: str
    ranking: str
    pairs: tuple[Pair, ...] = ()

    @property
    def others(self) -> tuple[str, ...]:
        """The methods to consider instead of the best one: none, one that is cheapest in both ways, or one for each."""
        return tuple(dict.fromkeys(name for name in (self.training, self.ranking) if name != self.best))

    @property
    def text(self) -> str:
        """The conclusion in a sentence for each of them."""
        than = self.best if self.is_winner else f"{self.best}, which has the highest mean"
        if not self.others:
            return self._none(f"{than}{'' if self.is_winner else ','}") if self.tests else ""
        if self.training == self.ranking:
            return self._sentence(self.training, "is the cheapest method", than)
        ways = ((self.training, "is the cheapest method to train"), (self.ranking, "is the cheapest method to rank by"))
        return " ".join(self._sentence(name, f"{how} that is", than) for name, how in ways if name != self.best)

    def _none(self, than: str) -> str:
        """That there is no such method, with the closest of those that are cheaper."""
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
        """The difference of a method from the best one, its p, and both costs, in a few words."""
        pair = next(each for each in self.tests if each.first == name)
        many = f"Holm, {len(self.tests)} tests" if len(self.tests) > 1 else TEST_NAMES[self.test]
        p = p_value(pair.p_holm)
        luck = f"p {p if p.startswith('<') else f'= {p}'} ({many}{self._among_all(pair)})"
        ours, theirs = self.costs[name], self.costs[self.best]
        seconds, milliseconds = f"trained in {_plain(ours.training)} s", f"{_plain(ours.ranking)} ms per query"
        if theirs.are_known:
            seconds += f" instead of {_plain(theirs.training)} s"
            milliseconds += f" instead of {_plain(theirs.ranking)}"
        return f"{self.measure} {pair.difference:+.4f}, {luck}, {seconds}, {milliseconds}"

    def _among_all(self, pair: Pair) -> str:
        """The p among all pairs where it decides otherwise, so that nobody finds two answers in one report."""
        same = {pair.first, pair.second}
        other = next((each for each in self.pairs if {each.first, each.second} == same), pair)
        if other.is_significant == pair.is_significant:
            return ""
        return f"; borderline: {p_value(other.p_holm)} if all {len(self.pairs)} pairs are tested"

    def as_json(self) -> JsonObject:
        """All of it, with costs."""
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
        """What does not depend on times: every method's test against the best one."""
        return {"than": self.best, "tests": [{**each.as_json(), "worse": each.is_worse} for each in self.tests]}


def cheapest(
    compared: Compared,
    best: str,
    among: Sequence[str],
    pairs: tuple[Pair, ...],
    measure: str,
    test: str = "t",
    *,
    is_winner: bool = True,
) -> Cheapest:
    """The cheapest of some methods that is not significantly worse than the best one; unknown costs are left out."""
    costs = {name: Costs.of(compared, name) for name in (best, *among)}
    known = [name for name in among if name != best and costs[name].are_known]
    tests = corrected_pairs(compared, ((name, best) for name in known), measure, test)
    allowed = [each.first for each in tests if not each.is_worse]

    def least(cost: Callable[[Costs], float], first: str | None = None) -> str:
        """The cheapest; `first` where it is as cheap, and the best one before any other that is."""
        known = {name: cost(costs[name]) for name in (best, *allowed) if costs[name].are_known}
        limit = min(known.values(), default=0.0) * _ALIKE
        alike = [name for name in known if known[name] <= limit]
        return first if first in alike else alike[0] if alike else best

    training = least(lambda each: each.training)
    ranking = least(lambda each: each.ranking, training)
    return Cheapest(best, is_winner, measure, test, tests, costs, training, ranking, pairs)


def _plain(number: float) -> str:
    """A time in two digits, without an exponent."""
    return "less than 0.001" if number < 0.001 else f"{number:.0f}" if number >= 100 else f"{number:.2g}"
