"""The fields of an index's documents, stored with it: their words in order, and numbers.

A field's words have the numbers of the index's terms; stop words, which are not terms, have higher numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querywise.data.collections import Document
from querywise.data.fields import FILE, Fields
from querywise.errors import DataError, ModelFileError
from querywise.retrieval.index import Index
from querywise.retrieval.words import STOP_WORDS
from querywise.runtime.arrays import Arrays, Floats, Ints, for_kernels
from querywise.runtime.workers import require_memory

_NOTE, PREFIX = "fields", "fields."
_NUMBERS, _TOKENS, _ITEMS, _DOCUMENTS = (f"{PREFIX}{name}" for name in ("numbers", "tokens", "items", "documents"))
_STOPS = {word: place for place, word in enumerate(sorted(STOP_WORDS))}
_WORD_BYTES, _NUMBER_BYTES, _TERM_BYTES = 32, 40, 4  # bytes per field for every document, or every term
_WORDS, _MOST_WORDS = "fields.words", 1_000_000  # cached words
_Counts = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class IndexedFields:
    """The fields of documents as stored in an index.

    Attributes:
        tokens: the words of all fields, concatenated.
        item_ends: item i ends at item_ends[i + 1].
        document_ends: with N documents, the items of document d in the field with words f end at document_ends[f N + d
            + 1].
        first_stop: the number of the first stop word.
        numbers: documents × numbers, NaN if missing.
    """

    fields: Fields
    tokens: _Counts
    item_ends: Ints
    document_ends: Ints
    first_stop: int
    numbers: Floats

    @cached_property
    def measured(self) -> tuple[_Counts, _Counts, Floats]:
        """Each field's document lengths, document frequencies of terms, and mean length, all without stop words."""
        from querywise.retrieval.kernels import measure

        fields = len(self.fields.words)
        lengths = np.zeros((fields, len(self.numbers)), np.int32)
        frequency = np.zeros((fields, self.first_stop), np.int32)
        measure(self.tokens, self.item_ends, self.document_ends, self.first_stop, lengths, frequency)
        return lengths, frequency, np.maximum(lengths.mean(axis=1), 1e-12)

    @cached_property
    def lacking(self) -> tuple[bool, ...]:
        """Which of the numbers are missing in some document."""
        return tuple(bool(np.isnan(each).any()) for each in self.numbers.T)

    @cached_property
    def filled(self) -> Floats:
        """The numbers, with the median for missing ones."""
        found = self.numbers.copy()
        for own in found.T:
            lost = np.isnan(own)
            if lost.any():
                own[lost] = 0.0 if lost.all() else np.median(own[~lost])
        return found

    @cached_property
    def spare(self) -> list[Ints]:
        """Zero arrays with an entry per word that no thread uses; they are returned here after being reset to zeros."""
        return []

    def zeros(self) -> Ints:
        """Return one of these arrays, or a new one."""
        try:
            return self.spare.pop()
        except IndexError:
            return np.zeros(self.first_stop + len(_STOPS), np.int64)

    def __reduce__(self) -> tuple[type[IndexedFields], tuple[Fields, _Counts, Ints, Ints, int, Floats]]:
        own = self.fields, self.tokens, self.item_ends, self.document_ends, self.first_stop, self.numbers
        return IndexedFields, own


def with_fields(index: Index, documents: Iterable[Document], fields: Fields) -> Index:
    """Return the index with its documents' fields; `documents` are those of the index, in order."""
    _require_room(fields, len(index), len(index.terms))
    words = {name: (array("i"), array("q"), array("q")) for name in fields.words}
    numbers, numbered = array("d"), dict[str, tuple[int | str, ...]]()
    for document in documents:
        for name, (tokens, items, ends) in words.items():
            texts = document.values[name]
            for text in texts if isinstance(texts, tuple) else ():
                tokens.extend(each for each in _numbers_of(index, text, numbered) if isinstance(each, int))
                items.append(len(tokens))
            ends.append(len(items))
        numbers.extend(_number(document, each.name) for each in fields.numbers)
    every = words.values()
    extra: Arrays = {
        _NUMBERS: np.frombuffer(numbers).reshape(len(index), -1) if numbers else np.zeros((len(index), 0)),
        _TOKENS: np.concatenate([np.zeros(0, np.int32), *(np.array(tokens, np.int32) for tokens, _, _ in every)]),
        _ITEMS: _end_to_end([(np.array(items, np.int64), len(tokens)) for tokens, items, _ in every]),
        _DOCUMENTS: _end_to_end([(np.array(ends, np.int64), len(items)) for _, items, ends in every]),
    }
    return replace(index, extra=index.extra | extra, notes={**index.notes, _NOTE: fields.as_json()})


