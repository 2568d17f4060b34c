from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.contracts.answers import Facts
from querywise.contracts.asking import facts_of
from querywise.data.frames import from_arrays
from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.evaluation.evaluate import evaluate
from querywise.explanations.explain import explain
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.regression import KernelRidge
from querywise.locality.neighborhoods import Search
from querywise.locality.views.columns import Columns, SideBySide
from querywise.locality.views.learned import GradientView
from querywise.locality.views.text import NGrams, TextView
from querywise.locality.views.topmean import TopMean
from querywise.rankers.atvt import ATVT
from querywise.rankers.clusters import Naive, QueryClasses
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.rankers.single import OneFeature, Single
from querywise.rankers.wrappers import QueryNormalised, normalised
from querywise.runtime.arrays import Floats, Ints
from querywise.storage import load, save
from tests.worlds import examples, inside, ragged

STARTS = ("how do I", "buy cheap", "what is the")
NOISE = (
    "jaguar",
    "python",
    "rust",
    "shoes",
    "paris",
    "weather",
    "bread",
    "camera",
    "garden",
    "violin",
    "river",
    "salt",
)
TOPICS = (("cow", "hen", "goat", "sheep"), ("oak", "elm", "birch", "ash"), ("tin", "zinc", "iron", "lead"))


def with_texts(data: Judged, texts: tuple[str | None, ...]) -> Judged:
    return data.with_queries(QueryTable(data.candidates.query_ids, texts=texts, classes=data.classes))


def worded(*texts: str | None) -> Judged:
    return with_texts(make_judged(len(texts), 4, 3), texts)


def told(data: Judged, seed: int = 0) -> Judged:
    """A text for every query whose first words say its kind, and whose others say nothing."""
    rng = np.random.default_rng(seed)
    starts = [STARTS[int(str(name).removeprefix("kind ")) - 1] for name in data.classes]
    return with_texts(data, tuple(" ".join([start, *rng.choice(NOISE, 4)]) for start in starts))


def same_kind(train: Judged, test: Judged, view: Any, k: int = 5) -> float:
    """The share of test queries' nearest training queries that are of their kind."""
    near: Ints = Search(view.points(train.candidates)).nearest(view.points(test.candidates), k)
    kinds = np.array(train.classes, dtype=object)
    return float(np.mean(kinds[near] == np.array(test.classes, dtype=object)[:, None]))


