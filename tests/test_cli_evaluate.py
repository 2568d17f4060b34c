"""`querywise evaluate` on judgements and runs, as people who use trec_eval would run it."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from tests.commands import output, refused
from tests.commands import run as call

QRELS = "q1 0 D1 1\nq1 0 D2 0\nq1 0 D9 2\nq2 0 D1 1\nq3 0 D3 1\n"
GOOD = "q1 Q0 D9 1 3.0 good\nq1 Q0 D1 2 2.0 good\nq2 Q0 D1 1 1.0 good\nq7 Q0 D1 1 1.0 good\n"
POOR = "q1 Q0 D2 1 3.0 poor\nq1 Q0 X 2 2.0 poor\nq1 Q0 D1 3 1.0 poor\nq2 Q0 D2 1 1.0 poor\nq2 Q0 D1 2 0.5 poor\n"


def says(message: str, *words: str) -> None:
    for each in words:
        assert each in message


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "judged.qrels").write_text(QRELS)
    (tmp_path / "beir.tsv").write_text("query-id\tcorpus-id\tscore\n" + QRELS.replace(" 0 ", "\t").replace(" ", "\t"))
    (tmp_path / "good.trec").write_text(GOOD)
    (tmp_path / "poor.trec").write_text(POOR)
    return tmp_path


@pytest.mark.parametrize("judged", ["judged.qrels", "beir.tsv"])
def test_runs_are_measured_on_all_judgements(place: Path, judged: str) -> None:
    words = ["--flavour", "trec", "--measures", "map,recall@5,judged@5", "--json"]
    found = json.loads(output(call(place, "evaluate", judged, "good.trec", "poor.trec", *words)))
    assert (found["queries"], found["unjudged"], found["flavour"]) == (3, 1, "trec")
    good, poor = found["runs"]["good"], found["runs"]["poor"]
    assert good["mean"] == pytest.approx({"map": 2 / 3, "recall@5": 2 / 3, "judged@5": 2 / 3})
    assert poor["mean"] == pytest.approx({"map": (1 / 6 + 1 / 2) / 3, "recall@5": 0.5, "judged@5": (2 / 3 + 1 / 2) / 3})
    assert good["coverage"]["without_candidates"] == 1
    assert "p_holm" not in good
    assert set(poor["p_holm"]) == {"map", "recall@5", "judged@5"}


def test_the_table_shows_tests_and_coverage(place: Path) -> None:
    text = output(call(place, "evaluate", "judged.qrels", "good.trec", "poor.trec", "--measures", "map,ndcg@10"))
    assert "relevant found" in text
    assert "3 of 4" in text
    assert "queries answered" in text
    assert "2 of 3" in text
    assert "p: paired t-test against good" in text
    assert "counts all judged documents; gain: 2^grade - 1, exponential" in text
    assert "A judged query that is not in a run counts 0." in text
    assert "1 query of the runs has no judgment" in text


def test_every_querys_values_are_written(place: Path) -> None:
    words = ["evaluate", "judged.qrels", "good.trec", "poor.trec", "--measures", "map", "--per-query"]
    output(call(place, *words, "out.csv"))
    rows = list(csv.DictReader((place / "out.csv").read_text().splitlines()))
    assert [(row["run"], row["query"]) for row in rows] == [
        (run, f"q{n}") for run in ("good", "poor") for n in (1, 2, 3)
    ]
    output(call(place, *words, "out.json"))
    content = json.loads((place / "out.json").read_text())
    assert content["runs"]["poor"]["queries"]["q1"]["map"] == pytest.approx(1 / 6)
    output(call(place, "evaluate", "judged.qrels", "good.trec", "--per-query", "one.csv"))
    assert (place / "one.csv").read_text().startswith("query,map")


def test_a_run_on_features_with_judgements_beside_them(place: Path) -> None:
    (place / "S.txt").write_text("1 qid:q1 1:1 #docid = D1\n0 qid:q1 1:0 #docid = D2\n1 qid:q2 1:1 #docid = D1\n")
    (place / "S.qrels").write_text(QRELS)
    whole = json.loads(output(call(place, "evaluate", "S.txt", "poor.trec", "--json")))
    alone = json.loads(output(call(place, "evaluate", "judged.qrels", "poor.trec", "--json")))
    assert whole["runs"]["poor"]["mean"] == alone["runs"]["poor"]["mean"]
    (place / "S.qrels").unlink()
    says(refused(call(place, "evaluate", "S.txt", "poor.trec")), "document 'X' of query 'q1' is not in the judged data")


def test_what_does_not_belong_together_is_refused(place: Path) -> None:
    (place / "other.trec").write_text("r Q0 D1 1 1.0 other\n")
    says(refused(call(place, "evaluate", "judged.qrels", "other.trec")), "none of its queries is judged", "'r'", "'q1'")
    says(refused(call(place, "evaluate", "judged.qrels", "good.trec", "good.trec")), "good.trec is given twice")
    (place / "nan.trec").write_text("q1 Q0 D1 1 nan x\n")
    says(refused(call(place, "evaluate", "judged.qrels", "nan.trec")), "nan.trec:1", "expected a finite number")
    (place / "empty.trec").write_text("")
    says(refused(call(place, "evaluate", "judged.qrels", "empty.trec")), "holds no line of a run")
    says(refused(call(place, "evaluate", "judged.qrels", "gone.trec")), "gone.trec")
    says(refused(call(place, "evaluate", "gone.qrels", "good.trec")), "gone.qrels")
    (place / "odd.qrels").write_text("q1 0 D1 1\nq1 0 D2 much\n")
    says(refused(call(place, "evaluate", "odd.qrels", "good.trec")), "odd.qrels:2", "the grade a whole number")


def test_what_is_not_judgements_is_told_so(place: Path) -> None:
    says(
        refused(call(place, "evaluate", "good.trec", "judged.qrels")),
        "good.trec: this is a run",
        "The judgments come first",
    )
    says(refused(call(place, "evaluate", "judged.qrels", "beir.tsv")), "beir.tsv:1: expected a run", "3 words")
    (place / "empty").write_text("")
    says(refused(call(place, "evaluate", "empty", "good.trec")), "the file holds no judgment")
    (place / "half").write_text("q1 0 D1 0.5\n")
    says(refused(call(place, "evaluate", "half", "good.trec")), "half:1", "the grade a whole number")
    (place / "mixed").write_text("q1 0\tD1\t1\n")
    says(refused(call(place, "evaluate", "mixed", "good.trec")), "mixed:1", "'q1 0'")
    says(refused(call(place, "search", "nowhere", "x", "--judged", "judged.qrels")), "the collection's folder")


def test_packed_runs_and_judgements_are_read(place: Path) -> None:
    for name in ("judged.qrels", "good.trec"):
        (place / f"{name}.gz").write_bytes(gzip.compress((place / name).read_bytes()))
    packed = output(call(place, "evaluate", "judged.qrels.gz", "good.trec.gz"))
    assert packed == output(call(place, "evaluate", "judged.qrels", "good.trec"))


def test_a_run_and_scores_of_the_same_documents_stand_side_by_side(place: Path) -> None:
    (place / "S.txt").write_text("1 qid:q1 1:1 #docid = D1\n0 qid:q1 1:0 #docid = D2\n1 qid:q2 1:1 #docid = D1\n")
    (place / "S.qrels").write_text(QRELS)
    (place / "own.txt").write_text("2\n1\n1\n")
    content = json.loads(output(call(place, "evaluate", "S.txt", "poor.trec", "own.txt", "--json")))
    assert content["runs"]["poor"]["coverage"]["found"] == 2
    assert content["runs"]["own"]["mean"]["map"] == pytest.approx((0.5 + 1 + 0) / 3)
