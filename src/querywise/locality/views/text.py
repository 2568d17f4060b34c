"""A query's text as a point."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.locality.views.looking import FittedView
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.parameters import forget_derived
from querywise.runtime.scaling import Scaling
from querywise.runtime.stored import Known, Several, Table, Text, contents, floats, part
from querywise.runtime.threads import one_blas_thread

_LENGTHS = {"words": (1, 2), "characters": (2, 3, 4)}  # of the n-grams
_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
_FEW = 4  # texts up to which no table is faster
_FEWEST = 2  # training queries that must contain an n-gram
_LENGTHS_COUNT = 0.25  # the weight of the lengths in a distance, per coordinate


@dataclass(eq=False, repr=False)
class NGrams:
    """TF-IDF of n-grams, projected on its principal directions; `kind` is "words" or "characters"."""

    kind: str
    dimensions: int
    seed: int

    stored = contents(
        kind=Text(("words", "characters")),
        vocabulary_=Text(),
        rarity_=floats("grams"),
        directions_=Table(np.float32, ("grams", "coordinates")),
    )

    def fit(self, texts: Sequence[str], /) -> Self:
        """Learn the n-grams, the rarity of each, and the directions in which texts differ most."""
        from sklearn.utils.extmath import randomized_svd

        found = Counter(gram for text in texts for gram in set(self._grams(text)))
        kept = sorted(gram for gram, count in found.items() if count >= _FEWEST)
        self.vocabulary_ = "\n".join(kept)
        self.rarity_ = np.log((1 + len(texts)) / (1 + np.array([found[gram] for gram in kept], dtype=np.float64))) + 1
        forget_derived(self)
        table = self._table(sorted(texts))  # so that the randomized directions do not depend on the order of queries
        count = min(self.dimensions, *table.shape)
        self.directions_ = np.zeros((len(kept), count), dtype=np.float32)
        if count and table.nnz:
            with one_blas_thread():  # the matrices are small, and more threads mostly wait for each other
                self.directions_[:] = randomized_svd(table, count, n_iter=5, random_state=self.seed)[2].T
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that every n-gram occurs once."""
        known.tie("grams", len(self._numbered), "NGrams.vocabulary_")

    def vectors(self, texts: Sequence[str], /) -> Floats:
        """Return one row per text."""
        if len(texts) <= _FEW:
            return np.array([self._point(text) for text in texts]).reshape(len(texts), self.directions_.shape[1])
        points: Floats = self._table(texts) @ self.directions_.astype(np.float64)
        return points

    def _point(self, text: str) -> Floats:
        """Return the row of one text, from its own n-grams' directions, summed in the same order as in a table."""
        known, values = self._weights(text)
        if not len(known):
            return np.zeros(self.directions_.shape[1])
        found: Floats = np.add.accumulate(values[:, None] * self.directions_[known].astype(np.float64), axis=0)[-1]
        return found

    def knows(self, text: str) -> bool:
        """Whether any of a text's words, or of its longest character n-grams, is known."""
        places = self._numbered
        if self.kind == "words":
            return any(word in places for word in _words(text))
        longest = _LENGTHS[self.kind][-1]
        return any(gram in places for gram in self._grams(text) if len(gram) == longest)

    @cached_property
    def _numbered(self) -> dict[str, int]:
        """The index of every n-gram."""
        known = self.vocabulary_.split("\n") if len(self.rarity_) else ()
        return {gram: place for place, gram in enumerate(known)}

    def _table(self, texts: Sequence[str]) -> csr_array:
        """Return texts × n-grams: (1 + log count) × rarity, every row of length 1."""
        columns: list[int] = []
        values: list[float] = []
        ends = [0]
        for text in texts:
            known, weights = self._weights(text)
            columns += known.tolist()
            values += weights.tolist()
            ends.append(len(columns))
        return csr_array((np.array(values, dtype=np.float64), columns, ends), shape=(len(texts), len(self.rarity_)))

    def _weights(self, text: str) -> tuple[Ints, Floats]:
        """Return the known n-grams of a text, by index, and the weight of each."""
        places = self._numbered
        counts = Counter([places[gram] for gram in self._grams(text) if gram in places])
        known = np.array(sorted(counts), dtype=np.int64)
        weights = (1 + np.log([counts[place] for place in known.tolist()])) * self.rarity_[known]
        return known, weights / max(float(np.sqrt(weights @ weights)), 1e-12)

    def _grams(self, text: str) -> list[str]:
        words = _WORD_OR_SIGN.findall(text.casefold())
        if self.kind == "words":
            marked = ["^", *words, "$"]
            return [
                " ".join(marked[first : first + length])
                for length in _LENGTHS[self.kind]
                for first in range(len(marked) - length + 1)
            ]
        return [
            padded[first : first + length]
            for padded in [f" {word} " for word in words]
            for length in _LENGTHS[self.kind]
            for first in range(len(padded) - length + 1)
        ]


