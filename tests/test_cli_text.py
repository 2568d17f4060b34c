"""The command line on text, run as a user runs it."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.collections import Document
from querywise.data.letor import read_letor, write_letor
from querywise.data.query_table import read_queries
from querywise.data.synthetic import make_judged
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.rankers.knn import KnnOnline
from querywise.retrieval.index import build_index, save_index
from querywise.retrieval.scores import NAMES
from querywise.storage import load, read_manifest, save
from tests.commands import contents, output, refused
from tests.commands import run as call
from tests.support.vectors import lines_of
from tests.worlds import inside, part_of_the_library

FRUIT = ("apple", "pear", "plum", "fig", "kiwi", "date", "lime", "lemon", "melon", "grape", "cherry", "mango")
COLUMNS = (*NAMES, "length.title", "length.body", "stock")


def run(folder: Path, *words: object) -> str:
    return output(call(folder, *words))


def collection(folder: Path, **files: str) -> Path:
    """A small collection; files by their first name replace those of it."""
    folder.mkdir(parents=True)
    documents = [
        {
            "_id": f"{kind}-{fruit}",
            "title": fruit if kind == "shop" else f"{fruit} trees",
            "text": f"sold: {fruit} juice" if kind == "shop" else f"raised in a wide field: {fruit} for juice",
            "columns": {"stock": place},
        }
        for place, fruit in enumerate(FRUIT)
        for kind in ("shop", "farm")
    ]
    queries = [
        {"_id": f"{word}-{fruit}", "text": f"{word} {fruit} juice", "class": word}
        for fruit in FRUIT
        for word in ("buy", "grow")
    ]
    wanted = {"buy": "shop", "grow": "farm"}
    grades = [f"{word}-{fruit}\t{wanted[word]}-{fruit}\t1" for fruit in FRUIT for word in ("buy", "grow")]
    content = {
        "corpus": lines_of(*documents),
        "queries": lines_of(*queries, {"_id": "stop", "text": "what is the", "class": "buy"}, {"_id": "unjudged"}),
        "qrels": "query-id\tcorpus-id\tscore\n" + "\n".join([*grades, "stop\tshop-apple\t1"]) + "\n",
        **files,
    }
    for name, ending in (("corpus", "jsonl"), ("queries", "jsonl"), ("qrels", "tsv")):
        if content[name]:
            (folder / f"{name}.{ending}").write_text(content[name], encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection `docs`, its feature files `letor`, its index `index`, and a `model` trained on the feature files."""
    folder = tmp_path_factory.mktemp("text")
    collection(folder / "docs")
    run(folder, "features", "docs", "--out", "letor", "--quiet")
    run(folder, "index", "docs", "--out", "index", "--quiet")
    parts = [f"letor/S{number}.txt" for number in (1, 2, 3)]
    words = ["--valid", "letor/S4.txt", "--method", "knn-online", "--view", "text", "--set", "l2=0.1", "--k", "0.3"]
    run(folder, "fit", *parts, *words, "--out", "model", "--quiet")
    return folder


# From text to feature files


@pytest.mark.slow
def test_features_writes_five_parts_and_what_belongs_to_them(place: Path, tmp_path: Path) -> None:
    text = run(place, "features", "docs", "--out", tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        *(f"S{number}.{ending}" for number in range(1, 6) for ending in ("txt", "qrels")),
        "features.txt",
        "queries.jsonl",
    }
    assert "576 documents of 24 queries with 28 features written to" in text
    assert (tmp_path / "new" / "features.txt").read_text().split("\n") == [*COLUMNS, ""]
    table = read_queries(tmp_path / "new" / "queries.jsonl")
    assert len(table) == 25
    assert table.texts is not None
    assert table.classes is not None
    assert (table.texts[0], table.classes[0]) == ("buy apple juice", "buy")
    data = read_letor([tmp_path / "new" / f"S{number}.txt" for number in range(1, 6)])
    assert data.candidates.document_ids is not None
    assert data.labels.sum() == 24
    found = set(zip(data.candidates.query_of_row.tolist(), data.candidates.document_ids, strict=True))
    assert len(found) == 576


