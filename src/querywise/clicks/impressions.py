"""Impressions: the documents of every result page with their positions and clicks, as arrays."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from querywise.data.parquet.arrow import LONGEST_ID
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints

Codes = NDArray[np.int32]

MOST_POSITIONS = 100  # deeper positions count as this one
_MANY_PAGES = 100  # pages of one session
_IMPROBABLE = 1e-3  # probability of one false alarm among all sessions
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters, and lone surrogates
_BANDS = (1, 2, 5, 10, 100, 1_000)  # pages of a query, lower bounds


def normalized(text: str) -> str:
    """Return a query text without differences of case, spaces and Unicode form.

    >>> normalized("  Red  SHOES ")
    'red shoes'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass
class Notes:
    """Counts of what was noticed while reading; `from_zero` tells whether positions in the file begin at 0."""

    rows: int = 0
    texts: int = 0  # distinct query texts before normalization
    outside: int = 0  # clicks on documents that were not shown
    repeated: int = 0  # further clicks on a document of the same page
    duplicates: int = 0  # rows that repeat a document at the same position of a page
    unreadable: int = 0  # rows and events without a query or a document
    from_zero: bool = False
    deep: int = 0  # impressions below MOST_POSITIONS
    shared: int = 0  # impressions at a position shared with another document of the page
    unordered: bool = False
    has_pages: bool = True
    devices: dict[str, int] = field(default_factory=dict)  # rows of each


class ImpressionRows(NamedTuple):
    """Impressions as they were read, one per row; session −1 and position −1 are unknown."""

    query: Codes
    document: Codes
    position: Codes
    clicked: Bools
    session: Codes
    time: Floats
    propensity: Floats | None

    def of(self, rows: Bools) -> ImpressionRows:
        """Return some of the rows."""
        return ImpressionRows(*(None if each is None else each[rows] for each in self))  # type: ignore[arg-type]


class Bots(NamedTuple):
    """Sessions that are probably not by a person; `pages` are the indices of their pages."""

    sessions: int
    pages: Ints


@dataclass(frozen=True, eq=False)
class Impressions:
    """Result pages in order of time: page `i` owns rows `starts[i]:starts[i + 1]`, by position.

    Attributes:
        query, time, session: Of every page.
        document, position, clicked: Of every row; positions count from 1, and 0 is unknown.
        client: The client of every page, if a session is only one page.

    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    starts: Ints
    query: Codes
    time: Floats
    session: Codes
    document: Codes
    position: NDArray[np.int16]
    clicked: Bools
    propensity: Floats | None = None
    client: Codes | None = None
    notes: Notes = field(default_factory=Notes)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return f"Impressions({len(self):,} pages, {len(self.document):,} rows, {int(self.clicked.sum()):,} clicks)"

    @cached_property
    def page_of_row(self) -> Codes:
        """The page of every row."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.starts))

    @cached_property
    def keys(self) -> Ints:
        """The query–document pair of every row as one number."""
        return self.query[self.page_of_row].astype(np.int64) * len(self.documents) + self.document

    @property
    def has_positions(self) -> bool:
        """Whether positions are known."""
        return bool(len(self.position)) and int(self.position[0]) > 0

    @property
    def has_times(self) -> bool:
        """Whether the time of every page is known."""
        return bool(np.isfinite(self.time).all())

    @property
    def positions(self) -> int:
        """The last position."""
        return int(self.position.max(initial=0))

    def select(self, pages: Ints) -> Impressions:
        """Return pages by index, in this order."""
        sizes = np.diff(self.starts)[pages]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.repeat(self.starts[pages] - starts[:-1], sizes) + np.arange(starts[-1])
        return replace(
            self,
            starts=starts,
            query=self.query[pages],
            time=self.time[pages],
            session=self.session[pages],
            document=self.document[rows],
            position=self.position[rows],
            clicked=self.clicked[rows],
            propensity=None if self.propensity is None else self.propensity[rows],
            client=None if self.client is None else self.client[pages],
        )

    def split(self, share: float = 0.2) -> tuple[Impressions, Impressions]:
        """Return the earlier pages, and the last `share` of them; a session stays on the side of its first page.

        Without times, these are the last pages of every query, since the file may be sorted by query.
        """
        cut = round(len(self) * (1 - share))
        if not 0 < cut < len(self):
            raise DataError(f"{len(self)} result pages cannot be split into an earlier and a later part.")
        if not self.has_times:
            order = np.argsort(self.query, kind="stable")
            own = self.query[order]
            rank = np.empty(len(self), np.int64)
            rank[order] = np.arange(len(self)) - np.searchsorted(own, own)
            late = rank + 1 > np.maximum((1 - share) * np.bincount(self.query)[self.query], 1)
            if late.any():
                return self.select(np.flatnonzero(~late)), self.select(np.flatnonzero(late))
        known = self.session >= 0
        early = np.zeros(int(self.session.max(initial=-1)) + 1, np.bool_)
        early[self.session[:cut][known[:cut]]] = True
        late = np.arange(len(self)) >= cut
        late[known] &= ~early[self.session[known]]
        if not late.any():  # one session only
            late = np.arange(len(self)) >= cut
        return self.select(np.flatnonzero(~late)), self.select(np.flatnonzero(late))

    @property
    def visits(self) -> Codes:
        """The client of every page, or its session; −1 if neither is known."""
        return self.session if self.client is None else self.client

    def bots(self) -> Bots:
        """Return sessions or clients with very many pages, or more clicks than chance allows.

        The clicks of a session are compared with a binomial distribution at the overall click rate; their probability
        times the number of sessions must be above 0.001.
        """
        visits = self.visits
        known = np.flatnonzero(visits >= 0)
        if not len(known):
            return Bots(0, known)
        per_page = np.add.reduceat(self.clicked.astype(np.int64), self.starts[:-1])
        own, count = visits[known], int(visits.max()) + 1
        pages = np.bincount(own, minlength=count)
        shown = np.bincount(own, np.diff(self.starts)[known], minlength=count)
        clicks = np.bincount(own, per_page[known], minlength=count)
        rate = min(max(float(clicks.sum() / shown.sum()), 1e-9), 1 - 1e-9)
        # People differ: twice the overall rate is no sign of a bot.
        odd = stats.binom.sf(clicks - 1, shown, min(2 * rate, 0.95)) * max((pages > 0).sum(), 1) < _IMPROBABLE
        odd |= pages > _MANY_PAGES
        return Bots(int(odd.sum()), known[odd[own]])

    def bands(self) -> list[tuple[str, int, int]]:
        """Return bands of queries by number of pages: the band, its queries and its pages."""
        counts = np.bincount(self.query, minlength=len(self.queries))
        found = []
        for low, high in zip(_BANDS, (*_BANDS[1:], None), strict=True):
            inside = (counts >= low) & (counts < high if high is not None else True)
            name = f"{low:,}+" if high is None else f"{low}" if high == low + 1 else f"{low:,}–{high - 1:,}"
            if inside.any():
                found.append((name, int(inside.sum()), int(counts[inside].sum())))
        return found


