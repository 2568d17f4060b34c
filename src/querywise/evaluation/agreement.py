"""Agreement of cheap labels with human ones: by grade, by kind of pair, and where cheap labels favor one system.

All intervals are bootstrap intervals over queries, drawn with one fixed seed: queries are the sampled unit, and the
pairs of a query are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querywise.data.judgements import Grades
from querywise.data.run_columns import Run
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate_run, own_order
from querywise.evaluation.rankings import by_quarter
from querywise.evaluation.significance import paired_t_test
from querywise.measures.order import find_flavour
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.values import JsonObject

DRAWS = 2_000
_BLOCK = 4_000_000  # numbers drawn at a time
_GRADES = 20  # most grades that two sets of labels may have together
_CONFIDENCE = 0.95
_RANKS = ((1, 1), (2, 3), (4, 10), (11, 30))
_DEPTH, _JUDGED = "judged@10", 0.9  # the share of a system's top ten that should have human labels
_FIRST = 10  # a system is credited with the documents in its top ten

Statistic = Callable[[Floats], Floats]  # sums over queries, one row per draw → one number per draw


class Interval(NamedTuple):
    """An estimate with its interval; NaN where it cannot be estimated."""

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The estimate and its interval, to three decimals."""
        if np.isnan(self.value):
            return ""
        return f"{self.value:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


@dataclass(frozen=True)
class Slice:
    """The pairs of one kind.

    Attributes:
        bias: The mean of the cheap grade minus the human grade.
        leaning: The bias relative to all other pairs of the same human grade; zero for a judge that errs at random.

    """

    kind: str
    name: str
    pairs: int
    queries: int
    human: float
    bias: Interval
    leaning: Interval


@dataclass(frozen=True)
class SystemPair:
    """Two systems: their mean difference by either set of labels, and the bias of the cheap labels.

    Attributes:
        cheap: The mean difference on all queries with cheap labels; `p` is that of its paired t-test.
        bias: The cheap difference minus the human one, on queries with both.

    """

    first: str
    second: str
    measure: str
    cheap: float
    p: float
    human: float
    bias: Interval
    needed: int | None

    @property
    def answer(self) -> str:
        """Whether the cheap labels may decide between the two: yes, no or unknown."""
        if np.sign(self.cheap - self.bias.low) == np.sign(self.cheap - self.bias.high) == np.sign(self.cheap) != 0:
            return "yes"
        return "no" if self.bias.low > 0 or self.bias.high < 0 else "unknown"

    def said(self, queries: int) -> str:
        """Describe the pair in a sentence."""
        pair, by = f"{self.first} and {self.second}", f"{self.measure} {self.cheap:+.4f} by cheap labels"
        lies = f"{self.bias.low:+.4f} to {self.bias.high:+.4f}"
        if self.answer == "yes":
            luck = (
                ""
                if self.p < 1 - _CONFIDENCE
                else f" That difference may still be luck of the queries (p = {self.p:.2f})."
            )
            return (
                f"Yes, these labels may choose between {pair}: {by}, of which their bias is {lies}; that does not turn "
                f"it.{luck}"
            )
        if self.answer == "no":
            favored = self.first if self.bias.value > 0 else self.second
            return (
                f"No, these labels may not choose between {pair}: they favor {favored}, by {lies}, and the difference "
                f"that they see is {self.cheap:+.4f} ({self.human:+.4f} by people)."
            )
        more = "" if self.needed is None else f" About {self.needed:,} human queries would tell."
        return (
            f"Nobody knows yet whether these labels may choose between {pair}: {by}, of which their bias may be {lies} "
            f"({counted(queries, 'query')} with both labels).{more}"
        )


@dataclass(frozen=True)
class Agreement:
    """The agreement of two sets of labels on the same pairs.

    Attributes:
        confusion: Counts, human grades × cheap grades.
        measures: Same grade, kappa, weighted kappa, kappa of relevance, and bias.

    """

    pairs: int
    queries: int
    cheap_alone: int
    human_alone: int
    grades: tuple[int, ...]
    confusion: Ints
    right: tuple[Interval, ...]
    measures: dict[str, Interval]
    slices: tuple[Slice, ...]
    choices: tuple[SystemPair, ...]
    cautions: tuple[str, ...] = ()

    def said(self) -> list[str]:
        """Summarize the agreement in sentences."""
        leaning = [
            f"By {each.kind}, cheap labels lean {'to' if each.leaning.value > 0 else 'away from'} {each.name}: "
            f"{each.leaning.text} grades against other pairs that people gave the same grade."
            for each in self.slices
            if each.leaning.low > 0 or each.leaning.high < 0
        ]
        if leaning:
            leaning.append(f"Of {counted(len(self.slices), 'kind')} of pairs one in twenty leans so by chance.")
        found = [*(each.said(self.queries) for each in self.choices), *leaning]
        if not self.choices:
            found.append("Whether these labels may choose between two systems, only their runs tell: name two or more.")
        return [*found, *self.cautions]

    def as_json(self) -> JsonObject:
        """Return everything as JSON."""
        return {
            "pairs": self.pairs,
            "queries": self.queries,
            "cheap_alone": self.cheap_alone,
            "human_alone": self.human_alone,
            "grades": list(self.grades),
            "confusion": self.confusion.tolist(),
            "measures": {name: _plain(each) for name, each in self.measures.items()},
            "slices": [
                {**asdict(each), "bias": _plain(each.bias), "leaning": _plain(each.leaning)} for each in self.slices
            ],
            "choices": [{**asdict(each), "bias": _plain(each.bias), "answer": each.answer} for each in self.choices],
            "said": self.said(),
        }


