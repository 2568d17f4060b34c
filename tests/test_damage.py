"""Damaged files are refused, whichever bit is wrong; small files do not take a machine's memory."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import shutil
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data import compressed
from querywise.data.collections import Document
from querywise.data.compressed import first_words, lines_of, unpacked
from querywise.data.frames import from_arrays, read_groups
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import read_judgements
from querywise.data.letor import letor_width, read_letor
from querywise.data.parquet.shards import open_shards
from querywise.data.parquet.tables import read_parquet, read_parquet_vectors, read_scored, write_scored_part
from querywise.data.parquet.writing import convert, write_shards
from querywise.data.query_table import QueryTable
from querywise.data.readers import read_features
from querywise.data.runs import read_run
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, ModelFileError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.measures.score_files import read_scores
from querywise.rankers.ensemble.ensemble import SER, SSER
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.retrieval.index import build_index, load_index, save_index
from querywise.runtime import workers
from querywise.runtime.arrays import Floats
from querywise.runtime.files import checksum_of, sealed
from querywise.runtime.workers import ThisProcess, use_workers
from tests.commands import refused, run
from tests.worlds import examples, ragged

LINES = b"1 qid:1 1:0.5 2:0.25\n0 qid:1 1:0.1\n"
MORE = b"2 qid:2 1:0.5\n0 qid:2 2:0.75\n"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index and a set of shards in it."""
    folder = tmp_path_factory.mktemp("kept")
    documents = [
        Document(f"D{n}", f"title {n}", f"word{n % 7} of {n * 31} things", {"clicks": float(n)}) for n in range(40)
    ]
    save_index(build_index(documents), folder / "index")
    data = ragged()
    table = QueryTable(data.query_ids, tuple(f"text of {each}" for each in data.query_ids))
    write_shards([data.with_queries(table)], folder / "shards", rows=30)
    return folder


def flipped(path: Path, place: int, bit: int) -> bytes:
    """The content of a file, which then has one other bit."""
    content = path.read_bytes()
    place %= len(content)
    path.write_bytes(content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :])
    return content


