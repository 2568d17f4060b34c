"""A model folder damaged in any way is refused with a reason, or is the very same model; it never executes anything."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.synthetic import make_judged
from querywise.errors import ModelFileError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.rankers.knn import KnnOffline2
from querywise.rankers.single import Single
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.runtime.arrays import Floats
from querywise.runtime.files import digest_of
from querywise.storage import load, save
from tests.worlds import examples

DATA = make_judged(20, 6, 3, kinds=2, seed=1)
RANKERS: dict[str, Any] = {
    "linear": KnnOffline2(RankSVM(), k=5),
    "trees": Single(LambdaMART(3)),
    "adapter": AdaptedVectors("by-query", gamma=4.0, l2=0.01, gate=False),
}


@pytest.fixture(scope="module", params=RANKERS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "model"
    made = RANKERS[request.param]
    save(made.fit(DATA) if request.param != "adapter" else made.fit(np.eye(3), np.eye(3), {"0": {"1": 1.0}}), folder)
    return folder


def used(model: Any) -> Floats:
    """What it computes."""
    found: Floats = model.transform(np.eye(3)) if isinstance(model, AdaptedVectors) else model.predict(DATA.candidates)
    return found


def damaged(folder: Path, name: str, content: bytes) -> None:
    """Load a copy of the folder with one file's content replaced."""
    expected = used(load(folder))
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "model"
        shutil.copytree(folder, copy)
        next(copy.glob(name)).write_bytes(content)
        try:
            found = load(copy)
        except ModelFileError:
            return
        assert np.array_equal(used(found), expected)  # space between two signs, say


@pytest.mark.parametrize("name", ["manifest.json", "arrays-*"])
@settings(deadline=None, max_examples=examples(150))
@given(data=st.data())
def test_a_byte_changed_added_or_lost_is_noticed(model: Path, name: str, data: st.DataObject) -> None:
    content = bytearray(next(model.glob(name)).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, max(len(content) - 1, 0)))
        kind = data.draw(st.sampled_from(["change", "add", "lose", "cut"]))
        if kind == "change" and content:
            content[place] = data.draw(st.integers(0, 255))
        elif kind == "add":
            content[place:place] = data.draw(st.binary(min_size=1, max_size=4))
        elif kind == "lose":
            del content[place : place + data.draw(st.integers(1, 8))]
        else:
            del content[place:]
    damaged(model, name, bytes(content))


@settings(deadline=None, max_examples=examples(50))
@given(content=st.binary(max_size=300))
def test_any_bytes_at_all_are_refused(model: Path, content: bytes) -> None:
    for name in ("manifest.json", "arrays-*"):
        damaged(model, name, content)


EVIL = [
    {"$class": "system", "number": 0, "parameters": {}, "learned": {}},
    {"$class": "os.system", "number": 0, "parameters": {"command": "true"}, "learned": {}},
    {"$class": "Single", "number": 0, "parameters": {"learner": None}, "learned": {"__class__": "x"}},
    {"$class": "Single", "number": 0, "parameters": {"learner": None}, "learned": {"predict": "x"}},
    {"$class": "Single", "number": 0, "parameters": {"learner": {"$same": 7}}, "learned": {}},
    {"$class": ["Single"], "number": 0, "parameters": {}, "learned": {}},
    {"$class": "Single"},
    {"$array": "nowhere"},
    {"$csr": [1, 2]},
    [],
    None,
]


@pytest.mark.parametrize("ranker", EVIL, ids=str)
def test_a_manifest_written_with_a_purpose_makes_nothing_but_models(model: Path, tmp_path: Path, ranker: Any) -> None:
    shutil.copytree(model, tmp_path / "model")
    manifest = tmp_path / "model" / "manifest.json"
    body = json.loads(manifest.read_bytes())
    body.pop("sha256")
    body["ranker"] = ranker
    manifest.write_text(json.dumps({**body, "sha256": digest_of(body)}))
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")


def test_files_outside_the_folder_are_not_read(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model")
    manifest = tmp_path / "model" / "manifest.json"
    for name in ("../secret", "/etc/passwd", "a/b"):
        body = json.loads(manifest.read_bytes())
        body.pop("sha256")
        body["arrays"]["file"] = name
        manifest.write_text(json.dumps({**body, "sha256": digest_of(body)}))
        with pytest.raises(ModelFileError, match="names a file outside the model folder"):
            load(tmp_path / "model")


def test_a_manifest_of_more_lists_than_any_model_has_is_not_parsed(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "manifest.json").write_text(f'{{"format": [{"[]," * 1_000_000}[]]}}')
    with pytest.raises(ModelFileError, match=r"manifest.json: damaged: more than 1000000 objects and lists"):
        load(tmp_path / "model")


@pytest.mark.parametrize("blank", ["", " "])
def test_a_manifest_of_more_names_than_any_model_has_is_not_parsed(model: Path, tmp_path: Path, blank: str) -> None:
    shutil.copytree(model, tmp_path / "model")
    names = ",".join(f'"{number}"{blank}:""' for number in range(1_000_001))
    (tmp_path / "model" / "manifest.json").write_text(f'{{"notes": {{{names}}}}}')
    with pytest.raises(ModelFileError, match=r"manifest.json: damaged: more than 1000000 names in objects"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ("[" + "[]," * 1_000_000 + "[]]", "more than 1000000 objects and lists"),
        ("{" + ",".join(f'"{number}":""' for number in range(1_000_001)) + "}", "more than 1000000 names in objects"),
    ],
    ids=["lists", "names"],
)
def test_a_header_of_more_than_any_model_has_is_not_parsed(
    model: Path, tmp_path: Path, metadata: str, said: str
) -> None:
    shutil.copytree(model, tmp_path / "model")
    body = json.loads((tmp_path / "model" / "manifest.json").read_bytes())
    body.pop("sha256")
    path = tmp_path / "model" / body["arrays"]["file"]
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].rstrip()[:-1] + f', "__metadata__": {metadata}}}'.encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
    body["arrays"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "model" / "manifest.json").write_text(json.dumps({**body, "sha256": digest_of(body)}))
    with pytest.raises(ModelFileError, match=rf"its header cannot be read: {said}"):
        load(tmp_path / "model")
