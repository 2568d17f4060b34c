from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from querywise.errors import DataError
from querywise.evaluation.significance import (
    TESTS,
    bootstrap_interval,
    effect_size,
    equivalence_test,
    find_test,
    holm,
    paired_t_test,
    randomisation_test,
    wilcoxon_test,
)
from querywise.runtime.arrays import Floats
from tests.worlds import examples

pairs = arrays(np.float64, st.tuples(st.integers(2, 30), st.just(2)), elements=st.floats(0, 1, width=16))
probabilities = st.lists(st.floats(0, 1), max_size=12)


def two_systems(seed: int, queries: int, shift: float = 0.05) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    theirs = rng.random(queries)
    return theirs + shift + 0.1 * rng.normal(size=queries), theirs


def gains_of(*values: float) -> tuple[Floats, Floats]:
    return np.array(values), np.zeros(len(values))


# Against SciPy, and against the definitions


def test_the_equivalence_test_is_the_larger_of_two_one_sided_t_tests() -> None:
    rng = np.random.default_rng(3)
    ours = rng.normal(size=40)
    theirs = ours + rng.normal(0.002, 0.02, 40)
    gain = ours - theirs
    sides = [
        stats.ttest_1samp(gain, -0.01, alternative="greater").pvalue,
        stats.ttest_1samp(gain, 0.01, alternative="less").pvalue,
    ]
    assert equivalence_test(ours, theirs, 0.01).p == pytest.approx(max(sides), rel=1e-9)
    assert equivalence_test(ours, ours + 0.02, 0.01).p == 1.0
    assert equivalence_test(ours[:1], ours[:1], 0.01).p == 1.0, "one query is no evidence"
    with pytest.raises(DataError, match="must be above 0"):
        equivalence_test(ours, theirs, 0.0)


@pytest.mark.parametrize("queries", [2, 3, 10, 100, 1000])
def test_the_t_test_is_scipys(queries: int) -> None:
    ours, theirs = two_systems(queries, queries, shift=0.01)
    expected: Any = stats.ttest_rel(ours, theirs)
    assert paired_t_test(ours, theirs).p == pytest.approx(expected.pvalue, rel=1e-9)


@pytest.mark.parametrize("queries", [2, 5, 20, 60, 400])
def test_the_wilcoxon_test_is_scipys(queries: int) -> None:
    ours, theirs = two_systems(queries, queries, shift=0.01)
    expected: Any = stats.wilcoxon(ours, theirs)
    assert wilcoxon_test(ours, theirs).p == expected.pvalue


@pytest.mark.parametrize("seed", range(4))
def test_the_wilcoxon_test_counts_all_signs_of_few_ranks(seed: int) -> None:
    ours, theirs = two_systems(seed, 9, shift=0.04)
    ranks = stats.rankdata(np.abs(ours - theirs))
    sums = np.array([np.dot(signs, ranks) for signs in itertools.product((-1, 1), repeat=9)])
    observed = abs(np.dot(np.sign(ours - theirs), ranks))
    assert wilcoxon_test(ours, theirs).p == pytest.approx(float(np.mean(np.abs(sums) >= observed)))


@pytest.mark.parametrize(("seed", "queries"), [(0, 2), (1, 5), (2, 9), (3, 13), (4, 14), (5, 40)])
def test_the_wilcoxon_test_is_scipys_where_ranks_are_tied(seed: int, queries: int) -> None:
    ours, theirs = np.random.default_rng(seed).integers(0, 4, (2, queries)) / 4
    expected: Any = stats.wilcoxon(ours, theirs)
    assert wilcoxon_test(ours, theirs).p == pytest.approx(float(expected.pvalue), rel=1e-12)


def test_the_wilcoxon_test_leaves_out_queries_that_do_not_differ() -> None:
    ours, theirs = two_systems(1, 60)
    same = np.full(25, 0.5)
    more = wilcoxon_test(np.concatenate([ours, same]), np.concatenate([theirs, same]))
    assert (more.wins + more.losses, more.ties) == (60, 25)
    assert more.p == pytest.approx(wilcoxon_test(ours, theirs).p)


@pytest.mark.parametrize("seed", range(6))
def test_the_randomisation_test_agrees_with_all_signs_within_its_own_error(seed: int) -> None:
    ours, theirs = two_systems(seed, 10, shift=0.03)

    def difference(one: Floats, two: Floats, axis: int) -> Floats:
        found: Floats = np.mean(one - two, axis=axis)
        return found

    exact: Any = stats.permutation_test((ours, theirs), difference, permutation_type="samples", n_resamples=2**12)
    p = float(exact.pvalue)
    found = randomisation_test(ours, theirs, seed=seed).p
    assert found == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / 10_000) + 2e-4)


