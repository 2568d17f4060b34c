"""Lookups of the service: documents in an index, their first-stage orders, judged and training queries.

Vectors of queries' texts are made in threads of their own: an embedder that fails does not stop ranking.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
from fastapi import Request
from msgspec import structs

from querywise.contracts.answers import Answer, adapter_of
from querywise.data.judged import Candidates, Judged
from querywise.data.normalisation import reciprocal_ranks
from querywise.data.query_table import QueryTable
from querywise.data.rows import reading_for
from querywise.data.run_columns import run_columns
from querywise.errors import DataError, QuerywiseError
from querywise.explanations.explain import as_dict, explain
from querywise.measures.order import order
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.retrieval.embedding import (
    EmbedderRecord,
    QueryEmbedders,
    embedded_queries,
    embedder_names,
    query_embedders,
    require_trained,
)
from querywise.retrieval.features import BOTH, TOP, Depths, candidates_for, feature_names, moved_by, trained_depths
from querywise.retrieval.index import Index, require_language
from querywise.retrieval.indexed_vectors import has_vectors, known_embedders, vectors_of
from querywise.retrieval.scores import BM25
from querywise.retrieval.search import answer
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.services import RefusedTextError
from querywise.runtime.threads import time_left
from querywise.runtime.values import JsonObject
from querywise.service.api import ApiError, RequestDataError
from querywise.service.documents import decoded
from querywise.service.judging import id_of_text, plain
from querywise.service.limits import BoundedThreadPool, Limits
from querywise.service.loaded_model import LoadedModel
from querywise.service.metrics import metric
from querywise.service.schema import (
    FoundDocument,
    KnownQuery,
    Query,
    QueryPull,
    RunWeight,
    ShiftedDocument,
    VectorShift,
)

_KEPT = 10_000  # vectors of queries, in memory: anybody may send any number of texts
_SHOWN = 12  # neighbors, models and features of an explanation that the page shows
_FIRST, _DEEP = 10, 100  # documents of a list by vectors: those that may be gained or lost, and those that have a rank
FUSED = "fused"
_THREADS = 4  # they wait for a service more than they compute
_SHARE = 0.5  # of a request's time for the vector: the rest is for searching and ranking
logger = logging.getLogger("querywise.service")


class FoundDocuments(NamedTuple):
    """A query's documents, the first-stage orders that are known of them, and how much each run counts."""

    documents: list[FoundDocument]
    runs: list[str]
    weights: list[RunWeight]


