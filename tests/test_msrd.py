"""Documents with fields, reproduced: the command on a few made-up films, and the features of a public notebook."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from querywise import Fold, Judged, read_judged
from reproduction import msrd
from tests.commands import output, refused, reproduce

pytest.importorskip("xgboost")
pytest.importorskip("catboost")
WORDS = ["big", "fish", "tank", "train", "spotting", "black", "river", "moon", "house", "night", "star", "king"]
NAMES = ("Ann Lee", "Joe Fox", "Kim Ray", "Sue Hill")


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films whose title or actor is asked for; of those that match, the more popular are judged relevant."""
    folder, rng = tmp_path_factory.mktemp("films"), np.random.default_rng(0)
    made = []
    for number in range(60):
        title, actors = " ".join(rng.choice(WORDS, 2, replace=False)), [str(each) for each in rng.choice(NAMES, 2)]
        film = {"_id": f"F{number}", "title": title, "actors": actors, "popularity": float(rng.exponential(50))}
        made.append(film)
    queries, judged = [], []
    for number in range(48):
        wanted = made[number]
        text = str(wanted["title"]) if number % 2 else str(wanted["actors"][0]).lower()  # type: ignore[index]
        queries.append({"_id": f"q{number}", "text": text, "group": f"g{number // 3}"})
        others = rng.choice(len(made), 8, replace=False).tolist()
        judged += [f"q{number}\tF{each}\t{int(each == number)}" for each in dict.fromkeys([number, *others])]
    for name, rows in (("corpus", made), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    (folder / "qrels.tsv").write_text("\n".join(judged) + "\n")
    return folder


@pytest.fixture(scope="module")
def judged(films: Path) -> Judged:
    return read_judged(films, candidates="judged")


def test_the_command_compares_every_row_with_the_blend(films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msrd, "SIZES", (20, 1_000))
    monkeypatch.setattr(msrd, "SPLITS", 2)
    table = output(reproduce(films, "msrd", ".", "--out", "made", "--quiet"))
    assert table == ""
    found = json.loads((films / "made" / "numbers.json").read_text())
    rows = {"bm25", "single", *msrd._BY_VIEW, "lambdamart", "xgboost", "catboost", "blend", msrd.BOOSTS, msrd.FIVE}
    assert {*found["rows"]} == rows
    assert found["queries"] == 48
    for measure in msrd.MEASURES:
        assert {*found["p_holm"][measure]} == rows - {"blend"}
        for name, own in found["rows"].items():
            gain = found["rows"]["blend"][measure] - own[measure]
            assert name == "blend" or found["difference"][measure][name] == pytest.approx(gain)
    assert [len(each) for each in found["notebook"].values()] == [2, 2]
    assert "20" in found["curves"]
    assert "1000" not in found["curves"], "no fold has so many"
    text = (films / "made" / "table.md").read_text()
    assert "Holm's correction for all 20 tests" in text
    assert (films / "made" / "curves.svg").exists()


def test_the_five_features_are_those_of_the_notebook(judged: Judged) -> None:
    five = msrd._of_notebook(judged).candidates
    own = {
        name: judged.candidates.features[:, judged.candidates.column_of(name)] for name in judged.feature_names or ()
    }
    title, actors, every_title, every_actor, popularity = five.features.T
    assert np.array_equal(title, own["title.bm25"])
    assert np.array_equal(actors, own["actors.bm25"])
    assert np.array_equal(popularity, own["popularity"])
    assert np.array_equal(every_title > 0, (own["title.coverage"] == 1) & (title > 0))
    assert set(every_actor[every_actor > 0]) <= set(actors)


def test_boosts_learn_from_bm25_by_field_alone(judged: Judged) -> None:
    part = msrd._by_field(Fold(judged, judged, judged)).train
    assert part.feature_names == ("title.bm25", "actors.bm25")


def test_documents_without_fields_are_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"D{number}", "title": "fish", "text": "a fish"}) + "\n" for number in range(9))
    )
    (tmp_path / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{number}", "text": "fish"}) + "\n" for number in range(9))
    )
    (tmp_path / "qrels.tsv").write_text("".join(f"q{number}\tD{number}\t1\n" for number in range(9)))
    assert "title and a text alone" in refused(reproduce(tmp_path, "msrd", ".", "--out", "made"))