def test_a_query_of_stop_words_and_one_nobody_judged_are_counted(place: Path, tmp_path: Path) -> None:
    text = run(place, "features", "docs", "--out", tmp_path / "new")
    assert "24 of 25 relevant documents (96%) are among the candidates, at most 24 a query: recall 0.9600." in text
    assert "\n1 query has no candidate at all" in text
    assert "\nLeft out: 1 of " in text
    coverage = json.loads(run(place, "features", "docs", "--out", tmp_path / "new", "--json"))
    expected = {"queries": 25, "unjudged": 1, "without_candidates": 1, "without_relevant": 0}
    expected |= {"relevant": 25, "found": 24, "depth": 24, "added": 0}
    lost = {each["kind"]: each["number"] for each in coverage.pop("losses")}
    assert coverage == {**expected, "recall": 0.96, "out": str(tmp_path / "new")}
    # The words "buy" and "grow" of these queries are in no document.
    assert lost == {"queries without a judgment": 1, "queries without a known word": 1, "queries shortened": 24}


def test_fewer_candidates_can_miss_what_is_relevant(place: Path, tmp_path: Path) -> None:
    coverage = json.loads(run(place, "features", "docs", "--out", tmp_path / "new", "--top", 1, "--json"))
    assert 0 < coverage["found"] < 24
    assert coverage["without_relevant"] == 24 - coverage["found"]


def test_judged_documents_that_were_not_found_can_be_added(place: Path, tmp_path: Path) -> None:
    text = run(place, "features", "docs", "--out", tmp_path / "new", "--top", 1, "--add-judged")
    whole = "".join((tmp_path / "new" / f"S{number}.txt").read_text() for number in range(1, 6))
    added = [line for line in whole.splitlines() if line.endswith(" added = 1")]
    assert f"{len(added)} judged documents that retrieval did not find were added and marked." in text
    assert "1 qid:stop " in "\n".join(added), "even where retrieval found nothing at all"
    assert sum(line.startswith("1 ") for line in whole.splitlines()) == 25


def test_judgements_of_documents_that_are_not_there_can_be_skipped(place: Path, tmp_path: Path) -> None:
    grades = (place / "docs" / "qrels.tsv").read_text() + "buy-fig\tgone\t2\n"
    collection(tmp_path / "stray", qrels=grades)
    done = call(tmp_path, "features", "stray", "--out", "new")
    assert (done.returncode, done.stdout) == (2, "")
    assert "stray/qrels.tsv:27: document 'gone' of query 'buy-fig' is not in the corpus" in done.stderr
    assert "--skip-unknown" in done.stderr
    run(tmp_path, "features", "stray", "--out", "new", "--skip-unknown", "--quiet")
    for name in ("S1.txt", "S5.txt", "queries.jsonl"):
        assert (tmp_path / "new" / name).read_bytes() == (place / "letor" / name).read_bytes()


def test_trec_topics_and_qrels_give_what_the_other_forms_give(place: Path, tmp_path: Path) -> None:
    records = [json.loads(line) for line in (place / "docs" / "queries.jsonl").read_text().splitlines()]
    topics = [f"<top>\n<num> Number: {each['_id']}\n<title> {each['text']}\n</top>\n" for each in records[:-1]]
    (tmp_path / "topics.trec").write_text("\n".join(topics))
    grades = [line.split("\t") for line in (place / "docs" / "qrels.tsv").read_text().splitlines()[1:]]
    (tmp_path / "qrels.trec").write_text(
        "".join(f"{query} 0 {document} {grade}\n" for query, document, grade in grades)
    )
    words = ["--queries", tmp_path / "topics.trec", "--qrels", tmp_path / "qrels.trec"]
    run(place, "features", "docs/corpus.jsonl", *words, "--out", tmp_path / "new", "--quiet")
    for number in range(1, 6):
        name = f"S{number}.txt"
        assert (tmp_path / "new" / name).read_bytes() == (place / "letor" / name).read_bytes()
    assert read_queries(tmp_path / "new" / "queries.jsonl").classes is None


def test_the_same_text_gives_the_same_bytes_and_another_seed_another_cut(place: Path, tmp_path: Path) -> None:
    run(place, "features", "docs", "--out", tmp_path / "again", "--quiet")
    run(place, "features", "docs", "--out", tmp_path / "other", "--seed", 1, "--quiet")
    for path in (place / "letor").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    assert (tmp_path / "other" / "S1.txt").read_bytes() != (place / "letor" / "S1.txt").read_bytes()


