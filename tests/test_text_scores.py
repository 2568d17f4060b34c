from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.collections import Document
from querywise.errors import DataError
from querywise.retrieval.features import features_of
from querywise.retrieval.index import Index, build_index
from querywise.retrieval.scores import NAMES, Smoothing, all_scores
from querywise.retrieval.words import Tokeniser
from querywise.runtime.arrays import Floats
from tests.worlds import examples

Words = list[str]
PLAIN = Tokeniser(None, stop_words=False)
USUAL = Smoothing()


@dataclass
class Plain:
    """One field of a collection as lists of words, and what the definitions ask of it."""

    documents: list[Words]

    def n(self) -> int:
        return len(self.documents)

    def df(self, term: str) -> int:
        return sum(term in words for words in self.documents)

    def in_all(self, term: str) -> int:
        return sum(words.count(term) for words in self.documents)

    def size(self) -> int:
        return sum(len(words) for words in self.documents)


def plain_low(field: Plain, query: Words, place: int) -> list[float]:
    words = field.documents[place]
    scores = [0.0] * 10
    for term in set(query) & set(words):
        count, share = words.count(term), words.count(term) / len(words)
        idf = log(field.n() / field.df(term))
        rarity = field.size() / field.in_all(term)
        terms = [
            count,
            log(count + 1),
            share,
            log(share + 1),
            idf,
            log(max(idf, 1)),
            log(rarity + 1),
            log(share * idf + 1),
            count * idf,
            log(share * rarity + 1),
        ]
        scores = [score + more for score, more in zip(scores, terms, strict=True)]
    return scores


def plain_bm25(field: Plain, query: Words, place: int, k1: float, b: float) -> float:
    words = field.documents[place]
    score = 0.0
    for term in set(query) & set(words):
        count, df = words.count(term), field.df(term)
        mean = field.size() / field.n()
        idf = log(1 + (field.n() - df + 0.5) / (df + 0.5))
        score += idf * count * (k1 + 1) / (count + k1 * (1 - b + b * len(words) / mean))
    return score


def plain_high(field: Plain, query: Words, place: int, smoothing: Smoothing) -> list[float]:
    words = field.documents[place]
    mu, mix, delta = smoothing.dirichlet, smoothing.jelinek_mercer, smoothing.absolute_discount
    dirichlet = mixed = discounted = 0.0
    longest = max([1, *map(len, field.documents)])
    for term in set(query):
        # An empty document: the longest one with one term, which is none of the query's.
        count, length, distinct = words.count(term), len(words) or longest, len(set(words)) or 1
        p = max(field.in_all(term), 0.5) / max(field.size(), 1)
        dirichlet += log((count + mu * p) / (length + mu))
        mixed += log((1 - mix) * count / length + mix * p)
        discounted += log(max(count - delta, 0) / length + delta * distinct / length * p)
    bm25 = plain_bm25(field, query, place, smoothing.k1, smoothing.b)
    return [bm25, log(1 + bm25), dirichlet, mixed, discounted]


def plain_scores(texts: list[tuple[str, str]], query: str, smoothing: Smoothing) -> Floats:
    titles = Plain([title.split() for title, _ in texts])
    bodies = Plain([body.split() for _, body in texts])
    both = Plain([title.split() + body.split() for title, body in texts])
    asked = query.split()
    return np.array(
        [
            plain_low(titles, asked, place)
            + plain_low(bodies, asked, place)
            + plain_high(both, asked, place, smoothing)
            for place in range(len(texts))
        ]
    )


def indexed(texts: list[tuple[str, str]]) -> Index:
    return build_index([Document(f"D{i}", title, body) for i, (title, body) in enumerate(texts)], PLAIN)


def ours(texts: list[tuple[str, str]], query: str, smoothing: Smoothing = USUAL) -> Floats:
    return features_of(indexed(texts), query, np.arange(len(texts)), smoothing)[:, :25]


def one(texts: list[tuple[str, str]], query: str, name: str) -> list[float]:
    return [float(score) for score in ours(texts, query)[:, NAMES.index(name)]]


def assert_close(found: Floats, expected: Floats) -> None:
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def texts_of(words: str, most: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words.split()), max_size=most).map(" ".join)


COLLECTIONS = st.lists(
    st.tuples(texts_of("fig plum titled", 3), texts_of("fig plum kiwi date", 8)), min_size=1, max_size=6
)
QUERIES = texts_of("fig plum kiwi date titled nowhere lost", 6)
SMOOTHINGS = st.builds(
    Smoothing,
    k1=st.floats(0, 20),
    b=st.floats(0, 1),
    dirichlet=st.floats(1e-3, 1e6),
    jelinek_mercer=st.floats(1e-6, 1),
    absolute_discount=st.floats(1e-6, 1),
)


@settings(deadline=None)
@given(texts=COLLECTIONS, query=QUERIES)
def test_all_25_scores_are_what_their_definitions_say(texts: list[tuple[str, str]], query: str) -> None:
    assert_close(ours(texts, query), plain_scores(texts, query, USUAL))


