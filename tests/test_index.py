from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from querywise.data.collections import Document
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, ModelFileError, QuerywiseError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.retrieval.features import features_of
from querywise.retrieval.index import FIELDS, Index, Strings, build_index, load_index, save_index
from querywise.retrieval.words import Tokeniser
from querywise.runtime import files
from querywise.runtime.arrays import Floats
from querywise.runtime.files import crc32_of, sealed
from querywise.storage import save
from tests.worlds import examples

PLAIN = Tokeniser(None, stop_words=False)
ANIMALS = [
    Document("D1", "jaguar", "a large cat, the largest of America", {"clicks": 3.0, "age": 0.1}),
    Document("é 2", "", "a large snake", {"age": -7.5, "clicks": 0.0}),
    Document("D3", "le thé 中文", "", {"clicks": 1e-9, "age": 0.0}),
    Document("D4", "", "", {"clicks": 2.0, "age": 1e300}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_index(build_index(ANIMALS), tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder that every generated example writes to."""
    return tmp_path_factory.mktemp("indexes")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def features(index: Index, query: str = "the large cat 中文 nowhere") -> bytes:
    return features_of(index, query, np.arange(len(index))).tobytes()


# What is counted

WORDS = st.lists(st.sampled_from(["fig", "plum", "kiwi", "été", "猫"]), max_size=6)
TEXTS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6)


def indexed(texts: list[tuple[list[str], list[str]]]) -> Index:
    pairs = enumerate(texts)
    return build_index([Document(f"D{i}", " ".join(title), ", ".join(body)) for i, (title, body) in pairs], PLAIN)


@settings(deadline=None)
@given(texts=TEXTS)
def test_postings_are_what_a_plain_count_gives(texts: list[tuple[list[str], list[str]]]) -> None:
    index = indexed(texts)
    words = sorted({word for title, body in texts for word in title + body})
    assert list(index.terms) == words
    fields = {"title": [t for t, _ in texts], "body": [b for _, b in texts], "both": [t + b for t, b in texts]}
    assert tuple(index.fields) == FIELDS
    for name, documents in fields.items():
        field = index.fields[name]
        counted = [Counter(each) for each in documents]
        assert field.lengths.tolist() == list(map(len, documents))
        assert field.distinct.tolist() == list(map(len, counted))
        assert field.size == sum(map(len, documents))
        assert field.mean_length == pytest.approx(field.size / len(texts))
        for number, word in enumerate(words):
            where = field.postings(number)
            holders = [place for place, each in enumerate(counted) if word in each]
            assert field.documents[where].tolist() == holders
            assert field.counts[where].tolist() == [counted[place][word] for place in holders]
            assert field.totals[number] == sum(each[word] for each in counted)


@settings(deadline=None, max_examples=examples(50))
@given(texts=TEXTS, data=st.data())
def test_counts_of_some_terms_in_some_documents(texts: list[tuple[list[str], list[str]]], data: st.DataObject) -> None:
    index = indexed(texts)
    terms = data.draw(st.lists(st.integers(-1, len(index.terms) - 1), max_size=4))
    places = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=8))
    found = index.fields["body"].counts_of(terms, np.array(places, dtype=np.int64))
    assert found.shape == (len(places), len(terms))
    expected = [[texts[place][1].count(index.terms[term]) if term >= 0 else 0 for term in terms] for place in places]
    assert found.tolist() == expected


def test_the_terms_of_a_query_are_numbered_in_its_order_each_once() -> None:
    index = indexed([(["fig"], ["plum", "kiwi"])])
    assert list(index.terms) == ["fig", "kiwi", "plum"]
    assert index.numbers_of("plum nowhere fig plum lost") == [2, -1, 0, -1]
    assert index.numbers_of("") == []


def test_documents_are_found_by_their_id_and_keep_their_words() -> None:
    index = build_index(ANIMALS)
    assert len(index) == 4
    assert list(index.document_ids) == ["D1", "é 2", "D3", "D4"]
    assert [index.place_of(each) for each in ("D1", "é 2", "D4", "d1", "")] == [0, 1, 3, None, None]
    assert list(index.titles) == ["jaguar", "", "le thé 中文", ""]
    assert list(index.snippets) == ["a large cat, the largest of America", "a large snake", "", ""]


def test_a_snippet_is_short_and_on_one_line() -> None:
    index = build_index([Document("D1", "", "one\n\n  two\tthree " + "word " * 1000)])
    assert index.snippets[0].startswith("one two three word word")
    assert len(index.snippets[0]) <= 200


def test_columns_are_kept_in_the_order_of_the_first_document() -> None:
    index = build_index(ANIMALS)
    assert index.column_names == ("clicks", "age")
    assert index.columns.tolist() == [[3.0, 0.1], [0.0, -7.5], [1e-9, 0.0], [2.0, 1e300]]
    assert build_index([Document("D1", "", "x")]).columns.shape == (1, 0)


@pytest.mark.parametrize(
    "columns",
    [({"clicks": 1.0}, {"age": 1.0}), ({}, {"age": 1.0}), ({"age": 1.0}, {}), ({"age": 1.0}, {"age": 1.0, "x": 1.0})],
)
def test_documents_with_different_columns_are_refused(columns: tuple[dict[str, float], dict[str, float]]) -> None:
    documents = [Document(f"D{place}", "", "cat", each) for place, each in enumerate(columns)]
    with pytest.raises(DataError, match="D1"):
        build_index(documents)


def test_two_documents_with_one_id_are_refused() -> None:
    with pytest.raises(DataError, match="D1"):
        build_index([Document("D1", "", "cat"), Document("D2", "", "cat"), Document("D1", "", "dog")])


def test_no_document_is_an_empty_collection() -> None:
    with pytest.raises(DataError, match="the collection is empty"):
        build_index([])


def test_documents_are_read_once_one_at_a_time() -> None:
    def documents() -> Iterator[Document]:
        yield from ANIMALS

    assert features(build_index(documents())) == features(build_index(ANIMALS))


def test_a_document_of_ten_megabytes_is_indexed(tmp_path: Path) -> None:
    words = "electroencephalographically unintentionally pneumonoultramicroscopic "
    text = words * (10_000_000 // len(words) + 1)
    assert len(text) > 10_000_000
    index = build_index([Document("long", "short", text), Document("other", "", "unintentionally")], PLAIN)
    save_index(index, tmp_path / "index")
    field = load_index(tmp_path / "index").fields["body"]
    assert field.lengths.tolist() == [text.count(" "), 1]
    assert field.totals.tolist() == [text.count(" ") // 3, text.count(" ") // 3, 0, text.count(" ") // 3 + 1]


# Files


def test_the_same_documents_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    save_index(build_index(iter(list(ANIMALS)), Tokeniser()), str(tmp_path / "again"))
    assert contents(tmp_path / "again") == contents(folder)
    save_index(load_index(folder), tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(folder)


@settings(deadline=None, max_examples=examples(30))
@given(texts=TEXTS, query=st.lists(st.sampled_from(["fig", "plum", "été", "猫", "nowhere"])).map(" ".join))
def test_a_loaded_index_gives_the_same_features_to_the_last_bit(
    scratch: Path, texts: list[tuple[list[str], list[str]]], query: str
) -> None:
    index = indexed(texts)
    save_index(index, scratch / "any")
    again = load_index(scratch / "any")
    assert features(again, query) == features(index, query)
    assert list(again.terms) == list(index.terms)
    assert list(again.document_ids) == list(index.document_ids)


def test_a_loaded_index_knows_all_the_first_one_did(folder: Path) -> None:
    first, again = build_index(ANIMALS), load_index(str(folder))
    assert features(again) == features(first)
    assert again.column_names == first.column_names
    for name in ("terms", "document_ids", "titles", "snippets"):
        assert list(getattr(again, name)) == list(getattr(first, name))


@pytest.mark.parametrize("tokeniser", [Tokeniser("german"), PLAIN, Tokeniser(None), Tokeniser("english")])
def test_a_loaded_index_reads_queries_as_the_documents_were_read(tmp_path: Path, tokeniser: Tokeniser) -> None:
    save_index(build_index([Document("D1", "the Häuser", "models")], tokeniser), tmp_path / "index")
    again = load_index(tmp_path / "index").tokeniser
    assert (again.language, again.stop_words) == (tokeniser.language, tokeniser.stop_words)
    assert again.terms("the Häuser models") == tokeniser.terms("the Häuser models")


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param([Document("D1", "", "")], id="no word at all"),
        pytest.param([Document("D1", "the", "of"), Document("D2", "", "")], id="only stop words"),
        pytest.param([Document("D1", "", "cat"), Document("D2", "", "")], id="no title anywhere"),
        pytest.param([Document("D1", "cat", ""), Document("D2", "", "")], id="no body anywhere"),
        pytest.param([Document("", "\ud83d", "half a character \ud83d")], id="half a character"),
    ],
)
def test_documents_with_empty_fields_are_indexed_and_come_back(tmp_path: Path, documents: list[Document]) -> None:
    index = build_index(documents)
    save_index(index, tmp_path / "index")
    again = load_index(tmp_path / "index")
    assert features(again) == features(index)
    assert np.isfinite(np.frombuffer(features(again))).all()
    assert list(again.titles) == [each.title for each in documents]


def test_an_index_replaces_another_and_leaves_nothing_behind(folder: Path) -> None:
    save_index(build_index([Document("new", "", "cat")]), folder)
    assert list(load_index(folder).document_ids) == ["new"]
    assert list(folder.parent.iterdir()) == [folder]


def test_an_index_is_saved_over_the_one_it_was_loaded_from(folder: Path) -> None:
    before, index = contents(folder), load_index(folder)
    save_index(index, folder)
    assert contents(folder) == before
    assert features(index) == features(load_index(folder))


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    save_index(build_index(ANIMALS), tmp_path / "empty")
    assert len(load_index(tmp_path / "empty")) == 4


def test_an_index_of_another_version_is_replaced_as_its_message_advises(folder: Path) -> None:
    edit(folder, format_version=0)
    refused(folder, "Rebuild the index")
    save_index(build_index(ANIMALS), folder)
    assert len(load_index(folder)) == 4


def test_what_is_not_an_index_is_never_replaced(tmp_path: Path) -> None:
    index = build_index(ANIMALS)
    thesis, model, file = tmp_path / "thesis", tmp_path / "model", tmp_path / "file"
    thesis.mkdir()
    (thesis / "chapter1.tex").write_text("years of work")
    save(RankSVM(1.0).fit(make_judged(20, 8, 3)), model)
    file.write_text("something")
    kept = [contents(thesis), contents(model), file.read_text()]
    for path in (thesis, model, file):
        with pytest.raises(QuerywiseError, match=path.name):
            save_index(index, path)
    assert [contents(thesis), contents(model), file.read_text()] == kept
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "model", "thesis"]


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist; create it first"):
        save_index(build_index(ANIMALS), tmp_path / "no" / "index")
    with pytest.raises(DataError, match="n" * 250):
        save_index(build_index(ANIMALS), tmp_path / ("n" * 250))
    assert list(tmp_path.iterdir()) == []


# What fails


class Interrupted:
    """An array that the user's patience ends in."""

    def __array__(self, dtype: object = None, copy: object = None) -> Floats:
        raise KeyboardInterrupt


def test_an_interrupted_save_leaves_the_old_index(folder: Path) -> None:
    before = contents(folder)
    half = replace(build_index([Document("new", "", "cat")]), columns=cast(Floats, Interrupted()))
    with pytest.raises(KeyboardInterrupt):
        save_index(half, folder)
    assert contents(folder) == before
    assert list(folder.parent.iterdir()) == [folder]


def test_an_interrupted_first_save_leaves_nothing(tmp_path: Path) -> None:
    half = replace(build_index(ANIMALS), columns=cast(Floats, Interrupted()))
    with pytest.raises(KeyboardInterrupt):
        save_index(half, tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_one_step", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "Input/output error")])
def test_an_index_that_cannot_take_its_place_leaves_the_old_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, in_one_step: bool
) -> None:
    before, rename = contents(folder), os.rename

    def fails_for_the_new_one(source: Path, target: Path) -> bool:
        if source.suffix == ".part":
            raise error
        rename(source, target)
        return True

    if not in_one_step:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    monkeypatch.setattr(*((files, "exchange") if in_one_step else (os, "rename")), fails_for_the_new_one)
    with pytest.raises((KeyboardInterrupt, DataError)):
        save_index(build_index([Document("new", "", "cat")]), folder)
    monkeypatch.undo()
    assert folder.is_dir()
    assert contents(folder) == before
    assert list(folder.parent.iterdir()) == [folder]


def test_a_full_disk_leaves_the_old_index_and_says_why(folder: Path) -> None:
    resource = pytest.importorskip("resource")
    before = contents(folder)
    large = build_index([Document("new", "", " ".join(map(str, range(20_000))))])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(DataError, match="cannot be written") as caught:
            save_index(large, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert contents(folder) == before
    assert list(folder.parent.iterdir()) == [folder]
    assert "None" not in str(caught.value)


def refused(folder: Path, words: str = "") -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ModelFileError, match=words):
            load_index(folder)


def edit(folder: Path, **changes: object) -> None:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    changed = {name: each for name, each in (manifest | changes).items() if name != "sha256"}
    (folder / "manifest.json").write_text(json.dumps(sealed(changed)))


def test_what_is_not_an_index_cannot_be_loaded(folder: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "not an index")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "not an index")
    refused(folder / "manifest.json", "not an index")
    save(RankSVM(1.0).fit(make_judged(20, 8, 3)), tmp_path / "model")
    refused(tmp_path / "model", "not the manifest of a querywise index")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b'{"format": 1}'])