@dataclass(frozen=True, eq=False)
class Lookup:
    """The data loaded in addition to the model; each part is optional.

    index: documents to search.
    judged: queries with judged documents.
    known: texts and classes of training queries.
    judged_index: titles and beginnings of the judged queries' documents, where they are not those of `index`.
    embed: what makes the vectors of queries; if nothing, what made those of the index, if the operator allows it.
    """

    index: Index | None = None
    judged: Judged | None = None
    known: QueryTable | None = None
    judged_index: Index | None = None
    embed: Sequence[str] = ()

    def check(self, model: LoadedModel) -> None:
        """Raise an error if the index or the judged queries have other features than the model; then rehearse."""
        count, names = model.manifest.feature_count, model.manifest.feature_names
        if self.index is not None:
            adapter = adapter_of(model.ranker)
            made = feature_names(self.index, adapted=adapter is not None and adapter.adapts)
            if len(made) != count or (names is not None and names != made):
                raise DataError(
                    f"The index gives {len(made)} features ({made[0]} …); the model was trained on {count}"
                    + (f" ({names[0]} …)" if names else "")
                    + ". Serve a model that was fitted on features of this kind of index (`querywise features`)."
                )
            require_language(self.index, model.manifest.notes, "The model")
            self._check_embedder(model)
            if adapter is not None and has_vectors(self.index):
                adapter.transform(np.array(self.no_vector()))  # which refuses another dimension
        if self.judged is not None:
            self.judged.candidates.require_features(count, names, missing=reading_for(model.manifest.missing))
        self._rehearse(model)

    def _rehearse(self, model: LoadedModel) -> None:
        """Search by words and answer a judged query once, so that no request waits for compilation.

        The model's own rehearsal ranks random documents, which are far from all training queries.
        """
        if self.index is not None and len(self.index):
            answer(self.index, f"{self.index.titles[0]} {self.index.snippets[0]}")
        if self.judged is not None and len(self.judged):
            with suppress(DataError):  # these queries may lack what the model needs of them: requests say so
                model.answer(self.judged.candidates.select([0]))

    def _check_embedder(self, model: LoadedModel) -> None:
        """Reject an index whose embedder differs from the model's, or whose embedder only the index names.

        None is started for it.
        """
        if self.index is None or not has_vectors(self.index):
            return
        known, made = model.manifest.notes.get("vectors"), known_embedders(self.index.notes)
        if self.embed or None not in made:
            embedder_names(self.index, self.embed)
        records = [None if each is None else EmbedderRecord.from_json(each, "The index") for each in made]
        require_trained(known if isinstance(known, dict) else {}, records, "the model")

    def candidates(self, query: Query, top: int | None, model: LoadedModel | None = None) -> Candidates:
        """The documents of a judged query, by its id, or what the index finds for a text.

        Beside vectors each list is as deep as in the model's training, where the model remembers it, and as usual where
        not; `top` can make that of words shorter.
        """
        if query.text is None and self.judged is not None and query.id in self._judged_places:
            return self.judged.candidates.select([self._judged_places[query.id]])
        if query.text is None:
            known = "There are judged queries, and none has this id." if self.judged is not None else ""
            raise DataError(f"Query {query.id!r} has no text, so there is nothing to search for. {known}".strip())
        if self.index is None:
            raise DataError("No index is loaded, so there is nothing to search. Send the documents with the query.")
        table = QueryTable(("q",), texts=(query.text,), classes=(query.class_,), vectors=self._vector(query))
        if not has_vectors(self.index):
            return candidates_for(self.index, table, top=top)
        depths = Depths() if model is None else trained_depths(model.manifest.notes)
        words = BOTH if depths.top is None else depths.top
        found = words if top is None else min(top, words)
        moved = moved_by(None if model is None else adapter_of(model.ranker), table.vectors)
        return candidates_for(self.index, table, top=found, vector_top=depths.vector_top, **moved)

    def size_of(self, query: Query, top: int | None) -> int:
        """Return about how many documents `candidates` finds: those of a judged query, or as many as are requested."""
        if query.text is None and self.judged is not None and query.id in self._judged_places:
            return int(self.judged.candidates.sizes[self._judged_places[query.id]])
        return TOP if top is None else top

    def _vector(self, query: Query) -> Floats | None:
        """The vector of a query: the one it comes with, or from the embedder that made the index's; None without."""
        if query.vector is not None:
            return np.array([decoded(query.vector)])
        return np.array([self.embedded(query.text or "")]) if self.needs_vector(query) else None

    def needs_vector(self, query: Query) -> bool:
        """Whether a search query has to be embedded. Raise an error if no embedder is named."""
        needed = query.vector is None and query.text is not None and self.index is not None and has_vectors(self.index)
        if needed and self.index is not None:
            embedder_names(self.index, self.embed)
        return needed

    def embedded(self, text: str) -> list[float]:
        """The vector of a query's text."""
        found: list[float] = embedded_queries(self._embedders, [text])[0].tolist()
        return found

    def no_vector(self) -> list[float]:
        """The vector of a query whose own is not known: 0 throughout, which is similar to no document."""
        vectors = None if self.index is None else vectors_of(self.index)
        return [] if vectors is None else [0.0] * vectors.dimension

    @cached_property
    def _embedders(self) -> QueryEmbedders:
        """The embedders of queries, started on the first request."""
        assert self.index is not None
        return query_embedders(self.index, self.embed, most=_KEPT)

    def found(
        self,
        model: LoadedModel,
        candidates: Candidates,
        show: int,
        *,
        answered: tuple[Answer, Floats] | None = None,
        judged_as: str | None = None,
        besides: Sequence[str] = (),
    ) -> FoundDocuments:
        """The documents of one query, best first, with their ranks under the global model and in the first stage too.

        answered: the model's answer, and its scores, where they are known. judged_as: id of the judged query whose
        documents these are; None for search results, which have no grades. besides: documents to show whatever their
        ranks.
        """
        answer, ours = model.answer(candidates) if answered is None else answered
        theirs = answer.by_everyone()
        ranks, ranks_everyone = _ranks(ours), _ranks(theirs)
        index = self.index if judged_as is None or self.judged_index is None else self.judged_index
        runs = first_stage_ranks(candidates, model.manifest.feature_names)
        orders = (ranks, ranks_everyone, *runs.values())
        first = np.any([(each > 0) & (each <= show) for each in orders], axis=0)
        documents = [
            FoundDocument(
                id=candidates.document_label(row),
                **_title_and_snippet(index, candidates.document_label(row)),
                rank=int(ranks[row]),
                score=float(ours[row]),
                rank_everyone=int(ranks_everyone[row]),
                score_everyone=float(theirs[row]),
                grade=self._grade(judged_as, row),
                ranks={name: int(each[row]) for name, each in runs.items() if each[row]},
            )
            for row in np.argsort(ranks).tolist()
            if first[row] or candidates.document_label(row) in besides
        ]
        return FoundDocuments(documents, list(runs), weights_of_runs(answer) if documents else [])

    def explanation(self, model: LoadedModel, candidates: Candidates) -> tuple[JsonObject | None, list[KnownQuery]]:
        """The explanation of the query's model, and its neighbors; None if this ranker has no explanation."""
        try:
            found = explain(model.ranker, candidates, candidates.query_ids[0])
        except DataError:
            return None, []
        near, departures, models = found.neighbours[:_SHOWN], found.departures[:_SHOWN], found.models[:_SHOWN]
        shown = replace(found, neighbours=near, departures=departures, models=models)
        counts = {name: len(getattr(found, name)) for name in ("neighbours", "departures", "models")}
        return {**as_dict(shown), "counts": counts}, [self.query(each.query_id) for each in near]

    def shift(self, adapter: AdaptedVectors, vector: Floats) -> VectorShift:
        """Which training queries move a query's vector, and which documents that brings among the first, and takes."""
        found = adapter.explain(vector, show=_SHOWN)
        pulls = [QueryPull(self.query(each.query), each.similarity, each.share) for each in found.pulls]
        vectors = None if self.index is None else vectors_of(self.index)
        if self.index is None or vectors is None:
            return VectorShift(found.cosine, pulls, [], [])
        asked = np.array([adapter.transform(vector), adapter.with_shares(vector)])
        after, before = (each.documents.tolist() for each in vectors.search(asked, top=_DEEP))
        documents = {
            place: ShiftedDocument(
                self.index.document_ids[place],
                self.index.titles[place] or self.index.document_ids[place],
                *(own.index(place) + 1 if place in own else None for own in (after, before)),
            )
            for place in (*after[:_FIRST], *before[:_FIRST])
        }
        gained, lost = (
            [documents[each] for each in own[:_FIRST] if each not in other[:_FIRST]]
            for own, other in ((after, before), (before, after))
        )
        return VectorShift(found.cosine, pulls, gained, lost)

    def query(self, query_id: str) -> KnownQuery:
        """The text and class of a query, if they are known."""
        for table, places in self._tables:
            place = places.get(query_id)
            if place is not None:
                text = None if table.texts is None else table.texts[place]
                kind = None if table.classes is None else table.classes[place]
                return KnownQuery(query_id, text, kind)
        return KnownQuery(query_id)

    def to_judge(self, query_id: str | None, text: str | None) -> KnownQuery:
        """The query that judgments are kept for: a judged one, or the text of a search, with or without a known id."""
        if (query_id is None) == (text is None):
            raise RequestDataError("Give either the id of a judged query or the text of a search.", "query")
        if query_id is not None:
            if query_id not in self._judged_places:
                raise RequestDataError(f"No judged query has the id {query_id!r}.", "query.id")
            return self.query(query_id)
        if self.index is None or text is None or not text.strip():
            raise RequestDataError("There is no text, or no index to search it in.", "query.text")
        known = self._ids_by_text.get(plain(text))
        return KnownQuery(id_of_text(text), " ".join(text.split())) if known is None else self.query(known)

    def require_document(self, query_id: str, document: str) -> None:
        """Raise an error for a document that is neither in the index nor a candidate of the judged query."""
        if any(each is not None and each.place_of(document) is not None for each in (self.index, self.judged_index)):
            return
        place, judged = self._judged_places.get(query_id), self.judged
        if judged is not None and judged.candidates.document_ids is None and self.index is None:
            raise RequestDataError(
                "The documents of the judged queries have no ids, so they cannot be judged.", "document"
            )
        if place is None or judged is None or judged.candidates.document_ids is None:
            own: tuple[str, ...] = ()
        else:
            own = judged.candidates.document_ids[judged.candidates.rows(place)]
        if document not in own:
            raise RequestDataError(f"There is no document {document!r} for this query.", "document")

    def queries(self, like: str, limit: int) -> list[KnownQuery]:
        """Judged queries whose id or text contains `like`, in any case."""
        if self.judged is None:
            return []
        wanted, every = like.casefold().strip(), map(self.query, self.judged.candidates.query_ids)
        return list(islice((each for each in every if wanted in f"{each.id} {each.text or ''}".casefold()), limit))

    def _grade(self, query_id: str | None, row: int) -> int | None:
        judged = self.judged
        if judged is None or query_id is None or query_id not in self._judged_places:
            return None
        first = judged.candidates.rows(self._judged_places[query_id]).start
        seen = judged.judged is None or bool(judged.judged[first + row])
        return int(judged.labels[first + row]) if seen else None

    @cached_property
    def _judged_places(self) -> dict[str, int]:
        """The number of every judged query."""
        ids = () if self.judged is None else self.judged.candidates.query_ids
        return {query_id: place for place, query_id in enumerate(ids)}

    @cached_property
    def _ids_by_text(self) -> dict[str, str]:
        """The first query of every text that is known."""
        found: dict[str, str] = {}
        for table, _ in self._tables:
            for query_id, text in zip(table.ids, table.texts or (), strict=False):
                found.setdefault(plain(text or ""), query_id)
        return found

    @cached_property
    def _tables(self) -> list[tuple[QueryTable, dict[str, int]]]:
        """The tables of queries, each with the row of every query id."""
        tables = [self.known, None if self.judged is None else self.judged.candidates.queries]
        return [
            (table, {query_id: place for place, query_id in enumerate(table.ids)})
            for table in tables
            if table is not None
        ]


