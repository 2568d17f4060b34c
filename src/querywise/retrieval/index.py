"""An index of documents: the postings of each field, in arrays that can be memory-mapped.

It is built in one pass over the documents; the same documents give the same bytes. Models trained on an index share its
language.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from querywise.data.collections import Document
from querywise.display.words import counted
from querywise.errors import DataError, ModelFileError
from querywise.retrieval.field import Field
from querywise.retrieval.words import Tokeniser
from querywise.runtime.arrays import Arrays, Bytes, Floats, Ints
from querywise.runtime.files import (
    OutputFolder,
    PathLike,
    atomic_folder,
    crc32_of,
    crc32_of_open,
    is_sealed,
    map_array,
    read_steadily,
    read_stored_text,
    regular_file,
    sealed,
)
from querywise.runtime.threads import in_threads
from querywise.runtime.values import Json, JsonObject

FORMAT = "querywise index"
FORMAT_VERSION = 2
FIELDS = ("title", "body", "both")  # both: title and body as one text
_MANIFEST = "manifest.json"
_EXTRA = "extra."
_SNIPPET = 200
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Index:
    """Documents and sorted terms by index, three fields, and the user's columns.

    `extra` holds further arrays that are stored with it, such as vectors; `notes` describe them.
    """

    tokeniser: Tokeniser
    terms: Strings
    document_ids: Strings
    titles: Strings
    snippets: Strings
    fields: dict[str, Field]
    columns: Floats
    column_names: tuple[str, ...] = ()
    extra: Arrays = field(default_factory=dict, repr=False)
    notes: JsonObject = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.document_ids)

    def __repr__(self) -> str:
        columns = [counted(len(self.column_names), "column")] if self.column_names else []
        sizes = [counted(len(self), "document"), counted(len(self.terms), "term"), f"fields {', '.join(self.fields)}"]
        return f"Index({', '.join([*sizes, *columns])})"

    def numbers_of(self, text: str) -> list[int]:
        """Return a query's distinct terms by index, in order of appearance; −1 for unknown ones."""
        found: list[int | str] = []
        for word in self.tokeniser.words(text):
            terms = self._words.get(word)
            if terms is None:
                numbered = [(term, self.terms.find(term)) for term in self.tokeniser.terms_of(word)]
                terms = tuple(term if number < 0 else number for term, number in numbered)
                if len(self._words) < 1_000_000:
                    self._words[word] = terms
            found += terms
        return [each if type(each) is int else -1 for each in dict.fromkeys(found)]

    def place_of(self, document_id: str) -> int | None:
        """Return the index of a document, or None."""
        return self.document_ids.places.get(document_id)

    @cached_property
    def _words(self) -> dict[str, tuple[int | str, ...]]:
        return {}  # cache of words' term numbers; unknown terms are kept as texts

    @cached_property
    def _made(self) -> dict[str, Any]:
        return {}  # cache of objects built from `extra`, by name


def build_index(documents: Iterable[Document], tokeniser: Tokeniser | None = None) -> Index:
    """Index documents for BM25 and the other rankers by words, reading each once.

    Args:
        documents: the documents of `Collection.documents()`, or any Document(id, title, text).
        tokeniser: how text becomes terms; None is English, stemmed, without stop words.

    Returns:
        An Index, which `judged_candidates` and `search` take; `save_index` stores it.

    Raises:
        DataError: No document, duplicate ids, and documents with different columns.

    >>> from querywise import build_index
    >>> from querywise.data.collections import Document
    >>> index = build_index([Document("D1", "jaguar", "a large cat"), Document("D2", "python", "a large snake")])
    >>> len(index.document_ids)
    2
    """
    words = tokeniser or Tokeniser()
    read = _read_documents(documents, words)
    ids, names = read.ids, read.column_names
    terms, counted = _counted(read, words)
    return Index(
        tokeniser=words,
        terms=Strings.of(terms),
        document_ids=Strings.of(ids),
        titles=Strings.of(read.titles),
        snippets=Strings.of(read.snippets),
        fields={name: field_of(counted[name]) for name in FIELDS},
        columns=np.frombuffer(read.columns).reshape(len(ids), len(names)) if names else np.zeros((len(ids), 0)),
        column_names=names,
    )