def test_features_never_writes_over_the_collection_it_reads(tmp_path: Path) -> None:
    folder = collection(tmp_path / "docs")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    call(tmp_path, "features", "docs", "--out", "docs")
    assert {name: (folder / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("name", ["length.title", "H1.bm25", "", " stock", "sto\nck"])
def test_whatever_the_users_columns_are_called_the_files_can_be_read_or_the_name_is_refused(
    name: str, place: Path, tmp_path: Path
) -> None:
    records = [json.loads(line) for line in (place / "docs" / "corpus.jsonl").read_text().splitlines()]
    corpus = lines_of(*({**each, "columns": {name: each["columns"]["stock"]}} for each in records))
    collection(tmp_path / "docs", corpus=corpus)
    done = call(tmp_path, "features", "docs", "--out", "new", "--quiet")
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert repr(name) in done.stderr
        return
    run(tmp_path, "fit", "new/S1.txt", "--out", "model", "--quiet")
    run(tmp_path, "index", "docs", "--out", "index", "--quiet")
    assert json.loads(run(tmp_path, "search", "index", "fig", "--model", "model", "--json"))


# Learning from the files


@pytest.mark.slow
def test_methods_and_views_of_text_are_compared_on_the_files(place: Path) -> None:
    words = ["--methods", "bm25,single,knn-online", "--view", "text", "--k", "0.3", "--measures", "map,ndcg@10"]
    found = json.loads(run(place, "compare", "letor", *words, "--json"))
    assert list(found["methods"]) == ["bm25", "single", "knn-online"]
    assert found["queries"] == 25, "the query that matches nothing comes back from the judgments"
    means = {name: each["mean"]["map"] for name, each in found["methods"].items()}
    assert means["knn-online"] > means["single"] + 0.1, "what is wanted depends on one word of the text"


def test_a_collection_is_compared_on_as_it_is(place: Path) -> None:
    text = run(place, "compare", "docs", "--methods", "bm25,single", "--measures", "map")
    assert "25 test queries" in text
    for name in ("bm25", "single"):
        assert re.search(rf"^\s*{name}\s+0\.\d+", text, re.MULTILINE)


def test_a_report_has_its_title_its_note_and_the_titles_of_documents(place: Path, tmp_path: Path) -> None:
    words = ["--methods", "bm25,single", "--measures", "map", "--out", tmp_path / "r", "--quiet"]
    run(place, "compare", "docs", *words, "--title", "Fruit & co", "--note", "after <the> new index")
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "<title>Fruit &amp; co</title>" in page
    assert "<h1>Fruit &amp; co</h1>" in page
    assert '<p class="note">after &lt;the&gt; new index</p>' in page
    assert "querywise compare docs --methods bm25,single" in page
    shown = re.search(r'id="queries-data">(.*?)</script>', page)
    assert shown is not None
    rankings = json.loads(shown[1])["rankings"]
    titles = dict(pair for each in rankings.values() for pair in zip(each["documents"], each["titles"], strict=True))
    assert titles == {
        name: name.split("-")[1] if name.startswith("shop") else f"{name.split('-')[1]} trees" for name in titles
    }
    assert len(titles) == 2 * len(FRUIT)
    plain = (tmp_path / "r" / "report.md").read_text(encoding="utf-8")
    assert plain.startswith("# Fruit & co\n")


def test_a_model_knows_the_names_and_texts_beside_its_training_files(place: Path) -> None:
    manifest = read_manifest(place / "model")
    assert manifest.feature_names == COLUMNS
    chosen: Any = manifest.notes["parameters"]
    assert chosen["view"] == "text"
    ranker = load(place / "model")
    assert type(inside(ranker).locality_.view_).__name__ == "TextView"
    assert len(inside(ranker).locality_.view_.spaces_[0].vocabulary_) > 20
    scores = [float(line) for line in run(place, "rank", "model", "letor/S5.txt").splitlines()]
    labels = read_letor(place / "letor" / "S5.txt").labels
    assert len(scores) == len(labels)
    assert np.mean(np.array(scores)[labels > 0]) > np.mean(np.array(scores)[labels == 0])


def test_files_without_texts_beside_them_say_what_is_needed(place: Path, tmp_path: Path) -> None:
    shutil.copy(place / "letor" / "S5.txt", tmp_path / "alone.txt")
    done = call(place, "rank", "model", tmp_path / "alone.txt")
    assert done.returncode == 2
    assert "needs the text of the queries" in done.stderr
    assert "--queries" in done.stderr
    with_queries = run(place, "rank", "model", tmp_path / "alone.txt", "--queries", "letor/queries.jsonl")
    assert with_queries == run(place, "rank", "model", "letor/S5.txt")


def test_a_fold_of_a_collection_can_be_trained_on(place: Path, tmp_path: Path) -> None:
    run(place, "fit", "docs", "--fold", 1, "--method", "single", "--out", tmp_path / "model", "--quiet")
    assert read_manifest(tmp_path / "model").feature_names == COLUMNS


def test_a_reference_can_be_given_by_name(place: Path, tmp_path: Path) -> None:
    run(place, "fit", "letor/S1.txt", "--method", "bm25", "--reference", "stock", "--out", tmp_path / "m", "--quiet")
    scores = [float(line) for line in run(place, "rank", tmp_path / "m", "letor/S5.txt").splitlines()]
    data = read_letor(place / "letor" / "S5.txt")
    assert scores == data.candidates.features[:, COLUMNS.index("stock")].tolist()


# Searching


def test_search_gives_the_best_documents_by_bm25(place: Path) -> None:
    text = run(place, "search", "index", "fig juice", "--show", 3)
    assert "ranked by BM25" in text
    assert text.index("-fig") < text.index("ranked by")
    found = json.loads(run(place, "search", "index", "fig juice", "--json", "--top", 7, "--show", 5))
    assert len(found) == 5
    assert {each["document"] for each in found[:2]} == {"shop-fig", "farm-fig"}
    assert [each["bm25_rank"] for each in found] == [1, 2, 3, 4, 5]
    scores = [each["score"] for each in found]
    assert scores == sorted(scores, reverse=True)
    assert found[0].keys() == {"document", "title", "snippet", "score", "bm25", "bm25_rank"}


@pytest.mark.slow
def test_search_with_a_model_ranks_bm25s_best_anew_by_what_the_query_says(place: Path) -> None:
    assert "ranked by KnnOnline" in run(place, "search", "index", "buy fig juice", "--model", "model")
    for query, best in (("buy fig juice", "shop-fig"), ("grow fig juice", "farm-fig")):
        found = json.loads(run(place, "search", "index", query, "--model", "model", "--show", 100, "--json"))
        plain = json.loads(run(place, "search", "index", query, "--show", 100, "--json"))
        assert found[0]["document"] == best
        assert sorted(each["bm25_rank"] for each in found) == list(range(1, len(found) + 1))
        by_rank = {each["bm25_rank"]: each for each in found}
        assert [by_rank[each["bm25_rank"]]["document"] for each in plain] == [each["document"] for each in plain]
        scores = [each["score"] for each in found]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.slow
def test_search_and_rank_give_a_document_the_same_score(place: Path) -> None:
    data = read_letor(place / "letor" / "S5.txt")
    assert data.candidates.document_ids is not None
    scores = [float(line) for line in run(place, "rank", "model", "letor/S5.txt").splitlines()]
    query = data.candidates.query_ids[0]
    text = query.replace("-", " ") + " juice"
    found = json.loads(run(place, "search", "index", text, "--model", "model", "--show", 100, "--json"))
    mine = {each["document"]: each["score"] for each in found}
    rows = data.candidates.rows(0)
    ranked = dict(zip(data.candidates.document_ids[rows], scores[rows], strict=True))
    assert mine.keys() == ranked.keys()
    assert [mine[each] for each in ranked] == pytest.approx(list(ranked.values()), rel=1e-9)


@pytest.mark.parametrize("query", ["what is the", "", "?! zebra"])
def test_a_query_none_of_whose_words_is_anywhere_finds_nothing(place: Path, query: str) -> None:
    assert run(place, "search", "index", query).startswith("Nothing found")
    assert json.loads(run(place, "search", "index", query, "--model", "model", "--json")) == []


@pytest.mark.slow
def test_text_in_any_script_is_found(tmp_path: Path) -> None:
    texts = {
        "zh": "東京の天気予報",
        "ru": "Прогноз погоды в Москве",
        "el": "Ο καιρός στην Αθήνα",
        "hi": "दिल्ली का मौसम",
    }
    texts |= {"ar": "الطقس في القاهرة", "de": "Straßenwetter in Köln", "th": "สภาพอากาศในกรุงเทพ", "ko": "서울 날씨"}
    corpus = "".join(json.dumps({"_id": key, "text": text}, ensure_ascii=False) + "\n" for key, text in texts.items())
    (tmp_path / "corpus.jsonl").write_text(corpus, encoding="utf-8")
    run(tmp_path, "index", ".", "--out", "index", "--language", "none", "--quiet")
    asked = {"東京": "zh", "МОСКВЕ": "ru", "καιρός": "el", "मौसम": "hi", "القاهرة": "ar", "STRASSENWETTER": "de"}
    for query, best in (asked | {"กรุงเทพ": "th", "날씨": "ko"}).items():
        found = json.loads(run(tmp_path, "search", "index", query, "--json"))
        assert [each["document"] for each in found] == [best], query
        assert found[0]["snippet"] == texts[best]
    assert texts["zh"] in run(tmp_path, "search", "index", "東京")


@pytest.mark.slow
def test_an_index_knows_its_language_and_is_replaced_by_another(place: Path, tmp_path: Path) -> None:
    assert "24 documents" in run(place, "index", "docs", "--out", tmp_path / "index")
    assert json.loads(run(place, "search", tmp_path / "index", "fields", "--json"))
    assert json.loads(run(place, "search", tmp_path / "index", "in", "--json")) == []
    run(place, "index", "docs", "--out", tmp_path / "index", "--language", "none", "--no-stop-words")
    assert json.loads(run(place, "search", tmp_path / "index", "fields", "--json")) == []
    assert json.loads(run(place, "search", tmp_path / "index", "in", "--json"))


def test_brackets_in_names_and_texts_are_printed_as_they_are(place: Path, tmp_path: Path) -> None:
    corpus = lines_of({"_id": "D[b]1", "title": "[red]fig[/red]", "text": "a [/bold] fig", "columns": {"stock": 1}})
    collection(tmp_path / "docs", corpus=corpus, queries="", qrels="")
    assert "index[old]" in run(tmp_path, "index", "docs", "--out", "index[old]")
    text = run(tmp_path, "search", "index[old]", "fig")
    assert "D[b]1" in text
    assert "[red]fig[/red] · a [/bold] fig" in text
    (tmp_path / "[").mkdir()
    assert "[/letor]" in run(place, "features", "docs", "--out", tmp_path / "[" / "letor]")


# What goes wrong

DOCUMENT = {"_id": "D1", "title": "fig", "text": "a fig"}
QUERY = {"_id": "q1", "text": "fig"}


@pytest.fixture(scope="module")
def wrong(place: Path) -> Path:
    """Beside the good ones, collections with something wrong in each, and a model of other features."""
    good = lines_of(DOCUMENT), lines_of(QUERY), "q1\tD1\t1\n"
    for name, corpus, queries, qrels in (
        ("badcorpus", good[0] + '{"_id": "D2", "title"\n', *good[1:]),
        ("badquery", good[0], good[1] + "not json\n", good[2]),
        ("badgrade", good[0], good[1], good[2] + "q1\tD1\tvery\n"),
        ("noid", good[0] + '{"title": "fig"}\n', *good[1:]),
        ("strays", good[0], good[1], good[2] + "q1\tD9\t1\n"),
        ("strayquery", good[0], good[1], good[2] + "q9\tD1\t1\n"),
        ("twodocuments", good[0] * 2, *good[1:]),
        ("twoqueries", good[0], good[1] * 2, good[2]),
        ("twogrades", good[0], good[1], good[2] + "q1\tD1\t0\n"),
        ("unqueried", good[0], "", ""),
        ("unjudged", good[0], good[1], ""),
        ("few", *good),
    ):
        collection(place / name, corpus=corpus, queries=queries, qrels=qrels)
    collection(place / "empty", corpus="\n", queries=good[1], qrels=good[2])
    (place / "foreign").mkdir()
    (place / "foreign" / "notes.txt").write_text("mine")
    (place / "narrow.txt").write_text("1 qid:1 1:1 2:0\n0 qid:1 1:0 2:0\n" * 1)
    run(place, "fit", "narrow.txt", "--out", "narrow", "--quiet")
    shutil.copytree(place / "docs", place / "renamed")
    text = (place / "docs" / "corpus.jsonl").read_text().replace('"stock"', '"price"')
    (place / "renamed" / "corpus.jsonl").write_text(text)
    run(place, "index", "renamed", "--out", "renamed.index", "--quiet")
    return place


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("index badcorpus --out new", "badcorpus/corpus.jsonl:2: this is not JSON"),
        ("features badcorpus --out new", "badcorpus/corpus.jsonl:2: this is not JSON"),
        ("compare badcorpus", "badcorpus/corpus.jsonl:2: this is not JSON"),
        ("features badquery --out new", "badquery/queries.jsonl:2: this is not JSON"),
        ("features badgrade --out new", "badgrade/qrels.tsv:2: expected 'query <tab> document <tab> grade'"),
        ("index noid --out new", 'noid/corpus.jsonl:2: expected an object with an "_id"'),
        ("features strays --out new", "strays/qrels.tsv:2: document 'D9' of query 'q1' is not in the corpus"),
        ("features strayquery --out new", "strayquery/qrels.tsv:2: query 'q9' is judged here but is not in"),
        ("index twodocuments --out new", "twodocuments/corpus.jsonl:2: document 'D1' is already on line 1"),
        ("features twoqueries --out new", "twoqueries/queries.jsonl:2: query 'q1' is already on line 1"),
        ("features twogrades --out new", "twogrades/qrels.tsv:2: document 'D1' of query 'q1' has grade 0 here and 1"),
        ("features unqueried --out new", "unqueried: the collection has no queries with a text"),
        ("features unjudged --out new", "unjudged: the collection has no judgments"),
        ("features few --out new", "at least three queries"),
        ("index empty --out new", "empty/corpus.jsonl"),
        ("features empty --out new", "empty/corpus.jsonl"),
        ("index nowhere --out new", "nowhere: there is no corpus.jsonl here"),
        ("features nowhere --out new", "nowhere: there is no corpus.jsonl here"),
        ("compare nowhere", "nowhere: there is no such file"),
        ("index foreign --out new", "foreign: there is no corpus.jsonl here"),
        ("index docs --out foreign", "foreign: this holds something that is not a querywise index"),
        ("index docs --out docs", "docs: this holds something that is not a querywise index"),
        ("index docs --out model", "model/manifest.json: not the manifest of a querywise index"),
        ("index docs --out nowhere/new", "nowhere does not exist; create it first"),
        ("index docs --out new --language klingon", "no stemmer for 'klingon'. Known: arabic, "),
        ("features docs --out narrow.txt", "narrow.txt: the folder cannot be made"),
        ("features docs --out new --queries nowhere.jsonl", "nowhere.jsonl: there is no such file"),
        ("features docs --out new --qrels nowhere.tsv", "nowhere.tsv: there is no such file"),
        ("features stdlib --out new --queries letor/queries.jsonl", "stdlib has queries and judgments of its own"),
        ("search nowhere fig", "nowhere: not an index"),
        ("search docs fig", "docs: not an index"),
        ("search model fig", "model/manifest.json: not the manifest of a querywise index"),
        ("search index fig --model nowhere", "nowhere: not a model folder"),
        ("search index fig --model index", "index/manifest.json: not the manifest of a querywise model"),
        ("search index fig --model narrow", "trained on 2 features but the documents have 28"),
        ("search renamed.index fig --model model", "Feature 28 is 'price' but the model was trained with 'stock'"),
        ("fit letor/S1.txt --out new --method knn-online --view words", "Unknown view 'words'"),
        ("fit narrow.txt --out new --method knn-online --view text", "needs the text of the queries"),
        ("fit narrow.txt --out new --method bm25", "no feature 'H1.bm25': the features have no names"),
    ],
)
def test_bad_input_ends_with_one_message_and_nothing_written(wrong: Path, command: str, message: str) -> None:
    before = contents(wrong)
    done = call(wrong, *command.split())
    changed = contents(wrong)
    if changed.get("new") == b"":
        del changed["new"]  # of which the test below is
    shutil.rmtree(wrong / "new", ignore_errors=True)
    assert message in refused(done)
    assert changed == before


