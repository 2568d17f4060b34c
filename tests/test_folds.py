from __future__ import annotations

import gzip
import lzma
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.folds import Fold, make_folds, read_folds, split_queries
from querywise.data.judged import Judged
from querywise.data.letor import write_letor
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from tests.worlds import examples


def line(query: str, column: int = 1) -> str:
    return f"1 qid:{query} {column}:0.5\n"


def put_parts(folder: Path) -> Path:
    """Part p holds one query called p; only part 2 has a third column."""
    for part in range(1, 6):
        (folder / f"S{part}.txt").write_text(line(str(part), column=3 if part == 2 else 1))
    return folder


def put_fold(folder: Path, number: int, names: tuple[str, str, str] = ("train.txt", "vali.txt", "test.txt")) -> Path:
    """Fold n trains on query n-train, validates on n-vali and tests on n-test; only the test file has column 2."""
    where = folder / f"Fold{number}"
    where.mkdir()
    for name, column in zip(names, (1, 1, 2), strict=True):
        content = line(f"{number}-{name.split('.')[0]}", column).encode()
        packed = gzip.compress(content) if name.endswith(".gz") else content
        (where / name).write_bytes(lzma.compress(content) if name.endswith(".xz") else packed)
    return where


def ids(fold: Fold) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    return fold.train.candidates.query_ids, fold.valid.candidates.query_ids, fold.test.candidates.query_ids


def widths(fold: Fold) -> set[int]:
    return {part.candidates.features.shape[1] for part in fold}


def test_parts_rotate_by_the_letor_rule_and_wrap_after_five(tmp_path: Path) -> None:
    folds = read_folds(put_parts(tmp_path))
    assert len(folds) == 5
    assert [ids(fold) for fold in folds] == [
        (("1", "2", "3"), ("4",), ("5",)),
        (("2", "3", "4"), ("5",), ("1",)),
        (("3", "4", "5"), ("1",), ("2",)),
        (("4", "5", "1"), ("2",), ("3",)),
        (("5", "1", "2"), ("3",), ("4",)),
    ]
    assert ids(folds[2]) == (("3", "4", "5"), ("1",), ("2",))


def test_all_parts_get_the_width_of_the_widest(tmp_path: Path) -> None:
    folds = read_folds(put_parts(tmp_path))
    assert all(widths(fold) == {3} for fold in folds)
    assert folds[0].test.candidates.features.tolist() == [[0.5, 0, 0]]


def test_fold_folders_are_read_as_they_are(tmp_path: Path) -> None:
    for number in range(1, 6):
        put_fold(tmp_path, number)
    folds = read_folds(str(tmp_path))
    assert [ids(fold) for fold in folds] == [((f"{n}-train",), (f"{n}-vali",), (f"{n}-test",)) for n in range(1, 6)]
    assert widths(folds[0]) == {2}
    assert folds[0].train.candidates.features.tolist() == [[0.5, 0]]


def test_fold_ten_comes_after_fold_nine(tmp_path: Path) -> None:
    for number in range(1, 11):
        put_fold(tmp_path, number)
    assert [fold.test.candidates.query_ids for fold in read_folds(tmp_path)] == [(f"{n}-test",) for n in range(1, 11)]


def test_files_may_be_packed_and_the_validation_file_called_valid(tmp_path: Path) -> None:
    put_fold(tmp_path, 1, names=("train.txt.gz", "valid.txt.xz", "test.txt"))
    assert ids(read_folds(tmp_path)[0]) == (("1-train",), ("1-valid",), ("1-test",))


def test_folders_go_before_parts(tmp_path: Path) -> None:
    put_fold(put_parts(tmp_path), 1)
    assert len(read_folds(tmp_path)) == 1


def test_a_folder_without_folds_is_refused(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "nowhere", "there is no such folder"), (tmp_path, "neither Fold1..Fold5")):
        with pytest.raises(DataError, match=re.escape(f"{path}: {what}")):
            read_folds(path)
    (put_parts(tmp_path) / "S3.txt").unlink()
    with pytest.raises(DataError, match=r"S1\.txt\.\.S5\.txt"):
        read_folds(tmp_path)


def test_a_fold_that_lacks_a_file_is_named(tmp_path: Path) -> None:
    (put_fold(tmp_path, 1) / "vali.txt").unlink()
    with pytest.raises(DataError, match=r"Fold1: expected train\.txt, vali\.txt and test\.txt"):
        read_folds(tmp_path)[0]


def test_a_bad_line_in_a_part_is_named_with_its_file(tmp_path: Path) -> None:
    (put_parts(tmp_path) / "S4.txt").write_text(line("4") + "1 qid:4 1:nan\n")
    with pytest.raises(DataError, match=r"S4\.txt:2: "):
        read_folds(tmp_path)


def test_a_query_in_two_parts_is_refused_even_where_a_fold_tests_on_what_it_trains_on(tmp_path: Path) -> None:
    (put_parts(tmp_path) / "S5.txt").write_text(line("1"))
    for fold in range(5):
        with pytest.raises(DataError, match="'1'"):
            read_folds(tmp_path)[fold]


def test_parts_read_from_files_are_what_was_written(tmp_path: Path) -> None:
    whole = make_judged(queries=10, documents=4, features=3)
    for part in range(5):
        write_letor(tmp_path / f"S{part + 1}.txt", whole.select([2 * part, 2 * part + 1]))
    fold = read_folds(tmp_path)[3]
    expected = whole.select([6, 7, 8, 9, 0, 1])
    assert fold.train.candidates.features.tolist() == expected.candidates.features.tolist()
    assert fold.train.labels.tolist() == expected.labels.tolist()


