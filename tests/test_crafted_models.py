"""A model folder written to do harm, its checksums right, is refused or ranks: no crash, no hang, no other error."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import inspect
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from querywise.data.synthetic import make_judged
from querywise.errors import ModelFileError, QuerywiseError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.forest import for_lightgbm, read_trees
from querywise.methods import METHODS
from querywise.runtime.files import digest_of
from querywise.runtime.stored import Absent, declared
from querywise.service.loaded_model import ModelFolder
from querywise.service.routes import create_app
from querywise.service.service import Service
from querywise.storage import load, read_manifest, save, version_of
from tests.crafting import GOLDEN, LONGEST, Corpus, write
from tests.golden.make import HERE
from tests.stored_classes import STORED

ROOT = Path(__file__).parent.parent
SOME = ("ranksvm", "lambdamart", "knnoffline2-few-models", "selectranker", "sser")
DATA = make_judged(20, 8, 3)


def child(first: int, last: int, *names: str) -> Iterator[tuple[int, str]]:
    """The outcomes of some cases in a process of its own, up to the one that ended it."""
    command = [sys.executable, "-m", "tests.crafting", str(first), str(last), *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    begun = first
    for line in done.stdout.splitlines():
        number, what, said = line.split(" ", 2)
        if what == "begins":
            begun = int(number)
        else:
            yield int(number), said
    if done.returncode:
        yield begun, f"ended the process ({done.returncode}): {done.stderr[-1_500:]}"


def bad(first: int, last: int, *names: str) -> tuple[dict[int, str], int]:
    """The cases that were neither refused nor ranked, and how many there were in all."""
    found, tried = {}, 0
    while first < last:
        for number, said in child(first, last, *names):
            tried, first = tried + 1, number + 1
            if said not in ("refused", "ranked"):
                found[number] = said
    return found, tried


@pytest.mark.slow
def test_crafted_models_are_refused_or_rank() -> None:
    assert bad(1_000_000, 1_000_200, *SOME) == ({}, 200)


HALF = 10_000 if os.environ.get("CI") else 1_000  # a minute and a half in all, which only the machine that builds takes


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 10_000])
def test_many_crafted_models_of_every_kind_are_refused_or_rank(first: int) -> None:
    assert bad(first, first + HALF) == ({}, HALF)


def test_every_method_is_among_the_models_that_are_crafted() -> None:
    words = {word for name in GOLDEN for word in (HERE / name / "manifest.json").read_text().split('"')}
    found = {word.rpartition(".")[2] for word in words}
    assert {method.home.partition(":")[2] for method in METHODS.values()} <= found


def learned_in(kind: type) -> set[str]:
    """The names that end in an underscore which the methods of a class, or of one it extends, set on the object."""
    found = set()
    for each in kind.__mro__[:-1]:
        if each.__module__.startswith("querywise."):
            tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(each)))
            stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            found |= {
                node.attr
                for node in stored
                if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"
            }
    return {name for name in found if name.endswith("_") and not name.startswith("_")}


@pytest.mark.parametrize("name", STORED)
def test_every_learned_value_has_a_check(name: str) -> None:
    assert learned_in(STORED[name]) == {each for each in declared(STORED[name]) if each.endswith("_")}


def test_a_value_without_a_check_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "gap_" in learned_in(RankSVM)
    monkeypatch.setattr(RankSVM, "stored", {name: check for name, check in RankSVM.stored.items() if name != "gap_"})
    declared.cache_clear()
    with pytest.raises(ModelFileError, match="RankSVM has other parameters"):
        load(HERE / "ranksvm")
    monkeypatch.undo()
    declared.cache_clear()


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus()


Entry = dict[str, Any]


def learned(entry: Entry, *path: str) -> Entry:
    """The learned values of the object at the end of a path of learned names."""
    for name in path:
        entry = entry["learned"].get(name) or entry["parameters"][name]
    found: Entry = entry["learned"]
    return found


def in_array(name: str, place: Any, value: float) -> Callable[[Entry, dict[str, Any]], None]:
    def change(entry: Entry, arrays: dict[str, Any]) -> None:
        (key,) = (each for each in arrays if each.endswith(name))
        arrays[key] = arrays[key].copy()
        arrays[key][place] = value

    return change


def in_text(before: str, after: str) -> Callable[[Entry, dict[str, Any]], None]:
    def change(entry: Entry, arrays: dict[str, Any]) -> None:
        (key,) = (each for each in arrays if each.endswith("models_.0"))
        text = arrays[key].tobytes().decode()
        assert before in text
        arrays[key] = np.frombuffer(text.replace(before, after, 1).encode(), np.uint8)

    return change


def given(name: str, value: Any) -> Callable[[Entry, dict[str, Any]], None]:
    return lambda entry, arrays: entry["parameters"].update({name: value})


def told(name: str, value: Any) -> Callable[[Entry, dict[str, Any]], None]:
    return lambda entry, arrays: entry["learned"].update({name: value})


def inside_itself(entry: Entry, arrays: dict[str, Any]) -> None:
    entry["learned"]["model_"] = {"$same": entry["number"]}


def of_each_other(entry: Entry, arrays: dict[str, Any]) -> None:
    """Blends of blends of blends, each ten times the same: a few lines, and 10¹² rankers to ask."""
    for number in range(100, 112):
        same = [entry, *({"$same": entry["number"]} for _ in range(9))]
        outer = {**entry, "number": number, "learned": dict(entry["learned"])}
        outer["learned"] |= {"rankers_": {"$tuple": same}, "weights_": {"$array": "ten"}}
        outer["parameters"] = {**entry["parameters"], "rankers": {"$list": []}}
        entry = outer
    arrays["ten"] = np.full(10, 0.1)
    BLEND.update(entry)


BLEND: Entry = {}


def nested(entry: Entry, arrays: dict[str, Any]) -> None:
    value: Any = 1
    for _ in range(200):
        value = {"$tuple": [value]}
    entry["learned"]["weights_"] = value


CASES: list[tuple[str, Callable[[Entry, dict[str, Any]], None], str]] = [
    ("ranksvm", in_array("weights_", 0, np.nan), r"RankSVM\.weights_ has a number that is not finite"),
    ("ranksvm", told("feature_count_", 5), r"RankSVM\.feature_names_ has 4 features; expected 5"),
    ("ranksvm", told("feature_count_", 10**9), r"feature_count_ is 1000000000; expected a whole number from 0 to 1"),
    ("ranksvm", told("weights_", 3), r"RankSVM\.weights_ is 3; expected float64 with 1 axes"),
    ("ranksvm", lambda entry, arrays: entry["learned"].pop("weights_"), r"RankSVM\.weights_ is missing"),
    ("ranksvm", given("l2", 0), r"RankSVM\.l2 is 0; expected a number above 0"),
    ("ranksvm", given("l2", "much"), r"RankSVM\.l2 is 'much'; expected a number"),
    ("ranksvm", given("l2", True), r"RankSVM\.l2 is True; expected a number"),
    ("ranksvm", given("loss", "none"), r"RankSVM\.loss is 'none'; expected one of squared_hinge, hinge"),
    ("ranksvm", given("l2", 10**30), r"a whole number above 9223372036854775807"),
    ("ranksvm", given("l2", {"$float": "nan"}), r"RankSVM\.l2 is nan"),
    ("ranksvm", given("l2", {"$float": "1e5"}), r"'\$float' with '1e5' is not recognized"),
    ("ranksvm", given("l2", [1]), r"a list does not state its type"),
    ("ranksvm", nested, r"nested more than 60 deep"),
    ("single", inside_itself, r"'\$same' with '0' is not recognized"),
    ("blend-ranks", of_each_other, r"the same objects are used too often"),
    ("lambdamart", given("bag", 2), r"LambdaMART\.models_ has 1 forests; expected 2"),
    ("lambdamart", given("threads", 10**9), r"LambdaMART\.threads is 1000000000; expected a whole number from 1"),
    ("lambdamart", told("tree_count_", 10**9), r"tree_count_ is 1000000000; there are 20 trees"),
    ("lambdamart", in_text("left_child=2", "left_child=1.5"), "The trees cannot be read"),
    ("lambdamart", in_text("left_child=2", "left_child=0"), "a node points to a missing child"),
    ("lambdamart", in_text("right_child=1", "right_child=3"), "a node points to a missing child"),
    ("lambdamart", in_text("leaf_count=", "leaf_count=-"), "a node has no documents"),
    ("lambdamart", in_text("num_cat=0", "num_cat=1"), "categorical splits or linear leaves"),
    ("lambdamart", in_text("max_feature_idx=3", "max_feature_idx=9"), "they are for 10 features; expected 4"),
    ("lambdamart", in_text("max_feature_idx=3", "x=3"), "their number of features is missing"),
    ("lambdamart", in_text("threshold=", "threshold=1e999 "), "threshold are not finite numbers"),
    ("knnoffline2-few-models", in_array("members_.1", 0, 99), "an entry in a column that it does not have"),
    ("knnoffline2-few-models", in_array("members_.1", 0, -1), "an entry in a column that it does not have"),
    ("knnoffline2-few-models", in_array("members_.2", -1, 99), "stated number of entries is wrong"),
    ("knnoffline2-few-models", in_array("members_.2", 1, 99), "do not follow each other"),
    ("knnoffline2-few-models", in_array("members_.3", 0, 99), "do not follow each other"),
    (
        "knnoffline2-few-models",
        in_array("members_.0", 0, -1),
        r"members_ has -1\.0; expected numbers from 0",
    ),
    ("sser", in_array(".side_", 0, 7), r"SSER\.side_ has 7; expected numbers below 3"),
    ("sser", given("neighbours", 0), r"SSER\.neighbours is 0; expected a whole number from 1"),
    ("onefeature", told("column_", 4), r"OneFeature\.column_ is 4; expected a number below 4, that of features"),
    ("onefeature", told("column_", -1), r"OneFeature\.column_ is -1"),
    ("selectranker", in_array("starts_", 1, 10**9), r"SimilarQueries\.starts_: expected numbers from 0 up to"),
    ("selectranker", in_array(".values_", 0, 10**9), r"SimilarQueries\.values_ are not in ascending order"),
    ("knnonline", in_array("prepared_.pairs_", 0, 10**9), r"pairs_ are not those of its levels_"),
    ("knnonline", in_array("prepared_.starts_", 1, -5), r"PreparedRankSVM\.starts_ has -5"),
    ("querycontext", given("columns", {"$list": ["z", "mean"]}), r"QueryContext\.context_names_ has"),
]


@pytest.mark.parametrize(
    ("name", "change", "words"), CASES, ids=[f"{name}-{n}" for n, (name, _, _) in enumerate(CASES)]
)
def test_what_is_wrong_is_said(
    name: str, change: Callable[[Entry, dict[str, Any]], None], words: str, corpus: Corpus, tmp_path: Path
) -> None:
    body, arrays = json.loads(corpus.bodies[name]), dict(corpus.arrays[name])
    BLEND.clear()
    change(body["ranker"], arrays)
    body["ranker"] = BLEND or body["ranker"]
    write(tmp_path / "model", body, arrays)
    with pytest.raises(ModelFileError, match=words):
        load(tmp_path / "model")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(RankSVM().fit(DATA), tmp_path / "model")
    return tmp_path / "model"


def signed(folder: Path, **change: Any) -> None:
    """Replace entries of a manifest, and sign it again."""
    body = json.loads((folder / "manifest.json").read_text())
    body = {name: value for name, value in {**body, **change}.items() if name != "sha256"}
    (folder / "manifest.json").write_text(json.dumps({**body, "sha256": digest_of(body)}))


def with_arrays(folder: Path, content: bytes) -> None:
    """Replace the arrays, and sign the manifest again."""
    (folder / "arrays").write_bytes(content)
    signed(folder, arrays={"file": "arrays", "sha256": hashlib.sha256(content).hexdigest()})


def soon(work: Callable[[], Any]) -> Any:
    """What some work gives or raises, which must come about before long."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LONGEST)
    assert found, "it did not come about"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def refused(folder: Path, words: str) -> None:
    for read in (load, read_manifest, version_of):
        try:
            soon(lambda read=read: read(folder))  # type: ignore[misc]
        except ModelFileError:
            continue
        assert read is not load
    with pytest.raises(ModelFileError, match=words):
        load(folder)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0b", "\n"])
