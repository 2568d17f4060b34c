"""Kernel ridge regression, against scikit-learn's, the primal and what its objective says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from sklearn.kernel_ridge import KernelRidge as Theirs

from querywise.errors import DataError, NotFittedError
from querywise.learners import regression as module
from querywise.learners.regression import KernelRidge
from querywise.runtime.arrays import Floats
from tests.worlds import examples

KINDS: dict[str, dict[str, Any]] = {
    "exact": {"kernel": "gaussian"},
    "landmarks": {"kernel": "gaussian", "exact": 0, "landmarks": 25},
    "linear": {"kernel": "linear"},
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    return KINDS[request.param]


def world(seed: int = 0, rows: int = 60, columns: int = 3) -> tuple[Floats, Floats, Floats]:
    """Features of different size and level, targets that bend, weights, one of them 0."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, columns)) * [10.0**power for power in range(columns)] + 5
    targets = np.sin(features[:, 0]) + 0.3 * rng.normal(size=rows)
    weights = rng.uniform(0.1, 3, size=rows)
    weights[rows // 2] = 0
    return features, targets, weights


def standardised(features: Floats, by: Floats) -> Floats:
    return np.asarray((features - by.mean(axis=0)) / by.std(axis=0))


def gaussian(a: Floats, b: Floats, width: float) -> Floats:
    """The kernel written down."""
    return np.array([[1 + np.exp(-np.sum((x - z) ** 2) / (2 * len(x) * width**2)) for z in b] for x in a])


# What it computes


@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(2, 25),
    columns=st.integers(1, 4),
    l2=st.floats(-3, 2).map(lambda power: float(10**power)),
    width=st.floats(0.2, 5),
)
@settings(max_examples=examples(40), deadline=None)
def test_gaussian_equals_scikit_learn(seed: int, rows: int, columns: int, l2: float, width: float) -> None:
    features, targets, weights = world(seed, rows, columns)
    others = world(seed + 1, 7, columns)[0]
    ours = KernelRidge(l2, width=width).fit(features, targets, weights)
    x, z = standardised(features, features), standardised(others, features)
    theirs = Theirs(alpha=l2, kernel="precomputed").fit(gaussian(x, x, width), targets, sample_weight=weights)
    assert ours.predict(features) == pytest.approx(theirs.predict(gaussian(x, x, width)), abs=1e-7)
    assert ours.predict(others) == pytest.approx(theirs.predict(gaussian(z, x, width)), abs=1e-7)


@given(seed=st.integers(0, 10**6), rows=st.integers(2, 25), l2=st.floats(-3, 2).map(lambda power: float(10**power)))
@settings(max_examples=examples(40), deadline=None)
def test_linear_equals_the_primal(seed: int, rows: int, l2: float) -> None:
    features, targets, weights = world(seed, rows)
    ours = KernelRidge(l2, kernel="linear").fit(features, targets, weights)
    x = np.column_stack([np.ones(rows), standardised(features, features)])
    primal = np.linalg.solve(x.T @ (weights[:, None] * x) + l2 * np.eye(4), x.T @ (weights * targets))
    assert ours.predict(features) == pytest.approx(x @ primal, abs=1e-8)
    assert ours.squared_norm == pytest.approx(primal @ primal, rel=1e-8)
    theirs = Theirs(alpha=l2, kernel="precomputed").fit(x @ x.T, targets, sample_weight=weights)
    assert ours.predict(features) == pytest.approx(theirs.predict(x @ x.T), abs=1e-6)


def test_landmarks_equal_the_best_combination_of_them() -> None:
    features, targets, weights = world(3, rows=30)
    ours = KernelRidge(0.3, exact=0, landmarks=6).fit(features, targets, weights)
    x = standardised(features, features)
    k, kk = gaussian(x, ours.points_, 1.0), gaussian(ours.points_, ours.points_, 1.0)

    def objective(c: Floats) -> tuple[float, Floats]:
        errors = k @ c - targets
        value = float(weights @ errors**2 + 0.3 * c @ kk @ c)
        return value, np.asarray(2 * k.T @ (weights * errors) + 0.6 * kk @ c)

    solver: Any = optimize.minimize
    theirs = solver(objective, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-10}).fun
    errors = ours.predict(features) - targets
    reached = float(weights @ errors**2) + 0.3 * ours.squared_norm
    assert reached == pytest.approx(theirs, rel=1e-6)
    assert ours.predict(features) == pytest.approx(k @ ours.coefficients_, abs=1e-8)
    assert ours.squared_norm == pytest.approx(ours.coefficients_ @ kk @ ours.coefficients_, rel=1e-6)


def test_the_norm_is_that_of_the_function() -> None:
    features, targets, weights = world(4)
    ours = KernelRidge(0.3).fit(features, targets, weights)
    x = standardised(features, features)
    assert ours.squared_norm == pytest.approx(ours.coefficients_ @ gaussian(x, x, 1.0) @ ours.coefficients_)


