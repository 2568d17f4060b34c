"""Trees asked by our own code, against LightGBM's."""

from __future__ import annotations

from dataclasses import replace

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.synthetic import make_judged
from querywise.errors import DataError, ModelFileError
from querywise.learners.trees.boosting import LambdaMART, TreeRegression
from querywise.learners.trees.forest import Binned, Followed, Tree, read_forests, read_trees
from querywise.runtime.arrays import Floats
from tests.worlds import examples

DATA = make_judged(60, 12, 5, kinds=2, seed=3)


def by_lightgbm(text: str, table: Floats) -> Floats:
    return np.asarray(lightgbm.Booster(model_str=text).predict(table), dtype=np.float64)


@pytest.mark.parametrize("trees", [1, 7, 60])
@pytest.mark.parametrize("leaves", [2, 15, 63])
def test_sums_are_lightgbms_to_the_last_bit(trees: int, leaves: int) -> None:
    (text,) = LambdaMART(trees, leaves=leaves, min_documents=1).fit(DATA).models_
    rng = np.random.default_rng(0)
    grown = read_forests([text], 5)
    thresholds = np.concatenate([tree.thresholds for tree in read_trees(text, 5)])
    tables = [DATA.candidates.features, rng.normal(size=(10_000, 5)), np.zeros((1, 5)), np.full((3, 5), 1e300)]
    tables.append(np.full((len(thresholds), 5), thresholds[:, None]))  # on the very thresholds
    tables.append(np.nextafter(tables[-1], np.inf))
    for table in tables:
        assert np.array_equal(grown.scores(table), by_lightgbm(text, table))


ODD = [0.0, -0.0, 1.0, -1.0, np.nextafter(1.0, 2.0), 5e-324, -5e-324, 1e300, -1e300, 0.25, 3.5]
LEARNED, LEFT = 8, 2  # of a node: it has learned where missing values go, and that is left


def drawn_tree(rng: np.random.Generator, leaves: int) -> Tree:
    """Any tree of so many leaves: one leaf after the other becomes a node."""
    sides, ends = np.zeros((2, leaves - 1), np.int64), [(0, 0), (1, 0)] if leaves > 1 else []
    for node in range(1, leaves - 1):
        sides[ends.pop(int(rng.integers(len(ends))))] = node
        ends += [(0, node), (1, node)]
    for leaf, end in enumerate(ends):
        sides[end] = -leaf - 1
    kinds = rng.choice([0, LEFT, LEARNED, LEARNED | LEFT], leaves - 1)
    thresholds = np.where(rng.random(leaves - 1) < 0.8, rng.choice(ODD, leaves - 1), rng.normal(size=leaves - 1))
    thresholds = np.where((kinds & LEARNED > 0) & (rng.random(leaves - 1) < 0.1), np.inf, thresholds)
    features, values = rng.integers(0, 3, leaves - 1), rng.normal(size=leaves)
    return Tree(features, thresholds, sides[0], sides[1], values, kinds, {})