def gaps(points: Floats) -> Floats:
    return np.asarray(np.sqrt(((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)))


# TextView


def test_a_querys_point_does_not_depend_on_the_others_to_the_last_bit() -> None:
    data = told(make_judged(30, 4, 3, kinds=3))
    view = TextView(5).fit(data)
    together = view.points(data.candidates)
    alone = np.vstack([view.points(data.candidates.select([query])) for query in range(30)])
    assert alone.tobytes() == together.tobytes()
    turned = view.points(data.candidates.select(range(29, -1, -1)))
    assert turned[::-1].tobytes() == together.tobytes()


def test_the_same_seed_gives_the_same_bits() -> None:
    data = told(make_judged(60, 4, 3, kinds=2))
    first, again = (TextView(4, seed=3).fit(data).points(data.candidates) for _ in range(2))
    assert first.tobytes() == again.tobytes()


def test_a_saved_text_view_places_queries_as_before(tmp_path: Path) -> None:
    data = told(make_judged(60, 6, 3, kinds=2))
    ranker = KnnOnline(RankSVM(), k=8, view=TextView()).fit(data)
    save(ranker, tmp_path / "model")
    again = load(tmp_path / "model")
    others = told(make_judged(20, 6, 3, kinds=2, seed=1), seed=1).candidates
    assert again.predict(others).tobytes() == ranker.predict(others).tobytes()
    views = [inside(each).locality_.view_ for each in (ranker, again)]
    assert views[0].points(others).tobytes() == views[1].points(others).tobytes()


def test_half_a_character_in_many_queries_can_be_saved(tmp_path: Path) -> None:
    # JSON lets lone surrogates through; UTF-8 cannot hold them.
    data = with_texts(make_judged(40, 4, 3), tuple(f"\ud83d {word}ish un{word}" for word in (NOISE * 4)[:40]))
    ranker = KnnOnline(RankSVM(), k=5, view=TextView()).fit(data)
    assert len(inside(ranker.locality_.view_).spaces_[1].vocabulary_) > 1000
    save(ranker, tmp_path / "model")
    assert load(tmp_path / "model").predict(data.candidates).tobytes() == ranker.predict(data.candidates).tobytes()


def test_queries_without_a_text_are_told_what_to_give() -> None:
    data, good = make_judged(6, 4, 3), worded("a b", "a c", "b c", "a b", "c", "a")
    bare = replace(data, candidates=replace(data.candidates, queries=None))
    for each in (data, bare):
        with pytest.raises(DataError, match=r'need.*text of the queries, and these have none.*queries\.jsonl.*"text"'):
            TextView().fit(each)
        with pytest.raises(DataError, match=r": data\.with_queries"):
            TextView().fit(good).points(each.candidates)


def test_a_query_without_text_lies_where_an_empty_one_does() -> None:
    data = worded("red shoes", None, "", "   ", "red lamps", "blue shoes")
    points = TextView().fit(data).points(data.candidates)
    assert np.isfinite(points).all()
    assert np.array_equal(points[1], points[2])
    assert not np.array_equal(points[0], points[2])


@pytest.mark.parametrize("texts", [("", None, ""), ("a", "b", "c"), ("same", "same", "same"), ("one",), ("", "")])
def test_texts_with_nothing_in_common_or_everything_have_finite_points(texts: tuple[str | None, ...]) -> None:
    data = worded(*texts)
    for view in (TextView(), TextView(lengths=False), TextView(words=False), TextView(characters=False)):
        points = view.fit(data).points(data.candidates)
        assert points.shape[0] == len(texts)
        assert np.isfinite(points).all()


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.one_of(st.none(), st.text(max_size=12)), min_size=1, max_size=8), st.text(max_size=20))
def test_any_text_in_any_script_has_a_finite_point(texts: list[str | None], other: str) -> None:
    view = TextView(3).fit(worded(*texts))
    points = view.points(worded(other, None).candidates)
    assert np.isfinite(points).all()
    assert np.abs(points[:, :-4]).max(initial=0.0) <= 1 + 1e-6, "a row of length 1 on directions of length 1"


def test_scripts_without_spaces_are_told_apart_by_their_characters() -> None:
    data = worded(*["東京の天気", "大阪の天気", "京都の天気"] * 3, *["купить дом", "купить стол", "купить лодку"] * 3)
    view = TextView(4, lengths=False).fit(data)
    points = view.points(worded("奈良の天気", "купить мост").candidates)
    mine = view.points(data.candidates)
    away = np.linalg.norm(points[:, None] - mine[None], axis=2)
    assert away[0, :9].max() < away[0, 9:].min()
    assert away[1, 9:].max() < away[1, :9].min()


def test_words_never_seen_are_passed_over() -> None:
    data = worded("red shoes", "red lamps", "blue shoes", "blue lamps")
    view = TextView(characters=False, lengths=False).fit(data)
    points = view.points(worded("qqq zzz", "", "red zzz").candidates)
    assert np.array_equal(points[0], points[1])
    assert np.linalg.norm(points[2] - points[0]) > 0.1


def test_more_dimensions_than_there_are_queries_or_words_are_as_many_as_there_can_be() -> None:
    data = worded("red shoes", "red lamps", "blue shoes", "blue lamps")
    points = TextView(1000, characters=False, lengths=False).fit(data).points(data.candidates)
    assert points.shape == (4, 4)
    assert gaps(points)[0, 3] > gaps(points)[0, 1], "red shoes are nearer to red lamps than to blue lamps"