@settings(deadline=None, max_examples=examples(300))
@given(number=st.integers(0, 1000), place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_an_index_with_one_wrong_bit_is_refused(kept: Path, number: int, place: int, bit: int) -> None:
    files = sorted((kept / "index").iterdir())
    path = files[number % len(files)]
    content = flipped(path, place, bit)
    try:
        with pytest.raises(ModelFileError, match=path.name.replace(".", r"\.")):
            load_index(kept / "index")
    finally:
        path.write_bytes(content)


@settings(deadline=None, max_examples=examples(200))
@given(name=st.sampled_from(["shards.json", "queries.jsonl"]), place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_side_files_of_shards_with_one_wrong_bit_are_refused(kept: Path, name: str, place: int, bit: int) -> None:
    path = kept / "shards" / name
    before = json.loads((kept / "shards" / "shards.json").read_text())
    content = flipped(path, place, bit)
    try:
        if name == "queries.jsonl" or not same_manifest(path, before):
            for whole in (True, False):
                with pytest.raises(DataError, match=name.replace(".", r"\.")):
                    read_shards(kept / "shards", whole)
    finally:
        path.write_bytes(content)


def read_shards(folder: Path, whole: bool) -> Judged:
    shards = open_shards(folder)
    return shards.whole() if whole else shards.files[1].load()


def same_manifest(path: Path, before: object) -> bool:
    """Whether a manifest says what it said, with another space in it."""
    try:
        return bool(json.loads(path.read_bytes()) == before)
    except ValueError:
        return False


def test_query_data_that_shards_were_written_with_must_be_there(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept / "shards", tmp_path / "shards")
    (tmp_path / "shards" / "queries.jsonl").unlink()
    for read in (open_shards(tmp_path / "shards").whole, open_shards(tmp_path / "shards").files[0].load):
        with pytest.raises(DataError, match=r"queries\.jsonl: the query data is missing; shards\.json lists it"):
            read()


def test_logs_and_scores_with_checksums_never_give_other_numbers(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=100)
    candidates = Candidates(np.zeros((100, 1)), np.array([0, 100]), ("a",))
    write_scored_part(tmp_path / "part-00000.parquet", candidates, numbers)
    table = pa.table({"qid": ["a"] * 100, "label": [0, 1] * 50, "x": numbers})
    pq.write_table(table, tmp_path / "log.parquet", write_page_checksum=True)

    def scores() -> Floats:
        return read_scored(tmp_path).scores

    def logged() -> Floats:
        return read_parquet(tmp_path / "log.parquet").candidates.features[:, 0]

    for path, read in ((tmp_path / "part-00000.parquet", scores), (tmp_path / "log.parquet", logged)):
        found = 0
        for place in range(4, path.stat().st_size - 200, 23):
            content = flipped(path, place, 3)
            try:
                assert np.array_equal(read(), numbers)
            except DataError as error:
                found += path.name in str(error)
            finally:
                path.write_bytes(content)
        assert found > 30
        assert np.array_equal(read(), numbers)


@pytest.mark.parametrize(("pack", "padding"), [(gzip.compress, b"\0"), (lzma.compress, b"\0\0\0\0")])
def test_all_streams_of_a_compressed_file_are_read(
    tmp_path: Path, pack: Callable[[bytes], bytes], padding: bytes
) -> None:
    path = tmp_path / "train.txt.packed"
    path.write_bytes(pack(LINES) + padding + pack(MORE) + 2 * padding)
    assert read_letor(path).labels.tolist() == [1, 0, 2, 0]
    whole = pack(LINES) + pack(MORE)
    first = len(pack(LINES))
    for place in (first, first + 2, len(whole) - 5, len(whole) - 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with pytest.raises(DataError, match=r"train.txt.packed: the compressed file is damaged"):
            read_letor(path)
    for damaged in (whole[:-3], whole[: first + 7], whole + b"garbage", pack(LINES) + b"\0\1", whole[: first // 2]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"train.txt.packed: the compressed file is damaged"):
            read_letor(path)


def test_an_xz_file_with_the_wrong_number_of_zeros_behind_it_is_damaged() -> None:
    with pytest.raises(DataError, match="number of zeros"):
        unpacked(Path("x.xz"), lzma.compress(LINES) + b"\0\0\0")


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.sampled_from([gzip.compress, lzma.compress]))
def test_what_is_packed_comes_back(parts: list[bytes], pack: Callable[[bytes], bytes]) -> None:
    assert unpacked(Path("x"), b"".join(map(pack, parts))) == b"".join(parts)


def test_pieces_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = np.random.default_rng(0).bytes(5_000) + bytes(20_000)
    for taken, piece in ((7, 100), (1, 30_000), (10_000, 1)):
        monkeypatch.setattr(compressed, "_TAKEN", taken)
        monkeypatch.setattr(compressed, "_PIECE", piece)
        for pack in (gzip.compress, lzma.compress):
            assert unpacked(Path("x"), pack(text)) == text


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(compressed, "_SMALL", 100_000)
    monkeypatch.setattr(compressed, "_RATIO", 100)
    monkeypatch.setattr(compressed, "_PIECE", 10_000)
    path = tmp_path / "train.txt.packed"
    path.write_bytes(pack(b"0 qid:1 1:0\n" * 200_000))
    with pytest.raises(DataError, match=r"train.txt.packed: its \d+ bytes unpack to more than .* GB"):
        read_letor(path)
    assert len(unpacked(path, pack(b"0 qid:1 1:0\n" * 8_000))) == 96_000


def peak_of(work: Callable[[], object]) -> int:
    """The bytes of memory that Python took at most while it worked."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@given(st.text(alphabet="a \t\n\r\x0b\x85\u2028", max_size=40))
def test_lines_are_those_that_hold_anything_with_their_numbers(text: str) -> None:
    expected = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    assert list(lines_of(text)) == expected


def test_empty_lines_are_passed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.gz"
    path.write_bytes(gzip.compress(b"\n" * 20_000_000 + b"q Q0 D 1 0.5 system\n"))
    begun = time.process_time()
    assert read_run(path).scores == {"q": {"D": 0.5}}
    assert time.process_time() - begun < 2, "a loop over them takes several seconds"


@pytest.mark.parametrize(
    ("read", "line"),
    [
        (lambda path: list(read_judgements(path)), b"q 0 D1 1"),
        (read_run, b"q Q0 D1 1 0.5 tag"),
        (read_groups, b"3"),
    ],
)
def test_a_packed_file_of_empty_lines_takes_no_more_than_its_text(
    tmp_path: Path, read: Callable[[Path], object], line: bytes
) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(b"\n" * 4_000_000 + line))
    assert peak_of(lambda: read(path)) < 15_000_000  # a list of lines would take 32 MB


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_the_first_line_is_found_without_unpacking_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(compressed, "_PIECE", 10_000)
    path = tmp_path / "file"
    path.write_bytes(pack(b"\xef\xbb\xbf\n \n" + b"\n" * 30_000 + b"q Q0 D\n" + b"\n" * 10_000_000))
    assert first_words(path) == ["q", "Q0", "D"]
    if pack is not bytes:
        assert peak_of(lambda: first_words(path)) < 9_000_000  # xz takes 8 MB for itself
    for text, words in ((b"a b", ["a", "b"]), (b"", []), (b" \n", []), (b"\xff\n", []), (b"a " * 600_000, [])):
        path.write_bytes(pack(text))
        assert first_words(path) == words


def test_a_column_number_far_beyond_the_text_is_refused_unless_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(LINES + b"1 qid:3 300000000:1\n")
    for read in (read_letor, letor_width, lambda path: read_letor([path, path])):
        with pytest.raises(DataError, match=r"train.txt: .* a column numbered 300000000 .* features=300000000"):
            read(tmp_path / "train.txt")
    (tmp_path / "other.txt").write_bytes(MORE)
    with pytest.raises(DataError, match="a column numbered 300000000"):
        convert([tmp_path / "other.txt", tmp_path / "train.txt"], tmp_path / "shards")
    said = refused(run(tmp_path, "fit", "train.txt", "--method", "ranksvm", "--out", "model"))
    assert "--features 300000000" in said
    (tmp_path / "sparse.txt").write_bytes(LINES + b"1 qid:3 200000:1\n")
    assert read_letor(tmp_path / "sparse.txt").feature_count == 200_000


def test_files_that_make_a_gigantic_table_only_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_bytes(b"".join(b"%d qid:%d 1:1\n" % (n % 2, n // 2) for n in range(4_000)))
    (tmp_path / "wide.txt").write_bytes(b"1 qid:x 2000000:1\n")
    with pytest.raises(DataError, match=r"long.txt and the files after it: 4001 rows with a column numbered 2000000"):
        read_letor([tmp_path / "long.txt", tmp_path / "wide.txt"])


def test_counts_of_a_manifest_are_compared_with_the_files_before_memory_is_taken(tmp_path: Path) -> None:
    data = ragged()
    write_shards([data], tmp_path / "s")
    path = tmp_path / "s" / "shards.json"
    said: dict[str, Any] = json.loads(path.read_text())
    del said["sha256"]
    said["version"] = 1  # as another program may write it
    said["rows"] = said["shards"][0]["rows"] = 10**12
    path.write_text(json.dumps(said))
    with pytest.raises(DataError, match=r"part-00000.parquet: \d+ rows; shards.json says 1000000000000"):
        open_shards(tmp_path / "s").whole()


def test_a_log_of_more_rows_than_memory_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"qid": ["a"] * 1000, "label": [1] * 1000, "x": [0.0] * 1000}), tmp_path / "log.parquet")
    monkeypatch.setattr(workers, "machine_memory", lambda: 100_000)
    with pytest.raises(DataError, match=r"log.parquet: reading 1000 rows of 3 columns takes .* Cut the log"):
        read_parquet(tmp_path / "log.parquet")
    shutil.copy(tmp_path / "log.parquet", tmp_path / "more.parquet")
    monkeypatch.setattr(workers, "machine_memory", lambda: 300_000)
    assert len(read_parquet(tmp_path / "log.parquet").labels) == 1000
    with pytest.raises(DataError, match=r"log.parquet and the files after it: reading 2000 rows of 3 columns takes"):
        read_parquet(tmp_path)


def test_a_small_log_of_many_rows_is_read_without_a_text_for_each(tmp_path: Path) -> None:
    queries, documents = 400, 1000
    ids = pa.DictionaryArray.from_arrays(np.repeat(np.arange(queries), documents), [f"q{n}" for n in range(queries)])
    found = pa.DictionaryArray.from_arrays(np.tile(np.arange(documents), queries), [f"D{n}" for n in range(documents)])
    note = pa.DictionaryArray.from_arrays(np.zeros(len(ids), np.int32), ["x" * 100_000])  # 40 GB
    columns = {"qid": ids, "label": np.zeros(len(ids), np.int64), "docid": found, "note": note, "x": np.zeros(len(ids))}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet", compression="zstd")
    assert (tmp_path / "log.parquet").stat().st_size < 200_000
    data = read_parquet(tmp_path / "log.parquet")
    assert (len(data), data.candidates.feature_names) == (queries, ("x",))
    names = data.candidates.document_ids
    assert names is not None
    assert names[:documents] == tuple(f"D{n}" for n in range(documents))
    assert len({id(each) for each in names}) == documents, "each id is one object"


LONG = ["x" * 200_000 + str(row) for row in range(40)]  # 8 MB, a few kB in a file
ROWS: dict[str, Any] = {
    "qid": [str(row // 10) for row in range(40)],
    "label": [row % 2 for row in range(40)],
    "x": [0.5] * 40,
}


def put_long(path: Path, columns: Mapping[str, Any]) -> Path:
    pq.write_table(pa.table(dict(columns)), path, compression="zstd", use_dictionary=False)
    return path


def test_long_ids_are_refused_by_the_footer_and_a_single_one_with_its_row(tmp_path: Path) -> None:
    path = put_long(tmp_path / "log.parquet", {**ROWS, "docid": LONG})
    with pytest.raises(
        DataError, match=r"log.parquet: column docid has 8 MB in 40 rows; expected ids of at most 10000"
    ):
        read_parquet(path)
    for name in ("docid", "qid"):
        one = [str(row) if row != 6 else "é" * 10_001 for row in range(40)]
        put_long(path, {**ROWS, name: one})
        with pytest.raises(DataError, match=rf"log.parquet: row 7 has 10001 characters in column {name}"):
            read_parquet(path)
        put_long(path, {**ROWS, name: [each[:10_000] for each in one]})
        assert len(read_parquet(path).labels) == 40


def varint(number: int) -> bytes:
    low = bytes(number >> shift & 127 | 128 for shift in (0, 7, 14))
    return low + bytes([number >> 21])


def test_the_heads_of_pages_count_where_the_footer_says_less(tmp_path: Path) -> None:
    path = put_long(tmp_path / "log.parquet", {**ROWS, "docid": LONG})
    whole = pq.read_metadata(path).row_group(0)
    places = {whole.column(place).path_in_schema: whole.column(place) for place in range(whole.num_columns)}
    content = path.read_bytes()
    for size in (places["docid"].total_uncompressed_size, whole.total_byte_size):
        content = content.replace(varint(2 * size), varint(2 * 1_100_000))
    path.write_bytes(content)
    assert pq.read_metadata(path).row_group(0).column(3).total_uncompressed_size == 1_100_000
    with pytest.raises(DataError, match=r"log.parquet: column docid has 8 MB in 40 rows; expected ids of at most"):
        read_parquet(path)


def test_a_log_without_rows_is_told_as_such_and_not_as_damaged(tmp_path: Path) -> None:
    pq.write_table(pa.table(dict(ROWS)).slice(0, 0), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"log.parquet: The table has no rows"):
        read_parquet(tmp_path / "log.parquet")


def test_pages_that_are_not_where_the_footer_says_are_refused(tmp_path: Path) -> None:
    path = put_long(tmp_path / "log.parquet", ROWS)
    content = path.read_bytes()
    first = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    for damage in (bytes(20), b"\xff" * 20, b"\x15\x00\x15\x01\x15\x01\x00" + bytes(13)):
        path.write_bytes(content[:first] + damage + content[first + 20 :])
        with pytest.raises(DataError, match=r"log.parquet: this Parquet file is damaged \(the pages of column qid"):
            read_parquet(path)


def test_names_that_would_widen_a_small_file_to_gigabytes_are_refused_unless_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(b"".join(b"%d qid:%d 1:1\n" % (row % 2, row // 2) for row in range(400)))
    (tmp_path / "features.txt").write_text("".join(f"{name}\n" for name in range(40_000)))
    with pytest.raises(DataError, match=r"features.txt: 40000 names for 1 features .* say so: features=40000"):
        read_features(path)
    assert read_features(path, features=40_000).feature_count == 40_000
    (tmp_path / "features.txt").write_text("a\nb\na\n")
    with pytest.raises(DataError, match=r"features.txt: the name 'a' appears twice"):
        read_features(path)


@pytest.mark.parametrize("name", ["qid", "docid", "query_group"])
@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", tz="Nowhere/Here")])
def test_ids_that_python_cannot_hold_are_refused(tmp_path: Path, name: str, kind: pa.DataType) -> None:
    columns = {**ROWS, name: pa.array([2**31 - 1] * 40, kind)}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"log.parquet: A column of ids holds \w+.*, with values that Python cannot"):
        read_parquet(tmp_path / "log.parquet")


def test_texts_count_as_often_as_they_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put_long(tmp_path / "log.parquet", {**ROWS, "docid": [each[-9_000:] for each in LONG]})
    monkeypatch.setattr(workers, "machine_memory", lambda: 1_500_000)  # more than three copies of 360 kB
    with pytest.raises(DataError, match=r"log.parquet: reading 40 rows of 4 columns takes"):
        read_parquet(path)


def test_columns_of_a_log_that_are_not_used_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put_long(tmp_path / "log.parquet", {**ROWS, "note": LONG, "day": pa.array([1] * 40, pa.date32())})
    monkeypatch.setattr(workers, "machine_memory", lambda: 1_000_000)
    tracemalloc.start()
    pool = pa.default_memory_pool().max_memory()
    assert read_parquet(path).candidates.feature_names == ("x",)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 8_000_000
    assert pa.default_memory_pool().max_memory() < max(pool + 1, 8_000_000)
    with pytest.raises(DataError, match=r"no column 'grade'. It has: qid, label, x, note, day"):
        read_parquet(path, label="grade")


def reseal(folder: Path) -> None:
    """Write the checksums of the files of a set of shards into its manifest."""
    said = json.loads((folder / "shards.json").read_text())
    del said["sha256"]
    for each in said["shards"]:
        each["sha256"] = checksum_of(folder / each["file"])
    said["judgements_sha256"] = said["judgements_sha256"] and checksum_of(folder / "judgements.parquet")
    (folder / "shards.json").write_text(json.dumps(sealed(said)))


def test_long_texts_of_shards_and_their_judgements_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = from_arrays([[0.5]] * 40, ROWS["label"], qid=ROWS["qid"], document_ids=[f"D{row}" for row in range(40)])
    grades = [{f"D{row}": row % 2 for row in range(first, first + 10)} for first in range(0, 40, 10)]
    data = data.with_judgements(dict(zip(data.query_ids, grades, strict=True)))
    write_shards([data], tmp_path / "s")
    part, judged = tmp_path / "s" / "part-00000.parquet", tmp_path / "s" / "judgements.parquet"
    table, known = pq.read_table(part), pq.read_table(judged)
    put_long(part, {**{name: table[name] for name in table.column_names}, "comment": LONG})
    reseal(tmp_path / "s")
    assert open_shards(tmp_path / "s").whole().candidates.comments == tuple(LONG)
    with monkeypatch.context() as patched:
        patched.setattr(workers, "machine_memory", lambda: 30_000_000)
        with pytest.raises(DataError, match=r"part-00000.parquet: reading 40 rows of 6 columns takes"):
            open_shards(tmp_path / "s").whole()
    put_long(part, {**{name: table[name] for name in table.column_names}, "docid": LONG})
    reseal(tmp_path / "s")
    with pytest.raises(DataError, match=r"part-00000.parquet: column docid has 8 MB in 40 rows"):
        open_shards(tmp_path / "s").files[0].load()
    put_long(part, {name: table[name] for name in table.column_names})
    put_long(judged, {**{name: known[name] for name in known.column_names}, "document": LONG})
    reseal(tmp_path / "s")
    with pytest.raises(DataError, match=r"judgements.parquet: column document has 8 MB in 40 rows"):
        open_shards(tmp_path / "s").whole()


def test_equal_texts_of_a_shard_are_one_object(tmp_path: Path) -> None:
    data = from_arrays([[0.5]] * 40, ROWS["label"], qid=ROWS["qid"])
    data = replace(data, candidates=replace(data.candidates, comments=("a long comment",) * 40))
    write_shards([data], tmp_path / "s")
    part = tmp_path / "s" / "part-00000.parquet"
    pq.write_table(pq.read_table(part), part)  # with a dictionary
    reseal(tmp_path / "s")
    comments = open_shards(tmp_path / "s").whole().candidates.comments or ()
    assert (comments, len({id(each) for each in comments})) == (data.candidates.comments, 1)


def test_vectors_and_their_ids_in_parquet_are_measured_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(40_000, np.float32)), 1_000)  # 160 kB, one value
    pq.write_table(pa.table({"_id": [str(row) for row in range(40)], "vector": zeros}), tmp_path / "v.parquet")
    assert read_parquet_vectors(tmp_path / "v.parquet")[1].shape == (40, 1_000)
    with monkeypatch.context() as patched:
        patched.setattr(workers, "machine_memory", lambda: 300_000)
        with pytest.raises(DataError, match=r"v.parquet: reading 40 rows of 2 columns takes .* \.npy"):
            read_parquet_vectors(tmp_path / "v.parquet")
    put_long(tmp_path / "v.parquet", {"_id": LONG, "vector": zeros})
    with pytest.raises(DataError, match="column _id has 8 MB in 40 rows"):
        read_parquet_vectors(tmp_path / "v.parquet")


def not_utf8(rows: int) -> Any:
    """A column of texts that are no UTF-8, as Parquet files can have; Arrow's own functions make none."""
    ends = 2 * np.arange(rows + 1, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(b"\xe4a" * rows)])


@pytest.mark.parametrize("name", ["qid", "docid", "query_group", "label"])
def test_texts_of_a_log_that_are_not_utf8_are_refused(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({**ROWS, name: not_utf8(40)}), tmp_path / "log.parquet")
    fit = ("fit", "log.parquet", "--method", "ranksvm", "--out", "model")
    assert "log.parquet: this Parquet file is damaged (" in refused(run(tmp_path, *fit))


def test_a_column_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({**ROWS, "feature": [0.5] * 40}), path)
    path.write_bytes(path.read_bytes().replace(b"feature", b"fe\xe4ture"))
    fit = ("fit", "log.parquet", "--method", "ranksvm", "--out", "model")
    assert "log.parquet: this is not a Parquet file, or it is damaged (" in refused(run(tmp_path, *fit))


def test_a_column_whose_name_is_not_utf8_in_its_row_groups_alone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({**ROWS, "feature": [0.5] * 40}), path)
    whole = path.read_bytes()
    places = [each.start() for each in re.finditer(b"feature", whole)]
    for place in places:
        path.write_bytes(whole[: place + 2] + b"\xe4" + whole[place + 3 :])
        with pytest.raises(
            DataError, match=r"log.parquet: this (is not a Parquet file, or it|Parquet file) is damaged"
        ):
            read_parquet(path)
    assert len(places) > 1


def test_vectors_scores_shards_and_judgements_whose_texts_are_not_utf8_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"_id": not_utf8(2), "vector": [[1.0], [2.0]]}), tmp_path / "v.parquet")
    with pytest.raises(DataError, match=r"v.parquet: this Parquet file is damaged"):
        read_parquet_vectors(tmp_path / "v.parquet")
    (tmp_path / "scores").mkdir()
    pq.write_table(pa.table({"qid": not_utf8(2), "score": [1.0, 2.0]}), tmp_path / "scores" / "part-00000.parquet")
    with pytest.raises(DataError, match=r"part-00000.parquet: this is not a part of scores"):
        read_scored(tmp_path / "scores")
    data = from_arrays([[0.5]] * 40, ROWS["label"], qid=ROWS["qid"], document_ids=[f"d{row}" for row in range(40)])
    grades = {query: {f"d{row}": row % 2 for row in range(40) if ROWS["qid"][row] == query} for query in data.query_ids}
    write_shards([data.with_judgements(grades)], tmp_path / "shards")
    for file, column, message in (
        ("judgements.parquet", "document", "the judgments cannot be read"),
        ("part-00000.parquet", "docid", "the shard cannot be read"),
    ):
        path = tmp_path / "shards" / file
        whole, table = path.read_bytes(), pq.read_table(path)
        place = table.column_names.index(column)
        pq.write_table(table.set_column(place, column, not_utf8(table.num_rows)), path)
        reseal(tmp_path / "shards")
        with pytest.raises(DataError, match=rf"{file}: {message} \("):
            open_shards(tmp_path / "shards").whole()
        path.write_bytes(whole)