def test_bad_input_leaves_no_empty_folder_behind(wrong: Path) -> None:
    for name in ("badquery", "nowhere"):
        assert call(wrong, "features", name, "--out", "left").returncode == 2
        assert not (wrong / "left").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("features docs --out new --top 0", "--top"),
        ("search index fig --top 0", "--top"),
        ("search index fig --top -3", "--top"),
        ("search index fig --show 0", "--show"),
        ("search index", "query"),
        ("index docs", "--out"),
        ("demo --folds 6", "--folds"),
    ],
)
def test_a_command_typed_wrongly_ends_with_how_it_is_meant(place: Path, command: str, message: str) -> None:
    done = call(place, *command.split())
    assert done.returncode == 2
    assert "Usage: querywise" in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "new").exists()


# The demonstration

ROWS = ("bm25", "vectors", "vectors-adapted", "rrf", "weights", "single", "lambdamart", "blend")
MORE = ("query-classes", "knn-online", "knn-offline-1", "knn-offline-2", "oracle: true kind")


@pytest.mark.slow
def test_the_demonstration_compares_shows_and_leaves_files_that_can_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, library = sysconfig.get_paths(), part_of_the_library(tmp_path / "library", every=8)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {**paths, "stdlib": str(library)})
    text = run(tmp_path, "demo", "--all", "--folds", 1)
    found, _, after = text.partition("By words alone (BM25): ")
    assert found.startswith('"open a zip file" in the documentation of this Python, '), "a search comes first"
    assert len(re.findall(r"^\s*\d\s+-?\d+\.\d{3}", found, re.MULTILINE)) == 5
    assert re.search(r"^This took \d+ (s|min)", after.splitlines()[-1])
    for name in (*ROWS, *MORE):
        assert len(re.findall(rf"^\s*{name}\s+0\.\d{{4}}", text, re.MULTILINE)) == 2, "in both tables"
    assert "The standard library of this Python" in text
    assert "The largest gain" in text
    flat = " ".join(text.split())
    assert re.search(r"Teaching the query vectors .* ranked by vectors alone, mean_ndcg@10 0\.\d{4} → 0\.\d{4}", flat)
    assert re.search(r"Trained both ways, blend has mean_ndcg@10 0\.\d{4} with vectors as they are and 0\.\d{4}", flat)
    for kind in ("home page", "topic distillation", "named page"):
        assert kind in text
    out = tmp_path / "querywise-demo"
    for name in ("collection/corpus.jsonl", "collection/queries.jsonl", "collection/qrels.tsv", "index", "model"):
        assert (out / name).exists()
    shown = re.search(r"^Search them:\s+(querywise search .*)$", text, re.MULTILINE)
    assert shown is not None
    words = shlex.split(shown[1])[1:]
    (query,) = (number for number, word in enumerate(words) if " " in word)
    for asked, least in ((words[query], 1), ("read a file", 10)):
        found = run(tmp_path, *words[:query], asked, *words[query + 1 :])
        assert "ranked by Blend" in found
        assert least <= len(re.findall(r"^\s*\d+\s+-?\d+\.\d{3}", found, re.MULTILINE)) <= 10