class _Numbers(dict[str, int]):
    """Numbers of folded words, assigned in the order of first appearance."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


@dataclass(eq=False)
class _Read:
    """The data of the documents read so far; `tokens` are the numbers of their words, concatenated."""

    numbers: _Numbers = field(default_factory=_Numbers)
    tokens: dict[str, array[int]] = field(default_factory=lambda: {"title": array("i"), "body": array("i")})
    ends: dict[str, array[int]] = field(default_factory=lambda: {"title": array("q", [0]), "body": array("q", [0])})
    ids: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    snippets: list[str] = field(default_factory=list)
    columns: array[float] = field(default_factory=lambda: array("d"))
    column_names: tuple[str, ...] = ()


def _read_documents(documents: Iterable[Document], words: Tokeniser) -> _Read:
    """Read the documents, each once. Raise DataError for repeated ids, differing columns, or no documents."""
    read, seen = _Read(), set[str]()
    for document in documents:
        if document.id in seen:
            raise DataError(f"Document {document.id!r} appears twice; every document needs a unique id.")
        seen.add(document.id)
        read.column_names = read.column_names if read.ids else tuple(document.columns)
        if set(document.columns) != set(read.column_names):
            raise DataError(
                f"Document {document.id!r} has the columns {sorted(document.columns)}; the first one has "
                f"{sorted(read.column_names)}. All need the same ones."
            )
        for name, text in (("title", document.title), ("body", document.text)):
            read.tokens[name].extend(map(read.numbers.__getitem__, words.words(text)))
            read.ends[name].append(len(read.tokens[name]))
        read.ids.append(document.id)
        read.titles.append(document.title)
        read.snippets.append(" ".join(document.text[: 2 * _SNIPPET].split())[:_SNIPPET])
        read.columns.extend(document.columns[each] for each in read.column_names)
    if not read.ids:
        raise DataError("There is no document to index: the collection is empty.")
    return read


def _counted(read: _Read, words: Tokeniser) -> tuple[list[str], dict[str, csc_array]]:
    """Return the sorted terms, and for every field the count of each term in each document."""
    meanings = [words.terms_of(word) for word in read.numbers]
    terms_in_order = sorted(set(chain.from_iterable(meanings)))
    rank = {term: place for place, term in enumerate(terms_in_order)}
    sizes = np.fromiter(map(len, meanings), np.int64, len(meanings))
    flat = np.fromiter((rank[term] for term in chain.from_iterable(meanings)), np.int32)
    counted = {
        name: counted_terms(*_terms(np.frombuffer(tokens, np.int32), read.ends[name], flat, sizes), len(rank))
        for name, tokens in read.tokens.items()
    }
    counted["both"] = (counted["title"] + counted["body"]).tocsc()
    return terms_in_order, counted


def _terms(
    words: NDArray[np.int32], ends: array[int], flat: NDArray[np.int32], sizes: Ints
) -> tuple[NDArray[np.int32], Ints]:
    """Return the terms of all documents, given their words, and where those of each document end.

    Word w stands for `sizes[w]` terms: the next ones of `flat` after those of earlier words.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    count = sizes[words]
    before = np.concatenate([[0], np.cumsum(count)])
    places = np.repeat(starts[words] - before[:-1], count) + np.arange(before[-1])
    return flat[places], before[np.frombuffer(ends, np.int64)]


def counted_terms(tokens: NDArray[np.int32], ends: Ints, terms: int) -> csc_array:
    """Return documents × terms counts, from the concatenated terms of all documents."""
    from scipy.sparse import csr_array

    shape = (len(ends) - 1, terms)
    ones = np.ones(len(tokens), dtype=np.int32)
    table = csr_array((ones, tokens, ends), shape=shape).tocsc()
    table.sum_duplicates()
    return table


def field_of(counted: csc_array) -> Field:
    """Return a field's postings, from the counts of terms in documents."""
    counted.sort_indices()
    return Field(
        starts=counted.indptr.astype(np.int64),
        documents=counted.indices.astype(np.int32),
        counts=counted.data.astype(np.int32),
        lengths=np.asarray(counted.sum(axis=1)).ravel().astype(np.int32),
        distinct=np.bincount(counted.indices, minlength=counted.shape[0]).astype(np.int32),
        totals=np.asarray(counted.sum(axis=0)).ravel().astype(np.int64),
    )


