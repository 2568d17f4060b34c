from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import lightgbm
import numpy as np
import pytest

from querywise.data.judged import Candidates, Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.learners.trees.boosting import LambdaMART
from querywise.learners.trees.growth import LONGEST_QUERY, Grades, training_rows
from querywise.runtime.threads import in_threads
from tests.worlds import ragged


def test_it_learns_and_stops_early_on_validation_data() -> None:
    data = make_judged(120, 20, 5, seed=1)
    train, valid, test = data.select(range(60)), data.select(range(60, 90)), data.select(range(90, 120))
    ranker = LambdaMART(400, patience=10).fit(train, valid=valid)
    assert 1 <= ranker.tree_count_ < 400
    fitted = evaluate(ranker.predict(test.candidates), test, measures=["map"]).mean()["map"]
    chance = evaluate(np.zeros(len(test.labels)), test, measures=["map"]).mean()["map"]
    assert fitted > chance + 0.2


def test_the_same_seed_gives_the_same_bits() -> None:
    data = make_judged(30, 10, 4)
    first, second = LambdaMART(20).fit(data), LambdaMART(20).fit(data)
    assert np.array_equal(first.predict(data.candidates), second.predict(data.candidates))


@pytest.mark.parametrize("top", [1, 31, 1000, 10**12])
def test_any_grade_is_legal_as_long_as_the_order_is_the_same(top: int) -> None:
    data = make_judged(40, 12, 4, grades=2, seed=2)
    plain = LambdaMART(20).fit(data).predict(data.candidates)
    graded = LambdaMART(20).fit(Judged(data.candidates, data.labels * top)).predict(data.candidates)
    assert graded == pytest.approx(plain, abs=1e-6)


def test_a_validation_grade_that_training_never_saw_is_fine() -> None:
    data = make_judged(40, 12, 4)
    valid = Judged(data.candidates, data.labels * 7)
    assert np.isfinite(LambdaMART(20).fit(data, valid=valid).predict(data.candidates)).all()


def test_query_weights_are_relative_and_zero_leaves_a_query_out() -> None:
    data = make_judged(40, 12, 4)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, size=40)
    cached = LambdaMART(20).fit(data, query_weights=weights).predict(data.candidates)
    scaled = LambdaMART(20).fit(data, query_weights=256 * weights).predict(data.candidates)
    assert np.array_equal(cached, scaled)
    half = np.repeat([1.0, 0.0], 20)
    without = LambdaMART(20).fit(data, query_weights=half).predict(data.candidates)
    alone = LambdaMART(20).fit(data.select(range(20))).predict(data.candidates)
    assert np.array_equal(without, alone)


def trees_of(ranker: LambdaMART) -> list[str]:
    return [text.partition("\nparameters:")[0] for text in ranker.models_]


def test_forests_grown_side_by_side_are_those_grown_one_by_one() -> None:
    data = make_judged(90, 20, 5, seed=1)
    train, valid = data.select(range(60)), data.select(range(60, 90))
    for held_out in (valid, None):
        one_by_one, together = (
            LambdaMART(40, patience=5, bag=5, threads=threads).fit(train, valid=held_out) for threads in (1, 3)
        )
        assert len(set(trees_of(together))) == 5
        assert trees_of(together) == trees_of(one_by_one)


def test_a_forest_stops_where_lightgbm_would_stop_it() -> None:
    data = make_judged(90, 20, 5, seed=1)
    train, valid = data.select(range(60)), data.select(range(60, 90))
    ranker = LambdaMART(200, patience=7, bag=2).fit(train, valid=valid)
    grades = Grades.of(train, valid, ranker.objective)
    training, checked = ranker._binned(train, np.ones(60), valid, grades, whole=True)
    assert checked is not None
    kept = []
    for number in range(2):
        parameters = ranker._parameters(grades, number, train.candidates.features.shape, 1)
        stop = lightgbm.early_stopping(7, verbose=False)
        booster = lightgbm.train(parameters, training, valid_sets=[checked], callbacks=[stop])
        kept.append(booster.model_to_string(num_iteration=booster.best_iteration).partition("\nparameters:")[0])
    assert trees_of(ranker) == kept


def test_a_bag_grows_while_all_other_threads_wait_for_it() -> None:
    """Local models in other threads wait for the gains that this training holds."""
    data = make_judged(30, 10, 4)
    growing, waiting = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        waiting.set()
        growing.wait(60)

    with ThreadPoolExecutor(1) as elsewhere:
        others = elsewhere.submit(in_threads, hold, range(8))
        waiting.wait(60)
        try:
            assert len(LambdaMART(20, bag=3, threads=2).fit(data).models_) == 3
            assert not growing.is_set()
        finally:
            growing.set()
        others.result()


