"""What every ranker promises, whatever it computes. A new ranker joins by its line in the table of methods."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.contracts.answers import Answer, Opaque
from querywise.contracts.asking import OneModel, nobody
from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.explanations.contributions import contributions
from querywise.learners.regression import KernelRidge
from querywise.methods import METHODS
from querywise.runtime.arrays import Floats
from querywise.storage import load, save
from tests.support.rankers import RANKERS, Fitted, every_kind, fitted_once, for_ranker, training, worded
from tests.worlds import ragged

_turns = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try every promise on every class, and on a third of the further configurations; saving on all of them.

    All tests of one configuration run in one process, so that it is fitted once.
    """
    if "name" in metafunc.fixturenames:
        names = RANKERS if "sav" in metafunc.function.__name__ else every_kind(next(_turns))
        metafunc.parametrize("name", [pytest.param(each, marks=pytest.mark.xdist_group(each)) for each in names])


@pytest.fixture
def build(name: str) -> Callable[[], Any]:
    """A new ranker, not fitted yet."""
    return RANKERS[name]


@pytest.fixture
def fitted(name: str) -> Fitted:
    return fitted_once(name)


@pytest.fixture
def ranker(fitted: Fitted) -> Any:
    """The shared one, fitted on `train`."""
    return fitted.ranker


@pytest.fixture
def train(name: str) -> Judged:
    return training(name)


@pytest.fixture
def held_out(name: str) -> Judged:
    return for_ranker(name, plain_held_out())


@cache
def plain_held_out() -> Judged:
    data = ragged(3)
    classes = tuple("long" if size > 5 else "short" for size in data.candidates.sizes)
    return worded(data.with_queries(QueryTable(data.candidates.query_ids, classes=classes)))


def test_fit_returns_self(fitted: Fitted) -> None:
    assert fitted.returned is fitted.ranker


def test_predict_before_fit_says_what_to_do(build: Callable[[], Any], held_out: Judged) -> None:
    with pytest.raises(NotFittedError, match=r"has not been fitted yet; call \w+\.fit\(data\) first"):
        build().predict(held_out.candidates)


def test_saving_before_fit_says_what_to_do(build: Callable[[], Any], tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        save(build(), tmp_path / "model")


def test_scores_are_finite_one_per_document_whatever_the_query(ranker: Any, held_out: Judged) -> None:
    # The test set has one-document, all-zero and all-alike queries among the others.
    scores = ranker.predict(held_out.candidates)
    assert scores.shape == held_out.labels.shape
    assert np.isfinite(scores).all()


def test_training_takes_unjudged_single_tied_and_all_zero_queries(build: Callable[[], Any], held_out: Judged) -> None:
    mask = np.ones(len(held_out.labels), np.bool_)
    mask[np.flatnonzero(held_out.labels == 0)[:2]] = False
    scores = build().fit(replace(held_out, judged=mask)).predict(held_out.candidates)
    assert np.isfinite(scores).all()


def test_identical_documents_get_identical_scores(ranker: Any, held_out: Judged) -> None:
    scores = ranker.predict(held_out.candidates)
    alike = scores[held_out.candidates.rows(len(held_out) - 1)]
    assert np.all(alike == alike[0])


def test_permuting_queries_permutes_scores(ranker: Any, held_out: Judged) -> None:
    scores = ranker.predict(held_out.candidates)
    turned = np.random.default_rng(0).permutation(len(held_out))
    rows = np.concatenate([np.arange(*held_out.candidates.rows(int(query)).indices(len(scores))) for query in turned])
    assert ranker.predict(held_out.candidates.select(turned)) == pytest.approx(scores[rows], abs=1e-9)


def test_permuting_a_querys_documents_permutes_scores(ranker: Any, held_out: Judged) -> None:
    candidates = held_out.candidates
    scores = ranker.predict(candidates)
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [rng.permutation(np.arange(*candidates.rows(q).indices(len(scores)))) for q in range(len(candidates))]
    )
    mixed = replace(candidates, features=candidates.features[rows])
    assert ranker.predict(mixed) == pytest.approx(scores[rows], abs=1e-9)


def test_one_query_at_a_time_equals_all_at_once(ranker: Any, held_out: Judged) -> None:
    together = ranker.predict(held_out.candidates)
    alone = [ranker.predict(held_out.candidates.select([query])) for query in range(len(held_out))]
    assert np.concatenate(alone) == pytest.approx(together, abs=1e-9)


# Those whose score is a vote, a product or a kernel: no sum over features.
WITHOUT_PARTS = {"CombMNZ", "ReciprocalRank", "Borda", "MultipleHyperplanes", "KnnOffline2, MultipleHyperplanes"}


