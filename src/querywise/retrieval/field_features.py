"""Features by field: how a query matches the words of each field and of all fields together; numbers and dates.

c(t,f) is how often a word occurs in field f of a document, |f| the field's length there, without stop words; k1 and b
are those of BM25. For a field with words:

* bm25: Σ_t idf_t c (k1 + 1)/(c + k1 (1 − b + b |f|/mean |f|)); coverage: the share of the query's distinct words,
  without stop words, that the field contains; length: |f|;
* share: the highest share of an item's words that are words of the query, including stop words, like all features
  below; exact: whether an item equals the query; named: how many items the query contains in full, at most 9;
* phrase: the length of the longest sequence of the query's words that occurs there contiguously, as a share of the
  query; ordered: the same for their longest common subsequence.

For all fields together, with w_f the weight of each: bm25f, the BM25 of s = Σ_f w_f c/(1 − b + b |f|/mean |f|) instead
of c/(1 − b + …); sum and best, Σ_f w_f bm25 and the largest; coverage; rarity, coverage with words weighted by their
idf; all and most, whether all or three in four of the words are in some field; hit, how many fields contain a word of
the query; named, the share of the query covered by items that it contains in full.
"""

from __future__ import annotations

import re

import numpy as np

from querywise.data.fields import FieldSpec
from querywise.retrieval.field import bm25_idf
from querywise.retrieval.field_texts import IndexedFields, fields_of_index, sequence_of
from querywise.retrieval.index import Index
from querywise.retrieval.scores import Smoothing
from querywise.runtime.arrays import Floats, Ints, for_kernels

OF_FIELD = ("bm25", "coverage", "share", "exact", "phrase", "ordered", "named", "length")
OF_KEYWORD = ("bm25", "coverage", "named")
OF_ALL = ("bm25f", "sum", "best", "coverage", "rarity", "all", "most", "hit", "named")
OF_NUMBER = ("log", "age", "named", "z", "rank", "missing")
ALL = "fields"
_LONGEST = 64  # words of a query that are matched in order
_MOST = 0.75  # of a query's words, as in minimum_should_match
_YEAR = re.compile(r"(?<![0-9])[0-9]{4}(?![0-9])")


def field_feature_names(index: Index) -> tuple[str, ...]:
    """Return the additional columns of an index with fields, in order."""
    known = fields_of_index(index)
    if known is None:
        return ()
    words = [each for each in known.fields.specs if each.has_words]
    over = [f"{ALL}.{each}" for each in OF_ALL] if words else []
    lost = zip(known.fields.numbers, known.lacking, strict=True)
    numbers = [f"{each.name}{part}" for each, lacks in lost for part in _number_parts(each, lacks=lacks)]
    return (*(f"{each.name}.{part}" for each in words for part in _parts(each)), *over, *numbers)


def _parts(spec: FieldSpec) -> tuple[str, ...]:
    return OF_KEYWORD if spec.kind == "keyword" else OF_FIELD


def _number_parts(spec: FieldSpec, *, lacks: bool) -> tuple[str, ...]:
    """Return the features of a number: itself, and those derived from it."""
    own = {"date": (".age", ".named", ".z", ".rank"), "number": (".log",) * spec.log + (".z", ".rank"), "boolean": ()}
    return ("", *own[spec.kind], *((".missing",) if lacks else ()))


def field_features(index: Index, text: str, documents: Ints, smoothing: Smoothing) -> Floats:
    """Return these columns for some documents of one query, which are its candidates."""
    known = fields_of_index(index)
    if known is None:
        return np.zeros((len(documents), 0))
    return np.column_stack([_of_words(index, known, text, documents, smoothing), _of_numbers(known, text, documents)])


