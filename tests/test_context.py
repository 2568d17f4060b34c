"""Features beside those of the query's other candidates."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from querywise.data.collections import Collection, Document
from querywise.data.folds import make_folds
from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.judgements import Judgement
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.data.vectors import CollectionVectors, as_vectors
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.jobs import compare
from querywise.jobs.fit import FitOptions, run
from querywise.learners.local_models import PreparedRows
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees import context
from querywise.learners.trees.boosting import LambdaMART
from querywise.learners.trees.context import QueryContext
from querywise.learners.within_query import within_query
from querywise.locality.views.columns import SignalView
from querywise.locality.views.topmean import TopMean
from querywise.methods.table import METHODS
from querywise.retrieval.features import candidates_for, judged_candidates
from querywise.retrieval.index import Index, build_index
from querywise.retrieval.indexed_vectors import with_vectors
from querywise.retrieval.signals import signals
from querywise.runtime.cache import caching
from querywise.service.loaded_model import LoadedModel
from querywise.service.schema import Document as RequestDocument
from querywise.service.schema import Query, RankRequest, unread
from querywise.storage import load, save
from tests.worlds import inside, ragged


def one_query(*columns: list[float]) -> Candidates:
    return Candidates(np.array(columns).T, np.array([0, len(columns[0])]), ("q",))


def test_standing_is_what_numpy_and_scipy_say_query_by_query() -> None:
    candidates = ragged(1, queries=40).candidates
    found = within_query(candidates.features, candidates)
    for query in range(len(candidates) - 3):
        own = candidates.features[candidates.rows(query)]
        assert found.means[query] == pytest.approx(own.mean(axis=0), abs=1e-12)
        assert found.spreads[query] == pytest.approx(own.std(axis=0), abs=1e-12)
        assert found.z[candidates.rows(query)] == pytest.approx((own - own.mean(axis=0)) / own.std(axis=0), abs=1e-9)
        ranks = (rankdata(own, axis=0) - 1) / (len(own) - 1)
        assert found.ranks[candidates.rows(query)] == pytest.approx(ranks, abs=1e-12)


def test_what_does_not_differ_is_level_even_where_rounding_says_otherwise() -> None:
    tenth = [0.1, 0.1, 0.1, 0.1 + 1e-17, 0.1]
    noisy = [1.0, 1.0 + 2e-16, 1.0, 1.0 - 1e-16, 1.0]
    found = within_query(one_query(tenth, noisy).features, one_query(tenth, noisy))
    assert not found.spreads.any()
    assert not found.z.any()
    assert np.all(found.ranks == 0.5)
    assert found.means[0, 0] == 0.1
    alone = one_query([3.0])
    assert [each.tolist() for each in within_query(alone.features, alone)] == [[[3.0]], [[0.0]], [[0.0]], [[0.5]]]


@pytest.mark.parametrize("size", [1.7e308, 1e-308, 5e-324])
def test_numbers_of_any_size_have_a_standing(size: float) -> None:
    candidates = one_query([-size, 0.0, size, size])
    found = within_query(candidates.features, candidates)
    assert all(np.isfinite(each).all() for each in found)
    assert found.ranks[:, 0] == pytest.approx([0, 1 / 3, 5 / 6, 5 / 6])
    if size > 1e-300:
        assert found.z[:, 0] == pytest.approx(np.array([-5, -1, 3, 3]) / np.sqrt(11))


def test_the_order_of_documents_and_the_queries_beside_change_no_bit() -> None:
    rng = np.random.default_rng(0)
    data = ragged(5, queries=30)
    candidates = replace(data.candidates, features=rng.normal(size=data.candidates.features.shape))
    whole = within_query(candidates.features, candidates)
    for query in range(len(candidates)):
        rows = candidates.rows(query)
        turn = rng.permutation(rows.stop - rows.start)
        alone = candidates.select([query])
        mixed = within_query(alone.features[turn], alone)
        assert np.array_equal(mixed.means[0], whole.means[query])
        assert np.array_equal(mixed.spreads[0], whole.spreads[query])
        assert np.array_equal(mixed.z, whole.z[rows][turn])
        assert np.array_equal(mixed.ranks, whole.ranks[rows][turn])


def test_the_threads_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = ragged(2, queries=50).candidates
    whole = within_query(candidates.features, candidates)
    monkeypatch.setattr("querywise.learners.within_query._BLOCK", 7)
    for ours, theirs in zip(within_query(candidates.features, candidates), whole, strict=True):
        assert np.array_equal(ours, theirs)


def test_the_columns_are_named_by_what_they_hold() -> None:
    data = ragged()
    named = replace(data, candidates=replace(data.candidates, feature_names=("bm25", "age", "clicks", "length")))
    fitted = QueryContext(RankSVM(), ["rank", "mean", "length"]).fit(named)
    seen = fitted.context(named.candidates)
    assert seen.feature_names == (
        "bm25", "age", "clicks", "length",
        "mean of bm25", "mean of age", "mean of clicks", "mean of length",
        "rank of bm25", "rank of age", "rank of clicks", "rank of length",
        "list length",
    )  # fmt: skip
    found = within_query(data.candidates.features, data.candidates)
    assert np.array_equal(seen.features[:, 8:12], found.ranks)
    assert np.array_equal(seen.features[:, 4:8], found.means[data.candidates.query_of_row])
    assert np.array_equal(seen.features[:, 12], data.candidates.sizes[data.candidates.query_of_row])
    unnamed = QueryContext(RankSVM(), ["z"]).fit(data)
    assert unnamed.context_names_[3:6] == ("feature 4", "z-score of feature 1", "z-score of feature 2")
    # Trained without names, served with some: as any other model.
    assert np.array_equal(unnamed.predict(named.candidates), unnamed.predict(data.candidates))


def test_without_groups_it_is_the_learner_alone() -> None:
    data = make_judged(30, 10, 4)
    assert np.array_equal(
        QueryContext(LambdaMART(10), ()).fit(data).predict(data.candidates),
        LambdaMART(10).fit(data).predict(data.candidates),
    )


def test_a_views_coordinates_are_added_to_every_document() -> None:
    data = ragged()
    fitted = QueryContext(RankSVM(), ["view"], view=TopMean(0, 2)).fit(data)
    points = TopMean(0, 2).fit(data).points(data.candidates)
    seen = fitted.context(data.candidates)
    assert np.array_equal(seen.features[:, 4:], points[data.candidates.query_of_row])
    assert fitted.context_names_[4:] == tuple(f"view coordinate {number}" for number in (1, 2, 3, 4))


def relative(queries: int, seed: int) -> Judged:
    """The third of a query's documents with the most of feature 0 are relevant, whatever level the query is on."""
    rng = np.random.default_rng(seed)
    parts = []
    for query in range(queries):
        x = rng.normal(size=(12, 3))
        labels = (x[:, 0] >= np.sort(x[:, 0])[8]).astype(np.int64)
        x[:, 0] = x[:, 0] * np.exp(2 * rng.normal()) + 5 * rng.normal()
        parts.append(Judged(Candidates(x, np.array([0, 12]), (f"{seed}-{query}",)), labels))
    return concatenate(parts)