def _plain(found: Interval) -> JsonObject | None:
    return None if np.isnan(found.value) else found._asdict()


def agree(
    cheap: Grades,
    human: Grades,
    *,
    runs: Sequence[Run] = (),
    classes: Mapping[str, str] | None = None,
    words: Mapping[str, int] | None = None,
    lengths: Mapping[str, int] | None = None,
    measure: str = "ndcg@10",
    relevant_from: int = 1,
) -> Agreement:
    """Compare two sets of labels.

    Args:
        cheap: Query → document → grade.
        human: The same by people; a random sample of the queries.
        runs: The runs of the systems to choose between.
        classes: The class of every query.
        words: The number of words of every query.
        lengths: The number of words of every document.
        measure: The measure by which systems are compared.
        relevant_from: The lowest grade that is relevant.

    Returns:
        An Agreement.

    Raises:
        DataError: If fewer than two queries have a document with both labels, or there are too many grades.

    """
    pairs = _Pairs.of(cheap, human)
    every = sum(map(len, cheap.values())), sum(map(len, human.values()))
    levels = len(pairs.grades)
    cells = pairs.summed(pairs.human_level * levels + pairs.cheap_level, levels * levels)
    values = np.array(pairs.grades, np.float64)
    relevant = values >= relevant_from
    measures = {
        "same grade": _interval(cells, lambda sums: _same(_square(sums))),
        "kappa": _interval(cells, lambda sums: _kappa(_square(sums), (values[:, None] != values).astype(np.float64))),
        "weighted kappa": _interval(cells, lambda sums: _kappa(_square(sums), (values[:, None] - values) ** 2)),
        f"kappa of grade {relevant_from} and above": _interval(
            cells,
            lambda sums: _kappa(
                _square(sums),
                (relevant[:, None] != relevant).astype(np.float64),
            ),
        ),
        "bias (cheap grade less human grade)": _interval(
            cells, lambda sums: np.einsum("bhc,hc->b", _square(sums), values - values[:, None]) / sums.sum(axis=1)
        ),
    }
    confusion = cells.sum(axis=0).reshape(levels, levels).astype(np.int64)
    right = tuple(_interval(cells, _right_of(level, levels)) for level in range(levels))
    slices = tuple(_slices(pairs, runs, classes, words, lengths))
    choices = tuple(_choices(cheap, human, runs, measure)) if len(runs) > 1 else ()
    count = len(pairs.owner)
    alone = every[0] - count, every[1] - count
    cautions = tuple(_cautions(pairs, human, runs))
    return Agreement(count, pairs.queries, *alone, pairs.grades, confusion, right, measures, slices, choices, cautions)


def _cautions(pairs: _Pairs, human: Grades, runs: Sequence[Run]) -> Iterator[str]:
    """Yield warnings about labels on different scales and systems whose top documents lack human labels."""
    most = [pairs.grades[int(levels.max())] for levels in (pairs.cheap_level, pairs.human_level)]
    if most[0] != most[1]:
        yield (
            f"Caution: the highest cheap grade is {most[0]} and the highest human one {most[1]}; weighted kappa and "
            "bias compare grades as numbers."
        )
    both = {query: human[query] for query in pairs.query_ids}
    for run in runs:
        share = float(evaluate_run(run, both, measures=_DEPTH)[_DEPTH].mean())
        if share < _JUDGED:
            yield (
                f"Caution: people judged {share:.0%} of the first ten documents of {run.name}; what nobody judged "
                "counts as not relevant."
            )


