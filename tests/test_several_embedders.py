"""Vectors of several embedders side by side: their shares, what they find, and commands and models that use them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from querywise import AdaptedVectors, load, read_judged, save
from querywise.contracts.answers import adapter_of
from querywise.data.collections import Collection
from querywise.data.folds import make_folds
from querywise.data.judged import Judged
from querywise.data.vectors import CollectionVectors, as_vectors
from querywise.errors import DataError, ModelFileError
from querywise.exports.writing import transform_files
from querywise.retrieval.adapted_vectors import Kind
from querywise.retrieval.adapting import Adaptation
from querywise.retrieval.embedders.named import ALLOW
from querywise.retrieval.embedders.remote import KEY
from querywise.retrieval.embedding import embedder_names, query_embedders
from querywise.retrieval.features import ADAPTED, judged_candidates
from querywise.retrieval.index import Index, load_index, save_index
from querywise.retrieval.indexed_vectors import side_by_side, vectors_of, with_vectors
from querywise.retrieval.lists import PLAIN, SIMILARITY, VECTORS
from querywise.retrieval.reading import Retrieval, indexed_text
from querywise.retrieval.side_by_side import queries_of, shares_tried
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.arrays import Floats
from querywise.service.loaded_model import LoadedModel
from querywise.service.lookup import Lookup
from querywise.service.schema import Query
from tests.commands import output, refused, reproduce
from tests.commands import run as call
from tests.embedding import embedding_service
from tests.support.adapting import DIMENSION, made
from tests.support.vectors import collection_with_vectors

OTHER = 5  # numbers of the second embedder's vectors


def second(queries: int, documents: int, *, useful: bool) -> tuple[Floats, Floats]:
    """Vectors by another embedder: where query i and document i are alike, or of no use."""
    chance = np.random.default_rng(11)
    found = chance.normal(size=(documents, OTHER))
    own = found[:queries] + 0.3 * chance.normal(size=(queries, OTHER))
    return (own if useful else chance.normal(size=own.shape)), found


def world(*, useful: bool = True) -> tuple[Collection, Index, Judged]:
    """The collection of the tests on adapting, with vectors of a second embedder."""
    collection, index = made()
    table = collection.queries
    assert table is not None
    assert table.vectors is not None
    queries, documents = second(len(table), len(index), useful=useful)
    other = with_vectors(index, CollectionVectors(as_vectors(list(index.document_ids), documents)))
    both = side_by_side(index, [index, other])
    collection = replace(collection, queries=replace(table, vectors=queries_of([table.vectors, queries])))
    return collection, both, judged_candidates(collection, both, top=10, vector_top=10)[0]


def adaptation(of: tuple[Collection, Index, Judged], kind: Kind) -> Adaptation:
    return Adaptation(of[0], of[1], kind, top=10, vector_top=10)


def tables(*, useful: bool = True) -> tuple[Floats, Floats, dict[str, dict[str, float]]]:
    """Queries and documents by two embedders, at other lengths, and judgments."""
    chance = np.random.default_rng(5)
    first = chance.normal(size=(200, 9))
    own = first[:120] + 0.9 * chance.normal(size=(120, 9))
    queries, documents = second(120, 200, useful=useful)
    judgments = {str(row): {str(row): 1.0, str((row + 1) % 120): 1.0} for row in range(120)}
    return np.hstack([own, 7 * queries]), np.hstack([3 * first, documents]), judgments


def test_an_embedder_with_the_whole_share_is_as_one_alone_to_the_last_bit() -> None:
    queries, documents, judgments = tables()
    for kind in ("linear", "by-query", "auto"):
        one = AdaptedVectors(kind, l2=0.01, gate=False).fit(queries[:, :9], documents[:, :9], judgments)
        both = AdaptedVectors(kind, l2=0.01, gate=False, blocks=(9, OTHER), shares=(1, 0)).fit(
            queries, documents, judgments
        )
        moved = both.transform(queries)
        assert np.array_equal(moved[:, :9], one.transform(queries[:, :9]))
        assert not moved[:, 9:].any()
        assert both.gain_ == one.gain_
    alone, beside = VectorIndex.side_by_side(documents, (9, OTHER)), documents[:, :9]
    plain = VectorIndex(beside, np.linalg.norm(beside, axis=1))
    for mine, theirs in zip(
        alone.search(both.with_shares(queries), top=20), plain.search(queries[:, :9], top=20), strict=True
    ):
        assert np.array_equal(mine.documents, theirs.documents)
        assert np.allclose(mine.scores, theirs.scores, atol=1e-6)


def test_similarities_add_by_the_shares() -> None:
    queries, documents, judgments = tables()
    index = VectorIndex.side_by_side(documents, (9, OTHER))
    adapter = AdaptedVectors("off", blocks=(9, OTHER), shares=(0.3, 0.7)).fit(queries, documents, judgments)
    every = np.arange(200)
    for query in queries[:20]:
        parts = [
            VectorIndex(documents[:, own], np.linalg.norm(documents[:, own], axis=1)).similarities(query[own], every)
            for own in (slice(0, 9), slice(9, None))
        ]
        found = index.similarities(adapter.transform(query), every)
        assert np.allclose(found, 0.3 * parts[0] + 0.7 * parts[1], atol=1e-6)
        best = index.search(adapter.transform(query[None]), top=200)[0]
        assert np.array_equal(np.sort(best.documents), every)
        assert np.allclose(best.scores, np.sort(found)[::-1])


def test_a_useless_embedder_has_no_share_and_a_useful_one_has() -> None:
    for useful in (False, True):
        adapter = AdaptedVectors("off", blocks=(9, OTHER)).fit(*tables(useful=useful))
        assert (adapter.shares_[1] > 0.2) is useful
        assert useful or adapter.shares_ == (1.0, 0.0)
        assert not adapter.adapts
    for count, size in ((2, 11), (3, 21), (4, 35)):
        grid = shares_tried(count)
        assert len(set(grid)) == len(grid) == size
        assert np.allclose(np.sum(grid, axis=1), 1)
        assert all(max(each) == 1 for each in grid[:count])


def test_training_queries_are_not_moved_by_their_own_judgments() -> None:
    """Where what is relevant is drawn at random, only its own judgments bring a query nearer to it."""
    queries, documents, _ = tables()
    relevant = np.random.default_rng(2).permutation(120)
    judgments = {str(row): {str(document): 1.0} for row, document in enumerate(relevant.tolist())}
    adapter = AdaptedVectors("by-query", gamma=4.0, l2=1e-3, gate=False, blocks=(9, OTHER), shares=(0.5, 0.5))
    crossed, own = adapter.fit_transform(queries, documents, judgments), adapter.transform(queries)
    index = VectorIndex.side_by_side(documents, (9, OTHER))
    near = [
        np.mean([index.similarities(each, relevant[[row]])[0] for row, each in enumerate(table)])
        for table in (adapter.with_shares(queries), crossed, own)
    ]
    assert near[1] < near[0] + 0.05
    assert near[2] > near[0] + 0.3


def test_what_is_stored_and_exported_gives_the_same_vectors(tmp_path: Path) -> None:
    queries, documents, judgments = tables()
    for kind, shares in (("off", (0.5, 0.5)), ("by-query", None), ("linear", (1.0, 0.0)), ("linear", (0.25, 0.75))):
        adapter = AdaptedVectors(kind, l2=0.01, gate=False, blocks=(9, OTHER), shares=shares).fit(  # type: ignore[arg-type]
            queries, documents, judgments
        )
        save(adapter, tmp_path / "adapter")
        again: object = load(tmp_path / "adapter")
        assert isinstance(again, AdaptedVectors)
        assert np.array_equal(again.transform(queries), adapter.transform(queries))
        for name, content in transform_files(adapter).items():
            (tmp_path / name).write_bytes(content)
        np.save(tmp_path / "queries.npy", np.vstack([queries, np.zeros((1, queries.shape[1]))]))
        script = [sys.executable, str(tmp_path / "transform.py")]
        subprocess.run([*script, str(tmp_path / "queries.npy"), str(tmp_path / "moved.npy")], check=True)
        moved = np.load(tmp_path / "moved.npy")
        assert np.allclose(moved[:-1], adapter.transform(queries), atol=1e-6)
        assert not moved[-1].any()
    shift = adapter.explain(queries[0], documents)
    assert 0 < shift.cosine < 1
    assert shift.gained[0][1] > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"blocks": (14,)}, "two whole numbers or more"),
        ({"blocks": (9, 0)}, "each from 1 up"),
        ({"blocks": (9, 6)}, "these are 15 numbers; the document vectors have 14"),
        ({"shares": (0.5, 0.5)}, "name blocks, too"),
        ({"blocks": (9, 5), "shares": (0.5, 0.4)}, "1 in all"),
        ({"blocks": (9, 5), "shares": (1.5, -0.5)}, "from 0 up"),
        ({"blocks": (9, 5), "shares": (1.0,)}, "expected 2 numbers"),
    ],
)
def test_wrong_blocks_and_shares_are_refused(given: dict[str, tuple[float, ...]], said: str) -> None:
    with pytest.raises(DataError, match=said):
        AdaptedVectors(**given).fit(*tables())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["off", "auto"])
def test_shares_are_chosen_in_each_fold_on_its_training_part_alone(kind: Kind) -> None:
    """A planted leak: outside the training part the second embedder alone finds what is said to be relevant."""
    of = world()
    fold = make_folds(of[2])[0]
    found = adaptation(of, kind).fold(fold)
    outside = {*fold.valid.query_ids, *fold.test.query_ids}
    collection, index, _ = of
    vectors = vectors_of(index)
    assert collection.queries is not None
    assert collection.queries.vectors is not None
    assert vectors is not None
    columns, other = vectors.by_embedder[1]
    place = {query: row for row, query in enumerate(collection.queries.ids)}
    nearest = {
        query: other.search(collection.queries.vectors[[place[query]]][:, columns], top=1)[0].documents[0]
        for query in outside
    }
    planted = {
        each.query: each._replace(document=index.document_ids[int(nearest[each.query])])
        for each in collection.judgements
        if each.query in outside
    }
    kept = tuple(each for each in collection.judgements if each.query not in outside)
    changed = replace(collection, judgements=kept + tuple(planted.values()))
    again = adaptation((changed, index, of[2]), kind).fold(fold)
    for mine, theirs in zip(found, again, strict=True):
        assert np.array_equal(mine.candidates.features, theirs.candidates.features)


def test_every_embedder_has_its_own_similarity_and_lists_are_by_the_shares() -> None:
    of = world()
    fold = make_folds(of[2])[0]
    kinds: tuple[tuple[Kind, tuple[str, ...]], ...] = (("off", ()), ("by-query", (PLAIN,)))
    for kind, plain in kinds:
        train, adapter = adaptation(of, kind).learned(fold.train)
        names = train.feature_names
        assert names is not None
        start = names.index(SIMILARITY)
        assert names[start : start + 3 + len(plain)] == (SIMILARITY, *plain, "similarity.1", "similarity.2")
        combined, first, other = (
            train.candidates.features[:, train.candidates.column_of(each)]
            for each in (plain[0] if plain else SIMILARITY, "similarity.1", "similarity.2")
        )
        assert np.allclose(combined, adapter.shares_[0] * first + adapter.shares_[1] * other, atol=1e-6)
        assert [run.name for run in train.runs] == ["bm25", VECTORS, *([ADAPTED] if plain else [])]


def test_an_index_of_several_embedders_is_kept_and_checked(tmp_path: Path) -> None:
    _, index, _ = world()
    save_index(index, tmp_path / "index")
    again = load_index(tmp_path / "index")
    ours, kept = vectors_of(index), vectors_of(again)
    assert ours is not None
    assert kept is not None
    assert kept.blocks == ours.blocks == (DIMENSION, OTHER)
    asked = np.random.default_rng(0).normal(size=(3, DIMENSION + OTHER))
    for mine, theirs in zip(ours.search(asked, top=5), kept.search(asked, top=5), strict=True):
        assert np.array_equal(mine.documents, theirs.documents)
    with pytest.raises(DataError, match="came from files"):
        embedder_names(again)
    assert embedder_names(again, ["static", "lsa"]) == ["static", "lsa"]
    with pytest.raises(DataError, match="1 embedders are named; the vectors of this index are of 2"):
        embedder_names(again, ["static"])
    for notes in ({"blocks": [3, 4]}, {"blocks": [DIMENSION + OTHER]}, {"blocks": "x"}, {"embedders": None}):
        with pytest.raises(ModelFileError, match="do not fit"):
            vectors_of(replace(index, notes={**index.notes, **notes}))
    stretched = {**index.extra, "vectors": 2 * index.extra["vectors"]}
    with pytest.raises(ModelFileError, match="do not fit"):
        vectors_of(replace(index, extra=stretched))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    collection_with_vectors(folder)
    return folder


def run(folder: Path, *words: object) -> str:
    return output(call(folder, *words))


BOTH = ("--vectors", "vectors", "--embed", "lsa")


def test_a_model_of_two_embedders_is_compared_fitted_searched_and_served(place: Path, tmp_path: Path) -> None:
    found = json.loads(run(place, "compare", "docs", *BOTH, "--methods", "vectors,single", "--json", "-q"))
    assert found["methods"]["vectors"]["mean"]["map"] > 0.4
    run(place, "fit", "docs", *BOTH, "--method", "single", "--out", tmp_path / "m", "-q")
    run(place, "index", "docs", *BOTH, "--out", tmp_path / "i", "-q")
    ranker = load(tmp_path / "m")
    adapter: object = adapter_of(ranker)
    assert isinstance(adapter, AdaptedVectors)
    assert adapter.blocks is not None
    assert adapter.blocks[0] == 6
    model, lookup = LoadedModel.from_folder(tmp_path / "m"), Lookup(load_index(tmp_path / "i"))
    lookup.check(model)
    vector = np.ones(sum(adapter.blocks)).tolist()
    assert lookup.candidates(Query(id="q", text="apple jam", vector=vector), None, model).document_ids
    said = refused(call(place, "search", tmp_path / "i", "apple", "--model", tmp_path / "m"))
    assert "came from files" in said


def test_two_embedders_of_texts_answer_a_query(place: Path, tmp_path: Path) -> None:
    with embedding_service() as service:
        two = ("--embed", "lsa:4", "--embed", service.address)
        run(place, "fit", "docs", *two, "--method", "single", "--out", tmp_path / "m", "-q")
        run(place, "index", "docs", *two, "--out", tmp_path / "i", "-q")
        asked = ("search", tmp_path / "i", "apple jam", "--model", tmp_path / "m")
        found = json.loads(run(place, *asked, *two, "--json"))
        assert "jam-apple" in {each["document"] for each in found}
        assert "an index may come from anybody" in refused(call(place, *asked))
        assert "1 embedders are named" in refused(call(place, *asked, "--embed", "lsa:4"))
        model, lookup = LoadedModel.from_folder(tmp_path / "m"), Lookup(load_index(tmp_path / "i"), embed=two[1::2])
        lookup.check(model)
        assert lookup.candidates(Query(id="q", text="apple jam"), None, model).document_ids
    run(place, "index", "docs", "--embed", "lsa:4", "--out", tmp_path / "one", "-q")
    said = refused(call(place, "search", tmp_path / "one", "apple", "--model", tmp_path / "m"))
    assert "was trained with vectors of" in said


def test_an_adapter_of_two_embedders_is_trained_alone(place: Path, tmp_path: Path) -> None:
    told = json.loads(run(place, "adapt", "docs", *BOTH, "--out", tmp_path / "a", "--json", "-q"))
    assert len(told["shares"]) == 2
    np.save(tmp_path / "queries.npy", np.ones((2, told["dimension"]), np.float32))
    run(place, "adapt", tmp_path / "a", "--apply", tmp_path / "queries.npy", "--out", tmp_path / "moved.npy", "-q")
    assert np.load(tmp_path / "moved.npy").shape == (2, told["dimension"])


def test_several_embedders_are_read_in_python(place: Path) -> None:
    judged = read_judged(place / "docs", vectors=place / "vectors", embed=["lsa"])
    assert judged.feature_names is not None
    assert {"similarity", "similarity.1", "similarity.2"} <= set(judged.feature_names)
    with pytest.raises(DataError, match="given twice"):
        read_judged(place / "docs", embed=["lsa", "lsa:8"])


def test_vectors_that_do_not_belong_to_the_collection_are_refused(place: Path, tmp_path: Path) -> None:
    for name, change in (("ids", "ids"), ("short", "dimension")):
        (tmp_path / name).mkdir()
        for part in ("documents", "queries"):
            values, ids = np.load(place / "vectors" / f"{part}.npy"), (place / "vectors" / f"{part}.json").read_text()
            if change == "ids" and part == "documents":
                ids = ids.replace("tree-apple", "tree-pears")
            if change == "dimension" and part == "queries":
                values = values[:, :4]
            np.save(tmp_path / name / f"{part}.npy", values)
            (tmp_path / name / f"{part}.json").write_text(ids)
    asked = ("compare", "docs", "--vectors", "vectors", "--vectors")
    assert "have no vector here; the first is 'tree-apple'" in refused(call(place, *asked, tmp_path / "ids"))
    assert "the vectors have 4 numbers" in refused(call(place, *asked, tmp_path / "short"))
    for program, command in ((call, "fuse --collection docs --out f.trec"), (reproduce, "vectors docs --out r")):
        assert "takes the vectors of one embedder" in refused(program(place, *command.split(), *BOTH))


def test_the_key_is_sent_to_one_origin_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That of the first address that the operator names; an index that names another gets it nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(KEY, "sesame-77")
    folder, _ = collection_with_vectors(tmp_path)
    with embedding_service() as first, embedding_service() as second:
        monkeypatch.setenv(ALLOW, f"{second.origin},{first.origin}")
        retrieval = Retrieval(embed=(first.address, "lsa:2", second.address))
        _, index = indexed_text(folder, retrieval)
        query_embedders(index, retrieval.embed)
        assert set(first.keys) == {"Bearer sesame-77"}
        assert set(second.keys) == {None}
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
        query_embedders(index)  # those of the index alone: the first that is allowed
        assert second.keys[-1] == "Bearer sesame-77"