def test_a_name_that_is_no_file_of_the_folder_is_refused(model: Path, name: str) -> None:
    signed(model, arrays={"file": name, "sha256": ""})
    refused(model, "names a file outside the model folder")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrays": 5}, "'arrays' is missing, or not an object"),
        ({"arrays": {"file": 5, "sha256": ""}}, "'arrays' names no file"),
        ({"arrays": {"file": "arrays"}}, "'arrays' names no file"),
        ({"features": []}, "'features' is missing"),
        ({"features": {"count": -1, "names": None}}, "'features' has no count"),
        ({"features": {"count": True, "names": None}}, "'features' has no count"),
        ({"features": {"count": 2}}, "not as many names"),
        ({"features": {"count": 2, "names": ["a"]}}, "not as many names"),
        ({"features": {"count": 3, "names": [1, 2, 3]}}, "not as many names"),
        ({"features": {"count": 99, "names": None}}, "the model's features are not those of its manifest"),
        ({"versions": {"numpy": 1}}, "'versions' holds something"),
        ({"notes": None}, "'notes' is missing"),
        ({"missing": 0}, "'missing' is missing, or not a text"),
        ({"ranker": None}, "it is not a fitted ranker"),
        ({"ranker": [[[]]]}, "a list does not state its type"),
    ],
)
def test_an_entry_of_another_kind_is_refused(model: Path, change: Entry, words: str) -> None:
    signed(model, **change)
    refused(model, words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"format": "querywise model", "format": "querywise model"}', "a name is there twice"),
        ('{"a": ' * 100_000, "damaged"),
        ("9" * 5_000, "damaged"),
        ("NaN", "not the manifest of a querywise model"),
    ],
)
def test_json_that_is_odd_is_refused(model: Path, text: str, words: str) -> None:
    (model / "manifest.json").write_text(text)
    refused(model, words)


