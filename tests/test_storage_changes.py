"""Folders that earlier versions wrote: renamed, grown and removed kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.judged import Candidates, Judged
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, ModelFileError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.storage import kinds, load, save
from querywise.storage.folder import digest_of
from tests.golden.make import HERE

DATA = make_judged(20, 8, 3)


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


def test_a_parameter_that_a_folder_lacks_takes_its_earlier_value(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(model, lambda entry: entry["parameters"].pop("scale"))
    with pytest.raises(ModelFileError, match="other parameters"):
        load(model)
    monkeypatch.setitem(kinds.BEFORE, "RankSVM", {"scale": "none"})
    found = load(model)
    assert isinstance(found, RankSVM)
    assert found.scale == "none"


def test_a_value_in_the_folder_wins_over_the_earlier_one(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.BEFORE, "RankSVM", {"scale": "none"})
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
    monkeypatch.setitem(kinds.ALIASES, "RankingMachine", "RankSVM")
    monkeypatch.setitem(kinds.ALIASES, "RankSVM.slopes_", "weights_")
    assert np.array_equal(load(model).predict(DATA.candidates), expected)


def test_aliases_lead_to_kinds_that_are_there() -> None:
    for name in kinds.ALIASES.values():
        assert name in kinds.SAVABLE or name.endswith("_")
    assert not set(kinds.REMOVED) & set(kinds.SAVABLE)


@pytest.mark.parametrize("name", ["routed", "routed-views"])
def test_a_kind_that_was_removed_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ModelFileError, match=r"a Routed, which is no longer there: it was no better than the blend"):
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
