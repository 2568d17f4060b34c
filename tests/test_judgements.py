"""Whole judgements: what was judged beyond the candidates, from files to measures."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from querywise import from_arrays
from querywise.data.collections import Collection, Document
from querywise.data.coverage import coverage_of, whole_grades
from querywise.data.folds import make_folds, read_folds, write_parts
from querywise.data.judged import Candidates, Judged, concatenate
from querywise.data.judgements import Judgement, Judgements, is_qrels, read_grades
from querywise.data.parquet.shards import open_shards
from querywise.data.parquet.writing import convert, write_shards
from querywise.data.query_table import QueryTable
from querywise.data.readers import read_features
from querywise.data.run_columns import Run
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate, evaluate_run
from querywise.evaluation.tuning import tune
from querywise.learners.classic.lists import Worth
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.measures.formulas import ideal_shares
from querywise.measures.order import FLAVOURS
from querywise.methods import METHODS
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import build_index
from querywise.retrieval.scores import Smoothing, high_level

GRADES = {
    "a": {"D1": 1, "D2": 0, "D3": 2, "D9": 1},
    "b": {"D1": 2, "D4": -2},
    "c": {"D7": 1},  # has no candidate
}


def some() -> Judged:
    """Two queries whose candidates are not all that was judged; D4 is spam, nobody judged D5."""
    return from_arrays(
        [[3.0], [2.0], [1.0], [2.0], [1.0]],
        [1, 0, 2, 0, 0],
        qid=["a", "a", "a", "b", "b"],
        document_ids=["D1", "D2", "D3", "D4", "D5"],
    )


def whole() -> Judged:
    return some().with_judgements(GRADES)


def many(queries: int = 12) -> Judged:
    """Queries with four candidates each, one relevant document beyond them, and one query without candidates."""
    random = np.random.default_rng(0)
    starts = np.arange(queries + 1) * 4
    ids = tuple(f"D{number}" for number in range(4 * queries))
    names = tuple(f"q{number}" for number in range(queries))
    labels = np.tile([2, 0, 1, 0], queries)
    features = random.normal(size=(4 * queries, 3)) + labels[:, None]
    data = Judged(Candidates(features, starts, names, ids), labels)
    grades = {
        name: {ids[row]: int(labels[row]) for row in range(4 * query, 4 * query + 4)} | {f"M{query}": 1 + query % 2}
        for query, name in enumerate(names)
    }
    return data.with_judgements({**grades, "nowhere": {"X": 1}})


def same(found: Judged, expected: Judged) -> None:
    """The same judgements, whatever the order of the queries."""
    assert dict(zip(found.query_ids, whole_grades(found), strict=True)) == dict(
        zip(expected.query_ids, whole_grades(expected), strict=True)
    )
    assert (found.missed is None) == (expected.missed is None)
    assert coverage_of(found) == coverage_of(expected)


def test_what_no_label_holds_is_missed_and_queries_without_candidates_come_back() -> None:
    data = whole()
    assert data.query_ids == ("a", "b", "c")
    assert data.labels.tolist() == some().labels.tolist()
    assert data.judged is not None
    assert data.judged.tolist() == [True, True, True, True, False]
    assert data.missed is not None
    assert [data.missed.of(query) for query in range(3)] == [{"D9": 1}, {"D1": 2, "D4": -2}, {"D7": 1}]
    assert whole_grades(data) == list(GRADES.values())
    found = coverage_of(data)
    assert (found.relevant, found.found, found.without_candidates, found.without_relevant) == (5, 2, 1, 1)
    assert found.recall == pytest.approx((2 / 3 + 0 + 0) / 3)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_judgements_from_tables(make: Any) -> None:
    rows = [(query, document, grade) for query, own in GRADES.items() for document, grade in own.items()]
    columns = dict(zip(("query", "document", "grade"), map(list, zip(*rows, strict=True)), strict=True))
    same(some().with_judgements(make(columns)), whole())
    columns["qid"] = columns.pop("query")
    same(some().with_judgements(make(columns)), whole())


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"query": ["a"], "document": ["D1"]}, "no column for the grade: one of grade, label"),
        ({"query": ["a"], "document": ["D1"], "grade": [0.5]}, "Row 1 of the judgments is 'a', 'D1', 0.5"),
        ({"query": ["a"], "document": [None], "grade": [1]}, "Row 1 of the judgments is 'a', None, 1"),
        ({"query": ["a", "a"], "document": ["D", "D"], "grade": [1, 2]}, "Row 2 .* grade 2; a row before gave it 1"),
        ({"a": {"D1": 2}}, "'D1' of query 'a', has label 1; its judgment is 2"),
        ({"a": {"D2": 0}}, "'D1' of query 'a', has label 1; its judgment is missing"),
    ],
)
def test_judgements_that_cannot_be_are_refused(table: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        some().with_judgements(table)


@pytest.mark.parametrize(
    "grade", [0.9, float("nan"), float("inf"), 2**63, "2", None, True], ids=lambda grade: f"grade {grade}"
)
def test_a_grade_is_a_whole_number(grade: Any) -> None:
    with pytest.raises(DataError, match="D9"):
        some().with_judgements({"a": {**GRADES["a"], "D9": grade}})
    with pytest.raises(DataError, match="D9"):
        evaluate_run(Run("r", {"a": {"D1": 1.0}}), {"a": {"D9": grade}})


def test_tables_with_gaps_and_of_other_queries_are_refused() -> None:
    gaps = pd.DataFrame({"query": ["a", None], "document": ["D1", "D2"], "grade": [1, 0]}).astype({"query": "string"})
    with pytest.raises(DataError, match="Row 2 of the judgments"):
        some().with_judgements(gaps)
    uneven: Any = {"query": ["a", "b"], "document": ["D1"], "grade": [1]}
    with pytest.raises(DataError, match="2 and 1 and 1 rows"):
        some().with_judgements(uneven)
    others: Any = {"query": [1.0], "document": ["D1"], "grade": [1]}
    with pytest.raises(DataError, match=r"None of the 1 judged queries is in the data: the first judged is '1\.0'"):
        some().with_judgements(others)


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_run_has_finite_scores(score: float) -> None:
    with pytest.raises(DataError, match="Run r: the score of document 'D1' of query 'a' is"):
        evaluate_run(Run("r", {"a": {"D1": score}}), GRADES)


@pytest.mark.parametrize("flavour", list(FLAVOURS))
def test_err_has_one_scale_for_all_runs_and_absent_queries_count_0(flavour: str) -> None:
    grades = {"q": {"D1": 1, "D3": 3}, "other": {"D1": 1}}
    poor = evaluate_run(Run("poor", {"q": {"D1": 1.0}}), grades, measures=["err", "map", "ndcg@3"], flavour=flavour)
    assert poor["err"][0] == pytest.approx(1 / 8)
    assert not poor.values[1].any()


def test_documents_without_ids_cannot_be_joined() -> None:
    with pytest.raises(DataError, match="no ids"):
        from_arrays([[1.0]], [1], qid=["a"]).with_judgements(GRADES)


def test_measures_count_what_was_missed_where_the_flavour_does() -> None:
    data = whole()
    scores = data.candidates.features[:, 0]
    names = ["map", "ndcg@2", "recall@1", "r_precision", "bpref", "judged@2"]
    found = evaluate(scores, data, measures=names, flavour="trec")
    assert dict(zip(names, found.values[0], strict=True)) == pytest.approx(
        {
            "map": (1 + 2 / 3) / 3,
            "ndcg@2": 1 / (2 + 1 / np.log2(3)),
            "recall@1": 1 / 3,
            "r_precision": 2 / 3,
            "bpref": (1 + 0) / 3,
            "judged@2": 1.0,
        }
    )
    assert found.values[1].tolist() == [0, 0, 0, 0, 0, 0.5]
    assert found.values[2].tolist() == [0, 0, 0, 0, 0, 0]
    for flavour in ("letor4", "mslr", "lightgbm"):
        alone = evaluate(scores, data.candidates_only(), measures=["map", "ndcg@2", "err"], flavour=flavour)
        assert np.array_equal(
            evaluate(scores, data, measures=["map", "ndcg@2", "err"], flavour=flavour).values, alone.values
        )


def test_selecting_joining_and_folds_carry_judgements() -> None:
    data = many()
    chosen = data.select([3, 12, 0])
    assert whole_grades(chosen) == [whole_grades(data)[query] for query in (3, 12, 0)]
    same(concatenate([data.select(range(5)), data.select(range(5, 13))]), data)
    same(concatenate([fold.test for fold in make_folds(data)]), data)
    with pytest.raises(DataError, match="1 of 2 sets have all judgments"):
        concatenate([data.select([0]), data.select([1]).candidates_only()])


def test_fingerprints_know_judgements() -> None:
    data = many()
    assert data.missed is not None
    other = replace(data, missed=replace(data.missed, grades=data.missed.grades + 1))
    assert len({tuple(each.fingerprint()) for each in (data, other, data.candidates_only())}) == 3


def test_parts_are_written_with_their_judgements(tmp_path: Path) -> None:
    data = many()
    write_parts(data, tmp_path / "parts")
    assert (tmp_path / "parts" / "S1.qrels").read_text().split("\n")[0].split()[1] == "0"
    same(read_folds(tmp_path / "parts").whole(), data)
    files = [tmp_path / "parts" / f"S{number}.txt" for number in range(1, 6)]
    same(read_features(files), data)
    write_parts(data.candidates_only().select(range(12)), tmp_path / "parts")
    assert not (tmp_path / "parts" / "S1.qrels").exists()
    assert read_folds(tmp_path / "parts").whole().missed is None


def test_a_label_that_contradicts_its_judgement_is_refused_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "S.txt").write_text("# a comment\n1 qid:a 1:1 #docid = D1\n\n2 qid:a 1:0 #docid = D2\n")
    (tmp_path / "S.qrels").write_text("a 0 D1 1\na 0 D2 1\n")
    with pytest.raises(
        DataError, match=r"S\.txt:4: document 'D2' of query 'a' has label 2 here and grade 1 at .*S\.qrels:2"
    ):
        read_features(tmp_path / "S.txt")
    (tmp_path / "S.qrels").write_text("a 0 D1 1\n")
    with pytest.raises(DataError, match=r"S\.txt:4: .* has label 2 here and .*S\.qrels does not judge it"):
        read_features(tmp_path / "S.txt")


def test_packed_judgements_are_read(tmp_path: Path) -> None:
    data = many()
    write_parts(data, tmp_path / "parts")
    for path in sorted((tmp_path / "parts").glob("*.qrels")):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    same(read_folds(tmp_path / "parts").whole(), data)
    assert read_grades(tmp_path / "parts" / "S1.qrels.gz")
    (tmp_path / "parts" / "S3.qrels.gz").unlink()
    with pytest.raises(DataError, match=r"S1\.qrels\.gz lists .* there is no .*S3\.qrels"):
        read_folds(tmp_path / "parts")


def test_the_same_judgements_beside_every_part_are_refused_by_their_name(tmp_path: Path) -> None:
    write_parts(many(), tmp_path / "parts")
    texts = [path.read_text() for path in sorted((tmp_path / "parts").glob("*.qrels"))]
    for number in range(1, 6):
        (tmp_path / "parts" / f"S{number}.qrels").write_text("".join(texts))
    with pytest.raises(DataError, match=r"is in both .*S1\.qrels and .*S2\.txt|is in both .*S1\.txt and .*S2\.qrels"):
        read_folds(tmp_path / "parts")


def test_a_query_that_is_only_judged_needs_no_query_data(tmp_path: Path) -> None:
    data = many()
    table = QueryTable(data.query_ids, texts=tuple(f"text {query}" for query in data.query_ids))
    write_parts(data.with_queries(table), tmp_path / "parts")
    with (tmp_path / "parts" / "S1.qrels").open("a") as file:
        file.write("new 0 D1 1\n")
    found = read_folds(tmp_path / "parts").whole()
    assert found.candidates.queries is not None
    assert found.candidates.queries.texts is not None
    assert found.candidates.queries.texts[found.query_ids.index("new")] is None


def test_documents_that_were_added_do_not_count_as_found() -> None:
    data = many()
    comments = tuple("docid = D" + (" added = 1" if row % 4 == 0 else "") for row in range(len(data.labels)))
    added = coverage_of(replace(data, candidates=replace(data.candidates, comments=comments)))
    assert (added.found, added.added, added.relevant) == (12, 12, 37)
    assert "12 judged documents that retrieval did not find were added and marked." in added.lines()


def test_judgements_beside_one_of_two_files_are_refused(tmp_path: Path) -> None:
    for name in "ST":
        (tmp_path / f"{name}.txt").write_text(f"1 qid:{name} 1:1 #docid = D1\n")
    (tmp_path / "S.qrels").write_text("S 0 D1 1\n")
    with pytest.raises(DataError, match=r"there is no .*T\.qrels"):
        read_features([tmp_path / "S.txt", tmp_path / "T.txt"])
    with pytest.raises(DataError, match=r".*S\.txt has all judgments, .*T\.txt only"):
        convert([tmp_path / "S.txt", tmp_path / "T.txt"], tmp_path / "shards")


def test_shards_carry_judgements_and_are_cut_anew_with_them(tmp_path: Path) -> None:
    data = many()
    table = QueryTable(data.query_ids, texts=tuple(f"text {query}" for query in data.query_ids))
    data = data.with_queries(table)
    shards = write_shards([data], tmp_path / "one", rows=10)
    assert (tmp_path / "one" / "judgements.parquet").is_file()
    same(shards.load(), data)
    assert shards.load().candidates.queries is not None
    again = convert([tmp_path / "one"], tmp_path / "two", shards=2)
    same(again.load(), data)
    assert shards.fingerprint() != write_shards([data.candidates_only()], tmp_path / "bare", rows=10).fingerprint()
    assert open_shards(tmp_path / "bare").load().missed is None
    path = tmp_path / "one" / "judgements.parquet"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(DataError, match=r"judgements\.parquet: damaged"):
        open_shards(tmp_path / "one").load()
    path.unlink()
    with pytest.raises(DataError, match=r"judgements\.parquet: the judgments are missing"):
        open_shards(tmp_path / "one").load()


def test_files_become_shards_with_their_judgements(tmp_path: Path) -> None:
    data = many()
    write_parts(data, tmp_path / "parts")
    files = [tmp_path / "parts" / f"S{number}.txt" for number in range(1, 6)]
    same(convert(files, tmp_path / "shards").load(), data)


@pytest.mark.parametrize("method", ["single", "lambdamart", "adarank", "knn-online", "blend", "select-ranker"])
def test_learners_see_candidates_only(method: str) -> None:
    data = many(30)
    found, expected = (METHODS[method].build().fit(each) for each in (data, data.candidates_only()))
    assert np.array_equal(found.predict(data.candidates), expected.predict(data.candidates))


def test_what_chooses_counts_what_was_missed() -> None:
    """The first query has all its documents, the second misses most: by the whole, the first one counts more."""
    ids = ("A", "B", "C", "D")
    rows = Candidates(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), np.array([0, 2, 4]), ("a", "b"), ids)
    grades = {"a": {"A": 1, "B": 0}, "b": {"C": 1, "D": 0} | {f"M{number}": 1 for number in range(9)}}
    data = Judged(rows, np.array([1, 0, 1, 0])).with_judgements(grades)

    class Column:
        def __init__(self, column: int) -> None:
            self.column = column

        def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Column:
            return self

        def predict(self, candidates: Candidates, /) -> Any:
            return candidates.features[:, self.column]

    grid = {"column": (1, 0)}
    assert tune(Column, grid, train=data, valid=data.candidates_only()).parameters == {"column": 1}
    assert tune(Column, grid, train=data, valid=data).parameters == {"column": 0}


@pytest.mark.parametrize("measure", ["map", "ndcg", "ndcg@1", "ndcg@3"])
def test_worth_is_the_measure_on_the_whole(measure: str) -> None:
    data = many()
    scores = np.random.default_rng(3).normal(size=len(data.labels))
    expected = evaluate(scores, data, measures=[measure]).values[:, 0]
    assert Worth(data, measure).of(scores) == pytest.approx(expected, abs=1e-12)


def test_trees_stop_where_the_whole_is_ranked_best() -> None:
    """LightGBM's NDCG of the candidates, with these weights, is in proportion to NDCG of all that was judged."""
    data = many()
    scores = np.random.default_rng(5).normal(size=len(data.labels))
    alone = evaluate(scores, data.candidates_only(), measures=["ndcg@3"]).values[:, 0]
    shares = ideal_shares(data, 3, FLAVOURS["standard"])
    assert (shares < 1).any()
    assert shares * alone == pytest.approx(evaluate(scores, data, measures=["ndcg@3"]).values[:, 0])
    assert ideal_shares(data.candidates_only(), 3, FLAVOURS["standard"]).tolist() == [1.0] * len(data)
    assert LambdaMART(trees=20, patience=2).fit(data, valid=data).tree_count_ >= 1
    nothing = replace(data.select([12]), missed=data.select([12]).missed)
    assert LambdaMART(trees=3).fit(data, valid=concatenate([nothing, data.select([0])])).tree_count_ >= 1