def test_a_damaged_manifest_is_refused(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    refused(folder, "not the manifest of a querywise index")


@pytest.mark.parametrize("size", [10, 100, -3])
def test_a_truncated_manifest_is_refused(folder: Path, size: int) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:size])
    refused(folder, "not the manifest of a querywise index")


def test_a_newer_format_is_refused_with_both_versions(folder: Path) -> None:
    edit(folder, format_version=99)
    refused(folder, "format version 99; this querywise reads 2")


@pytest.mark.parametrize("name", ["format_version", "language", "stop_words", "columns", "bytes"])
def test_a_manifest_that_lacks_something_is_refused(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest[name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    refused(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("language", "klingon"),
        ("language", 5),
        ("bytes", []),
        ("bytes", None),
        ("bytes", {}),
        ("columns", 5),
        ("columns", [1, 2]),
        ("columns", ["clicks"]),
        ("columns", ["clicks", "age", "more"]),
        ("documents", 5),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(folder: Path, name: str, value: object) -> None:
    edit(folder, **{name: value})
    refused(folder)


def test_every_missing_truncated_or_longer_file_is_refused_by_name(folder: Path) -> None:
    files = sorted(folder.glob("*.npy"))
    assert len(files) == 27
    for path in files:
        content = path.read_bytes()
        for damaged in (content[:-1], content[:50], b"", content + b"\0"):
            path.write_bytes(damaged)
            if damaged != content:
                refused(folder, path.name)
        path.unlink()
        refused(folder, path.name)
        path.mkdir()
        refused(folder, path.name)
        path.rmdir()
        path.write_bytes(content)
    assert len(load_index(folder)) == 4


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"PK\x05\x06", b"\x80\x04", b"\x93NUMPY\x09\x00", b"text"])
def test_a_foreign_file_of_the_right_size_is_refused_by_name(folder: Path, start: bytes) -> None:
    path = folder / "both.counts.npy"
    path.write_bytes(start.ljust(path.stat().st_size, b"\0"))
    refused(folder, path.name)


@settings(deadline=None, max_examples=examples(80))
@given(place=st.integers(0, 127), byte=st.integers(0, 255))
@example(place=8, byte=10)
@example(place=21, byte=ord(","))
@example(place=26, byte=ord("B"))
def test_a_changed_header_is_refused_or_harmless(scratch: Path, place: int, byte: int) -> None:
    folder = scratch / "changed"
    if not folder.exists():
        save_index(build_index(ANIMALS), folder)
    path = folder / "both.counts.npy"
    content = path.read_bytes()
    path.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load_index(folder)
    except ModelFileError as error:
        assert path.name in str(error)  # noqa: PT017 - either outcome is right
    finally:
        path.write_bytes(content)


# What somebody made up, and signed again

CHANGED: dict[str, Callable[[Any], Any]] = {
    "of texts": lambda array: np.full(array.shape, "x"),
    "of records": lambda array: np.zeros(array.shape, [("a", "<i4"), ("b", "<f8")]),
    "of complex numbers": lambda array: array.astype(np.complex128),
    "in another order of bytes": lambda array: array.astype(">f8"),
    "with one more dimension": lambda array: array[None],
    "without a dimension": lambda array: np.ones((), array.dtype),
    "shorter": lambda array: array[:-1],
    "longer": lambda array: np.concatenate([array, array[:1]]),
    "empty": lambda array: array[:0],
}


def sign(folder: Path) -> None:
    """Write the checksums of a folder anew, as whoever made it up would."""
    files = {name: folder / f"{name}.npy" for name in json.loads((folder / "manifest.json").read_text())["bytes"]}
    sizes = {name: path.stat().st_size for name, path in files.items()}
    edit(folder, bytes=sizes, crc32={name: crc32_of(path) for name, path in files.items()})


@pytest.mark.parametrize("change", CHANGED)
def test_an_array_of_another_type_or_shape_is_refused(folder: Path, change: str) -> None:
    for path in sorted(folder.glob("*.npy")):
        content = path.read_bytes()
        array = np.load(path)
        np.save(path, CHANGED[change](array))
        if path.read_bytes() != content:
            sign(folder)
            refused(folder, "Rebuild the index")
        path.write_bytes(content)
    sign(folder)
    assert len(load_index(folder)) == 4


@pytest.mark.parametrize("value", [-1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("name", ["terms.starts", "titles.starts", "body.starts", "body.documents", "title.documents"])
def test_numbers_that_lead_out_of_their_array_are_refused(folder: Path, name: str, value: int) -> None:
    array = np.load(folder / f"{name}.npy")
    array[len(array) // 2] = value
    np.save(folder / f"{name}.npy", array)
    sign(folder)
    refused(folder, "Rebuild the index")


@pytest.mark.parametrize(
    ("name", "value"), [("both.counts", -1), ("both.lengths", -5), ("both.totals", -1), ("columns", np.nan)]
)
def test_values_that_no_count_and_no_column_has_are_refused(folder: Path, name: str, value: float) -> None:
    array = np.load(folder / f"{name}.npy")
    array.flat[1] = value
    np.save(folder / f"{name}.npy", array)
    sign(folder)
    refused(folder, "Rebuild the index")


def test_a_text_that_is_not_utf8_is_refused_when_it_is_read(folder: Path) -> None:
    np.save(folder / "titles.content.npy", np.full_like(np.load(folder / "titles.content.npy"), 255))
    sign(folder)
    with pytest.raises(ModelFileError, match=r"Text 0 of the index is not UTF-8\. Rebuild the index"):
        _ = load_index(folder).titles[0]


def test_a_pipe_or_a_file_elsewhere_is_refused_and_never_waited_for(folder: Path, tmp_path: Path) -> None:
    path = folder / "columns.npy"
    path.rename(tmp_path / "columns.npy")
    path.symlink_to(tmp_path / "columns.npy")
    refused(folder, "outside of the folder")
    path.unlink()
    os.mkfifo(path)
    edit(folder, bytes=json.loads((folder / "manifest.json").read_text())["bytes"] | {"columns": 0})
    refused(folder, "not a regular file")


# Strings

ANY_STRINGS = st.lists(st.text(st.characters(), max_size=5), max_size=8)


@settings(deadline=None)
@given(texts=ANY_STRINGS, data=st.data())
def test_strings_are_a_list_of_strings(texts: list[str], data: st.DataObject) -> None:
    strings = Strings.of(iter(texts))
    assert len(strings) == len(texts)
    assert list(strings) == texts
    assert list(reversed(strings)) == texts[::-1]
    assert [strings[place] for place in range(len(texts))] == texts
    cut = data.draw(st.slices(len(texts)))
    assert strings[cut] == texts[cut]
    wanted = data.draw(st.sampled_from([*texts, "nowhere"]))
    assert (wanted in strings, strings.count(wanted)) == (wanted in texts, texts.count(wanted))
    with pytest.raises(IndexError):
        strings[len(texts)]
    with pytest.raises(IndexError):
        strings[-len(texts) - 1]


@settings(deadline=None)
@given(texts=ANY_STRINGS)
def test_strings_count_from_the_end_as_lists_do(texts: list[str]) -> None:
    strings = Strings.of(texts)
    assert [strings[-place] for place in range(1, len(texts) + 1)] == texts[::-1]


@settings(deadline=None)
@given(texts=st.sets(st.text(st.characters(), max_size=4)).map(sorted), other=st.text(st.characters(), max_size=4))
def test_find_is_the_place_among_sorted_strings(texts: list[str], other: str) -> None:
    strings = Strings.of(texts)
    assert [strings.find(text) for text in texts] == [texts.index(text) for text in texts]
    assert strings.find(other) == (texts.index(other) if other in texts else -1)


@pytest.mark.parametrize("own", ["notes.txt", "vectors.npy", ".git", "manifest.json.bak"])
def test_an_index_with_files_of_the_users_beside_it_is_not_replaced(tmp_path: Path, own: str) -> None:
    index = build_index([Document("D1", "", "cat")])
    save_index(index, tmp_path / "index")
    save_index(index, tmp_path / "index")
    (tmp_path / "index" / own).write_text("mine")
    with pytest.raises(DataError, match=rf"index: '{own}' is beside the index here, which is replaced as a whole"):
        save_index(index, tmp_path / "index")
    assert (tmp_path / "index" / own).read_text() == "mine"
