"""What to judge next: documents on which the systems' rankings differ, sampled so that estimates stay unbiased.

A difference of two systems by DCG@k or P@k is a sum over documents, Σ_qd w_qd g_qd / Q, where w is the discount that
the first system gives a document minus the second's, and g its gain. Document i gets the share p_i ∝ w̄_i · √E g_i²,
where w̄ is the root mean square of w over all pairs of systems, mixed with a uniform share, and the priority u_i / p_i,
u uniform in (0, 1). Documents are judged in order of priority, the lowest first. With the first n judged, and t the
priority of the next one, a document was among them with probability π_i = min(1, p_i t), and

    d̂_q = Σ_i w_i g_i / π_i  (judged documents of query q)

is unbiased for every query, with uncorrelated errors (priority sampling). So the paired t-test over the d̂_q accounts
for the sampling of both queries and documents. Documents judged before the draw have π = 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from querywise.data.judgements import Grades
from querywise.data.run_columns import Run
from querywise.display.words import counted, p_in_words
from querywise.errors import DataError
from querywise.evaluation.evaluate import own_order
from querywise.evaluation.significance import SIGNIFICANT, paired_t_test
from querywise.measures.order import find_flavour
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.values import JsonObject

UNIFORM = 0.2  # part of the shares that is the same for all documents
_SMOOTHING = 5.0  # the prior guess of a gain weighs as much as this many judged documents
_MEASURE = ("dcg", "p")
_POWER = 0.8416  # the normal quantile of 80 %


class Pair(NamedTuple):
    """A document for a query, its share of the draw, and its priority: 0 if it was judged before."""

    query: str
    document: str
    share: float
    priority: float


@dataclass(frozen=True)
class Standing:
    """The comparison of two systems by the judgments so far."""

    first: str
    second: str
    difference: float
    error: float
    p: float
    needed: int | None  # total judgments that would probably decide; None if these queries cannot suffice

    @property
    def is_decided(self) -> bool:
        """Whether the test is significant."""
        return self.p < SIGNIFICANT

    def said(self, measure: str, judged: int) -> str:
        """Describe the comparison in a sentence."""
        luck = f"{measure} {self.difference:+.4f}, standard error {self.error:.4f}, {p_in_words(self.p)}"
        if self.is_decided:
            better, other = (self.first, self.second) if self.difference > 0 else (self.second, self.first)
            return f"{better} is better than {other}: {luck}."
        if not judged:
            return f"{self.first} and {self.second}: nothing of the draw is judged yet."
        if self.needed is None:
            more = "other queries are needed, more judgments of these hardly make it surer"
        else:
            more = f"about {max(self.needed - judged, 1):,} more judgments may decide"
        return f"{self.first} and {self.second} are not decided ({luck}); {more}."


@dataclass(frozen=True)
class Estimated:
    """The comparisons of all pairs of systems after some judgments of the draw."""

    measure: str
    queries: int
    judged: int
    left: int
    out_of_turn: int
    standings: tuple[Standing, ...]

    def said(self) -> list[str]:
        """Summarize the comparisons in sentences."""
        told = [f"{self.judged:,} of {counted(self.judged + self.left, 'document')} drawn are judged."]
        if self.out_of_turn:
            told.append(
                f"{counted(self.out_of_turn, 'judgment')} out of turn counted nothing: judge in the file's order."
            )
        return told + [each.said(self.measure, self.judged) for each in self.standings]

    def as_json(self) -> JsonObject:
        """Return everything as JSON."""
        return {
            "measure": self.measure,
            "queries": self.queries,
            "judged": self.judged,
            "left": self.left,
            "out_of_turn": self.out_of_turn,
            "standings": [
                {
                    "first": each.first,
                    "second": each.second,
                    "difference": each.difference,
                    "error": each.error,
                    "p": each.p,
                    "decided": each.is_decided,
                    "needed": each.needed,
                }
                for each in self.standings
            ],
            "said": self.said(),
        }


def draw(
    runs: Sequence[Run],
    known: Grades,
    *,
    measure: str = "dcg@10",
    cheap: Grades | None = None,
    uniform: float = UNIFORM,
    seed: int = 0,
) -> list[Pair]:
    """Order all documents in any system's top k by how informative their judgments would be.

    Args:
        runs: The systems, two or more.
        known: Existing judgments, used unchanged.
        measure: dcg@k or p@k.
        cheap: Cheap labels, if any, from which gains are predicted.
        uniform: The part of the shares that is the same for all documents.
        seed: Another seed gives another draw; so does any new judgment.

    Returns:
        The documents judged before, then the rest, the lowest priority first.

    """
    pool = _Pool.of(runs, measure)
    if not 0 < uniform <= 1:
        raise DataError(f"uniform={uniform:g}: expected a share above 0, up to 1.", arguments=("uniform",))
    grades = [known.get(query, {}).get(document) for query, document in pool.names]
    before = np.array([grade is not None for grade in grades], np.bool_)
    differences = [pool.weights[a] - pool.weights[b] for a, b in combinations(range(len(runs)), 2)]
    useful = np.sqrt(np.mean(np.square(differences), axis=0)) * np.sqrt(_expected(pool, grades, cheap))
    rest = ~before
    shares = np.zeros(len(grades))
    total = useful[rest].sum()
    if rest.any():
        even = 1 / rest.sum()
        shares[rest] = uniform * even + (1 - uniform) * (useful[rest] / total if total > 0 else even)
    priorities = np.zeros(len(grades))
    # Existing judgments may come from an earlier draw, on which the new one must not depend.
    drawn = hashlib.sha256(repr((seed, [pool.names[row] for row in np.flatnonzero(before)])).encode()).hexdigest()
    priorities[rest] = np.array([_uniform(drawn, *pool.names[row]) for row in np.flatnonzero(rest)]) / shares[rest]
    order = np.lexsort((np.arange(len(grades)), priorities))
    return [
        Pair(pool.names[row][0], pool.names[row][1], float(shares[row]), float(priorities[row]))
        for row in order.tolist()
    ]


def estimate(runs: Sequence[Run], pairs: Sequence[Pair], grades: Grades, *, measure: str = "dcg@10") -> Estimated:
    """Estimate every difference from the judged documents of a draw, weighted by inclusion probability."""
    pool = _Pool.of(runs, measure)
    rows = {name: row for row, name in enumerate(pool.names)}
    stray = next((each for each in pairs if (each.query, each.document) not in rows), None)
    if stray is not None or len(pairs) != len(rows):
        what = f"has {len(pairs)} pairs" if stray is None else f"has {stray.document!r} of query {stray.query!r}"
        raise DataError(
            f"The draw {what}, and the first documents of these runs are {len(rows)} pairs: it was made of other runs, "
            "or for another measure. Draw again."
        )
    place = np.array([rows[each.query, each.document] for each in pairs], np.int64)
    found = [grades.get(each.query, {}).get(each.document) for each in pairs]
    drawn = [number for number, each in enumerate(pairs) if each.priority > 0]
    count = next((number for number in drawn if found[number] is None), len(pairs))
    sure = np.ones(len(pairs))
    if count < len(pairs):
        sure = np.minimum(1.0, np.array([each.share for each in pairs]) * pairs[count].priority)
    lacking = next((pairs[number] for number in range(count) if found[number] is None), None)
    if lacking is not None:
        raise DataError(
            f"Document {lacking.document!r} of query {lacking.query!r} was judged when the draw was made, and is not "
            "now. Draw again."
        )
    gains = np.array([pool.gain(grade or 0) for grade in found[:count]])
    chance = np.where([each.priority > 0 for each in pairs[:count]], sure[:count], 1.0)
    judged = sum(number < count for number in drawn)
    standings = tuple(_standings(runs, pool, place[:count], gains, chance, judged, len(drawn)))
    out_of_turn = sum(grade is not None for grade in found[count:])
    return Estimated(measure, len(pool.queries), judged, len(drawn) - judged, out_of_turn, standings)


def _standings(
    runs: Sequence[Run], pool: _Pool, rows: Ints, gains: Floats, chance: Floats, judged: int, drawn: int
) -> Iterator[Standing]:
    count = len(pool.queries)
    for a, b in combinations(range(len(runs)), 2):
        parts = (pool.weights[a] - pool.weights[b])[rows] * gains / chance
        values: Floats = np.bincount(pool.owner[rows], weights=parts, minlength=count).astype(np.float64)
        luck = float(np.sum(parts**2 * (1 - chance))) / count**2  # variance from sampling documents
        found = paired_t_test(values, np.zeros(count))
        error = float(values.std(ddof=1) / np.sqrt(count)) if count > 1 else float("nan")
        needed = _needed(abs(found.difference), error**2, min(luck, error**2), judged, drawn)
        yield Standing(runs[a].name, runs[b].name, found.difference, error, found.p, needed)


def _needed(difference: float, error: float, luck: float, judged: int, drawn: int) -> int | None:
    """Return after how many judgments the test has power 80 %, if the documents' variance falls as 1 / n."""
    allowed = (difference / (1.96 + _POWER)) ** 2 - (error - luck)
    if allowed <= 0 or not judged:
        return None
    return min(int(np.ceil(judged * luck / allowed)), drawn)


