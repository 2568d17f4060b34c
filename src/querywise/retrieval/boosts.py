"""Boosts of fields, and the scores that an engine computes with them.

c is how often a word of the query occurs in a field of a document, |f| the field's length there as Lucene stores it
(exact up to 40 words, then in steps), N_f how many documents have the field, df_f how many have the word in it, and
mean |f| the average over those N_f. A field's BM25 is that of Lucene, Solr, OpenSearch and Elasticsearch,

    s_f(t, d) = idf(N_f, df_f) · c / (c + k1 (1 − b + b |f| / mean |f|)),   idf(N, n) = log(1 + (N − n + ½)/(n + ½)),

where repeated query words count repeatedly. With boosts β_f and a tie breaker τ, where "best + τ rest" is the largest
of several numbers plus τ times the sum of the others:

* most_fields: Σ_f β_f Σ_t s_f(t, d);
* best_fields: best + τ rest over the fields of β_f Σ_t s_f(t, d);
* dismax: Σ_t of best + τ rest over the fields of β_f s_f(t, d), as Solr's edismax parser does;
* cross_fields: the same with blended frequencies: df is the largest of all fields, plus one at every step down to a
  field with fewer, and never above N_f;
* combined_fields: BM25F, the BM25 of Σ_f β_f c and Σ_f β_f |f| with the largest df_f and N_f.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from querywise.data.collections import Collection
from querywise.data.judged import Candidates, Judged, judged_by
from querywise.data.rows import rows_of
from querywise.errors import DataError
from querywise.retrieval.bm25 import search
from querywise.retrieval.features import JUDGED, TOP, known_grades
from querywise.retrieval.field import Field
from querywise.retrieval.field_texts import fields_of_index
from querywise.retrieval.index import Index, counted_terms, field_of
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.files import read_text
from querywise.runtime.values import JsonObject, is_finite_number

MOST, BEST, DISMAX, CROSS, COMBINED = FORMS = (
    "most_fields",
    "best_fields",
    "dismax",
    "cross_fields",
    "combined_fields",
)
TIED = (BEST, DISMAX, CROSS)  # forms with a tie breaker
K1, B = 1.2, 0.75
LARGEST = 10.0  # largest boost, since a common factor changes nothing; combined_fields has a least boost of 1 instead
_EXACT = 40  # words up to which a length is stored exactly


@dataclass(frozen=True)
class Boosts:
    """The boost of each field, and how fields are combined.

    Attributes:
        form: one of FORMS.
        boosts: by field, non-negative; a field with boost 0 is left out.
        tie: τ, from 0 to 1.
    """

    form: str
    boosts: Mapping[str, float]
    tie: float = 0.0

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise DataError(f"The type of boosts is {self.form!r:.40}; expected one of {', '.join(FORMS)}.")
        for name, value in self.boosts.items():
            if not is_finite_number(value) or value < 0:
                raise DataError(f"The boost of the field {name!r} is {value!r:.40}; expected a number from 0 up.")
            if self.form == COMBINED and 0 < value < 1:
                raise DataError(
                    f"The boost of {name!r} is {value}: combined_fields takes 1 or more, 0 to leave it out."
                )
        if not any(self.boosts.values()):
            raise DataError("No field has a boost above 0, so nothing would be found.")
        if not is_finite_number(self.tie) or not 0 <= self.tie <= 1:
            raise DataError(f"The tie breaker is {self.tie!r:.40}; expected a number from 0 to 1.")
        if self.tie and self.form not in TIED:
            raise DataError(f"{self.form} has no tie breaker; found {self.tie}.")

    @property
    def used(self) -> dict[str, float]:
        """The boosts of the fields with a boost above 0."""
        return {name: value for name, value in self.boosts.items() if value > 0}

    @property
    def rounded(self) -> Boosts:
        """The boosts on the usual scale, rounded to three digits, so that measurements match requests."""
        least = min(self.used.values())
        factor = 1 / least if self.form == COMBINED and least < 1 else 1.0
        factor = factor if self.form == COMBINED else LARGEST / max(self.boosts.values())
        return replace(self, boosts={name: float(f"{value * factor:.3g}") for name, value in self.boosts.items()})

    def as_json(self) -> JsonObject:
        """Return the boosts as stored in `boosts.json`."""
        tie: JsonObject = {"tie_breaker": self.tie} if self.form in TIED else {}
        return {"type": self.form, "boosts": dict(self.boosts), **tie}


def equal_boosts(form: str, names: Sequence[str]) -> Boosts:
    """Return equal boosts, as in a request without boosts; a tie breaker is 0."""
    return Boosts(form, dict.fromkeys(names, 1.0))


def read_boosts(path: Path, names: Sequence[str]) -> Boosts:
    """Read boosts from a file like `boosts.json`; `names` are the fields of the collection."""
    expected = '{"type": "best_fields", "boosts": {"title": 3, "body": 1}, "tie_breaker": 0.3}'
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path}: not a regular file.")  # a device has no end
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: invalid JSON ({error}). Expected {expected}.") from None
    if not isinstance(found, dict) or not isinstance(found.get("boosts"), dict):
        raise DataError(f"{path}: found {found!r:.60}. Expected {expected}.")
    stray = next((name for name in found["boosts"] if name not in names), None)
    if stray is not None:
        raise DataError(f"{path}: there is no field {stray!r:.40} with words. There are: {', '.join(names)}.")
    try:
        return Boosts(found.get("type", MOST), found["boosts"], found.get("tie_breaker", 0.0))
    except (DataError, TypeError) as error:
        raise DataError(f"{path}: {error}") from None


@dataclass(frozen=True, eq=False)
class FieldMatches:
    """Where query words occur in the fields of candidates: F fields, R rows, T words, C cells.

    A cell is a word of the query in a document that contains it.

    Attributes:
        rows, terms: of every cell, in the order of the rows.
        times: how often the query contains the word of each cell.
        counts: C × F, how often the word occurs in each field.
        lengths: R × F, as Lucene stores them.
        frequency: T × F, how many documents contain each word.
        holders, sizes: how many documents have each field, and its total number of words.
        documents: the number of documents.
    """

    names: tuple[str, ...]
    rows: Ints
    terms: Ints
    times: Floats
    counts: Floats = field(repr=False)
    lengths: Floats = field(repr=False)
    frequency: Floats = field(repr=False)
    holders: Floats
    sizes: Floats
    documents: int

    def select(self, rows: Ints) -> FieldMatches:
        """Return the matches of some rows, in order, with rows renumbered."""
        starts = np.searchsorted(self.rows, np.arange(len(self.lengths) + 1))
        cells = rows_of(starts, rows)
        numbered = np.repeat(np.arange(len(rows)), np.diff(starts)[rows])
        own = self.terms[cells], self.times[cells], self.counts[cells], self.lengths[rows]
        return FieldMatches(self.names, numbered, *own, self.frequency, self.holders, self.sizes, self.documents)

    @cached_property
    def by_field(self) -> Floats:
        """The BM25 score of every field, R × F."""
        added = self._saturated * idf(self.holders, self.frequency)[self.terms]
        return np.column_stack([self._by_row(own) for own in added.T])

    @cached_property
    def _saturated(self) -> Floats:
        """C × F: c / (c + k1 (1 − b + b |f| / mean |f|)), times the number of occurrences in the query."""
        means = self.sizes / np.maximum(self.holders, 1)
        long = self.lengths / np.maximum(means, 1e-12)
        norms = K1 * (1 - B + B * long)[self.rows]
        return self.times[:, None] * self.counts / (self.counts + norms)

    def _by_row(self, values: Floats) -> Floats:
        return np.bincount(self.rows, values, len(self.lengths)).astype(np.float64, copy=False)

    def scores(self, asked: Boosts) -> Floats:
        """Return every row's score by some boosts."""
        boosts = np.array([asked.boosts.get(name, 0.0) for name in self.names])
        used = boosts > 0
        if asked.form == MOST:
            found: Floats = self.by_field @ boosts
            return found
        if asked.form == BEST:
            return _best(self.by_field * boosts, asked.tie)
        if asked.form == COMBINED:
            return self._combined(boosts, used)
        frequency = self._blended(used) if asked.form == CROSS and used.sum() > 1 else self.frequency
        rarity = idf(self.holders, frequency) * boosts
        return self._by_row(_best(self._saturated[:, used] * rarity[self.terms][:, used], asked.tie))

    def _blended(self, used: Bools) -> Floats:
        """Return the document frequencies of cross_fields over the fields that are used."""
        own = np.where(used, self.frequency, 0.0)
        order = np.argsort(-own, axis=1, kind="stable")
        falling = np.take_along_axis(own, order, axis=1)
        steps = np.cumsum(np.diff(falling, axis=1, prepend=falling[:, :1]) < 0, axis=1)
        most = np.minimum(np.where(own > 0, self.sizes, np.inf).min(axis=1), self.documents)[:, None]
        highest = np.minimum(falling[:, :1], most)
        blended = np.zeros_like(own)
        np.put_along_axis(blended, order, np.minimum(highest + steps, most), axis=1)
        return np.where(own > 0, np.minimum(blended, self.holders), 0.0)

    def _combined(self, boosts: Floats, used: Bools) -> Floats:
        """Return BM25F as in Lucene's CombinedFieldQuery."""
        holders = self.holders[used].max()
        counts, mean = self.counts @ boosts, float(self.sizes @ boosts) // 1 / max(holders, 1.0)
        long = kept_lengths(np.floor(self.lengths @ boosts + 0.5)) / max(mean, 1e-12)
        norms = K1 * (1 - B + B * long)[self.rows]
        rarity = idf(holders, self.frequency[:, used].max(axis=1))[self.terms]
        there = counts > 0
        added = np.divide(self.times * rarity * counts, counts + norms, out=np.zeros_like(counts), where=there)
        return self._by_row(added)


