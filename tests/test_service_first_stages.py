"""What the first stage made of a query, beside the model's order: ranks in each run, fused, and the weights of runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from querywise.contracts.run_weights import run_weights
from querywise.data.judged import Candidates
from querywise.rankers.weights.by_query import WeightsByQuery
from querywise.service.loaded_model import LoadedModel
from querywise.service.lookup import Lookup, first_stage_ranks
from querywise.service.schema import Query
from querywise.storage import save
from tests.support.runs import planted

NAMES = ("run.bm25.score", "run.bm25.reciprocal_rank", "run.vectors.score", "run.vectors.reciprocal_rank")


def of_one_query(features: list[list[float]], names: tuple[str, ...] | None) -> Candidates:
    return Candidates(np.array(features), np.array([0, len(features)]), ("q",), feature_names=names)


def test_ranks_are_those_of_each_run_and_of_both_by_their_reciprocal_ranks() -> None:
    found = first_stage_ranks(of_one_query([[9, 1, 0, 0], [8, 0.5, 0.7, 0.5], [0, 0, 0.9, 1], [7, 1 / 3, 0, 0]], NAMES))
    assert {name: ranks.tolist() for name, ranks in found.items()} == {
        "bm25": [1, 2, 0, 3],
        "vectors": [0, 2, 1, 0],
        "fused": [2, 1, 3, 4],  # 1/62 + 1/62; 1/61 twice, of which the earlier comes first; 1/63
    }


def test_without_runs_bm25_is_that_of_the_features_and_without_it_nothing_is_known() -> None:
    found = first_stage_ranks(of_one_query([[1, 0], [2, 3], [3, 5]], ("length", "H1.bm25")))
    assert {name: ranks.tolist() for name, ranks in found.items()} == {"bm25": [0, 2, 1]}
    assert first_stage_ranks(of_one_query([[1, 2]], ("a", "b"))) == {}
    assert first_stage_ranks(of_one_query([[1, 2]], None)) == {}


def test_the_weights_of_runs_are_those_of_the_model(tmp_path: Path) -> None:
    data = planted(60)
    ranker = WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=0.5).fit(data)
    save(ranker, tmp_path / "model")
    model, lookup = LoadedModel.from_folder(tmp_path / "model"), Lookup(judged=data)
    query = data.candidates.query_ids[3]
    candidates = lookup.candidates(Query(id=query), None, model)
    found = lookup.found(model, candidates, 5, judged_as=query)
    own = run_weights(ranker.answer(data.candidates))[3]
    assert [each.here for each in found.weights] == pytest.approx(own.tolist())
    assert sum(each.everyone or 0 for each in found.weights) == pytest.approx(1)
    assert [each.run for each in found.weights] == found.runs[:-1]
    assert found.runs[-1] == "fused"
    for name in found.runs:
        first = {each.ranks[name] for each in found.documents if each.ranks.get(name, 99) <= 5}
        assert first == set(range(1, len(first) + 1)), "the first of every order are there"