def _require_room(fields: Fields, documents: int, terms: int) -> None:
    """Raise DataError if the fields do not fit into memory: each has data per document, some also per term."""
    words, numbers = len(fields.words), len(fields.numbers)
    require_memory(
        documents * (_WORD_BYTES * words + _NUMBER_BYTES * numbers) + _TERM_BYTES * words * terms,
        f"{words + numbers} fields of {documents} documents take",
        f"Say in {FILE} which of them are ignored.",
    )


def _end_to_end(parts: list[tuple[Ints, int]]) -> Ints:
    """Return where things end when several rows of them are concatenated, given each row's ends and length."""
    before = np.cumsum([0, *(size for _, size in parts)])
    return np.concatenate([np.zeros(1, np.int64), *(ends + before[at] for at, (ends, _) in enumerate(parts))])


def _number(document: Document, name: str) -> float:
    value = document.values[name]
    assert isinstance(value, float)
    return value


def _numbers_of(index: Index, text: str, numbered: dict[str, tuple[int | str, ...]]) -> list[int | str]:
    """Return the words of a text by number, in order; unknown terms as texts."""
    found: list[int | str] = []
    for word in index.tokeniser.words(text):
        own = numbered.get(word)
        if own is None:
            terms = [(term, index.terms.find(term)) for term in index.tokeniser.terms_of(word)]
            stop = [(word, len(index.terms) + _STOPS[word])] if word in _STOPS else []
            own = tuple(term if number < 0 else number for term, number in terms or stop)
            if len(numbered) < _MOST_WORDS:
                numbered[word] = own
        found += own
    return found


def sequence_of(index: Index, text: str) -> list[int]:
    """Return the words of a query by number, in order, including stop words; unknown words are −1, −2, …"""
    found = _numbers_of(index, text, index._made.setdefault(_WORDS, {}))
    unknown = dict.fromkeys(each for each in found if isinstance(each, str))
    numbers = {each: -place for place, each in enumerate(unknown, start=1)}
    return [numbers[each] if isinstance(each, str) else each for each in found]


def fields_of_index(index: Index) -> IndexedFields | None:
    """Return the fields of an index's documents, or None if they have only title, text and columns."""
    if _NUMBERS not in index.extra:
        return None
    if _NOTE not in index._made:
        index._made[_NOTE] = _read(index)
    found: IndexedFields = index._made[_NOTE]
    return found


def _read(index: Index) -> IndexedFields:
    kept = [index.extra.get(name) for name in (_TOKENS, _ITEMS, _DOCUMENTS)]
    try:
        fields = Fields.from_json(index.notes.get(_NOTE), "The index")
    except DataError:
        raise _unfit() from None
    _require_room(fields, len(index), len(index.terms))
    numbers, words = index.extra[_NUMBERS], len(index.terms) + len(_STOPS)
    sound = numbers.dtype == np.float64 and numbers.shape == (len(index), len(fields.numbers))
    if not sound or np.isinf(numbers).any() or not _is_sound(kept, words, len(fields.words) * len(index)):
        raise _unfit()
    tokens, items, documents = (for_kernels(np.asarray(each)) for each in kept)
    own = tokens.view(np.int32), items.view(np.int64), documents.view(np.int64)
    return IndexedFields(fields, *own, len(index.terms), np.asarray(numbers, np.float64))


def _is_sound(kept: list[NDArray[np.generic] | None], words: int, documents: int) -> bool:
    """Return whether the ends of items and documents are consistent."""
    tokens, items, ends = kept
    if tokens is None or items is None or ends is None or tokens.ndim != 1 or tokens.dtype != np.int32:
        return False
    inside = not len(tokens) or 0 <= int(tokens.min()) <= int(tokens.max()) < words
    return inside and _rises(items, len(tokens)) and len(ends) == documents + 1 and _rises(ends, len(items) - 1)


def _rises(ends: NDArray[np.generic], last: int) -> bool:
    known = ends.ndim == 1 and ends.dtype == np.int64 and len(ends) > 0
    return bool(known and ends[0] == 0 and ends[-1] == last and (np.diff(ends.view(np.int64)) >= 0).all())


def _unfit() -> ModelFileError:
    return ModelFileError("The fields of this index do not fit its documents. Rebuild the index.")
