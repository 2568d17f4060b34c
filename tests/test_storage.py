from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from querywise.data.synthetic import make_judged
from querywise.errors import DataError, ModelFileError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.runtime.files import digest_of
from querywise.storage import load, models, read_manifest, save
from querywise.storage.models import Body, read_body
from tests.worlds import examples, inside


@pytest.fixture(scope="module")
def ranker() -> RankSVM:
    return RankSVM(0.5).fit(make_judged(20, 8, 3))


@pytest.fixture
def model(ranker: RankSVM, tmp_path: Path) -> Path:
    save(ranker, tmp_path / "model", notes={"method": "ranksvm"})
    return tmp_path / "model"


def arrays_of(model: Path) -> Path:
    return next(model.glob("arrays-*"))


def test_the_manifest_says_what_the_model_is(model: Path) -> None:
    manifest = read_manifest(model)
    assert manifest.feature_count == 3
    assert manifest.feature_names is None
    assert manifest.missing == "zero"
    assert manifest.notes == {"method": "ranksvm"}
    assert {"querywise", "numpy", "lightgbm"} <= set(manifest.versions)


def test_parameters_and_learned_values_come_back(model: Path, ranker: RankSVM) -> None:
    again = load(model)
    assert inside(again).l2 == 0.5
    assert np.array_equal(inside(again).weights_, ranker.weights_)
    assert inside(again).objective_ == ranker.objective_


def test_a_model_replaces_another_and_leaves_nothing_behind(model: Path) -> None:
    save(RankSVM(9.0).fit(make_judged(20, 8, 5)), model)
    assert inside(load(model)).l2 == 9.0
    assert len(list(model.iterdir())) == 2


def test_an_interrupt_before_the_manifest_is_replaced_leaves_the_old_model(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("querywise.storage.models.json.dump", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(RankSVM(9.0).fit(make_judged(20, 8, 3)), model)
    monkeypatch.undo()
    assert inside(load(model)).l2 == 0.5
    save(RankSVM(7.0).fit(make_judged(20, 8, 3)), model)
    assert inside(load(model)).l2 == 7.0
    assert len(list(model.iterdir())) == 2


def test_an_interrupted_first_save_leaves_no_folder(
    ranker: RankSVM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("querywise.storage.models.json.dump", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(ranker, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_model_replaced_between_the_two_reads_is_read_anew(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def and_then_replaced(path: Path) -> Body:
        body = read_body(path)
        if not calls:
            calls.append(path)
            save(RankSVM(9.0).fit(make_judged(20, 8, 3)), model)
        return body

    monkeypatch.setattr(models, "read_body", and_then_replaced)
    assert inside(load(model)).l2 == 9.0


def refused(model: Path, words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        load(model)


def test_what_is_not_a_model_is_refused_with_the_reason(model: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "there is no such folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", r"there is no manifest\.json in it")
    (model / "manifest.json").write_text('{"format": "something else"}')
    refused(model, "not the manifest of a querywise model")
    (model / "manifest.json").write_text("{")
    refused(model, "damaged")
    (model / "manifest.json").write_bytes(b"\xff\xfe\x00")
    refused(model, "damaged")
    (model / "manifest.json").write_text("[" * 100_000)
    refused(model, "damaged")


def test_truncated_changed_and_missing_arrays_are_refused(model: Path) -> None:
    arrays = arrays_of(model)
    content = arrays.read_bytes()
    arrays.write_bytes(content[:-1])
    refused(model, "damaged or cut short")
    arrays.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused(model, "damaged or cut short")
    arrays.unlink()
    refused(model, "is missing")


def rewrite(model: Path, change: dict[str, object]) -> None:
    """Edit the manifest and make its checksum fit, as somebody who means harm could."""
    body = json.loads((model / "manifest.json").read_text())
    del body["sha256"]
    body |= change
    (model / "manifest.json").write_text(json.dumps({**body, "sha256": digest_of(body)}))


def test_an_edited_manifest_is_refused(model: Path) -> None:
    path = model / "manifest.json"
    path.write_text(path.read_text().replace('"l2": 0.5', '"l2": 0.6'))
    refused(model, "damaged or edited by hand")


def test_a_newer_format_is_refused_with_both_versions(model: Path) -> None:
    rewrite(model, {"format_version": 99})
    refused(model, r"format version 99; this querywise reads version 1")


@pytest.mark.parametrize(
    ("ranker_entry", "words"),
    [
        ({"$class": "Popen", "parameters": {}, "learned": {}}, "which this version does not know"),
        ({"$class": "os.system", "parameters": {}, "learned": {}}, "which this version does not know"),
        ({"$class": "RankSVM", "parameters": {}, "learned": {}}, "other parameters"),
        ({"$class": "RankSVM"}, "does not describe a model"),
        ({}, "does not describe a model"),
        ({"$array": "nothing"}, "does not describe a model"),
    ],
)
def test_a_manifest_can_name_only_what_may_be_saved(model: Path, ranker_entry: dict[str, object], words: str) -> None:
    rewrite(model, {"ranker": ranker_entry})
    refused(model, words)


def test_a_manifest_cannot_set_methods_or_private_names(model: Path) -> None:
    entry = json.loads((model / "manifest.json").read_text())["ranker"]
    for name in ("predict", "__class__", "_private_"):
        rewrite(model, {"ranker": {**entry, "learned": {name: 1}}})
        refused(model, "other parameters")


def test_a_manifest_cannot_reach_outside_its_folder(model: Path) -> None:
    rewrite(model, {"arrays": {"file": "../secret", "sha256": ""}})
    refused(model, "outside the model folder")


@given(st.data())
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_folder_with_any_byte_changed_is_refused_or_the_same_model(model: Path, data: st.DataObject) -> None:
    copy = model.parent / "fuzzed"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(model, copy)
    victim = data.draw(st.sampled_from(sorted(copy.iterdir())))
    content = bytearray(victim.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    victim.write_bytes(bytes(content))
    try:
        loaded = load(copy)
    except ModelFileError:
        return
    assert np.array_equal(inside(loaded).weights_, inside(load(model)).weights_)


def test_places_where_no_model_can_be_written_are_refused_before_anything_is_touched(
    ranker: RankSVM, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match="this is a file"):
        save(ranker, tmp_path / "file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="holds something that is not a querywise model"):
        save(ranker, tmp_path / "folder")
    with pytest.raises(DataError, match="does not exist; create it first"):
        save(ranker, tmp_path / "no" / "where")
    assert (tmp_path / "folder" / "thesis.txt").read_text() == "mine"
