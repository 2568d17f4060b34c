"""Comparisons on clicks: what is learned from, what judges, and what stands beside a method."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from querywise.clicks.held_out import (
    HeldOut,
    Trees,
    held_out,
    lightgbm_by_position,
    pages_with_a_click,
    rows_in,
    xgboost_unbiased,
)
from querywise.clicks.identifiable import what_is_known
from querywise.clicks.impressions import Impressions
from querywise.clicks.judgments import judge, preferences, preferred
from querywise.clicks.readers import read_clicks
from querywise.data.folds import make_folds
from querywise.data.judged import Candidates
from querywise.data.labels import values_of
from querywise.data.readers import read_features
from querywise.evaluation.foreign import Foreign
from querywise.retrieval.reading import read_judged
from tests.clicking import made_log, made_pages, rows_text
from tests.commands import output, refused, run
from tests.support.clicks import clicks_on, collection


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text collection with grades of people, a log on it, and the judgments."""
    place = tmp_path_factory.mktemp("clicks")
    text = collection(place / "text")
    log = clicks_on(text)
    queries = [json.loads(line) for line in (text / "queries.jsonl").read_text().splitlines()]
    documents = [json.loads(line) for line in (text / "corpus.jsonl").read_text().splitlines()]
    graded = [
        f"{query['_id']}\t{each['_id']}\t{int(each['title'].startswith(query['text']))}\n"
        for query in queries
        for each in documents
        if query["text"] in each["title"]
    ]
    (text / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(graded))
    output(run(place, "clicks", log, "--out", "judged", "--collection", "text", "--borrow", "off", "--quiet"))
    return place


def test_methods_are_judged_by_later_clicks_and_by_people(folder: Path) -> None:
    asked = ("compare", "judged", "--methods", "ranksvm", "--set", "l2=0.1", "--measures", "ndcg@5", "--quiet")
    found = json.loads(output(run(folder, *asked, "--json")))
    assert set(found["methods"]) == {
        "ranksvm, naive clicks",
        "ranksvm, pairs by propensity",
        "lightgbm position",
        "xgboost unbiased",
        "ranksvm",
    }
    assert found["baseline"] == "ranksvm, naive clicks"
    told = found["debiasing"]
    assert set(told["means"]) == {"later clicks", "people"}
    assert "by later clicks on 12 queries" in told["said"][0]
    assert "95 % interval" in told["said"][0]
    shown = " ".join(output(run(folder, *asked, "--out", "report")).split())
    assert "judged by people" in shown
    page = (folder / "report" / "report.html").read_text()
    assert "Debiasing" in page
    assert "by grades of people" in page


def test_a_log_that_tells_nothing_of_position_has_no_debiased_row(tmp_path: Path) -> None:
    text = collection(tmp_path / "text")
    documents = [json.loads(line) for line in (text / "corpus.jsonl").read_text().splitlines()]
    rows = ["query,session,document,position,clicked"]
    for page in range(240):
        query = ("hammer", "violin", "apple", "basalt", "nail", "plum")[page % 6]
        shown = [each["_id"] for each in documents if query in each["title"]][:4]
        rows += [
            f"{query},s{page},{each},{place},{int(page % (3 + place) == 0)}" for place, each in enumerate(shown, 1)
        ]
    (tmp_path / "log.csv").write_text("\n".join(rows))
    output(run(tmp_path, "clicks", "log.csv", "--out", "judged", "--collection", "text", "--quiet"))
    asked = (
        "compare",
        "judged",
        "--methods",
        "ranksvm",
        "--set",
        "l2=0.1",
        "--measures",
        "ndcg@5",
        "--quiet",
        "--json",
    )
    found = json.loads(output(run(tmp_path, *asked)))
    assert list(found["methods"]) == ["ranksvm"]
    assert found["debiasing"]["said"][0].startswith("Nothing is debiased here. Position bias cannot be told")


def test_later_clicks_judge_and_teach_nothing(folder: Path, tmp_path: Path) -> None:
    """Other clicks on later pages: what is learned from stays, to the last bit, and what judges changes."""
    first = held_out(folder / "judged")
    assert first is not None
    other = tmp_path / "judged"
    shutil.copytree(folder / "judged", other)
    log = read_clicks(folder / "judged" / "pages.parquet")
    earlier, _ = log.split()
    clicked = log.clicked.copy()
    clicked[len(earlier.document) :] = ~clicked[len(earlier.document) :]
    from querywise.clicks.folder import _write_pages

    _write_pages(other / "pages.parquet", replace(log, clicked=clicked))
    second = held_out(other)
    assert second is not None
    assert first.gains == second.gains
    assert first.naive == second.naive
    assert first.later != second.later
    data = read_judged(folder / "judged")
    for fold in make_folds(data):
        made = first.fold(fold)
        for part, gains in ((made.train, first.gains), (made.test, first.later)):
            assert part.candidates.document_ids is not None
            owners = [part.query_ids[query] for query in part.candidates.query_of_row]
            pairs = zip(owners, part.candidates.document_ids, strict=True)
            expected = [gains[query][each].label if each in gains[query] else 0.0 for query, each in pairs]
            assert values_of(part) == pytest.approx(expected)


