"""Interleaving against all its draws, written down one by one, and the sequential test against its definition."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import beta

from querywise.errors import DataError
from querywise.online.interleaving import DEPTH, Draw, credits_of, interleave, propensities
from querywise.online.verdict import PRIOR, course_of, draws_needed, log_e_value, win_rates
from tests.worlds import examples

documents = st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)
several = st.lists(documents, min_size=2, max_size=3)


def every_draw(rankings: Sequence[Sequence[str]], top: int) -> dict[Draw, float]:
    """Every list that team-draft can give, with its chance: by rounds, as the papers have it."""
    found: dict[Draw, float] = defaultdict(float)

    def round_after(shown: tuple[str, ...], teams: tuple[int | None, ...], credited: bool, chance: float) -> None:
        left = [team for team, ranking in enumerate(rankings) if set(ranking) - set(shown)]
        if not left or len(shown) >= top:
            found[Draw(shown[:top], teams[:top])] += chance
            return
        credited = credited and len(left) == len(rankings)
        orders = list(itertools.permutations(left))
        for order in orders:
            now, own = list(shown), list(teams)
            for team in order:
                free = [document for document in rankings[team] if document not in now]
                if free:
                    now.append(free[0])
                    own.append(team if credited else None)
            round_after(tuple(now), tuple(own), credited, chance / len(orders))

    round_after((), (), True, 1.0)
    return found


def seeds(count: int) -> list[bytes]:
    return [number.to_bytes(8, "big") for number in range(count)]


@settings(max_examples=examples(100))
@given(several)
def test_every_draw_is_one_of_team_drafts(rankings: list[list[str]]) -> None:
    possible = every_draw(rankings, 4)
    assert sum(possible.values()) == pytest.approx(1)
    for seed in seeds(20):
        drawn = interleave(rankings, seed, 4)
        assert drawn in possible
        assert drawn == interleave(rankings, seed, 4)


@settings(max_examples=examples(100))
@given(several)
def test_propensities_are_sums_over_all_draws(rankings: list[list[str]]) -> None:
    possible = every_draw(rankings, 6)
    for draw in possible:
        expected = [
            sum(chance for other, chance in possible.items() if other.documents[place : place + 1] == (document,))
            for place, document in enumerate(draw.documents)
        ]
        assert propensities(rankings, draw.documents) == pytest.approx(expected)


@pytest.mark.parametrize("rankings", [["abc", "bda"], ["abcd", "abcd"], ["ab", "cdef"], ["abc", "cab", "bca"]])
def test_draws_come_as_often_as_they_should(rankings: list[str]) -> None:
    possible, count = every_draw(rankings, 4), 6_000
    seen: dict[Draw, int] = defaultdict(int)
    for seed in seeds(count):
        seen[interleave(rankings, seed, 4)] += 1
    for draw, chance in possible.items():
        assert abs(seen[draw] - count * chance) < 5 * math.sqrt(count * chance * (1 - chance)) + 1e-9


@settings(max_examples=examples(50))
@given(documents, st.integers(2, 3))
def test_equal_rankings_have_every_position_equally_often(ranking: list[str], teams: int) -> None:
    possible = every_draw([ranking] * teams, len(ranking))
    for place in range(len(ranking)):
        for team in range(teams):
            own = sum(chance for draw, chance in possible.items() if draw.teams[place] == team)
            assert own == pytest.approx(1 / teams)


@settings(max_examples=examples(50))
@given(documents, documents)
def test_exchanging_two_rankings_mirrors_every_draw(first: list[str], second: list[str]) -> None:
    mirrored = {
        Draw(draw.documents, tuple(None if team is None else 1 - team for team in draw.teams)): chance
        for draw, chance in every_draw([second, first], 5).items()
    }
    assert mirrored == pytest.approx(every_draw([first, second], 5))


def test_documents_below_the_depth_follow_the_first_ranking() -> None:
    names = [f"d{number}" for number in range(DEPTH + 30)]
    drawn = interleave([names, names[::-1]], b"any")
    assert sorted(drawn.documents) == sorted(names)
    assert drawn.teams[DEPTH:] == (None,) * 30
    below = [names.index(each) for each in drawn.documents[DEPTH:]]
    assert below == sorted(below)
    assert credits_of(drawn.teams[:DEPTH], 2) == [DEPTH // 2, DEPTH // 2]
    assert len(propensities([names, names[::-1]], drawn.documents[:DEPTH])) == DEPTH


def test_what_cannot_be_interleaved_is_refused() -> None:
    with pytest.raises(DataError, match="1 rankings; expected 2 to 5"):
        interleave([["a"]], b"")
    with pytest.raises(DataError, match="Ranking 2 has the document 'a' twice"):
        interleave([["a"], ["a", "b", "a"]], b"")


# When to stop


counts = st.integers(0, 3_000)
rates = st.floats(0.01, 0.99)


@given(counts, counts, rates)
def test_e_is_a_martingale_from_one(wins: int, losses: int, rate: float) -> None:
    after = np.exp(
        log_e_value(np.array([wins + 1, wins]), np.array([losses, losses + 1]), rate)
        - log_e_value(np.array(wins), np.array(losses), rate)
    )
    assert rate * after[0] + (1 - rate) * after[1] == pytest.approx(1)
    assert log_e_value(np.array(0), np.array(0), rate) == 0


def test_e_is_the_mixture_of_likelihood_ratios() -> None:
    expected = beta(PRIOR + 12, PRIOR + 7) / beta(PRIOR, PRIOR) / (0.4**12 * 0.6**7)
    assert np.exp(log_e_value(np.array(12), np.array(7), 0.4)) == pytest.approx(expected)


@settings(max_examples=examples(100))
@given(counts, counts, st.floats(0.001, 0.3))
@example(71, 1, 0.001)
def test_the_confidence_sequence_is_where_e_is_small(wins: int, losses: int, alpha: float) -> None:
    low, high = (float(each) for each in win_rates(np.array(wins), np.array(losses), alpha))

    def lowest(wins: int, losses: int) -> float:
        def above(rate: float) -> float:
            return float(log_e_value(np.array(wins), np.array(losses), rate) + math.log(alpha))

        return float(brentq(above, 1e-300, wins / (wins + losses))) if wins else 0.0

    middle = wins / (wins + losses) if wins + losses else 0.5
    assert low <= middle <= high
    assert low == pytest.approx(lowest(wins, losses), abs=1e-9)
    assert high == pytest.approx(1 - lowest(losses, wins), abs=1e-9)  # near 1 there are fewer numbers than near 0
    decided = log_e_value(np.array(wins), np.array(losses)) >= -math.log(alpha)
    assert decided == (not low < 0.5 < high)


def test_false_alarms_are_rare_however_often_one_looks() -> None:
    rng = np.random.default_rng(0)
    runs = [course_of(rng.random(3_000) < 0.5) for _ in range(2_000)]
    alarms = sum(run.decided is not None for run in runs)
    assert 0 < alarms <= 0.05 * len(runs)


def test_the_true_rate_is_in_the_confidence_sequence_at_every_look() -> None:
    rng = np.random.default_rng(1)
    wins = np.cumsum(rng.random((1_000, 1_000)) < 0.56, axis=1, dtype=np.int64)
    below = log_e_value(wins, np.arange(1, 1_001) - wins, 0.56) < -math.log(0.05)
    assert (~below).any(axis=1).mean() <= 0.05


def test_the_draws_needed_decide_in_four_of_five_runs() -> None:
    rng = np.random.default_rng(2)
    for rate in (0.55, 0.4):
        needed = draws_needed(rate)
        assert needed is not None
        runs = [course_of(rng.random(needed) < rate) for _ in range(500)]
        right = np.mean([run.is_better is (rate > 0.5) for run in runs])
        assert 0.78 < right < 0.95
    assert draws_needed(0.5) is None
    assert draws_needed(0.3) == draws_needed(0.7)


def test_a_decision_stays_as_it_was_made() -> None:
    won = np.array([True] * 40 + [False] * 400)
    course = course_of(won)
    assert course.decided == 28
    assert course.is_better
    assert course_of(won[:28]).decided is None
    assert course_of(won[:0]).is_better is None
    with pytest.raises(DataError, match="between 0 and 1"):
        course_of(won, alpha=1.5)
