"""The model of a folder, reloaded when the folder changes, and the conversion of requests for it. It has no HTTP."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Generic, Literal, TypeVar

import msgspec
import numpy as np

from querywise.contracts.answers import Answer
from querywise.contracts.asking import nobody
from querywise.contracts.forms import name_in_engine
from querywise.contracts.protocols import Ranker
from querywise.contracts.run_weights import answer_to_query, named_weights
from querywise.data.json_rows import cut_rows, read_base64
from querywise.data.judged import Candidates
from querywise.data.query_table import QueryTable
from querywise.data.rows import reading_for
from querywise.errors import DataError, ModelFileError, QuerywiseError
from querywise.explanations.explain import Explanation, Reason, explain, why
from querywise.locality.views.columns import columns_of, vector_lengths
from querywise.measures.order import check_scores, order
from querywise.methods import described
from querywise.rankers.neighbors import at_training_queries
from querywise.retrieval.embedding import EmbedderRecord
from querywise.retrieval.indexed_vectors import known_embedders
from querywise.retrieval.side_by_side import queries_of
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.service.api import RequestDataError
from querywise.service.documents import FeatureColumns, check_vectors, distinct_ids, places_of, query_table
from querywise.service.limits import SLOW_SECONDS, USUAL, QueryCost
from querywise.service.schema import (
    Document,
    Documents,
    ExplainRequest,
    ModelSetting,
    Query,
    RankedDocument,
    RankRequest,
    RankResponse,
    RouteRequest,
    RouteResponse,
    Table,
    WeightsRequest,
    unread,
)
from querywise.storage import Manifest, load_ranker, read_manifest, version_of

_Made = TypeVar("_Made")
_QUICK_SECONDS = 0.005  # a model that ranks a hundred documents in less time may run in the event loop
_QUICK_DOCUMENTS = 1_000  # up to so many documents: handing them to a thread would take longer
_LONGEST_SECONDS = 0.05  # of an answer in the event loop: meanwhile nothing else is answered
_LONG_SECONDS = 1.0  # a ranking that takes longer has threads of its own
_REHEARSED_BYTES = 80_000_000  # of the features of a rehearsal: 100 documents of the most features a model can have
Outcome = Literal["same", "replaced", "refused"]


class LoadedModel:
    """A ranker, its manifest and its version.

    `features`: what it knows of a document. `columns`: those of a query that it looks at, and `vector_lengths`: how
    many numbers the vectors have that it looks at. `cost`: what answers take, and `explaining` what explanations do.
    `quick`: whether answers are fast enough to run in the event loop.
    """

    def __init__(self, ranker: Ranker, manifest: Manifest, version: str) -> None:
        self.ranker = ranker
        self.manifest = manifest
        self.version = version
        names = manifest.feature_names or tuple(str(number + 1) for number in range(manifest.feature_count))
        self._missing = reading_for(manifest.missing)
        self.features = FeatureColumns.named(names, np.nan if self._missing == "allowed" else 0.0)
        self.columns, self.vector_lengths = columns_of(ranker), vector_lengths(ranker)
        self.cost = QueryCost.measured(self._rehearse, self._power)
        self.explaining = QueryCost.measured(self._rehearse_explanation, self._power)
        self.quick = self.cost.alone[USUAL] < _QUICK_SECONDS

    @staticmethod
    def from_folder(folder: Path) -> LoadedModel:
        """Load a model; read it again if it was replaced meanwhile."""
        for _ in range(5):
            version = version_of(folder)
            ranker, manifest = load_ranker(folder), read_manifest(folder)
            if version_of(folder) == version:
                return LoadedModel(ranker, manifest, version[:12])
        raise ModelFileError(f"{folder}: the model changes faster than it can be read.")

    def _rehearse(self, queries: int, documents: int, times: int) -> float:
        """Rank so many random documents of each query, which compiles the kernels and tests the model; the best time.

        A single request is read as it would arrive. Infinite where the table of features would be too large.
        """
        if self._is_large(queries * documents):
            return math.inf
        features, query = self._random_features(queries * documents), self._rehearsed_query()
        if queries == 1:
            sent = [Document(str(row), unread(each.tolist())) for row, each in enumerate(features)]
            request = RankRequest(query, sent)
            cut = cut_rows(msgspec.json.encode(request), len(self.features.names), self.features.absent)
            read_base64(np.frombuffer(b"", np.uint8))  # the other way to send them
            candidates = self.candidates([request], None if cut is None else cut.rows)
        else:
            requests = [RankRequest(query, [Document(str(row), unread([])) for row in range(documents)])] * queries
            candidates = self.candidates(requests, features)
        # A DataError: it needs columns of the query, which are not known here, and runs in a thread.
        with at_training_queries():
            return _best_time(lambda: self.answer(candidates), times)

    def _rehearse_explanation(self, queries: int, documents: int, times: int) -> float:
        """Explain a query of so many random documents, whole and by two of them: the longer time of both.

        Infinite where neither can be done, and for several queries: one is explained at a time.
        """
        if queries > 1 or self._is_large(documents):
            return math.inf
        sent = [Document(str(row), unread([])) for row in range(documents)]
        asked = ExplainRequest(self._rehearsed_query(), sent)
        pair = ExplainRequest(asked.query, sent, "0", str(documents - 1))
        candidates = self.candidates([asked], self._random_features(documents))
        kinds = [asked] if documents < 2 else [asked, pair]
        with at_training_queries():
            found = [_best_time(partial(self.explain, candidates, each), times) for each in kinds]
        return max(filter(math.isfinite, found), default=math.inf)

    def _is_large(self, rows: int) -> bool:
        """Whether a table of this many documents is too large for a rehearsal: a small file can name many features."""
        return 8 * rows * self.manifest.feature_count > _REHEARSED_BYTES

    def _random_features(self, rows: int) -> Floats:
        return np.random.default_rng(0).random((rows, self.manifest.feature_count)).round(6)

    def _rehearsed_query(self) -> Query:
        known = dict.fromkeys(self.columns, 0.0) or None
        return Query("rehearsal", "rehearsal", columns=known, vector=self._probe())

    def _probe(self) -> list[float] | None:
        """The vector of a text, by the embedder of the training queries' vectors; None where none is remembered."""
        known = self.manifest.notes.get("vectors")
        made = known_embedders(known if isinstance(known, dict) else {})
        probes = [EmbedderRecord.from_json(each, "The model").probe for each in made if each is not None]
        if len(probes) < len(made):
            return None
        return list(probes[0]) if len(probes) == 1 else queries_of([np.array([each]) for each in probes])[0].tolist()

    def _power(self) -> int:
        """Return the power of the number of documents with which the time grows."""
        return self.ranker.answer(nobody(self.ranker.feature_count_, self.ranker.feature_names_)).highest_power

    def settings(self) -> list[ModelSetting]:
        """The settings of the fitted method with their values; none if the notes name no known method."""
        method, chosen = self.manifest.notes.get("method"), self.manifest.notes.get("parameters")
        known = described(method, chosen if isinstance(chosen, Mapping) else {}) if isinstance(method, str) else []
        try:
            return msgspec.convert(known, list[ModelSetting])
        except msgspec.ValidationError:  # users write their own notes, with any content
            return []

    def is_quick(self, sizes: Sequence[int]) -> bool:
        """Whether queries with this many documents each may be ranked in the event loop."""
        return self.quick and sum(sizes) <= _QUICK_DOCUMENTS and self.cost.seconds(sizes) <= _LONGEST_SECONDS

    def is_long(self, sizes: Sequence[int]) -> bool:
        """Whether they take so long that other rankings should not wait for them."""
        return self.cost.known and self.cost.seconds(sizes) > _LONG_SECONDS

    def explains_long(self, sizes: Sequence[int]) -> bool:
        """Whether explaining takes so long that other explanations should not wait for it."""
        return self.explaining.known and self.explaining.seconds(sizes) > _LONG_SECONDS

    def candidates(
        self, requests: Sequence[RankRequest | ExplainRequest | RouteRequest], features: Floats | None = None
    ) -> Candidates:
        """The documents of some requests, with the model's features; `features` are theirs where they are read already.

        Several queries are numbered, because their ids need not differ.
        """
        queries = [request.query for request in requests]
        self.check_queries(queries)
        documents: list[Documents] = [request.documents or [] for request in requests]
        if len(requests) == 1 and isinstance(documents[0], Table):
            features = self.features.unpacked(documents[0], "documents")
        if features is not None and len(requests) == 1:
            return self._of_one(requests[0].query, documents[0], features)
        several = len(requests) != 1
        places = [f"requests[{number}].documents" if several else "documents" for number in range(len(requests))]
        if features is None:
            features = self.features.table(documents, places)
        names = [distinct_ids(each, where) for each, where in zip(documents, places, strict=True)]
        ids = tuple(map(str, range(len(requests)))) if several else (requests[0].query.id or "0",)
        return Candidates(
            features,
            np.array([0, *accumulate(map(len, documents))]),
            ids,
            document_ids=tuple(chain.from_iterable(names)),
            feature_names=self.manifest.feature_names,
            queries=query_table(ids, queries),
            missing=self._missing,
        )

    def check_queries(self, queries: Sequence[Query]) -> None:
        """Raise an error for columns and vectors that the model does not use, before they are converted."""
        places = places_of(queries)
        check_vectors(queries, self.vector_lengths, places)
        for query, place in zip(queries, places, strict=True):
            unknown = next((name for name in query.columns or () if name not in self.columns), None)
            if unknown is not None:
                known = f"looks at {', '.join(sorted(self.columns))}" if self.columns else "looks at no columns"
                message = f"The column {unknown!r:.100} is not known: the model {known}."
                raise RequestDataError(message, f"{place}.columns")

    def _of_one(self, query: Query, documents: Documents, features: Floats) -> Candidates:
        """The same of one request whose features are read."""
        name, names = query.id or "0", distinct_ids(documents, "documents")
        plain = query.vector is None and not query.columns
        table = QueryTable.of_query(name, query.text, query.class_) if plain else query_table((name,), [query])
        return Candidates.of_query(
            features, table, names, feature_names=self.manifest.feature_names, missing=self._missing
        )

    def answer(self, candidates: Candidates) -> tuple[Answer, Floats]:
        """The ranker's answer, and its scores, one per document; an error if one is not finite."""
        answer = self.ranker.answer(candidates)
        _require_vectors(answer)
        return answer, check_scores(answer.scores(), candidates)

    def rank(
        self, requests: Sequence[RankRequest], features: Floats | None = None
    ) -> tuple[list[RankResponse], list[Answer]]:
        """The responses to some requests, and the ranker's answers behind them.

        features: those of all their documents, where they are read already.

        Queries without a vector are ranked apart from those with one: each is answered as it would be alone.
        """
        candidates = self.candidates(requests, features)
        lacking = [request.query.vector is None for request in requests]
        if all(lacking) or not any(lacking):
            answer, scores = self.answer(candidates)
            answers = [answer]
        else:
            scores, answers = self._answered_apart(candidates, np.array(lacking))
        return self.responses(requests, candidates, scores), answers

    def responses(self, requests: Sequence[RankRequest], candidates: Candidates, scores: Floats) -> list[RankResponse]:
        """The documents of some requests, best first."""
        names, best = candidates.document_ids or (), order(scores, candidates.starts)
        ranked = [best[candidates.rows(number)][: request.top] for number, request in enumerate(requests)]
        return [
            RankResponse(request.query.id, self.version, _documents(names, rows, scores))
            for request, rows in zip(requests, ranked, strict=True)
        ]

    def _answered_apart(self, candidates: Candidates, lacking: Bools) -> tuple[Floats, list[Answer]]:
        """The scores of all documents, and the answers to the queries with a vector and to those lacking one."""
        scores, answers = np.empty(len(candidates.features)), []
        for kind in (False, True):
            part = candidates.select(np.flatnonzero(lacking == kind))
            if kind and part.queries is not None:
                part = replace(part, queries=replace(part.queries, vectors=np.zeros((len(part), 0))))
            answer, scores[np.repeat(lacking == kind, candidates.sizes)] = self.answer(part)
            answers.append(answer)
        return scores, answers

    def weights(self, request: WeightsRequest) -> tuple[dict[str, float], Answer]:
        """The weight of each first-stage run for a query, and the ranker's answer behind them."""
        for name, own in (request.runs or {}).items():
            wrong = next((document for document, score in own.items() if not math.isfinite(score)), None)
            if wrong is not None:
                raise RequestDataError(f"The score of document {wrong!r} is not a finite number.", f"runs.{name}")
        self.check_queries([request.query])
        table = query_table((request.query.id or "0",), [request.query])
        answer = answer_to_query(self.ranker, table, request.runs)
        return named_weights(answer), answer

    def explain(self, candidates: Candidates, request: ExplainRequest) -> Explanation | Reason:
        """What is particular to a query, or why one document is above another."""
        name = candidates.query_ids[0]
        _require_vectors(self.ranker.answer(candidates))
        if request.above is not None and request.below is not None:
            reason = why(self.ranker, candidates, name, request.above, request.below)
            return replace(reason, query_id=request.query.id or name)
        return replace(explain(self.ranker, candidates, name), query_id=request.query.id or name)


