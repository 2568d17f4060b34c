"""The job of `querywise boosts`: learn field boosts from judged queries, and test them on others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from querywise.data.collections import Collection
from querywise.data.fields import Fields, FieldSpec
from querywise.data.folds import Fold, make_folds, split_queries
from querywise.data.judged import Judged, concatenate
from querywise.data.rows import rows_of
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.significance import Corrected, corrected, paired_t_test
from querywise.evaluation.tuning import tune
from querywise.exports.target import ByFields, FieldLayout
from querywise.exports.targets import TARGETS
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.measures.formulas import find_measure
from querywise.retrieval.boosts import COMBINED, FORMS, MOST, TIED, Boosts, FieldMatches, equal_boosts, matches_of
from querywise.retrieval.boosts import read_boosts as read_boosts_file
from querywise.retrieval.reading import Retrieval, indexed_text
from querywise.retrieval.words import Tokeniser
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.files import atomic_text
from querywise.runtime.progress import track
from querywise.runtime.values import JsonObject, json_text

_L2 = (0.001, 0.01, 0.1, 1.0, 10.0)
_COARSE, _FINE = (0.0, 0.25, 0.5, 2.0, 4.0), (0.7, 1.4)  # factors that a boost is multiplied by
_TIES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
_PASSES = 6  # most passes over all fields
_MOST = 2_000  # queries that a search uses


@dataclass(frozen=True)
class Learning:
    """How boosts are learned and tested.

    Attributes:
        forms: The forms to compare.
        form: The form to write; None is most_fields, unless another's gain over it exceeds one standard error.
        measure: The measure to optimize and test.

    """

    forms: tuple[str, ...] = FORMS
    form: str | None = None
    measure: str = "ndcg@10"
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (*self.forms, *filter(None, [self.form])):
            if name not in FORMS:
                raise DataError(f"Unknown form {name!r}. Known: {', '.join(FORMS)}.")
        if self.form is not None and self.form not in self.forms:
            raise DataError(f"form={self.form!r} is to be written, but is not among those compared.")
        find_measure(self.measure)


@dataclass(frozen=True)
class LearnedBoosts:
    """The learned boosts and their tests.

    Attributes:
        boosts: The boosts to write, learned from all judged queries.
        every: The same for every form.
        equal, learned: By form, the measure of every query with equal boosts, and with boosts learned from other
            queries.
        own: The measure with the user's own boosts.
        tests: Learned against equal boosts, and against the user's, for every form, under one correction.
        tokeniser: How text became terms.

    """

    boosts: Boosts
    every: dict[str, Boosts]
    judged: Judged
    equal: dict[str, Floats]
    learned: dict[str, Floats]
    own: Floats | None
    tests: dict[tuple[str, str], Corrected]
    tokeniser: Tokeniser

    def as_json(self) -> JsonObject:
        """Return the content of `boosts.json`: the boosts, their requests, and the tests."""
        return {
            **self.boosts.as_json(),
            "requests": requests(self.boosts),
            "indexes": indexes(list(self.boosts.boosts), self.tokeniser),
            "queries": len(self.judged),
            "forms": {
                name: {
                    **each.as_json(),
                    "requests": requests(each),
                    "equal": float(self.equal[name].mean()),
                    "learned": float(self.learned[name].mean()),
                    **({} if self.own is None else {"own": float(self.own.mean())}),
                    "tests": {
                        against: dict(zip(("difference", "p", "p_holm"), test.numbers, strict=True))
                        for (form, against), test in self.tests.items()
                        if form == name
                    },
                }
                for name, each in self.every.items()
            },
        }


EQUAL, OWN = "equal", "own"  # baselines of the tests


def requests(boosts: Boosts) -> JsonObject:
    """Return the request of every engine that can combine fields this way, by the engine's name."""
    made = {name: each.request(boosts) for name, each in _searching().items() if each.request is not None}
    return {name: request for name, request in made.items() if request is not None}


def indexes(names: Sequence[str], tokeniser: Tokeniser) -> JsonObject:
    """Return the index definition of every engine with our terms, by the engine's name."""
    layout = FieldLayout(Fields(tuple(FieldSpec(name, "text") for name in names)))
    return {name: each.index(layout, tokeniser) for name, each in _searching().items() if each.index is not None}


def _searching() -> dict[str, ByFields]:
    """Return the engines that search by boosts."""
    known = {name: target.fields for name, target in TARGETS.items() if target.fields is not None}
    return {name: each for name, each in known.items() if each.request is not None}


def learn(
    data: Path | Collection, how: Retrieval, asked: Learning, own: Path | None = None, judgements: Path | None = None
) -> LearnedBoosts:
    """Learn boosts of a text collection's fields, and test them on queries that they were not learned from."""
    collection, index = indexed_text(data, how, judgements=judgements)
    judged, matches = matches_of(
        collection, index, candidates=how.candidates, top=how.top, skip_unknown=how.skip_unknown
    )
    if len(matches.names) < 2:
        raise DataError(f"{data}: boosts weigh fields with words against each other; found {len(matches.names)} such.")
    theirs = None if own is None else read_boosts_file(own, matches.names)
    return _tested(judged, matches, asked, theirs, index.tokeniser)


