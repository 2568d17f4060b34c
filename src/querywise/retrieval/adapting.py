"""Candidates of a text collection found by adapted query vectors, without leakage of judgments.

Training queries are moved by adapters that were not trained on them; validation and test queries by the adapter trained
on all training queries. Query views keep using the unadapted vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from querywise.data.click_judgments import judged_by_clicks, labels_in, read_gains
from querywise.data.collections import Collection
from querywise.data.folds import Fold
from querywise.data.judged import Judged
from querywise.data.run_columns import Run
from querywise.data.vectors import Vectors, as_vectors
from querywise.errors import DataError
from querywise.retrieval.adapted_vectors import AdaptedVectors, Kind
from querywise.retrieval.bm25 import Hits
from querywise.retrieval.features import ADAPTED, FOUND, JUDGED, AdaptedQueries, judged_candidates, moved_by
from querywise.retrieval.index import Index
from querywise.retrieval.indexed_vectors import vectors_of
from querywise.retrieval.lists import VECTORS
from querywise.retrieval.side_by_side import unit
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.arrays import Floats
from querywise.runtime.progress import announce, doing

ADAPT = ("auto", "off", "linear", "by-query")


class Adapted(NamedTuple):
    """Training queries with candidates found by cross-fitted vectors, and the adapter for all other queries."""

    train: Judged
    adapter: AdaptedVectors


class Taught(NamedTuple):
    """The result of training query vectors on a fold's training queries.

    Attributes:
        adapter: moves all other queries.
        nearest: the cosine of each test query to the nearest training query.
    """

    adapter: AdaptedVectors
    nearest: Floats


class AdaptedFold(Fold):
    """A fold with candidates retrieved by vectors trained on its training set, and the result of that training."""

    taught: Taught

    @classmethod
    def of(cls, parts: Iterable[Judged], taught: Taught) -> AdaptedFold:
        """Return the fold made of three parts."""
        made = cls(*parts)
        made.taught = taught
        return made


def taught_by(fold: Fold) -> Taught | None:
    """Return the result of training a fold's query vectors, or None if they are not trained."""
    return fold.taught if isinstance(fold, AdaptedFold) else None