def idf(documents: Floats | float, frequency: Floats) -> Floats:
    """Return log(1 + (N − n + ½)/(n + ½))."""
    found: Floats = np.log1p((documents - frequency + 0.5) / (frequency + 0.5))
    return found


def _best(values: Floats, tie: float) -> Floats:
    """Return for each row the largest value plus τ times the sum of the others."""
    largest: Floats = values.max(axis=1, initial=0.0)
    return largest + tie * (values.sum(axis=1) - largest) if tie else largest


def kept_lengths(lengths: Floats) -> Floats:
    """Return lengths as Lucene's norms store them in a byte: exact up to 40, then the four leading bits beyond 24.

    >>> kept_lengths(np.array([7.0, 40.0, 41.0, 100.0, 1000.0])).tolist()
    [7.0, 40.0, 40.0, 96.0, 984.0]
    """
    above = np.maximum(lengths - 24, 0).astype(np.int64)
    bits = np.frexp(np.maximum(above, 1).astype(np.float64))[1]
    lost = np.maximum(bits - 4, 0)
    return np.where(lengths < _EXACT, lengths, 24.0 + ((above >> lost) << lost))


def matches_of(
    collection: Collection,
    index: Index,
    *,
    candidates: str = JUDGED,
    top: int | None = None,
    skip_unknown: bool = False,
) -> tuple[Judged, FieldMatches]:
    """Return a collection's judged queries with BM25 by field as features, and the matches these are computed from.

    `candidates` are the judged documents of each query, or the `top` documents that BM25 over all words finds.
    """
    if collection.queries is None or collection.queries.texts is None:
        raise DataError(f"{collection.name}: the collection has no queries with a text to learn boosts from.")
    if not collection.judgements:
        raise DataError(f"{collection.name}: the collection has no judgments, so there is nothing to learn from.")
    grades = known_grades(collection, index, skip_unknown=skip_unknown)
    table = collection.queries.select([query for query in collection.queries.ids if query in grades])
    texts = [text or "" for text in table.texts or ()]
    documents = [
        np.sort([index.document_ids.places[each] for each in grades[query]])
        if candidates == JUDGED
        else search(index, text, top=TOP if top is None else top).documents
        for query, text in zip(table.ids, texts, strict=True)
    ]
    found = match(index, texts, documents)
    rows = Candidates(
        features=found.by_field,
        starts=np.cumsum([0, *map(len, documents)]),
        query_ids=table.ids,
        document_ids=tuple(index.document_ids[int(each)] for own in documents for each in own),
        feature_names=found.names,
        queries=table,
    )
    return judged_by(rows, {query: grades[query] for query in table.ids}), found