def test_words_characters_and_lengths_can_each_be_left_out() -> None:
    data = told(make_judged(40, 4, 3, kinds=2))
    whole = TextView(5).fit(data).points(data.candidates)
    only = [
        TextView(5, **{**dict.fromkeys(("words", "characters", "lengths"), False), name: True})
        for name in ("words", "characters", "lengths")
    ]
    parts = [view.fit(data).points(data.candidates) for view in only]
    assert [part.shape[1] for part in parts] == [5, 5, 4]
    assert np.array_equal(np.hstack(parts), whole)


def test_nothing_to_look_at_is_refused() -> None:
    data = worded("a b", "a b", "c")
    for view in (TextView(0), TextView(-1), TextView(words=False, characters=False, lengths=False)):
        with pytest.raises(DataError, match="dimensions from 1 up, and words, characters or lengths"):
            view.fit(data)


@pytest.mark.parametrize("view", [TextView(2.5), GradientView(TextView(), 2.5)])  # type: ignore[arg-type]
def test_a_fraction_of_a_dimension_is_refused(view: Any) -> None:
    with pytest.raises(DataError, match="from 1 up"):
        view.fit(told(make_judged(20, 4, 3, kinds=2)))


@pytest.mark.parametrize("view", [TextView(), GradientView(TextView())])
def test_asking_before_fitting_says_what_to_do(view: Any) -> None:
    with pytest.raises(NotFittedError, match=rf"call {type(view).__name__}\.fit\(data\) first"):
        view.points(worded("a").candidates)


def test_queries_that_begin_differently_are_apart() -> None:
    data = told(make_judged(200, 4, 3, kinds=2))
    train, test = data.select(range(150)), data.select(range(150, 200))
    assert same_kind(train, test, TextView().fit(train)) > 0.9


def test_where_a_word_stands_counts_and_not_only_that_it_does() -> None:
    pairs = [f"{a} {b}" for a in NOISE for b in NOISE]
    first, last = ([each.format(pair) for pair in pairs] for each in ("how {}", "{} how"))
    data = worded(*first, *last)
    points = TextView(characters=False, lengths=False).fit(data).points(data.candidates)
    near = Search(points).nearest(points, 6)
    assert np.mean((near < len(pairs)) == (np.arange(len(data)) < len(pairs))[:, None]) > 0.8


# GradientView


@pytest.fixture(scope="module")
def world() -> tuple[Judged, Judged]:
    """Half of the queries want feature 0 high, half want it low; only one word of their text tells which."""
    rng = np.random.default_rng(0)
    count, documents = 300, 10
    taste = rng.choice([-1.0, 1.0], count)
    features = rng.normal(size=(count, documents, 4))
    merit = taste[:, None] * features[:, :, 0] + features[:, :, 1] + 0.2 * rng.normal(size=(count, documents))
    labels = (merit > 1.2).astype(np.int64)
    texts = [
        " ".join(["explain" if each > 0 else "buy", *rng.choice(TOPICS[rng.integers(3)], 3)]) for each in taste.tolist()
    ]
    ids = tuple(f"q{number}" for number in range(count))
    table = QueryTable(ids, texts=tuple(texts), classes=tuple("high" if each > 0 else "low" for each in taste))
    starts = np.arange(count + 1) * documents
    data = Judged(Candidates(features.reshape(-1, 4), starts, ids, queries=table), labels.ravel())
    return data.select(range(200)), data.select(range(200, count))


def mean_map(ranker: Any, train: Judged, test: Judged) -> float:
    scores = ranker.fit(train).predict(test.candidates)
    return evaluate(scores, test, measures=["map"]).mean()["map"]


def test_near_in_the_gradient_view_are_queries_that_want_the_same(world: tuple[Judged, Judged]) -> None:
    train, test = world
    text = same_kind(train, test, TextView().fit(train), k=20)
    assert 0.4 < same_kind(train, test, TopMean(0).fit(train), k=20) < 0.65, "the features do not tell"
    assert same_kind(train, test, GradientView(TextView()).fit(train), k=20) > max(0.95, text + 0.05)