class _Pool(NamedTuple):
    """Every document in some system's top k, grouped by query: discounts by system, and the best rank."""

    queries: tuple[str, ...]
    names: tuple[tuple[str, str], ...]
    owner: Ints
    weights: Floats  # systems × documents
    best: Ints
    binary: bool

    def gain(self, grade: int) -> float:
        """Return the gain of a grade."""
        return float(grade > 0) if self.binary else 2.0 ** max(grade, 0) - 1

    @staticmethod
    def of(runs: Sequence[Run], measure: str) -> _Pool:
        name, _, text = measure.partition("@")
        if name not in _MEASURE or not (text.isdecimal() and 1 <= int(text) <= 1000):
            raise DataError(
                f"measure={measure!r}: expected dcg@k or p@k. Documents can be drawn by chance for measures that are "
                "sums over documents alone; NDCG and MAP also depend on documents that are not judged.",
                arguments=("measure",),
            )
        if len(runs) < 2 or len({run.name for run in runs}) < len(runs):
            raise DataError("Two runs or more, of different names, are needed: judgments are to decide between them.")
        depth, flavour = int(text), find_flavour("standard")
        queries = tuple(dict.fromkeys(query for run in runs for query in run.scores))
        ranks: list[dict[tuple[str, str], int]] = [
            {
                (query, document): rank
                for query, scores in run.scores.items()
                for rank, document in enumerate(own_order(scores, flavour)[:depth], start=1)
            }
            for run in runs
        ]
        place = {query: number for number, query in enumerate(queries)}
        names = sorted({pair for own in ranks for pair in own}, key=lambda pair: (place[pair[0]], pair[1]))
        table = np.array([[own.get(pair, 0) for pair in names] for own in ranks], np.int64)
        there: Bools = table > 0
        discounts = 1 / np.log2(table + 1, where=there, out=np.ones(table.shape)) if name == "dcg" else 1 / depth
        best = np.where(there, table, depth + 1).min(axis=0)
        owner = np.array([place[query] for query, _ in names], np.int64)
        return _Pool(queries, tuple(names), owner, np.where(there, discounts, 0.0), best, name == "p")


