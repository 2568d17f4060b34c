"""Interleaving: one list drawn from two or more rankings, and which of them is credited for a click.

Team-draft interleaving (Radlinski, Kurup and Joachims, CIKM 2008), and its form for more rankings, team-draft
multileaving (Schuth et al., CIKM 2014): in every round the rankings pick in random order, each its best document that
is not in the list yet. Exchanging two rankings mirrors every draw, so that equal rankings are treated equally.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from operator import lt
from typing import NamedTuple

from querywise.errors import DataError

DEPTH = 100  # documents that are drawn; those below are in the order of the first ranking
MOST_RANKINGS = 5
_MOST_STATES = 1_000  # of a draw, each with its probability


class Draw(NamedTuple):
    """An interleaved list: its documents, and the number of the ranking credited for each, or None."""

    documents: tuple[str, ...]
    teams: tuple[int | None, ...]


def interleave(rankings: Sequence[Sequence[str]], seed: bytes, top: int | None = None) -> Draw:
    """Draw one list from rankings of document ids, best first.

    Args:
        rankings: The rankings.
        seed: The same seed gives the same list on any machine.
        top: The number of documents; None for all.

    Returns:
        The list. Once a ranking has no document left, no ranking is credited for what follows: the others would have
        more positions.

    >>> interleave([["a", "b", "c"], ["b", "d", "a"]], b"one", 3)
    Draw(documents=('a', 'b', 'd'), teams=(0, 1, 1))

    """
    check_rankings(rankings)
    most = DEPTH if top is None else min(top, DEPTH)
    picks = most + len(rankings)  # at most: each adds a document, or finds that a ranking has run out
    random = iter(struct.unpack(f">{picks}I", hashlib.shake_128(seed).digest(4 * picks)))
    places = [0] * len(rankings)
    teams: dict[str, int | None] = {}
    credited = True
    while len(teams) < most:
        waiting = []
        for team, ranking in enumerate(rankings):
            place, end = places[team], len(ranking)
            while place < end and ranking[place] in teams:
                place += 1
            places[team] = place
            if place < end:
                waiting.append(team)
        if not waiting:
            break
        credited = credited and len(waiting) == len(rankings)
        while waiting and len(teams) < most:
            team = waiting.pop(next(random) * len(waiting) >> 32)
            place, ranking = places[team], rankings[team]
            while place < len(ranking) and ranking[place] in teams:
                place += 1
            if place < len(ranking):  # otherwise it ran out within the round
                teams[ranking[place]] = team if credited else None
    for ranking in rankings:
        for document in ranking:
            if top is not None and len(teams) >= top:
                break
            teams.setdefault(document, None)
    return Draw(tuple(teams), tuple(teams.values()))


def check_rankings(rankings: Sequence[Sequence[str]]) -> None:
    """Raise DataError for too few or too many rankings, and for one that repeats a document."""
    if not 2 <= len(rankings) <= MOST_RANKINGS:
        raise DataError(f"{len(rankings)} rankings; expected 2 to {MOST_RANKINGS}.")
    for number, ranking in enumerate(rankings, start=1):
        if len(set(ranking)) < len(ranking):
            twice = Counter(ranking).most_common(1)[0][0]
            raise DataError(f"Ranking {number} has the document {twice!r} twice. Send each document once.")


def propensities(rankings: Sequence[Sequence[str]], documents: Sequence[str]) -> list[float]:
    """Return the probability, over all draws, that each document is at its position; NaN after too many states.

    The documents taken so far are the union of beginnings of the rankings, so that a state is how far each ranking is
    used up, and which rankings still have to pick in this round.

    >>> propensities([["a", "b"], ["b", "a"]], ["b", "a"])
    [0.5, 0.5]
    """
    rankings = [ranking[: len(documents)] for ranking in rankings]  # no pick is further down
    known = [{document: rank for rank, document in enumerate(ranking)} for ranking in rankings]
    ranks = [[[own.get(document, math.inf) for own in known] for document in ranking] for ranking in rankings]
    every = tuple(range(len(rankings)))
    states = {((0,) * len(rankings), every): 1.0}
    found: list[float] = []
    for document in documents:
        following: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = defaultdict(float)
        here = 0.0
        for (places, waiting), chance in states.items():
            able = [team for team in every if places[team] < len(rankings[team])]
            picking = [team for team in waiting if team in able] or able
            for team in picking:
                share = chance / len(picking)
                if rankings[team][places[team]] == document:
                    here += share
                used = (*places[:team], places[team] + 1, *places[team + 1 :])
                settled = tuple([_settled(ranks[each], used[each], used) for each in every])
                following[settled, tuple([each for each in picking if each != team])] += share
        found.append(here)
        states = following
        if len(states) > _MOST_STATES:
            break
    return [*found, *[math.nan] * (len(documents) - len(found))]


def _settled(ranks: Sequence[Sequence[float]], place: int, used: Sequence[int]) -> int:
    """Return the position of a ranking's best document that is not in the list, from a position on.

    Args:
        ranks: of each of the ranking's documents, in all rankings.
        place: the position.
        used: how many of each ranking's first documents are in the list.
    """
    while place < len(ranks) and any(map(lt, ranks[place], used)):
        place += 1
    return place


def credits_of(teams: Iterable[int | None], rankings: int) -> list[int]:
    """Return the number of clicked documents credited to each ranking, from the documents' teams."""
    counts = Counter(teams)
    return [counts[team] for team in range(rankings)]
