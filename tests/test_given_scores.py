"""Other systems' scores in a comparison, by the command line."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.folds import read_folds
from querywise.data.judged import Judged
from querywise.data.letor import read_letor, write_letor
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.measures.score_files import write_run, write_scores
from querywise.rankers.single import GivenScores
from querywise.runtime.arrays import Floats
from tests.commands import Done, run


def named(data: Judged) -> Judged:
    """The same with document ids that are in no order."""
    turn = np.random.default_rng(5).permutation(len(data.labels))
    names = tuple(f"d{number}" for number in turn)
    return replace(data, candidates=replace(data.candidates, document_ids=names))


DATA = named(make_judged(30, 6, 3, noise=0.5))
PARTS = [DATA.select(range(6 * part, 6 * part + 6)) for part in range(5)]


def noisy(seed: int, data: Judged = DATA) -> Floats:
    found: Floats = data.labels + np.random.default_rng(seed).normal(size=len(data.labels))
    return found


def shuffled(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    order = np.random.default_rng(1).permutation(len(lines))
    path.write_text("".join(lines[number] for number in order))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data in three forms, and the scores of one system for each: by line, and as a run in another order."""
    folder = tmp_path_factory.mktemp("given")
    write_letor(folder / "one.txt", DATA)
    for name in ("parts", "folds"):
        (folder / name).mkdir()
    for number, part in enumerate(PARTS):
        write_letor(folder / "parts" / f"S{number + 1}.txt", part)
    for number in range(5):
        where = folder / "folds" / f"Fold{number + 1}"
        where.mkdir()
        turned = [PARTS[(number + step) % 5] for step in range(5)]
        for file, parts in (("train", turned[:3]), ("vali", turned[3:4]), ("test", turned[4:])):
            text = ""
            for each in parts:
                write_letor(where / "part", each)
                text += (where / "part").read_text()
            (where / f"{file}.txt").write_text(text)
        (where / "part").unlink()
    scores = noisy(0)
    write_scores(folder / "one.scores", scores)
    write_scores(folder / "parts.scores", scores)
    # The order of a folder of folds is that of its test files: S5, S1, S2, S3, S4.
    write_scores(folder / "folds.scores", np.concatenate([scores[144:], scores[:144]]))
    write_run(folder / "run.trec", DATA.candidates, scores)
    shuffled(folder / "run.trec")
    write_scores(folder / "other.scores", noisy(1))
    return folder


def call(*words: object) -> Done:
    return run(None, *words)


