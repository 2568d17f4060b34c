from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from querywise.learners.ranksvm.preferences import SQUARED_HINGE, Loss, Preferences, smoothed_hinge
from querywise.runtime.arrays import Floats, Ints

LOSSES = [SQUARED_HINGE, smoothed_hinge(0.5), smoothed_hinge(0.01)]


def loss_of(t: float, loss: Loss) -> tuple[float, float, float]:
    """ℓ(t), ℓ'(t) and whether t lies in the band."""
    if t >= loss.upper:
        return 0.0, 0.0, 0.0
    if t > loss.lower:
        return loss.q * (loss.upper - t) ** 2, -2 * loss.q * (loss.upper - t), 1.0
    width = loss.upper - loss.lower
    return loss.q * width * (loss.upper + loss.lower - 2 * t), -2 * loss.q * width, 0.0


def brute_force(scores: Floats, labels: Ints, starts: Ints, loss: Loss) -> tuple[Floats, Floats, Floats]:
    losses, gradient, degree = np.zeros(len(starts) - 1), np.zeros(len(scores)), np.zeros(len(scores))
    for query in range(len(starts) - 1):
        for a in range(starts[query], starts[query + 1]):
            for b in range(starts[query], starts[query + 1]):
                if labels[a] > labels[b]:
                    value, slope, in_band = loss_of(scores[a] - scores[b], loss)
                    losses[query] += value
                    gradient[a] += slope
                    gradient[b] -= slope
                    degree[a] += in_band
                    degree[b] += in_band
    return losses, gradient, degree


# Scores on a grid of sixteenths: exact in binary, so that ties and margins of exactly 1 happen and are unambiguous.
sizes_of_queries = st.lists(st.integers(0, 9), min_size=1, max_size=4)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Floats, Ints, Ints]:
    sizes = draw(sizes_of_queries)
    rows = sum(sizes)
    scores = draw(arrays(np.int64, rows, elements=st.integers(-64, 64))) / 16.0
    labels = draw(arrays(np.int64, rows, elements=st.sampled_from([0, 1, 2, 7, 1000])))
    return scores, labels, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@given(problems(), st.sampled_from(LOSSES))
@settings(deadline=None)
def test_sums_over_pairs_equal_the_double_loop(problem: tuple[Floats, Ints, Ints], loss: Loss) -> None:
    scores, labels, starts = problem
    preferences = Preferences(np.zeros((len(scores), 1)), labels, starts)
    sums = preferences.sums(scores[preferences.rows], loss)
    # The kernel centres scores, which may move a margin across a kink by rounding; losses and slopes are continuous
    # there for the squared hinge, and degrees are compared away from kinks only.
    losses, gradient, _ = brute_force(scores, labels, starts, loss)
    steep = max(1.0, loss.q)
    assert sums.losses == pytest.approx(losses, abs=1e-8 * steep)
    assert sums.gradient == pytest.approx(gradient[preferences.rows], abs=1e-8 * steep)


@given(problems(), st.sampled_from(LOSSES), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_curvature_is_that_of_the_pairs_in_the_band(problem: tuple[Floats, Ints, Ints], loss: Loss, seed: int) -> None:
    scores, labels, starts = problem
    rng = np.random.default_rng(seed)
    scores = scores + rng.uniform(0.001, 0.03, size=len(scores))  # no margin sits on a kink
    features = rng.normal(size=(len(scores), 3))
    weights = rng.uniform(size=len(starts) - 1)
    preferences = Preferences(features, labels, starts)
    by_label = scores[preferences.rows]
    sums = preferences.sums(by_label, loss)
    assert np.array_equal(sums.degree, brute_force(scores, labels, starts, loss)[2][preferences.rows])
    expected = np.zeros((3, 3))
    for query in range(len(starts) - 1):
        for a in range(starts[query], starts[query + 1]):
            for b in range(starts[query], starts[query + 1]):
                if labels[a] > labels[b] and loss_of(scores[a] - scores[b], loss)[2]:
                    away = features[a] - features[b]
                    expected += 2 * loss.q * weights[query] * np.outer(away, away)
    found = preferences.curvature(by_label, sums.degree, weights, loss)
    assert found == pytest.approx(expected, abs=1e-9 * max(1.0, loss.q))
    assert np.array_equal(found, found.T)


@given(st.floats(-5, 5), st.floats(1e-3, 1))
def test_the_smoothed_hinge_lies_at_most_a_quarter_of_its_width_above_the_hinge(t: float, width: float) -> None:
    excess = loss_of(t, smoothed_hinge(width))[0] - max(0.0, 1 - t)
    assert -1e-12 <= excess <= width / 4 + 1e-12


def test_results_do_not_depend_on_how_queries_fall_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    starts = np.arange(0, 401, 8)
    labels, scores = rng.integers(0, 3, size=400), rng.normal(size=400)
    features, weights = rng.normal(size=(400, 5)), rng.uniform(size=50)

    def everything() -> tuple[Floats, Floats]:
        preferences = Preferences(features, labels, starts)
        sums = preferences.sums(scores, SQUARED_HINGE)
        return sums.gradient, preferences.curvature(scores, sums.degree, weights, SQUARED_HINGE)

    whole = everything()
    monkeypatch.setattr("querywise.learners.ranksvm.preferences._BLOCK_ROWS", 24)
    cut = everything()
    assert np.array_equal(cut[0], whole[0])
    assert cut[1] == pytest.approx(whole[1], rel=1e-13)


@pytest.mark.parametrize("loss", LOSSES)
def test_long_lists_are_swept_to_the_same_sums(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    n = 400
    labels, scores = rng.integers(0, 5, size=n), rng.normal(size=n)
    preferences = Preferences(np.zeros((n, 1)), labels, np.array([0, n]))
    s, y = scores[preferences.rows], labels[preferences.rows]
    above = y[:, None] > y[None, :]
    assert above.sum() > 64 * n, "a list that is worth sorting"
    v = np.maximum(0, loss.upper - (s[:, None] - s[None, :])) * above
    w = np.minimum(v, loss.upper - loss.lower)
    sums = preferences.sums(s, loss)
    assert sums.losses[0] == pytest.approx(loss.q * np.sum(w * (2 * v - w)), rel=1e-9)
    assert sums.gradient == pytest.approx(2 * loss.q * (w.sum(axis=0) - w.sum(axis=1)), rel=1e-9, abs=1e-7)
    band = (v > 0) & (v < loss.upper - loss.lower)
    assert np.array_equal(sums.degree, band.sum(axis=0) + band.sum(axis=1))
