from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.collections import Document
from querywise.errors import DataError, ModelFileError
from querywise.retrieval.bm25 import search
from querywise.retrieval.features import features_of
from querywise.retrieval.field import Field
from querywise.retrieval.index import Index, build_index, load_index, save_index
from querywise.retrieval.scores import NAMES, Smoothing, write_scores
from querywise.retrieval.words import Tokeniser
from querywise.runtime.arrays import Floats, Ints
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


def all_scores(fields: dict[str, Field], terms: Sequence[int], documents: Ints, smoothing: Smoothing) -> Floats:
    """The 25 scores of some documents: documents × 25."""
    scores = np.empty((len(documents), len(NAMES)))
    write_scores(fields, terms, documents, smoothing, scores)
    return scores


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


# The same formulas by numpy on tables of documents × terms. Compiled scores have the same bits: other last digits would
# grow other trees.


def low_by_numpy(index: Index, name: str, terms: list[int], documents: Ints) -> Floats:
    field = index.fields[name]
    counts, df, totals = table_of(field, terms, documents)
    share = counts / np.maximum(field.lengths[documents].astype(np.float64), 1.0)[:, None]
    idf = np.log(len(index) / np.maximum(df, 1.0))
    rarity = field.size / np.maximum(totals, 1.0)
    there = (counts > 0).astype(np.float64)
    return np.column_stack(
        [
            counts.sum(axis=1),
            np.log(counts + 1).sum(axis=1),
            share.sum(axis=1),
            np.log(share + 1).sum(axis=1),
            there @ idf,
            there @ np.log(np.maximum(idf, 1.0)),
            there @ np.log(rarity + 1),
            np.log(share * idf + 1).sum(axis=1),
            counts @ idf,
            np.log(share * rarity + 1).sum(axis=1),
        ]
    )


def high_by_numpy(index: Index, terms: list[int], documents: Ints, smoothing: Smoothing) -> Floats:
    field = index.fields["both"]
    counts, df, totals = table_of(field, terms, documents)
    lengths = field.lengths[documents].astype(np.float64)[:, None]
    idf = np.log1p((len(index) - df + 0.5) / (df + 0.5))
    saturation = smoothing.k1 * (1 - smoothing.b + smoothing.b * (lengths / max(field.mean_length, 1e-12)))
    best = (idf * counts * (smoothing.k1 + 1) / np.where(counts > 0, counts + saturation, 1.0)).sum(axis=1)
    length = np.where(lengths > 0, lengths, max(field.longest, 1.0))
    distinct = np.where(lengths > 0, field.distinct[documents].astype(np.float64)[:, None], 1.0)
    background = np.maximum(totals, 0.5) / max(field.size, 1)
    mu, mix, discount = smoothing.dirichlet, smoothing.jelinek_mercer, smoothing.absolute_discount
    dirichlet = (counts + mu * background) / (length + mu)
    mixed = (1 - mix) * (counts / length) + mix * background
    discounted = np.maximum(counts - discount, 0.0) / length + discount * distinct / length * background
    likelihoods = [np.log(each).sum(axis=1) for each in (dirichlet, mixed, discounted)]
    return np.column_stack([best, np.log1p(best), *likelihoods])


def table_of(field: Field, terms: list[int], documents: Ints) -> tuple[Floats, Floats, Floats]:
    """How often terms are in documents, in how many they are, and how often in all."""
    counts = np.zeros((len(documents), len(terms)))
    df, totals = np.zeros(len(terms)), np.zeros(len(terms))
    for column, term in enumerate(terms):
        if term >= 0:
            postings = field.postings(term)
            known = dict(zip(field.documents[postings].tolist(), field.counts[postings].tolist(), strict=True))
            counts[:, column] = [known.get(document, 0) for document in documents.tolist()]
            df[column], totals[column] = len(known), field.totals[term]
    return counts, df, totals


def assert_same_bits(index: Index, query: str, documents: Ints, smoothing: Smoothing = USUAL) -> None:
    terms = index.numbers_of(query)
    low = [low_by_numpy(index, name, terms, documents) for name in ("title", "body")]
    expected = np.hstack([*low, high_by_numpy(index, terms, documents, smoothing)])
    found = all_scores(index.fields, terms, documents, smoothing)
    differing = (found.view(np.int64) != expected.view(np.int64)).any(axis=0)
    assert [NAMES[column] for column in np.flatnonzero(differing)] == []