def content(*words: object) -> Any:
    done = call(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


# Matched with the data


@pytest.mark.parametrize(("form", "data"), [("one", "one.txt"), ("parts", "parts"), ("folds", "folds")])
def test_a_run_in_any_order_and_scores_in_the_order_of_the_data_are_the_same(place: Path, form: str, data: str) -> None:
    given = ["--scores", f"run={place / 'run.trec'}", "--scores", f"lines={place / form}.scores"]
    found = content("compare", place / data, "--methods", "none", *given, "--measures", "map,ndcg@3")
    expected = evaluate(noisy(0), DATA, measures="map,ndcg@3").mean()
    assert found["queries"] == 30
    for name in ("run", "lines"):
        assert found["methods"][name]["mean"] == pytest.approx(expected)
        assert found["methods"][name]["p"] == {"map": 1.0, "ndcg@3": 1.0}


def test_the_kept_scores_are_those_that_were_given(place: Path, tmp_path: Path) -> None:
    words = ["--methods", "none", "--scores", f"run={place / 'run.trec'}", "--out", tmp_path / "r"]
    assert call("compare", place / "one.txt", *words).returncode == 0
    given = dict(zip(DATA.candidates.document_ids or (), noisy(0).tolist(), strict=True))
    kept: dict[str, float] = {}
    for fold in range(1, 6):
        with open(tmp_path / "r" / "runs" / f"fold{fold}-run.csv", newline="") as lines:
            kept |= {row["document"]: float(row["score"]) for row in csv.DictReader(lines)}
    assert kept == given


def test_documents_without_ids_are_called_by_their_row_in_a_run(tmp_path: Path) -> None:
    bare = make_judged(12, 5, 2)
    write_letor(tmp_path / "bare.txt", bare)
    scores = noisy(3, bare)
    write_run(tmp_path / "run.trec", bare.candidates, scores)
    shuffled(tmp_path / "run.trec")
    words = ["--methods", "none", "--scores", f"run={tmp_path / 'run.trec'}", "--measures", "map"]
    found = content("compare", tmp_path / "bare.txt", *words)
    assert found["methods"]["run"]["mean"] == pytest.approx(evaluate(scores, bare, measures="map").mean())


def test_what_rank_writes_is_what_compare_reads(place: Path, tmp_path: Path) -> None:
    one = place / "one.txt"
    assert call("fit", one, "--set", "l2=1", "--out", tmp_path / "model", "-q").returncode == 0
    for name in ("run.trec", "run.scores"):
        assert call("rank", tmp_path / "model", one, "--out", tmp_path / name, "-q").returncode == 0
    given = ["--scores", f"a={tmp_path / 'run.trec'}", "--scores", f"b={tmp_path / 'run.scores'}"]
    found = content("compare", one, "--methods", "none", *given, "--measures", "map")["methods"]
    assert found["a"]["mean"] == found["b"]["mean"]
    assert found["a"]["mean"]["map"] > 0.5


def test_given_systems_stand_beside_methods_and_can_be_the_baseline(place: Path) -> None:
    words = ["--methods", "ranksvm", "--measures", "map", "--scores", f"theirs={place / 'other.scores'}"]
    done = call("compare", place / "one.txt", *words, "--baseline", "theirs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "p: paired t-test against theirs" in done.stdout
    assert "ranksvm" in done.stdout
    assert "nan" not in done.stdout, "what nobody timed is left empty"


@pytest.mark.slow
def test_only_given_systems_can_be_compared(place: Path, tmp_path: Path) -> None:
    given = ["--scores", f"a={place / 'one.scores'}", "--scores", f"b={place / 'other.scores'}"]
    words = ["compare", place / "one.txt", "--methods", "none", *given, "--out", tmp_path / "r", "--test", "wilcoxon"]
    done = call(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Wilcoxon signed-rank test, on 30 queries" in done.stdout
    assert f"The report is {tmp_path / 'r' / 'report.html'}" in done.stdout.replace("\n", "")
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert list(report["methods"]) == ["a", "b"]
    assert (report["baseline"], report["test"]) == ("a", "wilcoxon")


def test_json_is_json(place: Path) -> None:
    done = call("compare", place / "one.txt", "--methods", "none", "--scores", f"a={place / 'one.scores'}", "--json")

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    assert json.loads(done.stdout, parse_constant=refuse)["methods"]["a"]["fit_seconds"] is None


@pytest.mark.parametrize("name", ["[/b]", "[red]theirs", "größe", "a b", "a,b", "a=b"])
def test_a_system_may_have_any_name(place: Path, name: str) -> None:
    words = ["--methods", "none", "--measures", "map", "--scores", f"first={place / 'one.scores'}"]
    path = place / "other.scores"
    done = call("compare", place / "one.txt", *words, "--scores", f"{name}={path}")
    if "=" in name:  # the first sign divides: the rest belongs to the file
        assert done.returncode == 2
        assert f"b={path}: there is no such file" in done.stderr
    else:
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count(name) == 2, "in the table and in the verdict"


def test_a_file_name_may_have_an_equals_sign(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "k=3.scores"
    path.write_text((place / "one.scores").read_text())
    found = content("compare", place / "one.txt", "--methods", "none", "--scores", f" a ={path}", "--measures", "map")
    assert list(found["methods"]) == ["a"]


def test_a_measure_may_be_written_in_capitals(place: Path) -> None:
    words = ["--methods", "none", "--scores", f"a={place / 'one.scores'}", "--measures", "MAP,NDCG@3"]
    found = content("compare", place / "one.txt", *words)
    assert list(found["methods"]["a"]["mean"]) == ["map", "ndcg@3"]


def test_the_verdict_is_about_the_first_measure(place: Path) -> None:
    scores = ["--scores", f"a={place / 'one.scores'}", "--scores", f"b={place / 'other.scores'}"]
    for measures in ("map,ndcg@3", "ndcg@3,map"):
        found = content("compare", place / "one.txt", "--methods", "none", *scores, "--measures", measures)
        first, second = measures.split(",")
        value = found["methods"]["b"]["mean"][first]
        assert f": {first} {value:.4f} against" in found["verdict"]
        assert second not in found["verdict"]


@pytest.mark.parametrize("command", ["compare", "fuse"])
def test_the_former_option_puts_its_measure_first_and_says_what_to_write(place: Path, command: str) -> None:
    words: list[object] = ["compare", place / "one.txt", "--methods", "none", "--scores", f"a={place / 'one.scores'}"]
    if command == "fuse":
        lines = [f"{each} 0 d{number} {number % 2}" for each in DATA.query_ids for number in range(3)]
        runs = [place / f"{name}.trec" for name in ("first", "second")]
        for run_file, sign in zip(runs, (1, -1), strict=True):
            ranked = [(each, number) for each in DATA.query_ids for number in range(3)]
            run_file.write_text("".join(f"{each} Q0 d{n} {n + 1} {sign * n} x\n" for each, n in ranked))
        (place / "some.qrels").write_text("\n".join(lines) + "\n")
        words = ["fuse", *runs, "--judged", place / "some.qrels", "--folds", 3]
    done = call(*words, "--measures", "map,p@2", "--measure", "NDCG@3", "--json")
    assert done.returncode == 0, done.stderr
    assert "--measure is now the first of --measures: --measures ndcg@3,map,p@2\n" in done.stderr
    methods = json.loads(done.stdout)["methods"]
    assert list(next(iter(methods.values()))["mean"]) == ["ndcg@3", "map", "p@2"]
    assert call(*words, "--measure", "map", "--quiet", "--json").stderr == ""
    assert "--measure " not in call(command, "--help").stdout


# What does not fit is refused, with the first thing that does not


def without_query(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("q7 ")]


def with_another(lines: list[str]) -> list[str]:
    return [*lines[:4], "q3 Q0 nobody 1 0.5 x", "q4 Q0 nobody 1 0.5 x", *lines[4:]]


def twice(lines: list[str]) -> list[str]:
    return [*lines, lines[2], lines[3]]


def of_another_query(lines: list[str]) -> list[str]:
    words = lines[9].split()
    return [*lines[:9], " ".join(["q999", *words[1:]]), *lines[10:]]


def not_finite(lines: list[str]) -> list[str]:
    words = lines[5].split()
    return [*lines[:5], " ".join([*words[:4], "nan", words[5]]), *lines[6:]]


def too_few_words(lines: list[str]) -> list[str]:
    return [*lines[:5], " ".join(lines[5].split()[:5]), *lines[6:]]


def in_order() -> list[str]:
    names = DATA.candidates.document_ids or ()
    owners = DATA.candidates.query_of_row.tolist()
    return [f"q{owner + 1} Q0 {name} 1 0.25 x" for owner, name in zip(owners, names, strict=True)]


LINES = in_order()
FIRST_OF_Q7 = next(line.split()[2] for line in LINES if line.startswith("q7 "))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_query, f"6 documents have no score, the first is '{FIRST_OF_Q7}' of query 'q7'."),
        (with_another, "bad.trec:5: document 'nobody' of query 'q3' is not in the judged data"),
        (twice, f"bad.trec:181: document '{LINES[2].split()[2]}' of query 'q1' is scored a second time"),
        (of_another_query, f"bad.trec:10: document '{LINES[9].split()[2]}' of query 'q999' is not in the judged data"),
        (not_finite, "bad.trec:6: expected one finite number; found 'nan'"),
        (too_few_words, "bad.trec:6: expected 'query Q0 document rank score tag'; found 5 words"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_with_the_first_that_does_not(
    place: Path, tmp_path: Path, change: Any, message: str
) -> None:
    path = tmp_path / "bad.trec"
    path.write_text("\n".join(change(LINES)) + "\n")
    done = call("compare", place / "one.txt", "--methods", "single", "--scores", f"bad={path}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0.5"] * 179, "bad.scores: 179 scores for 180 documents"),
        (["0.5"] * 181, "bad.scores: 181 scores for 180 documents"),
        (["0.5"] * 8 + ["nan"] + ["0.5"] * 171, "bad.scores:9: expected one finite number; found 'nan'"),
        (["0.5"] * 8 + ["inf"] + ["0.5"] * 171, "bad.scores:9: expected one finite number; found 'inf'"),
        (["0.5"] * 8 + ["high"] + ["0.5"] * 171, "bad.scores:9: expected one finite number; found 'high'"),
        (["", " "], "bad.scores: the file holds no score"),
    ],
)
def test_scores_that_do_not_fit_are_refused(place: Path, tmp_path: Path, lines: Sequence[str], message: str) -> None:
    path = tmp_path / "bad.scores"
    path.write_text("\n".join(lines) + "\n")
    done = call("compare", place / "one.txt", "--methods", "single", "--scores", f"bad={path}")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--scores nowhere.trec", "--scores nowhere.trec: expected NAME=FILE, as in --scores ours=run.trec"),
        ("--scores =one.scores", "--scores =one.scores: expected NAME=FILE"),
        ("--scores a=", "--scores a=: expected NAME=FILE"),
        ("--scores a=nowhere.trec", "nowhere.trec: there is no such file"),
        ("--scores a=parts", "parts: there are no scores in this folder"),
        ("--scores ranksvm=one.scores", "--scores ranksvm: two systems have the same name"),
        ("--scores a=one.scores --scores a=other.scores", "two systems have the same name"),
        ("--baseline theirs", "The baseline 'theirs' is not among the methods: ranksvm"),
        ("--test anova", "Unknown test 'anova'. Known: t, wilcoxon, randomisation"),
        ("--measure nope", "Unknown measure 'nope'"),
        ("--flavour nope", "Unknown flavour 'nope'"),
        ("--methods none", "There is nothing to compare"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.chdir(place)
    before = sorted(place.iterdir())
    methods = [] if "--methods" in words else ["--methods", "ranksvm"]
    done = call("compare", "one.txt", *methods, *words.split(), "--out", "new")
    after = sorted(place.iterdir())
    shutil.rmtree(place / "new", ignore_errors=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert after == before


def test_of_several_systems_the_one_whose_name_is_taken_is_named(place: Path) -> None:
    given = [f"--scores={name}={place / 'one.scores'}" for name in ("a", "b", "a", "c")]
    done = call("compare", place / "one.txt", "--methods", "none", *given)
    assert done.returncode == 2
    assert "--scores a" in done.stderr
    assert "c=" not in done.stderr


def test_a_folder_cannot_be_made_where_a_file_is(place: Path) -> None:
    words = ["--methods", "none", "--scores", f"a={place / 'one.scores'}"]
    done = call("compare", place / "one.txt", *words, "--out", place / "one.txt")
    assert done.returncode == 2
    assert "one.txt" in done.stderr
    assert "the folder cannot be made" in done.stderr


# The ranker behind them


def test_scores_are_looked_up_by_query_whatever_the_order_of_the_queries() -> None:
    scores = noisy(0)
    ranker = GivenScores(DATA.candidates, scores)
    turn = [4, 1, 29, 0]
    rows = np.concatenate([np.arange(6 * query, 6 * query + 6) for query in turn])
    assert np.array_equal(ranker.predict(DATA.candidates.select(turn)), scores[rows])
    assert len(ranker.predict(DATA.candidates.select([]))) == 0


def test_queries_without_scores_are_named() -> None:
    ranker = GivenScores(PARTS[0].candidates, np.zeros(36))
    with pytest.raises(DataError, match="There are no scores for query 'q7'"):
        ranker.predict(DATA.candidates)


# One split: train, vali and test


@pytest.fixture(params=["vali", "valid"])
def split(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    for name, queries in (("train", range(18)), (request.param, range(18, 24)), ("test", range(24, 30))):
        write_letor(tmp_path / f"{name}.txt", DATA.select(queries))
    return tmp_path


def test_a_folder_of_train_vali_and_test_is_one_fold(split: Path) -> None:
    folds = read_folds(split)
    assert len(folds) == 1
    assert [len(part) for part in folds[0]] == [18, 6, 6]
    assert folds.whole().candidates.query_ids == DATA.candidates.query_ids[24:]
    found = content("compare", split, "--methods", "single", "--measures", "map")
    assert found["queries"] == 6


def test_of_one_split_only_the_test_queries_need_scores(split: Path) -> None:
    test = DATA.select(range(24, 30))
    write_scores(split / "s.scores", noisy(2, test))
    words = ["--methods", "none", "--scores", f"a={split / 's.scores'}", "--measures", "map"]
    found = content("compare", split, *words)
    assert found["methods"]["a"]["mean"] == pytest.approx(evaluate(noisy(2, test), test, measures="map").mean())


def test_one_split_can_be_trained_on_as_its_first_fold(split: Path, tmp_path: Path) -> None:
    assert call("fit", split, "--fold", 1, "--out", tmp_path / "m", "-q").returncode == 0
    done = call("fit", split, "--fold", 2, "--out", tmp_path / "m", "-q")
    assert done.returncode == 2
    assert "has 1 fold" in done.stderr


@pytest.mark.parametrize("missing", ["test", "vali"])
def test_a_split_with_a_part_missing_is_refused(tmp_path: Path, missing: str) -> None:
    for name, queries in (("train", range(18)), ("vali", range(18, 24)), ("test", range(24, 30))):
        if name != missing:
            write_letor(tmp_path / f"{name}.txt", DATA.select(queries))
    done = call("compare", tmp_path, "--methods", "single")
    assert done.returncode == 2
    assert "expected train.txt, vali.txt and test.txt" in done.stderr


def test_a_query_in_two_parts_of_a_split_is_refused(tmp_path: Path) -> None:
    for name, queries in (("train", range(18)), ("vali", range(17, 24)), ("test", range(24, 30))):
        write_letor(tmp_path / f"{name}.txt", DATA.select(queries))
    done = call("compare", tmp_path, "--methods", "single")
    assert done.returncode == 2
    assert "Query 'q18' is in both" in done.stderr


# A text collection


def test_a_text_collection_is_compared_as_it_is(tmp_path: Path) -> None:
    fruit = ("apple", "pear", "plum", "fig", "kiwi", "lime", "lemon", "melon", "grape", "mango")
    docs = tmp_path / "docs"
    docs.mkdir()
    records = [
        {"_id": f"{kind}-{each}", "title": each, "text": f"{each} {words}"}
        for each in fruit
        for kind, words in (("shop", "sold here for juice"), ("farm", "grown in a field for juice"))
    ]
    (docs / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    queries = [{"_id": f"q-{each}", "text": f"{each} juice", "class": f"long {len(each) > 4}"} for each in fruit]
    (docs / "queries.jsonl").write_text("".join(json.dumps(record) + "\n" for record in queries))
    grades = "".join(f"q-{each}\tfarm-{each}\t1\n" for each in fruit)
    (docs / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + grades)
    done = call("compare", docs, "--methods", "bm25,single", "--measures", "map", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 test queries" in done.stdout
    with open(tmp_path / "r" / "queries.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["text"] for row in rows} == {f"{each} juice" for each in fruit}
    assert {row["class"] for row in rows} == {"long True", "long False"}
    assert {row["relevant"] for row in rows} == {"1"}
    with open(tmp_path / "r" / "runs" / "fold1-bm25.csv", newline="") as lines:
        assert {row["document"].split("-")[0] for row in csv.DictReader(lines)} == {"shop", "farm"}


def test_data_read_from_a_file_is_what_was_written(place: Path) -> None:
    again = read_letor(place / "one.txt")
    assert again.candidates.document_ids == DATA.candidates.document_ids
