from __future__ import annotations

from math import log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.collections import Document
from querywise.errors import DataError
from querywise.retrieval.bm25 import bm25, search
from querywise.retrieval.features import features_of
from querywise.retrieval.index import Index, build_index, load_index, save_index
from querywise.retrieval.scores import BM25, NAMES, Smoothing
from querywise.retrieval.words import Tokeniser
from querywise.runtime.arrays import Floats
from tests.worlds import examples

USUAL = Smoothing()


def plain_bm25(texts: list[str], query: str, smoothing: Smoothing) -> list[float]:
    documents = [text.split() for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for words in documents:
        score = 0.0
        for term in sorted(set(query.split()) & set(words)):
            df = sum(term in other for other in documents)
            idf = log(1 + (len(documents) - df + 0.5) / (df + 0.5))
            norm = 1 - smoothing.b + smoothing.b * len(words) / mean
            score += idf * words.count(term) * (smoothing.k1 + 1) / (words.count(term) + smoothing.k1 * norm)
        scores.append(score)
    return scores


def indexed(texts: list[str]) -> Index:
    """The first word of every text is its title."""
    pairs = [text.partition(" ") for text in texts]
    documents = [Document(f"D{i}", title, body) for i, (title, _, body) in enumerate(pairs)]
    return build_index(documents, Tokeniser(None, stop_words=False))


def found(index: Index, query: str, top: int = 100) -> list[int]:
    return [int(place) for place in search(index, query, top=top).documents]


def texts_of(words: str, most: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words.split()), max_size=most).map(" ".join)


COLLECTIONS = st.lists(texts_of("fig plum kiwi date nut", 6), min_size=1, max_size=12)
QUERIES = texts_of("fig plum kiwi date nut nowhere", 4)
SMOOTHINGS = st.just(USUAL) | st.builds(Smoothing, k1=st.floats(0, 5), b=st.floats(0, 1))