@pytest.fixture(scope="module")
def zipf() -> Index:
    """Documents of common and rare words, some of them empty."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 90, size=(2_000, 2)) // np.array([12, 1])
    draws = [[np.minimum(rng.zipf(1.3, size), 900).tolist() for size in both] for both in sizes.tolist()]
    return indexed(
        [(" ".join(f"w{word}" for word in title), " ".join(f"w{word}" for word in body)) for title, body in draws]
    )


@pytest.mark.parametrize("words", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 100, 128, 129, 137, 200, 300, 600])
def test_scores_have_the_bits_of_the_formulas_by_numpy(zipf: Index, words: int) -> None:
    rng = np.random.default_rng(words)
    for smoothing in (USUAL, Smoothing(k1=0.9, b=0.4, dirichlet=700, jelinek_mercer=0.4, absolute_discount=0.3)):
        query = " ".join(["nowhere", *(f"w{word}" for word in rng.permutation(900)[:words]), "lost"])
        for documents in (search(zipf, query).documents, np.arange(300), rng.integers(len(zipf), size=33)):
            assert_same_bits(zipf, query, documents, smoothing)
            assert_same_bits(zipf, query, documents[:1], smoothing)


@settings(deadline=None, max_examples=examples(40))
@given(texts=COLLECTIONS, query=QUERIES, smoothing=SMOOTHINGS, data=st.data())
def test_scores_of_few_words_have_the_bits_of_the_formulas_by_numpy(
    texts: list[tuple[str, str]], query: str, smoothing: Smoothing, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=8))
    assert_same_bits(indexed(texts), query, np.array(chosen, dtype=np.int64), smoothing)


@pytest.mark.parametrize("words", [1, 5, 9, 40])
def test_bm25_has_the_bits_of_postings_added_up_one_by_one(zipf: Index, words: int) -> None:
    rng = np.random.default_rng(words)
    for _ in range(20):
        query = " ".join(f"w{word}" for word in rng.permutation(900)[:words])
        expected = np.zeros(len(zipf))
        for term in zipf.numbers_of(query):
            if term >= 0:
                expected += high_by_numpy(zipf, [term], np.arange(len(zipf)), USUAL)[:, 0]
        best = search(zipf, query, top=50)
        order = [place for place in np.argsort(-expected, kind="stable").tolist() if expected[place] > 0]
        assert best.documents.tolist() == order[:50]
        assert best.scores.tobytes() == expected[order[:50]].tobytes()


@pytest.mark.parametrize("document", [-1, 4, 10**12])
def test_a_document_that_is_not_there_is_refused(document: int) -> None:
    index = indexed(FRUIT)
    with pytest.raises(IndexError, match=r"There is no such document: the index has 4, numbered from 0"):
        features_of(index, "fig", np.array([0, document]))
    with pytest.raises(IndexError, match=r"There is no such document: the index has 4, numbered from 0"):
        index.fields["body"].counts_of(index.numbers_of("fig"), np.array([document]))
    assert features_of(index, "fig", np.array([1]))[0, 10] == 2, "nothing is left of the attempts"


def test_what_a_field_keeps_beside_its_arrays_is_not_sent_to_other_processes() -> None:
    index = indexed(FRUIT)
    size = len(pickle.dumps(index.fields["both"]))
    before = ours(FRUIT, "fig plum")
    features_of(index, "fig plum", search(index, "fig plum").documents)
    assert len(pickle.dumps(index.fields["both"])) == size
    again = pickle.loads(pickle.dumps(index))
    assert features_of(again, "fig plum", np.arange(4))[:, :25].tobytes() == before.tobytes()


def test_scores_of_very_long_queries_are_what_their_definitions_say() -> None:
    """Products of this many numbers are smaller or larger than any number."""
    words = [f"w{number}" for number in range(400)]
    texts = [(" ".join(words[:5]), " ".join(words[::2] * 9)), ("", " ".join(words[7:40])), ("", "")]
    for smoothing in (USUAL, Smoothing(dirichlet=1e6), Smoothing(jelinek_mercer=1e-6, absolute_discount=1e-6)):
        assert_close(ours(texts, " ".join(words), smoothing), plain_scores(texts, " ".join(words), smoothing))


@settings(deadline=None, max_examples=examples(30))
@given(st.data())
def test_counts_of_a_few_among_many_documents_are_found(data: st.DataObject) -> None:
    having = data.draw(st.sets(st.integers(0, 299), min_size=100, max_size=200))
    index = indexed([("", "fig plum" if place in having else "plum") for place in range(300)])
    asked = np.array(data.draw(st.lists(st.integers(0, 299), min_size=1, max_size=5)))
    counts = index.fields["body"].counts_of(index.numbers_of("fig"), asked)
    assert counts[:, 0].tolist() == [float(place in having) for place in asked.tolist()]


@pytest.mark.parametrize("part", ["lengths", "totals"])
def test_an_index_whose_fields_do_not_belong_together_is_not_loaded(tmp_path: Path, part: str) -> None:
    index = indexed(FRUIT)
    title = index.fields["title"]
    wrong: dict[str, Any] = {
        "lengths": {"lengths": title.lengths[:3], "distinct": title.distinct[:3]},
        "totals": {"totals": title.totals[:-1], "starts": np.delete(title.starts, -2)},
    }
    broken = replace(index, fields={**index.fields, "title": replace(title, **wrong[part])})
    save_index(broken, tmp_path / "index")
    with pytest.raises(ModelFileError, match="does not belong to the files beside it"):
        load_index(tmp_path / "index")


@pytest.mark.parametrize("part", ["starts", "documents", "counts", "lengths"])
def test_postings_that_lead_nowhere_are_refused(part: str) -> None:
    index = indexed(FRUIT)
    both = index.fields["both"]
    damaged: dict[str, Any] = {"starts": both.starts + 1, "documents": both.documents + 9, "counts": both.counts[1:]}
    wrong: Any = damaged.get(part, both.lengths[:1])
    broken = replace(index, fields={**index.fields, "both": replace(both, **{part: wrong})})
    with pytest.raises(ModelFileError, match=r"The postings of the index are invalid\. Rebuild the index"):
        search(broken, "fig")