def test_the_parts_of_a_score_add_up_to_it(name: str, ranker: Any, train: Judged, held_out: Judged) -> None:
    everyone = ranker.answer(held_out.candidates).everyone
    silent = name in METHODS and type(everyone).terms is OneModel.terms  # a learner of the table alone
    opaque = silent or isinstance(everyone, Opaque)  # it says so itself
    if opaque or name in WITHOUT_PARTS or isinstance(getattr(ranker, "regressor", None), KernelRidge):
        with pytest.raises(DataError, match="is not a sum over features"):
            contributions(ranker, held_out.candidates.select([0]))
        return
    for data in (train, held_out):
        scores = ranker.predict(data.candidates)
        for query in range(0, len(data), 5):
            parts = contributions(ranker, data.candidates.select([query]))
            own = scores[data.candidates.rows(query)]
            assert parts.here.sum(axis=1) - parts.here.sum(axis=1)[:1] == pytest.approx(own - own[:1], abs=1e-9)
            if parts.models.any():
                assert parts.models.sum(axis=1) - parts.models.sum(axis=1)[:1] == pytest.approx(own - own[:1], abs=1e-9)


def rebuilt(answer: Answer) -> Floats:
    """Scores from the parts of an answer alone: each model's, brought to the scale that it says, by its shares."""
    seen = answer.seen
    if not answer.varies and not answer.members:
        return answer.everyone.predict(seen)
    scores = np.zeros(len(seen.features))
    for query in range(len(seen)):
        own, shares = seen.select([query]), answer.local.shares()[[query]]
        if shares.nnz == 0:
            scores[seen.rows(query)] = answer.everyone.predict(own)
        for model, share in zip(shares.indices.tolist(), shares.data, strict=True):
            if answer.members:
                alone = answer.members[model].scores()[seen.rows(query)]
            else:
                alone = answer.local.models()[model].predict(own)
            scores[seen.rows(query)] += share * scaled(alone, answer.local.scale)
    return scores


def scaled(scores: Floats, scale: str) -> Floats:
    """One model's scores of one query."""
    level = not len(scores) or np.ptp(scores) <= 1e-12 * np.abs(scores).max()
    if scale == "range":
        return np.zeros(len(scores)) if level else (scores - scores.min()) / np.ptp(scores)
    if scale == "z":
        return np.zeros(len(scores)) if level else (scores - scores.mean()) / scores.std()
    if scale == "rank":
        above = (scores[:, None] > scores).sum(axis=1) + 0.5 * ((scores[:, None] == scores).sum(axis=1) - 1)
        return np.full(len(scores), 0.5) if level or len(scores) == 1 else above / (len(scores) - 1)
    return scores


def test_the_answer_reproduces_the_scores(ranker: Any, train: Judged, held_out: Judged) -> None:
    for candidates in (held_out.candidates, train.candidates):
        answer, expected = ranker.answer(candidates), ranker.predict(candidates)
        assert np.array_equal(answer.scores(), expected)
        found = rebuilt(answer)
        if answer.local.scale == "range":  # a mixture of models may begin anywhere
            for query in range(len(candidates)):
                rows = candidates.rows(query)
                found[rows] -= found[rows].min(initial=np.inf)
                expected[rows] -= expected[rows].min(initial=np.inf)
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12 * max(1.0, np.abs(expected).max()))
        assert answer.by_everyone().shape == expected.shape


def test_an_answer_is_asked_of_fitted_rankers_alone(build: Callable[[], Any], held_out: Judged) -> None:
    with pytest.raises(NotFittedError, match=r"has not been fitted yet; call \w+\.fit\(data\) first"):
        build().answer(held_out.candidates)


def test_what_is_said_of_nobody_costs_no_look_at_a_query(ranker: Any, train: Judged) -> None:
    said = ranker.answer(nobody(4, None))
    assert said.varies == ranker.answer(train.candidates).varies
    assert len(said.seen) == 0
    assert said.place is None or set(said.place.by()) <= {"text", "columns", "documents"}


def test_no_documents_no_scores(ranker: Any) -> None:
    nothing = Candidates(np.zeros((0, 4)), np.array([0, 0]), ("empty",), queries=QueryTable(("empty",), texts=("",)))
    assert ranker.predict(nothing).shape == (0,)