def header(entry: Any, more: bytes = b"") -> bytes:
    text = json.dumps(entry).encode()
    return struct.pack("<Q", len(text)) + text + more


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "damaged or cut short"),
        (b"\xff" * 8, "damaged or cut short"),
        (struct.pack("<Q", 2**62) + b"{}", "its header is longer than the file"),
        (header([]), "its header cannot be read"),
        (header({"a": 5}), "its header cannot be read"),
        (header({"a": {"dtype": "F64", "shape": [-1], "data_offsets": [0, 0]}}), "is not a size"),
        (header({"a": {"dtype": "F64", "shape": [2**70], "data_offsets": [0, 0]}}), "is not a size"),
        (header({"a": {"dtype": "F64", "shape": [2**60], "data_offsets": [0, 2**63]}}), "expected"),
        (header({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, b"ab"), "'BF16', which no model has"),
        (header({"a": {"dtype": "F64", "shape": [1], "data_offsets": [5, 13]}}, b"12345678"), "not a file of arrays"),
        (header({"a": {"dtype": "U8", "shape": [1] * 99, "data_offsets": [0, 1]}}, b"1"), "not a file of arrays"),
    ],
)
def test_arrays_that_are_odd_are_refused(model: Path, content: bytes, words: str) -> None:
    with_arrays(model, content)
    refused(model, words)


