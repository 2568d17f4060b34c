"""Documents with fields: what each is found to be, its features, and the judged documents as candidates."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise import build_index, collection_of, read_judged
from querywise.data.collections import Document, read_collection, write_collection
from querywise.data.fields import Fields, FieldSpec, fields_text, find_fields, read_fields, year_of
from querywise.data.judged import Judged
from querywise.errors import DataError, ModelFileError
from querywise.retrieval.features import descriptions, feature_names, features_of
from querywise.retrieval.field import bm25_idf
from querywise.retrieval.field_texts import fields_of_index, with_fields
from querywise.retrieval.index import Index, load_index, save_index
from querywise.retrieval.indexed_vectors import without_vectors
from querywise.retrieval.scores import NAMES
from querywise.runtime.values import JsonObject
from tests.commands import output, refused
from tests.commands import run as call
from tests.worlds import examples

FILMS: list[dict[str, Any]] = [
    {
        "_id": "fish",
        "title": "Big Fish",
        "actors": ["Ewan McGregor", "Albert Finney"],
        "votes": 900,
        "released": "2003",
    },
    {"_id": "train", "title": "Trainspotting", "actors": ["Ewan McGregor"], "votes": 4, "released": "1996-02-23"},
    {"_id": "it", "title": "It", "actors": [], "votes": None, "released": None, "new": True},
    {"_id": "bare"},
]
FIELDS = Fields(
    (
        FieldSpec("title", "text", weight=2.0),
        FieldSpec("actors", "texts"),
        FieldSpec("votes", "number", log=True),
        FieldSpec("released", "date", reference=2004.0),
        FieldSpec("new", "boolean"),
    ),
    "title",
)
QUERIES = {"q1": "ewan mcgregor big fish", "q2": "it 1996"}
JUDGED = [("q1", "fish", 2), ("q1", "train", 1), ("q1", "bare", 0), ("q2", "it", 1), ("q2", "train", 0)]


def films() -> Judged:
    return read_judged(collection_of(FILMS, QUERIES, JUDGED, fields=FIELDS), candidates="judged")


def value(data: Judged, query: str, document: str, feature: str) -> float:
    known = data.candidates
    rows = known.rows(known.query_ids.index(query))
    assert known.document_ids is not None
    row = known.document_ids[rows].index(document)
    return float(known.features[rows][row, known.column_of(feature)])


def index_of(records: list[dict[str, Any]], fields: Fields) -> Index:
    made = collection_of(records, fields=fields)
    return with_fields(build_index(made.documents()), made.documents(), fields)


def write(folder: Path, records: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    queries = [{"_id": name, "text": text} for name, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in queries))
    (folder / "qrels.tsv").write_text("".join("\t".join(map(str, each)) + "\n" for each in JUDGED))
    return folder


def test_words_of_a_query_are_found_in_the_field_they_are_in() -> None:
    data = films()
    assert value(data, "q1", "fish", "title.share") == 1.0  # all of the title
    assert value(data, "q1", "fish", "title.coverage") == 0.5  # two of four words
    assert value(data, "q1", "fish", "actors.named") == 1.0
    assert value(data, "q1", "fish", "fields.named") == 1.0  # an actor and a title are the query
    assert value(data, "q1", "train", "fields.named") == 0.5
    assert value(data, "q1", "fish", "fields.all") == 1.0
    assert value(data, "q1", "train", "fields.all") == 0.0
    assert value(data, "q1", "bare", "fields.hit") == 0.0
    assert value(data, "q1", "fish", "fields.hit") == 2.0


def test_a_title_of_stop_words_alone_is_found_in_order() -> None:
    data = films()
    assert value(data, "q2", "it", "title.share") == 1.0
    assert value(data, "q2", "it", "title.phrase") == 0.5
    assert value(data, "q2", "it", "title.bm25") == 0.0


def test_dates_have_an_age_and_are_named_by_their_year() -> None:
    data = films()
    assert value(data, "q2", "train", "released.named") == 1.0
    assert value(data, "q1", "fish", "released.age") == 1.0
    assert value(data, "q2", "it", "released.missing") == 1.0


def test_numbers_are_given_as_they_are_and_beside_those_of_other_candidates() -> None:
    data = films()
    assert value(data, "q1", "fish", "votes") == 900.0
    assert value(data, "q1", "fish", "votes.log") == pytest.approx(math.log(901))
    assert value(data, "q1", "bare", "votes") == 452.0  # the median, where it is missing
    assert [value(data, "q1", each, "votes.rank") for each in ("fish", "bare", "train")] == [1.0, 0.5, 0.0]


def test_judged_documents_are_the_candidates() -> None:
    data = films()
    assert data.candidates.document_ids == ("fish", "train", "bare", "train", "it")
    assert data.labels.tolist() == [2, 1, 0, 0, 1]
    assert data.judged is not None
    assert data.judged.all()
    assert data.runs == ()


def test_candidates_of_another_kind_are_refused() -> None:
    with pytest.raises(DataError, match=r"candidates='all': expected found or judged"):
        read_judged(collection_of(FILMS, QUERIES, JUDGED), candidates="all")
    with pytest.raises(DataError, match="leave out top"):
        read_judged(collection_of(FILMS, QUERIES, JUDGED), candidates="judged", top=5)


def plain_bm25f(index: Index, fields: Fields, terms: list[str], document: int) -> float:
    """The formula, word by word."""
    known = fields_of_index(index)
    assert known is not None
    lengths, _, means = known.measured
    total = 0.0
    for term in terms:
        number = index.terms.find(term)
        if number < 0:
            continue
        often = 0.0
        for place, name in enumerate(fields.words):
            own = _counted(index, name, fields, document, number)
            norm = 1 - 0.75 + 0.75 * lengths[place, document] / means[place]
            often += next(each.weight for each in fields.specs if each.name == name) * own / norm
        holders = np.diff(index.fields["both"].starts)[number : number + 1]
        total += float(bm25_idf(len(index), holders)[0]) * often * 2.2 / (often + 1.2)
    return total


def _counted(index: Index, name: str, fields: Fields, document: int, number: int) -> int:
    known = fields_of_index(index)
    assert known is not None
    place = fields.words.index(name) * len(index) + document
    first, end = (known.item_ends[known.document_ends[each]] for each in (place, place + 1))
    return int(np.sum(known.tokens[first:end] == number))


def test_bm25f_is_its_formula() -> None:
    index = index_of(FILMS, FIELDS)
    found = features_of(index, "ewan mcgregor fish unheard", np.arange(4))
    column = feature_names(index).index("fields.bm25f")
    terms = index.tokeniser.terms("ewan mcgregor fish unheard")
    expected = [plain_bm25f(index, FIELDS, terms, document) for document in range(4)]
    assert found[:, column] == pytest.approx(expected)
    assert expected[0] > expected[1] > expected[2] == 0


def test_every_feature_of_a_field_has_a_sentence() -> None:
    names = feature_names(index_of(FILMS, FIELDS))
    assert set(names) == set(descriptions(names))


def test_an_index_keeps_its_fields(tmp_path: Path) -> None:
    index = index_of(FILMS, FIELDS)
    save_index(index, tmp_path / "index")
    again = load_index(tmp_path / "index")
    assert feature_names(again) == feature_names(index)
    documents = np.arange(4)
    assert np.array_equal(features_of(again, "big fish", documents), features_of(index, "big fish", documents))
    assert feature_names(without_vectors(again)) == feature_names(index)


def test_arrays_that_do_not_fit_are_refused() -> None:
    index = index_of(FILMS, FIELDS)
    for name in ("fields.tokens", "fields.items", "fields.documents", "fields.numbers"):
        broken = replace(index, extra=index.extra | {name: index.extra[name][:-1] + 1})
        with pytest.raises(ModelFileError, match="do not fit"):
            fields_of_index(broken)


def test_a_collection_without_fields_is_as_it_was(tmp_path: Path) -> None:
    old = [{"_id": "a", "title": "jaguar", "text": "a large cat", "columns": {"x": 1.0}, "metadata": {}}]
    old.append({"_id": "b", "text": "a large snake", "columns": {"x": 2.0}})
    made = read_collection(write(tmp_path / "old", old))
    assert made.fields is None
    save_index(build_index(made.documents()), tmp_path / "index")
    manifest = json.loads((tmp_path / "index" / "manifest.json").read_text())
    assert "notes" not in manifest
    # Of arrays of texts and whole numbers, as versions before fields wrote them.
    assert zlib.crc32(json.dumps(manifest["crc32"], sort_keys=True).encode()) == 3865630506


def test_the_features_of_title_and_text_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    words = ["jaguar", "cat", "snake", "large", "small", "the", "of", "forest", "river"]
    chance = np.random.default_rng(0)
    texts = [(" ".join(chance.choice(words, 3)), " ".join(chance.choice(words, 12))) for _ in range(40)]
    plain: list[JsonObject] = [
        {"_id": str(number), "title": title, "text": text} for number, (title, text) in enumerate(texts)
    ]
    fielded: list[JsonObject] = [{**each, "shelf": [1]} for each in plain]
    queries, judgments = {"q": "the large jaguar"}, [("q", str(number), number % 2) for number in range(40)]
    fields = Fields((FieldSpec("title", "text"), FieldSpec("text", "text"), FieldSpec("shelf", "ignored")), "title")
    old = read_judged(collection_of(plain, queries, judgments), candidates="judged")
    new = read_judged(collection_of(fielded, queries, judgments, fields=fields), candidates="judged")
    assert old.feature_count == len(NAMES) + 2
    assert new.feature_names is not None
    assert new.feature_names[: old.feature_count] == old.feature_names
    assert np.array_equal(new.candidates.features[:, : old.feature_count], old.candidates.features)


KINDS = {
    "text": st.text("abc ", min_size=1).filter(str.strip),
    "texts": st.lists(st.text("abc", min_size=1), min_size=1, max_size=3),
    "number": st.floats(-1e300, 1e300) | st.integers(-(10**9), 10**9),
    "date": st.dates().map(str),
    "boolean": st.booleans(),
}


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_whatever_the_fields_hold_features_are_finite(data: st.DataObject) -> None:
    names = data.draw(st.dictionaries(st.text("xyz.", min_size=1), st.sampled_from(sorted(KINDS)), max_size=4))
    records = [
        {"_id": str(place)}
        | {name: data.draw(st.none() | KINDS[kind]) for name, kind in names.items() if data.draw(st.booleans())}
        for place in range(data.draw(st.integers(1, 5)))
    ]
    found = find_fields([("here", {**each}) for each in records])
    for name, each in found.fields.items():
        assert each.kind in (names[name], "ignored", "keyword", "text", "date")
    index = index_of(records, found.suggested)
    made = features_of(index, data.draw(st.text("abc ")), np.arange(len(records)))
    assert made.shape == (len(records), len(feature_names(index)))
    assert np.isfinite(made).all()


@given(st.lists(st.tuples(st.text(min_size=1), st.sampled_from(["text", "keyword", "number", "date"])), max_size=5))
@settings(max_examples=examples(60), deadline=None)
def test_fields_toml_gives_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, named: Any) -> None:
    specs = tuple(FieldSpec(name, kind, log=kind == "number") for name, kind in dict(named).items())
    words = [each.name for each in specs if each.has_words]
    made = Fields(specs, words[0] if words else None, tuple(words[1:]))
    path = tmp_path_factory.mktemp("toml") / "fields.toml"
    path.write_text(fields_text(made, {each.name: "a\nnote"[:1] for each in specs}), encoding="utf-8", newline="")
    assert read_fields(path) == made


@pytest.mark.parametrize(
    ("given_value", "years"),
    [(2024, 2024.0), ("2024", 2024.0), ("2024-01-01T10:00:00Z", 2024.0), ("9999-12", 9999 + 334 / 365)],
)
def test_dates_as_years(given_value: Any, years: float) -> None:
    assert year_of(given_value) == pytest.approx(years)


@pytest.mark.parametrize("text", ["2024-13", "yesterday", "2024-02-30", 10**400, True, "10000-01-01"])
def test_what_is_no_date_is_refused_with_its_place(text: Any) -> None:
    with pytest.raises(
        DataError, match=r"row 1: field 'released' is .* its kind is date\. .*change the kind in fields\.toml"
    ):
        collection_of([{"_id": "a", "released": text}], fields=Fields((FieldSpec("released", "date"),)))


def test_a_number_that_is_not_finite_is_refused_with_its_line(tmp_path: Path) -> None:
    folder = write(tmp_path / "films", FILMS)
    with (folder / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "x", "votes": Infinity}\n')
    assert "corpus.jsonl:5: field 'votes' is inf, not a finite number." in refused(call(tmp_path, "fields", "films"))


def test_kinds_are_found() -> None:
    records: list[tuple[str, Any]] = [
        (
            "",
            {
                "_id": str(at),
                "genre": ["drama", "comedy"][at % 2],
                "year": 1950 + at,
                "price": 10.0 ** (at % 7),
                "no": [],
            },
        )
        for at in range(100)
    ]
    found = find_fields(records).suggested
    assert {each.name: each.kind for each in found.specs} == {
        "genre": "keyword", "year": "date", "price": "number", "no": "ignored"
    }  # fmt: skip
    assert [each.log for each in found.specs if each.name == "price"] == [True]


def test_the_command_writes_fields_that_every_command_reads(tmp_path: Path) -> None:
    folder = write(tmp_path / "films", FILMS)
    with (folder / "queries.jsonl").open("a") as file, (folder / "qrels.tsv").open("a") as judged:
        for place in range(5):
            file.write(json.dumps({"_id": f"more{place}", "text": "fish"}) + "\n")
            judged.write(f"more{place}\tfish\t1\n")
    said = output(call(tmp_path, "fields", "films"))
    assert "actors" in said
    assert "3 of 4 missing" in said
    path = folder / "fields.toml"
    path.write_text(path.read_text().replace('kind = "texts"', 'kind = "ignored"'))
    output(call(tmp_path, "features", "films", "--candidates", "judged", "--out", "letor"))
    names = (tmp_path / "letor" / "features.txt").read_text()
    assert "title.phrase" in names
    assert "actors" not in names
    assert "already exists" in refused(call(tmp_path, "fields", "films"))


def test_a_kind_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "films", FILMS)
    (folder / "fields.toml").write_text('[field.title]\nkind = "prose"\n')
    assert "field 'title' has the kind 'prose'; expected one of text, texts" in refused(
        call(tmp_path, "features", "films", "--out", "letor")
    )


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_tables_of_documents_are_read(tmp_path: Path, ending: str) -> None:
    folder = write(tmp_path / "films", FILMS)
    (folder / "corpus.jsonl").unlink()
    table = pd.DataFrame({"id": ["7", "8"], "title": ["007", "1984"], "votes": [3.5, None], "new": [True, False]})
    if ending == "parquet":
        table.to_parquet(folder / "corpus.parquet")
    else:
        table.to_csv(folder / f"corpus.{ending}", sep="\t" if ending == "tsv" else ",", index=False)
    made = read_collection(folder)
    first, second = made.documents()
    assert (first.id, first.title, second.title) == ("7", "007", "1984")
    assert first.values["votes"] == 3.5
    assert math.isnan(float(str(second.values["votes"])))
    assert made.fields is not None
    assert {each.name: each.kind for each in made.fields.specs} == {
        "title": "text",
        "votes": "number",
        "new": "boolean",
    }


def test_frames_and_dictionaries_are_the_same() -> None:
    rows: list[dict[str, Any]] = [{"id": "a", "title": "big fish", "votes": 3}, {"id": "b", "title": "it", "votes": 5}]
    judged = pd.DataFrame({"query": ["q", "q"], "document": ["a", "b"], "grade": [1, 0]})
    queries = pd.DataFrame({"id": ["q"], "text": ["fish"], "group": ["g"]})
    first = read_judged(collection_of(rows, {"q": "fish"}, judged), candidates="judged")
    second = read_judged(collection_of(pd.DataFrame(rows), queries, judged), candidates="judged")
    assert np.array_equal(first.candidates.features, second.candidates.features)
    assert second.candidates.queries is not None
    assert second.candidates.queries.groups == ("g",)


def test_a_collection_with_fields_is_written_and_read_again(tmp_path: Path) -> None:
    made = collection_of(FILMS, QUERIES, JUDGED, fields=FIELDS)
    write_collection(made, tmp_path / "films")
    again = read_collection(tmp_path / "films")
    assert again.fields == FIELDS
    assert [each.title for each in again.documents()] == ["Big Fish", "Trainspotting", "It", ""]
    assert list(map(str, again.documents())) == list(map(str, made.documents()))


def test_embedded_text_is_that_of_the_fields_named() -> None:
    fields = replace(FIELDS, vectors=("actors",))
    first: Document = next(iter(collection_of(FILMS, fields=fields).documents()))
    assert fields.embedded(first.values) == ("", "Ewan McGregor\nAlbert Finney")
