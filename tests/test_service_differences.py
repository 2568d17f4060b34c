"""Judged queries by gain and loss: the measure of each order, as evaluation has it, within bounds, and kept."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.judged import Judged
from querywise.data.run_columns import Run
from querywise.evaluation.evaluate import evaluate, evaluate_run
from querywise.methods import METHODS
from querywise.service import differences as module
from querywise.service.api import ApiError
from querywise.service.differences import Differences, affordable, differences
from querywise.service.limits import Limits, QueryCost
from querywise.service.loaded_model import LoadedModel, ModelFolder
from querywise.service.lookup import Lookup
from querywise.service.schema import DifferencesResponse
from querywise.service.service import Service
from querywise.storage import load, save
from tests.support.runs import planted


@pytest.fixture(scope="module")
def data() -> Judged:
    """Two runs over 20 documents, of which that of words finds four."""
    made = planted(30)
    features = made.candidates.features.copy()
    features[features[:, 1] < 1 / 4, :2] = 0.0
    return replace(made, candidates=replace(made.candidates, features=features))


def saved(data: Judged, folder: Path, method: str = "knn-online") -> Path:
    built = METHODS[method].build(l2=0.1, k=5) if method == "knn-online" else METHODS[method].build(l2=0.1)
    save(built.fit(data), folder)
    return folder


# The numbers


def test_the_model_and_one_for_all_are_measured_as_evaluation_does(data: Judged, tmp_path: Path) -> None:
    model = LoadedModel.from_folder(saved(data, tmp_path / "model"))
    found = differences(model, data)
    assert [each.id for each in found] == list(data.query_ids)
    answer = load(tmp_path / "model").answer(data.candidates)
    assert [each.value for each in found] == evaluate(answer.scores(), data)["ndcg@10"].tolist()
    common = evaluate(answer.by_everyone(), data)["ndcg@10"].tolist()
    assert [each.others["everyone"] for each in found] == common
    assert common != [each.value for each in found], "else there is nothing to see in this test"


def test_a_run_is_measured_as_the_list_that_it_found(data: Judged, tmp_path: Path) -> None:
    model = LoadedModel.from_folder(saved(data, tmp_path / "model", "single"))
    found = differences(model, data)
    names = data.candidates.feature_names or ()
    ids = data.candidates.document_ids or tuple(map(str, range(len(data.labels))))
    grades, shorter = {}, 0
    for number, query in enumerate(data.query_ids):
        rows = data.candidates.rows(number)
        grades[query] = dict(zip(ids[rows], data.labels[rows].tolist(), strict=True))
    for run in ("words", "vectors"):
        column = data.candidates.features[:, names.index(f"run.{run}.reciprocal_rank")]
        scores = {}
        for number, query in enumerate(data.query_ids):
            rows = data.candidates.rows(number)
            scores[query] = {doc: value for doc, value in zip(ids[rows], column[rows].tolist(), strict=True) if value}
            shorter += len(scores[query]) < len(grades[query])
        expected = evaluate_run(Run(run, scores), grades, measures="ndcg@10").values[:, 0]
        assert [each.others[run] for each in found] == pytest.approx(expected.tolist())
    assert shorter, "some document was not found by a run"
    assert all(list(each.others) == ["words", "vectors", "fused"] for each in found), "this model is the same for all"


# How many


def costs(few: float, many: float) -> QueryCost:
    return QueryCost((few, few, few, many))


def test_all_queries_are_compared_where_they_are_cheap_and_some_from_all_over_where_not() -> None:
    sizes = np.full(1_000, 100)
    assert affordable(sizes, costs(0.001, 0.01), 10).tolist() == list(range(1_000))
    some = affordable(sizes, costs(0.1, 1.0), 10)
    assert some.tolist() == list(range(0, 1_000, 10)), "a hundred of 0.1 s"
    assert affordable(np.full(1_000, 1_000), costs(0.1, 1.0), 10).tolist() == list(range(0, 1_000, 100))
    assert affordable(np.full(1_000, 5), costs(0.1, 1.0), 10).tolist() == some.tolist(), "few documents are not free"
    assert affordable(sizes, costs(100.0, 1000.0), 10).tolist() == [0]
    assert len(affordable(sizes, costs(np.inf, np.inf), 10)) == 200
    many = affordable(np.full(5_000, 10), costs(1e-6, 1e-5), 10)
    assert len(np.unique(many)) == 2_000
    assert many.max() < 5_000
    assert affordable(np.zeros(0, np.int64), costs(0.1, 1.0), 10).tolist() == []


# When


def test_they_are_computed_once_for_a_model_and_anew_for_the_next(data: Judged, tmp_path: Path) -> None:
    models = ModelFolder(saved(data, tmp_path / "model"))
    service = Service(models, Lookup(judged=data))
    kept = Differences(service)

    async def ask() -> list[DifferencesResponse]:
        first, second = await asyncio.gather(kept.current(), kept.current())
        third = await kept.current()
        saved(data, tmp_path / "model", "single")
        assert models.refresh() == "replaced"
        return [first, second, third, await kept.current()]

    first, second, third, fourth = asyncio.run(ask())
    assert first is second is third
    assert first.orders == ["everyone", "words", "vectors", "fused"]
    assert (first.judged_queries, len(first.queries), first.measure) == (30, 30, "ndcg@10")
    assert fourth.model == models.current.version != first.model
    assert fourth.orders == ["words", "vectors", "fused"]


def test_a_failure_is_not_kept(data: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(ModelFolder(saved(data, tmp_path / "model")), Lookup(judged=data))
    kept = Differences(service)

    async def ask() -> DifferencesResponse:
        with monkeypatch.context() as patch:
            patch.setattr(service.explainers, "_unfinished", 10_000)
            with pytest.raises(ApiError, match="More requests are waiting"):
                await kept.current()
        return await kept.current()

    assert len(asyncio.run(ask()).queries) == 30


def test_without_judged_queries_there_are_none(data: Judged, tmp_path: Path) -> None:
    service = Service(ModelFolder(saved(data, tmp_path / "model")))
    found = asyncio.run(Differences(service).current())
    assert (found.queries, found.orders, found.judged_queries) == ([], [], 0)


def test_a_slow_model_is_asked_for_few_queries_at_a_time(
    data: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Explanations wait for one job: many slow queries in one would hold them up, and take longer than is allowed."""
    service = Service(ModelFolder(saved(data, tmp_path / "model")), Lookup(judged=data), limits=Limits(seconds=3.0))
    monkeypatch.setattr(module, "_JOB_SECONDS", 0.05)
    asked: dict[float, list[int]] = {0.04: [], 0.0: []}
    for pause, sizes in asked.items():

        def slow(model: LoadedModel, judged: Judged, pause: float = pause, sizes: list[int] = sizes) -> Any:
            sizes.append(len(judged))
            time.sleep(pause * len(judged))
            return differences(model, judged)

        monkeypatch.setattr(module, "differences", slow)
        found = asyncio.run(Differences(service).current())
        assert [each.id for each in found.queries] == list(data.query_ids)[: len(found.queries)]
        assert len(found.queries) == sum(sizes) == 30
    assert max(asked[0.04]) == 1
    assert max(asked[0.0]) > 4