@settings(deadline=None)
@given(texts=COLLECTIONS, query=QUERIES, smoothing=SMOOTHINGS)
def test_every_document_has_its_plain_bm25(texts: list[str], query: str, smoothing: Smoothing) -> None:
    scores = bm25(indexed(texts), query, smoothing)
    np.testing.assert_allclose(scores, plain_bm25(texts, query, smoothing), rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(texts=COLLECTIONS, query=QUERIES, top=st.integers(1, 15), smoothing=SMOOTHINGS)
def test_the_best_are_those_that_sorting_all_scores_gives(
    texts: list[str], query: str, top: int, smoothing: Smoothing
) -> None:
    index = indexed(texts)
    scores = bm25(index, query, smoothing)
    expected = sorted((place for place in range(len(texts)) if scores[place] > 0), key=lambda place: -scores[place])
    best = search(index, query, top=top, smoothing=smoothing)
    assert best.documents.tolist() == expected[:top]
    assert best.scores.tolist() == scores[expected[:top]].tolist()


@settings(deadline=None, max_examples=examples(40))
@given(
    repeated=st.lists(st.tuples(texts_of("fig plum kiwi date nut", 4), st.integers(1, 60)), min_size=1, max_size=8),
    query=QUERIES,
    top=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_the_best_of_many_documents_are_found_wherever_they_stand(
    repeated: list[tuple[str, int]], query: str, top: int, seed: int
) -> None:
    texts = [text for text, times in repeated for _ in range(times)]
    index = indexed([texts[place] for place in np.random.default_rng(seed).permutation(len(texts))])
    scores = bm25(index, query, USUAL)
    expected = sorted(np.flatnonzero(scores).tolist(), key=lambda place: -scores[place])
    assert found(index, query, top) == expected[:top]


@settings(deadline=None, max_examples=examples(40))
@given(words=st.lists(st.sampled_from(["fig", "plum", "nut"]), min_size=1, max_size=12), top=st.integers(1, 15))
def test_documents_of_one_word_come_in_the_order_that_plain_scores_give(words: list[str], top: int) -> None:
    scores = plain_bm25(words, "fig plum", USUAL)
    expected = sorted((place for place, score in enumerate(scores) if score > 0), key=lambda place: -scores[place])
    assert found(indexed(words), "fig plum", top) == expected[:top]


@settings(deadline=None, max_examples=examples(40))
@given(texts=COLLECTIONS, query=QUERIES)
def test_the_score_that_ranks_is_the_feature_bm25(texts: list[str], query: str) -> None:
    index = indexed(texts)
    feature = features_of(index, query, np.arange(len(texts)))[:, NAMES.index(BM25)]
    np.testing.assert_allclose(feature, bm25(index, query, USUAL), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("top", [1, 7, 100, 400, 2_000])
@pytest.mark.parametrize("smoothing", [USUAL, Smoothing(k1=0.0), Smoothing(b=0.0), Smoothing(k1=1e307, b=1e-300)])
def test_the_best_of_many_with_equal_and_unequal_scores_are_found(top: int, smoothing: Smoothing) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in rng.zipf(1.5, rng.integers(0, 30)) if word < 50) for _ in range(1_000)]
    index = indexed(texts * 2)
    for query in ("w1", "w40 w1", "w3 w2 w9 w17 w30", " ".join(f"w{number}" for number in range(1, 50))):
        scores = bm25(index, query, smoothing)
        expected = [place for place in np.argsort(-scores, kind="stable").tolist() if scores[place] > 0][:top]
        best = search(index, query, top=top, smoothing=smoothing)
        assert best.documents.tolist() == expected
        assert best.scores.tobytes() == scores[expected].tobytes()


def test_of_equals_the_earlier_document_comes_first() -> None:
    index = indexed(["plum kiwi", "fig nut", "kiwi fig", "nut fig", "fig fig"])
    assert found(index, "fig") == [4, 1, 2, 3]
    assert found(index, "fig", top=2) == [4, 1]
    assert found(index, "fig", top=3) == [4, 1, 2]


def test_scores_fall_and_belong_to_their_documents() -> None:
    texts = ["fig", "fig plum", "plum plum kiwi", "kiwi"]
    best = search(indexed(texts), "fig plum")
    scores: Floats = np.array(plain_bm25(texts, "fig plum", USUAL))
    assert best.scores.tolist() == pytest.approx(scores[best.documents].tolist())
    assert best.scores.tolist() == sorted(best.scores.tolist(), reverse=True)


@pytest.mark.parametrize("query", ["", "   ", "the of and", "nowhere", "the nowhere", "?!", "\ud83d"])
def test_a_query_without_a_known_word_finds_nothing(query: str) -> None:
    index = build_index([Document("a", "jaguar", "the large cat of the forest"), Document("b", "", "")])
    best = search(index, query)
    assert (best.documents.tolist(), best.scores.tolist()) == ([], [])


def test_a_document_without_a_word_of_the_query_is_never_found() -> None:
    index = indexed(["fig", "plum", ""])
    for top in (1, 2, 3, 1000):
        assert found(index, "fig", top) == [0]


def test_a_word_of_every_document_still_finds_them_all() -> None:
    assert found(indexed(["fig plum nut", "fig", "fig kiwi"]), "fig") == [1, 2, 0]


def test_one_more_than_there_are_finds_all() -> None:
    index = indexed(["fig plum", "fig"])
    assert found(index, "fig", top=3) == found(index, "fig", top=10**12) == [1, 0]


@pytest.mark.parametrize("top", [0, -1])
def test_fewer_than_one_is_refused(top: int) -> None:
    with pytest.raises(DataError, match=f"top={top}: expected the number of documents to find, from 1 up"):
        search(indexed(["fig"]), "fig", top=top)


def test_a_query_is_stemmed_and_folded_as_the_documents_are() -> None:
    index = build_index([Document("a", "", "aeroelastic models"), Document("b", "", "wing")])
    assert found(index, "MODELLING the") == [0]


def test_other_parameters_are_not_mixed_up_with_those_before() -> None:
    texts = ["fig fig fig plum nut nut", "fig"]
    index = indexed(texts)
    for smoothing in (USUAL, Smoothing(k1=5.0), Smoothing(b=0.0), Smoothing(k1=0.0), USUAL):
        assert bm25(index, "fig", smoothing).tolist() == pytest.approx(plain_bm25(texts, "fig", smoothing))


def test_a_loaded_index_finds_the_same(tmp_path: Path) -> None:
    texts = ["fig plum", "fig", "kiwi", "", "plum plum fig"]
    index = indexed(texts)
    save_index(index, tmp_path / "index")
    for query in ("fig plum", "kiwi", "nowhere"):
        best, again = search(index, query), search(load_index(tmp_path / "index"), query)
        assert again.documents.tolist() == best.documents.tolist()
        assert again.scores.tobytes() == best.scores.tobytes()