def test_pages_that_are_kept_are_those_of_the_log(folder: Path) -> None:
    log, kept = read_clicks(folder / "text" / "log.csv"), read_clicks(folder / "judged" / "pages.parquet")
    assert log.queries == kept.queries
    assert log.documents == kept.documents
    for name in ("starts", "query", "document", "position", "clicked"):
        assert np.array_equal(getattr(log, name), getattr(kept, name))


def candidates_of(log: Impressions, seed: int) -> Candidates:
    """Some of the documents of every query of a log, with random features."""
    chance = np.random.default_rng(seed)
    rows: list[str] = []
    starts = [0]
    for query in range(len(log.queries)):
        own = np.unique(log.document[log.query[log.page_of_row] == query])
        rows += [log.documents[each] for each in chance.permutation(own)[: max(len(own) - 1, 1)]]
        starts.append(len(rows))
    names = tuple(each.upper() for each in log.queries)
    return Candidates(chance.random((len(rows), 3)), np.array(starts), names, document_ids=tuple(rows))


def test_rows_of_a_log_are_found_in_candidates(tmp_path: Path) -> None:
    log = made_log(tmp_path, made_pages(queries=5, pages=8, swaps=0.5))
    candidates = candidates_of(log, 0)
    assert candidates.document_ids is not None
    found = rows_in(candidates, log, {each.lower(): each for each in candidates.query_ids})
    for row, place in enumerate(found.tolist()):
        query = log.queries[log.query[log.page_of_row[row]]].upper()
        own = candidates.rows(candidates.query_ids.index(query))
        documents = candidates.document_ids[own]
        name = log.documents[log.document[row]]
        assert place == (own.start + documents.index(name) if name in documents else -1)


def test_pairs_are_clicked_documents_above_others_of_their_page(tmp_path: Path) -> None:
    log = made_log(tmp_path, made_pages(queries=6, pages=60, swaps=0.7))
    candidates, known = candidates_of(log, 1), what_is_known(log)
    names = {each.lower(): each for each in candidates.query_ids}
    found = preferences(log, known)
    made = preferred(found, log, candidates, names)
    assert made.labels.sum() == len(made)
    assert (made.labels[made.candidates.starts[:-1]] == 1).all()
    assert made.query_weights is not None
    assert made.query_weights.min() >= 1
    whole = {(names[log.queries[query]], weight) for query, weight in zip(found.query, found.weight, strict=True)}
    groups = made.candidates.queries
    assert groups is not None
    assert groups.groups is not None
    assert {(str(group), weight) for group, weight in zip(groups.groups, made.query_weights, strict=True)} <= whole


def test_trees_of_others_learn_from_pages(tmp_path: Path) -> None:
    """Documents whose feature says that they are clicked come first, wherever they were shown."""
    pages = made_pages(queries=30, pages=40, swaps=0.7)
    log = made_log(tmp_path, pages)
    gain = judge(log, "pbm", what_is_known(log))
    keys = gain.query * len(log.documents) + gain.document
    features = np.stack([gain.gain, np.random.default_rng(0).random(len(keys))], axis=1)
    made = pages_with_a_click(features, log, np.searchsorted(keys, log.keys))
    assert made.sizes.sum() == len(made.clicked) == len(made.features)
    assert np.add.reduceat(made.clicked, np.cumsum(made.sizes) - made.sizes).min() >= 1
    for grow in (lightgbm_by_position, xgboost_unbiased):
        tried = Candidates(np.array([[0.9, 0.5], [0.02, 0.5]]), np.array([0, 2]), ("q",))
        best, worst = Foreign("trees", grow(made, Trees())).predict(tried)
        assert best > worst


def test_query_vectors_learn_from_gains_of_clicks(folder: Path) -> None:
    data = read_judged(folder / "judged", embed="lsa:8", adapt="linear")
    assert data.gains is not None
    own = read_judged(folder / "judged").gains
    assert own is not None
    assert set(data.gains.tolist()) <= set(own.tolist())


def test_other_data_is_compared_as_before(folder: Path, tmp_path: Path) -> None:
    assert held_out(folder / "text") is None
    path = tmp_path / "judged"
    shutil.copytree(folder / "judged", path)
    (path / "pages.parquet").unlink()
    assert "the pages of the log are missing" in refused(run(None, "compare", path, "--methods", "ranksvm"))


def test_labels_of_a_feature_log_are_those_of_people(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pages = made_pages(queries=6, pages=40, swaps=0.5)
    (tmp_path / "log.csv").write_text(rows_text(pages))
    pairs = sorted({(query, each) for query, shown, _ in pages for each in shown})
    columns = {"qid": [query for query, _ in pairs], "docid": [each for _, each in pairs]}
    labels = [int(each.endswith("0")) for _, each in pairs]
    pq.write_table(pa.table({**columns, "label": labels, "bm25": [0.5] * len(pairs)}), tmp_path / "features.parquet")
    output(run(tmp_path, "clicks", "log.csv", "--out", "judged", "--features", "features.parquet", "--quiet"))
    found = held_out(tmp_path / "judged")
    assert isinstance(found, HeldOut)
    judged, rows = found.judged_by_people(read_features(tmp_path / "judged"))
    assert len(judged) == 6
    assert judged.labels.sum() == 6
    assert len(rows) == len(judged.labels)
