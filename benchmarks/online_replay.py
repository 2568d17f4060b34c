"""Semi-simulated users: false alarms, impressions needed and power of interleaving with an e-value, and of A/B tests.

`python -m benchmarks.online_replay ../shared/data/msrd` lets made-up users click on lists of a real collection, by its
human labels: a document at position p is looked at with chance 1/p and, if it is, clicked with chance 0.9 if it is
relevant and 0.1 if not. Ranker A is BM25 of all fields; B orders a share of the queries by BM25 of the title, which
gets more clicks, and the others as A does. Queries come with long-tailed frequency. It is a simulation: nobody clicked.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from benchmarks.semisimulated import few_of_each, placed
from querywise.online.interleaving import interleave
from querywise.online.verdict import ALPHA, course_of
from querywise.runtime.arrays import Bools, Floats, Ints

_SHOWN = 10
_POOL = 32  # draws of every query, and as many mirrored, so that none of two equal rankings is favored
_PER_DAY = 500  # impressions, in an A/B test of both arms together
_DAYS = 28
_POWER = 0.8
_LONGEST = 60_000  # impressions, of an experiment with a better ranker
SHARES = (0.1, 0.2, 0.4, 0.7, 1.0)  # of the queries that B orders in its own way


class Pages(NamedTuple):
    """Lists to show: of A, of B and interleaved ones, by query, as relevance by position; teams: 0, 1 or -1."""

    first: Bools
    second: Bools
    drawn: Bools
    teams: Ints
    frequency: Floats


def main() -> None:
    """Run all, and print the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--runs", type=int, default=2_000)
    options.add_argument("--power-runs", type=int, default=100)
    options.add_argument("--part", choices=("validation", "test"), default="test")
    asked = options.parse_args()
    lists = rankings_of(asked.folder, asked.part)
    print(f"{len(lists)} queries, {_PER_DAY} impressions a day, {_DAYS} days, {asked.runs} runs", flush=True)
    equal = pages_of([(a, a) for a, _ in lists])
    print("A = A, experiments that end with a false alarm (nominal 5 %):")
    for name, share in false_alarms(equal, asked.runs) if asked.runs else ():
        print(f"  {name}: {share:.2%}", flush=True)
    print("B better, by the share of queries that it orders in its own way:")
    for share in SHARES:
        chosen = np.random.default_rng(1).random(len(lists)) < share
        pages = pages_of([(a, b if own else a) for (a, b), own in zip(lists, chosen.tolist(), strict=True)])
        print(f"  {share:.0%}: " + "; ".join(gains(pages, asked.power_runs)), flush=True)


def rankings_of(folder: Path, part: str) -> list[tuple[list[int], list[int]]]:
    """The labels of every query's documents in the order of A and of B, each with the number of its document."""
    data, own = placed(folder)
    test = data.select(
        few_of_each(data, np.flatnonzero((own >= 0.5) & (own < 0.7) if part == "validation" else own >= 0.7))
    )
    names = test.feature_names or ()
    columns = [names.index(each) for each in ("H1.bm25", "L10.title")]
    found = []
    for query in range(len(test)):
        rows = test.candidates.rows(query)
        scores, labels = test.candidates.features[rows][:, columns], test.labels[rows]
        orders = [np.argsort(-scores[:, column], kind="stable") for column in (0, 1)]
        if labels.any():
            found.append(tuple([2 * int(row) + int(labels[row] > 0) for row in order] for order in orders))
    return found  # type: ignore[return-value]


def pages_of(lists: list[tuple[list[int], list[int]]]) -> Pages:
    """Everything that can be shown for every query; a document's last bit is its label."""

    def relevance(documents: list[int]) -> list[bool]:
        return [bool(each & 1) for each in documents[:_SHOWN]] + [False] * (_SHOWN - len(documents))

    drawn, teams = [], []
    for query, (a, b) in enumerate(lists):
        names = [[str(each) for each in own] for own in (a, b)]
        for number in range(2 * _POOL):
            mirrored = number >= _POOL
            seed = f"{query} {number % _POOL}".encode()
            draw = interleave(names[::-1] if mirrored else names, seed, _SHOWN)
            own = [-1 if team is None else int(team) ^ mirrored for team in draw.teams]
            drawn.append(relevance([int(each) for each in draw.documents]))
            teams.append(own + [-1] * (_SHOWN - len(own)))
    shape = len(lists), 2 * _POOL, _SHOWN
    chance = np.random.default_rng(0).permutation(1 / np.arange(1, len(lists) + 1) ** 0.7)
    one, two = (np.array([relevance(own[arm]) for own in lists]) for arm in (0, 1))
    return Pages(one, two, np.array(drawn).reshape(shape), np.array(teams).reshape(shape), chance / chance.sum())


