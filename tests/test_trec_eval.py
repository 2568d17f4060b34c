"""Flavour trec: trec_eval's own numbers, to the fourth decimal and beyond."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.coverage import whole_grades
from querywise.data.folds import make_folds
from querywise.data.judged import Judged
from querywise.data.judgements import read_grades
from querywise.data.run_columns import Run
from querywise.data.runs import join_runs, judge, read_run
from querywise.evaluation.evaluate import evaluate, evaluate_run
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.measures.score_files import write_run
from querywise.rankers.weights.fusion import CombSUM
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import build_index
from querywise.retrieval.reading import collection_from
from querywise.retrieval.scores import BM25
from querywise.retrieval.search import runs_of
from querywise.retrieval.stdlib import stdlib_collection
from querywise.runtime.arrays import Floats
from tests.trec_eval import GOLDEN, SHARED, asked
from tests.worlds import REAL_DATA, examples, needs_real_data, part_of_the_library

EXACT = 1e-9


def oracle() -> None:
    """Without trec_eval there is nothing to compare with; it has to be there in CI, where it can be installed."""
    if not (os.environ.get("CI") and platform.machine() == "x86_64"):
        pytest.importorskip("pytrec_eval")


def test_golden_values_of_trec_eval() -> None:
    run, grades = read_run(GOLDEN / "golden.trec"), read_grades(GOLDEN / "judged.qrels")
    found = evaluate_run(run, grades, measures=list(SHARED), flavour="trec")
    expected = json.loads((GOLDEN / "expected.json").read_text())
    assert list(found.query_ids) == list(expected)
    for query, row in zip(found.query_ids, found.values, strict=True):
        assert dict(zip(SHARED, row.tolist(), strict=True)) == pytest.approx(expected[query], abs=EXACT), query


# No grades below 0: pytrec-eval may crash on them, trec_eval does not. The golden files have them.
DOCUMENTS = st.sampled_from([f"D{number}" for number in range(12)] + ["d10", "É", "e"])
NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, 1 + 1e-9, 16777216.0, 16777217.0, -1.0, 1e300, -1e300]), st.floats(-1e6, 1e6)
)
RUNS = st.dictionaries(st.sampled_from("abc"), st.dictionaries(DOCUMENTS, NUMBERS, min_size=1), min_size=1)
GRADES = st.dictionaries(st.sampled_from("abc"), st.dictionaries(DOCUMENTS, st.integers(0, 5), min_size=1), min_size=1)


@settings(max_examples=examples(300), deadline=None)
@given(scores=RUNS, grades=GRADES)
def test_any_run_is_measured_as_trec_eval_does(
    scores: dict[str, dict[str, float]], grades: dict[str, dict[str, int]]
) -> None:
    oracle()
    run = Run("any", scores)
    found = evaluate_run(run, grades, measures=list(SHARED), flavour="trec")
    expected = asked(run, grades)
    for query, row in zip(found.query_ids, found.values, strict=True):
        assert dict(zip(SHARED, row.tolist(), strict=True)) == pytest.approx(expected[query], abs=EXACT), query


def agree(judged: Judged, scores: Floats, place: Path) -> None:
    """Our measures of scores are trec_eval's of the written run and all judgements."""
    write_run(place, judged.candidates, scores)
    expected = asked(read_run(place), dict(zip(judged.query_ids, whole_grades(judged), strict=True)))
    found = evaluate(scores, judged, measures=list(SHARED), flavour="trec")
    theirs = np.array([[expected[query][measure] for measure in SHARED] for query in judged.query_ids])
    np.testing.assert_allclose(found.values, theirs, rtol=0, atol=EXACT)


@pytest.mark.slow
@needs_real_data
@pytest.mark.parametrize("name", ["cranfield", "vaswani", "stdlib"])
def test_text_collections_are_measured_as_trec_eval_does(name: str, tmp_path: Path) -> None:
    oracle()
    if name == "stdlib":
        collection = stdlib_collection(root=part_of_the_library(tmp_path / "library", every=8))
    else:
        collection = collection_from(REAL_DATA / name)
    index = build_index(collection.documents())
    judged, coverage = judged_candidates(collection, index, top=50)
    assert judged.missed is not None
    assert coverage.found < coverage.relevant
    bm25 = judged.candidates.features[:, judged.candidates.column_of(BM25)]
    agree(judged, bm25, tmp_path / "bm25.trec")
    fold = make_folds(judged)[0]
    agree(fold.test, RankSVM().fit(fold.train).predict(fold.test.candidates), tmp_path / "single.trec")
    some = replace(collection, queries=collection.queries and collection.queries.select(fold.test.query_ids))
    joined = join_runs(runs_of(some, index, top=50))
    wanted = set(fold.test.query_ids)
    fused, _ = judge(joined, [each for each in collection.judgements if each.query in wanted])
    agree(fused, CombSUM().fit(fused).predict(fused.candidates), tmp_path / "fused.trec")


@needs_real_data
def test_more_candidates_never_lower_recall_and_map_counts_what_was_missed() -> None:
    collection = collection_from(REAL_DATA / "cranfield")
    index = build_index(collection.documents())
    means = []
    for top in (10, 100, 1000):
        judged, coverage = judged_candidates(collection, index, top=top)
        bm25 = judged.candidates.features[:, judged.candidates.column_of(BM25)]
        means.append(evaluate(bm25, judged, measures=["recall", "map"], flavour="trec").mean())
        assert means[-1]["recall"] == pytest.approx(coverage.recall)
        alone = evaluate(bm25, judged.candidates_only(), measures=["map"], flavour="trec").mean()
        assert alone["map"] > means[-1]["map"]
    assert means[0]["recall"] < means[1]["recall"] < means[2]["recall"]
    assert means[0]["map"] < means[1]["map"] < means[2]["map"]
    assert {name: round(value, 4) for name, value in means[1].items()} == {"recall": 0.7466, "map": 0.3026}
