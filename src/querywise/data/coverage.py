"""Coverage: the share of the judged documents that are among the candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from querywise.data.judged import Judged
from querywise.data.labels import refuse_gains
from querywise.data.run_columns import run_columns
from querywise.runtime.arrays import Bools, Floats, Ints

ADDED = "added = 1"  # in the comment of a judged document that retrieval did not find


@dataclass(frozen=True)
class Coverage:
    """How many judged documents are among the candidates of judged queries, and how many retrieval missed."""

    queries: int  # judged queries
    without_candidates: int  # those for which retrieval found no document
    without_relevant: int  # queries with candidates but no relevant one
    relevant: int  # documents judged relevant
    found: int  # those that retrieval found
    depth: int  # most candidates of a query
    recall: float  # the mean over all queries of the share found; 0 for a query without a relevant document
    unjudged: int = 0  # queries dropped because they have no judgments
    added: int = 0  # judged documents added although retrieval did not find them

    def lines(self) -> list[str]:
        """Return the coverage in a few sentences."""
        share = self.found / max(self.relevant, 1)
        said = [
            f"{self.found} of {self.relevant} relevant documents ({share:.0%}) are among the candidates, at most "
            f"{self.depth} a query: recall {self.recall:.4f}."
        ]
        if self.added:
            said.append(f"{self.added} judged documents that retrieval did not find were added and marked.")
        if self.without_relevant:
            said.append(f"{_queries(self.without_relevant)} no relevant document among the candidates; that counts 0.")
        if self.without_candidates:
            said.append(f"{_queries(self.without_candidates)} no candidate at all; that counts 0.")
        return said


@dataclass(frozen=True)
class CoverageByRuns(Coverage):
    """Coverage of candidates from several first-stage runs."""

    by_run: Mapping[str, float] = field(default_factory=dict)  # the recall of each

    def lines(self) -> list[str]:
        """Return the coverage in a few sentences."""
        first, *rest = super().lines()
        each = ", ".join(f"{name} {recall:.4f}" for name, recall in self.by_run.items())
        return [first, f"Recall of the candidates that each list found: {each}; together {self.recall:.4f}.", *rest]


def _queries(count: int) -> str:
    return "1 query has" if count == 1 else f"{count} queries have"


def coverage_of(data: Judged) -> Coverage:
    """Return retrieval's coverage of all judged documents, or of the labels if nothing else is judged.

    Candidates that were added although retrieval did not find them, marked in their comment, do not count as found.
    """
    candidates = data.candidates
    comments = candidates.comments or ()
    there = np.array([ADDED not in each for each in comments], np.bool_)
    there = there if len(comments) else np.ones(len(data.labels), np.bool_)
    sizes = np.bincount(candidates.query_of_row[there], minlength=len(data))
    relevant, good = relevant_judged(data), there & (data.labels > 0)
    found = np.bincount(candidates.query_of_row[good], minlength=len(data))
    by_run = {
        run.name: _recall(data, good & (candidates.features[:, run.reciprocal_rank] > 0), relevant)
        for run in run_columns(candidates.feature_names)
    }
    every = Coverage(
        queries=len(data),
        without_candidates=int(np.sum(sizes == 0)),
        without_relevant=int(np.sum((candidates.sizes > 0) & (relevant_found(data) == 0))),
        relevant=int(relevant.sum()),
        found=int(found.sum()),
        depth=int(sizes.max(initial=0)),
        recall=_recall(data, good, relevant),
        added=int(np.sum(~there)),
    )
    return CoverageByRuns(**vars(every), by_run=by_run) if by_run else every


def _recall(data: Judged, found: Bools, relevant: Ints) -> float:
    """Return the mean over queries of the share of their relevant documents that are in these rows."""
    counts: Ints = np.bincount(data.candidates.query_of_row[found], minlength=len(data))
    shares: Floats = counts / np.maximum(relevant, 1)
    return float(shares.mean()) if len(data) else 0.0


def relevant_found(data: Judged) -> Ints:
    """Return the number of relevant documents among each query's candidates."""
    return np.bincount(data.candidates.query_of_row[data.labels > 0], minlength=len(data))


def relevant_judged(data: Judged) -> Ints:
    """Return the number of relevant documents of each query, among its candidates and beyond them."""
    found = relevant_found(data)
    return found if data.missed is None else found + data.missed.relevant()


def whole_grades(data: Judged) -> list[dict[str, int]]:
    """Return all judgments of every query: the labels of its candidates, and the judgments beyond them."""
    refuse_gains(data, "A table of judgments, which a TREC run is measured by,", "its grades are whole numbers")
    candidates, found = data.candidates, []
    ids = candidates.document_ids or tuple(map(str, range(1, len(data.labels) + 1)))
    labels = data.labels.tolist()
    marked = [True] * len(labels) if data.judged is None else data.judged.tolist()
    for query in range(len(candidates)):
        rows = range(int(candidates.starts[query]), int(candidates.starts[query + 1]))
        own = {ids[row]: labels[row] for row in rows if marked[row]}
        found.append(own | ({} if data.missed is None else data.missed.of(query)))
    return found