@pytest.mark.parametrize(
    ("l2", "width"), [(0.01, 0.3), (0.01, 1.0), (1.0, 0.3), (1.0, 1.0), (1.0, 3.0), (100.0, 1.0), (100.0, 10.0)]
)
def test_all_rows_as_landmarks_equal_the_exact_solution(l2: float, width: float) -> None:
    features, targets, weights = world(5)
    exact = KernelRidge(l2, width=width).fit(features, targets, weights)
    landmarks = KernelRidge(l2, width=width, exact=0, landmarks=len(features)).fit(features, targets, weights)
    others = world(6)[0]
    assert landmarks.predict(others) == pytest.approx(exact.predict(others), abs=1e-6)
    assert landmarks.squared_norm == pytest.approx(exact.squared_norm, rel=1e-5)


def test_more_landmarks_than_rows_are_all_rows() -> None:
    features, targets, weights = world(5, rows=12)
    few, many = (KernelRidge(exact=0, landmarks=number).fit(features, targets, weights) for number in (12, 10**6))
    assert np.array_equal(few.predict(features), many.predict(features))


def test_the_more_landmarks_the_lower_the_objective_and_the_exact_one_is_lowest() -> None:
    features, targets, weights = world(7, rows=80)

    def reached(model: KernelRidge) -> float:
        fitted = model.fit(features, targets, weights).predict(features)
        return float(weights @ (fitted - targets) ** 2) + model.l2 * model.squared_norm

    everything = reached(KernelRidge(0.1))
    nested = [reached(KernelRidge(0.1, exact=0, landmarks=number)) for number in (2, 10, 40)]
    assert all(value >= everything - 1e-9 for value in nested)
    assert nested[-1] < nested[0]


def test_the_seed_draws_the_landmarks_and_the_same_one_draws_the_same() -> None:
    features, targets, weights = world(8)
    first, again, other = (
        KernelRidge(exact=0, landmarks=10, seed=seed).fit(features, targets, weights) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.predict(features), again.predict(features))
    assert not np.array_equal(first.points_, other.points_)


# Weights


def test_a_row_of_weight_0_is_not_there_at_all(kind: dict[str, Any]) -> None:
    features, targets, weights = world(9)
    rng = np.random.default_rng(0)
    # A second copy of every row: the scale of the features stays, and of what the copies say nothing may be heard.
    doubled, silent = np.vstack([features, features]), np.concatenate([weights, np.zeros(len(weights))])
    said = [np.concatenate([targets, 1e3 * rng.normal(size=len(targets))]) for _ in range(2)]
    first, second = (KernelRidge(0.5, **kind).fit(doubled, each, silent).predict(features) for each in said)
    assert first == pytest.approx(second, abs=1e-12)
    if "landmarks" not in kind:  # they are drawn from the copies too
        alone = KernelRidge(0.5, **kind).fit(features, targets, weights).predict(features)
        assert first == pytest.approx(alone, abs=1e-9)


def test_a_row_of_weight_2_counts_as_two_rows(kind: dict[str, Any]) -> None:
    features, targets, weights = world(10)
    twice = KernelRidge(0.5, **kind).fit(features, targets, 2 * weights)
    half = KernelRidge(0.25, **kind).fit(features, targets, weights)
    assert twice.predict(features) == pytest.approx(half.predict(features), abs=1e-9)


def test_without_any_weight_the_function_is_0(kind: dict[str, Any]) -> None:
    features, targets, weights = world(11)
    model = KernelRidge(**kind).fit(features, targets, 0 * weights)
    assert not model.predict(features).any()
    assert model.squared_norm == 0


# Hard features