@settings(deadline=None, max_examples=examples(300))
@given(
    st.lists(st.lists(st.sampled_from([1, 2, 3, 15, 16, 17, 40, 63, 64]), max_size=4), min_size=1, max_size=3),
    st.integers(0, 300),
    st.integers(0, 2**32),
)
def test_values_by_their_place_among_thresholds_come_to_the_same_leaves(
    sizes: list[list[int]], rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    forests = [[drawn_tree(rng, leaves) for leaves in forest] for forest in sizes]
    table = rng.choice([*ODD, np.nan, np.inf, -np.inf, *rng.normal(size=4)], (rows, 3))
    binned = Binned.of(forests)
    assert binned is not None
    assert np.array_equal(binned.scores(table), Followed.of(forests).scores(table))
    assert Binned.of([*forests, [drawn_tree(rng, 65)]]) is None
    other = [[drawn_tree(rng, 15)]]
    both = Binned.of(forests, other)
    assert both is not None
    expected = [Followed.of(each).scores(table) for each in (forests, other)]
    assert np.array_equal(both.by_bag(table), np.column_stack(expected))


@pytest.mark.parametrize("leaves", [64, 65, 200])
def test_trees_of_more_leaves_than_a_number_has_bits_have_the_same_sums(leaves: int) -> None:
    (text,) = LambdaMART(9, leaves=leaves, min_documents=1).fit(DATA).models_
    assert max(len(tree.leaves) for tree in read_trees(text, 5)) == leaves
    for rows in (1, 127, 128, 129, 5_000):
        table = np.random.default_rng(rows).normal(size=(rows, 5))
        assert np.array_equal(read_forests([text], 5).scores(table), by_lightgbm(text, table))


@pytest.mark.parametrize("leaves", [15, 100])
def test_a_bag_is_the_mean_of_its_forests_to_the_last_bit(leaves: int) -> None:
    bag = LambdaMART(20, leaves=leaves, min_documents=1, bag=3).fit(DATA)
    table = DATA.candidates.features
    total = np.zeros(len(table))
    for text in bag.models_:
        total += by_lightgbm(text, table)
    assert np.array_equal(bag.predict(DATA.candidates), total / 3)


@pytest.mark.parametrize("leaves", [15, 100])
def test_missing_values_go_where_lightgbm_sends_them(leaves: int) -> None:
    rng = np.random.default_rng(1)
    table = DATA.candidates.features.copy()
    table[rng.random(table.shape) < 0.2] = np.nan
    data = replace(DATA, candidates=replace(DATA.candidates, features=table, missing="allowed"))
    learned = LambdaMART(20, leaves=leaves, min_documents=1, missing="native").fit(data)
    for learner in (learned, LambdaMART(20).fit(DATA)):
        (text,) = learner.models_
        assert np.array_equal(read_forests([text], 5).scores(table), by_lightgbm(text, table))


def test_a_tree_that_is_a_leaf_is_read_too() -> None:
    table = DATA.candidates.features
    level = np.full(len(table), 2.5)
    constant = TreeRegression(3, min_documents=10_000).fit(table, level, np.ones(len(table)))
    assert constant.predict(table) == pytest.approx(level)
    assert np.array_equal(constant.predict(table), by_lightgbm(constant.model_, table))


@settings(deadline=None, max_examples=examples(200))
@given(st.data())
def test_trees_damaged_in_any_way_are_refused_or_lead_to_a_leaf(data: st.DataObject) -> None:
    (text,) = MODELS
    letters = list(text)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(letters) - 1))
        letters[place] = data.draw(st.sampled_from("0123456789-=. \nex"))
    try:
        forest = read_forests(["".join(letters)], 5)
    except ModelFileError:
        return
    assert np.isfinite(forest.scores(DATA.candidates.features[:20])).all()


MODELS = LambdaMART(4, leaves=5).fit(DATA).models_


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("left_child=", "left_child=0 "),
        ("num_leaves=5", "num_leaves=6"),
        ("decision_type=2", "decision_type=1"),
        ("split_feature=", "split_feature=9"),
        ("leaf_value=", "leaf_value=x"),
        ("right_child=", "left_child="),
    ],
)
def test_what_is_wrong_with_trees_is_said(before: str, after: str) -> None:
    (text,) = MODELS
    assert before in text
    with pytest.raises(ModelFileError, match="The trees cannot be read"):
        read_forests([text.replace(before, after)], 5)


def test_rows_of_another_width_are_refused() -> None:
    table = DATA.candidates.features
    trees = TreeRegression(3).fit(table, table[:, 0], np.ones(len(table)))
    trees.predict(table)
    with pytest.raises(DataError, match="The trees are for 5 features; found 4"):
        trees.predict(np.ascontiguousarray(table[:, :4]))


def test_more_leaves_than_rows_change_nothing() -> None:
    few = make_judged(6, 5, 3, seed=2)
    rows = len(few.candidates.features)
    as_many, more = (LambdaMART(5, leaves=leaves, min_documents=1).fit(few) for leaves in (rows, 10**6))
    assert np.array_equal(as_many.predict(few.candidates), more.predict(few.candidates))
