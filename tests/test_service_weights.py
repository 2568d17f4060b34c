"""The weights of runs over HTTP: the same digits as from Python, within bounds, with one message for what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.contracts.protocols import QueryView
from querywise.contracts.run_weights import one_query, run_weights, weights_of_query
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.explanations.explain import explain
from querywise.exports.routing import HybridRouter
from querywise.exports.writing import export_hybrid
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.columns import Columns, VectorView
from querywise.rankers.weights.by_query import WeightsByQuery
from querywise.rankers.weights.fusion import Weights
from querywise.storage import save
from tests.serving import Serving, serving
from tests.support.runs import DATA, RUNS, lists_of, text_of
from tests.worlds import ragged

pytestmark = pytest.mark.slow  # several servers

JSON = {"content-type": "application/json"}
NEAR = WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=0.5)
BY_SIGNALS = WeightsByQuery(way="signals", signals_l2=0.1, shrinkage=1.0)


@pytest.fixture(scope="module", params=[NEAR, BY_SIGNALS], ids=["neighbours", "signals"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Serving, WeightsByQuery]]:
    folder = tmp_path_factory.mktemp("weights") / "fusion"
    ranker: WeightsByQuery = request.param.fit(DATA)
    save(ranker, folder)
    with serving(folder, "--max-documents", 100) as server:
        yield server, ranker


@pytest.mark.parametrize("view", [None, VectorView(), Columns()], ids=["text", "vector", "columns"])
@pytest.mark.parametrize("back_off", [None, 0.5])
def test_a_query_alone_has_the_weights_it_has_among_others(view: QueryView | None, back_off: float | None) -> None:
    table, rng = DATA.candidates.queries, np.random.default_rng(3)
    assert table is not None
    vectors = rng.integers(-1, 2, size=(120, 3)).astype(float)  # many queries share a place, and some are nowhere
    told = replace(table, vectors=vectors, columns=vectors[:, :1], column_names=("length",))
    known = replace(DATA.candidates, queries=told)
    ranker = WeightsByQuery(way="neighbours", view=view, kappa=0.25, shrinkage=0.5, back_off=back_off)
    ranker.fit(replace(DATA, candidates=known))
    together = ranker.run_weights(known)
    for query in range(120):
        alone = weights_of_query(ranker, known.select([query]).queries, lists_of(query))
        assert list(alone.values()) == together[query].tolist()


def test_http_and_python_give_the_same_digits(served: tuple[Serving, WeightsByQuery]) -> None:
    server, ranker = served
    offline = ranker.run_weights(DATA.candidates)
    for query in range(0, 120, 7):
        asked = {"query": {"text": text_of(query)}, "runs": lists_of(query)}
        answer = server.post("/v1/weights", asked)
        assert answer.status_code == 200
        found = answer.json()
        assert list(found) == list(RUNS)
        table = QueryTable(("query",), texts=(text_of(query),))
        assert found == weights_of_query(ranker, table, lists_of(query))
        assert list(found.values()) == pytest.approx(offline[query].tolist(), abs=1e-12)
        assert sum(found.values()) == pytest.approx(1)


def test_a_query_of_which_too_little_is_known_has_the_weights_for_all(served: tuple[Serving, WeightsByQuery]) -> None:
    server, ranker = served
    usual = dict(zip(RUNS, ranker.weights_.tolist(), strict=True))
    if ranker.way == "signals":
        assert server.post("/v1/weights", {"query": {"text": "how can disk"}}).json() == usual
    else:
        assert server.post("/v1/weights", {"query": {"text": "how can disk"}}).json() != usual
        assert "text" in server.post("/v1/weights", {"query": {}}).json()["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"runs": {"clicks": {"d1": 1.0}}}, 422, "There is no run 'clicks'; the model weighs words, vectors"),
        ({"runs": {"words": {f"d{number}": 1.0 for number in range(101)}}}, 413, "up to 100 are ranked at a time"),
        ({"runs": {"words": {"d1": "high"}}}, 422, "Expected `float`"),
        ({"runs": {"words": {"d1": None}}}, 422, "Expected `float`"),
        ({"documents": []}, 422, "unknown field `documents`"),
        ({"query": {"text": 5}}, 422, "Expected `str | null`"),
    ],
)
def test_what_is_wrong_is_refused(
    served: tuple[Serving, WeightsByQuery], changes: dict[str, Any], status: int, message: str
) -> None:
    answer = served[0].post("/v1/weights", {"query": {"text": "how can disk"}, **changes})
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]


def test_a_score_that_is_not_finite_is_refused(served: tuple[Serving, WeightsByQuery]) -> None:
    answer = served[0].post("/v1/weights", b'{"query": {"text": "x"}, "runs": {"words": {"d1": 1e999}}}')
    assert answer.status_code in (400, 422)
    assert "error" in answer.json()


def test_a_million_runs_are_refused_before_they_are_read(served: tuple[Serving, WeightsByQuery]) -> None:
    runs = b",".join(b'"r%d":{}' % number for number in range(1_000_000))
    answer = served[0].post("/v1/weights", b'{"query": {"id": "q"}, "runs": {%s}}' % runs, **JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_values")


def test_a_model_that_weighs_no_runs_has_no_weights() -> None:
    with pytest.raises(DataError, match="does not weigh first-stage runs"):
        weights_of_query(RankSVM().fit(ragged()))


def test_one_query_is_the_row_of_a_table_of_runs() -> None:
    ranker = Weights().fit(DATA)
    for query in (0, 5):
        made = one_query(ranker.feature_names_, None, lists_of(query))
        assert sorted(ranker.predict(made)) == pytest.approx(
            sorted(ranker.predict(DATA.candidates.select([query])))[-len(made.features) :]
        )
        assert run_weights(ranker.answer(made)).tolist() == [ranker.weights_.tolist()]


@pytest.mark.slow
def test_a_vector_decides_where_neighbours_are_sought_by_vectors(tmp_path: Path) -> None:
    table = DATA.candidates.queries
    assert table is not None
    kinds = [float((text or "").startswith(("how", "why", "explain"))) for text in table.texts or ()]
    vectors = np.column_stack([kinds, 1 - np.array(kinds), np.linspace(0, 0.1, 120)])
    data = DATA.with_queries(replace(table, texts=None, vectors=vectors))
    ranker = WeightsByQuery(way="neighbours", view=VectorView(), kappa=0.0, shrinkage=1.0).fit(data)
    offline = ranker.run_weights(data.candidates)
    save(ranker, tmp_path / "fusion")
    export_hybrid(ranker, "postgres", tmp_path / "export")
    router = HybridRouter(tmp_path / "export")
    with serving(tmp_path / "fusion") as server:
        for query in (0, 1, 50, 119):
            vector = vectors[query].tolist()
            found = server.post("/v1/weights", {"query": {"vector": vector}}).json()
            assert list(found.values()) == pytest.approx(offline[query].tolist(), abs=1e-12)
            assert found == router.weights(vector=vector)
        nothing = server.post("/v1/weights", {"query": {"vector": [0, 0, 0]}}).json()
        assert list(nothing.values()) == ranker.weights_.tolist()
        wrong = server.post("/v1/weights", {"query": {"vector": [1, 0]}}).json()["error"]["message"]
        assert "the model was trained with 3" in wrong
    assert len({tuple(row) for row in offline.tolist()}) > 1


def test_a_query_without_a_vector_has_the_weights_for_all_where_vectors_decide() -> None:
    table = DATA.candidates.queries
    assert table is not None
    vectors = np.random.default_rng(0).normal(size=(len(DATA), 3))
    data = DATA.with_queries(replace(table, vectors=vectors))
    for back_off in (0.95, None):
        ranker = WeightsByQuery(way="neighbours", view=VectorView(), kappa=0.0, shrinkage=1.0, back_off=back_off).fit(
            data
        )
        usual = dict(zip(RUNS, ranker.weights_.tolist(), strict=True))
        assert weights_of_query(ranker, QueryTable(("query",), texts=("disk full",))) == usual
        assert weights_of_query(ranker) == usual
        assert len(np.unique(ranker.run_weights(data.candidates), axis=0)) > 1


def test_a_query_of_unknown_words_has_the_weights_for_all() -> None:
    table = DATA.candidates.queries
    assert table is not None
    words = tuple(f"{place:04d}" for place in range(len(DATA)))  # none has a word of another, so all are at one place
    ranker = WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=1.0).fit(
        DATA.with_queries(replace(table, texts=words))
    )
    asked = QueryTable(("query",), texts=("zzzz",))
    answer = ranker.answer(one_query(ranker.feature_names_, asked, lists_of(0)))
    assert run_weights(answer).tolist() == [ranker.weights_.tolist()]
    found = explain(ranker, one_query(ranker.feature_names_, asked, lists_of(0)), "query")
    assert found.is_global
    assert found.neighbours == ()
    assert found.note == "the training queries have none of its words"


def test_a_query_without_words_has_the_weights_for_all() -> None:
    ranker = NEAR.fit(DATA)
    usual = dict(zip(RUNS, ranker.weights_.tolist(), strict=True))
    assert weights_of_query(ranker, QueryTable(("query",), texts=(" ",))) == usual
