"""Judged: candidates and their relevance labels, frozen; joining of several sets; and records of what was dropped."""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.candidates import Candidates as Candidates
from querywise.data.judgements import (
    UNKNOWN,
    Columns,
    Grades,
    Judgements,
    beyond,
    grades_from,
    grades_of_rows,
    join_judgements,
)
from querywise.data.labels import (
    checked_gains,
    checked_weights,
    joined_labels,
    joined_weights,
    refuse_unwritable,
)
from querywise.data.query_groups import Groups, checked_groups
from querywise.data.query_table import QueryTable, join_tables
from querywise.data.rows import (
    Missing,
    as_labels,
    count_pairs,
    join_known,
    query_numbers,
    require_preferences,
    rows_of,
)
from querywise.data.run_columns import Run
from querywise.display.tables import Cell, table
from querywise.display.words import some
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints, frozen
from querywise.runtime.cache import cached
from querywise.runtime.scaling import Moments
from querywise.runtime.values import JsonObject
from querywise.runtime.workers import Kept, workers

_MOST_GRADES = 6  # grades that are listed one by one
_EXAMPLE = 80  # characters
# Kind of loss → its sentence, up to the example.
KINDS = {
    "queries without a judgment": "Left out: {} queries without a judgment",
    "queries judged on unknown documents": "Left out: {} queries whose judged documents are not in the corpus",
    "judgments of unknown documents": "Left out: {} judgments of documents that are not in the corpus",
    "documents without text": "Never found by words: documents without a word in title and text, {}",
    "queries without a known word": "Nothing is found by words: queries without a word that is in the corpus, {}",
    "queries shortened": "Ignored: words that no document has, in {} queries",
}


class LostData(NamedTuple):
    """How many things of one kind were dropped, out of how many, with one example; `kind` is one of KINDS."""

    kind: str
    number: int
    total: int
    example: str

    def __str__(self) -> str:
        """Return the loss in a sentence.

        >>> print(LostData("queries without a judgment", 25, 3244, "'q7' (jaguar speed)"))
        Left out: 25 of 3,244 queries without a judgment, such as 'q7' (jaguar speed).
        """
        told = KINDS[self.kind].format(f"{self.number:,} of {self.total:,}")
        return f"{told}, such as {self.example}."

    def as_json(self) -> JsonObject:
        """Return the loss as JSON, with its sentence."""
        return {**self._asdict(), "text": str(self)}


def losses(counts: Sequence[tuple[str, Sequence[str], int]]) -> tuple[LostData, ...]:
    """Return the losses that occurred, given the kind, the dropped things and the total.

    The first one is the example.
    """
    return tuple(LostData(kind, len(lost), total, lost[0]) for kind, lost, total in counts if lost)


def named(query_id: str, text: str | None) -> str:
    """Return a query's id and the beginning of its text."""
    short = " ".join((text or "").split())
    cut = short if len(short) <= _EXAMPLE else f"{short[:_EXAMPLE].rstrip()}…"
    return f"{query_id!r} ({cut})" if cut else f"{query_id!r}"


class Survey(NamedTuple):
    """A summary of a part that training needs first: query ids, preference pairs per query, moments of the features."""

    query_ids: tuple[str, ...]
    pairs: Ints
    moments: Moments