def save_index(index: Index, folder: PathLike) -> None:
    """Write an index to a folder atomically, replacing an existing index."""
    path = Path(folder)
    check_index_folder(path)
    arrays: dict[str, _Array] = {"columns": index.columns}
    arrays |= {f"{_EXTRA}{name}": values for name, values in index.extra.items()}
    for name in ("terms", "document_ids", "titles", "snippets"):
        strings: Strings = getattr(index, name)
        arrays |= {f"{name}.content": strings.content, f"{name}.starts": strings.starts}
    for name, each in index.fields.items():
        arrays |= {f"{name}.{part}": getattr(each, part) for part in _FIELD_PARTS}
    with atomic_folder(path) as made:
        for name, values in arrays.items():
            np.save(made / f"{name}.npy", np.ascontiguousarray(values), allow_pickle=False)
        manifest: dict[str, Json] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "language": index.tokeniser.language,
            "stop_words": index.tokeniser.stop_words,
            "columns": list(index.column_names),
            "documents": len(index),
            **({"notes": index.notes} if index.notes else {}),
            "bytes": {name: (made / f"{name}.npy").stat().st_size for name in sorted(arrays)},
            "crc32": {name: crc32_of(made / f"{name}.npy") for name in sorted(arrays)},
        }
        (made / _MANIFEST).write_text(json.dumps(sealed(manifest), indent=1) + "\n", encoding="utf-8")


_FIELD_PARTS = ("starts", "documents", "counts", "lengths", "distinct", "totals")
_KINDS = {  # type and number of dimensions of each array, by the end of its name
    "content": (np.dtype(np.uint8), 1),
    "starts": (np.dtype(np.int64), 1),
    "totals": (np.dtype(np.int64), 1),
    "columns": (np.dtype(np.float64), 2),
    **{part: (np.dtype(np.int32), 1) for part in ("documents", "counts", "lengths", "distinct")},
}


def load_index(folder: PathLike) -> Index:
    """Return the index in a folder, memory-mapped, after verifying the checksums of its files."""
    path = Path(folder)
    return read_steadily(path, _MANIFEST, lambda: _load(path))


def _load(path: Path) -> Index:
    manifest = _read_manifest(path)
    _check_files(path, manifest)

    def mapped(name: str) -> _Array:
        file = path / f"{name}.npy"
        try:
            if name not in manifest["bytes"]:
                raise KeyError(name)
            values: _Array = map_array(file, path)
            if not name.startswith(_EXTRA) and (values.dtype, values.ndim) != _KINDS[name.rpartition(".")[2]]:
                raise KeyError(name)
        except (OSError, KeyError, DataError):
            raise ModelFileError(f"{file}: missing or damaged. Rebuild the index with `querywise index`.") from None
        return values

    def strings(name: str) -> Strings:
        return Strings(mapped(f"{name}.content"), mapped(f"{name}.starts"))

    try:
        words = Tokeniser(manifest["language"], stop_words=manifest["stop_words"])
    except DataError as error:
        raise ModelFileError(f"{path / _MANIFEST}: {error}") from None
    index = Index(
        tokeniser=words,
        terms=strings("terms"),
        document_ids=strings("document_ids"),
        titles=strings("titles"),
        snippets=strings("snippets"),
        fields={name: Field(*(mapped(f"{name}.{part}") for part in _FIELD_PARTS)) for name in FIELDS},
        columns=mapped("columns"),
        column_names=tuple(manifest["columns"]),
        extra={name.removeprefix(_EXTRA): mapped(name) for name in manifest["bytes"] if name.startswith(_EXTRA)},
        notes=manifest.get("notes", {}),
    )
    _check_together(index, manifest, path)
    return index


def _check_together(index: Index, manifest: dict[str, Any], path: Path) -> None:
    """Raise ModelFileError for inconsistent arrays, which search relies on."""
    texts = (index.terms, index.document_ids, index.titles, index.snippets)
    sizes = {(len(each.totals), len(each.lengths)) for each in index.fields.values()}
    if (
        not all(each.is_sound for each in texts)
        or any(len(each) != manifest.get("documents") for each in texts[1:])
        or index.columns.shape != (len(index), len(index.column_names))
        or not np.isfinite(index.columns).all()
        or sizes != {(len(index.terms), len(index))}
    ):
        raise ModelFileError(f"{path / _MANIFEST}: does not belong to the files beside it. Rebuild the index.")
    for each in index.fields.values():
        _ = each.checked


def _check_files(path: Path, manifest: dict[str, Any]) -> None:
    """Raise ModelFileError for a missing or changed file: the index would give different results."""

    def check(name: str) -> None:
        file = path / f"{name}.npy"
        try:
            with regular_file(file, path) as opened:
                if os.fstat(opened.fileno()).st_size != manifest["bytes"][name]:
                    raise ModelFileError(f"{file}: cut short or changed. Rebuild the index with `querywise index`.")
                map_array(file, path)  # raises an error before reading a file that is longer than its array
                sound = crc32_of_open(opened) == manifest["crc32"][name]
        except (OSError, KeyError, TypeError):
            sound = False
        except DataError as error:  # it is a pipe, or lies elsewhere
            raise ModelFileError(f"{error} Rebuild the index with `querywise index`.") from None
        if not sound:
            raise ModelFileError(f"{file}: missing or damaged. Rebuild the index with `querywise index`.")

    in_threads(check, sorted(manifest["bytes"]))