@dataclass(frozen=True, eq=False)
class Adaptation:
    """How the candidates of a collection are retrieved again with trained query vectors.

    Attributes:
        kind: `auto` chooses, and moves queries only if cross-validation on the training queries shows a gain.
        top, vector_top: the numbers of documents that BM25 and vectors find.
        skip_unknown: drop judgments of unknown documents.
        candidates: `found` or `judged`.
        clicks: a folder of judgments from clicks, whose gains replace grades.
        gamma, l2: settings of the adapter; None chooses them on the training queries, which takes longer.
    """

    collection: Collection
    index: Index
    kind: Kind
    top: int | None = None
    vector_top: int | None = None
    skip_unknown: bool = False
    candidates: str = FOUND
    clicks: Path | None = None
    gamma: float | None = None
    l2: float | None = None

    def fold(self, fold: Fold) -> Fold:
        """Return the fold with vectors trained on its training set only, or unchanged if that gains nothing."""
        found = self.learned(fold.train)
        valid, test = (self.found_by(part, found.adapter) for part in (fold.valid, fold.test))
        own, known = (unit(self._vectors(part)) for part in (test, fold.train))
        taught = Taught(found.adapter, (own @ known.T).max(axis=1, initial=-1.0))
        parts = found.train, valid, test
        if self.kind == "off":
            return Fold(*parts)
        return AdaptedFold.of(parts if found.adapter.adapts else plain_fold(Fold(*parts)), taught)

    def learned(self, train: Judged) -> Adapted:
        """Return an adapter trained on these queries, and their candidates by vectors that were not trained on each."""
        queries, documents, gains = self.given(train)
        blocks, gate = documents.blocks or None, self.kind == "auto"
        adapter = AdaptedVectors(self.kind, gamma=self.gamma, l2=self.l2, gate=gate, blocks=blocks)
        groups, weights = np.asarray(train.groups, dtype=np.int64), train.query_weights
        adapted = adapter.fit_transform(queries, documents, gains, weights=weights, groups=groups)
        announce(adapter.said())
        moved = moved_by(adapter, self._vectors(train))
        return Adapted(self._found(train, moved | {"adapted": adapted if adapter.adapts else None}), adapter)

    def given(self, train: Judged) -> tuple[Vectors, VectorIndex, csr_array]:
        """Return what an adapter learns from: the vectors of queries and documents, and the gains between them."""
        queries = as_vectors(train.query_ids, self._vectors(train), where="the vectors of queries", what="query")
        return queries, self._documents, self._gains(train.query_ids)

    def list_of(self, part: Judged, moved: Callable[[Floats], Floats], *, top: int) -> dict[str, dict[str, float]]:
        """Return every query's best documents by its moved vector: among all documents, or among the candidates."""
        vectors, asked = self._documents, moved(self._vectors(part))
        if self.candidates == JUDGED:
            grades = self.collection.grades()
            known = [[self.index.place_of(document) for document in grades[query]] for query in part.query_ids]
            places = [np.array([each for each in own if each is not None], dtype=np.int64) for own in known]
            found = [Hits(own, vectors.similarities(query, own)) for query, own in zip(asked, places, strict=True)]
        else:
            found = vectors.search(asked, top=top)
        return {
            query: {self.index.document_ids[each]: float(score) for each, score in zip(*own, strict=True)}
            for query, own in zip(part.query_ids, found, strict=True)
        }

    def found_by(self, part: Judged, adapter: AdaptedVectors) -> Judged:
        """Return the candidates of queries that the adapter was not trained on."""
        return self._found(part, moved_by(adapter, self._vectors(part)))

    def _found(self, part: Judged, moved: AdaptedQueries) -> Judged:
        """Return the candidates of some queries by these vectors; other data of the queries stays."""
        if not len(part) or all(each is None for each in moved.values()):
            return part
        asked, table = set(part.query_ids), part.candidates.queries
        own = replace(
            self.collection,
            queries=table,
            judgements=tuple(each for each in self.collection.judgements if each.query in asked),
        )
        with doing("Candidates by adapted vectors"):
            found, _ = judged_candidates(
                own,
                self.index,
                top=self.top,
                vector_top=self.vector_top,
                skip_unknown=self.skip_unknown,
                candidates=self.candidates,
                **moved,
            )
        found = replace(found, losses=part.losses)
        return found if self.clicks is None else judged_by_clicks(found, self.clicks)

    @property
    def _documents(self) -> VectorIndex:
        vectors = vectors_of(self.index)
        if vectors is None:
            raise DataError("Query vectors can only be adapted where documents have vectors.", arguments=("adapt",))
        return vectors

    def _vectors(self, part: Judged) -> Floats:
        table = part.candidates.queries
        if table is None or table.vectors is None:
            raise DataError("The queries have no vectors to adapt.", arguments=("adapt",))
        return table.vectors

    def _gains(self, query_ids: Sequence[str]) -> csr_array:
        """Return queries × documents of the index: positive grades, or gains from clicks."""
        grades = self.collection.grades() if self.clicks is None else labels_in(read_gains(self.clicks))
        rows: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        for row, query in enumerate(query_ids):
            for document, grade in grades.get(query, {}).items():
                place = self.index.place_of(document)
                if place is not None and grade > 0:
                    rows.append(row)
                    columns.append(place)
                    values.append(float(grade))
        return csr_array((values, (rows, columns)), shape=(len(query_ids), len(self.index)), dtype=np.float64)


def plain_fold(fold: Fold) -> Fold:
    """Return the fold without adaptation: its run of adapted vectors is that of the plain vectors."""
    return Fold(*map(_with_both_runs, fold))


def _with_both_runs(part: Judged) -> Judged:
    same = [Run(ADAPTED, run.scores) for run in part.runs if run.name == VECTORS]
    return replace(part, runs=(*part.runs, *same))