def test_neighbours_in_the_gradient_view_beat_one_model_for_all(world: tuple[Judged, Judged]) -> None:
    train, test = world
    single = mean_map(Single(RankSVM(0.1)), train, test)
    local = mean_map(KnnOnline(RankSVM(0.1), k=0.3, view=GradientView(TextView())), train, test)
    oracle = mean_map(QueryClasses(RankSVM(0.1), view=TextView(), known=True), train, test)
    assert local > single + 0.15
    assert local > single + 0.8 * (oracle - single)


def test_where_the_text_tells_nothing_of_what_is_wanted_the_gradient_view_does_not_find_it(
    world: tuple[Judged, Judged],
) -> None:
    train, test = world
    turned = np.random.default_rng(0).permutation(len(train))
    texts = train.select(turned).candidates.queries
    assert texts is not None
    assert texts.texts is not None
    mixed = with_texts(train, texts.texts)
    view = GradientView(TextView()).fit(mixed)
    assert 0.35 < same_kind(mixed, test, view, k=20) < 0.65
    single = mean_map(Single(RankSVM(0.1)), train, test)
    assert mean_map(KnnOnline(RankSVM(0.1), k=0.3, view=GradientView(TextView())), mixed, test) < single + 0.05


def test_the_order_of_the_training_queries_does_not_matter(world: tuple[Judged, Judged]) -> None:
    train, test = world
    turned = train.select(np.random.default_rng(1).permutation(len(train)))
    first, second = (GradientView(Columnar(), 2).fit(each).points(test.candidates) for each in (train, turned))
    assert gaps(second) == pytest.approx(gaps(first), rel=1e-5, abs=1e-9)


def test_the_order_of_the_features_does_not_matter(world: tuple[Judged, Judged]) -> None:
    train, test = world
    columns = [3, 0, 1, 2]
    features = train.candidates.features[:, columns]
    turned = replace(train, candidates=replace(train.candidates, features=features))
    first, second = (GradientView(Columnar(), 2).fit(each).points(test.candidates) for each in (train, turned))
    assert gaps(second) == pytest.approx(gaps(first), rel=1e-5, abs=1e-9)


class Columnar:
    """How long the text is and how it begins: no random directions."""

    def fit(self, data: Judged, /) -> Columnar:
        return self

    def points(self, candidates: Candidates, /) -> Floats:
        assert candidates.queries is not None
        texts = [text or "" for text in candidates.queries.texts or ()]
        return np.array([[len(text), text.count("a"), text[:1] == "e", text[:1] == "b"] for text in texts], np.float64)


def test_the_same_data_gives_the_same_bits_after_saving_too(world: tuple[Judged, Judged], tmp_path: Path) -> None:
    train, test = world
    first, second = (
        KnnOffline2(RankSVM(), k=30, view=GradientView(SideBySide([TopMean(), TextView(9)]), 2)).fit(train)
        for _ in range(2)
    )
    expected = first.predict(test.candidates).tobytes()
    assert second.predict(test.candidates).tobytes() == expected
    save(first, tmp_path / "model")
    assert load(tmp_path / "model").predict(test.candidates).tobytes() == expected


def test_more_directions_than_coordinates_or_features_are_as_many_as_there_can_be(
    world: tuple[Judged, Judged],
) -> None:
    train, test = world
    for view, most in ((Columnar(), 4), (TopMean(0), 4), (TextView(20), 4)):
        points = GradientView(view, 1000).fit(train).points(test.candidates)
        assert points.shape[0] == len(test)
        assert points.shape[1] <= most
        assert np.isfinite(points).all()


def test_without_a_preference_the_first_coordinates_stay_as_they_are() -> None:
    data = told(make_judged(20, 4, 3, kinds=2))
    silent = replace(data, labels=np.zeros_like(data.labels))
    plain = TextView(6).fit(silent).points(silent.candidates)
    points = GradientView(TextView(6), 2).fit(silent).points(silent.candidates)
    assert points == pytest.approx((plain - plain.mean(axis=0))[:, :2])


