"""Near-duplicates: queries so similar that a model that has learned one has learned the other.

Two queries are near-duplicates if they have the same words after stemming, in any order; if their texts are one edit
apart; if the cosine of their vectors is above 0.95; if the same documents are relevant to both; or if they have the
same group. Only known properties are compared.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from querywise.data.judged import Judged
from querywise.errors import DataError, Hint
from querywise.retrieval.words import Tokeniser
from querywise.runtime.arrays import Bools, Floats, Ints, Singles

GROUP_BY = ("group", "query", "near")  # what folds keep together
_CHAIN = 0.05  # share of the queries: a larger component triggers a hint
COSINE = 0.95  # vectors with a higher cosine are near-duplicates
_SHORTEST = 4  # letters of a text: in shorter ones, many different words are one edit apart
_LONGEST = 200  # letters; longer texts are only compared by their words
_BLOCK = 512  # queries whose cosines with all others are in memory at a time


@dataclass(frozen=True, eq=False)
class TwinFacts:
    """The properties by which near-duplicates of some queries are found.

    Attributes:
        texts, groups: None if a query has none.
        relevant: a checksum of the set of its relevant documents; None if there are none, or documents have no ids.
        vectors: queries × dimensions, of length 1; zeros if a query has none.
    """

    ids: tuple[str, ...]
    texts: tuple[str | None, ...]
    groups: tuple[str | None, ...]
    relevant: tuple[bytes | None, ...]
    vectors: Singles

    @classmethod
    def of(cls, data: Judged) -> TwinFacts:
        """Return the properties of the queries of a judged set."""
        table, nothing = data.candidates.queries, (None,) * len(data)
        vectors = None if table is None else table.vectors
        return cls(
            data.query_ids,
            nothing if table is None or table.texts is None else table.texts,
            nothing if table is None or table.groups is None else table.groups,
            _relevant(data),
            np.zeros((len(data), 0), np.float32) if vectors is None else _of_length_one(vectors),
        )

    @classmethod
    def joined(cls, several: Sequence[TwinFacts]) -> TwinFacts:
        """Return those of several sets, each query once."""
        seen: set[str] = set()
        kept: list[list[int]] = []
        for part in several:
            kept.append([row for row, each in enumerate(part.ids) if each not in seen])
            seen.update(part.ids)
        width = max((part.vectors.shape[1] for part in several), default=0)
        vectors = [part.vectors for part in several]
        filled = [each if each.shape[1] == width else np.zeros((len(each), width), np.float32) for each in vectors]
        chosen = list(zip(several, kept, strict=True))
        return cls(
            tuple(part.ids[row] for part, rows in chosen for row in rows),
            tuple(part.texts[row] for part, rows in chosen for row in rows),
            tuple(part.groups[row] for part, rows in chosen for row in rows),
            tuple(part.relevant[row] for part, rows in chosen for row in rows),
            np.concatenate(
                [np.zeros((0, width), np.float32), *(each[rows] for each, rows in zip(filled, kept, strict=True))]
            ),
        )

    def named(self, query: int) -> str:
        """Return a query's name in messages: its text, or its id."""
        return self.texts[query] or self.ids[query]