@pytest.mark.parametrize("column", ["query", "document", "grade"])
def test_judgements_with_a_column_twice_are_refused(tmp_path: Path, column: str) -> None:
    data = from_arrays([[0.5]] * 40, ROWS["label"], qid=ROWS["qid"], document_ids=[f"d{row}" for row in range(40)])
    grades = {query: {f"d{row}": row % 2 for row in range(40) if ROWS["qid"][row] == query} for query in data.query_ids}
    write_shards([data.with_judgements(grades)], tmp_path / "s")
    path = tmp_path / "s" / "judgements.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column(column, table.column(column)), path)
    reseal(tmp_path / "s")
    with pytest.raises(DataError, match=r"judgements.parquet: (there are two columns|the judgments cannot be read)"):
        open_shards(tmp_path / "s").whole()


def test_more_scores_than_documents_are_refused_by_the_footer(tmp_path: Path) -> None:
    many = {"qid": pa.DictionaryArray.from_arrays(np.zeros(3_000_000, np.int32), ["q"]), "score": np.zeros(3_000_000)}
    pq.write_table(pa.table(many), tmp_path / "part-00000.parquet", compression="zstd")
    tracemalloc.start()
    with pytest.raises(DataError, match="3000000 scores for 2 documents; one each is needed"):
        read_scores(tmp_path, Candidates(np.zeros((2, 1)), np.array([0, 2]), ("q",)))
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 3_000_000, "no row was read"