# Judgements beyond the candidates


def test_a_run_with_documents_that_are_no_candidates_is_compared_on_its_own_list(place: Path, tmp_path: Path) -> None:
    """BM25's best alone as candidates; the other system has found both, in the wrong order."""
    found = [
        f"{word}-{fruit} Q0 {kind}-{fruit} 1 {score} other\n"
        for fruit in FRUIT
        for word in ("buy", "grow")
        for kind, score in (("shop", 1.0 if word == "grow" else 0.5), ("farm", 0.5 if word == "grow" else 1.0))
    ]
    (tmp_path / "other.trec").write_text("".join(found))
    words = ["compare", "docs", "--methods", "bm25", "--scores", f"other={tmp_path / 'other.trec'}", "--top", 1]
    content = json.loads(run(place, *words, "--measures", "map,recall", "--json"))
    assert content["methods"]["other"]["mean"] == pytest.approx({"map": 12 / 25, "recall": 24 / 25})
    assert content["coverage"]["found"] < 24
    assert content["coverage"]["depth"] == 1
    text = run(place, *words)
    assert "of 25 relevant documents" in text


def test_the_parts_of_features_know_all_judgements(place: Path, tmp_path: Path) -> None:
    run(place, "features", "docs", "--out", tmp_path / "letor", "--top", 5)
    words = ["--methods", "bm25,single", "--measures", "map,ndcg@10,recall", "--json"]
    files, text = (json.loads(run(place, "compare", each, "--top", 5, *words)) for each in (tmp_path / "letor", "docs"))
    assert files["coverage"] == text["coverage"]
    assert files["queries"] == text["queries"] == 25
    for method in ("bm25", "single"):
        assert files["methods"][method]["mean"] == pytest.approx(text["methods"][method]["mean"])


