"""Indexing and searching text, against bm25s on the same tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import Stemmer

from benchmarks.floors import least_seconds
from benchmarks.results import Result, above, at_most
from benchmarks.timing import seconds
from querywise import evaluate, from_arrays
from querywise.data.collections import Document, collection_of, read_collection
from querywise.data.fields import Fields, FieldSpec
from querywise.retrieval.bm25 import Hits, search
from querywise.retrieval.features import features_of
from querywise.retrieval.index import Index, build_index
from querywise.retrieval.reading import Retrieval, indexed_text
from querywise.retrieval.scores import Smoothing
from querywise.retrieval.words import STOP_WORDS
from querywise.runtime.arrays import Ints

_DATA = Path(__file__).parents[2] / "shared" / "data"
_REAL = ("cranfield", "vaswani")
_DOCUMENTS, _QUERIES, _VOCABULARY, _LENGTH = 100_000, 200, 100_000, 60
_TITLE, _ASKED = 8, 10  # words of a made-up title and query
_TOP = 100
_TIMES, _TIMES_LARGE, _TIMES_ANSWERING = 3, 2, 5
_MOST, _MOST_COMPILED, _LEAST = 2.0, 1.0, 0.99
_FEATURES = 27
_FIELDED, _MANY_FIELDS, _FEW_FIELDS, _MOST_BY_FIELD = 10_000, 8, 2, 4.0  # documents; a bound on the ratio


@dataclass(frozen=True)
class Case:
    """Documents in memory and what is asked of them."""

    name: str
    documents: Sequence[Document]
    queries: Sequence[str]
    grades: Sequence[Mapping[str, int]] = ()  # of each query, where any are known

    def texts(self) -> list[str]:
        """Title and body as one text, which is all that bm25s knows."""
        return [f"{document.title} {document.text}" for document in self.documents]


def measure() -> Iterator[Result]:
    """Text: build_index, search and features_of against bm25s, with the same words, stems, k1 and b.

    Cranfield is 1,400 documents and 225 queries, Vaswani 11,429 and 93, both real; made up are 100,000 documents of 60
    words on average, drawn by Zipf's law, and 200 queries of 10. Times are medians of runs by turns; the ratio is
    ours / theirs.

    Indexing goes from texts in memory to the first answer, since we weigh the postings only then. It gives us three
    fields, titles and snippets, and bm25s one field. Answering goes from a query's text to its best 100 documents, per
    query, against either backend of bm25s, without compiling. Features are all 27 of these 100; their ratio is to our
    own answering. By field they are those of 10,000 made-up documents cut into eight fields, and into two.

    Quality is over all documents, those nobody judged being irrelevant. What a query says twice bm25s counts twice.
    """
    for name in _REAL:
        if (_DATA / name).is_dir():
            case = _read_case(name)
            yield from _costs(case)
            yield _quality(case)
        else:
            print(f"{name.capitalize()} is not in shared/data beside the project, so it is left out.")
    yield from _costs(make_case())
    yield _by_field(make_case(_FIELDED))


def _read_case(name: str) -> Case:
    """A collection of the data folder, with the queries that have judgements."""
    collection = read_collection(_DATA / name)
    table, grades = collection.queries, collection.grades()
    if table is None or table.texts is None:
        raise RuntimeError(f"{name}: the collection has no queries with a text.")
    judged = [place for place, query_id in enumerate(table.ids) if query_id in grades]
    return Case(
        name=name.capitalize(),
        documents=list(collection.documents()),
        queries=[table.texts[place] or "" for place in judged],
        grades=[grades[table.ids[place]] for place in judged],
    )


def make_case(documents: int = _DOCUMENTS, queries: int = _QUERIES, *, seed: int = 0) -> Case:
    """Documents of words drawn by Zipf's law, the stop words first, and queries that are the ends of some of them."""
    rng = np.random.default_rng(seed)
    syllables = [consonant + vowel for consonant in "bcdfghklmnprstvw" for vowel in "aeiou"]
    drawn, kept = rng.integers(len(syllables), size=(2 * _VOCABULARY, 5)), rng.integers(2, 6, size=2 * _VOCABULARY)
    names = ("".join(syllables[each] for each in row[:size]) for row, size in zip(drawn, kept, strict=True))
    words = np.array(list(dict.fromkeys([*sorted(STOP_WORDS), *names]))[:_VOCABULARY], dtype=object)
    shares = np.cumsum(1 / np.arange(1, len(words) + 1))
    sizes = rng.integers(_LENGTH // 2, 3 * _LENGTH // 2, size=documents)
    text = words[np.searchsorted(shares, rng.random(sizes.sum()) * shares[-1])].tolist()
    ends = np.cumsum(sizes).tolist()
    made = [
        Document(
            str(number), " ".join(text[end - size : end - size + _TITLE]), " ".join(text[end - size + _TITLE : end])
        )
        for number, (end, size) in enumerate(zip(ends, sizes.tolist(), strict=True))
    ]
    asked = [" ".join(text[ends[number] - _ASKED : ends[number]]) for number in rng.integers(documents, size=queries)]
    return Case("made up", made, asked)


def _costs(case: Case) -> Iterator[Result]:
    """Indexing, answering with both backends of bm25s, and features."""
    index, theirs, indexing = _indexed(case)
    yield indexing
    _check_same_tokens(index, theirs)

    def answer() -> list[Hits]:
        return [search(index, text, top=_TOP) for text in case.queries]

    asked = list(zip(case.queries, answer(), strict=True))
    finding, computing = _floors(index, asked)
    for backend, most, floor in (("numpy", _MOST, None), ("numba", _MOST_COMPILED, finding)):
        theirs.backend = backend
        ours_took, theirs_took = _milliseconds_each(case, answer, lambda: _their_answers(theirs, case.queries))
        took = _ours_over_theirs(f"{case.name}, answering, {backend}", ours_took, theirs_took, "ms", most)
        yield took if floor is None else above(floor, took)
    features, answering = _milliseconds_each(
        case, lambda: [features_of(index, text, found.documents) for text, found in asked], answer
    )
    what = f"{case.name}, features ÷ answering"
    yield above(computing, _ours_over_theirs(what, features, answering, "ms"))


def _by_field(case: Case) -> Result:
    """The features of 100 candidates whose text is in eight fields, beside those of the same text in two."""
    works = []
    for count in (_MANY_FIELDS, _FEW_FIELDS):
        rows = [{"id": each.id, **_cut(f"{each.title} {each.text}", count)} for each in case.documents]
        fields = Fields(tuple(FieldSpec(f"field{number}", "text") for number in range(count)))
        _, index = indexed_text(collection_of(rows, fields=fields), Retrieval())
        asked = [(text, search(index, text, top=_TOP).documents) for text in case.queries]
        works.append(partial(_features_of_all, index, asked))
    many, few = _milliseconds_each(case, *works)
    what = f"{_MANY_FIELDS} fields ÷ {_FEW_FIELDS}, features"
    return _ours_over_theirs(what, many, few, "ms", _MOST_BY_FIELD)


def _cut(text: str, count: int) -> dict[str, str]:
    """A text as so many fields, one after the other."""
    parts = np.array_split(np.array(text.split(), dtype=object), count)
    return {f"field{number}": " ".join(part) for number, part in enumerate(parts)}


def _features_of_all(index: Index, asked: Sequence[tuple[str, Ints]]) -> None:
    for text, documents in asked:
        features_of(index, text, documents)


def _floors(index: Index, asked: Sequence[tuple[str, Hits]]) -> tuple[float, float]:
    """The least milliseconds for a query's answer and for the features of what is found.

    An answer reads the query's postings, the document and what it adds to BM25. Features read one posting, document and
    count, for each term that is in a document's title or body, and write 27 numbers for each document.
    """
    both, read, used = index.fields["both"], 0, 0
    for text, found in asked:
        terms = index.numbers_of(text)
        read += sum(12 * len(both.documents[both.postings(term)]) for term in terms if term >= 0)
        used += 8 * _FEATURES * len(found.documents)
        for name in ("title", "body"):
            used += 8 * int(np.count_nonzero(index.fields[name].counts_of(terms, found.documents)))
    finding, computing = (1e3 * least_seconds(read=each) / len(asked) for each in (read, used))
    return finding, computing


def _indexed(case: Case) -> tuple[Index, Any, Result]:
    """Both indexes, and what it took to come to the first answer."""
    texts, first = case.texts(), case.queries[:1]
    search(build_index(case.documents[:1]), first[0], top=_TOP)
    took = []
    for _ in range(_TIMES_LARGE if len(texts) >= _DOCUMENTS else _TIMES):
        begin = time.perf_counter()
        index = build_index(case.documents)
        search(index, first[0], top=_TOP)
        middle = time.perf_counter()
        theirs = _their_index(_their_tokens(texts))
        _their_answers(theirs, first)
        took.append((middle - begin, time.perf_counter() - middle))
    ours_took, theirs_took = np.median(took, axis=0).tolist()
    return index, theirs, _ours_over_theirs(f"{case.name}, indexing", ours_took, theirs_took, "s")


def _milliseconds_each(case: Case, *works: Callable[[], object]) -> list[float]:
    """What a query takes in each kind of work, by turns, after a turn that does not count."""
    took = [[seconds(work) for work in works] for _ in range(_TIMES_ANSWERING + 1)][1:]
    milliseconds: list[float] = (1e3 * np.median(took, axis=0) / len(case.queries)).tolist()
    return milliseconds


def _ours_over_theirs(what: str, ours: float, theirs: float, unit: str, most: float = _MOST) -> Result:
    return at_most("text", what, ours=ours, theirs=theirs, unit=unit, most=most)


def _their_tokens(texts: Sequence[str]) -> Any:
    """Tokens by bm25s, which with this pattern are ours where the text is English."""
    stemmer = Stemmer.Stemmer("english")
    return bm25s.tokenize(
        list(texts), token_pattern=r"[^\W_]+", stopwords=list(STOP_WORDS), stemmer=stemmer, show_progress=False
    )


def _their_index(tokens: Any) -> Any:
    usual = Smoothing()
    made = bm25s.BM25(k1=usual.k1, b=usual.b, method="lucene")
    made.index(tokens, show_progress=False)
    return made


def _their_answers(theirs: Any, queries: Sequence[str]) -> object:
    return theirs.retrieve(_their_tokens(queries), k=_TOP, show_progress=False)


def _check_same_tokens(index: Index, theirs: Any) -> None:
    """Raise unless both indexes have the same terms in as many documents."""
    same_terms = set(index.terms) == set(theirs.vocab_dict) - {""}
    if not same_terms or len(index.fields["both"].documents) != len(theirs.scores["data"]):
        raise RuntimeError("build_index and bm25s.tokenize found different terms in the same texts.")


def _quality(case: Case) -> Result:
    """MAP of both over all documents for every query."""
    index = build_index(case.documents)
    terms = index.tokeniser.terms
    theirs = _their_index([terms(text) for text in case.texts()])
    places = {document.id: place for place, document in enumerate(case.documents)}
    shape = len(case.queries), len(index)
    scores, labels = np.zeros((*shape, 2)), np.zeros(shape, np.int64)
    for row, (text, grades) in enumerate(zip(case.queries, case.grades, strict=True)):
        found = search(index, text, top=len(index))
        scores[row, found.documents, 0] = found.scores
        scores[row, :, 1] = theirs.get_scores(terms(text))
        labels[row, [places[document] for document in grades]] = list(grades.values())
    data = from_arrays(scores.reshape(-1, 2), labels.ravel(), qid=np.repeat(np.arange(len(labels)), len(index)))
    ours_map, theirs_map = (evaluate(each, data, measures="map").mean()["map"] for each in data.candidates.features.T)
    what, ratio = f"{case.name}, quality", ours_map / theirs_map
    return Result("text", what, ours_map, theirs_map, "MAP", ratio, f"≥ {_LEAST:g}×", ratio >= _LEAST)