def _title_and_snippet(index: Index | None, document: str) -> dict[str, str]:
    place = None if index is None else index.place_of(document)
    if index is None or place is None:
        return {"title": document, "snippet": ""}
    return {"title": index.titles[place] or document, "snippet": index.snippets[place]}


def first_stage_ranks(candidates: Candidates, names: tuple[str, ...] | None = None) -> dict[str, Ints]:
    """The rank of every candidate of one query in each run, from 1; 0 where the run did not find it.

    `fused`: where there are several runs, by the sum of 1 / (60 + rank) over those that found it. None of them is known
    where no feature tells of a run or of BM25. names: those of the model, where the data has none.
    """
    names = candidates.feature_names or names or ()
    runs = run_columns(names)
    if not runs:
        return {"bm25": _found(candidates.features[:, names.index(BM25)])} if BM25 in names else {}
    found = {run.name: _found(candidates.features[:, run.reciprocal_rank]) for run in runs}
    if len(runs) > 1:
        ranks = np.array(list(found.values()), dtype=np.float64)
        parts = np.where(ranks > 0, reciprocal_ranks(np.maximum(ranks, 1)), 0.0)
        found[FUSED] = _found(parts.sum(axis=0))
    return found


def weights_of_runs(answer: Answer) -> list[RunWeight]:
    """Return the weight of each run for an answer's first query and for all queries; none if runs have no weights."""
    runs = answer.runs
    if runs is None:
        return []
    return list(map(RunWeight, runs.names, runs.weights()[0].tolist(), runs.common.tolist()))