def test_pipes_devices_folders_and_files_elsewhere_are_not_read(model: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"secret")
    arrays = model / json.loads((model / "manifest.json").read_text())["arrays"]["file"]
    for victim in (arrays, model / "manifest.json"):
        kept = victim.read_bytes()
        victim.unlink()
        os.mkfifo(victim)
        refused(model, "not a regular file")
        victim.unlink()
        victim.mkdir()
        refused(model, "not a regular file")
        victim.rmdir()
        for place in ("/dev/zero", tmp_path / "elsewhere", "../elsewhere"):
            victim.symlink_to(place)
            refused(model, "outside of the folder")
            victim.unlink()
        victim.symlink_to(victim.name)
        refused(model, "cannot be read")
        victim.unlink()
        victim.write_bytes(kept)
    load(model)


def test_files_too_large_are_refused_before_they_are_read(model: Path) -> None:
    """Sparse files, which take no room on the disk."""
    arrays = next(model.glob("arrays-*"))
    os.truncate(arrays, 2**42)
    refused(model, "more than the memory of this machine")
    os.truncate(model / "manifest.json", 2**30)
    refused(model, "expected 256000000 at most")


def test_files_linked_inside_the_folder_are_read(model: Path) -> None:
    """As Kubernetes mounts them: links to a folder that is replaced as a whole."""
    expected = load(model).predict(DATA.candidates)
    (model / "..first").mkdir()
    names = [each.name for each in model.iterdir() if each.is_file()]
    for name in names:
        shutil.move(model / name, model / "..first" / name)
        (model / name).symlink_to(Path("..data") / name)
    (model / "..data").symlink_to("..first")
    assert np.array_equal(load(model).predict(DATA.candidates), expected)