def _expected(pool: _Pool, grades: Sequence[int | None], cheap: Grades | None) -> Floats:
    """Return the expected square of every gain, from judged documents of the same rank or cheap grade."""
    if cheap is None:
        levels = np.minimum(np.floor(np.log2(pool.best)), 5).astype(np.int64)
        guess = {int(level): 1 / (1 + float(level)) for level in np.unique(levels)}
    else:
        levels = np.array([max(cheap.get(query, {}).get(document, 0), 0) for query, document in pool.names], np.int64)
        guess = {int(level): pool.gain(int(level)) ** 2 + 0.1 for level in np.unique(levels)}
    found = np.zeros(len(levels))
    squares = np.array([np.nan if grade is None else pool.gain(grade) ** 2 for grade in grades])
    for level in guess:
        same = levels == level
        judged = squares[same & ~np.isnan(squares)]
        found[same] = (judged.sum() + _SMOOTHING * guess[level]) / (len(judged) + _SMOOTHING)
    return found


def _uniform(seed: str, query: str, document: str) -> float:
    """Return a number in (0, 1) that depends only on the seed and the names."""
    digest = hashlib.sha256(f"{seed}\0{query}\0{document}".encode(errors="surrogatepass")).digest()
    return (int.from_bytes(digest[:7]) + 0.5) / 2.0**56