class _Pairs(NamedTuple):
    """The pairs with both labels, grouped by query."""

    query_ids: tuple[str, ...]
    documents: tuple[str, ...]
    owner: Ints
    grades: tuple[int, ...]
    human_level: Ints
    cheap_level: Ints

    @property
    def queries(self) -> int:
        return len(self.query_ids)

    @property
    def human(self) -> Floats:
        return np.array(self.grades, np.float64)[self.human_level]

    @property
    def cheap(self) -> Floats:
        return np.array(self.grades, np.float64)[self.cheap_level]

    def summed(self, place: Ints, width: int, values: Floats | None = None) -> Floats:
        """Return queries × width: counts, or sums of values."""
        flat = np.bincount(self.owner * width + place, weights=values, minlength=self.queries * width)
        return flat.reshape(self.queries, width).astype(np.float64)

    @staticmethod
    def of(cheap: Grades, human: Grades) -> _Pairs:
        shared = sorted(query for query, own in human.items() if any(each in cheap.get(query, {}) for each in own))
        if len(shared) < 2:
            raise DataError(
                f"{len(shared)} of {counted(len(human), 'query')} that people judged have a document with both labels; "
                f"two or more are needed. The first judged by people is {next(iter(human), None)!r}, the first with "
                f"cheap labels {next(iter(cheap), None)!r}. Do the files belong together?"
            )
        rows = [
            (number, document, grade, cheap[query][document])
            for number, query in enumerate(shared)
            for document, grade in human[query].items()
            if document in cheap[query]
        ]
        grades = tuple(sorted({grade for row in rows for grade in row[2:]}))
        if len(grades) > _GRADES:
            raise DataError(f"The labels have {len(grades)} different grades together; expected {_GRADES} at most.")
        level = {grade: number for number, grade in enumerate(grades)}
        owner, human_level, cheap_level = (
            np.array(each, np.int64)
            for each in zip(*((row[0], level[row[2]], level[row[3]]) for row in rows), strict=True)
        )
        return _Pairs(tuple(shared), tuple(row[1] for row in rows), owner, grades, human_level, cheap_level)