class Coder:
    """Assigns numbers to strings, in order of first appearance."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def code(self, text: str) -> int:
        """Return the number of one string."""
        return self.known.setdefault(text, len(self.known))

    def codes(self, texts: Sequence[str]) -> Codes:
        """Return the numbers of strings."""
        known = self.known
        return np.fromiter((known.setdefault(each, len(known)) for each in texts), np.int32, len(texts))

    def keep(self, codes: Codes) -> Codes:
        """Drop the strings that have none of these numbers; return the new numbers."""
        used, found = np.unique(codes, return_inverse=True)
        names = self.names
        self.known = {names[old]: new for new, old in enumerate(used.tolist())}
        return found.astype(np.int32)

    @property
    def names(self) -> tuple[str, ...]:
        """The strings by number."""
        return tuple(self.known)


def together(first: Impressions, second: Impressions) -> tuple[Impressions, Impressions]:
    """Recode two logs to the same query and document numbers, so that models of one can predict the other."""
    queries, documents, found = Coder(), Coder(), []
    for log in (first, second):
        query, document = queries.codes(log.queries)[log.query], documents.codes(log.documents)[log.document]
        found.append(replace(log, query=query, document=document))
    one, two = (replace(each, queries=queries.names, documents=documents.names) for each in found)
    return one, two


def assembled(rows: ImpressionRows, queries: Coder, documents: Coder, notes: Notes) -> Impressions:
    """Group rows into pages, by session and query, in order of time.

    A document that a page repeats at the same position is one row; at another position it begins a further page of the
    same session. Rows without a session are pages of their own.
    """
    rows = _readable(rows, queries, documents, notes)
    if not len(rows.query):
        raise DataError("There is no impression in the log: no document was shown for any query.")
    names, query = _joined(queries, rows.query)
    notes.rows, notes.texts = notes.rows or len(query), len(queries.known)
    position = _checked_positions(rows.position, notes)
    notes.has_pages = bool((rows.session >= 0).any())
    alone = np.arange(len(query), dtype=np.int64)
    span = max(int(rows.session.max()) + 1, 0)
    page = np.where(rows.session >= 0, rows.session.astype(np.int64), span + alone) * len(names) + query
    order = np.lexsort((rows.document, page))  # stable: ties keep the order of the file
    clicked = rows.clicked.copy()
    same = (page[order][1:] == page[order][:-1]) & (rows.document[order][1:] == rows.document[order][:-1])
    again = same & (position[order][1:] == position[order][:-1])
    kept = np.ones(len(query), np.bool_)
    kept[order[1:][again]] = False
    notes.duplicates += int(again.sum())
    _carry_clicks(clicked, order, again)
    occurrence = _occurrences(order, same & ~again, same)
    found = np.flatnonzero(kept)
    found = found[np.lexsort((position[found], occurrence[found], page[found]))]
    new = np.ones(len(found), np.bool_)
    new[1:] = (page[found][1:] != page[found][:-1]) | (occurrence[found][1:] != occurrence[found][:-1])
    starts = np.append(np.flatnonzero(new), len(found))
    return _by_time(rows, found, starts, query, position, clicked, names, documents.names, notes)


def _readable(rows: ImpressionRows, queries: Coder, documents: Coder, notes: Notes) -> ImpressionRows:
    """Drop and count rows whose query or document has a name that cannot be written as a line.

    Anyone who uses a search box chooses the query, and in browser events the document's id too.
    """
    known = np.array([_is_name(normalized(each)) for each in queries.known], np.bool_)
    named = np.array([_is_name(each) and each.isprintable() for each in documents.known], np.bool_)
    good = known[rows.query] & named[rows.document]
    if good.all():
        return rows
    notes.unreadable += int((~good).sum())
    left = rows.of(good)
    return left._replace(query=queries.keep(left.query), document=documents.keep(left.document))


def _is_name(text: str) -> bool:
    return bool(text.strip()) and len(text) <= LONGEST_ID and not _ODD.search(text)


def _carry_clicks(clicked: Bools, order: Ints, again: Bools) -> None:
    """Mark a row that stands for several as clicked if any of them is."""
    if again.any():
        group = np.cumsum(np.concatenate([[True], ~again])) - 1
        any_click = np.zeros(int(group[-1]) + 1, np.bool_)
        np.logical_or.at(any_click, group, clicked[order])
        clicked[order] = any_click[group]


def _occurrences(order: Ints, moved: Bools, same: Bools) -> Codes:
    """Return which appearance of its document in its session's pages a row is, from 0."""
    found = np.zeros(len(order), np.int32)
    if moved.any():
        total = np.concatenate([[0], np.cumsum(moved)])
        first = np.maximum.accumulate(np.where(np.concatenate([[True], ~same]), np.arange(len(order)), 0))
        found[order] = total - total[first]
    return found