def match(index: Index, texts: Sequence[str], documents: Sequence[Ints]) -> FieldMatches:
    """Return where the words of some queries occur in the fields of some documents of each."""
    fields = postings_of_fields(index)
    numbers: dict[int, int] = {}
    parts = list(_cells(index, list(fields.values()), texts, documents, numbers))
    known = np.fromiter(numbers, np.int64, len(numbers))
    every = np.concatenate([np.zeros(0, np.int64), *documents]).astype(np.int64)
    first = np.cumsum([0, *map(len, documents)])
    own, nothing = list(fields.values()), np.zeros(0, np.int64)
    return FieldMatches(
        tuple(fields),
        np.concatenate([nothing, *(start + each[0] for start, each in zip(first, parts, strict=False))]),
        np.concatenate([nothing, *(each[1] for each in parts)]),
        np.concatenate([np.zeros(0), *(each[2] for each in parts)]),
        np.concatenate([np.zeros((0, len(own))), *(each[3] for each in parts)]),
        kept_lengths(np.column_stack([each.lengths[every] for each in own]).astype(np.float64)),
        np.column_stack([(each.starts[known + 1] - each.starts[known]).astype(np.float64) for each in own]),
        np.array([float(np.sum(each.lengths > 0)) for each in own]),
        np.array([float(each.size) for each in own]),
        len(index),
    )


