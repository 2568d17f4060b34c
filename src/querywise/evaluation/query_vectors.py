"""Whether training the query vectors helped: retrieval by plain and adapted vectors, and methods that use each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np

from querywise.display.words import counted, p_in_words
from querywise.evaluation.compare import Compared
from querywise.evaluation.evaluate import Evaluation, evaluate_run
from querywise.evaluation.rankings import by_quarter
from querywise.evaluation.significance import TEST_NAMES, Comparison, Corrected, corrected, find_test
from querywise.retrieval.adapted_vectors import FEWEST
from querywise.retrieval.adapting import Taught
from querywise.retrieval.features import ADAPTED
from querywise.retrieval.lists import VECTORS
from querywise.runtime.arrays import Floats
from querywise.runtime.values import JsonObject

_DEEP = 100  # the largest depth of recall


class VectorLists(NamedTuple):
    """Retrieval by vectors alone, evaluated: by the queries' own vectors, and by adapted ones."""

    plain: Evaluation
    adapted: Evaluation

    def tested(self, test: str) -> dict[str, Corrected]:
        """Return the paired test of every measure, with Holm's correction for their number."""
        measures = self.plain.measures
        return corrected({each: find_test(test)(self.adapted[each], self.plain[each]) for each in measures})


class DistanceGroup(NamedTuple):
    """Test queries at a similar distance to their nearest training query, and their gain."""

    cosines: str
    plain: float
    adapted: float
    gain: Comparison

    @property
    def queries(self) -> int:
        """The number of these queries."""
        return self.gain.wins + self.gain.ties + self.gain.losses


@dataclass(frozen=True, eq=False)
class VectorGains:
    """What training the query vectors gained.

    Attributes:
        taught: What each fold learned.
        nearest: The cosine of every test query to the nearest training query of its fold.
        by_method: If methods were also trained with plain vectors: each one's mean then, and the paired test against
            that, with Holm's correction for the methods.
        by_size: The lists with fewer training queries, if there are curves.

    """

    lists: VectorLists
    taught: tuple[Taught, ...]
    nearest: Floats
    measure: str
    test: str
    by_method: Mapping[str, tuple[float, Corrected]] = field(default_factory=dict)
    by_size: Mapping[int, VectorLists] = field(default_factory=dict)

    @property
    def gains(self) -> Floats:
        """The gain of every test query."""
        gained: Floats = self.lists.adapted[self.measure] - self.lists.plain[self.measure]
        return gained

    @property
    def moved(self) -> list[int]:
        """The folds that move queries."""
        return [fold for fold, each in enumerate(self.taught) if each.adapter.adapts]

    @property
    def groups(self) -> list[DistanceGroup]:
        """The test queries in four groups, those nearest to a training query last."""
        plain, adapted = (each[self.measure] for each in self.lists)
        return [
            DistanceGroup(
                label,
                float(plain[own].mean()),
                float(adapted[own].mean()),
                find_test(self.test)(adapted[own], plain[own]),
            )
            for label, own in by_quarter(self.nearest).items()
        ]

    @property
    def said(self) -> list[str]:
        """Sentences on whether training helped, by how much, for which queries, and what was chosen."""
        few = [each.adapter.teachers_ for each in self.taught if each.adapter.gain_ is None]
        if not self.moved and len(few) == len(self.taught) and max(few) < FEWEST:
            many = f"{min(few)} to {max(few)}" if min(few) < max(few) else f"{max(few)}"
            return [
                f"Teaching the query vectors was not tried: it takes {FEWEST} judged queries to learn from, and each "
                f"fold has {many}. They stay as they are."
            ]
        if not self.moved:
            why = "; ".join(dict.fromkeys(each.adapter.how() for each in self.taught))
            return [f"Teaching the query vectors does not help here: in every fold they were {why}."]
        return [self._verdict(), *self._by_distance(), self._folds(), *self._methods()]

    def _verdict(self) -> str:
        found = self.lists.tested(self.test)
        main = found[self.measure]
        said = {1: "helps", 0: "makes no significant difference", -1: "hurts"}[main.side]
        test, many = main.found, f", Holm's correction for {len(found)} measures" if len(found) > 1 else ""
        recall = next(each for each in found if each.startswith("recall@"))
        of = {each: f"{each} {self._mean(0, each):.4f} → {self._mean(1, each):.4f}" for each in (self.measure, recall)}
        told = f"{p_in_words(main.p_holm)}, {TEST_NAMES[self.test]}{many}"
        return (
            f"Teaching the query vectors {said}: ranked by vectors alone, {of[self.measure]} "
            f"({test.difference:+.4f}, {told}){'' if recall == self.measure else f' and {of[recall]}'}. "
            f"Of {counted(len(self.nearest), 'test query', 'test queries')} {test.wins} gain, {test.losses} lose and "
            f"{test.ties} stay as they were."
        )

    def _by_distance(self) -> list[str]:
        groups = self.groups
        if len(groups) < 2:
            return []
        far, near = groups[0], groups[-1]
        return [
            f"The {near.queries} queries nearest to a training query (cosine {near.cosines}) change by "
            f"{near.gain.difference:+.4f} on average, the {far.queries} farthest ({far.cosines}) by "
            f"{far.gain.difference:+.4f}."
        ]

    def _folds(self) -> str:
        every, moved = len(self.taught), len(self.moved)
        if moved == every:
            return f"Queries were moved in {'every fold' if every > 1 else 'the fold'}."
        left = [fold for fold in range(every) if fold not in self.moved]
        why = "; ".join(f"fold {fold + 1}, {self.taught[fold].adapter.how()}" for fold in left)
        return f"Queries were moved in {moved} of {every} folds ({why})."

    def _methods(self) -> list[str]:
        sides = {side: [name for name, (_, each) in self.by_method.items() if each.side == side] for side in (1, -1)}
        if not self.by_method:
            return []
        if len(self.by_method) == 1:
            ((name, (before, test)),) = self.by_method.items()
            after, told = before + test.found.difference, f"{p_in_words(test.p_holm)}, {TEST_NAMES[self.test]}"
            return [
                f"Trained both ways, {name} has {self.measure} {before:.4f} with vectors as they are and {after:.4f} "
                f"with adapted ones ({test.found.difference:+.4f}, {told})."
            ]
        better, worse = (", ".join(sides[side]) or "none" for side in (1, -1))
        many = counted(len(self.by_method), "method")
        return [f"Of {many} trained both ways, significantly better with adapted vectors: {better}; worse: {worse}."]

    def _mean(self, side: int, measure: str) -> float:
        return float(self.lists[side][measure].mean())

    def as_json(self) -> JsonObject:
        """Return everything as JSON."""
        tests = self.lists.tested(self.test)
        return {
            "said": self.said,
            "folds": [each.adapter.how() for each in self.taught],
            "lists": {
                name: {"plain": self._mean(0, name), "adapted": self._mean(1, name), **_numbers(each)}
                for name, each in tests.items()
            },
            "by_cosine": {
                each.cosines: {"plain": each.plain, "adapted": each.adapted, **asdict(each.gain)}
                for each in self.groups
            },
            "methods": {name: {"plain": mean, **_numbers(each)} for name, (mean, each) in self.by_method.items()},
            "by_size": {
                str(size): {
                    "plain": float(each.plain[self.measure].mean()),
                    **_numbers(each.tested(self.test)[self.measure]),
                }
                for size, each in self.by_size.items()
            },
        }