def test_difficulty_counts_judged_documents(tmp_path: Path) -> None:
    from querywise.evaluation.compare import compare
    from querywise.evaluation.rankings import relevant_documents

    data = many()
    compared = compare({"one": lambda train, valid: RankSVM().fit(train)}, make_folds(data))
    assert sorted(relevant_documents(compared).tolist()) == [1, *[3] * 12]
    assert compared.coverage == coverage_of(data)
    content: Any = compared.as_json()
    assert content["coverage"]["relevant"] == 37


def test_an_empty_document_never_beats_one_with_a_word_of_the_query() -> None:
    """Of methods.md: (-4.28 against -5.94) for a document without a word, under two of the models."""
    documents = [Document("empty", "", ""), Document("match", "", "wing " + "flow " * 40 + "heat " * 300)]
    documents += [Document(f"D{number}", "", "wing flow heat plate") for number in range(6)]
    index = build_index(documents)
    field, smooth = index.fields["both"], Smoothing()
    for query in ("wing", "wing flow", "wing plate", "plate wing nowhere"):
        terms, rows = index.numbers_of(query), np.arange(len(documents))
        table = high_level(field, terms, rows, smooth)
        assert np.isfinite(table).all()
        assert (table[1:] > table[0]).all(), query


def test_a_collections_judgements_travel_with_its_candidates() -> None:
    documents = [Document(f"D{number}", "", text) for number, text in enumerate(["red fox", "red", "blue", "fox"])]
    said = [("q", "D0", 2), ("q", "D2", 1), ("q", "D1", -1), ("none", "D3", 1)]
    collection = Collection(
        "small",
        lambda: documents,
        QueryTable(("q", "none"), texts=("red", "nowhere")),
        tuple(Judgement(*each, "here") for each in said),
    )
    data, coverage = judged_candidates(collection, build_index(documents))
    assert whole_grades(data) == [{"D0": 2, "D1": -1, "D2": 1}, {"D3": 1}]
    assert (coverage.relevant, coverage.found, coverage.without_candidates) == (3, 1, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q 0 D1 1\n", True),
        ("\nq\tD1\t-1\n", True),
        ("query-id\tcorpus-id\tscore\nq\tD\t1\n", True),
        ("1 qid:3 1:0.5\n", False),
        ("1 qid:3\n", False),
        ("q Q0 D1 1 0.5 tag\n", False),
        ("", False),
    ],
)
def test_qrels_are_known_by_their_first_line(text: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    assert is_qrels(tmp_path / "file") is expected


@pytest.mark.parametrize(
    ("starts", "ids", "grades"),
    [([1, 1], ("D",), [1]), ([0, 2], ("D",), [1]), ([0, 1], (), [1]), ([0, 1, 0], ("D",), [1])],
)
def test_judgements_that_do_not_fit_are_refused(starts: list[int], ids: tuple[str, ...], grades: list[int]) -> None:
    with pytest.raises(DataError):
        Judgements(np.array(starts), ids, np.array(grades))