def _clicked(relevant: Bools, chance: np.random.Generator) -> Bools:
    looked = 1 / np.arange(1, _SHOWN + 1)
    found: Bools = chance.random(relevant.shape) < looked * np.where(relevant, 0.9, 0.1)
    return found


def interleaved(pages: Pages, count: int, chance: np.random.Generator) -> Ints:
    """Of every impression: 1 if B won it, -1 if A did, 0 without a winner."""
    query = chance.choice(len(pages.frequency), count, p=pages.frequency)
    number = chance.integers(2 * _POOL, size=count)
    clicked, teams = _clicked(pages.drawn[query, number], chance), pages.teams[query, number]
    found: Ints = np.sign((clicked & (teams == 1)).sum(axis=1) - (clicked & (teams == 0)).sum(axis=1))
    return found


def split(pages: Pages, count: int, chance: np.random.Generator) -> tuple[Floats, Bools]:
    """An A/B test: clicks of every impression, and whether it was B's."""
    query, is_b = chance.choice(len(pages.frequency), count, p=pages.frequency), chance.random(count) < 0.5
    shown = np.where(is_b[:, None], pages.second[query], pages.first[query])
    return _clicked(shown, chance).sum(axis=1).astype(np.float64), is_b


def daily(values: Floats, is_b: Bools) -> Floats:
    """The p of Welch's t-test on all impressions so far, at the end of every day."""
    ends = np.arange(_PER_DAY, len(values) + 1, _PER_DAY)
    moments = []
    for own in (is_b, ~is_b):
        sums = [np.cumsum(np.where(own, values**power, 0.0))[ends - 1] for power in (0, 1, 2)]
        mean = sums[1] / sums[0]
        moments.append((sums[0], mean, (sums[2] / sums[0] - mean**2) * sums[0] / (sums[0] - 1)))
    (n, mean, var), (m, other, rest) = moments
    return np.asarray(2 * stats.norm.sf(np.abs(mean - other) / np.sqrt(var / n + rest / m)))


def false_alarms(pages: Pages, runs: int) -> Iterator[tuple[str, float]]:
    """Each way to decide, and the share of experiments with equal rankings in which it does."""
    count, alarms = _PER_DAY * _DAYS, np.zeros(4)
    for run in range(runs):
        chance = np.random.default_rng([7, run])
        won = interleaved(pages, count, chance)
        alarms[0] += course_of(won[won != 0] > 0).decided is not None
        ends = np.arange(_PER_DAY, count + 1, _PER_DAY) - 1
        wins, losses = np.cumsum(won > 0)[ends], np.cumsum(won < 0)[ends]
        p = 2 * stats.norm.sf(np.abs(wins - losses) / np.sqrt(wins + losses))
        alarms[1] += (p < ALPHA).any()
        p = daily(*split(pages, count, chance))
        alarms[2] += (p < ALPHA).any()
        alarms[3] += p[-1] < ALPHA
    names = (
        "interleaving, e-value, looked at after every impression",
        "interleaving, sign test looked at daily",
        "A/B, t-test looked at daily",
        "A/B, t-test looked at once, at the end",
    )
    return zip(names, (alarms / runs).tolist(), strict=True)


def gains(pages: Pages, runs: int) -> Iterator[str]:
    """The true gain, and how many impressions each way needs to decide in 80 % of the runs."""
    chance = np.random.default_rng(3)
    query = chance.choice(len(pages.frequency), 400_000, p=pages.frequency)
    values = [_clicked(own[query], chance).sum(axis=1) for own in (pages.first, pages.second)]
    gain, spread = values[1].mean() - values[0].mean(), float(np.mean([each.var() for each in values]))
    yield f"clicks a page {values[0].mean():.3f} and {values[1].mean():.3f}"
    won = interleaved(pages, 200_000, chance)
    yield f"B wins {np.mean(won[won != 0] > 0):.1%} of the {np.mean(won != 0):.0%} of draws with a winner"
    needed = []
    for run in range(runs):
        won = interleaved(pages, _LONGEST, np.random.default_rng([11, run]))
        places = np.flatnonzero(won)
        course = course_of(won[places] > 0)
        right = course.decided is not None and course.is_better
        needed.append(float(places[course.decided] + 1) if right and course.decided is not None else math.inf)
    typical, most = np.quantile(needed, [0.5, _POWER], method="inverted_cdf")
    within = np.mean(np.array(needed) <= _PER_DAY * _DAYS)
    yield f"e-value: {most:,.0f} impressions for power 80 % (median {typical:,.0f})"
    yield f"decided within {_DAYS} days: {within:.0%}"
    z = stats.norm.ppf(1 - ALPHA / 2) + stats.norm.ppf(_POWER)
    fixed = 4 * spread * (z / gain) ** 2
    yield f"A/B of fixed size, told the true gain before: {fixed:,.0f} impressions, {fixed / most:.1f} times as many"


if __name__ == "__main__":
    main()