@dataclass(frozen=True, eq=False, repr=False)
class Judged:
    """Candidates together with the relevance label of every row: an integer from 0 (not relevant) up.

    Learners use the candidates only; model selection and evaluation also count missed documents.

    Args:
        candidates: the documents.
        labels: one whole number per row.
        judged: which documents have a judgment; the others have label 0. None means all.
        missed: the judgments that labels cannot hold: those of documents that are not candidates, and grades below 0,
            whose label is 0. None if they are unknown.
        gains: the gain of each label, from label 0 up, if labels stand for real values; None if labels are grades.
        query_weights, document_weights: how much each query and each row counts in training, relative to the others,
            above 0; None: the same.
        runs: the whole lists of the systems that found the candidates, where known. A ranking by one of these systems
            alone is measured on its list; candidates that other systems found are not in it.
        losses: what was dropped or shortened while reading, if that is known.

    Raises:
        DataError: Lengths that do not match, labels below 0 or not whole, and an unjudged document with a label.

    >>> import numpy as np
    >>> from querywise import Candidates, Judged
    >>> Judged(Candidates(np.eye(2), np.array([0, 2]), ("jaguar",)), np.array([1, 0]))
    Judged(1 query, 2 documents, 2 features, grades 0: 1, 1: 1)
    """

    candidates: Candidates
    labels: Ints
    judged: Bools | None = None
    missed: Judgements | None = None
    gains: Floats | None = None
    query_weights: Floats | None = None
    document_weights: Floats | None = None
    runs: tuple[Run, ...] = ()
    losses: tuple[LostData, ...] = ()

    in_memory = True

    def __post_init__(self) -> None:
        rows = len(self.candidates.features)
        labels = as_labels(self.labels)
        if len(labels) != rows:
            raise DataError(f"There are {rows} rows of features but {len(labels)} labels.")
        object.__setattr__(self, "labels", frozen(labels))
        if self.judged is not None:
            mask = np.asarray(self.judged, dtype=np.bool_)
            if mask.shape != (rows,):
                raise DataError(f"There are {rows} rows of features but the judged mask has shape {mask.shape}.")
            if np.any(labels[~mask]):
                row = int(np.flatnonzero(~mask & (labels > 0))[0])
                raise DataError(f"Row {row + 1} is marked unjudged but carries label {labels[row]}; it must be 0.")
            object.__setattr__(self, "judged", frozen(mask))
        if self.missed is not None and len(self.missed) != len(self.candidates):
            raise DataError(f"There are {len(self.candidates)} queries but judgments of {len(self.missed)}.")
        if self.gains is not None:
            if self.missed is not None:
                raise DataError("Judgments are grades: they cannot be joined with real-valued labels (gains).")
            object.__setattr__(self, "gains", checked_gains(self.gains, labels))
        for what, names in (("query", self.query_ids), ("document", rows)):
            if (weights := getattr(self, f"{what}_weights")) is not None:
                object.__setattr__(self, f"{what}_weights", checked_weights(weights, names, what))

    def __len__(self) -> int:
        return len(self.candidates)

    def __repr__(self) -> str:
        unjudged = 0 if self.judged is None else int(np.sum(~self.judged))
        labels = f"{'grades' if self.gains is None else 'values'} {self._counts()}"
        parts = [*self.candidates.counts, labels, *([f"{unjudged:,} unjudged"] if unjudged else [])]
        return f"Judged({', '.join(parts)})"

    def _repr_html_(self) -> str:
        documents = self.candidates
        sizes, names = documents.sizes, documents.feature_names
        spread = f"{sizes.min():,} to {sizes.max():,} per query, median {np.median(sizes):,.0f}" if len(sizes) else ""
        rows: list[tuple[Cell, ...]] = [
            ("queries", f"{len(self):,}", some(documents.query_ids)),
            ("documents", f"{len(documents.features):,}", spread),
            ("features", f"{self.feature_count:,}", "" if names is None else some(names)),
            ("grades" if self.gains is None else "values", f"{len(np.unique(self.labels)):,}", self._counts()),
        ]
        if self.judged is not None:
            rows.append(("unjudged documents", f"{int(np.sum(~self.judged)):,}", ""))
        if self.missed is not None:
            rows.append(("judged beyond them", f"{len(self.missed.document_ids):,}", ""))
        if documents.queries is not None:
            rows.append(("query data", "", ", ".join(documents.queries.holds)))
        return table(("", "", ""), rows, title="Judged", text=(0, 2))

    def _counts(self) -> str:
        """Return the grades, or the values they stand for, with their counts.

        If there are many, only the lowest and the highest are shown.
        """
        found, counts = np.unique(self.labels if self.judged is None else self.labels[self.judged], return_counts=True)
        if not len(found):
            return "none"
        known = [f"{each}" if self.gains is None else f"{self.gains[each]:g}" for each in found.tolist()]
        if len(known) > _MOST_GRADES:
            return f"{known[0]} to {known[-1]}"
        return ", ".join(f"{grade}: {count:,}" for grade, count in zip(known, counts.tolist(), strict=True))

    @property
    def pairs(self) -> Ints:
        """The number of preference pairs (one document labeled above another) of each query."""
        return count_pairs(self.labels, self.candidates.starts)

    @property
    def query_ids(self) -> tuple[str, ...]:
        """The id of every query."""
        return self.candidates.query_ids

    @property
    def feature_count(self) -> int:
        """The number of columns."""
        return int(self.candidates.features.shape[1])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the columns, or None."""
        return self.candidates.feature_names

    @property
    def classes(self) -> tuple[str | None, ...]:
        """The class of every query, or None if it is unknown."""
        table = self.candidates.queries
        return (None,) * len(self) if table is None or table.classes is None else table.classes

    @property
    def groups(self) -> Ints:
        """The index of every query's group; a query without a group is a group of its own."""
        table = self.candidates.queries
        if table is None or table.groups is None:
            return np.arange(len(self))
        number: dict[str | int, int] = {}  # a name, or the query itself
        keys = (row if name is None else name for row, name in enumerate(table.groups))
        return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)

    def select(self, queries: Ints | Sequence[int]) -> Judged:
        """Return the documents and labels of some queries, given their indices, in that order."""
        chosen = query_numbers(queries)
        rows = rows_of(self.candidates.starts, chosen)
        mask = None if self.judged is None else self.judged[rows]
        missed = None if self.missed is None else self.missed.select(queries)
        by_query = None if self.query_weights is None else self.query_weights[chosen]
        by_row = None if self.document_weights is None else self.document_weights[rows]
        picked = self.candidates.select(queries)
        return Judged(picked, self.labels[rows], mask, missed, self.gains, by_query, by_row, self.runs, self.losses)

    def with_queries(self, table: QueryTable) -> Judged:
        """Return the same judgments with the query data of `table`."""
        return replace(self, candidates=self.candidates.with_queries(table))

    def with_groups(self, groups: Groups | None) -> Judged:
        """Return the data with these groups, which folds and splits keep together; None removes them.

        Args:
            groups: one per query, in their order or by id, as texts or whole numbers; None for a query on its own.

        >>> from querywise import make_folds, make_judged
        >>> data = make_judged(6, 5, 3).with_groups(["a", "a", "b", "b", None, None])
        >>> [fold.test.query_ids for fold in make_folds(data, folds=3)]
        [('q5', 'q6'), ('q3', 'q4'), ('q1', 'q2')]
        """
        table = self.candidates.queries
        if groups is None and (table is None or table.groups is None):
            return self
        named = None if groups is None else checked_groups(groups, self.query_ids)
        known = replace(QueryTable(self.query_ids) if table is None else table, groups=named)
        return replace(self, candidates=replace(self.candidates, queries=known))

    def with_weights(
        self, queries: ArrayLike | Mapping[str, float] | None = None, documents: ArrayLike | None = None
    ) -> Judged:
        """Return the data with these weights; None removes them.

        Args:
            queries: one number per query, in their order or by id, above 0.
            documents: one number per row, above 0.
        """
        by_query = None if queries is None else checked_weights(queries, self.query_ids, "query")
        by_row = None if documents is None else checked_weights(documents, len(self.labels), "document")
        return replace(self, query_weights=by_query, document_weights=by_row)

    def with_judgements(self, table: Grades | Columns) -> Judged:
        """Return the judged set with all judgments, including those of documents and queries without candidates.

        Args:
            table: a pandas, polars or Arrow table with the columns query, document and grade, or query → document →
                grade.

        >>> from querywise import from_arrays
        >>> data = from_arrays([[1.0]], [1], qid=["a"], document_ids=["D1"])
        >>> data.with_judgements({"a": {"D1": 1, "D2": 2}}).missed.of(0)
        {'D2': 2}
        """
        refuse_unwritable(self, "A set with all that was judged")
        grades, known = grades_from(table), set(self.query_ids)
        if known.isdisjoint(grades):
            raise DataError(
                f"None of the {len(grades)} judged queries is in the data: the first judged is "
                f"{next(iter(grades), None)!r}, the data's first is {next(iter(self.query_ids), None)!r}."
            )
        row = self.contradiction(grades)
        if row is not None:
            query = self.query_ids[int(self.candidates.query_of_row[row])]
            document = self.candidates.document_label(row)
            raise DataError(
                f"Row {row + 1}, document {document!r} of query {query!r}, has label {self.labels[row]}; its judgment "
                f"is {grades.get(query, {}).get(document, 'missing')}. Both must agree; correct one of them."
            )
        return judged_by(self.candidates.with_empty([query for query in grades if query not in known]), grades)

    def contradiction(self, grades: Grades) -> int | None:
        """Return the first row whose label is not its document's grade; None if all agree."""
        rows = self.candidates
        found = grades_of_rows(grades, rows.query_ids, rows.starts, rows.document_ids)
        wrong = np.flatnonzero(np.where(found > UNKNOWN, np.maximum(found, 0) != self.labels, self.labels > 0))
        return int(wrong[0]) if len(wrong) else None

    def candidates_only(self) -> Judged:
        """Return the data without judgments beyond the candidates, which is what learners see."""
        return self if self.missed is None else replace(self, missed=None)

    def widened(self, width: int) -> Judged:
        """Return the data with columns of zeros appended, up to `width` columns in all."""
        lacking = width - self.candidates.features.shape[1]
        if lacking <= 0:
            return self
        features = np.pad(self.candidates.features, ((0, 0), (0, lacking)))
        return replace(self, candidates=replace(self.candidates, features=features))

    def require_preferences(self, *, missing: Missing = "refused") -> None:
        """Raise DataError if there is no preference to learn from, or if NaN is present without missing="allowed"."""
        self.require_learnable(missing=missing)
        require_preferences(self.pairs)

    def require_learnable(self, *, missing: Missing = "refused") -> None:
        """Raise DataError if features are absent, too large to compute with, or NaN without missing="allowed"."""
        if not self.feature_count:
            raise DataError(
                "The documents have no features, so there is nothing to learn from. Give at least one column."
            )
        self.candidates.require_moderate(missing=missing)

    def load(self) -> Judged:
        """Return the data itself, which is in memory."""
        return self

    def parts(self) -> Sequence[Judged | Kept]:
        """Return the parts for workers: the data itself, or `workers().parts` runs of whole queries that they keep."""
        pool, count = workers(), workers().parts
        return [self] if count == 1 else cached("parts", count, self, lambda: pool.keep(_identity, self._cut(count)))

    def surveys(self) -> list[Survey]:
        """Return the summary of every part, which training needs first."""
        found: list[Survey] = workers().each(survey_of, self.parts())
        return found

    def by_query(self, work: Callable[[Candidates], Floats]) -> Floats:
        """Return the result of `work` for the candidates, a row per query."""
        return work(self.candidates)

    def has_texts(self) -> bool:
        """Return whether queries have texts."""
        table = self.candidates.queries
        return table is not None and table.texts is not None and any(table.texts)

    def fingerprint(self) -> list[str]:
        """Return checksums of the documents and of the query data, which identify the training set."""
        rows, table, missed = self.candidates, self.candidates.queries, self.missed
        grouped = () if table is None or table.groups is None else (table.groups,)
        known = () if table is None else (table.texts, table.classes, table.column_names, *grouped)
        texts = repr((rows.query_ids, rows.document_ids, rows.feature_names, known))
        own = () if table is None else (table.columns, table.vectors)
        beyond = () if missed is None else (repr(missed.document_ids), np.concatenate([missed.starts, missed.grades]))
        worth = [(name, getattr(self, name)) for name in ("gains", "query_weights", "document_weights")]
        named = (each for name, values in worth if values is not None for each in (name, values))
        return [fingerprint_of((texts, rows.features, rows.starts, self.labels, self.judged, *own, *beyond, *named))]

    def _cut(self, parts: int) -> list[Judged]:
        """Return this many runs of whole queries of about equal numbers of rows, or fewer if there are fewer queries.

        The number does not depend on the number of workers, so neither does any sum over the parts.
        """
        starts, count = self.candidates.starts, min(parts, max(len(self), 1))
        cuts = np.searchsorted(starts, np.linspace(0, starts[-1], count + 1)).clip(0, len(self))
        cuts[0], cuts[-1] = 0, len(self)
        return [self.select(np.arange(first, last)) for first, last in pairwise(cuts) if last > first]


