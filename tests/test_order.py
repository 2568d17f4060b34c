from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querywise.data.judged import Candidates
from querywise.errors import DataError
from querywise.measures.order import order
from querywise.measures.score_files import read_scores, write_run, write_scores


@pytest.fixture
def candidates() -> Candidates:
    return Candidates(np.zeros((4, 1)), np.array([0, 3, 4]), ("q1", "q2"), document_ids=("a", "b", "c", "a"))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=20))
def test_order_falls_and_ties_keep_their_place(values: list[int]) -> None:
    scores = np.array(values, dtype=np.float64)
    rows = order(scores, np.array([0, len(scores)]))
    ranked = list(zip((-scores[rows]).tolist(), rows.tolist(), strict=True))
    assert ranked == sorted(ranked)


def test_a_run_is_written_best_first_and_read_back_exactly(candidates: Candidates, tmp_path: Path) -> None:
    scores = np.array([0.1, 1 / 3, -2e-300, 5.0])
    write_run(tmp_path / "out.trec", candidates, scores, tag="test")
    lines = (tmp_path / "out.trec").read_text().splitlines()
    assert lines[0] == "q1 Q0 b 1 0.3333333333333333 test"
    assert [line.split()[2] for line in lines] == ["b", "a", "c", "a"]
    assert np.array_equal(read_scores(tmp_path / "out.trec", candidates), scores)


def test_scores_are_written_and_read_back_exactly(candidates: Candidates, tmp_path: Path) -> None:
    scores = np.array([0.1, 1 / 3, -2e-300, 5.0])
    write_scores(tmp_path / "scores.txt", scores)
    assert np.array_equal(read_scores(tmp_path / "scores.txt", candidates), scores)


def test_documents_without_an_id_are_called_by_row_number(tmp_path: Path) -> None:
    nameless = Candidates(np.zeros((3, 1)), np.array([0, 2, 3]), ("x", "y"))
    write_run(tmp_path / "out.trec", nameless, np.array([1.0, 2.0, 3.0]))
    assert [line.split()[2] for line in (tmp_path / "out.trec").read_text().splitlines()] == ["2", "1", "3"]
    assert read_scores(tmp_path / "out.trec", nameless).tolist() == [1.0, 2.0, 3.0]


RUN = ["q1 Q0 a 1 3 t", "q1 Q0 b 2 2 t", "q1 Q0 c 3 1 t", "q2 Q0 a 1 1 t"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "holds no score"),
        (["1", "2", "3"], "3 scores for 4 documents"),
        (["1", "2", "x", "4"], ":3: expected one finite number; found 'x'"),
        (["1", "2", "3", "nan"], ":4: expected one finite number; found 'nan'"),
        (["1", "2 3", "4", "5"], ":2: expected one finite number"),
        (RUN[:3], "1 documents have no score, the first is 'a' of query 'q2'"),
        ([*RUN, "q1 Q0 a 4 0 t"], ":5: document 'a' of query 'q1' is scored a second time"),
        ([*RUN, "q1 Q0 z 4 0 t"], ":5: document 'z' of query 'q1' is not in the judged data"),
        ([*RUN[:3], "q2 Q0 a 1 inf t"], ":4: expected one finite number"),
        ([*RUN[:3], "q2 a 1 inf t"], ":4: expected 'query Q0 document rank score tag'; found 5 words"),
    ],
)
def test_scores_that_do_not_fit_are_refused_with_the_place(
    candidates: Candidates, tmp_path: Path, lines: list[str], words: str
) -> None:
    (tmp_path / "scores").write_text("\n".join(lines))
    with pytest.raises(DataError, match=words):
        read_scores(tmp_path / "scores", candidates)


def test_the_lines_of_a_run_may_come_in_any_order(candidates: Candidates, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("\n".join(reversed(RUN)))
    assert read_scores(tmp_path / "run", candidates).tolist() == [3.0, 2.0, 1.0, 1.0]


def test_an_id_with_a_space_cannot_stand_in_a_run(tmp_path: Path) -> None:
    spaced = Candidates(np.zeros((1, 1)), np.array([0, 1]), ("two words",))
    with pytest.raises(DataError, match="'two words' cannot be written to a TREC run"):
        write_run(tmp_path / "run", spaced, np.zeros(1))
    assert not (tmp_path / "run").exists()