def _ranks(scores: Floats) -> Ints:
    """The rank of each score of one query, from 1."""
    ranks = np.empty(len(scores), np.int64)
    ranks[order(scores, np.array([0, len(scores)]))] = np.arange(1, len(scores) + 1)
    return ranks


def _found(scores: Floats) -> Ints:
    """The same; 0 for a score that is not above 0."""
    return np.where(scores > 0, _ranks(scores), 0)


class Circuit:
    """A circuit breaker: an embedder that failed several times in a row is not called until one request tries it again.

    So is one that fails every other time: each failure may keep a search waiting for half of its time.

    failures: in a row, until it is left alone; or half of the last answers, where those are twice as many and two.
    pause: seconds. clock: the present, in seconds.
    """

    def __init__(self, failures: int = 3, pause: float = 15.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures, self.pause = failures, pause
        self.is_open = False  # whether the embedder is left alone, but for a trial now and then
        self._clock = clock
        self._failed = 0  # times in a row
        self._last = deque[bool](maxlen=2 * failures + 2)  # whether each of the last answers was none
        self._until = 0.0

    def allows(self) -> bool:
        """Whether to call the embedder now. While the circuit is open, one trial request is allowed."""
        if self.is_open and self._clock() < self._until:
            return False
        self._until = self._clock() + self.pause
        return True

    def succeeded(self) -> None:
        """The embedder answered."""
        self._failed = 0
        self._last.append(False)
        if self.is_open:
            self.is_open = False
            self._last.clear()

    def failed(self) -> None:
        """The embedder failed, or did not return a query's vector."""
        self._failed += 1
        self._last.append(True)
        often = len(self._last) == self._last.maxlen and 2 * sum(self._last) >= len(self._last)
        self.is_open |= often or self._failed >= self.failures
        self._until = self._clock() + self.pause


class QueryVectors:
    """Embeds queries that come as text, for an index with vectors."""

    def __init__(self, lookup: Lookup, limits: Limits) -> None:
        self.circuit = Circuit()
        self.failures = 0  # since the start
        self.without = 0  # queries that were answered without a vector
        self._lookup = lookup
        self._threads = BoundedThreadPool(limits, threads=_THREADS)

    async def of(self, query: Query, request: Request | None = None) -> tuple[Query, bool]:
        """The query with its vector where it needs one, and whether it lacks one because the embedder failed.

        Then the vector is 0 throughout, which is similar to no document. An ApiError of the embedder does not reach the
        client; a name that is missing does, as a DataError. A request whose client has gone is given
        up, as by `BoundedThreadPool.run`.
        """
        if not self._lookup.needs_vector(query):
            return query, False
        vector = await self._embedded(query.text or "", request) if self.circuit.allows() else None
        self.without += vector is None
        return structs.replace(query, vector=vector or self._lookup.no_vector()), vector is None

    async def _embedded(self, text: str, request: Request | None) -> list[float] | None:
        """The vector of a text; None where it cannot be made in time, or is 0 throughout."""
        seconds = _SHARE * self._threads.limits.seconds
        asked = False  # with enough time left to answer: a job may have waited for a thread

        def job() -> list[float]:
            nonlocal asked
            asked = time_left() > seconds / 2
            return self._lookup.embedded(text)

        try:
            vector = await self._threads.run(job, request, seconds=seconds)
        except Exception as error:  # whatever an embedder does, searching by words goes on
            if isinstance(error, ApiError) and error.code == "gone":
                raise
            self._failed(error, counts=asked and not isinstance(error, RefusedTextError))
            return None
        if not any(vector):  # as of a text that nothing is known of: this says nothing about others
            return None
        self.circuit.succeeded()
        return vector

    def _failed(self, error: Exception, *, counts: bool) -> None:
        """Log that a query has no vector. counts: this was a failure of the embedder, for any text."""
        self.failures += 1
        if counts:
            self.circuit.failed()
        known = isinstance(error, QuerywiseError | ApiError)
        logger.warning("a query has no vector: %s", error if known else f"{type(error).__name__}: {error}")
        if self.circuit.is_open:
            logger.warning("searching by words alone; the embedder is tried again in %g s", self.circuit.pause)

    def metrics(self) -> str:
        """The counters in Prometheus's text format."""
        without, is_open = "Queries searched for by words alone for that reason.", int(self.circuit.is_open)
        return (
            metric("embedder_failures_total", "counter", "Queries that the embedder made no vector of.", self.failures)
            + metric("without_vectors_total", "counter", without, self.without)
            + metric("embedder_open", "gauge", "1 while a failing embedder is left alone.", is_open)
        )

    def close(self) -> None:
        """Cancel the jobs that wait."""
        self._threads.close()