def test_search_shows_grades_and_what_was_missed(place: Path, tmp_path: Path) -> None:
    run(place, "index", "docs", "--out", tmp_path / "index")
    for query in ("buy-plum", "buy plum juice"):
        text = run(place, "search", tmp_path / "index", query, "--judged", "docs", "--show", 2)
        assert "1 of 1 relevant documents are among the 24 found." in text
    content = json.loads(run(place, "search", tmp_path / "index", "buy-plum", "--judged", "docs", "--json"))
    assert (content["relevant"], content["found"]) == (1, 1)
    assert {each["document"]: each["grade"] for each in content["answers"]}["shop-plum"] == 1
    message = refused(call(place, "search", tmp_path / "index", "sell plum", "--judged", "docs"))
    assert "none of its 26 queries" in message


def test_compare_names_everything_that_is_lost(tmp_path: Path) -> None:
    """One folder with every kind of loss: each is told in the output, the report and JSON."""
    fruits = ("apple", "pear", "plum", "fig", "kiwi", "lime", "melon", "grape")
    corpus = [{"_id": f"D{number}", "title": fruit, "text": f"{fruit} tree"} for number, fruit in enumerate(fruits)]
    queries = [{"_id": f"q{number}", "text": fruit} for number, fruit in enumerate(fruits)]
    queries += [{"_id": "unjudged", "text": "apple pie"}, {"_id": "strange", "text": "zzz"}]
    queries += [{"_id": "long", "text": "plum zzz"}, {"_id": "gone", "text": "fig"}]
    grades = [f"q{number} 0 D{number} 1" for number in range(8)] + ["strange 0 D1 1", "long 0 D2 1", "gone 0 D99 1"]
    for name, records in {"corpus": [*corpus, {"_id": "blank", "title": "", "text": ""}], "queries": queries}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    (tmp_path / "qrels.txt").write_text("\n".join(grades) + "\n")
    words = ["compare", ".", "--methods", "bm25", "--skip-unknown"]
    expected = [
        "Left out: 1 of 12 queries without a judgment, such as 'unjudged' (apple pie).",
        "Left out: 1 of 12 queries whose judged documents are not in the corpus, such as 'gone' (fig).",
        "Left out: 1 of 11 judgments of documents that are not in the corpus, such as 'D99' of query 'gone'.",
        "Never found by words: documents without a word in title and text, 1 of 9, such as 'blank'.",
        "Nothing is found by words: queries without a word that is in the corpus, 1 of 10, such as 'strange' (zzz).",
        "Ignored: words that no document has, in 1 of 10 queries, such as 'long' (plum zzz).",
    ]

    told = " ".join(run(tmp_path, *words, "--out", "report").split())
    found = json.loads(run(tmp_path, *words, "--json"))
    page, text = ((tmp_path / "report" / f"report.{kind}").read_text() for kind in ("html", "md"))

    assert [each for each in expected if each not in told] == []
    assert [each["text"] for each in found["losses"]] == expected
    for each in expected:
        assert html.escape(each) in page
        assert each in text
    assert [each["kind"] for each in json.loads((tmp_path / "report" / "report.json").read_text())["losses"]] == [
        each["kind"] for each in found["losses"]
    ]