def test_a_forest_for_lightgbm_has_only_what_was_checked(corpus: Corpus) -> None:
    text = next(each for key, each in corpus.arrays["lambdamart"].items() if "models_" in key).tobytes().decode()
    made = for_lightgbm(text.replace("\nend of trees", "\nend of trees\nparameters:\n[data: /etc/passwd]"), 4)
    assert "passwd" not in made
    assert [tree.root(1) for tree in read_trees(made, 4)] == [tree.root(1) for tree in read_trees(text, 4)]


def test_a_tree_too_deep_is_scored_and_not_explained() -> None:
    count = 1_500
    fields = {
        "num_leaves": count + 1,
        "split_feature": " ".join(["0"] * count),
        "threshold": " ".join(map(str, range(count))),
        "decision_type": " ".join(["2"] * count),
        "left_child": " ".join(str(-each) for each in range(1, count + 1)),
        "right_child": " ".join(str(each) for each in (*range(1, count), -count - 1)),
        "leaf_value": " ".join(map(str, range(count + 1))),
        "leaf_count": " ".join(["1"] * (count + 1)),
        "internal_count": " ".join(["1"] * count),
    }
    text = "tree\nmax_feature_idx=0\n\nTree=0\n" + "".join(f"{name}={value}\n" for name, value in fields.items())
    (tree,) = read_trees(text, 1)
    assert tree.depth() == count
    with pytest.raises(QuerywiseError, match="a tree of depth 1500; up to 1000 can be explained"):
        for_lightgbm(text, 1)


def as_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def test_the_watcher_survives_whatever_is_put_into_the_folder(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(ModelFolder(model), poll_seconds=0.01)
    good, version = {each: each.read_bytes() for each in model.iterdir()}, service.models.current.version
    manifest = model / "manifest.json"
    plants: dict[str, Callable[[], object]] = {
        "'arrays' is missing": lambda: signed(model, arrays=5),
        "outside the model folder": lambda: signed(model, arrays={"file": "", "sha256": ""}),
        "does not describe a model": lambda: signed(model, ranker=[]),
        "damaged": lambda: manifest.write_text('{"a": ' * 100_000),
        "not a regular file": lambda: as_a_pipe(manifest),
    }

    def raising() -> str:
        raise SystemError("nobody thought of this")

    async def watched() -> None:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:

            async def until(words: str, model: str = version) -> None:
                for _ in range(2_000):
                    state = (await client.get("/readyz")).json()
                    if words in state.get("problem", "none") and state["model"] == model:
                        return
                    await asyncio.sleep(0.01)
                raise AssertionError(f"{words!r} did not come about")

            watcher = asyncio.create_task(service.watch())
            for words, plant in plants.items():
                plant()
                await until(words)
                manifest.unlink()
                for path, content in good.items():
                    path.write_bytes(content)
                await until("none")
            with monkeypatch.context() as patched:
                patched.setattr(service.models, "refresh", raising)
                await until("nobody thought of this")
            await until("none")
            (model / "nowhere").symlink_to("nothing")
            save(RankSVM(7.0).fit(DATA), model)
            await until("none", version_of(model)[:12])
            assert not watcher.done()
            watcher.cancel()

    asyncio.run(watched())


def test_values_that_may_be_absent_are_few() -> None:
    values = [each for kind in STORED.values() for each in declared(kind).items()]
    absent = {name for name, check in values if isinstance(check, Absent)}
    of_the_data = {"gains_", "query_weights_", "document_weights_"}  # which most training data do not have
    computed = {"tree_count_", "points_", "whitening_", "scaling_", "values_", "gradients_", "adapter_", "curvatures_"}
    assert absent == computed | of_the_data
