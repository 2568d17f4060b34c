"""`querywise adapt`: an adapter of query vectors and nothing else, applied and exported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise import AdaptedVectors
from querywise.data.synthetic import make_judged
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.storage import load, read_manifest, save
from tests.commands import run
from tests.support.rotated import FIXED, World

WORLD = World(120, 40, 6)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection with vectors, and the adapter that the command has made of them."""
    root = tmp_path_factory.mktemp("adapt")
    (root / "texts").mkdir()
    (root / "vectors").mkdir()
    documents, queries = WORLD.documents.ids, WORLD.queries.ids
    lines = [json.dumps({"_id": each, "title": "", "text": f"text of {each}"}) for each in documents]
    (root / "texts" / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"_id": each, "text": f"asked {each}"}) for each in queries]
    (root / "texts" / "queries.jsonl").write_text("\n".join(lines) + "\n")
    lines = [f"{query}\t{each}\t1" for query, own in WORLD.judgments.items() for each in own]
    (root / "texts" / "qrels.tsv").write_text("\n".join(lines) + "\n")
    for name, table in (("documents", WORLD.documents), ("queries", WORLD.queries)):
        np.save(root / "vectors" / f"{name}.npy", table.values.astype(np.float32))
        (root / "vectors" / f"{name}.json").write_text(json.dumps(list(table.ids)))
    done = run(root, "adapt", "texts", "--vectors", "vectors", "--out", "adapter", "--export", "exported")
    assert done.returncode == 0, done.stderr
    (root / "said.txt").write_text(done.stdout)
    return root


def test_it_says_what_was_chosen_and_what_it_gains(place: Path) -> None:
    adapter: Any = load(place / "adapter")
    said = (place / "said.txt").read_text()
    assert adapter.said() in said
    assert "Paired t test: p " in said
    assert "Judged queries used for training: 120." in said
    assert "Saved in adapter\nExported to exported\n" in said
    assert read_manifest(place / "adapter").notes["queries"] == 120


def test_vectors_are_moved_as_the_adapter_moves_them(place: Path) -> None:
    done = run(place, "adapt", "adapter", "--apply", "vectors/queries.npy", "--out", "adapted.npy")
    assert done.returncode == 0, done.stderr
    assert "120 adapted vectors, saved\n" in done.stdout
    found = np.load(place / "adapted.npy")
    assert found.dtype == np.float32
    adapter: Any = load(place / "adapter")
    expected = adapter.transform(np.load(place / "vectors" / "queries.npy"))
    assert np.array_equal(found, expected.astype(np.float32))


def test_json_says_the_same(place: Path) -> None:
    done = run(place, "adapt", "adapter", "--apply", "vectors/queries.npy", "--out", "again.npy", "--json")
    told = json.loads(done.stdout)
    adapter: Any = load(place / "adapter")
    assert told["vectors"] == told["queries"] == 120
    assert told["adapts"] is True
    assert (told["gamma"], told["l2"], told["gain"]) == (adapter.gamma_, adapter.l2_, adapter.gain_)
    assert 0 <= told["p"] < 1e-5


def exported(adapter: AdaptedVectors, folder: Path) -> Path:
    save(adapter, folder / "adapter")
    done = run(folder, "adapt", "adapter", "--export", "exported")
    assert done.returncode == 0, done.stderr
    return folder / "exported"


@pytest.mark.parametrize("how", ["by-query", "linear", "landmarks", "shut"])
def test_the_script_moves_vectors_without_querywise(how: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "by-query": {**FIXED, "kind": "by-query"},
        "linear": {**FIXED, "kind": "linear", "gamma": None},
        "landmarks": {**FIXED, "kind": "by-query", "landmarks": 20},
        "shut": {"kind": "linear", "l2": 1e6},
    }[how]
    adapter = AdaptedVectors(**given).fit(WORLD.queries, WORLD.documents, WORLD.judgments)
    folder = exported(adapter, tmp_path)
    assert sorted(each.name for each in folder.iterdir()) == ["adapter.npz", "transform.py"]
    assert len((folder / "transform.py").read_text().splitlines()) <= 40
    asked = np.vstack([np.random.default_rng(0).normal(size=(50, 6)), np.zeros((1, 6)), WORLD.asked])
    np.save(tmp_path / "queries.npy", asked)
    code = (
        f"import runpy, sys; sys.path += {sys.path!r}; sys.modules['querywise'] = None; "
        "sys.argv = ['transform.py', 'queries.npy', 'adapted.npy']; "
        f"runpy.run_path({str(folder / 'transform.py')!r}, run_name='__main__')"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, check=True)
    assert np.abs(np.load(tmp_path / "adapted.npy") - adapter.transform(asked)).max() < 1e-6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("adapt texts --vectors vectors", "name a folder for the adapter with --out"),
        ("adapt texts --out new", "where documents have vectors; name them with --vectors FOLDER."),
        ("adapt texts --vectors vectors --out new --kind both", "--kind both: expected auto, linear or by-query."),
        ("adapt texts --vectors vectors --apply vectors/queries.npy --out a.npy", "texts is no adapter"),
        ("adapt texts --vectors nowhere --out new", "there is no such folder"),
        ("adapt adapter --apply vectors/queries.npy", "name the .npy file for the adapted vectors with --out"),
        ("adapt adapter --out other", "this adapter has been trained. Name vectors to move with --apply."),
        ("adapt adapter --vectors vectors --out other", "leave out --vectors and --embed"),
        ("adapt adapter --apply nowhere.npy --out a.npy", "nowhere.npy: there is no such file"),
        ("adapt adapter --apply vectors/queries.json --out a.npy", "not a .npy file of numbers"),
        ("adapt adapter --apply wide.npy --out a.npy", "this adapter was trained on vectors of 6 numbers"),
        ("adapt adapter --apply flat.npy --out a.npy", "expected a table of floats"),
        ("adapt adapter --apply vectors/queries.npy --out nowhere/a.npy", "nowhere/a.npy: the folder"),
        ("adapt adapter --export texts", "is in this folder; an adapter is exported into an empty or a new one"),
        ("adapt ranker --apply vectors/queries.npy --out a.npy", "the model is a RankSVM; expected an adapter"),
        ("adapt nowhere --vectors vectors --out new", "nowhere"),
    ],
)
def test_mistakes_are_refused_in_one_line(words: str, said: str, place: Path) -> None:
    if not (place / "ranker").exists():
        save(RankSVM().fit(make_judged(20, 8, 3)), place / "ranker")
        np.save(place / "wide.npy", np.zeros((2, 7)))
        np.save(place / "flat.npy", np.zeros(6))
    done = run(place, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.replace("\n", "")
    assert done.stderr.count("error:") == 1
    assert not (place / "new").exists()


def test_judgments_of_unknown_documents_are_refused_or_left_out(place: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv"):
        (texts / name).write_text((place / "texts" / name).read_text())
    with (texts / "qrels.tsv").open("a") as file:
        file.write("q0\tstranger\t1\n")
    words = ("adapt", texts, "--vectors", place / "vectors", "--out", tmp_path / "adapter")
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert "stranger" in done.stderr
    assert run(tmp_path, *words, "--skip-unknown", "-q").returncode == 0
    left: Any = load(tmp_path / "adapter")
    whole: Any = load(place / "adapter")
    assert np.array_equal(left.transform(WORLD.asked), whole.transform(WORLD.asked))