def test_queries_without_a_preference_are_placed_and_teach_nothing() -> None:
    data = told(make_judged(60, 8, 4, kinds=2, noise=0.2))
    labels = data.labels.copy()
    labels[40 * 8 :] = 0
    some = replace(data, labels=labels)
    points = GradientView(Columnar(), 2).fit(some).points(data.candidates)
    assert np.isfinite(points).all()
    without = GradientView(Columnar(), 2).fit(data.select(range(40))).points(data.candidates)
    # Features are scaled on all documents, those of silent queries too; hence only nearly the same.
    assert np.corrcoef(gaps(points).ravel(), gaps(without).ravel())[0, 1] > 0.99


def test_texts_all_alike_make_a_gradient_view_of_one_point() -> None:
    data = with_texts(make_judged(20, 6, 3), ("the same",) * 20)
    points = GradientView(TextView()).fit(data).points(data.candidates)
    assert np.isfinite(points).all()
    assert gaps(points).max() < 1e-6


def test_less_than_one_direction_is_refused() -> None:
    with pytest.raises(DataError, match=r"GradientView\(directions=0\) must be a whole number from 1 up"):
        GradientView(TextView(), 0).fit(told(make_judged(20, 4, 3, kinds=2)))


# SideBySide


@pytest.mark.parametrize("factor", [1e-6, 0.5, 3.0, 1024.0, 1e9])
def test_side_by_side_a_view_in_other_units_changes_nothing(factor: float) -> None:
    data = make_judged(40, 6, 3)
    values = np.random.default_rng(0).normal(size=(40, 2))

    def placed(times: float) -> Floats:
        table = QueryTable(data.candidates.query_ids, columns=times * values, column_names=("a", "b"))
        known = data.with_queries(table)
        return SideBySide([TopMean(0), Columns(standardise=False)]).fit(known).points(known.candidates)

    assert placed(factor) == pytest.approx(placed(1.0), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.3, 1e6 + 0.1])
def test_side_by_side_a_view_that_is_the_same_for_all_counts_no_more_than_it_says(value: float) -> None:
    data = make_judged(30, 6, 3)  # the mean of 30 times 0.1 is not 0.1
    ids = data.candidates.query_ids
    same = data.with_queries(QueryTable(ids, columns=np.full((30, 1), value), column_names=("a",)))
    moved = data.with_queries(QueryTable(ids, columns=np.full((30, 1), value + 0.5), column_names=("a",)))
    view = SideBySide([TopMean(0), Columns(standardise=False)]).fit(same)
    assert np.abs(view.points(moved.candidates) - view.points(same.candidates)).max() == pytest.approx(0.5)


# QueryNormalised


def test_a_feature_runs_from_0_to_1_over_the_candidates_of_each_query() -> None:
    data = from_arrays([[2.0, -1.0], [4.0, -1.0], [3.0, 7.0], [9.0, 9.0]], [0, 1, 0, 1], qid=["a", "a", "a", "b"])
    assert normalised(data.candidates).features.tolist() == [[0, 0], [1, 0], [0.5, 1], [0, 0]]


def test_what_runs_from_0_to_1_already_stays_to_the_last_bit() -> None:
    cached = normalised(make_judged(20, 7, 4).candidates)
    assert normalised(cached).features.tobytes() == cached.features.tobytes()


def test_constant_features_and_single_documents_are_0_and_queries_without_documents_stay() -> None:
    data = ragged()
    found = normalised(data.candidates)
    assert np.array_equal(found.features[data.candidates.starts[-2] :], np.zeros((3, 4)))
    none = Candidates(np.ones((2, 1)), np.array([0, 0, 2, 2]), ("x", "y", "z"))
    assert normalised(none).features.tolist() == [[0], [0]]
    nothing = Candidates(np.zeros((0, 3)), np.array([0, 0]), ("x",))
    assert normalised(nothing).features.shape == (0, 3)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=6))