class NearTwins:
    """The near-duplicates among queries, given their properties."""

    def __init__(self, facts: TwinFacts) -> None:
        self.facts = facts
        pairs = list(_alike(facts))
        self._owner = np.array([query for query, _ in pairs], dtype=np.int64)  # the query that has a mark
        self._mark = np.array([mark for _, mark in pairs], dtype=np.int64)
        self._known: Bools = np.asarray(facts.vectors.any(axis=1))

    def among(self, asked: Ints, others: Ints) -> Ints:
        """Return for every query of `asked` the index of a near-duplicate among `others`, never itself.

        −1 if it has none.
        """
        found = np.full(len(asked), -1, dtype=np.int64)
        there, wanted = set(others.tolist()), set(asked.tolist())
        marked: dict[int, list[int]] = defaultdict(list)
        of_query: dict[int, list[int]] = defaultdict(list)
        for query, mark in zip(self._owner.tolist(), self._mark.tolist(), strict=True):
            if query in there and len(marked[mark]) < 2:  # if there are two, one is not the query itself
                marked[mark].append(query)
            if query in wanted:
                of_query[query].append(mark)
        for place, query in enumerate(asked.tolist()):
            twins = (each for mark in of_query[query] for each in marked[mark] if each != query)
            found[place] = next(twins, -1)
        self._by_vectors(asked, others, found)
        return found

    def _by_vectors(self, asked: Ints, others: Ints, found: Ints) -> None:
        """Search for the nearest vector of queries for which nothing else was found."""
        known = others[self._known[others]]
        open_ = np.flatnonzero((found < 0) & self._known[asked])
        vectors = self.facts.vectors
        for first in range(0, len(open_) if len(known) else 0, _BLOCK):
            block = open_[first : first + _BLOCK]
            cosines = vectors[asked[block]] @ vectors[known].T
            cosines[asked[block][:, None] == known] = -1.0
            nearest = cosines.argmax(axis=1)
            near = cosines[np.arange(len(block)), nearest] > COSINE
            found[block[near]] = known[nearest[near]]

    def components(self) -> Ints:
        """Return the index of every query's component: near-duplicates, their near-duplicates, and so on."""
        count = len(self.facts.ids)
        marks = int(self._mark.max(initial=-1)) + 1
        ends = self._owner, count + self._mark
        graph = coo_array((np.ones(len(self._owner)), ends), shape=(count + marks, count + marks))
        labels = connected_components(graph, directed=False)[1][:count].astype(np.int64)
        known, vectors = np.flatnonzero(self._known), self.facts.vectors
        for first in range(0, len(known), _BLOCK):
            block = known[first : first + _BLOCK]
            row, other = np.nonzero(vectors[block] @ vectors[known[first:]].T > COSINE)
            labels = _merged(labels, labels[block[row]], labels[known[first:][other]])
        return np.unique(labels, return_inverse=True)[1]


def _merged(labels: Ints, some: Ints, others: Ints) -> Ints:
    """Return labels of components after joining some with others."""
    count = int(labels.max(initial=-1)) + 1
    edges = np.unique(np.stack([some, others])[:, some != others], axis=1)
    if not edges.size:
        return labels
    graph = coo_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(count, count))
    return connected_components(graph, directed=False)[1].astype(np.int64)[labels]


def near_groups(data: Judged) -> tuple[str | None, ...]:
    """Return a group for every query: its near-duplicates, theirs and so on; None for a query without any.

    Queries with the same given group stay together. `make_folds(data.with_groups(near_groups(data)))` makes folds by
    these groups.

    Args:
        data: a judged set whose queries have texts, vectors or document ids.

    Returns:
        A text per query, for `Judged.with_groups`.

    Raises:
        DataError: None of these is known.

    >>> from querywise import QueryTable, make_judged
    >>> from querywise.retrieval.twins import near_groups
    >>> data = make_judged(3, 5, 2)
    >>> near_groups(data.with_queries(QueryTable(data.query_ids, texts=("fast cars", "jaguar", "car fast"))))
    ('q1', None, 'q1')
    """
    facts = TwinFacts.of(data)
    if not any(map(any, (facts.texts, facts.groups, facts.relevant))) and not facts.vectors.any():
        raise DataError(
            "Near-duplicates are found by the texts or vectors of queries, or by the ids of relevant documents, and "
            "none of "
            "these is known here. Give texts in queries.jsonl, or fold by groups that you know."
        )
    components = NearTwins(facts).components()
    _, first, sizes = np.unique(components, return_index=True, return_counts=True)
    return tuple(data.query_ids[first[each]] if sizes[each] > 1 else None for each in components.tolist())


def is_chain(size: int, queries: int) -> bool:
    """Return whether a component with this many of the queries is too large to be the wordings of one need."""
    return size > max(_CHAIN * queries, 2)


