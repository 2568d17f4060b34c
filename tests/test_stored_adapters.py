"""An adapter of query vectors in a folder of its own: the same bits after loading, and nothing else takes it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise import AdaptedVectors
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, ModelFileError, NotFittedError, QuerywiseError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.runtime.parameters import parameters_of
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import Known, WrongValueError, part
from querywise.storage import load, load_ranker, read_manifest, save
from querywise.storage.models import decoded, read_arrays, read_body
from querywise.storage.objects import _Reader
from tests.commands import run
from tests.crafting import Changing, write
from tests.support.rotated import FIXED, World

WORLD = World(120, 40, 6)
ADAPTERS: dict[str, dict[str, Any]] = {
    "by query": {**FIXED, "kind": "by-query"},
    "linear": {**FIXED, "kind": "linear", "gamma": None},
    "landmarks": {**FIXED, "kind": "by-query", "landmarks": 20},
    "chosen": {"folds": 2},
    "shut": {"kind": "linear", "l2": 1e6},
}


def fitted(name: str) -> AdaptedVectors:
    return AdaptedVectors(**ADAPTERS[name]).fit(WORLD.queries, WORLD.documents, WORLD.judgments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stored") / "adapter"
    save(fitted("by query"), place)
    return place


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_is_the_same_after_loading(name: str, tmp_path: Path) -> None:
    adapter = fitted(name)
    assert adapter.adapts == (name != "shut")
    save(adapter, tmp_path / "adapter", notes={"vectors": "static"})
    again: Any = load(tmp_path / "adapter")
    assert type(again) is AdaptedVectors
    assert parameters_of(again) == parameters_of(adapter)
    assert np.array_equal(again.transform(WORLD.asked), adapter.transform(WORLD.asked))
    assert again.explain(WORLD.asked[3], WORLD.documents) == adapter.explain(WORLD.asked[3], WORLD.documents)
    assert again.said() == adapter.said()
    assert again.query_ids_ == adapter.query_ids_
    manifest = read_manifest(tmp_path / "adapter")
    assert manifest.notes == {"vectors": "static"}
    assert (manifest.feature_count, manifest.feature_names) == (0, None)


def test_an_adapter_and_a_ranker_replace_each_other(tmp_path: Path) -> None:
    save(fitted("linear"), tmp_path / "model")
    save(RankSVM().fit(make_judged(20, 8, 3)), tmp_path / "model")
    assert isinstance(load_ranker(tmp_path / "model"), RankSVM)
    save(fitted("linear"), tmp_path / "model")
    assert isinstance(load(tmp_path / "model"), AdaptedVectors)
    assert len([each for each in (tmp_path / "model").iterdir() if each.name != ".lock"]) == 2


def test_what_has_no_folder_of_its_own_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        save(AdaptedVectors(), tmp_path / "model")
    part_of_some: Any = Scaling(np.zeros(2), np.ones(2))
    with pytest.raises(DataError, match="A Scaling is a part of rankers"):
        save(part_of_some, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_ranker_may_have_an_adapter_as_a_part(folder: Path) -> None:
    body = read_body(folder)
    reader = _Reader(read_arrays(folder, body["arrays"]))
    made = reader.decode(body["ranker"], 0)
    check, known = part(AdaptedVectors, dimension="numbers"), Known(object, reader.known)
    check.check(made, "its adapter", known)
    assert known.sizes["numbers"] == 6
    with pytest.raises(WrongValueError, match="expected a AdaptedVectors"):
        check.check(None, "its adapter", known)


COMMANDS: dict[str, tuple[str, ...]] = {
    "rank": ("rank", "MODEL", "DATA", "--out", "scores.txt"),
    "explain": ("explain", "MODEL", "DATA", "--qid", "1"),
    "export": ("export", "MODEL", "--to", "elasticsearch", "--out", "exported"),
    "serve": ("serve", "MODEL"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_for_rankers_refuse_an_adapter_in_one_line(name: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.1\n")
    places = {"MODEL": folder, "DATA": tmp_path / "data.txt"}
    done = run(tmp_path, *(places.get(word, word) for word in COMMANDS[name]))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"error: {folder}: this is an adapter of query vectors, which ranks nothing. Expected a ranker, as `querywise "
        "fit` saves it; `querywise adapt` uses an adapter.\n"
    )


def test_search_refuses_an_adapter_in_one_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "title": "", "text": "apples"}\n')
    assert run(tmp_path, "index", "corpus.jsonl", "--out", "index").returncode == 0
    done = run(tmp_path, "search", "index", "apples", "--model", folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "this is an adapter of query vectors, which ranks nothing" in done.stderr


def changed(folder: Path, number: int) -> str:
    """What comes of an adapter with changes by chance, its checksums right."""
    body = read_body(folder)
    arrays = dict(read_arrays(folder, body["arrays"]))
    chance = random.Random(number)
    changing = Changing(chance, json.loads(json.dumps(body["ranker"])), arrays)
    for _ in range(chance.choice((1, 1, 2, 3))):
        changing.change()
    try:
        adapter = decoded(changing.holder[0], changing.arrays, folder)
        if not isinstance(adapter, AdaptedVectors):
            return "another"
        asked = np.random.default_rng(0).normal(size=(5, adapter.queries_.shape[1]))
        moved = adapter.transform(np.vstack([asked, adapter.queries_]))
        told = adapter.explain(asked[0])
        adapter.said()
    except QuerywiseError:
        return "refused"
    lengths = (moved**2).sum(axis=1)
    assert (np.isclose(lengths, 1) | (lengths == 0)).all(), number
    assert np.isfinite([told.cosine, *(each.share for each in told.pulls)]).all(), number
    return "used"


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_crafted_adapter_is_refused_or_gives_finite_vectors(name: str, tmp_path: Path) -> None:
    save(fitted(name), tmp_path / "adapter")
    found = [changed(tmp_path / "adapter", number) for number in range(150)]
    assert found.count("refused") > 50
    assert "used" in found


def test_a_crafted_folder_with_right_checksums_is_refused(folder: Path, tmp_path: Path) -> None:
    body: Any = read_body(folder)
    arrays = dict(read_arrays(folder, body["arrays"]))
    for number, (key, table) in enumerate(arrays.items()):
        if table.dtype == np.float32 and table.size:
            large = table.astype(np.float32) * np.float32(1e30)
            write(tmp_path / str(number), body, {**arrays, key: large})
            with pytest.raises(ModelFileError):
                load(tmp_path / str(number))