def _is_of_index(name: str) -> bool:
    stem, ending = os.path.splitext(name)
    return name == _MANIFEST or (ending == ".npy" and (stem.startswith(_EXTRA) or stem.rpartition(".")[2] in _KINDS))


_OTHER = "this holds something that is not a querywise index. Name a new folder."
_STRAY = "is beside the index here, which is replaced as a whole. Move it away, or name another folder."
_FOLDER = OutputFolder(
    a_file=_OTHER, other=_OTHER, manifest=_MANIFEST, belongs=_is_of_index, stray=_STRAY, makes_parents=False
)


def check_index_folder(path: Path) -> None:
    """Raise an error for a path where no index can be written, before any long work is done."""
    if (path / _MANIFEST).is_file():
        read_steadily(path, _MANIFEST, lambda: _read_body(path))
    _FOLDER.check(path)


def _read_body(path: Path) -> dict[str, Any]:
    file = path / _MANIFEST
    if not file.is_file():
        raise ModelFileError(f"{path}: not an index. save_index(index, folder) and `querywise index` make one.")
    try:
        manifest = json.loads(read_stored_text(file))
    except (ValueError, RecursionError, OSError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"{file}: not the manifest of a querywise index.")
    return manifest


def _read_manifest(path: Path) -> dict[str, Any]:
    file, manifest = path / _MANIFEST, _read_body(path)
    if manifest.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{file}: format version {manifest.get('format_version')!r}; this querywise reads {FORMAT_VERSION}. "
            "Rebuild the index with `querywise index`."
        )
    sound = (
        isinstance(manifest.get("bytes"), dict)
        and isinstance(manifest.get("crc32"), dict)
        and isinstance(manifest.get("stop_words"), bool)
        and isinstance(manifest.get("language", 0), (str, type(None)))
        and isinstance(manifest.get("columns"), list)
        and isinstance(manifest.get("notes", {}), dict)
        and all(isinstance(name, str) for name in manifest["columns"])
    )
    if not sound or not is_sealed(manifest):
        raise ModelFileError(f"{file}: damaged. Rebuild the index with `querywise index`.")
    return manifest


_NOTE, _NONE = "language", "none"


def language_notes(index: Index) -> JsonObject:
    """Return a model's note on an index's language."""
    return {_NOTE: index.tokeniser.language or _NONE}


def require_language(index: Index, notes: JsonObject, model: str) -> None:
    """Raise DataError if an index's language is not the model's; a model trained on files has no language.

    `notes` are the model's; `model` is its name in messages.
    """
    found = index.tokeniser.language or _NONE
    trained = notes.get(_NOTE, found)
    if trained != found:
        raise DataError(
            f"{model} was trained on text with the stemmer {trained}, and this index was made with the stemmer {found}"
            f". Rebuild the index in the language {trained}."
        )


class Strings(Sequence[str]):
    """Many strings in two arrays that can be memory-mapped: their concatenated UTF-8, and where each begins."""

    def __init__(self, content: Bytes, starts: Ints) -> None:
        self.content = content
        self.starts = starts

    @classmethod
    def of(cls, texts: Iterable[str]) -> Strings:
        """Return the strings of a sequence."""
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        starts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(parts), dtype=np.uint8), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        try:
            return self._bytes(place + len(self) if place < 0 else place).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise ModelFileError(f"Text {place} of the index is not UTF-8. Rebuild the index.") from None

    @property
    def is_sound(self) -> bool:
        """Whether the strings lie within the content, in order."""
        starts = self.starts
        in_order = len(starts) and starts[0] == 0 and bool((starts[1:] >= starts[:-1]).all())
        return bool(in_order and starts[-1] == len(self.content))

    @cached_property
    def places(self) -> dict[str, int]:
        """The index of each string."""
        return {each: number for number, each in enumerate(self)}

    def _bytes(self, place: int) -> bytes:
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self.content[self.starts[place] : self.starts[place + 1]].tobytes()

    def find(self, text: str) -> int:
        """Return the index of a string among sorted ones, or −1."""
        wanted = text.encode("utf-8", "surrogatepass")
        content, starts = self.content.data, self.starts.data
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if bytes(content[starts[middle] : starts[middle + 1]]) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self._bytes(low) == wanted else -1