def test_more_draws_bring_the_randomisation_test_nearer_to_all_signs() -> None:
    # Of 16 signs only all alike, and all alike but the smallest, reach the sum that was seen.
    ours, theirs = gains_of(0.3, 0.2, 0.1, -0.05)
    assert randomisation_test(ours, theirs, draws=200_000).p == pytest.approx(4 / 16, abs=0.004)


def test_tied_sums_count_as_large_in_the_randomisation_test() -> None:
    # Of the signs of three equal gains a quarter is all alike, though sums of 0.1 are not exact.
    assert randomisation_test(*gains_of(0.1, 0.1, 0.1), draws=50_000).p == pytest.approx(0.25, abs=0.01)


# What holds for every test


@settings(deadline=None, max_examples=examples(50))
@given(values=pairs)
def test_the_randomisation_test_never_gives_0_and_is_repeatable(values: Floats) -> None:
    result = randomisation_test(values[:, 0], values[:, 1], draws=50)
    assert 1 / 51 <= result.p <= 1
    assert result == randomisation_test(values[:, 0], values[:, 1], draws=50)


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_identical_values_are_no_evidence(test: Callable[..., Any]) -> None:
    values = np.random.default_rng(0).random(30)
    result = test(values, values)
    assert (result.p, result.difference) == (1.0, 0.0)
    assert (result.wins, result.ties, result.losses) == (0, 30, 0)


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_swapping_the_systems_changes_the_sign_and_not_the_evidence(test: Callable[..., Any]) -> None:
    ours, theirs = two_systems(3, 40)
    forth, back = test(ours, theirs), test(theirs, ours)
    assert forth.p == pytest.approx(back.p, abs=0.01)
    assert forth.difference == -back.difference
    assert (forth.wins, forth.ties, forth.losses) == (back.losses, back.ties, back.wins)


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_wins_ties_and_losses_are_counted_query_by_query(test: Callable[..., Any]) -> None:
    result = test(np.array([0.5, 0.5, 0.1, 0.9, 0.3]), np.array([0.4, 0.5, 0.2, 0.1, 0.2]))
    assert (result.wins, result.ties, result.losses) == (3, 1, 1)
    assert result.difference == pytest.approx(0.18)


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_a_large_steady_gain_is_found(test: Callable[..., Any]) -> None:
    ours, theirs = two_systems(5, 50, shift=0.5)
    assert test(ours, theirs).p < 0.001


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_chance_alone_is_called_significant_about_one_time_in_twenty(test: Callable[..., Any]) -> None:
    ps = [test(*two_systems(seed, 20, shift=0.0)).p for seed in range(200)]
    assert 0.01 <= np.mean(np.array(ps) < 0.05) <= 0.1


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_one_query_is_no_evidence(test: Callable[..., Any]) -> None:
    assert test(np.array([0.9]), np.array([0.1])).p == 1.0


@pytest.mark.parametrize("compute", [*TESTS.values(), bootstrap_interval, effect_size])
def test_values_of_different_queries_are_refused(compute: Callable[..., Any]) -> None:
    with pytest.raises(DataError, match="same queries: 3 against 2"):
        compute(np.zeros(3), np.zeros(2))


def test_a_test_is_found_by_its_name() -> None:
    assert {name: find_test(name) for name in TESTS} == TESTS
    with pytest.raises(DataError, match=r"Unknown test 'anova'\. Known: t, wilcoxon, randomisation\."):
        find_test("anova")


# The bootstrap interval


def test_the_interval_is_scipys_percentile_interval() -> None:
    ours, theirs = two_systems(2, 80)
    expected: Any = stats.bootstrap((ours - theirs,), np.mean, method="percentile", n_resamples=10_000, rng=1)
    spread = float(np.std(ours - theirs, ddof=1) / np.sqrt(80))
    found = bootstrap_interval(ours, theirs)
    assert found == pytest.approx(tuple(expected.confidence_interval), abs=0.1 * spread)


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(200):
        low, high = bootstrap_interval(*two_systems(seed, 40), seed=seed, draws=400)
        covered += low <= 0.05 <= high
    assert 180 <= covered <= 199


