from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from querywise.data.collections import (
    Collection,
    Document,
    read_collection,
    read_documents,
    read_topics,
    write_collection,
)
from querywise.data.judgements import Judgement, read_judgements
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import build_index
from tests.worlds import examples

CORPUS = (
    '{"_id": "D1", "title": "jaguar", "text": "a large cat", "metadata": {"url": "x"}}\n'
    "\n"
    '{"_id": 2, "text": "a snake", "title": null}\n'
    '{"_id": "D3", "title": "le thé"}\n'
)
QUERIES = '{"_id": "q1", "text": "cat"}\n{"_id": "q2", "text": "snake"}\n'
QRELS = "query-id\tcorpus-id\tscore\nq1\tD1\t2\nq1\t2\t0\nq2\t2\t1\n"


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path / "animals" / "corpus.jsonl", CORPUS)
    return tmp_path / "animals"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder that every generated example overwrites."""
    return tmp_path_factory.mktemp("collections")


def judged(collection: Collection) -> list[tuple[str, str, int]]:
    return [(each.query, each.document, each.grade) for each in collection.judgements]


def asked(collection: Collection) -> dict[str, str | None]:
    assert collection.queries is not None
    assert collection.queries.texts is not None
    return dict(zip(collection.queries.ids, collection.queries.texts, strict=True))


def refused(act: Callable[[], object], start: str, *words: str) -> None:
    with pytest.raises(DataError) as caught:
        act()
    assert str(caught.value).startswith(start)
    for each in words:
        assert each in str(caught.value)


# The layout


def test_a_folder_in_the_beir_layout_is_read(folder: Path) -> None:
    put(folder / "queries.jsonl", QUERIES)
    put(folder / "qrels" / "test.tsv", QRELS)
    found = read_collection(str(folder))
    assert found.name == "animals"
    assert list(found.documents()) == [
        Document("D1", "jaguar", "a large cat"),
        Document("2", "", "a snake"),
        Document("D3", "le thé", ""),
    ]
    assert asked(found) == {"q1": "cat", "q2": "snake"}
    assert judged(found) == [("q1", "D1", 2), ("q1", "2", 0), ("q2", "2", 1)]
    assert found.judgements[1].where == f"{folder / 'qrels' / 'test.tsv'}:3"
    assert found.grades() == {"q1": {"D1": 2, "2": 0}, "q2": {"2": 1}}


def test_documents_can_be_read_as_often_as_needed(folder: Path) -> None:
    found = read_collection(folder)
    assert list(found.documents()) == list(found.documents())


def test_a_corpus_alone_is_a_collection(folder: Path) -> None:
    for place in (folder, folder / "corpus.jsonl"):
        found = read_collection(place)
        assert (found.queries, found.judgements) == (None, ())
        assert len(list(found.documents())) == 3


def test_the_collection_of_the_current_folder_has_a_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert read_collection(".").name == "animals"


def test_queries_and_judgements_may_be_elsewhere(folder: Path, tmp_path: Path) -> None:
    put(folder / "queries.jsonl", '{"_id": "other", "text": "x"}')
    queries, qrels = put(tmp_path / "my.jsonl", QUERIES), put(tmp_path / "my.qrels", QRELS)
    found = read_collection(folder, queries=queries, judgements=str(qrels))
    assert asked(found) == {"q1": "cat", "q2": "snake"}
    assert len(found.judgements) == 3


def test_a_byte_order_mark_and_windows_line_ends_make_no_difference(folder: Path, tmp_path: Path) -> None:
    put(folder / "queries.jsonl", QUERIES)
    put(folder / "qrels.tsv", QRELS)
    windows = tmp_path / "windows"
    for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv"):
        put(windows / name, b"\xef\xbb\xbf" + (folder / name).read_bytes().replace(b"\n", b"\r\n"))
    plain, packed = read_collection(folder), read_collection(windows)
    assert list(packed.documents()) == list(plain.documents())
    assert asked(packed) == asked(plain)
    assert judged(packed) == judged(plain)


def test_columns_are_read_in_any_order(folder: Path) -> None:
    put(
        folder / "corpus.jsonl",
        '{"_id": "a", "columns": {"clicks": 3, "age": -0.5}}\n{"_id": "b", "columns": {"age": 1e3, "clicks": 0}}',
    )
    assert [document.columns for document in read_collection(folder).documents()] == [
        {"clicks": 3.0, "age": -0.5},
        {"clicks": 0.0, "age": 1000.0},
    ]


# TREC


def test_trec_judgements_have_four_columns_and_spam_keeps_its_grade(folder: Path) -> None:
    put(folder / "qrels.txt", "301 0 D1 2\n301\t0\t2\t-2\n\n  302 Q0 D3 +1 \n")
    assert judged(read_collection(folder)) == [("301", "D1", 2), ("301", "2", -2), ("302", "D3", 1)]


TOPICS = """\
<top>
<num> Number: 301
<title> International Organized
 Crime
