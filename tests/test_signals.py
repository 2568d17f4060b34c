"""Signals of a query: by their definitions, without labels, and the same alone as among others."""

from __future__ import annotations

import numpy as np

from querywise.data.judged import Candidates
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import run_feature_names
from querywise.retrieval.signals import signal_names, signals

NAMES = ("length", *run_feature_names(["bm25", "vectors"]))


def world() -> Candidates:
    """Two queries: one whose lists share a document of five, and one without candidates."""
    bm25 = np.array([9.0, 5.0, 4.0, 0.0, 0.0])
    vectors = np.array([0.0, 0.0, 0.9, 0.8, 0.1])
    ranks = [np.array([1, 1 / 2, 1 / 3, 0, 0]), np.array([0, 0, 1, 1 / 2, 1 / 3])]
    rows = np.column_stack([np.ones(5), bm25, ranks[0], vectors, ranks[1]])
    table = QueryTable(("a", "b"), texts=("the fast jaguar", None))
    return Candidates(rows, np.array([0, 5, 5]), ("a", "b"), feature_names=NAMES, queries=table)


def test_they_are_what_they_are_said_to_be() -> None:
    found = signals(world())
    told = dict(zip(found.names, found.values[0].tolist(), strict=True))

    assert told["log_length"] == np.log(3)
    assert (told["bm25.top"], told["bm25.margin"]) == (9.0, 4.0)
    standing = (np.array([9.0, 5.0, 4.0]) - 6) / np.array([9.0, 5.0, 4.0]).std()
    np.testing.assert_allclose(told["bm25.top_z"], standing[0])
    np.testing.assert_allclose(told["bm25.top_ten_z"], 0, atol=1e-12)  # of three documents, all are the ten best
    chances = np.exp(standing) / np.exp(standing).sum()
    np.testing.assert_allclose(told["bm25.entropy"], -(chances * np.log(chances)).sum() / np.log(3))
    np.testing.assert_allclose(told["vectors.margin"], 0.1)
    np.testing.assert_allclose(told["bm25.vectors.overlap"], 1 / 3)
    other = (np.array([0.9, 0.8, 0.1]) - 0.6) / np.array([0.9, 0.8, 0.1]).std()
    first, second = np.array([*standing, standing[2], standing[2]]), np.array([other[2], other[2], *other])
    np.testing.assert_allclose(told["bm25.vectors.correlation"], np.corrcoef(first, second)[0, 1])
    assert told["found_by_one"] == 4 / 5
    assert told["log_candidates"] == np.log(6)


def test_a_query_without_candidates_has_finite_ones() -> None:
    assert signals(world()).values[1].tolist() == [0.0] * len(signal_names(["bm25", "vectors"]))


def test_scores_that_are_all_the_same_are_no_signal() -> None:
    rows = np.column_stack([np.ones(4), np.full(4, 0.1), 1 / np.arange(1, 5), np.full(4, 0.3), 1 / np.arange(1, 5)])
    found = signals(Candidates(rows, np.array([0, 4]), ("a",), feature_names=NAMES))
    told = dict(zip(found.names, found.values[0].tolist(), strict=True))

    assert (told["bm25.margin"], told["bm25.top_z"], told["bm25.vectors.correlation"]) == (0, 0, 0)
    np.testing.assert_allclose(told["bm25.entropy"], 1)
    assert told["bm25.vectors.overlap"] == 1


def test_a_query_alone_has_the_same_as_among_others() -> None:
    every = world()
    assert signals(every.select([0])).values.tolist() == signals(every).values[:1].tolist()


def test_features_without_runs_leave_what_the_text_tells() -> None:
    found = signals(Candidates(np.ones((2, 1)), np.array([0, 2]), ("a",), feature_names=("length",)))
    assert found.names == ("log_length", "log_candidates")