@settings(deadline=None, max_examples=examples(50))
@given(values=pairs)
def test_the_interval_holds_the_mean_and_lies_within_the_gains(values: Floats) -> None:
    ours, theirs = values[:, 0], values[:, 1]
    low, high = bootstrap_interval(ours, theirs, draws=500)
    gains = ours - theirs
    assert gains.min() - 1e-12 <= low <= gains.mean() + 1e-12
    assert gains.mean() - 1e-12 <= high <= gains.max() + 1e-12


def test_a_wider_confidence_gives_a_wider_interval() -> None:
    ours, theirs = two_systems(2, 30)
    wide, narrow = (bootstrap_interval(ours, theirs, confidence=share) for share in (0.99, 0.5))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_the_interval_is_the_same_every_time_and_another_with_another_seed() -> None:
    ours, theirs = two_systems(2, 30)
    assert bootstrap_interval(ours, theirs) == bootstrap_interval(ours, theirs)
    assert bootstrap_interval(ours, theirs) != bootstrap_interval(ours, theirs, seed=1)


def test_many_queries_are_drawn_in_blocks_that_fit_into_memory() -> None:
    ours, theirs = two_systems(7, 60_000)
    low, high = bootstrap_interval(ours, theirs, draws=100)
    assert low < float(np.mean(ours - theirs)) < high
    assert randomisation_test(ours, theirs, draws=100).p == 1 / 101


def test_no_query_is_no_difference() -> None:
    nothing = np.zeros(0)
    assert bootstrap_interval(nothing, nothing) == (0.0, 0.0)
    assert effect_size(nothing, nothing) == 0.0
    assert [test(nothing, nothing).p for test in TESTS.values()] == [1.0, 1.0, 1.0]


# Effect size


def test_the_effect_is_the_mean_difference_in_its_standard_deviations() -> None:
    ours, theirs = two_systems(4, 25)
    gains = [one - two for one, two in zip(ours.tolist(), theirs.tolist(), strict=True)]
    mean = sum(gains) / 25
    spread = (sum((gain - mean) ** 2 for gain in gains) / 24) ** 0.5
    assert effect_size(ours, theirs) == pytest.approx(mean / spread)
    assert effect_size(theirs, ours) == pytest.approx(-mean / spread)
    assert effect_size(ours, ours) == 0.0


def test_the_effect_does_not_grow_with_the_number_of_queries_but_the_evidence_does() -> None:
    ours, theirs = two_systems(4, 25, shift=0.02)
    more = np.tile(ours, 8), np.tile(theirs, 8)
    assert effect_size(*more) == pytest.approx(effect_size(ours, theirs), rel=0.03)
    assert paired_t_test(*more).p < paired_t_test(ours, theirs).p


# Holm's correction


def by_definition(ps: list[float]) -> list[float]:
    """Each p times how many are not below it, and never less than what a smaller one got."""
    steps = [min(1.0, sum(other >= p for other in ps) * p) for p in ps]
    return [max(step for step, other in zip(steps, ps, strict=True) if other <= p) for p in ps]


@settings(deadline=None)
@given(ps=probabilities)
def test_holm_is_its_definition(ps: list[float]) -> None:
    assert holm(ps) == by_definition(ps)


@settings(deadline=None)
@given(ps=probabilities)
def test_holm_keeps_the_order_and_never_makes_a_p_smaller(ps: list[float]) -> None:
    corrected = holm(ps)
    assert all(before <= after <= 1 for before, after in zip(ps, corrected, strict=True))
    ordered = [after for _, after in sorted(zip(ps, corrected, strict=True))]
    assert ordered == sorted(corrected)


@settings(deadline=None)
@given(ps=probabilities, seed=st.integers(0, 100))
def test_holm_does_not_depend_on_the_order_of_the_methods(ps: list[float], seed: int) -> None:
    turn = np.random.default_rng(seed).permutation(len(ps)).tolist()
    corrected = holm(ps)
    assert holm([ps[place] for place in turn]) == [corrected[place] for place in turn]


@settings(deadline=None)
@given(ps=probabilities)
def test_holm_calls_significant_what_the_steps_do(ps: list[float]) -> None:
    called = 0
    for place, p in enumerate(sorted(ps)):
        if (len(ps) - place) * p >= 0.05:
            break
        called += 1
    assert sum(each < 0.05 for each in holm(ps)) == called


def test_holm_lies_between_no_correction_and_bonferronis() -> None:
    assert holm([]) == []
    assert holm([0.03]) == [0.03]
    assert holm([0.01, 0.01, 0.01]) == [0.03, 0.03, 0.03]
    assert holm([0.9, 0.8, 0.0]) == [1.0, 1.0, 0.0]