def check_group_by(by: str) -> None:
    """Raise DataError for an unknown way to group queries."""
    if by not in GROUP_BY:
        raise DataError(f"group_by={by!r} is unknown. Known: {', '.join(GROUP_BY)}.", arguments=("group_by",))


def grouped_by(data: Judged, by: str) -> Judged:
    """Return the set with the groups that folds are to keep together.

    `by` is `group` for existing groups, `query` for none, so that every query is on its own, or `near` for components
    of near-duplicates. A component with more than 5 % of the queries triggers a hint.
    """
    check_group_by(by)
    if by != "near":
        return data if by == "group" else data.with_groups(None)
    groups = near_groups(data)
    largest = max(Counter(filter(None, groups)).values(), default=0)
    if largest > np.bincount(data.groups).max(initial=0) and is_chain(largest, len(data)):  # and not a given group
        share = f"{largest:,} of {len(data):,} queries ({100 * largest / len(data):.1f} %)"
        warnings.warn(
            f"One chain of near-duplicates has {share}: each is similar to the next, but the first need not be "
            "similar to "
            "the last. "
            "Such chains say that the rule is too loose here; give groups of your own.",
            Hint,
            stacklevel=2,
        )
    return data.with_groups(groups)


def _relevant(data: Judged) -> tuple[bytes | None, ...]:
    """Return a checksum of each query's set of relevant documents."""
    candidates, missed = data.candidates, data.missed
    sets: list[set[str]] = [set() for _ in range(len(data))]
    if candidates.document_ids is not None:
        rows = np.flatnonzero(data.labels > 0)
        for row, query in zip(rows.tolist(), candidates.query_of_row[rows].tolist(), strict=True):
            sets[query].add(candidates.document_ids[row])
    if missed is not None:
        for query, own in enumerate(sets):
            own.update(document for document, grade in missed.of(query).items() if grade > 0)
    return tuple(hashlib.blake2b(repr(sorted(own)).encode(), digest_size=16).digest() if own else None for own in sets)


def _of_length_one(vectors: Floats) -> Singles:
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0)[:, None], dtype=np.float32)


def _alike(facts: TwinFacts) -> Iterable[tuple[int, int]]:
    """Yield queries with marks: those that share one are near-duplicates."""
    numbers: dict[tuple[str, object], int] = {}
    tokeniser, owners = Tokeniser(stop_words=False), defaultdict(list)
    for query, text in enumerate(facts.texts):
        words = tokeniser.words(text or "")
        if words:
            owners[" ".join(words)].append(query)
            stems = " ".join(sorted(term for word in words for term in tokeniser.terms_of(word)))
            yield query, numbers.setdefault(("stems", stems), len(numbers))
    for kind, values in (("group", facts.groups), ("relevant", facts.relevant)):
        for query, value in enumerate(values):
            if value is not None:
                yield query, numbers.setdefault((kind, value), len(numbers))
    for edit in _one_edit(owners):
        mark = numbers.setdefault(("edit", edit), len(numbers))
        yield from ((query, mark) for text in edit for query in owners[text])


def _one_edit(texts: Iterable[str]) -> Iterable[tuple[str, ...]]:
    """Yield sets of texts that are pairwise one edit apart: one letter changed, or added.

    Texts of equal length that are the same without the letter at one position differ only there.
    """
    by_length: dict[int, dict[str, None]] = defaultdict(dict)
    for text in texts:
        if _SHORTEST <= len(text) <= _LONGEST:
            by_length[len(text)][text] = None
    for length in sorted(by_length):
        same_but_for_one: dict[tuple[int, str], list[str]] = defaultdict(list)
        shorter = by_length.get(length - 1, {})
        for text in by_length[length]:
            without = [text[:place] + text[place + 1 :] for place in range(length)]
            yield from ((text, each) for each in dict.fromkeys(without) if each in shorter)
            for place, each in enumerate(without):
                same_but_for_one[place, each].append(text)
        yield from (tuple(each) for each in same_but_for_one.values() if len(each) > 1)