def test_trees_learn_what_only_the_list_can_tell() -> None:
    train, test = relative(40, 1), relative(60, 2)

    def reached(learner: Any) -> float:
        scores = learner.fit(train).predict(test.candidates)
        return float(evaluate(scores, test, measures=["map"]).mean()["map"])

    alone = reached(LambdaMART(60))
    for columns in (["z"], ["rank"]):
        assert reached(QueryContext(LambdaMART(60), columns)) > max(alone + 0.05, 0.97)


def test_query_weights_and_validation_queries_reach_the_learner() -> None:
    data = make_judged(90, 15, 5, seed=1)
    half = np.repeat([1.0, 0.0], 45)
    weighted = QueryContext(LambdaMART(15)).fit(data, query_weights=half).predict(data.candidates)
    alone = QueryContext(LambdaMART(15)).fit(data.select(range(45))).predict(data.candidates)
    assert np.array_equal(weighted, alone)
    stopped = QueryContext(LambdaMART(400, patience=5)).fit(data.select(range(60)), valid=data.select(range(60, 90)))
    assert inside(stopped.learner_).tree_count_ < 400


def test_local_models_grow_as_many_trees_as_the_global_one_on_top_of_it() -> None:
    data = make_judged(60, 10, 4)
    ready = PreparedRows(QueryContext(LambdaMART(400, patience=5, prior="global"))).fit(
        data.select(range(40)), valid=data.select(range(40, 60))
    )
    local = inside(ready.learner).local(ready.everyone)
    assert local.learner.trees == inside(ready.everyone_).learner_.tree_count_
    assert local.learner.base is inside(ready.everyone_).learner_


