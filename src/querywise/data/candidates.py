"""Candidates: documents grouped by query, frozen.

The rows of a query are contiguous, so a query is a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from querywise.data.query_table import QueryTable
from querywise.data.rows import (
    Missing,
    check_missing,
    checked_matrix,
    column_of,
    is_moderate,
    pick,
    query_numbers,
    refuse_repeated,
    require_moderate,
    require_whole,
    rows_of,
)
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints, frozen


@dataclass(frozen=True, eq=False, repr=False)
class Candidates:
    """Documents to be ranked, one row per (query, document) pair.

    Query `i` owns rows `starts[i]:starts[i + 1]`; `len(candidates)` is the number of queries. `from_arrays`,
    `from_frame` and the readers make them; use this class for data that is already grouped by query.

    Args:
        features: documents × features, finite numbers.
        starts: where each query's rows begin, and at the end the number of rows.
        query_ids: the id of every query, no two the same.
        document_ids, comments: one text per row, or None.
        feature_names: one per column, or None.
        queries: query data, in the order of `query_ids`; None if there is none.
        source_rows: the input row of each row, if rows had to be grouped by query.
        missing: "refused", or "allowed": features may be NaN, which rankers with a policy for missing values take, and
            others refuse.

    Raises:
        DataError: Lengths that do not match, duplicate ids, infinite features, and NaN unless allowed.

    >>> import numpy as np
    >>> from querywise import Candidates
    >>> candidates = Candidates(np.eye(3), np.array([0, 2, 3]), ("jaguar", "python"))
    >>> len(candidates), candidates.rows(0)
    (2, slice(0, 2, None))
    """

    features: Floats
    starts: Ints
    query_ids: tuple[str, ...]
    document_ids: tuple[str, ...] | None = None
    comments: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    queries: QueryTable | None = None
    source_rows: Ints | None = None
    missing: Missing = "refused"

    def __post_init__(self) -> None:
        check_missing(self.missing)
        features, moderate = checked_matrix(self.features, "features", self.feature_names, self.missing)
        rows = len(features)
        starts = self._checked_starts(rows)
        refuse_repeated(self.query_ids)
        for name, values in (("document ids", self.document_ids), ("comments", self.comments)):
            if values is not None and len(values) != rows:
                raise DataError(f"There are {rows} rows of features but {len(values)} {name}.")
        if self.feature_names is not None and len(self.feature_names) != features.shape[1]:
            raise DataError(f"There are {features.shape[1]} features but {len(self.feature_names)} feature names.")
        if self.queries is not None and self.queries.ids != self.query_ids:
            raise DataError("The query table is not in the order of the documents; use with_queries(table).")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "_moderate", moderate)
        object.__setattr__(self, "starts", starts)
        if self.source_rows is not None:
            object.__setattr__(self, "source_rows", frozen(np.asarray(self.source_rows, dtype=np.int64)))

    def _checked_starts(self, rows: int) -> Ints:
        """Return the first row of every query and then the number of rows, frozen.

        Raise DataError if they are inconsistent.
        """
        starts, count = np.asarray(self.starts, dtype=np.int64), len(self.query_ids) + 1
        if starts.ndim != 1 or len(starts) != count or starts[0] != 0 or (starts[1:] < starts[:-1]).any():
            raise DataError(
                f"starts must be {count} row numbers that begin at 0 and never decrease, "
                f"one per query and then the number of rows; found {starts.ravel()[:8].tolist()}."
            )
        if starts[-1] != rows:
            raise DataError(f"starts ends at row {starts[-1]} but there are {rows} rows of features.")
        return frozen(starts)

    @classmethod
    def of_query(
        cls,
        features: Floats,
        queries: QueryTable,
        document_ids: tuple[str, ...],
        *,
        feature_names: tuple[str, ...] | None,
        missing: Missing,
    ) -> Candidates:
        """Return the documents of a table's only query, as a service makes them for every request.

        Args:
            features: contiguous in memory, a row for each id, a column for each name; only their size is checked.
        """
        starts = np.array([0, len(features)])
        if not is_moderate(features):
            return cls(features, starts, queries.ids, document_ids, None, feature_names, queries, missing=missing)
        made = object.__new__(cls)
        made.__dict__.update(
            features=frozen(features),
            starts=frozen(starts),
            query_ids=queries.ids,
            document_ids=document_ids,
            comments=None,
            feature_names=feature_names,
            queries=queries,
            source_rows=None,
            missing=missing,
            _moderate=True,
        )
        return made

    def __len__(self) -> int:
        return len(self.query_ids)

    def __repr__(self) -> str:
        return f"Candidates({', '.join(self.counts)})"

    @property
    def counts(self) -> list[str]:
        """How many queries, documents and features there are, in words."""
        rows, columns = self.features.shape
        return [counted(len(self), "query"), counted(rows, "document"), counted(columns, "feature")]

    def rows(self, query: int) -> slice:
        """Return the rows of one query, by its index."""
        return slice(int(self.starts[query]), int(self.starts[query + 1]))

    @property
    def sizes(self) -> Ints:
        """The number of documents of each query."""
        return self.starts[1:] - self.starts[:-1]  # np.diff takes four times as long for one query

    @property
    def query_of_row(self) -> Ints:
        """The index of the query that owns each row."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def blocks(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield runs of whole queries, as (first, last + 1), of about so many rows each and at least one query."""
        first = 0
        while first < len(self):
            fitting = int(np.searchsorted(self.starts, self.starts[first] + rows, "right")) - 1
            last = min(max(first + 1, fitting), len(self))
            yield first, last
            first = last

    def feature_label(self, column: int) -> str:
        """Return a column's name for messages, given its index: the feature's name, or its number in a LETOR file."""
        return self.feature_names[column] if self.feature_names is not None else str(column + 1)

    def column_of(self, feature: int | str) -> int:
        """Return the column index of a feature, given its index or its name."""
        return column_of(feature, self.features.shape[1], self.feature_names)

    def document_label(self, row: int) -> str:
        """Return the id of the document in a row, or the row number, counted from 1, if documents have no ids."""
        return self.document_ids[row] if self.document_ids is not None else str(row + 1)

    def document_labels(self, rows: Ints) -> list[str]:
        """Return the labels of several documents."""
        ids = self.document_ids
        return [str(row + 1) if ids is None else ids[row] for row in rows.tolist()]

    def require_moderate(self, *, missing: Missing = "refused") -> None:
        """Raise DataError if features are too large to compute with, or missing without being allowed."""
        if not self.__dict__["_moderate"]:
            if missing == "refused":
                require_whole(self.features, self.feature_names)
            require_moderate(self.features, self.feature_names)

    def require_features(
        self, count: int, names: tuple[str, ...] | None = None, *, missing: Missing = "refused"
    ) -> None:
        """Raise DataError if the columns are not those of a model, too large to compute with, or missing.

        Args:
            count, names: how many columns the model has, and their names if they are known.
            missing: "allowed" if the model accepts NaN.
        """
        self.require_moderate(missing=missing)
        found, own = self.features.shape[1], self.feature_names
        if found != count:
            sparse = "; for a sparse file that leaves out its last columns, state their number"
            raise DataError(
                f"The model was trained on {count} features but the documents have {found}. Give it the columns it was "
                f"trained on, in the same order{sparse if found < count else ''}."
            )
        if names is not None and own is not None and names != own:
            column = next(i for i, pair in enumerate(zip(names, own, strict=True)) if pair[0] != pair[1])
            raise DataError(
                f"Feature {column + 1} is {own[column]!r} but the model was trained with {names[column]!r} there. Give "
                "the columns in the order of training."
            )

    def surely_has(self, count: int, names: tuple[str, ...] | None) -> bool:
        """Fast path: return True if `require_features` with this `count` and these `names` is known to pass."""
        moderate: bool = self.__dict__["_moderate"]
        known = names is None or self.feature_names is None or names == self.feature_names
        return moderate and known and self.features.shape[1] == count

    def in_source_order(self, scores: Floats) -> Floats:
        """Return scores in the order of the input rows, before they were grouped by query."""
        return scores if self.source_rows is None else scores[np.argsort(self.source_rows, kind="stable")]

    def with_features(self, features: Floats, names: tuple[str, ...] | None) -> Candidates:
        """Return the same documents with other `features`, one row each, and their `names`.

        Everything else is checked already.
        """
        matrix, moderate = checked_matrix(features, "features", names, self.missing)
        made = object.__new__(Candidates)
        made.__dict__.update(self.__dict__, features=matrix, feature_names=names, _moderate=moderate)
        return made

    def with_queries(self, table: QueryTable) -> Candidates:
        """Return the documents with the query data of `table`, in which only queries without documents may be missing.

        Existing groups of queries stay, unless the table has groups.
        """
        known = set(table.ids)
        sizes = zip(self.query_ids, self.sizes.tolist(), strict=True)
        empty = [query for query, size in sizes if not size and query not in known]
        found = (table.with_unknown(empty) if empty else table).select(self.query_ids)
        if found.groups is None and self.queries is not None and self.queries.groups is not None:
            found = replace(found, groups=self.queries.groups)
        return replace(self, queries=found)

    def with_empty(self, query_ids: Sequence[str]) -> Candidates:
        """Return the same documents, followed by queries with these `query_ids` that have no documents."""
        if not query_ids:
            return self
        return replace(
            self,
            starts=np.concatenate([self.starts, np.full(len(query_ids), self.starts[-1])]),
            query_ids=(*self.query_ids, *query_ids),
            queries=None if self.queries is None else self.queries.with_unknown(query_ids),
        )

    def select(self, queries: Ints | Sequence[int]) -> Candidates:
        """Return the documents of some queries, given their indices, in that order."""
        chosen = query_numbers(queries)
        rows = rows_of(self.starts, chosen)
        ids = tuple(self.query_ids[query] for query in chosen)
        return Candidates(
            features=self.features[rows],
            starts=np.concatenate([[0], np.cumsum(self.sizes[chosen])]),
            query_ids=ids,
            document_ids=pick(self.document_ids, rows),
            comments=pick(self.comments, rows),
            feature_names=self.feature_names,
            queries=None if self.queries is None else self.queries.select(ids),
            source_rows=None if self.source_rows is None else self.source_rows[rows],
            missing=self.missing,
        )