def _of_words(index: Index, known: IndexedFields, text: str, documents: Ints, smoothing: Smoothing) -> Floats:
    """Return the columns of every field with words, and of all such fields together."""
    from querywise.retrieval.kernels import meet

    specs = [each for each in known.fields.specs if each.has_words]
    if not specs:
        return np.zeros((len(documents), 0))
    sequence = sequence_of(index, text)
    distinct = sorted(dict.fromkeys(sequence), key=lambda term: term >= known.first_stop)  # stop words last
    column = {term: place for place, term in enumerate(distinct)}
    terms = np.array(distinct, np.int64)
    words = int(np.sum(terms < known.first_stop))
    rarity, idf = np.zeros(len(terms)), np.zeros((len(specs), len(terms)))
    lengths, frequency, means = known.measured
    real = terms[(terms >= 0) & (terms < known.first_stop)]
    at = np.array([column[term] for term in real.tolist()], np.int64)
    totals = index.fields["both"].starts
    rarity[:words] = bm25_idf(len(index), np.zeros(words, np.int64))  # of an unknown word
    rarity[at] = bm25_idf(len(index), totals[real + 1] - totals[real])
    idf[:, at] = bm25_idf(len(index), frequency[:, real].astype(np.int64))
    found = np.zeros((len(documents), len(specs), len(OF_FIELD)))
    over = np.zeros((len(documents), len(OF_ALL)))
    there, places = terms[terms >= 0], known.zeros()
    places[there] = 1 + np.flatnonzero(terms >= 0)
    meet(
        *(known.tokens, known.item_ends, known.document_ends, lengths, means, idf),
        np.array([each.weight for each in specs], np.float64),
        *(rarity, words, max(int(words * _MOST), 1), float(smoothing.k1), float(smoothing.b)),
        np.array([column[term] for term in sequence[:_LONGEST]], np.int64),
        *(places, for_kernels(np.asarray(documents, np.int64)), found, over),
    )
    places[there] = 0
    known.spare.append(places)
    kept = [part in _parts(each) for each in specs for part in OF_FIELD]
    return np.hstack([found.reshape(len(documents), len(kept))[:, kept], over])


def _of_numbers(known: IndexedFields, text: str, documents: Ints) -> Floats:
    """Return the columns of numbers, dates and booleans.

    z is the value minus the mean of the query's candidates, divided by their standard deviation; rank is the share of
    the other candidates that are lower, ties counting half. Both use the logarithm if that is given. A missing value
    becomes the median.
    """
    if not known.fields.numbers:
        return np.zeros((len(documents), 0))
    years, own = [float(each) for each in _YEAR.findall(text)], known.filled[documents]
    logarithms = [each.log for each in known.fields.numbers]
    taken = np.where(logarithms, np.sign(own) * np.log1p(np.abs(own)), own)
    z, ranks = _within(taken)
    columns: list[Floats] = []
    for place, (spec, lacks) in enumerate(zip(known.fields.numbers, known.lacking, strict=True)):
        columns += [own[:, place], taken[:, place]] if spec.log else [own[:, place]]
        if spec.kind == "date":
            said = np.isin(np.floor(own[:, place]), years).astype(np.float64)
            columns += [(spec.reference or 0.0) - own[:, place], said]
        if spec.kind != "boolean":
            columns += [z[:, place], ranks[:, place]]
        if lacks:
            columns.append(np.isnan(known.numbers[documents, place]).astype(np.float64))
    return np.column_stack(columns)


def _within(values: Floats) -> tuple[Floats, Floats]:
    """Return columns relative to the query's other candidates: z-scores and ranks."""
    if not len(values):
        return values, values
    # so that squares neither overflow nor all underflow
    scaled = values / np.maximum(np.abs(values).max(axis=0), 1e-300)
    scaled -= scaled.mean(axis=0)
    spread = np.sqrt(np.mean(scaled * scaled, axis=0))
    z = np.divide(scaled, spread, out=np.zeros_like(scaled), where=spread > 1e-12)
    ordered, below = np.sort(values, axis=0), np.empty_like(values)
    for column, own in enumerate(values.T):
        below[:, column] = ordered[:, column].searchsorted(own) + ordered[:, column].searchsorted(own, "right") - 1
    return z, below / (2 * max(len(values) - 1, 1))