def test_many_documents_are_scored_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_judged(40, 10, 4)
    fitted = QueryContext(LambdaMART(10)).fit(data)
    whole = fitted.predict(data.candidates)
    monkeypatch.setattr(context, "_BLOCK", 33)
    assert np.array_equal(fitted.predict(data.candidates), whole)


def test_learners_in_the_same_context_share_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_judged(20, 10, 4)
    seen: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        seen.append(1)
        return within_query(*arguments, **options)

    monkeypatch.setattr(context, "within_query", counted)
    with caching():
        for trees in (3, 4):
            QueryContext(LambdaMART(trees)).fit(data)
        assert len(seen) == 1
        QueryContext(LambdaMART(3), ["rank"]).fit(data)
    assert len(seen) == 2


def test_a_saved_one_still_knows_its_columns(tmp_path: Path) -> None:
    data = make_judged(30, 10, 4)
    save(QueryContext(LambdaMART(5), ("rank",)).fit(data), tmp_path / "model")
    again = load(tmp_path / "model")
    assert inside(again).columns == ("rank",)
    assert inside(again).context_names_[-1] == "rank of feature 4"


@pytest.mark.parametrize(
    ("ranker", "words"),
    [
        (QueryContext(RankSVM(), ["mean", "median"]), "'median' is none of them"),
        (QueryContext(RankSVM(), "mean"), "expected a list of mean, spread, z, rank, length, view"),
        (QueryContext(RankSVM(), ["view"]), "Give both view=… and 'view' among the columns"),
        (QueryContext(RankSVM(), view=TopMean(0)), "Give both view=… and 'view' among the columns"),
    ],
)
def test_columns_that_cannot_be_are_refused(ranker: QueryContext, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ranker.fit(ragged())


def searched(queries: int = 40) -> tuple[Judged, Index]:
    """Judged candidates of a collection with words and vectors, and its index."""
    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(30)]
    documents = [Document(f"d{each}", "", " ".join(rng.choice(words, 12))) for each in range(120)]
    ids, of_documents = [each.id for each in documents], rng.normal(size=(120, 5))
    index = with_vectors(build_index(documents), CollectionVectors(as_vectors(ids, of_documents)))
    asked = tuple(f"q{each}" for each in range(queries))
    grades = [Judgement(query, str(rng.choice(ids)), 1, "here") for query in asked for _ in range(6)]
    texts = tuple(" ".join(rng.choice(words, rng.integers(1, 5))) for _ in asked)
    table = QueryTable(asked, texts=texts, vectors=rng.normal(size=(queries, 5)))
    return judged_candidates(Collection("made up", lambda: iter(documents), table, tuple(grades)), index)[0], index


def test_signals_in_the_context_are_those_of_the_view_and_of_the_module() -> None:
    data, _ = searched()
    names = data.feature_names or ()
    fitted = QueryContext(RankSVM(), ("z", "view"), view=SignalView()).fit(data)
    seen, width = fitted.context(data.candidates), len(names)
    assert seen.feature_names is not None
    told = signals(data.candidates)
    assert seen.feature_names[2 * width :] == tuple(f"signal {name}" for name in told.names)
    points = SignalView().fit(data).points(data.candidates)
    assert seen.features[:, 2 * width :].tolist() == np.repeat(points, data.candidates.sizes, axis=0).tolist()
    spread = told.values.std(axis=0)
    assert spread.min() > 1e-6
    assert points == pytest.approx((told.values - told.values.mean(axis=0)) / spread)
    nameless = replace(data.candidates, feature_names=None)
    assert fitted.predict(nameless).tolist() == fitted.predict(data.candidates).tolist()


