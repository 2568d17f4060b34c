"""What judged sets and candidates say of themselves: how much there is, never all of it."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from querywise.data.judgements import Judgements
from querywise.data.query_table import QueryTable
from querywise.display.html import Cell, table
from querywise.display.words import counted, some
from querywise.runtime.arrays import Bools, Floats, Ints

_MOST_GRADES = 6  # that are listed one by one


class _Documents(Protocol):
    """Candidates, as far as they are described."""

    @property
    def features(self) -> Floats: ...
    @property
    def query_ids(self) -> tuple[str, ...]: ...
    @property
    def feature_names(self) -> tuple[str, ...] | None: ...
    @property
    def sizes(self) -> Ints: ...
    @property
    def queries(self) -> QueryTable | None: ...


class _Labelled(Protocol):
    """Judged, as far as it is described."""

    @property
    def candidates(self) -> _Documents: ...
    @property
    def labels(self) -> Ints: ...
    @property
    def judged(self) -> Bools | None: ...
    @property
    def gains(self) -> Floats | None: ...
    @property
    def missed(self) -> Judgements | None: ...


class CandidatesDescribed:
    """A short `repr`, for Candidates."""

    def __repr__(self: _Documents) -> str:
        return f"{type(self).__name__}({', '.join(_sizes(self))})"


class JudgedDescribed:
    """A short `repr`, and a table in notebooks, for Judged."""

    def __repr__(self: _Labelled) -> str:
        parts = [*_sizes(self.candidates), _labels(self), *_unjudged(self)]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_html_(self: _Labelled) -> str:
        documents = self.candidates
        sizes, names = documents.sizes, documents.feature_names
        spread = f"{sizes.min():,} to {sizes.max():,} per query, median {np.median(sizes):,.0f}" if len(sizes) else ""
        rows: list[tuple[Cell, ...]] = [
            ("queries", f"{len(documents.query_ids):,}", some(documents.query_ids)),
            ("documents", f"{len(documents.features):,}", spread),
            ("features", f"{documents.features.shape[1]:,}", "" if names is None else some(names)),
            ("grades" if self.gains is None else "values", f"{len(np.unique(self.labels)):,}", _counts(self)),
        ]
        if self.judged is not None:
            rows.append(("unjudged documents", f"{int(np.sum(~self.judged)):,}", ""))
        if self.missed is not None:
            rows.append(("judged beyond them", f"{len(self.missed.document_ids):,}", ""))
        if documents.queries is not None:
            rows.append(("query data", "", ", ".join(documents.queries.holds)))
        return table(("", "", ""), rows, title=type(self).__name__, text=(0, 2))


def _sizes(documents: _Documents) -> list[str]:
    rows, columns = documents.features.shape
    queries = counted(len(documents.query_ids), "query", "queries")
    return [queries, counted(rows, "document"), counted(columns, "feature")]


def _labels(data: _Labelled) -> str:
    return f"{'grades' if data.gains is None else 'values'} {_counts(data)}"


def _counts(data: _Labelled) -> str:
    """The grades, or the values they stand for, and how often each occurs; of many, the lowest and the highest."""
    found, counts = np.unique(data.labels if data.judged is None else data.labels[data.judged], return_counts=True)
    if not len(found):
        return "none"
    known = [f"{each}" if data.gains is None else f"{data.gains[each]:g}" for each in found.tolist()]
    if len(known) > _MOST_GRADES:
        return f"{known[0]} to {known[-1]}"
    return ", ".join(f"{grade}: {count:,}" for grade, count in zip(known, counts.tolist(), strict=True))


def _unjudged(data: _Labelled) -> list[str]:
    count = 0 if data.judged is None else int(np.sum(~data.judged))
    return [f"{count:,} unjudged"] if count else []
