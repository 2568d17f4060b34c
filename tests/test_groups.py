from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querywise as qw
from querywise.errors import DataError
from tests.worlds import REAL_DATA, examples, needs_real_data


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12))
@settings(max_examples=examples(50), deadline=None)
def test_group_sizes_are_the_ids_they_stand_for(sizes: list[int]) -> None:
    X = np.arange(sum(sizes), dtype=float)[:, None]
    ids = np.repeat(np.arange(1, len(sizes) + 1), sizes)
    ours, theirs = qw.from_arrays(X, ids % 2, group=sizes), qw.from_arrays(X, ids % 2, qid=ids)
    assert ours.fingerprint() == theirs.fingerprint()
    assert ours.candidates.sizes.tolist() == sizes


@pytest.mark.parametrize("group", [[2, 1], (2, 1), np.array([2.0, 1.0]), np.array([2, 1], np.uint8)])
def test_group_sizes_come_in_any_kind_of_array(group: Any) -> None:
    data = qw.from_arrays([[1.0], [2.0], [3.0]], [1, 0, 1], group=group)
    assert data.query_ids == ("1", "2")


def test_group_sizes_come_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "train.query"
    file.write_text("2\r\n1\n\n")
    for path in (file, str(file)):
        assert qw.from_arrays([[1.0], [2.0], [3.0]], group=path).candidates.starts.tolist() == [0, 2, 3]


@pytest.mark.parametrize("content", ["2\n0\n", "2\none\n", "2\n-1\n", "2\n1.5\n"])
def test_a_line_that_is_no_group_size_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "train.query"
    file.write_text(content)
    with pytest.raises(DataError, match=r"train.query:2: expected a group size, a whole number from 1 up"):
        qw.from_arrays([[1.0], [2.0], [3.0]], group=file)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group": [2, 2]}, "X has 3 rows but the 2 group sizes add up to 4"),
        ({"group": []}, r"group must be one whole number|add up to 0"),
        ({"group": [3, 0]}, "Group 2 has size 0; a group size is a whole number from 1 up"),
        ({"group": [4, -1]}, "Group 2 has size -1"),
        ({"group": [1.5, 1.5]}, "Group 1 has size 1.5"),
        ({"group": [float("nan"), 3]}, "Group 1 has size nan"),
        ({"group": ["a"]}, "group must be one whole number per query"),
        ({"group": [[1, 2]]}, "group must be one whole number per query"),
        ({"group": [3], "qid": [1, 1, 1]}, "Both qid= and group= were given"),
        ({}, "Give qid=, a query id for every row, or group="),
    ],
)
def test_group_sizes_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        qw.from_arrays([[1.0], [2.0], [3.0]], [1, 0, 0], **arguments)


@given(st.integers(3, 40), st.integers(0, 5), st.lists(st.floats(0.01, 1), min_size=2, max_size=3))
@settings(max_examples=examples(50), deadline=None)
def test_parts_share_out_all_queries_whole(queries: int, seed: int, relative: list[float]) -> None:
    data = qw.make_judged(queries, 2, 1)
    shares = [each / sum(relative) for each in relative]
    parts = qw.split(data, shares, seed=seed)
    assert sorted(sum((part.query_ids for part in parts), ())) == sorted(data.query_ids)
    assert all(len(part) for part in parts)
    exact = [share * queries for share in shares]
    if min(exact) >= 1:
        assert all(abs(len(part) - each) <= 1 for part, each in zip(parts, exact, strict=True))


def test_parts_do_not_depend_on_the_order_of_the_rows() -> None:
    data = qw.make_judged(30, 4, 2)
    qid = np.array(data.query_ids)[data.candidates.query_of_row]
    turned = np.random.default_rng(3).permutation(len(qid))
    shuffled = qw.from_arrays(data.candidates.features[turned], data.labels[turned], qid=qid[turned])
    for one, other in zip(qw.split(data), qw.split(shuffled), strict=True):
        assert set(one.query_ids) == set(other.query_ids)
    assert qw.split(data, seed=1)[0].query_ids != qw.split(data)[0].query_ids


def test_queries_of_a_part_keep_their_order_and_rows() -> None:
    data = qw.make_judged(12, 3, 2)
    for part in qw.split(data):
        numbers = [data.query_ids.index(query) for query in part.query_ids]
        assert numbers == sorted(numbers)
        assert part.fingerprint() == data.select(numbers).fingerprint()


def test_three_queries_are_enough_for_three_parts_and_two_are_not() -> None:
    assert [len(part) for part in qw.split(qw.make_judged(3, 2, 1))] == [1, 1, 1]
    with pytest.raises(DataError, match="3 parts need at least 3 queries, one each; there are 2 queries"):
        qw.split(qw.make_judged(2, 2, 1))


@pytest.mark.parametrize("parts", [(0.6, 0.2), (1.0,), (), (0.5, 0.5, 0.0), (1.5, -0.5), 0.8, (0.5, float("nan"))])
def test_shares_that_do_not_add_up_are_refused(parts: Any) -> None:
    with pytest.raises(DataError, match=r"expected two or more shares above 0 that add up to 1"):
        qw.split(qw.make_judged(10, 2, 1), parts)


@needs_real_data
def test_a_table_and_a_file_of_group_sizes_are_the_data_they_were_made_of(tmp_path: Path) -> None:
    whole = qw.read_letor(REAL_DATA / "MQ2008" / "S1.txt")
    np.savetxt(tmp_path / "train.csv", np.column_stack([whole.labels, whole.candidates.features]), delimiter=",")
    np.savetxt(tmp_path / "train.csv.query", whole.candidates.sizes, fmt="%d")
    table = np.loadtxt(tmp_path / "train.csv", delimiter=",")
    data = qw.from_arrays(table[:, 1:], table[:, 0], group=tmp_path / "train.csv.query")
    assert np.array_equal(data.candidates.features, whole.candidates.features)
    assert np.array_equal(data.candidates.starts, whole.candidates.starts)
    assert np.array_equal(qw.RankSVM().fit(data).weights_, qw.RankSVM().fit(whole).weights_)
    train, valid, test = qw.split(data)
    assert (len(train), len(valid), len(test)) == (94, 32, 31)


@pytest.mark.slow
@needs_real_data
def test_lightgbms_ranker_is_compared_on_its_own_form_of_the_data(tmp_path: Path) -> None:
    """Part of a fold of MQ2008 as a table and a file of group sizes, to a comparison in a few lines."""
    import lightgbm

    whole = qw.read_letor(REAL_DATA / "MQ2008" / "S1.txt")
    np.save(tmp_path / "table.npy", np.column_stack([whole.labels, whole.candidates.features]))
    np.savetxt(tmp_path / "train.group", whole.candidates.sizes, fmt="%d")

    table = np.load(tmp_path / "table.npy")
    train, valid, test = qw.split(qw.from_arrays(table[:, 1:], table[:, 0], group=tmp_path / "train.group"))
    yours = lightgbm.LGBMRanker(n_estimators=20, verbosity=-1)
    yours.fit(train.candidates.features, train.labels, group=train.candidates.sizes)
    compared = qw.compare([yours, qw.recommended(bag=1)], train, valid, test)

    assert compared.names == ("LGBMRanker", "Blend")
    own = np.asarray(yours.predict(test.candidates.features))
    assert np.array_equal(compared.evaluations["LGBMRanker"].values, qw.evaluate(own, test).values)
    assert 0 <= compared.corrected()["Blend"]["map"] <= 1