@pytest.mark.parametrize("l2", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("apart", [0.0, 1e-12, 1e-8])
def test_rows_that_are_almost_the_same_stay_finite_and_agree(kind: dict[str, Any], l2: float, apart: float) -> None:
    features, targets, weights = world(12, rows=40)
    noise = np.random.default_rng(0).normal(size=(2, *features.shape))
    alike = np.vstack([features, features * (1 + apart * noise[0]), features * (1 + apart * noise[1])])
    said = np.concatenate([targets, targets + 1, targets - 1])
    model = KernelRidge(l2, **kind).fit(alike, said, np.tile(weights, 3))
    fitted = model.predict(alike)
    assert np.isfinite(fitted).all()
    assert np.isfinite(model.squared_norm)
    assert fitted[:40] == pytest.approx(fitted[40:80], abs=1e-4)


def test_constant_and_repeated_columns_are_fine(kind: dict[str, Any]) -> None:
    features, targets, weights = world(13)
    wide = np.column_stack([features, features[:, 0], np.full(len(features), 0.1), np.zeros(len(features))])
    assert np.isfinite(KernelRidge(1e-3, **kind).fit(wide, targets, weights).predict(wide)).all()


def test_one_row_and_no_columns_are_fine(kind: dict[str, Any]) -> None:
    alone = KernelRidge(1.0, **kind).fit(np.array([[3.0, 4.0]]), np.array([2.0]), np.ones(1))
    # k(x, x) is 2, or 1 for the linear kernel at the mean: 2 k / (k + 1).
    assert alone.predict(np.array([[3.0, 4.0]])) == pytest.approx([1.0 if kind["kernel"] == "linear" else 4 / 3])
    bare = KernelRidge(1.0, **kind).fit(np.zeros((4, 0)), np.arange(4.0), np.ones(4)).predict(np.zeros((2, 0)))
    assert bare == pytest.approx(np.full(2, 6 / 5 if kind["kernel"] == "linear" else 12 / 9))


def test_far_from_everything_the_gaussian_keeps_its_level() -> None:
    features, targets, weights = world(14)
    far = KernelRidge().fit(features, targets, weights).predict(1e100 * features[:3])
    assert far == pytest.approx(np.full(3, far[0]))
    assert np.isfinite(far).all()


# The same function however it is asked


def test_row_by_row_equals_all_at_once(kind: dict[str, Any]) -> None:
    model, others = KernelRidge(**kind).fit(*world(15)), world(16, rows=200)[0]
    together = model.predict(others)
    assert np.array_equal(together, np.concatenate([model.predict(others[row : row + 1]) for row in range(200)]))


def test_work_in_blocks_and_without_memory_gives_the_same(
    kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    features, targets, weights = world(17)
    whole = KernelRidge(**kind).fit(features, targets, weights).predict(features)
    monkeypatch.setattr(module, "_BLOCK", 100)
    monkeypatch.setattr(module, "_KEPT", 0)
    pieces = KernelRidge(**kind).fit(features, targets, weights)
    assert pieces.predict(features) == pytest.approx(whole, abs=1e-10)
    assert pieces.fit(features, -targets, weights).predict(features) == pytest.approx(-whole, abs=1e-10)


def test_fitting_again_on_the_same_features_equals_a_fresh_fit(kind: dict[str, Any]) -> None:
    features, targets, weights = world(18)
    used = KernelRidge(**kind).fit(features, targets, weights)
    used.fit(features, targets**2, weights[::-1])
    fresh = KernelRidge(**kind).fit(features, targets**2, weights[::-1])
    assert np.array_equal(used.predict(features), fresh.predict(features))
    assert used.squared_norm == fresh.squared_norm


def test_fitting_on_other_features_forgets_the_first(kind: dict[str, Any]) -> None:
    used = KernelRidge(**kind).fit(*world(19, rows=50))
    for rows, columns in ((60, 3), (50, 2), (10, 3)):
        other = world(20, rows, columns)
        assert np.array_equal(used.fit(*other).predict(other[0]), KernelRidge(**kind).fit(*other).predict(other[0]))


def test_the_units_of_features_do_not_matter(kind: dict[str, Any]) -> None:
    features, targets, weights = world(21)
    moved = features * [1e-6, 1.0, 1e6] - 100
    one, other = (KernelRidge(**kind).fit(each, targets, weights).predict(each) for each in (features, moved))
    assert one == pytest.approx(other, abs=1e-5)


# What is refused


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"l2": 0.0}, r"KernelRidge\(l2=0.0\) must be"),
        ({"l2": -1.0}, "l2=-1.0"),
        ({"l2": float("nan")}, "l2=nan"),
        ({"l2": float("inf")}, "l2=inf"),
        ({"width": 0.0}, "width=0.0"),
        ({"width": float("nan")}, "width=nan"),
        ({"width": 1e-200}, "width=1e-200"),
        ({"width": 1e200}, r"width=1e\+200"),
        ({"landmarks": 0}, "landmarks=0"),
        ({"landmarks": 2.5}, "landmarks=2.5"),
        ({"exact": -1}, "exact=-1"),
        ({"exact": float("nan")}, "exact=nan"),
        ({"seed": -1}, "seed=-1"),
        ({"kernel": "cubic"}, r"kernel='cubic' is unknown\. Known: gaussian, linear\."),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        KernelRidge(**{"exact": 0, **parameters}).fit(*world())


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_a_penalty_too_small_to_be_felt_is_refused_or_gives_finite_values(kernel: Any) -> None:
    features, targets, weights = world(22)
    alike = np.column_stack([features, features])  # columns and rows that repeat others
    alike = np.vstack([alike, alike])
    for l2 in (1e-14, 1e-16, 1e-30, 1e-300):
        try:
            model = KernelRidge(l2, kernel=kernel).fit(alike, np.tile(targets, 2), np.tile(weights, 2))
        except DataError as error:
            assert f"l2={l2}" in str(error)  # noqa: PT017
        else:
            assert np.isfinite(model.predict(alike)).all()


def test_predict_before_fit_says_what_to_do() -> None:
    with pytest.raises(NotFittedError):
        KernelRidge().predict(np.zeros((1, 2)))