def _documents(names: Sequence[str], rows: Ints, scores: Floats) -> list[RankedDocument]:
    return list(map(RankedDocument, [names[row] for row in rows.tolist()], scores[rows].tolist()))


def _best_time(work: Callable[[], object], times: int) -> float:
    """Return the shortest time of a job; infinite if it rejects its data."""
    best = math.inf
    for number in range(times):
        begun = time.perf_counter()
        try:
            work()
        except DataError:
            return math.inf
        except QuerywiseError:
            raise
        except Exception as error:  # noqa: BLE001 - a damaged model can raise anything
            raise ModelFileError(f"The model cannot rank ({type(error).__name__}: {error}).") from None
        best = min(best, time.perf_counter() - begun)
        if best > SLOW_SECONDS and number:
            break
    return best


def _require_vectors(answer: Answer) -> None:
    """Reject queries without a vector if the model needs it and has no distance by which it could back off."""
    table = answer.seen.queries
    if table is None or table.vectors is None or table.vectors.shape[1]:
        return
    for each in (answer, *answer.members):
        if each.place is not None and each.place.known is None and each.place.by() == ("vector",):
            raise DataError("This model needs the vector of a query, query.vector, and the request has none.")


class ModelFolder:
    """The last model of a folder that was loaded without an error; `problem` says why the present one was not loaded.

    accept: raises an error for a new model that does not fit the index or the judged queries that are served.
    """

    def __init__(self, folder: Path, accept: Callable[[LoadedModel], None] | None = None) -> None:
        self.folder = folder
        self.accept = accept
        self._state = self._read_state()
        self.current = LoadedModel.from_folder(folder)
        self.problem: str | None = None

    def refresh(self) -> Outcome:
        """Load the model again if the files have changed; the old one stays if the new one cannot be used."""
        state = self._read_state()
        if state == self._state:
            return "same"
        try:
            loaded = LoadedModel.from_folder(self.folder)
            if self.accept is not None:
                self.accept(loaded)
        except Exception as error:  # noqa: BLE001 - whatever is put into the folder, the service goes on
            self.problem = str(error) if isinstance(error, QuerywiseError) else f"{type(error).__name__}: {error}"
            # The same files are not tried again; a folder that is still being copied changes, and is.
            self._state = state
            return "refused"
        self._state, self.problem = state, None
        if loaded.version == self.current.version:
            return "same"
        self.current = loaded
        return "replaced"

    def _read_state(self) -> tuple[tuple[str, int, int, int], ...]:
        """Return the name, time, size and inode of every file but temporary ones: they change when a file does."""
        try:
            entries = sorted(self.folder.iterdir())
            found = [(each.name, _stat(each)) for each in entries if not each.name.startswith(".")]
        except OSError:
            return ()
        return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in found)