def test_ids_of_a_log_that_come_twice_in_its_dictionary_are_one_id(tmp_path: Path) -> None:
    ids = pa.DictionaryArray.from_arrays([2, 0, 1, 2], ["a", "a", "b", "unused"])
    pq.write_table(pa.table({"qid": ids, "label": [0, 1, 2, 3], "x": [0.0, 1.0, 2.0, 3.0]}), tmp_path / "log.parquet")
    data = read_parquet(tmp_path / "log.parquet")
    assert (data.query_ids, data.labels.tolist()) == (("b", "a"), [0, 3, 1, 2])
    missing = pa.DictionaryArray.from_arrays([0, None, 1], ["a", "b"])
    pq.write_table(pa.table({"qid": missing, "label": [0, 1, 2], "x": [0.0, 1.0, 2.0]}), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"log.parquet: Row 2 has no query id"):
        read_parquet(tmp_path / "log.parquet")


WIDE = make_judged(6, 4, 300, kinds=2, seed=0)


@pytest.mark.parametrize("build", [lambda: KnnOnline(RankSVM(), k=2), lambda: KnnOffline2(RankSVM(), k=2)])
def test_curvature_that_does_not_fit_is_refused_before_training(
    build: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert np.isfinite(build().fit(WIDE).predict(WIDE.candidates)).all()
    monkeypatch.setattr(workers, "machine_memory", lambda: 4_500_000)
    with pytest.raises(DataError, match=r"300 features keeps its curvature of all queries and of 6 alone, .*Leave out"):
        build().fit(make_judged(6, 4, 300, seed=1))
    assert len(RankSVM().fit(WIDE).weights_) == 300  # one table fits
    monkeypatch.setattr(workers, "machine_memory", lambda: 2_000_000)
    with pytest.raises(DataError, match=r"A ranking SVM of 300 features .* 0.0 GB of this machine's memory"):
        RankSVM().fit(WIDE)
    with pytest.raises(DataError, match="SER with 300 features solves for all weights at once"):
        SER().fit(WIDE)


def test_a_budget_counts_as_the_memory_there_is() -> None:
    with use_workers(ThisProcess(1_000_000)), pytest.raises(DataError, match="GB are allowed"):
        RankSVM().fit(WIDE)


WIDEST = "of 10000 features keeps its curvature of all queries and of 200 alone"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: KnnOnline(RankSVM(), k=0.2), WIDEST),
        (
            lambda: KnnOffline2(RankSVM(), k=0.2),
            WIDEST,
        ),
        (SSER, "too long with 10000 of them; the maximum is 3000"),
    ],
)
def test_ten_thousand_features_are_refused_at_once_where_they_are_too_many(
    build: Callable[[], Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "machine_memory", lambda: 16 * 10**9)
    with pytest.raises(DataError, match=message):
        build().fit(make_judged(200, 2, 10_000))


def test_the_curvature_of_many_blocks_does_not_depend_on_how_many_are_held_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from querywise.learners.ranksvm import preferences

    data = make_judged(600, 40, 3, seed=2)
    weights = RankSVM().fit(data).weights_
    monkeypatch.setattr(preferences, "_TABLE_BYTES", 0)
    assert np.array_equal(RankSVM().fit(make_judged(600, 40, 3, seed=2)).weights_, weights)


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = workers.machine_memory()
    (tmp_path / "limit").write_text("1000000\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(workers, "_LIMITS", (str(tmp_path / "none"), str(tmp_path / "absent")))
    assert workers.machine_memory() >= whole
    monkeypatch.setattr(workers, "_LIMITS", (str(tmp_path / "none"), str(tmp_path / "limit")))
    assert workers.machine_memory() == 1_000_000
