"""Approximate search by vectors, by usearch: what it finds, what is kept of it, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.collections import Document
from querywise.data.query_table import QueryTable
from querywise.data.vectors import CollectionVectors, as_vectors
from querywise.errors import DataError, Hint, ModelFileError
from querywise.retrieval.approximate import Graph
from querywise.retrieval.features import candidates_for
from querywise.retrieval.index import build_index, load_index, save_index
from querywise.retrieval.indexed_vectors import vectors_of, with_usearch, with_vectors
from querywise.retrieval.reading import Retrieval, read_judged
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.arrays import Bytes, Floats, Ints, Singles
from tests.commands import output, refused
from tests.commands import run as call
from tests.support.vectors import DIMENSION, collection_with_vectors, indexed, vectors
from tests.worlds import examples


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    if find_spec("usearch") is None and "without" not in request.node.name:
        assert os.environ.get("CI") != "true", "a machine that builds must have usearch"
        pytest.skip("needs usearch: pip install 'querywise[usearch]'")


@pytest.fixture(autouse=True)
def _hints_are_no_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Hint)
        yield


def queries(count: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(size=(count, DIMENSION))


def test_what_it_finds_has_the_similarities_and_the_order_of_exact_search() -> None:
    exact, asked = vectors(), np.vstack([queries(150), np.zeros((1, DIMENSION)), vectors().values[10:11]])
    found = exact.with_graph().search(asked, top=12)
    for own, best in zip(found, exact.search(asked, top=12), strict=True):  # so few that nothing is missed
        assert own.documents.tolist() == best.documents.tolist()
        assert own.scores.tolist() == best.scores.tolist()
    assert len(found[-2].documents) == 0
    assert found[-1].documents[:11].tolist() == [10, *range(20, 30)]  # equals in the order of documents


def test_one_query_gets_what_it_gets_among_others() -> None:
    made, asked = vectors().with_graph(), queries(9)
    together, alone = made.search(asked, top=5), [made.search(each[None, :], top=5)[0] for each in asked]
    for first, second in zip(together, alone, strict=True):
        assert first.documents.tolist() == second.documents.tolist()
        assert first.scores.tolist() == second.scores.tolist()


def test_the_same_vectors_give_the_same_graph_and_large_ones_that_of_their_directions() -> None:
    first, large = vectors(), vectors()
    large = VectorIndex(large.values * 1e20, large.lengths * 1e20)
    graphs = [each.with_graph().graph for each in (first, vectors(), large)]
    contents = [graph.content for graph in graphs if graph is not None]
    assert contents[0].tobytes() == contents[1].tobytes()
    assert (
        large.with_graph().search(queries(1), top=3)[0].documents.tolist()
        == first.search(queries(1), top=3)[0].documents.tolist()
    )


class EveryOther(Graph):
    """Finds every other one of the best documents."""

    exact: VectorIndex

    def near(self, queries: Singles, top: int) -> list[Ints]:
        return [each.documents[1::2] for each in self.exact.search(queries.astype(np.float64), top=2 * top)]


def half_found(exact: VectorIndex) -> VectorIndex:
    graph = EveryOther(np.zeros(0, np.uint8), DIMENSION)
    graph.exact = exact
    return replace(exact, graph=graph)


def test_recall_is_the_share_of_the_best_and_equals_count_alike() -> None:
    values = queries(300, seed=4)
    distinct = VectorIndex(values, np.linalg.norm(values, axis=1))
    assert half_found(distinct).recall(queries(250), top=8) == (0.5, 8, 100)
    made, zeros = vectors().with_graph(), np.zeros((2, DIMENSION))
    assert made.recall(np.vstack([queries(4), zeros]), top=8) == (1.0, 8, 4)
    assert made.recall(zeros, top=8) == (1.0, 8, 0)
    alike = np.asarray(vectors().values[10:11], np.float64)  # any five of eleven are the best five
    assert half_found(vectors()).recall(alike, top=5).share == 1.0


def test_vectors_of_zeros_alone_find_nothing() -> None:
    made = VectorIndex(np.zeros((3, 4)), np.zeros(3)).with_graph()
    assert [len(each.documents) for each in made.search(np.ones((2, 4)), top=2)] == [0, 0]


def test_an_index_keeps_its_graph_and_tells_the_recall_whenever_it_is_used(tmp_path: Path) -> None:
    with pytest.warns(Hint, match=r"by usearch: recall 1\.0000 of the best 50 .* on 58 documents as queries"):
        made = with_usearch(indexed())
    save_index(made, tmp_path / "index")
    kept = load_index(tmp_path / "index")
    table = QueryTable(("q",), texts=("common",), vectors=queries(1))
    with pytest.warns(Hint, match=r"by usearch: recall 1\.0000 of the best 50"):
        again = candidates_for(kept, table, top=5, vector_top=5)
    exact = candidates_for(indexed(), table, top=5, vector_top=5)
    assert again.document_ids == exact.document_ids
    assert again.features.tobytes() == exact.features.tobytes()
    graph = vectors_of(pickle.loads(pickle.dumps(kept)))
    assert graph is not None
    assert graph.search(queries(2), top=3)[0].documents.tolist() == indexed_search(queries(2))


def indexed_search(asked: Floats) -> list[int]:
    exact = vectors_of(indexed())
    assert exact is not None
    return [int(each) for each in exact.search(asked, top=3)[0].documents]


def test_other_vectors_take_the_graph_away() -> None:
    made = with_usearch(indexed())
    ids = [f"d{each}" for each in range(60)]
    other = vectors_of(with_vectors(made, CollectionVectors(as_vectors(ids, queries(60, seed=5)))))
    assert other is not None
    assert other.graph is None


def test_a_graph_of_other_vectors_is_refused() -> None:
    made, other = with_usearch(indexed()), with_usearch(indexed(seed=7))
    mixed = replace(made, extra=made.extra | {"vectors.usearch": other.extra["vectors.usearch"]})
    with pytest.raises(ModelFileError, match=r"it was made from other vectors\. Rebuild the index"):
        vectors_of(mixed)
    nameless = replace(made, notes={})
    with pytest.raises(ModelFileError, match="does not match the stored one"):
        vectors_of(nameless)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(("array", "value"), [("vectors", np.nan), ("vectors", 1e9), ("vectors.lengths", np.nan)])
def test_vectors_that_are_not_finite_or_of_other_lengths_are_refused(array: str, value: float, graph: bool) -> None:
    made = with_usearch(indexed()) if graph else indexed()
    changed = np.array(made.extra[array], dtype=np.float64)
    changed.flat[17] = value
    with pytest.raises(ModelFileError, match=r"do not fit its documents\. Rebuild the index"):
        vectors_of(replace(made, extra=made.extra | {array: changed}))


def test_a_file_with_one_bit_changed_is_refused(tmp_path: Path) -> None:
    save_index(with_usearch(indexed()), tmp_path / "index")
    file = tmp_path / "index" / "extra.vectors.usearch.npy"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"usearch\.npy: missing or damaged"):
        load_index(tmp_path / "index")


def _content() -> Bytes:
    graph = vectors().with_graph().graph
    assert graph is not None
    return graph.content


_LINKS_AT = 8 + 392 * 2 * DIMENSION  # the head and what follows the vectors of the 392 documents that have one

CRAFTED: dict[str, tuple[str, Callable[[Bytes], Bytes]]] = {
    "short": ("its number of documents", lambda content: content[:100]),
    "cut": ("cut short or has more", lambda content: content[:-4]),
    "longer": ("cut short or has more", lambda content: np.append(content, np.uint8(0))),
    "documents": ("its number of documents", lambda content: _with(content, 0, 7)),
    "magic": ("its head", lambda content: _with(content, _LINKS_AT, 0)),
    "metric": ("its head", lambda content: _with(content, _LINKS_AT + 13, 105)),
    "entry": ("its sizes", lambda content: _with(content, _LINKS_AT + 64 + 34, 255)),
    "height": ("its levels", lambda content: _with(content, _LINKS_AT + 64 + 24, 9)),
    "level": ("its levels|cut short", lambda content: _with(content, _LINKS_AT + 104, 63)),
    "number": ("document 0 is inconsistent", lambda content: _with(content, _LINKS_AT + 104 + 784, 1)),
    "count": ("document 0 is inconsistent", lambda content: _with(content, _LINKS_AT + 104 + 784 + 10, 33)),
    "target": ("document 0 is inconsistent", lambda content: _with(content, _LINKS_AT + 104 + 784 + 17, 255)),
    "infinite": ("not finite", lambda content: _with(content, 9, 0x7C)),
}


def _with(content: Bytes, place: int, value: int) -> Bytes:
    changed = content.copy()
    changed[place] = value
    return changed


@pytest.mark.parametrize("what", CRAFTED)
def test_a_graph_that_was_made_up_is_refused(what: str) -> None:
    exact, (why, change) = vectors(), CRAFTED[what]
    with pytest.raises(ModelFileError, match=why):
        Graph.checked(change(_content()), exact.of, exact.lengths, DIMENSION)


def test_a_graph_of_another_version_of_usearch_is_refused() -> None:
    exact, content = vectors(60), _small().copy()
    version = bytes(content).index(b"usearch") + len(b"usearch")
    content[version] += 1
    with pytest.raises(ModelFileError, match="the installed usearch does not read it"):
        Graph.checked(content, exact.of, exact.lengths, DIMENSION)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 255)), min_size=1, max_size=4))
def test_whatever_is_changed_it_is_refused_or_answers(changes: list[tuple[int, int]]) -> None:
    exact, content = vectors(60), _small().copy()
    for place, value in changes:
        content[place % len(content)] = value
    try:
        graph = Graph.checked(content, exact.of, exact.lengths, DIMENSION)
    except ModelFileError:
        return
    for own in replace(exact, graph=graph).search(queries(3), top=60):
        assert set(own.documents.tolist()) <= set(range(60))


def _small() -> Bytes:
    if not _KEPT:
        graph = vectors(60).with_graph().graph
        assert graph is not None
        _KEPT.append(graph.content)
    return _KEPT[0]


_KEPT: list[Bytes] = []


def test_a_judged_set_found_by_it_is_the_same_and_its_recall_is_told(tmp_path: Path) -> None:
    folder, kept = collection_with_vectors(tmp_path)
    with pytest.warns(Hint, match=r"recall 1\.0000 of the best 4 that exact search finds, on \d+ of the queries"):
        found = read_judged(folder, vectors=kept, vector_top=4, vector_search="usearch")
    exact = read_judged(folder, vectors=kept, vector_top=4)
    assert found.candidates.features.tobytes() == exact.candidates.features.tobytes()
    assert found.candidates.document_ids == exact.candidates.document_ids


def test_the_command_line_tells_the_recall_wherever_it_searches(tmp_path: Path) -> None:
    collection_with_vectors(tmp_path)
    how = ("--embed", "lsa", "--vector-search", "usearch", "-q")
    told = "hint: Vectors are searched approximately, by usearch: recall 1.0000 of the best"
    made = call(tmp_path, "fit", "docs", *how, "--method", "ranksvm", "--out", "m")
    assert made.stderr.count(told) == 2
    assert "on 20 of the queries" in made.stderr
    assert told in call(tmp_path, "index", "docs", *how, "--out", "i").stderr
    found = call(tmp_path, "search", "i", "apple jam", "--model", "m", "--json")
    assert told in found.stderr
    assert told not in call(tmp_path, "search", "i", "apple jam").stderr  # by words alone
    output(call(tmp_path, "index", "docs", "--embed", "lsa", "--out", "exact", "-q"))
    exact = output(call(tmp_path, "search", "exact", "apple jam", "--model", "m", "--json"))
    assert json.loads(found.stdout) == json.loads(exact)
    wrong = refused(call(tmp_path, "index", "docs", "--vector-search", "usearch", "--out", "j"))
    assert "--vector-search usearch is for documents with vectors; name them with --vectors" in wrong


def test_without_usearch_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(DataError, match=r"not installed: pip install 'querywise\[usearch\]'"):
        Retrieval(vectors=(Path("vectors"),), vector_search="usearch")
    with pytest.raises(DataError, match=r"pip install 'querywise\[usearch\]'"):
        with_usearch(indexed())


def test_without_vectors_or_with_another_name_it_is_refused() -> None:
    with pytest.raises(DataError, match="vector_search='usearch' is for documents with vectors"):
        Retrieval(vector_search="usearch")
    with pytest.raises(DataError, match="vector_search='faiss': expected exact or usearch"):
        Retrieval(vectors=(Path("vectors"),), vector_search="faiss")
    if find_spec("usearch") is not None:
        with pytest.raises(DataError, match="has no vectors"):
            with_usearch(build_index([Document("a", "", "text")]))
