"""The command line on words and vectors, run as a user runs it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from querywise.data.folds import read_folds
from querywise.data.run_columns import run_columns
from querywise.data.runs import read_run
from querywise.data.vectors import read_vectors
from querywise.errors import DataError
from querywise.retrieval.embedders.named import ALLOW, _started
from querywise.retrieval.embedders.remote import KEY
from querywise.retrieval.embedding import query_vector
from querywise.retrieval.index import load_index
from querywise.retrieval.indexed_vectors import with_vectors
from querywise.retrieval.reading import Retrieval, collection_from, index_of
from querywise.service.loaded_model import LoadedModel
from querywise.service.lookup import Lookup
from querywise.service.schema import Query
from querywise.storage import load, read_manifest, save
from tests.commands import output, refused
from tests.commands import run as call
from tests.embedding import Service, embedding_service
from tests.support.vectors import collection_with_vectors


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    collection_with_vectors(folder)
    return folder


def run(folder: Path, *words: object) -> str:
    return output(call(folder, *words))


def test_features_with_vectors_are_files_that_can_be_compared(place: Path, tmp_path: Path) -> None:
    text = run(
        place, "features", "docs", "--vectors", "vectors", "--top", 5, "--vector-top", 4, "--out", tmp_path / "f"
    )

    assert "Recall of the candidates that each list found: " in text
    parts = read_folds(tmp_path / "f").whole().candidates
    assert [run.name for run in run_columns(parts.feature_names)] == ["bm25", "vectors"]
    assert parts.queries is not None
    assert parts.queries.vectors is not None
    assert parts.queries.vectors.shape == (20, 6)
    assert parts.sizes.max() <= 9


def test_vectors_help_where_words_do_not(place: Path) -> None:
    def value(*more: object) -> float:
        found = json.loads(run(place, "compare", "docs", "--methods", "single", *more, "--json", "-q"))
        return float(found["methods"]["single"]["mean"]["map"])

    assert value("--vectors", "vectors") > value() + 0.2


def test_recall_of_either_list_is_under_the_table(place: Path) -> None:
    text = run(place, "compare", "docs", "--methods", "single", "--vectors", "vectors", "-q")
    assert "Recall of the candidates that each list found: " in text


def test_fit_remembers_the_vectors_and_search_uses_an_index_with_them(place: Path, tmp_path: Path) -> None:
    run(place, "fit", "docs", "--embed", "lsa", "--out", tmp_path / "m", "--vector-top", 7, "-q")
    notes = read_manifest(tmp_path / "m").notes["vectors"]
    assert isinstance(notes, dict)
    assert isinstance(notes["embedder"], dict)
    assert (notes["top"], notes["vector_top"], notes["embedder"]["name"]) == (50, 7, "lsa")
    run(place, "index", "docs", "--embed", "lsa", "--out", tmp_path / "i", "-q")

    found = json.loads(run(place, "search", tmp_path / "i", "apple jam", "--model", tmp_path / "m", "--json"))

    assert {"tree-apple", "jam-apple"} <= {each["document"] for each in found}
    assert found[0].keys() == {"document", "title", "snippet", "score", "bm25", "bm25_rank"}


def test_an_index_of_another_kind_is_refused(place: Path, tmp_path: Path) -> None:
    run(place, "fit", "docs", "--vectors", "vectors", "--out", tmp_path / "m", "-q")
    run(place, "fit", "docs", "--out", tmp_path / "plain", "-q")
    for name, *how in (("words",), ("files", "--vectors", "vectors"), ("lsa", "--embed", "lsa")):
        run(place, "index", "docs", *how, "--out", tmp_path / name, "-q")

    def said(index: str, model: str = "m") -> str:
        return refused(call(place, "search", tmp_path / index, "apple", "--model", tmp_path / model))

    assert "was trained with vectors, and this index is one without them" in said("words")
    assert "was trained without vectors, and this index is one with them" in said("lsa", "plain")
    assert "Name the same embedding model with --embed NAME" in said("files")
    assert "was trained with vectors of 6" in said("lsa")
    assert run(place, "search", tmp_path / "files", "apple", "--json")  # BM25 needs no vector


def test_what_does_not_belong_together_is_refused(place: Path, tmp_path: Path) -> None:
    def said(*words: object) -> str:
        return refused(call(place, *words))

    assert "--embed lsi: there is no such embedder" in said("compare", "docs", "--embed", "lsi")
    assert "--vector-top 5 is for documents with vectors" in said("compare", "docs", "--vector-top", 5)
    assert "nowhere: there is no such file" in said("compare", "nowhere", "--vectors", "vectors")
    run(place, "features", "docs", "--out", tmp_path / "f", "-q")
    assert "--vectors vectors: vectors belong to a text collection" in said(
        "compare", tmp_path / "f", "--vectors", "vectors"
    )
    ids = tmp_path / "v"
    ids.mkdir()
    for name in ("documents", "queries"):
        for ending in (".npy", ".json"):
            (ids / f"{name}{ending}").write_bytes((place / "vectors" / f"{name}{ending}").read_bytes())
    known = json.loads((ids / "queries.json").read_text())
    (ids / "queries.json").write_text(json.dumps([*known[:-1], "other"]))
    assert "1 of 20 queries in the judgments of docs have no vector here; the first is 'q9jam'" in said(
        "compare", "docs", "--vectors", ids
    )


def test_vectors_of_zeros_are_counted(place: Path, tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    for path in (place / "vectors").iterdir():
        (tmp_path / "v" / path.name).write_bytes(path.read_bytes())
    for name, row in (("documents", 3), ("queries", 1)):
        values = np.load(tmp_path / "v" / f"{name}.npy")
        values[row] = 0
        np.save(tmp_path / "v" / f"{name}.npy", values)

    done = call(place, "features", "docs", "--vectors", tmp_path / "v", "--out", tmp_path / "f")

    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "hint: 1 of 20 documents have a vector of zeros, which is similar to nothing.",
        "hint: 1 of 20 queries have a vector of zeros, which is similar to nothing.",
    ]


def test_a_model_is_refused_an_index_of_another_language(place: Path, tmp_path: Path) -> None:
    run(place, "fit", "docs", "--language", "german", "--out", tmp_path / "m", "-q")
    assert read_manifest(tmp_path / "m").notes["language"] == "german"
    run(place, "index", "docs", "--out", tmp_path / "english", "-q")
    run(place, "index", "docs", "--language", "german", "--out", tmp_path / "german", "-q")

    said = refused(call(place, "search", tmp_path / "english", "apple", "--model", tmp_path / "m"))

    assert "was trained on text with the stemmer german, and this index was made with the stemmer english" in said
    assert "Rebuild the index in the language german." in said
    assert json.loads(run(place, "search", tmp_path / "german", "apple", "--model", tmp_path / "m", "--json"))
    assert "There is no stemmer for 'klingon'" in refused(call(place, "compare", "docs", "--language", "klingon"))


def test_fit_leaves_out_vectors_of_unknown_documents_if_told_to(place: Path, tmp_path: Path) -> None:
    strays = tmp_path / "strays"
    strays.mkdir()
    for name in ("documents", "queries"):
        ids = json.loads((place / "vectors" / f"{name}.json").read_text())
        values = np.load(place / "vectors" / f"{name}.npy")
        (strays / f"{name}.json").write_text(json.dumps([*ids, "stray"]))
        np.save(strays / f"{name}.npy", np.vstack([values, values[:1]]))
    asked = ("fit", "docs", "--vectors", strays, "--set", "l2=1", "--out", tmp_path / "m", "-q")
    said = refused(call(place, *asked))
    assert "'stray', which is not in the corpus" in said
    assert "--skip-unknown" in said
    run(place, *asked, "--skip-unknown")


@pytest.mark.parametrize("command", ["compare docs", "features docs --out f", "index docs --out i", "fit docs --out m"])
def test_an_embedder_given_twice_is_refused(place: Path, command: str) -> None:
    told = refused(call(place, *command.split(), "--vectors", "vectors", "--vectors", place / "vectors"))
    assert "vectors is given twice; each embedder counts once. Name it once." in told
    told = refused(call(place, *command.split(), "--embed", "lsa", "--embed", "lsa:8"))
    assert "--embed lsa is given twice" in told


def test_the_service_finds_candidates_as_deep_in_either_list_as_in_training(place: Path, tmp_path: Path) -> None:
    depths = ("--top", 6, "--vector-top", 3)
    run(place, "fit", "docs", "--embed", "lsa", "--method", "single", "--out", tmp_path / "m", *depths, "-q")
    run(place, "index", "docs", "--embed", "lsa", "--out", tmp_path / "i", "-q")
    model, lookup = LoadedModel.from_folder(tmp_path / "m"), Lookup(load_index(tmp_path / "i"))
    for text in ("apple jam", "pear tree", "jam"):
        found = json.loads(run(place, "search", tmp_path / "i", text, "--model", tmp_path / "m", "--json"))
        ours = lookup.candidates(Query(text=text), None, model)
        assert sorted(ours.document_ids or ()) == sorted(each["document"] for each in found)
        ranked = lookup.found(model, ours, 100).documents
        assert [each.id for each in ranked] == [each["document"] for each in found]
        assert len(lookup.candidates(Query(text=text), 100, model)) == 1
        assert lookup.candidates(Query(text=text), 100, model).document_ids == ours.document_ids
        fewer = lookup.candidates(Query(text=text), 1, model).document_ids or ()
        assert 1 <= len(fewer) <= 4
    words, similar = (run_columns(ours.feature_names)[place] for place in (0, 1))
    assert np.count_nonzero(ours.features[:, words.reciprocal_rank]) == 6
    assert np.count_nonzero(ours.features[:, similar.reciprocal_rank]) == 3
    forgotten = tmp_path / "forgotten"
    save(load(tmp_path / "m"), forgotten)
    usual = lookup.candidates(Query(text="jam"), None, LoadedModel.from_folder(forgotten))
    assert usual.document_ids == lookup.candidates(Query(text="jam"), 100).document_ids
    assert len(usual.document_ids or ()) > len(ours.document_ids or ())


def test_fusing_a_collection_has_the_vectors_as_a_run_of_their_own(place: Path, tmp_path: Path) -> None:
    words = ("fuse", "--collection", "docs", "--folds", 3, "--top", 5, "--method", "rrf", "--measures", "map", "--json")
    plain = json.loads(run(place, *words, "--keep-runs", tmp_path / "words"))
    given = json.loads(run(place, *words, "--keep-runs", tmp_path / "runs", "--vectors", "vectors"))
    assert given["runs"] == [*plain["runs"], "vectors"]
    for name in plain["runs"]:
        assert (tmp_path / "runs" / f"{name}.trec").read_text() == (tmp_path / "words" / f"{name}.trec").read_text()
    kept = read_run(tmp_path / "runs" / "vectors.trec")
    assert {len(found) for found in kept.scores.values()} == {5}, "as deep as the others"
    both = read_vectors(place / "vectors")
    assert both.queries is not None
    query, documents = both.queries.values[0], both.documents.values
    cosines = documents @ query / np.linalg.norm(documents, axis=1) / np.linalg.norm(query)
    best = [both.documents.ids[row] for row in np.argsort(-cosines)[:5]]
    assert list(kept.scores[both.queries.ids[0]]) == best
    # On its own list, as `evaluate` measures the file.
    alone = json.loads(run(place, "evaluate", "docs/qrels.txt", tmp_path / "runs" / "vectors.trec", "--json"))
    assert given["methods"]["run vectors"]["mean"]["map"] == alone["mean"]["map"] > 0.5
    assert given["methods"]["run bm25"]["mean"] == plain["methods"]["run bm25"]["mean"]


def test_fusing_a_collection_embeds_it_by_name(place: Path) -> None:
    words = ("fuse", "--collection", "docs", "--folds", 3, "--top", 5, "--method", "rrf", "--json")
    assert "run vectors" in json.loads(run(place, *words, "--embed", "lsa"))["methods"]


def test_vectors_to_fuse_belong_to_a_collection(place: Path) -> None:
    for option, value in (("--vectors", "vectors"), ("--embed", "lsa")):
        said = refused(call(place, "fuse", "a.trec", "b.trec", option, value, "--out", "new"))
        assert f"{option} makes a run from a text collection; name the collection with --collection." in said


# An index from anybody names an address


@pytest.fixture
def theirs(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """An embedder behind an address that a model, `m`, and an index, `i`, name; what it was asked so far is forgotten.

    Nothing that it answered is kept, so that it would have to be asked.
    """
    with embedding_service() as server:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "before"))
        for command, name in (("fit", "m"), ("index", "i")):
            fixed = ("--set", "l2=1") if command == "fit" else ()
            run(place, command, "docs", "--embed", server.address, *fixed, "--out", tmp_path / name, "-q")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv(KEY, "sesame-77")
        server.asked, server.keys = [], []
        _started.cache_clear()
        yield server
        _started.cache_clear()


def test_an_address_that_an_index_names_is_not_asked_unless_the_user_names_it_too(
    theirs: Service, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = ("search", tmp_path / "i", "apple jam", "--model", tmp_path / "m", "--json")
    for others in ("", "https://127.0.0.1:9", f"{theirs.origin}0", f"{theirs.origin}/v2/embeddings", "lsa,static"):
        monkeypatch.setenv(ALLOW, others)
        said = refused(call(place, *search))
        assert f"The index names the embedder '{theirs.address}'" in said
        assert f"name it too, with --embed {theirs.address}, or in the environment variable {ALLOW}." in said
        assert "sesame" not in said
    assert theirs.asked == []

    monkeypatch.delenv(ALLOW)
    named = json.loads(run(place, *search, "--embed", theirs.address))
    assert "apple jam" in [text for batch in theirs.asked for text in batch]
    assert set(theirs.keys) == {"Bearer sesame-77"}
    for allowed in (theirs.origin, f"{theirs.origin}/", f" lsa, {theirs.address}", theirs.address.split("#")[0]):
        monkeypatch.setenv(ALLOW, allowed)
        assert json.loads(run(place, *search)) == named


def test_the_key_is_for_the_first_address_that_is_allowed(
    theirs: Service, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = ("search", tmp_path / "i", "apple jam", "--model", tmp_path / "m", "--json")
    monkeypatch.setenv(ALLOW, f"https://api.example.com,{theirs.origin}")
    run(place, *search)
    assert set(theirs.keys) == {None}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "again"))
    _started.cache_clear()
    monkeypatch.setenv(ALLOW, f"{theirs.origin},https://api.example.com")
    run(place, *search)
    assert set(theirs.keys) == {None, "Bearer sesame-77"}


def test_ranking_files_asks_no_embedder(theirs: Service, place: Path, tmp_path: Path) -> None:
    run(place, "features", "docs", "--embed", theirs.address, "--out", tmp_path / "f", "-q")
    theirs.asked = []
    run(place, "rank", tmp_path / "m", tmp_path / "f" / "S1.txt")
    assert theirs.asked == []


@pytest.mark.parametrize("name", ["static:/etc", "sentence-transformers:anybody/model"])
def test_a_path_or_a_model_that_an_index_names_is_not_opened(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = with_vectors(
        index_of(collection_from(place / "docs"), Retrieval()),
        read_vectors(place / "vectors"),
        embedder={"name": name, "dimension": 1, "probe": [1.0]},
    )
    with pytest.raises(DataError, match=re.escape(f"The index names the embedder {name!r}")):
        query_vector(made, "apple")
    monkeypatch.setenv(ALLOW, name)
    with pytest.raises(DataError, match=r"static:/etc: |is not installed|cannot be loaded"):
        query_vector(made, "apple")