@dataclass(eq=False, repr=False)
class TextView(FittedView):
    """A query as a point, by its text: TF-IDF of words and characters, reduced by a truncated SVD, and its length.

    Words are not stemmed and stop words are kept; unigrams and bigrams, beginning and end marked: whether a query
    begins with "how" or ends with a question mark is a strong signal of its kind. The text comes with the queries
    (`queries.jsonl`: `text`).

    Args:
        dimensions: the number of dimensions for words and for characters each, a whole number from 1 up.
        words: whether to use the words.
        characters: whether to use the characters, two to four in a row.
        lengths: whether to use the length of the query.
        seed: the seed of the truncated SVD.

    Raises:
        DataError: None of the three is used, or queries have no texts.

    >>> from querywise import KnnOnline, QueryTable, RankSVM, TextView, make_judged
    >>> data = make_judged(20, 10, 4)
    >>> texts = tuple(f"how to sort {number}" if number % 2 else "cheap flights" for number in range(20))
    >>> data = data.with_queries(QueryTable(data.query_ids, texts=texts))
    >>> TextView(5).fit(data).points(data.candidates).shape
    (20, 14)
    >>> KnnOnline(RankSVM(), k=5, view=TextView(5)).fit(data).predict(data).shape
    (200,)
    """

    dimensions: int = 100
    _: KW_ONLY
    words: bool = True
    characters: bool = True
    lengths: bool = True
    seed: int = 0

    stored = contents(spaces_=Several(part(NGrams), "spaces"), scaling_=part(Scaling, columns=4))

    def fit(self, data: Judged, /) -> Self:
        """Learn the vocabulary, the rarity of each n-gram, and the main directions."""
        whole = self.dimensions >= 1 and self.dimensions == int(self.dimensions)
        if not whole or not (self.words or self.characters or self.lengths):
            raise DataError("TextView needs a whole number of dimensions from 1 up, and words, characters or lengths.")
        texts = _texts(data.candidates)
        self.spaces_ = tuple(
            NGrams(kind, self.dimensions, self.seed).fit(texts)
            for kind, used in (("words", self.words), ("characters", self.characters))
            if used
        )
        self.scaling_ = Scaling.learn(_sizes(texts), "standard")
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that there is a space for words and one for characters, if they are used."""
        known.tie("spaces", int(bool(self.words)) + int(bool(self.characters)), "TextView.spaces_")
        spaces = [known.size_of(space, "coordinates") for space in self.spaces_]
        known.sizes["coordinates"] = sum(spaces) + (4 if self.lengths else 0)

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Return that it uses only the words of a query."""
        return ("text",)

    def known(self, candidates: Candidates, /) -> Bools:
        """Return the queries with a word, or four letters of one, that training queries have too."""
        if not hasattr(self, "spaces_"):
            raise NotFittedError(self)
        texts = _texts(candidates)
        if not self.spaces_:
            return np.array([bool(text.strip()) for text in texts], np.bool_)
        return np.array([any(space.knows(text) for space in self.spaces_) for text in texts], np.bool_)

    def _points(self, candidates: Candidates) -> Floats:
        """Return positions; a query without text has that of one without known words."""
        texts = _texts(candidates)
        parts = [space.vectors(texts) for space in self.spaces_]
        if self.lengths:
            parts.append(_LENGTHS_COUNT * self.scaling_.apply(_sizes(texts)))
        return np.hstack(parts)


def _words(text: str) -> Iterable[str]:
    """Return the words of a text, without punctuation: any text may end in a full stop."""
    return (word for word in _WORD_OR_SIGN.findall(text.casefold()) if word[0].isalnum())


def _texts(candidates: Candidates) -> list[str]:
    table = candidates.queries
    if table is None or table.texts is None:
        raise DataError(
            "The view TextView needs the text of the queries, and these have none. Give a queries.jsonl whose lines "
            'have a "text": data.with_queries(read_queries(path)); over HTTP, query.text.',
            arguments=("queries",),
        )
    return [text or "" for text in table.texts]


def _sizes(texts: Sequence[str]) -> Floats:
    """Return lengths in words and characters, whether a text ends like a sentence, and its share of capitals."""
    rows = []
    for text in texts:
        words = text.split()
        capitals = sum(word[0].isupper() for word in words[1:]) / max(len(words), 1)
        rows.append([np.log1p(len(words)), np.log1p(len(text)), float(text.rstrip().endswith((".", "?"))), capitals])
    return np.array(rows, dtype=np.float64).reshape(len(texts), 4)