@settings(deadline=None)
@given(texts=COLLECTIONS, query=QUERIES, smoothing=SMOOTHINGS)
def test_other_parameters_are_used_where_the_definitions_say(
    texts: list[tuple[str, str]], query: str, smoothing: Smoothing
) -> None:
    assert_close(ours(texts, query, smoothing), plain_scores(texts, query, smoothing))


@settings(deadline=None, max_examples=examples(40))
@given(texts=COLLECTIONS, query=QUERIES, data=st.data())
def test_some_documents_in_any_order_score_as_among_all(
    texts: list[tuple[str, str]], query: str, data: st.DataObject
) -> None:
    index = indexed(texts)
    chosen = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=8))
    some = all_scores(index.fields, index.numbers_of(query), np.array(chosen, dtype=np.int64), USUAL)
    assert some.shape == (len(chosen), 25)
    assert_close(some, ours(texts, query)[chosen])


@settings(deadline=None, max_examples=examples(40))
@given(texts=COLLECTIONS, query=QUERIES)
def test_repeating_or_shuffling_the_words_of_a_query_changes_nothing(texts: list[tuple[str, str]], query: str) -> None:
    again = " ".join(query.split()[::-1] * 2)
    assert_close(ours(texts, again), ours(texts, query))


FRUIT = [("fig fig", "plum"), ("", "plum kiwi fig fig"), ("date", ""), ("", "")]


def test_a_score_worked_out_by_hand() -> None:
    assert one(FRUIT, "fig", "L1.title") == [2, 0, 0, 0]
    assert one(FRUIT, "fig", "L1.body") == [0, 2, 0, 0]
    assert one(FRUIT, "fig", "L3.body") == [0, 0.5, 0, 0]
    assert one(FRUIT, "fig plum", "L5.title") == pytest.approx([log(4), 0, 0, 0])
    assert one(FRUIT, "fig plum", "L5.body") == pytest.approx([log(2), log(4) + log(2), 0, 0])
    assert one(FRUIT, "fig", "L7.title") == pytest.approx([log(3 / 2 + 1), 0, 0, 0])
    assert one(FRUIT, "fig", "L9.title") == pytest.approx([2 * log(4), 0, 0, 0])
    mean = 8 / 4
    first = log(1 + 2.5 / 2.5) * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / mean))
    assert one(FRUIT, "fig", "H1.bm25")[0] == pytest.approx(first)
    assert one(FRUIT, "fig", "H3.dirichlet")[3] == pytest.approx(log(1000 / 2004)), "as the longest one without a fig"
    assert one(FRUIT, "nowhere", "H4.jelinek_mercer")[3] == pytest.approx(log(0.1 * 0.5 / 8))


def test_a_query_without_a_word_scores_zero_everywhere() -> None:
    assert not ours(FRUIT, "").any()
    assert not ours(FRUIT, " _!").any()


def test_a_word_that_is_nowhere_moves_only_the_language_models() -> None:
    scores = ours(FRUIT, "nowhere")
    assert not scores[:, :22].any()
    assert (scores[:, 22:] < 0).all()


def test_a_word_in_every_document_has_no_idf_but_still_a_positive_bm25() -> None:
    texts = [("", "fig plum"), ("", "fig"), ("", "fig fig kiwi")]
    for name in ("L5.body", "L6.body", "L8.body", "L9.body"):
        assert one(texts, "fig", name) == [0, 0, 0]
    assert min(one(texts, "fig", "H1.bm25")) > 0


@pytest.mark.parametrize("texts", [[("", "")], [("", ""), ("", "")], [("fig", "")], [("", "fig")]])
@pytest.mark.parametrize("query", ["", "fig", "fig nowhere"])
def test_almost_empty_collections_have_finite_scores(texts: list[tuple[str, str]], query: str) -> None:
    assert_close(ours(texts, query), plain_scores(texts, query, USUAL))


def test_a_common_word_of_a_long_document_scores_as_defined() -> None:
    words = Counter({"fig": 3000, "plum": 1500, "kiwi": 1})
    texts = [("fig", " ".join(words.elements())), ("kiwi", "plum"), ("", "date")]
    assert_close(ours(texts, "fig kiwi kiwi date"), plain_scores(texts, "fig kiwi kiwi date", USUAL))


def test_the_names_say_which_score_and_field() -> None:
    assert len(NAMES) == len(set(NAMES)) == 25
    assert NAMES[:2] == ("L1.title", "L2.title")
    assert NAMES[9:11] == ("L10.title", "L1.body")
    assert NAMES[20:] == ("H1.bm25", "H2.log_bm25", "H3.dirichlet", "H4.jelinek_mercer", "H5.absolute_discount")


@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("-inf"), float("inf")])
@pytest.mark.parametrize("name", ["k1", "b", "dirichlet", "jelinek_mercer", "absolute_discount"])
def test_a_parameter_that_makes_no_sense_is_refused(name: str, value: float) -> None:
    with pytest.raises(DataError, match=name):
        Smoothing(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("b", 1.01), ("jelinek_mercer", 0.0), ("jelinek_mercer", 1.01), ("absolute_discount", 0.0), ("dirichlet", 0.0)],
)
def test_a_parameter_outside_its_range_is_refused(name: str, value: float) -> None:
    with pytest.raises(DataError, match=name):
        Smoothing(**{name: value})