def _tested(
    judged: Judged, matches: FieldMatches, asked: Learning, own: Boosts | None, tokeniser: Tokeniser
) -> LearnedBoosts:
    folds = make_folds(judged, folds=asked.folds, seed=asked.seed)
    row = {query: number for number, query in enumerate(judged.query_ids)}
    learned = {name: np.zeros(len(judged)) for name in asked.forms}
    for fold in track(folds, "Boosts"):
        part = _Part(judged, matches, asked.measure)
        for name, boosts in part.learn(fold, asked).items():
            tested = [row[query] for query in fold.test.query_ids]
            learned[name][tested] = part.measured(fold.test, boosts)
    whole = _Part(judged, matches, asked.measure)
    equal = {name: whole.measured(judged, equal_boosts(name, matches.names)) for name in asked.forms}
    theirs = None if own is None else whole.measured(judged, own)
    tests = {(name, EQUAL): paired_t_test(learned[name], equal[name]) for name in asked.forms}
    if theirs is not None:
        tests |= {(name, OWN): paired_t_test(learned[name], theirs) for name in asked.forms}
    first = folds[0]  # all queries: one part of them to choose by
    every = whole.learn(Fold(concatenate([first.train, first.test]), first.valid, first.test), asked)
    chosen = asked.form or _chosen(learned)
    return LearnedBoosts(every[chosen], every, judged, equal, learned, theirs, corrected(tests), tokeniser)


def _chosen(learned: dict[str, Floats]) -> str:
    """Return the simplest form, unless another's mean gain on held-out queries exceeds one standard error."""
    best = MOST if MOST in learned else next(iter(learned))
    usual, highest = learned[best], 0.0
    for name, values in learned.items():
        gain = values - usual
        if gain.mean() > max(highest, _error(gain)):
            best, highest = name, float(gain.mean())
    return best


def _error(gain: Floats) -> float:
    return float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else np.inf


@dataclass(frozen=True)
class _Part:
    """Queries of a judged set, with their matches by id."""

    judged: Judged
    matches: FieldMatches
    measure: str

    def rows(self, data: Judged) -> Ints:
        place = {query: number for number, query in enumerate(self.judged.query_ids)}
        return rows_of(self.judged.candidates.starts, np.array([place[query] for query in data.query_ids], np.int64))

    def measured(self, data: Judged, boosts: Boosts) -> Floats:
        """Return the measure of every query of a part of the set."""
        return _measured(data, self.matches.select(self.rows(data)), self.measure, boosts)

    def learn(self, fold: Fold, asked: Learning) -> dict[str, Boosts]:
        """Learn boosts of every form, from the training and the validation part."""
        names = self.matches.names
        bounded = partial(RankSVM, nonnegative=True)
        svm = tune(bounded, {"l2": _L2}, train=fold.train, valid=fold.valid, measure=self.measure).ranker
        weights = np.where(svm.weights_ > 0, svm.weights_, 0.0) if svm.weights_.any() else np.ones(len(names))
        summed = Boosts(MOST, dict(zip(names, weights.tolist(), strict=True))).rounded
        known = concatenate([fold.train, fold.valid])
        if len(known) > _MOST:
            known = split_queries(known, share=_MOST / len(known), seed=asked.seed)[0]
        found = self.matches.select(self.rows(known))
        score = partial(_measured, known, found, self.measure)
        return {
            name: summed if name == MOST else _searched(score, [equal_boosts(name, names), _of_form(summed, name)])
            for name in asked.forms
        }


def _measured(data: Judged, matches: FieldMatches, measure: str, boosts: Boosts) -> Floats:
    return evaluate(matches.scores(boosts), data, measures=[measure], order="grouped")[measure]


def _of_form(boosts: Boosts, form: str) -> Boosts:
    """Convert the boosts of a sum to another form."""
    if form != COMBINED:
        return replace(boosts, form=form)
    most = {name: max(value, 1.0) if value else 0.0 for name, value in boosts.boosts.items()}
    return Boosts(form, most)


def _searched(score: Callable[[Boosts], Floats], starts: Sequence[Boosts]) -> Boosts:
    """Search boosts by coordinates: from the best start, one boost or the tie breaker at a time, by factors.

    A step is taken if its mean paired gain exceeds one standard error.
    """
    values = [score(each) for each in starts]
    first = int(np.argmax([each.mean() for each in values]))
    best, reached = starts[first], values[first]
    for factors in (_COARSE, _FINE):
        for _ in range(_PASSES):
            before = best
            for coordinate in [*best.boosts, *([None] if best.form in TIED else [])]:
                for tried in list(_moves(best, coordinate, factors)):
                    found = score(tried)
                    gain = found - reached
                    if gain.mean() > _error(gain):
                        best, reached = tried, found
            if best is before:
                break
    return best.rounded


def _moves(boosts: Boosts, name: str | None, factors: Sequence[float]) -> Iterable[Boosts]:
    """Yield the boosts with one boost, or the tie breaker, changed."""
    if name is None:
        yield from (replace(boosts, tie=tie) for tie in _TIES if tie != boosts.tie)
        return
    now = boosts.boosts[name]
    others = [value for other, value in boosts.boosts.items() if value and other != name]
    for factor in factors:
        value = now * factor if now else factor * min(others)  # a field that was dropped comes back
        if boosts.form == COMBINED and value:
            value = max(value, 1.0)
        if value != now and (value or others):
            yield replace(boosts, boosts={**boosts.boosts, name: float(f"{value:.3g}")})


def write(learned: LearnedBoosts, out: Path) -> None:
    """Write `boosts.json`."""
    with atomic_text(out) as file:
        file.write(json_text(learned.as_json()))


def said(learned: LearnedBoosts, measure: str) -> str:
    """Describe the measurement in a sentence."""
    queries = counted(len(learned.judged), "judged query", "judged queries")
    return f"{measure} on {queries}, each ranked by boosts learned from others; paired t-tests, Holm for all of them."
