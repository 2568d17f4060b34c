"""Models saved by earlier versions load, and score, explain and export as they did: to the last bit on such a machine.

Elsewhere sums are added up in another order, so their last digits differ.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from querywise.storage import load
from querywise.storage.objects import current
from tests.golden.make import ENGINES, HERE, exported
from tests.golden.worlds import answers, machine
from tests.stored_classes import STORED

FOLDERS = sorted(path.name for path in HERE.iterdir() if path.is_dir())
ADAPTER = "retrieval.adapted_vectors.AdaptedVectors"  # ranks nothing; tests/test_stored_adapters.py has its bits
RENAMED = {"querywise": "blend"}  # methods under other names
REMOVED = ("routed", "routed-views")  # kinds that are no longer there
EXPLAINED_NOW = ("selectranker-adarank",)  # linear models whose weights used not to be shown
NOTED_NOW = {
    "weightsbyquery-neighbours": "q0"
}  # a query without words, which used to have neighbours that do not count

BY_FEATURES_NOW = ("blend-ranks", "nearbyblend-views")  # blends of ranks, whose terms used to be their rankers

OF_RUNS = "it adds up scores of several runs"  # why weights of runs used to be refused; now they are a request

UNORDERED = ("knnonline-columns-everyone", "transform-more-clusters-than-queries")  # departures that are rounding alone

FAR_NOW = {
    "knnoffline2-back-off": ("q9", "q12", "q14"),
    "weightsbyquery-signals": ("q0", "q9", "q12", "q14"),
}  # queries too far from all training queries, whose explanation used not to say so


@cache
def golden(name: str) -> tuple[dict[str, Any], bool]:
    """What was written, and whether this is a machine that should get the same bits."""
    written = json.loads((HERE / f"{name}.json").read_text())
    return written[name], written["machine"] == machine()


def alike(found: Any, expected: Any, where: str = "") -> None:
    """The same up to rounding."""
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        for name in expected:
            alike(found[name], expected[name], f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            alike(ours, theirs, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9, nan_ok=True), where
    else:
        assert found == expected, where


def test_every_kind_that_can_be_saved_is_among_them() -> None:
    words = {word for name in FOLDERS for word in (HERE / name / "manifest.json").read_text().split('"')}
    assert set(STORED) - {ADAPTER} <= set(map(current, words))


def reworded(text: str) -> str:
    """Errors used to speak of options of the command line."""
    for before, after in (("trees (--base trees).", "trees: base=trees."), ("--set models=20", "models=20")):
        text = text.replace(before, after)
    return text


@pytest.fixture(scope="module")
def now() -> dict[str, dict[str, list[float]]]:
    """What is scored now; the first time everything is compiled, the second time it is looked at."""
    asked_in_a_process()
    return asked_in_a_process()


def asked_in_a_process(**environment: str) -> dict[str, dict[str, list[float]]]:
    """What is scored under these variables of the environment."""
    command = [sys.executable, "-m", "tests.golden.ask", *REMOVED]
    root, variables = HERE.parent.parent.parent, {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, env=variables)
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.xdist_group("golden")
@pytest.mark.parametrize("kind", ["scores", "methods"])
def test_saved_models_and_methods_score_as_they_did(now: dict[str, Any], kind: str) -> None:
    expected, exactly = golden(kind)
    expected = {RENAMED.get(name, name): values for name, values in expected.items() if name not in REMOVED}
    assert set(now[kind]) >= set(expected)
    for name in expected:
        if exactly:
            assert np.array_equal(now[kind][name], expected[name]), name
        else:
            alike(now[kind][name], expected[name], name)


def by_rankers(found: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Reasons with the terms they used to have, whose sums are those of features now."""
    for query, reason in found.items():
        terms, rankers = reason["terms"], before[query]["terms"]
        assert not any(each["feature"].startswith("rank by ") for each in terms)
        for side in ("here", "everyone"):
            total = sum(each[side] for each in rankers)
            assert sum(each[side] for each in terms) == pytest.approx(total, abs=1e-9)
    return {query: {**reason, "terms": before[query]["terms"]} for query, reason in found.items()}


def as_refused(found: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Exports of weights of runs, which are a request where the engine fuses runs, as they used to be refused."""
    if OF_RUNS not in str(before["vespa"]):
        return {}
    written = found["vespa"]
    assert written is None or "has no normalisation" in written or "request.json" in written["texts"]
    assert "'elasticsearch' cannot fuse runs" in found["elasticsearch"]
    return {engine: before[engine] for engine in ENGINES}


@pytest.mark.parametrize("name", [name for name in FOLDERS if name not in REMOVED])
def test_a_saved_model_explains_and_exports_as_it_did(name: str) -> None:
    ranker = load(HERE / name)
    said, exactly = golden("answers")
    again = {**answers(ranker), **{engine: exported(ranker, engine) for engine in ENGINES}}
    if not exactly:  # the digits of weights and thresholds are in these texts
        for each in (said[name], again):
            each.update({engine: None for engine in ENGINES if isinstance(each[engine], dict)})
    if name in EXPLAINED_NOW:
        for each in again["explained"].values():
            assert each["departures"] or each["is_global"]
            each["departures"] = []
    expected = json.loads(reworded(json.dumps(said[name])))
    if name in BY_FEATURES_NOW:
        again["why"] = by_rankers(again["why"], expected["why"])
    if name in NOTED_NOW:
        query = NOTED_NOW[name]
        assert again["explained"][query].pop("note") == "the training queries have none of its words"
        assert again["explained"][query]["is_global"]
        for kind in ("explained", "why"):
            assert not again[kind][query]["neighbours"]
            again[kind][query]["neighbours"] = expected[kind][query]["neighbours"]
    for query in FAR_NOW.get(name, ()):
        assert again["explained"][query].pop("note").endswith("this model backs off")
        assert again["explained"][query]["is_global"]
    again.update(as_refused(again, expected))
    if name in UNORDERED:
        for each in (again, expected):
            for explained in each["explained"].values():
                explained["departures"].sort(key=itemgetter("feature"))
    alike(json.loads(json.dumps(again)), expected)


@pytest.mark.slow
@pytest.mark.xdist_group("golden")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="these are names of x86_64 processors")
@pytest.mark.parametrize("processor", ["Nehalem", "Haswell", "SkylakeX"])
def test_saved_models_and_methods_score_the_same_by_the_sums_of_other_processors(processor: str) -> None:
    now = asked_in_a_process(OPENBLAS_CORETYPE=processor)
    for kind in ("scores", "methods"):
        expected, _ = golden(kind)
        for name in set(expected) - set(REMOVED):
            alike(now[kind][RENAMED.get(name, name)], expected[name], name)