def _stat(path: Path) -> os.stat_result:
    """Return the status of a file, or of a link that leads nowhere."""
    try:
        return path.stat()
    except OSError:
        return path.lstat()


class PerModel(Generic[_Made]):
    """A value derived from the served model, made on the first request and kept until the model is replaced.

    Whoever asks while it is made waits for the same; after an error it is made again.
    """

    def __init__(self, make: Callable[[LoadedModel], Coroutine[None, None, _Made]]) -> None:
        self._make = make
        self._version = ""  # and not the model itself, which is freed when another takes its place
        self._task: asyncio.Task[_Made] | None = None

    async def of(self, model: LoadedModel) -> _Made:
        """Return the value of the current model."""
        task = self._task
        failed = task is not None and task.done() and (task.cancelled() or task.exception() is not None)
        if task is None or failed or self._version != model.version:
            self._version, self._task = model.version, asyncio.create_task(self._make(model))
            task = self._task
        return await asyncio.shield(task)


def routed(model: LoadedModel, request: RouteRequest, features: Floats | None = None) -> RouteResponse:
    """The name of the model in the engine, as an export of that name calls it.

    features: those of the documents, where they are read already.
    """
    ranker = model.ranker
    itself = ranker.answer(nobody(ranker.feature_count_, ranker.feature_names_))
    if (refused := itself.facts().refused) is not None:
        raise DataError(refused.reason)
    if not itself.varies:
        return RouteResponse(name_in_engine(request.name, -1, None), model.version)
    if itself.local.stored is None:
        raise DataError(
            f"A {type(ranker).__name__} stores no model per kind of query; there is nothing to choose from."
        )
    _check_given(itself, request)
    number = int(ranker.answer(model.candidates([request], features)).chosen()[0])
    return RouteResponse(name_in_engine(request.name, number, len(itself.local.models())), model.version)


def _check_given(itself: Answer, request: RouteRequest) -> None:
    """Raise an error if a query lacks something that routing depends on; a known class needs nothing else."""
    if itself.place is None:
        return
    by, query = itself.place.by(), request.query
    given = {"text": query.text, "vector": query.vector, "columns": query.columns, "documents": request.documents}
    lacking = next((each for each in by if given[each] is None), None)
    if lacking is not None and query.class_ not in itself.place.classes:
        raise RequestDataError(
            f"This model routes on the query's {' and '.join(by)}; its {lacking} "
            f"{'was' if lacking in ('text', 'vector') else 'were'} not given.",
            "documents" if lacking == "documents" else f"query.{lacking}",
        )
