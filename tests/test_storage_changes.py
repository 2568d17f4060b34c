"""Folders that earlier versions wrote: renamed, grown and removed kinds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.judged import Candidates, Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, ModelFileError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.runtime.files import digest_of
from querywise.runtime.parameters import Package
from querywise.runtime.stored import Added, declared
from querywise.storage import load, objects, save
from tests.golden.make import HERE
from tests.stored_classes import STORED

DATA = make_judged(20, 8, 3)


@pytest.fixture
def scale_added(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Called, it is as if the ranking SVM had got its parameter `scale` after folders were written."""

    def add() -> None:
        monkeypatch.setattr(RankSVM, "stored", {**RankSVM.stored, "scale": Added("none")})
        declared.cache_clear()

    yield add
    monkeypatch.undo()
    declared.cache_clear()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(RankSVM(0.5).fit(DATA), tmp_path / "model")
    return tmp_path / "model"


def rewrite(model: Path, change: Any) -> None:
    """Edit the ranker in a manifest as another version would have written it."""
    body = json.loads((model / "manifest.json").read_text())
    del body["sha256"]
    change(body["ranker"])
    (model / "manifest.json").write_text(json.dumps({**body, "sha256": digest_of(body)}))


def test_a_parameter_that_a_folder_lacks_takes_its_earlier_value(model: Path, scale_added: Callable[[], None]) -> None:
    rewrite(model, lambda entry: entry["parameters"].pop("scale"))
    with pytest.raises(ModelFileError, match="other parameters"):
        load(model)
    scale_added()
    found = load(model)
    assert isinstance(found, RankSVM)
    assert found.scale == "none"


def test_a_value_in_the_folder_wins_over_the_earlier_one(model: Path, scale_added: Callable[[], None]) -> None:
    scale_added()
    found = load(model)
    assert isinstance(found, RankSVM)
    assert found.scale == "standard"


def test_renamed_classes_and_learned_names_are_found_by_their_aliases(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load(model).predict(DATA.candidates)

    def older(entry: dict[str, Any]) -> None:
        entry["$class"] = "RankingMachine"
        entry["learned"]["slopes_"] = entry["learned"].pop("weights_")

    rewrite(model, older)
    with pytest.raises(ModelFileError, match="does not know"):
        load(model)
    monkeypatch.setitem(objects.FORMER, "RankingMachine", "learners.ranksvm.ranksvm.RankSVM")
    monkeypatch.setitem(objects.FORMER, "learners.ranksvm.ranksvm.RankSVM.slopes_", "weights_")
    assert np.array_equal(load(model).predict(DATA.candidates), expected)


def test_former_names_lead_to_classes_that_are_there() -> None:
    assert {objects.current(name) for name in objects.FORMER} <= set(STORED)
    assert not set(objects.REMOVED) & set(objects.FORMER)


def test_a_folder_names_classes_by_their_module(model: Path) -> None:
    body = json.loads((model / "manifest.json").read_text())
    assert body["ranker"]["$class"] == "learners.ranksvm.ranksvm.RankSVM"
    expected = load(model).predict(DATA.candidates)
    rewrite(model, lambda entry: entry.update({"$class": "RankSVM"}))
    assert np.array_equal(load(model).predict(DATA.candidates), expected)


@pytest.mark.parametrize(
    "name",
    [
        "learners.ranksvm.ranksvm.Judged",  # imported there, defined elsewhere
        "learners.ranksvm.ranksvm.RankSVM.fit",
        "learners.ranksvm.newton.Optimum",  # declares nothing
        "learners.ranksvm.nowhere.RankSVM",
        "learners.peers.XGBoost",
        "rankers.weights.fusion._Vote",
        "storage.models.Path",
        "cli.app.App",
        "querywise.learners.ranksvm.ranksvm.RankSVM",
        "learners..ranksvm.RankSVM",
        "learners.ranksvm.ranksvm.RankSVM\n",
        "learners/ranksvm/ranksvm.RankSVM",
        "",
    ],
)
def test_a_name_that_is_no_stored_class_is_refused(model: Path, name: str) -> None:
    rewrite(model, lambda entry: entry.update({"$class": name}))
    with pytest.raises(
        ModelFileError, match=r"which this version does not know\. Use the querywise version that wrote it"
    ):
        load(model)


def test_a_class_that_is_there_for_others_to_extend_is_no_ranker(model: Path) -> None:
    def bare(entry: dict[str, Any]) -> None:
        entry.update({"$class": "learners.linear.WeightedSum", "parameters": {}})
        del entry["learned"]["objective_"], entry["learned"]["gap_"]

    rewrite(model, bare)
    with pytest.raises(ModelFileError, match="it is not a fitted ranker"):
        load(model)


def test_loading_imports_no_other_learner_than_the_one_named(model: Path) -> None:
    script = f"import sys; from querywise import load; load({str(model)!r}); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    found = {each for each in run.stdout.split() if each.startswith("querywise.")}
    assert "querywise.learners.ranksvm.ranksvm" in found
    assert not {each for each in found if each.startswith(("querywise.rankers.", "querywise.learners.trees."))}


def test_a_learned_value_that_is_not_declared_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    ranker = RankSVM().fit(DATA)
    ranker.slopes_ = ranker.weights_  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="A RankSVM cannot be saved: its `stored` has no slopes_"):
        save(ranker, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", ["routed", "routed-views"])
def test_a_kind_that_was_removed_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ModelFileError, match=r"a Routed, which was removed: it was no better than the blend"):
        load(HERE / name)


def test_a_fitted_ranker_of_the_users_own_is_refused_as_what_it_is(tmp_path: Path) -> None:
    class Own:
        feature_count_ = 3
        feature_names_ = None

        def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Own:
            return self

        def predict(self, candidates: Candidates, /) -> Any:
            return candidates.features[:, 0]

    own: Any = Own()
    with pytest.raises(DataError, match=r"An? Own cannot be saved .* names classes of querywise alone"):
        save(own.fit(DATA), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_whose_package_is_missing_says_what_to_install(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RankSVM, "package", Package("absent_package", "pip install absent"), raising=False)
    words = r"The model is a RankSVM, which needs the package absent_package\. Install it with: pip install absent"
    with pytest.raises(ModelFileError, match=words):
        load(model)
    monkeypatch.setattr(RankSVM, "package", Package("numpy", "pip install numpy"))
    assert isinstance(load(model), RankSVM)
