"""Vespa's own code reads what is exported for it, and scores as the models do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise import KnnOnline, RankSVM, Router, TextView, export_model
from querywise.exports.routing import HybridRouter
from querywise.exports.writing import export_hybrid
from querywise.rankers.weights.fusion import EqualWeights, Weights
from tests.engines import parity, vespa
from tests.support.exports import world
from tests.support.runs import planted


def documents_of(features: Any) -> list[dict[str, float]]:
    """Documents as the application parity-app has them."""
    return [{f"attribute(value{place})": value for place, value in enumerate(row)} for row in features.tolist()]


@pytest.mark.parametrize("case", [case for case in parity.CASES if case.made_up], ids=lambda case: case.name)
def test_vespa_scores_as_we_do(case: parity.Case, evaluator: vespa.Vespa) -> None:
    row = parity.measured(case, lambda export: vespa.scoring(evaluator, export), "vespa")
    assert row.share <= 1
    assert row.swapped == 0


def test_without_weights_the_profile_ranks_by_the_global_model(evaluator: vespa.Vespa, tmp_path: Path) -> None:
    ranker, test = RankSVM().fit(world()), world(1).candidates
    export_model(ranker, "vespa", tmp_path / "out")
    assert (np.abs(ranker.weights_) < 1e-4).any(), "written without an exponent, which schemas do not take"
    found = evaluator.first_phase(tmp_path / "out" / "parity-app", "querywise", documents_of(test.features[:50]))
    assert found == pytest.approx(ranker.predict(test)[:50].tolist(), rel=1e-12)


def test_a_router_sends_each_query_its_weights(evaluator: vespa.Vespa, tmp_path: Path) -> None:
    ranker, test = KnnOnline(RankSVM(), k=0.3, view=TextView(5)).fit(world()), world(2).candidates
    export_model(ranker, "vespa", tmp_path / "out")
    router, predicted = Router(tmp_path / "out"), ranker.predict(test)
    assert test.queries is not None
    assert test.queries.texts is not None
    for query in range(0, len(test), 6):
        rows = test.rows(query)
        cells = ",".join(f"{label}:{value!r}" for label, value in router.weights(test.queries.texts[query]).items())
        documents = documents_of(test.features[rows])
        found = evaluator.first_phase(tmp_path / "out" / "parity-app", "querywise", documents, f"{{{cells}}}")
        assert found == pytest.approx(predicted[rows].tolist(), rel=1e-9)


def application(folder: Path, profile: Path) -> Path:
    """The profile of an export of weights in an application, as its README says."""
    text = profile.read_text()
    for place, name in (("text_field", "body"), ("vector_field", "meaning"), ("dimension", "2")):
        text = text.replace(f"EDIT_ME_{place}", name)
    assert "EDIT_ME" not in text
    (folder / "schemas" / "page").mkdir(parents=True)
    (folder / "schemas" / "page" / profile.name).write_text(text)
    (folder / "schemas" / "page.sd").write_text(_SCHEMA)
    return folder


_SCHEMA = """schema page {
    document page {
        field body type string {
            indexing: index | summary
            index: enable-bm25
        }
        field meaning type tensor<float>(x[2]) {
            indexing: attribute | index
            attribute {
                distance-metric: angular
            }
        }
    }
}
"""


@pytest.mark.parametrize("normalise", ["opensearch-min-max", "rank"])
def test_query_inputs_weigh_the_runs(normalise: Any, evaluator: vespa.Vespa, tmp_path: Path) -> None:
    data = planted(60)
    fitted: Any = Weights(normalise).fit(data) if normalise != "rank" else EqualWeights(normalise).fit(data)
    export_hybrid(fitted, "vespa", tmp_path / "export", name="hybrid")
    app = application(tmp_path / "app", tmp_path / "export" / "hybrid.profile")
    request: Any = HybridRouter(tmp_path / "export").request("disk", vector=[1.0, 2.0])
    inputs = {key.removeprefix("input."): each for key, each in request.items() if key.startswith("input.query(w_")}
    rng = np.random.default_rng(0)
    words, vectors = rng.gamma(2.0, 3.0, 80), rng.uniform(0, 1, 80)
    hits = [
        {"bm25(body)": one, "closeness(field,meaning)": other}
        for one, other in zip(words.tolist(), vectors.tolist(), strict=True)
    ]
    found = evaluator.global_phase(app, request["ranking"], hits, inputs)
    expected = sum(
        inputs[f"query(w_{run})"] * scaled(own, normalise) for run, own in (("words", words), ("vectors", vectors))
    )
    assert found == pytest.approx(expected.tolist(), rel=1e-6)


def scaled(scores: Any, normalise: str) -> Any:
    """What Vespa's normalisers are documented to compute."""
    if normalise == "rank":
        return 1 / (60 + 1 + np.argsort(np.argsort(-scores)))
    return (scores - scores.min()) / (scores.max() - scores.min())


def test_what_vespa_refuses_is_said_in_its_words(evaluator: vespa.Vespa, tmp_path: Path) -> None:
    export_model(RankSVM().fit(world()), "vespa", tmp_path / "out")
    profile = tmp_path / "out" / "parity-app" / "schemas" / "parity" / "querywise.profile"
    profile.write_text(profile.read_text().replace("sum(query(w) * features)", "sum(query(w) * features"))
    with pytest.raises(vespa.VespaError, match="In rank-profile 'querywise'"):
        evaluator.first_phase(tmp_path / "out" / "parity-app", "querywise", [])
