"""Why documents stand where they do, in short: of many queries, as a report shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from querywise.contracts.answers import answer_of
from querywise.data.folds import make_folds
from querywise.data.judged import Judged
from querywise.data.synthetic import make_judged
from querywise.evaluation.compare import compare
from querywise.evaluation.rankings import why
from querywise.evaluation.resume import Kept
from querywise.evaluation.trained import Reasons, uses
from querywise.explanations import importance as module
from querywise.explanations.contributions import contributions, contributions_in, one_query
from querywise.explanations.importance import reasons
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.rankers.blend import Blend
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.rankers.single import GivenScores
from querywise.rankers.weights.fusion import ReciprocalRank

DATA = make_judged(30, 12, 3, kinds=2, noise=0.5)
TRAIN, TEST = DATA.select(range(20)), DATA.select(range(20, 30))
RANKERS: dict[str, Any] = {
    "linear": RankSVM,
    "a model per query": lambda: KnnOnline(RankSVM(), k=5, back_off=None),
    "stored models": lambda: KnnOffline2(RankSVM(), k=5, back_off=None),
    "trees": lambda: LambdaMART(5, leaves=4, min_documents=2),
    "blend": lambda: Blend([RankSVM(), LambdaMART(5, leaves=4, min_documents=2)]),
    "blend of ranks": lambda: Blend([RankSVM(), LambdaMART(5, leaves=4, min_documents=2)], scores="rank"),
}


@pytest.mark.parametrize("name", RANKERS)
def test_the_answer_to_many_queries_explains_each_as_its_own_answer_does(name: str) -> None:
    ranker = RANKERS[name]().fit(TRAIN)
    answer = answer_of(ranker, TEST.candidates)
    for query in range(len(TEST)):
        ours = contributions_in(one_query(answer, query))
        theirs = contributions(ranker, TEST.candidates.select([query]))
        assert ours.is_global == theirs.is_global
        np.testing.assert_allclose(ours.here, theirs.here, atol=1e-9)
        np.testing.assert_allclose(ours.everyone, theirs.everyone, atol=1e-9)


@pytest.mark.parametrize("name", RANKERS)
def test_shares_are_of_one_whole(name: str) -> None:
    found = reasons(answer_of(RANKERS[name]().fit(TRAIN), TEST.candidates), TEST)
    assert found.refused == ""
    assert found.features == ["feature 1", "feature 2", "feature 3"]
    assert found.queries == len(TEST)
    assert sum(found.here) == pytest.approx(1, abs=1e-5)
    assert sum(found.everyone) == pytest.approx(1, abs=1e-5)
    assert all(
        moved >= abs(one - two) - 2e-6 for moved, one, two in zip(found.moved, found.here, found.everyone, strict=True)
    )
    assert any(found.moved) == ("query" in name or "stored" in name)


def test_what_is_told_of_a_document_adds_up_to_where_its_score_stands() -> None:
    # Three features, of which three are told: their sum is the score, in spreads above the mean of all candidates.
    few = TEST.select(range(len(TEST)))
    ranker = RankSVM().fit(TRAIN)
    for query in range(len(few)):
        rows = few.candidates.rows(query)
        eight = Judged(replace_rows(few, query, 8), few.labels[rows][:8])
        found = reasons(answer_of(ranker, eight.candidates), eight)
        scores = ranker.predict(eight.candidates)
        standing = (scores - scores.mean()) / scores.std()
        told = {int(row): sum(parts[1::2]) for row, *parts in found.why[0]}
        assert list(told)[:5] == np.argsort(-scores, kind="stable")[:5].tolist()
        for row, total in told.items():
            assert total == pytest.approx(standing[row], abs=0.02)
        assert {row for row in told if row not in list(told)[:5]} <= set(np.flatnonzero(eight.labels > 0).tolist())


def replace_rows(data: Judged, query: int, count: int) -> Any:
    one = data.candidates.select([query])
    return replace(one, features=one.features[:count], starts=np.array([0, count]), document_ids=None)


def test_what_cannot_be_explained_says_why() -> None:
    given = GivenScores(TEST.candidates, np.arange(len(TEST.labels), dtype=float))
    assert reasons(answer_of(given, TEST.candidates), TEST) == Reasons(refused="Its scores were computed elsewhere.")
    votes = reasons(answer_of(ReciprocalRank().fit(TRAIN), TEST.candidates), TEST)
    assert "not a sum" in votes.refused
    nothing = replace(TEST, candidates=replace(TEST.candidates, features=np.zeros_like(TEST.candidates.features)))
    alike = reasons(answer_of(RankSVM().fit(TRAIN), nothing.candidates), nothing)
    assert alike.refused == "All documents of a query have the same score."


def test_trees_are_explained_for_some_queries_and_linear_models_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_QUERIES", 4)
    for name, count in (("trees", 4), ("blend", 4), ("linear", 10), ("a model per query", 10)):
        found = reasons(answer_of(RANKERS[name]().fit(TRAIN), TEST.candidates), TEST)
        assert (found.queries, sum(map(bool, found.why))) == (count, count)
        assert len(found.why) == len(TEST)


def test_a_query_of_one_document_needs_no_reason() -> None:
    features = np.random.default_rng(0).random((13, 3))
    two = replace(TEST.candidates.select([0, 1]), starts=np.array([0, 1, 13]), features=features, document_ids=None)
    data = Judged(two, np.arange(13) % 2)
    found = reasons(answer_of(RankSVM().fit(TRAIN), data.candidates), data)
    assert (found.queries, found.why[0]) == (1, [])
    assert found.why[1]


def test_folds_count_by_their_queries() -> None:
    one = Reasons("", ["a", "b"], 1, [1.0, 0.0], [0.5, 0.5], [0.5, 0.5], [])
    two = Reasons("", ["b", "c"], 3, [0.5, 0.5], [0.5, 0.5], [0.0, 0.0], [])
    found = {each.feature: (each.here, each.everyone, each.moved) for each in uses([one, two])}
    assert found == {"a": (0.25, 0.125, 0.125), "b": (0.375, 0.5, 0.125), "c": (0.375, 0.375, 0.0)}
    assert [each.feature for each in uses([one, two])] == ["b", "c", "a"]


def test_reasons_are_kept_with_their_fold(tmp_path: Any) -> None:
    folds = make_folds(DATA)

    def never(train: Judged, valid: Judged) -> RankSVM:
        raise AssertionError("it is kept")

    def told(fit: Any) -> list[Reasons | None]:
        found = compare({"svm": fit}, folds, kept=Kept(tmp_path, {"svm": {}}), explain=reasons)
        return [each.reasons for each in found.trained["svm"]]

    first = told(lambda train, valid: RankSVM().fit(train))
    assert told(never) == first
    assert all(each is not None and each.features for each in first)


def test_reasons_are_found_by_query_and_document() -> None:
    compared = compare({"svm": RankSVM()}, list(make_folds(DATA)), explain=reasons)
    starts = compared.judged.candidates.starts
    for query in range(len(compared.judged)):
        rows = np.arange(starts[query], starts[query + 1])
        told = why(compared, query, rows)["svm"]
        assert told is not None
        best = int(np.argmax(compared.scores["svm"][rows]))
        assert sum(value for _, value in told[best]) > 0, "the first one stands above the mean"
        assert {name for each in told for name, _ in each} <= {"feature 1", "feature 2", "feature 3"}
    without = compare({"svm": RankSVM()}, list(make_folds(DATA)))
    assert why(without, 0, np.arange(3)) == {"svm": None}