def _numbers(each: Corrected) -> JsonObject:
    return dict(zip(("difference", "p", "p_holm"), each.numbers, strict=True))


def lists_of(compared: Compared) -> VectorLists | None:
    """Return the evaluation of retrieval by vectors alone; None if query vectors do not learn."""
    runs = {run.name: run for run in compared.judged.runs}
    if not compared.taught or not {VECTORS, ADAPTED} <= set(runs) or compared.judged.gains is not None:
        return None
    deep = min(_DEEP, max((len(own) for own in runs[VECTORS].scores.values()), default=0))
    measures = tuple(dict.fromkeys((*compared.measures, f"recall@{max(deep, 1)}")))
    grades, flavour = compared.judgements, compared.flavour
    return VectorLists(
        *(evaluate_run(runs[name], grades, measures=measures, flavour=flavour) for name in (VECTORS, ADAPTED))
    )


def vector_gains(
    compared: Compared, measure: str, *, test: str = "t", plain: Compared | None = None
) -> VectorGains | None:
    """Return what training the query vectors gained in a comparison; None if they do not learn.

    `plain` is a comparison of the same methods on the same folds with plain vectors.
    """
    lists = lists_of(compared)
    if lists is None:
        return None
    both = {} if plain is None else {name: plain.evaluations[name][measure] for name in plain.names}
    tests = corrected({name: find_test(test)(compared.evaluations[name][measure], each) for name, each in both.items()})
    by_method = {name: (float(each.mean()), tests[name]) for name, each in both.items()}
    nearest = np.concatenate([each.nearest for each in compared.taught])
    return VectorGains(lists, compared.taught, nearest, measure, test, by_method)