def _by_time(
    rows: ImpressionRows,
    found: Ints,
    starts: Ints,
    query: Codes,
    position: Codes,
    clicked: Bools,
    names: tuple[str, ...],
    documents: tuple[str, ...],
    notes: Notes,
) -> Impressions:
    first = np.minimum.reduceat(found, starts[:-1])  # a page's first row in the file
    time = np.minimum.reduceat(rows.time[found], starts[:-1])
    known = bool(np.isfinite(time).all())
    notes.unordered = known and bool((np.diff(time[np.argsort(first)]) < 0).any())
    made = Impressions(
        names,
        documents,
        starts,
        query[found[starts[:-1]]],
        time,
        rows.session[found[starts[:-1]]],
        rows.document[found],
        position[found].astype(np.int16),
        clicked[found],
        None if rows.propensity is None else rows.propensity[found],
        notes=notes,
    )
    inside = np.concatenate([[False], made.position[1:] == made.position[:-1]])
    inside[starts[:-1]] = False
    notes.shared = int(inside.sum()) if made.has_positions and notes.has_pages else 0
    return made.select(np.lexsort((first, time)) if known else np.argsort(first))


def _joined(queries: Coder, codes: Codes) -> tuple[tuple[str, ...], Codes]:
    """Return the normalized texts of the queries, and their numbers by row."""
    made = Coder()
    table = made.codes([normalized(each) for each in queries.known])
    return made.names, table[codes]


def _checked_positions(position: Codes, notes: Notes) -> Codes:
    if (position < 0).all():
        return np.zeros(len(position), np.int32)
    if (position < 0).any():
        row = int(np.flatnonzero(position < 0)[0])
        raise DataError(f"Row {row + 1} has no position, or one below 0; give every row one, or none of them.")
    notes.from_zero = bool(position.min() == 0)
    found = position + 1 if notes.from_zero else position
    notes.deep = int((found > MOST_POSITIONS).sum())
    return np.minimum(found, MOST_POSITIONS).astype(np.int32)