def test_the_largest_and_smallest_numbers_stay_finite_and_in_order(values: list[float]) -> None:
    features = np.array(values)[:, None]
    found = normalised(Candidates(features, np.array([0, len(values)]), ("q",))).features[:, 0]
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 1
    assert np.all(np.diff(found[np.argsort(values, kind="stable")]) >= 0)


def test_it_is_the_ranker_inside_on_features_normalised_by_hand() -> None:
    data, test = make_judged(40, 7, 4, kinds=2), make_judged(10, 7, 4, kinds=2, seed=1)
    by_hand = replace(data, candidates=normalised(data.candidates))
    for ranker in (RankSVM(), KnnOnline(RankSVM(), k=8), Single(RankSVM())):
        inside = QueryNormalised(ranker).fit(data).predict(test.candidates)
        assert inside.tobytes() == ranker.fit(by_hand).predict(normalised(test.candidates)).tobytes()


def test_units_of_a_query_do_not_matter_inside() -> None:
    data, test = make_judged(40, 7, 4, noise=0.2), make_judged(10, 7, 4, noise=0.2, seed=1)
    factors = np.repeat(2.0 ** np.arange(10), 7)[:, None]
    stretched = replace(test.candidates, features=test.candidates.features * factors)
    ranker = QueryNormalised(RankSVM()).fit(data)
    assert ranker.predict(stretched) == pytest.approx(ranker.predict(test.candidates))


def test_validation_data_is_normalised_too() -> None:
    seen: list[Judged] = []

    class Looking(RankSVM):
        def fit(self, data: Any, /, *, query_weights: Any = None, valid: Judged | None = None) -> Looking:
            seen.extend(each for each in (data, valid) if each is not None)
            return super().fit(data)

    data, valid = make_judged(10, 5, 3), make_judged(5, 5, 3, seed=2)
    QueryNormalised(Looking()).fit(data, valid=valid)
    for raw, found in zip((data, valid), seen, strict=True):
        assert np.array_equal(found.candidates.features, normalised(raw.candidates).features)


def test_explanations_are_of_the_model_inside() -> None:
    data = make_judged(40, 7, 4, kinds=2)
    ranker = QueryNormalised(KnnOnline(RankSVM(), k=8)).fit(data)
    by_hand = KnnOnline(RankSVM(), k=8).fit(replace(data, candidates=normalised(data.candidates)))
    found = explain(ranker, data.candidates, "q7")
    assert found == explain(by_hand, normalised(data.candidates), "q7")
    assert len(found.neighbours) == 8
    assert len(found.departures) == 4


def test_it_tells_what_the_ranker_inside_tells_and_nothing_that_it_does_not() -> None:
    data, test = make_judged(40, 7, 4, kinds=2), make_judged(10, 7, 4, kinds=2, seed=1)
    by_hand, seen = replace(data, candidates=normalised(data.candidates)), normalised(test.candidates)
    near, inside = QueryNormalised(KnnOnline(RankSVM(), k=8)), KnnOnline(RankSVM(), k=8).fit(by_hand)
    with pytest.raises(NotFittedError):
        near.answer(test.candidates)
    place = near.fit(data).answer(test.candidates).place
    assert place is not None
    assert place.known is not None
    assert place.points is not None
    assert place.known.distances().tobytes() == inside.distances(seen).tobytes()
    assert place.points().tobytes() == inside.places(seen).tobytes()
    assert replace(facts_of(near), refused=None) == Facts()
    clusters = facts_of(QueryNormalised(Naive(RankSVM(), 3)).fit(data)).sizes
    assert clusters == Naive(RankSVM(), 3).fit(by_hand).sizes
    moving = ATVT(KernelRidge(), rounds=1)
    moved = facts_of(QueryNormalised(moving).fit(data)).moved
    assert moved is not None
    assert moved() == moving.fit(by_hand).moved()


def test_other_features_than_those_of_training_are_refused() -> None:
    for ranker in (QueryNormalised(RankSVM()), OneFeature(0)):
        with pytest.raises(DataError, match="trained on 3 features but the documents have 4"):
            ranker.fit(make_judged(10, 5, 3)).predict(make_judged(3, 5, 4).candidates)