def test_what_a_document_says_cannot_command_the_terminal(tmp_path: Path) -> None:
    unsafe = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066"
    title, text = f"fig{unsafe} [/b]", f"fig {unsafe} naïve\u3000日本"
    save_index(build_index([Document(f"D{unsafe}{number}", title, text) for number in range(3)]), tmp_path / "idx")
    said = run(tmp_path, "search", "idx", "fig")
    assert not set(unsafe) & set(said) - set(map(chr, range(32, 127)))
    assert "\\x1b]0;owned\\x07" in said
    assert "\\u202e" in said
    assert "naïve 日本" in said
    assert json.loads(run(tmp_path, "search", "idx", "fig", "--json"))


def test_ids_are_shown_as_they_are_whatever_is_in_brackets(tmp_path: Path) -> None:
    data = make_judged(30, 10, 4)
    names = tuple(f"[/b]:smile:{number}" for number in range(300))
    ids = tuple(f"[red]{name}" for name in data.query_ids)
    candidates = replace(data.candidates, document_ids=names, query_ids=ids, queries=None)
    data = replace(data, candidates=candidates)
    save(KnnOnline(RankSVM(), k=8, back_off=None).fit(data), tmp_path / "m")
    write_letor(tmp_path / "data.txt", data)
    query = data.query_ids[0]
    assert "[red]" in run(tmp_path, "explain", "m", "data.txt", "--qid", query)
    pair = ["--above", names[0], "--below", names[1]]
    assert f"{names[0]} is " in run(tmp_path, "explain", "m", "data.txt", "--qid", query, *pair)
