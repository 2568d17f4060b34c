"""Queries far from all training queries, or of which nothing is known, are answered by the global model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from querywise import (
    Blend,
    Candidates,
    Judged,
    KnnOffline1,
    KnnOffline2,
    KnnOnline,
    QueryTable,
    RankSVM,
    Single,
    TextView,
    explain,
    load,
    make_folds,
    make_judged,
    save,
)
from querywise.contracts.answers import TrainingQueries
from querywise.contracts.protocols import QueryView, Ranker
from querywise.explanations.explain import as_dict
from querywise.locality.views.columns import SideBySide, VectorView
from querywise.locality.views.learned import GradientView
from querywise.locality.views.topmean import TopMean
from querywise.methods import METHODS
from querywise.rankers import knn as knn_module
from querywise.rankers.blend import NearbyBlend
from querywise.rankers.clusters import Naive, QueryClasses
from querywise.rankers.neighbors import Locality
from querywise.rankers.wrappers import QueryNormalised
from querywise.report.terminal import explanation_tables
from querywise.runtime.arrays import Floats
from querywise.runtime.stored import Added, declared
from reproduction import blend, fromtext, geng2008, geng2008_sweep, hoi2008, hybrid
from tests.worlds import as_runs

QUERIES, DOCUMENTS, FEATURES = 60, 8, 4
TOPICS = ("red green blue paint", "cat dog snake mouse", "river stone cloud rain")
RANKERS: dict[str, Callable[[QueryView], Any]] = {
    "online": lambda view: KnnOnline(RankSVM(0.1), k=8, view=view),
    "offline-1": lambda view: KnnOffline1(RankSVM(0.1), k=8, view=view),
    "offline-2": lambda view: KnnOffline2(RankSVM(0.1), k=8, view=view),
    "few models": lambda view: KnnOffline2(RankSVM(0.1), k=8, view=view, models=6),
    "blend": lambda view: Blend([RankSVM(1.0), KnnOnline(RankSVM(0.1), k=8, view=view)]),
}
VIEWS: dict[str, Callable[[], QueryView]] = {
    "text": TextView,
    "gradient:text": lambda: GradientView(TextView()),
    "vector": VectorView,
    "top-mean": TopMean,
    "top-mean+text": lambda: SideBySide([TopMean(), TextView()]),
}


def asked(text: str, vector: Floats, features: Floats) -> Candidates:
    """One query."""
    table = QueryTable(("q",), texts=(text,), vectors=vector[None, :])
    return Candidates(features, np.array([0, len(features)]), ("q",), queries=table)


@cache
def trained_on() -> Judged:
    """Queries of three topics, in their words, vectors and features."""
    rng = np.random.default_rng(5)
    data = make_judged(QUERIES, DOCUMENTS, FEATURES, kinds=3, seed=5)
    topics = np.arange(QUERIES) % len(TOPICS)
    texts = tuple(" ".join(rng.choice(TOPICS[topic].split(), 3)) for topic in topics)
    vectors = np.eye(len(TOPICS) + 1)[topics] + 0.2 * rng.random((QUERIES, len(TOPICS) + 1))
    return data.with_queries(QueryTable(data.candidates.query_ids, texts=texts, vectors=vectors))


MIDDLE = ("red cat green", np.array([1.1, 0.1, 0.1, 0.1]))
OTHER_WAY = np.array([0.0, 0.0, 0.0, -1.0])
NOTHING = np.zeros((DOCUMENTS, FEATURES))


def some_features() -> Floats:
    return trained_on().candidates.features[:DOCUMENTS]


# view, what is asked, and what its explanation says
UNKNOWN: list[tuple[str, Callable[[], Candidates], str]] = [
    ("text", lambda: asked("", MIDDLE[1], some_features()), "the training queries have none of its words"),
    ("text", lambda: asked("zzzz qqqq", MIDDLE[1], some_features()), "the training queries have none of its words"),
    ("text", lambda: asked("Red cat? " * 90, MIDDLE[1], some_features()), "this model backs off"),
    ("gradient:text", lambda: asked("", MIDDLE[1], some_features()), "none of its words"),
    ("gradient:text", lambda: asked("zzzz qqqq", MIDDLE[1], some_features()), "none of its words"),
    ("vector", lambda: asked("", np.zeros(0), some_features()), "it has no vector"),
    ("vector", lambda: asked("zzzz qqqq", np.zeros(4), some_features()), "it has no vector"),
    ("vector", lambda: asked(MIDDLE[0], OTHER_WAY, some_features()), "this model backs off"),
    ("top-mean", lambda: asked("", MIDDLE[1], NOTHING), "none of its documents has a feature other than 0"),
    ("top-mean", lambda: asked("zzzz qqqq", MIDDLE[1], NOTHING), "none of its documents has a feature other than 0"),
    ("top-mean", lambda: asked(MIDDLE[0], MIDDLE[1], 100 * some_features()), "this model backs off"),
    ("top-mean+text", lambda: asked("zzzz qqqq", MIDDLE[1], NOTHING), "other than 0, and the training queries have"),
]


@cache
def fitted(name: str, view: str) -> Any:
    return RANKERS[name](VIEWS[view]()).fit(trained_on())


def known_in(ranker: Ranker, candidates: Candidates) -> TrainingQueries:
    (answer,) = ranker.answer(candidates).neighbourly
    assert answer.place is not None
    assert answer.place.known is not None
    return answer.place.known


@pytest.mark.parametrize("name", RANKERS)
@pytest.mark.parametrize(("view", "query", "said"), UNKNOWN)
def test_what_is_empty_unknown_or_far_has_the_scores_of_the_global_model_and_is_told_why(
    name: str, view: str, query: Callable[[], Candidates], said: str
) -> None:
    ranker, candidates = fitted(name, view), query()
    answer = ranker.answer(candidates)
    assert np.array_equal(ranker.predict(candidates), answer.by_everyone())
    assert np.array_equal(answer.scores(), answer.by_everyone())
    if name != "blend":
        assert np.array_equal(answer.scores(), Single(RankSVM(0.1)).fit(trained_on()).predict(candidates))
    found = explain(ranker, candidates, "q")
    assert found.is_global
    assert found.note.endswith(said) or said in found.note
    assert as_dict(found)["note"] == found.note
    assert not found.neighbours


def test_the_terminal_says_how_far_a_query_is() -> None:
    query = asked(MIDDLE[0], OTHER_WAY, some_features())
    known = known_in(fitted("online", "vector"), query)
    console = Console(width=200, record=True, file=StringIO())
    console.print(explanation_tables(explain(fitted("online", "vector"), query, "q"), 5))
    far, limit = f"{float(known.distances()[0]):.4g}", f"{known.limit:.4g}"
    expected = f"the nearest training query is {far} away, and beyond {limit} this model backs off"
    assert expected in console.export_text()


@pytest.mark.parametrize("name", RANKERS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_query_amid_the_training_queries_has_its_own_model(name: str, view: str) -> None:
    ranker, candidates = fitted(name, view), trained_on().candidates.select([7])
    found = explain(ranker, candidates, candidates.query_ids[0])
    assert not found.is_global
    assert not found.note
    assert "note" not in as_dict(found)
    assert not np.array_equal(ranker.predict(candidates), ranker.answer(candidates).by_everyone())


@pytest.mark.parametrize("view", VIEWS)
def test_of_training_queries_left_out_in_turn_95_percent_do_not_back_off(view: str) -> None:
    ranker, data = fitted("online", view), trained_on()
    points, limit = ranker.places(data.candidates), known_in(ranker, data.candidates).limit
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    nearest = gaps.min(axis=1)
    assert 0.95 <= np.mean(nearest <= limit * (1 + 1e-12)) < 1
    assert limit == pytest.approx(np.quantile(nearest, 0.95))


def test_none_switches_it_off() -> None:
    far = asked(MIDDLE[0], OTHER_WAY, some_features())
    ranker = KnnOnline(RankSVM(0.1), k=8, view=VectorView(), back_off=None).fit(trained_on())
    assert known_in(ranker, far).limit == np.inf
    assert not explain(ranker, far, "q").is_global
    unknown = asked("zzzz qqqq", MIDDLE[1], some_features())
    ranker = KnnOnline(RankSVM(0.1), k=8, view=TextView(), back_off=None).fit(trained_on())
    assert not explain(ranker, unknown, "q").is_global


def test_queries_that_coincide_up_to_rounding_are_not_far_from_one_another() -> None:
    data = trained_on()
    ids = data.candidates.query_ids
    alike = data.with_queries(QueryTable(ids, vectors=np.tile([0.1, 0.2, 0.3, 0.4], (QUERIES, 1))))
    ranker = KnnOnline(RankSVM(0.1), k=8, view=VectorView()).fit(alike)
    assert not explain(ranker, asked("", np.array([0.3, 0.6, 0.9, 1.2]), some_features()), "q").note
    assert explain(ranker, asked("", np.array([0.3, 0.6, 0.9, 1.3]), some_features()), "q").note


def test_it_is_on_by_default_and_a_setting_of_every_method_by_neighbours() -> None:
    for name in ("knn-online", "knn-offline-1", "knn-offline-2", "blend", "weights-by-query"):
        assert METHODS[name].settings["back_off"].default == 0.95, name
    online: Any = METHODS["blend"].build(back_off=None)
    assert online.rankers[-1].back_off is None
    online = METHODS["blend"].build()
    assert online.rankers[-1].back_off == 0.95


def test_a_saved_model_backs_off_as_it_did_and_older_ones_do_not(tmp_path: Path) -> None:
    far = asked(MIDDLE[0], OTHER_WAY, some_features())
    for name in ("online", "offline-1", "offline-2"):
        ranker = fitted(name, "vector")
        save(ranker, tmp_path / name)
        again = load(tmp_path / name)
        assert explain(again, far, "q") == explain(ranker, far, "q")
        assert np.array_equal(again.predict(far), ranker.predict(far))
        kind: type = type(ranker)
        assert declared(kind)["back_off"] == Added(None)


def test_a_wrapped_ranker_is_told_of_too() -> None:
    ranker = QueryNormalised(KnnOnline(RankSVM(0.1), k=8, view=VectorView())).fit(trained_on())
    assert explain(ranker, asked("", OTHER_WAY, some_features()), "q").note.endswith("this model backs off")


@pytest.fixture
def back_offs(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """What local models are asked for, collected."""
    found: list[float | None] = []

    class Recorded(Locality):
        def __init__(self, view: Any, neighborhood: Any, back_off: float | None) -> None:
            found.append(back_off)
            super().__init__(view, neighborhood, back_off)

    monkeypatch.setattr(knn_module, "Locality", Recorded)
    return found


@pytest.mark.slow
def test_reproductions_of_papers_never_back_off(back_offs: list[float | None]) -> None:
    fold = make_folds(trained_on())[0]
    for fit in geng2008._Rows(0, quick=True).all(classes=False).values():
        fit(fold.train, fold.valid)
    geng2008_sweep._of_fold(fold, 0, (0.3,), (0.3,))
    geng2008_sweep.stability(fold, 0, queries=2)
    assert len(back_offs) > 20
    for fits in (fromtext._fits(classes=False), hoi2008._ours(hoi2008._Size(quick=True), hoi2008.OTHERS)):
        before = len(back_offs)
        name = next(name for name in fits if name.startswith("knn"))
        fits[name](fold.train, fold.valid)
        assert len(back_offs) > before, name
    assert set(back_offs) == {None}


def test_the_blend_is_measured_as_it_is_shipped(back_offs: list[float | None]) -> None:
    fold, with_runs = (make_folds(data)[0] for data in (trained_on(), as_runs(trained_on())))
    blend._fits("standard")["knn-online"](fold.train, fold.valid)
    fits = hybrid._fits(with_runs.train.feature_names or (), bag=1)
    fits["blend"](with_runs.train, with_runs.valid)
    assert set(back_offs) == {0.95}


REMARK = "it has no vector, so the mean of the training queries' vectors is used in its place"
MEASURED_TO: dict[str, Callable[[], Any]] = {
    "nearby": lambda: NearbyBlend(Blend([RankSVM(0.1), RankSVM(10.0)]), 0.2, view=VectorView(), folds=2),
    "nearby, local": lambda: NearbyBlend(
        Blend([RankSVM(0.1), KnnOnline(RankSVM(0.1), k=8)]), 0.2, view=SideBySide([TopMean(), VectorView()]), folds=2
    ),
    "naive": lambda: Naive(RankSVM(0.1), 3, view=VectorView()),
    "classes": lambda: QueryClasses(RankSVM(0.1), view=VectorView()),
    "beside": lambda: KnnOnline(RankSVM(0.1), k=8, view=SideBySide([TopMean(), VectorView()])),
}


@pytest.mark.parametrize("name", MEASURED_TO)
def test_a_query_that_stands_at_the_mean_for_want_of_a_vector_is_told_of(name: str) -> None:
    data = trained_on()
    table = data.candidates.queries
    assert table is not None
    kinds = tuple("abc"[number % 3] for number in range(QUERIES))
    ranker = MEASURED_TO[name]().fit(data.with_queries(replace(table, classes=kinds)))
    for vector in (np.zeros(0), np.zeros(4)):
        found = explain(ranker, asked(MIDDLE[0], vector, some_features()), "q")
        assert (found.remark, found.note) == (REMARK, "")
        assert as_dict(found)["remark"] == REMARK
        console = Console(width=200, record=True, file=StringIO())
        console.print(explanation_tables(found, 3))
        assert f"About query q: {REMARK}." in console.export_text()
    found = explain(ranker, asked(MIDDLE[0], MIDDLE[1], some_features()), "q")
    assert not found.remark
    assert "remark" not in as_dict(found)