@lru_cache(1)
def _draws(queries: int) -> tuple[NDArray[np.uint16], ...]:
    """Return how often each query is drawn, in blocks of draws; the first row has every query once."""
    chance, share = np.random.default_rng(51), np.full(queries, 1 / queries)
    block = max(1, _BLOCK // queries)
    sizes = [min(block, DRAWS - first) for first in range(0, DRAWS, block)]
    drawn = (chance.multinomial(queries, share, size=size).astype(np.uint16) for size in sizes)
    return (np.ones((1, queries), np.uint16), *drawn)


def _interval(sums: Floats, statistic: Statistic, confidence: float = _CONFIDENCE) -> Interval:
    """Return a statistic of sums over queries with its percentile interval."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.concatenate([statistic(weights.astype(np.float64) @ sums) for weights in _draws(len(sums))])
    drawn = found[1:][np.isfinite(found[1:])]
    if not np.isfinite(found[0]) or not len(drawn):
        return Interval(np.nan, np.nan, np.nan)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(found[0]), float(low), float(high))


def _square(sums: Floats) -> Floats:
    levels = int(np.sqrt(sums.shape[1]))
    return sums.reshape(len(sums), levels, levels)


def _same(tables: Floats) -> Floats:
    same: Floats = np.trace(tables, axis1=1, axis2=2) / tables.sum(axis=(1, 2))
    return same


def _right_of(level: int, levels: int) -> Statistic:
    def share(sums: Floats) -> Floats:
        own = _square(sums)[:, level]
        found: Floats = own[:, level] / own.sum(axis=1)
        return found

    return share


def _kappa(tables: Floats, loss: Floats) -> Floats:
    """Return Cohen's kappa: 1 − Σ loss · share / Σ loss · the share expected of independent labels."""
    shares = tables / tables.sum(axis=(1, 2), keepdims=True)
    chance = np.einsum("bh,bc->bhc", shares.sum(axis=2), shares.sum(axis=1))
    kappa: Floats = 1 - np.einsum("bhc,hc->b", shares, loss) / np.einsum("bhc,hc->b", chance, loss)
    return kappa


def _slices(
    pairs: _Pairs,
    runs: Sequence[Run],
    classes: Mapping[str, str] | None,
    words: Mapping[str, int] | None,
    lengths: Mapping[str, int] | None,
) -> Iterator[Slice]:
    """Yield slices by class of query, length, rank and system: each group of pairs against the others."""
    if classes:
        own = np.array([classes.get(query) or "none" for query in pairs.query_ids])[pairs.owner]
        yield from _sliced(pairs, "kind of query", {name: own == name for name in sorted(set(own.tolist()))})
    if words and all(query in words for query in pairs.query_ids):
        count = np.array([words[query] for query in pairs.query_ids])
        masks = {name: each[pairs.owner] for name, each in by_quarter(count).items()}
        yield from _sliced(pairs, "words of the query", masks)
    if lengths:
        known = np.array([lengths.get(document, -1) for document in pairs.documents])
        masks = {}
        if (known >= 0).any():
            for name, chosen in by_quarter(known[known >= 0]).items():
                masks[name] = np.zeros(len(known), np.bool_)
                masks[name][np.flatnonzero(known >= 0)[chosen]] = True
        yield from _sliced(pairs, "words of the document", masks)
    if runs:
        ranks = np.array([_ranks(pairs, run) for run in runs])
        best = ranks.min(axis=0)
        masks = {f"{low} to {high}" if low < high else f"{low}": (low <= best) & (best <= high) for low, high in _RANKS}
        masks[f"below {_RANKS[-1][1]}"] = (best > _RANKS[-1][1]) & np.isfinite(best)
        yield from _sliced(pairs, "best rank", masks | {"in no run": ~np.isfinite(best)})
        first = ranks <= _FIRST
        finders: Ints = np.sum(first, axis=0)
        masks = {
            f"{run.name} alone" if len(runs) > 1 else run.name: first[number] & (finders == 1)
            for number, run in enumerate(runs)
        }
        if len(runs) > 1:
            masks["all of them"] = finders == len(runs)
        yield from _sliced(pairs, f"system that found it in its first {_FIRST}", masks | {"none": finders == 0})


def _ranks(pairs: _Pairs, run: Run) -> Floats:
    """Return the rank of every pair's document in a run; infinite if the run does not have it."""
    flavour = find_flavour("standard")
    places = [
        {document: place for place, document in enumerate(own_order(run.scores.get(query, {}), flavour), start=1)}
        for query in pairs.query_ids
    ]
    found = zip(pairs.owner.tolist(), pairs.documents, strict=True)
    return np.array([places[owner].get(document, np.inf) for owner, document in found])


def _sliced(pairs: _Pairs, kind: str, masks: Mapping[str, Bools]) -> Iterator[Slice]:
    """Yield a slice for every non-empty group, if there are at least two."""
    masks = {name: mask for name, mask in masks.items() if mask.any()}
    if len(masks) < 2:
        return
    levels, off = len(pairs.grades), pairs.cheap - pairs.human
    for name, mask in masks.items():
        place = np.where(mask, 0, levels) + pairs.human_level
        sums = np.hstack([pairs.summed(place, 2 * levels), pairs.summed(place, 2 * levels, off)])
        yield Slice(
            kind,
            name,
            int(mask.sum()),
            len(np.unique(pairs.owner[mask])),
            float(pairs.human[mask].mean()),
            _interval(sums, _bias),
            _interval(sums, _leaning),
        )


def _bias(sums: Floats) -> Floats:
    count, off = np.split(sums, 2, axis=1)
    levels = count.shape[1] // 2
    bias: Floats = off[:, :levels].sum(axis=1) / count[:, :levels].sum(axis=1)
    return bias


def _leaning(sums: Floats) -> Floats:
    """Return a group's mean bias minus that of the others at each human grade, weighted by the group's pairs."""
    count, off = np.split(sums, 2, axis=1)
    levels = count.shape[1] // 2
    both = (count[:, :levels] > 0) & (count[:, levels:] > 0)
    gap = np.where(both, off[:, :levels] / count[:, :levels] - off[:, levels:] / count[:, levels:], 0.0)
    weight = np.where(both, count[:, :levels], 0.0)
    found: Floats = (gap * weight).sum(axis=1) / weight.sum(axis=1)
    return found


def _choices(cheap: Grades, human: Grades, runs: Sequence[Run], measure: str) -> Iterator[SystemPair]:
    """Yield every pair of runs; the bias intervals hold for all pairs together (Bonferroni)."""
    both = sorted(query for query in human if query in cheap)
    top = {query: human[query] for query in both}
    by_cheap = {run.name: evaluate_run(run, cheap, measures=measure)[measure] for run in runs}
    by_human = {run.name: evaluate_run(run, top, measures=measure)[measure] for run in runs}
    place = {query: row for row, query in enumerate(cheap)}
    rows, names = np.array([place[query] for query in both]), [run.name for run in runs]
    pairs = list(combinations(names, 2))
    for first, second in pairs:
        seen, true = by_cheap[first] - by_cheap[second], by_human[first] - by_human[second]
        off = seen[rows] - true
        columns = np.column_stack([off, np.ones(len(off))])
        bias = _interval(columns, lambda sums: sums[:, 0] / sums[:, 1], 1 - (1 - _CONFIDENCE) / len(pairs))
        room, half = abs(float(seen.mean()) - bias.value), (bias.high - bias.low) / 2
        needed = int(np.ceil(len(off) * (half / room) ** 2)) if 0 < room < half and half < 1e3 * room else None
        test = paired_t_test(by_cheap[first], by_cheap[second])
        yield SystemPair(first, second, measure, test.difference, test.p, float(true.mean()), bias, needed)