def postings_of_fields(index: Index) -> dict[str, Field]:
    """Return the postings of every field with words; title and body if documents have no fields."""
    known = fields_of_index(index)
    if known is None:
        return {name: index.fields[name] for name in ("title", "body") if index.fields[name].size}
    found, count = {}, len(index)
    for place, name in enumerate(known.fields.words):
        ends = known.item_ends[known.document_ends[place * count : (place + 1) * count + 1]]
        tokens = known.tokens[ends[0] : ends[-1]]
        words = tokens < known.first_stop  # stop words are not terms
        before = np.concatenate([[0], np.cumsum(words)])
        found[name] = field_of(counted_terms(tokens[words], before[ends - ends[0]], len(index.terms)))
    return {name: own for name, own in found.items() if own.size}


def _cells(
    index: Index, fields: Sequence[Field], texts: Sequence[str], documents: Sequence[Ints], numbers: dict[int, int]
) -> Iterator[tuple[Ints, Ints, Floats, Floats]]:
    """Yield every query's cells: row, index of the word in `numbers`, its count in the query, and in each field."""
    for text, own in zip(texts, documents, strict=True):
        said = Counter(index.terms.find(term) for term in index.tokeniser.terms(text))
        del said[-1]
        terms = np.array([numbers.setdefault(term, len(numbers)) for term in said], np.int64)
        times = np.array(list(said.values()), np.float64)
        counts = np.stack([each.counts_of(list(said), own) for each in fields], axis=2)
        rows, columns = np.nonzero(counts.any(axis=2))
        yield rows, terms[columns], times[columns], counts[rows, columns]


def as_text(boosts: Mapping[str, float]) -> list[str]:
    """Return fields with boosts as in requests: `title^10`."""
    return [name if value == 1 else f"{name}^{value:g}" for name, value in boosts.items()]


def told(asked: Boosts) -> str:
    """Describe boosts in a line of text."""
    tie = f", tie_breaker {asked.tie:g}" if asked.form in TIED else ""
    left = [name for name in asked.boosts if not asked.boosts[name]]
    return " ".join(as_text(asked.used)) + tie + (f" (without {', '.join(left)})" if left else "")