# OneFeature


def named(data: Judged, *names: str) -> Judged:
    return replace(data, candidates=replace(data.candidates, feature_names=names))


def test_one_feature_by_name_or_by_number_is_that_column() -> None:
    data = named(make_judged(5, 4, 3), "age", "bm25", "clicks")
    for feature in (1, "bm25"):
        scores = OneFeature(feature).fit(data).predict(data.candidates)
        assert np.array_equal(scores, data.candidates.features[:, 1])
    scores[0] += 1.0  # a copy: features cannot be written to


def test_one_feature_that_is_not_there_is_named() -> None:
    data = make_judged(5, 4, 3)
    with pytest.raises(DataError, match=r"no feature 'bm25': there are age, clicks, length"):
        OneFeature("bm25").fit(named(data, "age", "clicks", "length"))
    with pytest.raises(DataError, match=r"no feature 'bm25': the features have no names; give its number"):
        OneFeature("bm25").fit(data)
    for number in (3, -1):
        with pytest.raises(DataError, match=rf"no feature {number}: there are 3 features"):
            OneFeature(number).fit(data)
    with pytest.raises(NotFittedError, match=r"OneFeature\.fit"):
        OneFeature(0).predict(data.candidates)


def test_one_feature_in_another_place_is_refused() -> None:
    data = make_judged(5, 4, 2)
    with pytest.raises(DataError, match="Feature 1 is 'b' but the model was trained with 'a' there"):
        OneFeature("a").fit(named(data, "a", "b")).predict(named(data, "b", "a").candidates)


# QueryClasses(known=True)


def test_known_classes_are_gone_by_and_only_the_others_are_classified() -> None:
    data = told(make_judged(80, 8, 4, kinds=2, noise=0.2))
    ranker = QueryClasses(RankSVM(), view=TextView(), known=True).fit(data)
    guessing = QueryClasses(RankSVM(), view=TextView()).fit(data)
    lies = tuple("kind 2" if name == "kind 1" else "kind 1" for name in data.classes)
    wrong = relabelled(data, lies).candidates
    assert ranker.chosen(wrong).tolist() == [ranker.classes_.index(name) for name in lies]
    assert np.array_equal(guessing.chosen(wrong), guessing.chosen(data.candidates))
    for unknown in ((None,) * 80, ("kind 9",) * 80, None):
        assert np.array_equal(ranker.chosen(relabelled(data, unknown).candidates), guessing.chosen(data.candidates))
    half = tuple(name if place % 2 else None for place, name in enumerate(lies))
    expected = np.where(np.arange(80) % 2, ranker.chosen(wrong), guessing.chosen(data.candidates))
    assert np.array_equal(ranker.chosen(relabelled(data, half).candidates), expected)


def relabelled(data: Judged, classes: tuple[str | None, ...] | None) -> Judged:
    table = data.candidates.queries
    assert table is not None
    return data.with_queries(replace(table, classes=classes))


def test_a_told_class_is_scored_by_its_own_model() -> None:
    data = told(make_judged(80, 8, 4, kinds=2, noise=0.2))
    ranker = QueryClasses(RankSVM(), view=TextView(), known=True).fit(data)
    for name in ranker.classes_:
        own = RankSVM().fit(data.select([query for query, each in enumerate(data.classes) if each == name]))
        scores = ranker.predict(relabelled(data, (name,) * 80).candidates)
        expected = own.predict(data.candidates)
        assert np.corrcoef(scores, expected)[0, 1] > 0.99


def test_a_text_alone_has_the_digits_that_it_has_among_many() -> None:
    texts = [
        f"how {'very ' * (place % 3)}fast is a {word}" for place, word in enumerate(["cat", "car", "dog", "cart"] * 5)
    ]
    space = NGrams("characters", 7, 0).fit(texts)
    asked = [*texts, "", "?", "carts and dogs"]
    np.testing.assert_array_equal(space.vectors(asked), np.vstack([space.vectors([text]) for text in asked]))