def documents_of(data: Judged) -> dict[str, tuple[list[list[float]], list[int]]]:
    """Every query with all its documents and labels."""
    return {
        query_id: (data.candidates.features[rows].tolist(), data.labels[rows].tolist())
        for query, query_id in enumerate(data.candidates.query_ids)
        for rows in [data.candidates.rows(query)]
    }


@pytest.mark.parametrize("count", [3, 5, 7])
def test_made_folds_share_out_all_queries_whole(count: int) -> None:
    data = make_judged(queries=17, documents=4, features=2)
    folds = make_folds(data, folds=count, seed=1)
    assert len(folds) == count
    for fold in folds:
        train, valid, test = map(documents_of, fold)
        assert len(train) + len(valid) + len(test) == 17, "no query stands in two parts"
        assert {**train, **valid, **test} == documents_of(data)
    tested = [query_id for fold in folds for query_id in fold.test.candidates.query_ids]
    assert sorted(tested) == sorted(data.candidates.query_ids), "every query is tested once"
    sizes = [len(fold.test) for fold in folds]
    assert max(sizes) - min(sizes) <= 1


def test_the_seed_alone_decides_the_folds() -> None:
    data = make_judged(queries=20, documents=2, features=2)
    same, again, other = ([ids(fold) for fold in make_folds(data, seed=seed)] for seed in (0, 0, 1))
    assert same == again
    assert same != other


@pytest.mark.parametrize("count", [2, 11])
def test_a_number_of_folds_that_cannot_be_made_is_refused(count: int) -> None:
    with pytest.raises(
        DataError, match=f"{count} folds need at least one query each, and 3 is the minimum; there are 10 queries"
    ):
        make_folds(make_judged(queries=10, documents=2, features=2), folds=count)


def test_two_queries_make_no_folds_and_the_message_promises_none() -> None:
    with pytest.raises(DataError, match="2 queries") as caught:
        make_folds(make_judged(queries=2, documents=2, features=2))
    assert "3 to 2" not in str(caught.value)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_two_parts_share_out_all_queries_whole(share: float) -> None:
    data = make_judged(queries=10, documents=3, features=2)
    first, second = split_queries(data, share=share)
    assert (len(first), len(second)) == (10 * share, 10 - 10 * share)
    assert {**documents_of(first), **documents_of(second)} == documents_of(data)


def test_the_seed_alone_decides_the_two_parts() -> None:
    data = make_judged(queries=30, documents=2, features=2)
    same, again, other = (split_queries(data, seed=seed)[0].candidates.query_ids for seed in (0, 0, 1))
    assert same == again
    assert same != other


def test_queries_keep_their_order_within_a_part() -> None:
    data = make_judged(queries=30, documents=2, features=2)
    for part in split_queries(data):
        positions = [data.candidates.query_ids.index(query_id) for query_id in part.candidates.query_ids]
        assert np.all(np.diff(positions) > 0)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.99, 1.0, 1.5, -0.5])
def test_a_share_that_leaves_a_side_empty_is_refused(share: float) -> None:
    with pytest.raises(DataError, match=f"A share of {share} leaves one side of 10 queries empty"):
        split_queries(make_judged(queries=10, documents=2, features=2), share=share)


def dated(count: int, dates: list[float], groups: list[str | None] | None = None) -> Judged:
    data = make_judged(count, 4, 2)
    by_query = None if groups is None else tuple(groups)
    table = QueryTable(data.query_ids, columns=np.array(dates)[:, None], column_names=("date",), groups=by_query)
    return data.with_queries(table)


def dates_in(data: Judged) -> list[float]:
    assert data.candidates.queries is not None
    assert data.candidates.queries.columns is not None
    return sorted(data.candidates.queries.columns[:, 0].tolist())


@settings(max_examples=examples(50))
@given(dates=st.lists(st.integers(0, 40), min_size=30, max_size=60, unique=True), folds=st.integers(1, 5))
def test_folds_by_time_train_on_earlier_queries_and_test_on_later_ones(dates: list[float], folds: int) -> None:
    made = make_folds(dated(len(dates), dates), folds=folds, by_time="date")
    assert len(made) == folds
    for fold in made:
        train, valid, test = map(dates_in, fold)
        assert train[-1] < valid[0] <= valid[-1] < test[0]
    tested = [date for fold in made for date in dates_in(fold.test)]
    assert tested == sorted(dates)[-len(tested) :]
    assert dates_in(made[-1].train) + dates_in(made[-1].valid) + dates_in(made[-1].test) == sorted(dates)


def test_queries_of_one_date_are_in_one_part_and_a_group_is_where_its_last_query_is() -> None:
    dates = [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]
    (fold,) = make_folds(dated(6, dates), folds=1, by_time="date")
    assert [part.query_ids for part in fold] == [("q1", "q2", "q3"), ("q4",), ("q5", "q6")]
    (fold,) = make_folds(dated(6, dates, ["a", None, None, None, None, "a"]), folds=1, by_time="date")
    assert [part.query_ids for part in fold] == [("q2", "q3"), ("q4",), ("q1", "q5", "q6")]


def test_folds_by_time_say_what_is_missing() -> None:
    with pytest.raises(DataError, match=r"by_time='day' is no column of the query data; it has date\. Give every"):
        make_folds(dated(9, [*range(9)]), by_time="day")
    with pytest.raises(DataError, match="it has none"):
        make_folds(make_judged(9, 4, 2), by_time="date")
    with pytest.raises(DataError, match="7 parts in the order of 'date' need more different values: there are 2, of 9"):
        make_folds(dated(9, [1.0] * 4 + [2.0] * 5), by_time="date")
