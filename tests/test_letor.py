from __future__ import annotations

import gzip
import lzma
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_svmlight_file

from querywise.data.frames import from_arrays
from querywise.data.judged import Candidates, Judged
from querywise.data.letor import read_letor, write_letor
from querywise.errors import DataError
from querywise.runtime.arrays import Floats

TEXT = """\
# what this file is

2 qid:7 1:0.5 3:-1e3 #docid = GX008-86 inc = 1 prob = 0.5
0 qid:7 2:7
1 qid:x-9 3:.25 1:4. #a second look
"""
TABLE = [[0.5, 0.0, -1000.0], [0.0, 7.0, 0.0], [4.0, 0.0, 0.25]]


def put(folder: Path, content: str | bytes, name: str = "some.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def same_bits(ours: Floats, theirs: Floats) -> bool:
    return ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()


def assert_same(ours: Judged, theirs: Judged) -> None:
    assert same_bits(ours.candidates.features, theirs.candidates.features)
    assert ours.labels.tolist() == theirs.labels.tolist()
    assert ours.candidates.starts.tolist() == theirs.candidates.starts.tolist()
    assert ours.candidates.query_ids == theirs.candidates.query_ids
    assert ours.candidates.document_ids == theirs.candidates.document_ids


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file that every generated example overwrites."""
    return tmp_path_factory.mktemp("letor") / "scratch.txt"


def values_read(path: Path, numbers: Iterable[str]) -> list[float]:
    path.write_text("".join(f"0 qid:1 1:{number}\n" for number in numbers))
    return [float(value) for value in read_letor(path).candidates.features[:, 0]]


def test_every_line_is_a_row_and_a_column_left_out_is_zero(tmp_path: Path) -> None:
    data = read_letor(put(tmp_path, TEXT))
    assert data.candidates.features.tolist() == TABLE
    assert data.labels.tolist() == [2, 0, 1]
    assert (data.candidates.query_ids, data.candidates.starts.tolist()) == (("7", "x-9"), [0, 2, 3])
    assert data.judged is None


def test_comments_are_kept_and_unless_all_name_a_document_there_are_no_document_ids(tmp_path: Path) -> None:
    some = read_letor(put(tmp_path, TEXT)).candidates
    assert some.comments == ("docid = GX008-86 inc = 1 prob = 0.5", "", "a second look")
    assert some.document_ids is None
    none = read_letor(put(tmp_path, "1 qid:1 1:1\n")).candidates
    assert (none.comments, none.document_ids) == (None, None)


def test_a_document_id_comes_from_docid_or_from_a_comment_of_one_word(tmp_path: Path) -> None:
    lines = ("0 qid:1 1:1 #docid = GX008-86 inc = 1 prob = 0.5", "1 qid:1 1:2 # D7 ", "0 qid:1 1:3 #docid=é")
    assert read_letor(put(tmp_path, "\n".join(lines))).candidates.document_ids == ("GX008-86", "D7", "é")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(TEXT.replace("\n", "\r\n").encode(), id="lines that end as on Windows"),
        pytest.param(b"\xef\xbb\xbf" + TEXT.encode(), id="a byte-order mark"),
        pytest.param(TEXT.removesuffix("\n").encode(), id="no newline at the end"),
        pytest.param(TEXT.replace("\n", "\n\n# and\n  \t\n").encode(), id="blank lines and comment lines"),
        pytest.param(TEXT.replace(" qid", "\t  qid").replace(" 1:", "\t 1:").encode(), id="tabs and many spaces"),
        pytest.param(gzip.compress(TEXT.encode()), id="gz"),
        pytest.param(lzma.compress(TEXT.encode()), id="xz"),
    ],
)
def test_how_the_file_is_packed_makes_no_difference(tmp_path: Path, content: bytes) -> None:
    packed, plain = read_letor(put(tmp_path, content)), read_letor(put(tmp_path, TEXT, "plain.txt"))
    assert_same(packed, plain)
    assert packed.candidates.comments == plain.candidates.comments


def test_several_files_are_one_set_as_wide_as_the_widest(tmp_path: Path) -> None:
    one, two = put(tmp_path, "1 qid:1 1:1\n0 qid:1 1:2\n", "one.txt"), put(tmp_path, "3 qid:2 2:5 # D9", "two.txt")
    data = read_letor([one, str(two)])
    assert data.candidates.features.tolist() == [[1, 0], [2, 0], [0, 5]]
    assert (data.labels.tolist(), data.candidates.starts.tolist()) == ([1, 0, 3], [0, 2, 3])
    assert data.candidates.query_ids == ("1", "2")
    assert data.candidates.comments == ("", "", "D9")
    with pytest.raises(DataError, match="No file"):
        read_letor([])


def test_stated_features_pad_with_zeros_and_refuse_a_column_beyond_them(tmp_path: Path) -> None:
    path = put(tmp_path, TEXT)
    assert read_letor(path, features=5).candidates.features.tolist() == [[*row, 0, 0] for row in TABLE]
    with pytest.raises(DataError, match=r"some\.txt:3: '3:-1e3' .* from 1 to 2 "):
        read_letor(path, features=2)


def test_a_query_id_with_colons_adds_no_columns(tmp_path: Path) -> None:
    candidates = read_letor(put(tmp_path, "1 qid:2024:12:31 1:0.5 2:1\n")).candidates
    assert (candidates.query_ids, candidates.features.tolist()) == (("2024:12:31",), [[0.5, 1.0]])


LETTERS = st.characters(exclude_categories=("C", "Z"), exclude_characters="#")
FINITE = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)


@st.composite
def judged_sets(draw: st.DrawFn) -> Judged:
    ids = draw(st.lists(st.text(LETTERS, min_size=1), min_size=1, max_size=4, unique=True))
    sizes = draw(st.lists(st.integers(1, 4), min_size=len(ids), max_size=len(ids)))
    rows = sum(sizes)
    features = draw(arrays(np.float64, (rows, draw(st.integers(1, 4))), elements=FINITE))
    labels = draw(st.lists(st.integers(0, 100), min_size=rows, max_size=rows))
    documents = draw(st.none() | st.lists(st.text(LETTERS, min_size=1), min_size=rows, max_size=rows).map(tuple))
    candidates = Candidates(features, np.cumsum([0, *sizes]), tuple(ids), document_ids=documents)
    return Judged(candidates, np.array(labels))


@settings(deadline=None)
@given(data=judged_sets())
def test_what_is_written_is_read_back_to_the_last_bit(scratch: Path, data: Judged) -> None:
    write_letor(scratch, data)
    assert_same(read_letor(scratch), data)


def test_comments_and_extreme_numbers_are_written_and_read_back(tmp_path: Path) -> None:
    numbers = np.array([[-0.0, 5e-324, -1.7976931348623157e308], [2.2250738585072014e-308, 1e23, 1 / 3]])
    comments = ("docid = D1 inc = 1", "D2")
    data = Judged(Candidates(numbers, np.array([0, 2]), ("7",), ("D1", "D2"), comments), np.array([100, 0]))
    write_letor(tmp_path / "out.txt", data)
    again = read_letor(tmp_path / "out.txt")
    assert_same(again, data)
    assert again.candidates.comments == comments


@st.composite
def decimals(draw: st.DrawFn) -> str:
    digits = draw(st.text("0123456789", min_size=1, max_size=25))
    point = draw(st.none() | st.integers(0, len(digits)))
    written = digits if point is None else f"{digits[:point]}.{digits[point:]}"
    exponent = draw(st.just("") | st.integers(-400, 400).map("e{}".format) | st.integers(0, 30).map("E+{:03}".format))
    return draw(st.sampled_from(["", "-", "+"])) + written + exponent


@settings(deadline=None)
@given(st.lists(decimals().filter(lambda text: math.isfinite(float(text))), min_size=1, max_size=50))
def test_any_decimal_is_the_float_python_reads(scratch: Path, numbers: list[str]) -> None:
    assert same_bits(np.array(values_read(scratch, numbers)), np.array([float(number) for number in numbers]))


def test_decimals_at_and_beside_the_middle_of_two_floats_round_as_python_rounds(scratch: Path) -> None:
    """Above 2^60 floats are 256 apart, so 2^60 + 128 (2k + 1) is a tie; at 2^60 the gap below is half as wide."""
    middles = [2**60 + 64 * step + side for step in range(-40, 40) for side in (-1, 0, 1)]
    powers = (f"{middle}e{power}" for middle in middles for power in (0, 3, 22, -1, -18, -22, -320))
    numbers = [*powers, "1e23", "9007199254740993", "2.2250738585072011e-308", "2.4703282292062327208e-324", "1e-400"]
    assert values_read(scratch, numbers) == [float(number) for number in numbers]


def test_random_decimals_of_16_to_19_digits_round_as_python_rounds(scratch: Path) -> None:
    rng = np.random.default_rng(0)
    digits, powers = rng.integers(10**15, 9 * 10**18, size=20_000), rng.integers(-22, 23, size=20_000)
    numbers = [f"{whole}e{power}" for whole, power in zip(digits, powers, strict=True)]
    assert values_read(scratch, numbers) == [float(number) for number in numbers]


def test_a_number_may_be_longer_than_any_message_would_show(scratch: Path) -> None:
    numbers = ["1" + "0" * 70, "0." + "0" * 70 + "1", "1." + "3" * 57 + "e5", "0" * 100 + "7"]
    assert values_read(scratch, numbers) == [float(number) for number in numbers]


def test_scikit_learn_reads_the_same_from_a_sparse_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(200, 12)) * (rng.random((200, 12)) < 0.4) * 10.0 ** rng.integers(-9, 9, size=(200, 12))
    given = [" ".join(f"{n}:{value!r}" for n, value in enumerate(row, start=1) if value) for row in table.tolist()]
    path = put(tmp_path, "\n".join(f"{row % 5} qid:{row // 20 + 1} {values}" for row, values in enumerate(given)))
    theirs, labels, queries = load_svmlight_file(str(path), n_features=12, query_id=True, zero_based=False)
    ours = read_letor(path, features=12)
    assert same_bits(ours.candidates.features, theirs.toarray())
    assert ours.labels.tolist() == labels.tolist()
    assert [int(ours.candidates.query_ids[query]) for query in ours.candidates.query_of_row] == queries.tolist()


def test_a_file_read_in_many_pieces_is_the_file_read_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{row % 3} qid:{row // 7} {row % 5 + 1}:{row / 7!r} #docid = D{row}" for row in range(300)]
    path = put(tmp_path, "\n\n# a pause\n".join(lines))
    broken = put(tmp_path, "\n".join([*lines[:250], "0 qid:35 1:nan", *lines[250:]]), "broken.txt")
    whole = read_letor(path)
    monkeypatch.setattr("querywise.data.letor._CHUNK_BYTES", 64)
    monkeypatch.setattr("querywise.data.letor._HARD_NUMBERS", 1)
    assert_same(read_letor(path), whole)
    with pytest.raises(DataError, match=r"broken\.txt:251: the value in '1:nan'"):
        read_letor(broken)


def test_more_numbers_may_be_left_to_python_than_are_listed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "".join(f"1 qid:{row // 7} 1:{row}e-30\n" for row in range(1, 50)))
    monkeypatch.setattr("querywise.data.letor._HARD_NUMBERS", 1)
    found = read_letor(path).candidates
    assert found.features.ravel().tolist() == [float(f"{row}e-30") for row in range(1, 50)]
    assert found.starts.tolist() == [0, *range(6, 50, 7), 49]


FINE = "1 qid:1 1:0.5 3:0.1\n"


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        pytest.param("", None, "no judged document", id="an empty file"),
        pytest.param("# one\n\n  # two\n", None, "no judged document", id="only comments"),
        pytest.param(FINE + "1 1:0.5\n", 2, "not followed by a query id", id="no query id"),
        pytest.param(FINE + "1 qid: 1:0.5\n", 2, "not followed by a query id", id="an empty query id"),
        pytest.param(FINE + "1 qid:1 0:0.5\n", 2, "'0:0.5' does not begin with a column number from 1", id="column 0"),
        pytest.param(FINE + "1 qid:1 -2:0.5\n", 2, "'-2:0.5' does not begin with a column", id="a negative column"),
        pytest.param(FINE + "1 qid:1 two:0.5\n", 2, "'two:0.5' does not begin with a column", id="a column in words"),
        pytest.param(FINE + "1 qid:1 2:1 2:1\n", 2, "column 2 is given twice", id="a column given twice"),
        pytest.param(FINE + "1 qid:1 2:nan\n", 2, "'2:nan' is not a finite number", id="NaN"),
        pytest.param(FINE + "1 qid:1 2:-inf\n", 2, "'2:-inf' is not a finite number", id="infinity"),
        pytest.param(FINE + "\n1 qid:1 2:1e999\n", 3, "1e999' is not a finite number", id="a number too large"),
        pytest.param(FINE + "1 qid:1 2:high\n", 2, "'2:high' is not a finite number", id="a value in words"),
        pytest.param(FINE + "1 qid:1 3: 2:1\n", 2, "'3:' is not a finite number", id="a missing value"),
        pytest.param(FINE + "1.5 qid:1 1:1\n", 2, "label '1.5' is not a whole number", id="half a label"),
        pytest.param(FINE + "-1 qid:1 1:1\n", 2, "label '-1' is not a whole number", id="a negative label"),
        pytest.param(FINE + "abc qid:1 1:1\n", 2, "label 'abc' is not a whole number", id="a label in words"),
        pytest.param(gzip.compress(FINE.encode() * 99)[:-12], None, "compressed file is damaged", id="a cut gz"),
        pytest.param(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\xff" * 99, None, "compressed file is damaged", id="a bad gz"),
        pytest.param(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", None, "binary file", id="a binary file"),
        pytest.param(FINE.encode("utf-16"), None, "binary file", id="UTF-16"),
        pytest.param("1 qid:é 1:1\n".encode("latin1"), 1, "not UTF-8", id="a query id in Latin-1"),
        pytest.param(f"{FINE}1 qid:1 1:1 # é\n".encode("latin1"), 2, "not UTF-8", id="a comment in Latin-1"),
        pytest.param(FINE + "1 qid:1 99999999999:1\n", None, "column numbered 99999999999", id="an absurd column"),
    ],
)
def test_bad_input_is_named_with_its_place(tmp_path: Path, content: str | bytes, line: int | None, found: str) -> None:
    path = put(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_letor(path)
    assert str(caught.value).startswith(f"{path}: " if line is None else f"{path}:{line}: ")
    assert found in str(caught.value)


def test_both_places_of_a_scattered_query_are_named_within_and_across_files(tmp_path: Path) -> None:
    one, two = put(tmp_path, f"{FINE}0 qid:2 1:1\n\n{FINE}", "one.txt"), put(tmp_path, "0 qid:2 1:1\n", "two.txt")
    with pytest.raises(DataError, match=re.escape(f"{one}:4: query '1' already began at {one}:1.")):
        read_letor(one)
    three = put(tmp_path, f"# first\n{FINE}0 qid:2 1:1\n", "three.txt")
    with pytest.raises(DataError, match=re.escape(f"{two}:1: query '2' already began at {three}:3.")):
        read_letor([three, two])


def test_a_folder_and_a_missing_file_are_called_what_they_are(tmp_path: Path) -> None:
    for path, what in ((tmp_path, "this is a folder"), (tmp_path / "nowhere.txt", "there is no such file")):
        with pytest.raises(DataError, match=re.escape(f"{path}: {what}")):
            read_letor(path)


@pytest.mark.parametrize("name", ["new york", "", "a\tb", "line\nbreak"])
@pytest.mark.parametrize("kind", ["query", "document"])
def test_an_id_that_would_not_survive_is_refused_and_nothing_is_written(tmp_path: Path, kind: str, name: str) -> None:
    query_id, document_id = (name, "D7") if kind == "query" else ("7", name)
    with pytest.raises(DataError, match="cannot be written to a LETOR file") as caught:
        write_letor(tmp_path / "out.txt", from_arrays([[1.0]], [1], qid=[query_id], document_ids=[document_id]))
    assert repr(name) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_output_in_a_missing_folder_or_over_a_folder_is_refused(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "nowhere" / "out.txt", "nowhere does not exist"), (tmp_path, "this is a folder")):
        with pytest.raises(DataError, match=what):
            write_letor(path, from_arrays([[1.0]], [1], qid=[1]))


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_trouble_while_writing_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: BaseException
) -> None:
    def stopped(items: Iterable[int], label: str) -> Iterator[int]:
        yield next(iter(items))
        raise trouble

    old = put(tmp_path, "what was there before")
    monkeypatch.setattr("querywise.data.letor.track", stopped)
    with pytest.raises((KeyboardInterrupt, DataError)):
        write_letor(old, from_arrays([[1.0], [2.0]], [1, 0], qid=[1, 2]))
    assert old.read_text() == "what was there before"
    assert list(tmp_path.iterdir()) == [old]