def test_no_thread_of_a_bag_writes_warnings_to_standard_output() -> None:
    """In a process of its own, since a thread is told once; leaves that nobody can fill make LightGBM warn."""
    code = (
        "from querywise import LambdaMART, make_judged\n"
        "LambdaMART(60, leaves=200, min_documents=1, bag=4, learning_rate=1.0).fit(make_judged(40, 12, 5))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_trainings_at_the_same_time_do_not_mix_their_gains() -> None:
    """LightGBM keeps one table of gains for the process: a training with fewer grades took it from under the others."""
    few = make_judged(12, 8, 4, seed=1)
    sets = [Judged(few.candidates, np.minimum(few.labels, top)) for top in (1, 2)] * 20

    def grown(data: Judged) -> tuple[str, ...]:
        return LambdaMART(3, min_documents=1, threads=1).fit(data).models_

    alone = [grown(data) for data in sets[:2]] * 20
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(grown, sets)) == alone


def test_all_weights_zero_is_refused() -> None:
    with pytest.raises(DataError, match="All query weights are 0"):
        LambdaMART(5).fit(ragged(), query_weights=np.zeros(len(ragged())))


def test_a_query_longer_than_lightgbm_takes_is_sampled_and_keeps_its_relevant_documents() -> None:
    rows = LONGEST_QUERY + 500
    rng = np.random.default_rng(0)
    labels = np.zeros(rows, np.int64)
    labels[-3:] = 2
    data = Judged(Candidates(rng.normal(size=(rows, 2)), np.array([0, rows]), ("long",)), labels)
    kept, sizes = training_rows(data, np.array([0]), 0)
    assert sizes.tolist() == [LONGEST_QUERY]
    assert {rows - 3, rows - 2, rows - 1} <= set(kept.tolist())
    assert np.isfinite(LambdaMART(3).fit(data).predict(data.candidates)).all()


@pytest.mark.parametrize(
    ("ranker", "words"),
    [
        (LambdaMART(0), r"trees=0\) must lie between 1 and"),
        (LambdaMART(leaves=1), "leaves=1"),
        (LambdaMART(learning_rate=0.0), "learning_rate=0.0"),
        (LambdaMART(bag=0), r"bag=0\) must lie between 1 and"),
        (LambdaMART(bag=2, seed=2**31 - 1), r"The seeds of LambdaMART\(bag=2, seed=2147483647\) must not pass"),
        (LambdaMART(objective="auc"), "objective='auc' is unknown. Known: lambdarank, rank_xendcg"),  # type: ignore[arg-type]
    ],
)
def test_a_parameter_that_cannot_be_is_refused(ranker: LambdaMART, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ranker.fit(ragged())


def test_a_bag_is_the_mean_of_its_forests_whose_seeds_follow_one_another() -> None:
    data = make_judged(40, 12, 6, seed=4)
    bags = [LambdaMART(15, bag=3, seed=seed).fit(data) for seed in (5, 6)]
    assert len(set(bags[0].models_)) == 3, "seeds that change nothing would make one forest three times"
    # The bins are drawn by the first seed, and of so few rows all are looked at: forest 1 of seed 5 is forest 0 of 6.
    trees_of = [[model.partition("end of trees")[0] for model in bag.models_] for bag in bags]
    assert trees_of[0][1:] == trees_of[1][:2]
    members = []
    for model in bags[0].models_:
        one = LambdaMART(15).fit(data)
        one.models_, one._boosters = (model,), None
        members.append(one.predict(data.candidates))
    assert bags[0].predict(data.candidates) == pytest.approx(np.mean(members, axis=0), abs=1e-12)


def test_a_bag_of_one_sees_every_feature_and_is_what_it_was() -> None:
    data = make_judged(40, 12, 6, seed=4)
    assert "[feature_fraction: 1]" in LambdaMART(5).fit(data).models_[0]
    assert "[feature_fraction: 0.5]" in LambdaMART(5, bag=2).fit(data).models_[0]


def test_every_forest_of_a_bag_stops_on_its_own() -> None:
    data = make_judged(90, 20, 5, seed=1)
    train, valid = data.select(range(60)), data.select(range(60, 90))
    bag = LambdaMART(400, patience=10, bag=4).fit(train, valid=valid)
    counts = [model.count("\nTree=") for model in bag.models_]
    assert len(set(counts)) > 1
    assert max(counts) < 400
    assert bag.tree_count_ == round(np.mean(counts))


def test_the_listwise_objective_learns_and_gives_other_trees() -> None:
    data = make_judged(120, 20, 5, seed=1)
    train, test = data.select(range(90)), data.select(range(90, 120))
    listwise = LambdaMART(60, objective="rank_xendcg").fit(train).predict(test.candidates)
    pairwise = LambdaMART(60).fit(train).predict(test.candidates)
    assert not np.allclose(listwise, pairwise)
    chance = evaluate(np.zeros(len(test.labels)), test, measures=["map"]).mean()["map"]
    assert evaluate(listwise, test, measures=["map"]).mean()["map"] > chance + 0.2


def test_local_models_of_a_bag_are_bags_with_as_many_trees() -> None:
    everyone = LambdaMART(12, bag=2, prior="global").fit(make_judged(30, 10, 4))
    local = everyone.local(everyone)
    assert (local.bag, local.trees, local.base) == (2, 12, everyone)