def test_saved_and_loaded_it_gives_the_same_bits(ranker: Any, held_out: Judged, tmp_path: Path) -> None:
    save(ranker, tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is type(ranker)
    assert np.array_equal(again.predict(held_out.candidates), ranker.predict(held_out.candidates))


def test_pickled_and_unpickled_it_gives_the_same_bits(ranker: Any, held_out: Judged) -> None:
    again = pickle.loads(pickle.dumps(ranker))
    assert repr(again) == repr(ranker)
    assert np.array_equal(again.predict(held_out.candidates), ranker.predict(held_out.candidates))


def test_judged_documents_are_scored_without_their_labels(ranker: Any, held_out: Judged) -> None:
    scores = ranker.predict(held_out.candidates)
    assert np.array_equal(ranker.predict(held_out), scores)
    assert np.array_equal(ranker.answer(held_out).scores(), ranker.answer(held_out.candidates).scores())


def test_fitting_twice_gives_the_same_bits_whatever_the_first_was_asked(
    build: Callable[[], Any], ranker: Any, train: Judged, held_out: Judged
) -> None:
    ranker.predict(train.candidates)
    ranker.answer(train.candidates).by_everyone()
    again = build().fit(train)
    assert np.array_equal(again.predict(held_out.candidates), ranker.predict(held_out.candidates))


def test_constant_features_are_fine(build: Callable[[], Any], train: Judged) -> None:
    features = np.column_stack([train.candidates.features, np.full(len(train.labels), 0.1)])
    names = train.feature_names and (*train.feature_names, "constant")
    widened = replace(train, candidates=replace(train.candidates, features=features, feature_names=names))
    assert np.isfinite(build().fit(widened).predict(widened.candidates)).all()


def test_another_number_of_features_is_refused_with_both_numbers(ranker: Any) -> None:
    for columns in (3, 5):
        other = Candidates(np.zeros((2, columns)), np.array([0, 2]), ("q",))
        with pytest.raises(DataError, match=f"trained on 4 features but the documents have {columns}"):
            ranker.predict(other)


def test_features_in_another_order_are_refused_by_name(build: Callable[[], Any], train: Judged) -> None:
    one, two, three, four = names = train.feature_names or ("bm25", "age", "clicks", "length")
    named = replace(train, candidates=replace(train.candidates, feature_names=names))
    ranker = build().fit(named)
    swapped = replace(named.candidates, feature_names=(one, three, two, four))
    with pytest.raises(DataError, match=f"Feature 2 is '{three}' but the model was trained with '{two}' there"):
        ranker.predict(swapped)


def test_the_data_is_left_as_it_was(name: str, fitted: Fitted) -> None:
    fitted.ranker.predict(fitted.data.candidates)
    before = training(name)
    assert np.array_equal(fitted.data.candidates.features, before.candidates.features, equal_nan=True)
    assert np.array_equal(fitted.data.labels, before.labels)


@cache
def coinciding() -> Judged:
    """Training queries of which many coincide in documents and text, some with the same labels, most with others."""
    base = worded(make_judged(24, 9, 4, kinds=2, seed=7))
    rounded = replace(base, candidates=replace(base.candidates, features=base.candidates.features.round(1)))
    copies = [_renamed(rounded, turn) for turn in (0, 1, 2)]
    return concatenate([copies[0], copies[1].select(range(8)), copies[2].select(range(4, 12))])


def _renamed(data: Judged, turn: int) -> Judged:
    """The same queries by other names, the labels of all but the first six moved on among their documents."""
    table, sizes = data.candidates.queries, data.candidates.sizes
    assert table is not None
    ids = tuple(f"{name} again {turn}" for name in table.ids)
    labels = [np.roll(data.labels[data.candidates.rows(q)], turn if q > 5 else 0) for q in range(len(sizes))]
    candidates = replace(data.candidates, query_ids=ids, queries=replace(table, ids=ids))
    return replace(data, candidates=candidates, labels=np.concatenate(labels))


# Local ranking SVMs share curvatures that are kept in single precision (eps 6e-8): their sums round by that much. All
# else is added up in double precision, or in an order of its own.
SINGLE_PRECISION = ("Knn", "QueryClasses", "QueryNormalised", "Naive", "SelectRanker", "Transform", "Blend")


def test_permuting_training_queries_changes_no_score(name: str, build: Callable[[], Any], held_out: Judged) -> None:
    data = for_ranker(name, coinciding())
    ranker = build().fit(data)
    turned = np.random.default_rng(3).permutation(len(data))
    again = build().fit(data.select(turned))
    close = 1e-6 if name.startswith(SINGLE_PRECISION) else 1e-9
    for candidates in (held_out.candidates, data.candidates):
        scores = ranker.predict(candidates)
        assert again.predict(candidates) == pytest.approx(scores, abs=close * max(1.0, np.abs(scores).max()))