@pytest.mark.parametrize("method", ["lambdamart", "blend"])
def test_signals_are_the_same_digits_offline_from_disk_and_in_a_request(method: str, tmp_path: Path) -> None:
    data, index = searched()
    growth = {"trees": 8, "min_documents": 5, "bag": 1}
    plain = METHODS[method].build(**growth).fit(data)
    ranker = METHODS[method].build(**growth, signals="on").fit(data)
    offline = ranker.predict(data.candidates)
    assert offline.tolist() != plain.predict(data.candidates).tolist()
    assert (
        METHODS[method].build(**growth, signals="off").fit(data).predict(data.candidates).tolist()
        == plain.predict(data.candidates).tolist()
    )
    save(ranker, tmp_path / "m")
    served = LoadedModel.from_folder(tmp_path / "m")
    assert served.ranker.predict(data.candidates).tolist() == offline.tolist()
    table = data.candidates.queries
    assert table is not None
    assert table.texts is not None
    assert table.vectors is not None
    for query in range(0, len(data), 9):
        rows = data.candidates.rows(query)
        ids = (data.candidates.document_ids or ())[rows]
        documents = [
            RequestDocument(each, unread(row))
            for each, row in zip(ids, data.candidates.features[rows].tolist(), strict=True)
        ]
        asked = Query("q", table.texts[query], vector=table.vectors[query].tolist())
        (answer,), _ = served.rank([RankRequest(asked, documents)])
        assert {each.id: each.score for each in answer.documents} == dict(zip(ids, offline[rows].tolist(), strict=True))
        found = candidates_for(index, QueryTable(("q",), texts=(table.texts[query],), vectors=table.vectors[[query]]))
        assert ranker.predict(found).tolist() == offline[rows].tolist()


def test_validation_data_choose_signals_where_that_is_asked_for(tmp_path: Path) -> None:
    data, _ = searched(30)
    method = METHODS["lambdamart"]
    fixed: dict[str, Any] = {"trees": 5, "min_documents": 5, "leaves": 7, "learning_rate": 0.1}
    asked = FitOptions(method, {**fixed, "signals": "chosen"}, folds=2)
    found = run(asked, data, None, tmp_path / "m")
    assert found.tuned.parameters["signals"] in ("off", "on")
    assert {each.parameters["signals"] for each in found.tuned.tried} == {"off", "on"}
    assert "signals" not in method.grid_on(data)  # not tried unless asked for
    with pytest.raises(DataError, match="leaves the choice to validation data"):
        method.build(signals="chosen")


def test_a_comparison_chooses_signals_on_each_validation_part() -> None:
    data, _ = searched(30)
    fixed: dict[str, Any] = {"trees": 3, "min_documents": 5, "leaves": 7, "learning_rate": 0.1, "signals": "chosen"}
    asked = compare.CompareOptions(methods=("lambdamart",), fixed=fixed)
    found, _ = compare.run(asked, make_folds(data), None, title="signals")
    parts = found.compared.trained["lambdamart"]
    assert [{trial.parameters["signals"] for trial in each.tried} for each in parts] == [{"off", "on"}] * 5


def test_the_same_documents_with_other_features_are_checked_as_any() -> None:
    candidates = make_judged(4, 5, 3).candidates
    wide = np.hstack([candidates.features, candidates.features])
    found, expected = candidates.with_features(wide, None), replace(candidates, features=wide)
    for field in fields(Candidates):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        assert np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other, field.name
    assert not found.features.flags.writeable
    found.require_features(6)
    with pytest.raises(DataError, match="every value must be a finite number"):
        candidates.with_features(np.full_like(wide, np.nan), None)
    with pytest.raises(DataError, match="numbers up to"):
        candidates.with_features(np.full_like(wide, 1e130), None).require_moderate()