def judged_by(candidates: Candidates, grades: Grades) -> Judged:
    """Return the candidates with their grades, and all judgments of their queries beyond them.

    An unjudged document has label 0 and is marked in `Judged.judged`. A grade below 0 counts as label 0.
    """
    found = grades_of_rows(grades, candidates.query_ids, candidates.starts, candidates.document_ids)
    missed = beyond(grades, candidates.query_ids, candidates.starts, candidates.document_ids or ())
    return Judged(candidates, np.maximum(found, 0), found > UNKNOWN, missed)


def survey_of(part: Judged) -> Survey:
    """Return the summary of a part in memory."""
    part.require_learnable()
    return Survey(part.query_ids, part.pairs, Moments.of(part.candidates.features))


def _identity(part: Judged) -> Judged:
    return part


def fingerprint_of(parts: Iterable[str | Floats | Ints | Bools | None]) -> str:
    """Return a checksum of a sequence of texts and arrays; None is skipped."""
    found = hashlib.sha256()
    for part in parts:
        if part is not None:
            found.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).data)
    return found.hexdigest()


def concatenate(parts: Sequence[Judged], *, features: Floats | None = None) -> Judged:
    """Join several judged sets, which must not share a query.

    `features` are those of all parts, if they are in one array already.
    """
    if not parts:
        raise DataError("There is nothing to combine: no judged set was given.")
    candidates = [part.candidates for part in parts]
    first = candidates[0]
    for each in candidates[1:]:
        if each.features.shape[1] != first.features.shape[1]:
            raise DataError(f"One set has {first.features.shape[1]} features, another {each.features.shape[1]}.")
        if each.feature_names != first.feature_names:
            raise DataError(f"One set's features are named {first.feature_names}, another's {each.feature_names}.")
    tables = [each.queries for each in candidates if each.queries is not None]
    joined = Candidates(
        features=np.concatenate([each.features for each in candidates]) if features is None else features,
        starts=np.concatenate([[0], np.cumsum(np.concatenate([each.sizes for each in candidates]))]),
        query_ids=tuple(query_id for each in candidates for query_id in each.query_ids),
        document_ids=join_known([each.document_ids for each in candidates]),
        comments=join_known([each.comments for each in candidates]),
        feature_names=first.feature_names,
        queries=join_tables(tables) if len(tables) == len(candidates) else None,
        missing="allowed" if any(each.missing == "allowed" for each in candidates) else "refused",
    )
    masks = [np.ones(len(part.labels), np.bool_) if part.judged is None else part.judged for part in parts]
    judged = None if all(part.judged is None for part in parts) else np.concatenate(masks)
    missed = join_judgements([part.missed for part in parts])
    labels, gains = joined_labels(parts)
    by_query = joined_weights([part.query_weights for part in parts], [len(part) for part in parts])
    by_row = joined_weights([part.document_weights for part in parts], [len(part.labels) for part in parts])
    return Judged(joined, labels, judged, missed, gains, by_query, by_row, _joined_runs(parts), _joined_losses(parts))


def _joined_runs(parts: Sequence[Judged]) -> tuple[Run, ...]:
    """Return the runs that all parts have, each with all parts' lists."""
    first = parts[0].runs
    if all(part.runs is first for part in parts):  # parts of one set
        return first
    by_name = [{run.name: run for run in part.runs} for part in parts]
    shared = [run for run in first if all(run.name in each for each in by_name)]
    return tuple(replace(run, scores=ChainMap(*(dict(each[run.name].scores) for each in by_name))) for run in shared)


def _joined_losses(parts: Sequence[Judged]) -> tuple[LostData, ...]:
    """Return the losses of all parts, added up by kind; parts of one set share their losses."""
    distinct = {id(part.losses): part.losses for part in parts}.values()
    found: dict[str, LostData] = {}
    for each in (loss for own in distinct for loss in own):
        before = found.get(each.kind, each._replace(number=0, total=0))
        found[each.kind] = before._replace(number=before.number + each.number, total=before.total + each.total)
    return tuple(found.values())
