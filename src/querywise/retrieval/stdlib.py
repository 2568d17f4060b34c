"""The embedded collection: the docstrings of the user's own Python standard library.

A document is a module, a class or a function; its title is its qualified name in words. There are two versions.
`stdlib_pages` is for searching: the full documentation of the library's public names, where a module's or a class's
page includes the first sentences of its members. `stdlib_collection` is for training and testing models: its texts are
the docstrings without their first sentences. It has three kinds of queries, as in the TREC data of [geng2008]_: a
module's first sentence is a query for that module (*home page*), a class's for the class and its members (*topic
distillation*), a function's for that function (*named page*). Since first sentences are removed from every document,
relevant or not, no query matches its own answer verbatim, and no answer is recognizable by what is missing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from querywise.data.collections import Collection, Document
from querywise.data.judgements import Judgement
from querywise.data.query_table import QueryTable
from querywise.retrieval.stdlib_sources import Entry, in_words, read_entries

NAME = "stdlib"
KINDS = ("home page", "topic distillation", "named page")
PER_KIND = 700  # queries of each kind, if there are as many
_SHORTEST, _LONGEST = 3, 40  # words in a sentence that makes a query


def stdlib_collection(*, seed: int = 0, root: Path | None = None) -> Collection:
    """Return the collection, built from the sources of the running Python; one version always gives the same bits."""
    entries, uses = read_entries(root)
    documents = [_document(entry, uses, entry.rest) for entry in entries]
    asked = _asked(entries, seed)
    queries = QueryTable(
        ids=tuple(f"q{number}" for number in range(1, len(asked) + 1)),
        texts=tuple(entry.sentence for _, entry in asked),
        classes=tuple(kind for kind, _ in asked),
    )
    answers = _Answers(entries)
    judgements = []
    for query_id, (kind, entry) in zip(queries.ids, asked, strict=True):
        grades = answers.grades(kind, entry)
        judgements += [Judgement(query_id, name, grade, NAME) for name, grade in grades.items()]
    return Collection(NAME, lambda: documents, queries, tuple(judgements))


def stdlib_pages(*, root: Path | None = None) -> list[Document]:
    """Return the documentation to search, with first sentences and contents, without private or deprecated names."""
    entries, uses = read_entries(root)
    offered = [entry for entry in entries if entry.offered]
    contents: dict[str, list[str]] = {}
    for entry in offered:
        if entry.kind != "module":
            contents.setdefault(entry.owner or entry.module, []).append(entry.sentence)
    return [_document(each, uses, _joined(each.sentence, each.rest, *contents.get(each.name, ()))) for each in offered]


def _joined(*paragraphs: str) -> str:
    return "\n\n".join(each for each in paragraphs if each)


def _document(entry: Entry, uses: Counter[str], text: str) -> Document:
    count = uses[entry.name] if entry.kind == "module" else uses[entry.name.rpartition(".")[2]]
    return Document(entry.name, in_words(entry.name), text, {"log_uses": math.log1p(count)})


def _asked(entries: Iterable[Entry], seed: int) -> list[tuple[str, Entry]]:
    """Return random queries, equally many of each kind, among those whose first sentence is informative."""
    said = Counter(entry.sentence for entry in entries)
    usable = [
        entry
        for entry in entries
        if _SHORTEST <= len(re.findall(r"[a-z]{2,}", entry.sentence.lower())) <= _LONGEST and said[entry.sentence] == 1
    ]
    rng = np.random.default_rng(seed)
    asked: list[tuple[str, Entry]] = []
    for kind, of in zip(KINDS, ("module", "class", "function"), strict=True):
        pool = [entry for entry in usable if entry.kind == of]
        drawn = rng.permutation(len(pool))[:PER_KIND]
        asked += [(kind, pool[place]) for place in np.sort(drawn)]
    return asked


class _Answers:
    """The relevant documents of queries, and their grades."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._members: dict[str, list[str]] = {}
        self._alike: dict[tuple[str, str], list[str]] = {}
        for entry in entries:
            if entry.kind == "function":
                self._alike.setdefault(_last_and_package(entry), []).append(entry.name)
            if entry.owner is not None:
                self._members.setdefault(entry.owner, []).append(entry.name)

    def grades(self, kind: str, asked: Entry) -> dict[str, int]:
        others: dict[str, list[str]] = {
            KINDS[1]: self._members.get(asked.name, []),
            KINDS[2]: self._alike.get(_last_and_package(asked), []),
        }
        return {**dict.fromkeys(others.get(kind, []), 1), asked.name: 2}


def _last_and_package(entry: Entry) -> tuple[str, str]:
    return entry.name.rpartition(".")[2], entry.module.partition(".")[0]