<desc> Description:
Identify organizations.
</top>

<top>
<num>302</num>
<title>Topic: poliomyelitis</title>
<narr> Narrative: none
</top>
<top>
<num> MB-9
<title> le prix du thé
</top>
"""


def test_trec_topics_give_the_number_and_the_title(folder: Path) -> None:
    put(folder / "topics.txt", TOPICS)
    assert asked(read_collection(folder)) == {
        "301": "International Organized Crime",
        "302": "poliomyelitis",
        "MB-9": "le prix du thé",
    }


def test_topics_with_windows_line_ends_are_the_same(tmp_path: Path) -> None:
    plain = read_topics(put(tmp_path / "a.txt", TOPICS))
    packed = read_topics(put(tmp_path / "b.txt", TOPICS.replace("\n", "\r\n")))
    assert (packed.ids, packed.texts) == (plain.ids, plain.texts)


def test_tab_separated_topics_are_an_id_and_a_text(folder: Path) -> None:
    put(folder / "queries.tsv", "q1\tlarge cat\r\n\n q 2 \t snake\twith a tab \nq3\t\n")
    assert asked(read_collection(folder)) == {"q1": "large cat", "q 2": "snake\twith a tab", "q3": ""}


@pytest.mark.parametrize("topic", ["<num>1<title>a{}b<desc>", "<num>{}1<title>b", "<num>{}<num>2<title>b"])
def test_topics_of_a_megabyte_of_spaces_are_read_in_linear_time(tmp_path: Path, topic: str) -> None:
    path = put(tmp_path / "topics.txt", f"<top>{topic.format(' ' * 1_000_000)}</top>")
    within_a_minute(path, 1)


def test_many_topics_are_read_in_linear_time(tmp_path: Path) -> None:
    path = put(tmp_path / "topics.txt", "\n".join(f"<top><num>{number}<title>a</top>" for number in range(300_000)))
    within_a_minute(path, 300_000)


def within_a_minute(path: Path, count: int) -> None:
    """Topics are read by a process that has a minute; in quadratic time they take many."""
    program = "import pathlib, sys; from querywise.data.collections import read_topics as read; "
    program += "print(len(read(pathlib.Path(sys.argv[1]))))"
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{count}\n"


def test_every_topic_is_named_by_its_line(tmp_path: Path) -> None:
    path = put(tmp_path / "topics.txt", "\n\n" + "<top>\n<num> 1\n<title> x\n</top>\n" * 3)
    refused(lambda: read_topics(path), f"{path}:7: ", "query '1' appears a second time")


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("<top>\n<title> x\n</top>\n", 1, "needs a <num> and a <title>"),
        ("<top><num>1</num><title>x</title></top>\n\n<top>\n<num> 2\n</top>\n", 3, "needs a <num> and a <title>"),
        ("<top>\n<num>\n<title> x\n</top>\n", 1, "needs a <num> and a <title>"),
        ("<top>\n<num> Number:\n<title> x\n</top>\n", 1, "needs a <num> and a <title>"),
        ("<top><num>1<title>x</top>\n<top><num>1<title>y</top>", 2, "query '1' appears a second time"),
        ("q1\tcat\nq2 snake\n", 2, "expected an id, a tab and the query's text; found 'q2 snake'"),
        ("q1\tcat\n\n\tsnake\n", 3, "expected an id"),
        ("q1\tcat\nq2\tx\nq1\tcat\n", 3, "query 'q1' appears a second time"),
    ],
)
def test_a_malformed_topic_is_named_by_file_and_line(tmp_path: Path, content: str, line: int, words: str) -> None:
    path = put(tmp_path / "topics.txt", content)
    refused(lambda: read_topics(path), f"{path}:{line}: ", words)


@pytest.mark.parametrize("name", ["topics.txt", "queries.jsonl"])
def test_a_file_without_a_query_is_refused(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, "\n \n")
    refused(lambda: read_topics(path), f"{path}: the file holds no query")


# What is malformed


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "this is not JSON"),
        ("jaguar", "this is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('["D9"]', 'expected an object with an "_id"'),
        ('"D9"', 'expected an object with an "_id"'),
        ('{"id": "D9", "text": "x"}', 'expected an object with an "_id"'),
        ('{"_id": null}', 'expected an object with an "_id"'),
        ('{"_id": 1.5}', 'expected an object with an "_id"'),
        ('{"_id": "a\\tb"}', "unprintable characters"),
        ('{"_id": "D9", "text": 7}', '"text" must be text; found 7'),
        ('{"_id": "D9", "text": ["a"]}', "\"text\" must be text; found ['a']"),
        ('{"_id": "D9", "title": false}', '"title" must be text; found False'),
        ('{"_id": "D1"}', "document 'D1' is already on line 1"),
        ('{"_id": 2}', "document '2' is already on line 3"),
        ('{"_id": "D9", "columns": {"clicks": 1}}', "the columns are ['clicks']; the first document has []"),
        ('{"_id": "D9", "columns": [1]}', '"columns" must map names to numbers'),
        ('{"_id": "D9", "columns": []}', '"columns" must map names to numbers'),
        ('{"_id": "D9", "columns": ""}', '"columns" must map names to numbers'),
        ('{"_id": "D9", "columns": {"clicks": NaN}}', "column 'clicks' is nan, not a finite number"),
        ('{"_id": "D9", "columns": {"clicks": -Infinity}}', "column 'clicks' is -inf, not a finite number"),
        ('{"_id": "D9", "columns": {"clicks": 1e999}}', "column 'clicks' is inf, not a finite number"),
        ('{"_id": "D9", "columns": {"clicks": "many"}}', "column 'clicks' is 'many', not a finite number"),
        ('{"_id": "D9", "columns": {"clicks": true}}', "column 'clicks' is True, not a finite number"),
        ('{"_id": "D9", "columns": {"clicks": null}}', "column 'clicks' is None, not a finite number"),
        ('{"_id": "D9", "columns": {"clicks": 1' + "0" * 400 + "}}", "not a finite number"),
        ('{"_id": "D9", "columns": {"clicks": 1' + "0" * 5000 + "}}", "a number that cannot be read"),
        (b'{"_id": "D9", "text": "\xe9"}', "byte 23 of the line is not UTF-8"),
    ],
)
def test_a_malformed_document_is_named_by_file_and_line(folder: Path, line: str | bytes, words: str) -> None:
    raw = line.encode() if isinstance(line, str) else line
    path = put(folder / "corpus.jsonl", CORPUS.encode() + raw + b"\n")
    collection = read_collection(folder)
    refused(lambda: list(collection.documents()), f"{path}:5: ", words)
    refused(lambda: build_index(collection.documents()), f"{path}:5: ", words)


def test_columns_that_differ_between_documents_are_named(folder: Path) -> None:
    lines = ['{"_id": "a", "columns": {"age": 1, "clicks": 3}}', '{"_id": "b", "columns": {"age": 1}}', '{"_id": "c"}']
    path = put(folder / "corpus.jsonl", "\n".join(lines))
    refused(
        lambda: list(read_documents(path)),
        f"{path}:2: ",
        "the columns are ['age']",
        "the first document has ['age', 'clicks']",
    )
    put(path, "\n".join([lines[0], lines[2]]))
    refused(lambda: list(read_documents(path)), f"{path}:2: ", "the columns are []")


@pytest.mark.parametrize(
    "line",
    [
        "q1\tD1\tgood",
        "q1\tD1\t1.5",
        "q1\tD1\t",
        "q1\tD1",
        "q1 0 D1",
        "q1 0 D1 one",
        "q1 0 D1 1 extra",
        "q1",
        "q1\tD1\t" + "9" * 30,
    ],
)
def test_a_malformed_judgement_is_named_by_file_and_line(folder: Path, line: str) -> None:
    path = put(folder / "qrels.tsv", QRELS + line + "\n")
    refused(lambda: read_collection(folder), f"{path}:5: ", "the grade a whole number", f"found {line[:80]!r}")


def test_only_the_first_line_can_be_a_heading(tmp_path: Path) -> None:
    path = put(tmp_path / "qrels.tsv", "q1\tD1\t1\nquery-id\tcorpus-id\tscore\n")
    refused(lambda: list(read_judgements(path)), f"{path}:2: ")


def test_a_repeated_judgement_counts_once_and_a_contradiction_names_both_lines(tmp_path: Path) -> None:
    path = put(tmp_path / "qrels.tsv", "q1\tD1\t1\nq2\tD1\t0\nq1\tD1\t1\n")
    assert [(each.query, each.grade) for each in read_judgements(str(path))] == [("q1", 1), ("q2", 0)]
    path = put(tmp_path / "qrels.tsv", "q1\tD1\t1\nq2\tD1\t0\nq1\tD1\t2\n")
    refused(
        lambda: list(read_judgements(path)), f"{path}:3: ", "document 'D1' of query 'q1' has grade 2", f"1 at {path}:1"
    )


def test_two_negative_grades_contradict_each_other(tmp_path: Path) -> None:
    path = put(tmp_path / "qrels", "q 0 D1 -1\nq 0 D1 -1\nq 0 D1 -2\n")
    refused(lambda: list(read_judgements(path)), f"{path}:3: ", "grade -2 here and -1")


def test_a_judgement_of_an_unknown_query_is_named(folder: Path) -> None:
    queries = put(folder / "queries.jsonl", QUERIES)
    path = put(folder / "qrels.tsv", QRELS + "q9\tD1\t1\n")
    refused(lambda: read_collection(folder), f"{path}:5: query 'q9' is judged here but is not in {queries}")


def test_a_judged_document_that_is_not_in_the_corpus_is_named_or_skipped(folder: Path) -> None:
    put(folder / "queries.jsonl", QUERIES)
    path = put(folder / "qrels.tsv", QRELS + "q2\tD9\t1\n")
    collection = read_collection(folder)
    index = build_index(collection.documents())
    refused(lambda: judged_candidates(collection, index), f"{path}:5: ", "'D9'", "'q2'", "skip_unknown=True")
    _, coverage = judged_candidates(collection, index, skip_unknown=True)
    assert (coverage.queries, coverage.relevant) == (2, 2)


def test_a_missing_corpus_is_said_with_what_was_expected(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        refused(lambda place=place: read_collection(place), f"{place}: there is no corpus.jsonl", '"_id"')  # type: ignore[misc]


@pytest.mark.parametrize("content", ["", "\n", " \r\n\n"])
def test_an_empty_corpus_cannot_be_indexed(folder: Path, content: str) -> None:
    put(folder / "corpus.jsonl", content)
    with pytest.raises(DataError, match="the collection is empty"):
        build_index(read_collection(folder).documents())


@pytest.mark.parametrize("name", ["queries", "judgements"])
def test_queries_or_judgements_that_cannot_be_read_are_called_what_they_are(folder: Path, name: str) -> None:
    latin = put(folder / "latin.txt", "é".encode("latin1"))
    cases = ((folder, "this is a folder"), (folder / "no.txt", "there is no such file"), (latin, "byte 0 is not UTF-8"))
    for path, what in cases:
        with pytest.raises(DataError, match=re.escape(f"{path}: {what}")):
            read_collection(folder, **{name: path})


def test_a_corpus_that_vanishes_is_a_data_error(folder: Path) -> None:
    collection = read_collection(folder)
    (folder / "corpus.jsonl").unlink()
    refused(lambda: list(collection.documents()), f"{folder / 'corpus.jsonl'}: cannot be read")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=4,
)
RECORDS = st.fixed_dictionaries({}, optional=dict.fromkeys(("_id", "title", "text", "columns"), JSON))


@settings(deadline=None)
@given(lines=st.lists(st.one_of(RECORDS, JSON).map(json.dumps) | st.text(), max_size=4))
def test_any_corpus_is_read_or_refused_by_name(scratch: Path, lines: list[str]) -> None:
    path = put(scratch / "any.jsonl", "\n".join(lines))
    try:
        documents = list(read_documents(path))
    except DataError as error:
        assert re.match(re.escape(str(path)) + r":\d+: ", str(error))  # noqa: PT017 - either outcome is right
    else:
        assert all(isinstance(each.text, str) and isinstance(each.title, str) for each in documents)


PIECES = st.sampled_from(
    ["<top>", "<num>", "</num>", "<title>", "Number:", "q1", "D1", "0", "1", "-1", "\t", " ", "\n", "\r\n", "é"]
)


@settings(deadline=None)
@given(
    text=st.lists(PIECES, max_size=20).map("".join) | st.text(), reads=st.sampled_from([read_topics, read_judgements])
)
def test_any_topics_and_judgements_are_read_or_refused_by_name(
    scratch: Path, text: str, reads: Callable[[Path], Iterable[Judgement] | QueryTable]
) -> None:
    path = put(scratch / "any.txt", text)
    try:
        found = reads(path)
        read = found if isinstance(found, QueryTable) else list(found)
    except DataError as error:
        assert str(error).startswith(f"{path}:")  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(read, list) or not any("<" in each for each in read.ids) or "<top>" not in text


# There and back

IDS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=5)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def collections(draw: st.DrawFn) -> Collection:
    columns = draw(st.lists(st.text(max_size=4), max_size=2, unique=True))
    documents = [
        Document(each, draw(st.text()), draw(st.text()), {name: draw(FINITE) for name in columns})
        for each in draw(st.lists(IDS, min_size=1, max_size=4, unique=True))
    ]
    ids = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    table = QueryTable(tuple(ids), texts=tuple(draw(st.text()) for _ in ids))
    pairs = draw(st.lists(st.tuples(st.sampled_from(ids), st.sampled_from(documents)), max_size=4, unique_by=_pair))
    judgements = tuple(Judgement(query, document.id, draw(st.integers(0, 9)), "here") for query, document in pairs)
    return Collection("any", lambda: documents, table, judgements)


def _pair(pair: tuple[str, Document]) -> tuple[str, str]:
    return pair[0], pair[1].id


@settings(deadline=None, max_examples=examples(60))
@given(collection=collections())
@example(collection=Collection("lines", lambda: [Document("a", "x\r\ny\u2028", '\x00\x1c\x85\ufeff\u2029😀\t\\"')]))
def test_what_is_written_is_read_back(scratch: Path, collection: Collection) -> None:
    folder = scratch / "any"
    for each in folder.glob("*"):
        each.unlink()
    write_collection(collection, folder)
    again = read_collection(folder)
    assert list(again.documents()) == list(collection.documents())
    assert judged(again) == judged(collection)
    if collection.queries is not None:
        assert asked(again) == asked(collection)


def test_a_collection_is_written_over_itself(folder: Path) -> None:
    before = list(read_collection(folder).documents())
    write_collection(read_collection(folder), folder)
    assert list(read_collection(folder).documents()) == before
    assert [each.name for each in folder.iterdir()] == ["corpus.jsonl"]


def test_query_columns_are_written_too(tmp_path: Path) -> None:
    table = QueryTable(("q",), texts=("cat",), classes=("animal",), columns=np.array([[1.5]]), column_names=("words",))
    write_collection(Collection("x", lambda: [Document("a", "", "cat")], table), tmp_path / "new" / "folder")
    again = read_collection(tmp_path / "new" / "folder").queries
    assert again is not None
    assert again.columns is not None
    assert (again.classes, again.column_names, again.columns.tolist()) == (("animal",), ("words",), [[1.5]])


def test_half_a_character_that_json_lets_through_can_be_written_again(folder: Path, tmp_path: Path) -> None:
    put(folder / "corpus.jsonl", '{"_id": "a", "text": "half \\ud83d"}')
    put(folder / "queries.jsonl", '{"_id": "q", "text": "half \\ud83d"}')
    before = read_collection(folder)
    write_collection(before, tmp_path / "again")
    again = read_collection(tmp_path / "again")
    assert (list(again.documents()), asked(again)) == (list(before.documents()), asked(before))


def test_a_failed_write_leaves_the_old_corpus(folder: Path) -> None:
    def broken() -> Iterable[Document]:
        yield Document("new", "", "")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_collection(Collection("x", broken), folder)
    assert (folder / "corpus.jsonl").read_text(encoding="utf-8") == CORPUS
    assert [each.name for each in folder.iterdir()] == ["corpus.jsonl"]
