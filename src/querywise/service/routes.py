"""The routes of the API, and what each does.

A request to /v1/rank passes through `guards.Guard` (token, counts), `api.Api`, which finds the endpoint by its path,
and `RankRoutes.rank`. An exception on the way becomes a response by `responses.response_to`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from fastapi import FastAPI, Query, Request, Response
from starlette.types import ASGIApp

from querywise.contracts.answers import Answer, adapter_of
from querywise.errors import QuerywiseError
from querywise.explanations.explain import as_dict, depends_on_query
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.retrieval.features import descriptions
from querywise.runtime.arrays import Floats
from querywise.runtime.threads import checkpoint
from querywise.runtime.values import JsonObject
from querywise.service import schema
from querywise.service.api import JSON, Api, ApiError, add_static_files, encode, json_response
from querywise.service.differences import Differences
from querywise.service.documents import decoded, packed
from querywise.service.guards import (
    Guard,
    check_counts,
    check_queries,
    check_values,
    decode,
    decode_documents,
    read_body,
)
from querywise.service.limits import Limits, check_cost
from querywise.service.loaded_model import LoadedModel, PerModel, routed
from querywise.service.online import Online
from querywise.service.service import Pace, Service

_Asking = TypeVar("_Asking", bound=schema.WithDocuments | schema.WeightsRequest)
_LARGE_BODY = 1_000_000  # bytes: reading more would keep the event loop from other requests for tens of milliseconds
_LONG_TEXT = 1_000  # characters of a query: making a point of more takes milliseconds
_MANY_LETTERS = 100_000  # of all texts of a request: making points of more may take a second, as long rankings do
_INLINE_VALUES = 50_000  # of documents that are read one by one: more take milliseconds, and go to a thread
_INLINE_QUERIES = 4  # a batch of fewer queries may be ranked in the event loop
_RANK = msgspec.json.Decoder(schema.RankRequest)
_BATCH = msgspec.json.Decoder(schema.BatchRequest)
_WEIGHTS = msgspec.json.Decoder(schema.WeightsRequest)
_ROUTE = msgspec.json.Decoder(schema.RouteRequest)
_VECTOR = msgspec.json.Decoder(schema.VectorRequest)
_JUDGEMENT = msgspec.json.Decoder(schema.JudgementRequest)
_JUDGEMENT_BYTES = 100_000  # of a request
_MOST_FOUND = 1_000  # candidates that are searched for
_INTERLEAVE = msgspec.json.Decoder(schema.InterleaveRequest)
_EVENTS = msgspec.json.Decoder(schema.EventsRequest)
_EVENTS_BYTES = 200_000  # of a request
_VERDICT_SECONDS = 3.0  # that a verdict is waited for; reading a long log goes on meanwhile
_EXPLAIN = msgspec.json.Decoder(schema.ExplainRequest)
_Show = Annotated[int, Query(ge=1, le=1000, description="Documents to show.")]
_Session = Annotated[
    str | None, Query(min_length=1, max_length=200, description="Who asks, where two models are compared.")
]
_Teams = Annotated[bool, Query(description="Tell which of two models each document is credited to.")]


def add_routes(app: Api, service: Service) -> None:
    """Add every route that is in the OpenAPI document, in the order in which it lists them."""
    rank, look_up, status = RankRoutes(service), LookupRoutes(service), StatusRoutes(service)
    judge, online, hits = JudgeRoutes(service), OnlineRoutes(service), GatewayRoutes(service, rank)
    for path, endpoint, request, response in (
        ("/v1/rank", rank.rank, schema.RankRequest, schema.RankResponse),
        ("/v1/rank/batch", rank.rank_batch, schema.BatchRequest, schema.BatchResponse),
        ("/v1/explain", rank.explain, schema.ExplainRequest, dict[str, Any]),
        ("/v1/weights", rank.weights, schema.WeightsRequest, dict[str, float]),
        ("/v1/route", rank.route, schema.RouteRequest, schema.RouteResponse),
        ("/v1/vector", look_up.vector, schema.VectorRequest, schema.VectorResponse),
        ("/v1/judgements", judge.judge, schema.JudgementRequest, schema.JudgementResponse),
        ("/v1/interleave", online.interleave, schema.InterleaveRequest, schema.InterleaveResponse),
        ("/v1/events", online.events, schema.EventsRequest, schema.EventsResponse),
    ):
        app.add_body_route(path, endpoint, app.describe(request, response))
    app.add_get_route("/v1/search", look_up.search, schema.SearchResponse)
    app.add_get_route("/v1/hits", hits.hits, schema.HitsResponse)
    app.add_get_route("/v1/queries", look_up.queries, schema.QueriesResponse)
    app.add_get_route("/v1/differences", look_up.differences, schema.DifferencesResponse)
    app.add_get_route("/v1/online", online.experiment, schema.ExperimentResponse)
    app.add_get_route("/v1/model", status.model, schema.ModelResponse)
    app.add_api_route("/healthz", status.healthz, methods=["GET"])
    app.add_api_route("/readyz", status.readyz, methods=["GET"])
    app.add_api_route("/metrics", status.metrics, methods=["GET"])


class Read(NamedTuple, Generic[_Asking]):
    """A request, the features of its documents if they are already read, and its model.

    large: whether reading it keeps the event loop too long.
    """

    asked: _Asking
    features: Floats | None
    model: LoadedModel
    large: bool


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service


class RankRoutes(_Routes):
    """Documents that are sent with the request: ranking and explaining them."""

    async def rank(self, request: Request) -> Response:
        """Rank the documents of one query; interleaved with another model's ranking if two models are compared."""
        async with self._read(_RANK, request) as read:
            answer, behind = await self.ranked(read, request)
        self._service.observe(behind)
        return json_response(answer)

    async def ranked(
        self, read: Read[schema.RankRequest], request: Request
    ) -> tuple[schema.RankResponse, Sequence[Answer]]:
        """The response to one query with its documents, and the ranker's answers behind it."""
        service, online = self._service, self._service.online
        asked, features, model, large = read
        other = None if online is None else online.other(model, asked.query, asked.session)
        pace = self._checked(asked, [model] if other is None else [model, other], large)
        if online is None or other is None:
            answers, behind = await service.run(lambda: model.rank([asked], features), request, pace)
        else:
            answers, behind = await service.run(lambda: online.ranked(model, other, asked, features), request, pace)
        if online is not None:
            online.count(other, answers[0].impression)
        return answers[0], behind

    async def rank_batch(self, request: Request) -> Response:
        """Rank the documents of several queries."""
        service = self._service
        async with self._read(_BATCH, request) as (asked, features, model, large):
            pace = self._checked(asked, [model], large or len(asked.requests) >= _INLINE_QUERIES)
            answers, behind = await service.run(lambda: model.rank(asked.requests, features), request, pace)
        service.observe(behind)
        return json_response(schema.BatchResponse(answers))

    async def weights(self, request: Request) -> Response:
        """The weight of each first-stage run for a query, by name; none is negative, and they sum to 1.

        Only for a model with weights of runs, as `querywise fuse` writes it.
        """
        service = self._service
        async with self._read(_WEIGHTS, request) as (asked, _, model, large):
            documents = sum(map(len, (asked.runs or {}).values()))
            pace = _pace([model], service.limits, [documents], large or _have_long_texts([asked.query]))
            found, behind = await service.run(lambda: model.weights(asked), request, pace)
        service.observe_place(behind)
        return json_response(found)

    async def route(self, request: Request) -> Response:
        """The engine's name of the model that ranks a query, for an application that calls the engine itself.

        Only for a model that was exported for an engine.
        """
        service = self._service
        async with self._read(_ROUTE, request) as (asked, features, model, large):
            pace = self._checked(asked, [model], large)
            found = await service.run(lambda: routed(model, asked, features), request, pace)
        return json_response(found)

    async def explain(self, request: Request) -> Response:
        """What is particular to a query, or why one document is above another; the parts add up exactly.

        `known` are the words and classes of the neighbors, in their order. `without_vectors` is present, and true, if
        documents were searched for and the embedder returned no vector for the query.
        """
        async with self._read(_EXPLAIN, request) as read:
            return json_response(await self._explained(read, request))

    async def _explained(self, read: Read[schema.ExplainRequest], request: Request) -> dict[str, Any]:
        service = self._service
        asked, features, model, _ = read
        if (asked.above is None) != (asked.below is None):
            raise ApiError(422, "one_document", "`above` and `below` go together.", "above")
        count = (asked.top or 0) if asked.documents is None else len(asked.documents)
        limits = service.limits
        if asked.documents is None:  # as many are searched for as at /v1/search
            limits = replace(limits, documents=min(limits.documents, _MOST_FOUND))
        check_counts(limits, documents=count, features=len(model.features.names))
        sizes = schema.sizes(asked) if asked.documents is not None else [service.lookup.size_of(asked.query, asked.top)]
        check_cost(model.explaining, limits, schema.sizes(asked))
        query, without = (
            (asked.query, False) if asked.documents is not None else await service.vectors.of(asked.query, request)
        )

        def job() -> dict[str, Any]:
            if asked.documents is not None:
                candidates = model.candidates([asked], features)
            else:
                candidates = service.lookup.candidates(query, asked.top, model)
            check_cost(model.explaining, service.limits, candidates.sizes.tolist())
            found = model.explain(candidates, asked)
            known = [service.lookup.query(each.query_id) for each in found.neighbours]
            told = {"without_vectors": True} if without else {}
            return {**as_dict(found), "model": model.version, "known": known, **told}

        threads = service.long_explainers if model.explains_long(sizes) else service.explainers
        return await threads.run(job, request)

    @contextlib.asynccontextmanager
    async def _read(self, decoder: msgspec.json.Decoder[_Asking], request: Request) -> AsyncIterator[Read[_Asking]]:
        """Return the body, read for the current model. A large one is decoded in a thread, with what belongs to it."""
        body = await read_body(request, self._service.limits)
        size = len(body)
        large = size > _LARGE_BODY
        if not large:
            await self._service.turns.take(request, size)
        model = self._service.models.current
        with self._service.holding(size if large else 0):
            work = partial(self._decoded, decoder, body, model)
            asked, features = await self._service.readers.run(work) if large else work()
            del body, work  # what is needed of it is in `asked`
            values = 0 if features is not None else schema.listed(asked) * len(model.features.names)
            yield Read(asked, features, model, large or values > _INLINE_VALUES)

    def _decoded(
        self, decoder: msgspec.json.Decoder[_Asking], body: bytes, model: LoadedModel
    ) -> tuple[_Asking, Floats | None]:
        if decoder.type is schema.WeightsRequest:
            check_values(body, self._service.limits)
            return decode(decoder, body), None
        if decoder.type is schema.BatchRequest:
            check_queries(body, self._service.limits)
        return decode_documents(decoder, body, model.features)

    def _checked(self, asked: schema.WithDocuments, models: Sequence[LoadedModel], large: bool) -> Pace:
        """Return where to answer the request. Raise an error if it has too many documents, or costs too much."""
        queries = [each.query for each in asked.requests] if isinstance(asked, schema.BatchRequest) else [asked.query]
        pace = _pace(models, self._service.limits, schema.sizes(asked), large or _have_long_texts(queries))
        return "long" if sum(len(query.text or "") for query in queries) > _MANY_LETTERS else pace


def _have_long_texts(queries: Sequence[schema.Query]) -> bool:
    return any(len(query.text or "") > _LONG_TEXT for query in queries)


def _pace(models: Sequence[LoadedModel], limits: Limits, sizes: list[int], large: bool) -> Pace:
    """Return where to rank queries with this many documents each. A large request would block the event loop."""
    for model in models:
        check_counts(limits, documents=sum(sizes), features=len(model.features.names), queries=len(sizes))
        check_cost(model.cost, limits, sizes)
    if any(model.is_long(sizes) for model in models):
        return "long"
    return "quick" if not large and all(model.is_quick(sizes) for model in models) else "usual"


class LookupRoutes(_Routes):
    """Documents of the index, and judged queries."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._differences = Differences(service)

    async def search(
        self,
        request: Request,
        q: Annotated[str | None, Query(max_length=10_000, description="The search query.")] = None,
        qid: Annotated[str | None, Query(max_length=1000, description="Or: a judged query, by its id.")] = None,
        top: Annotated[
            int | None,
            Query(
                ge=1,
                le=_MOST_FOUND,
                description="Candidates to rank, 100 if it is left out. Beside vectors each list is as deep as in the "
                "model's training, 50 if the model does not say; a smaller number makes that of words shorter.",
            ),
        ] = None,
        show: _Show = 10,
        session: _Session = None,
        teams: _Teams = False,
    ) -> Response:
        """Find candidates and rank them, by this query's model and by one model for all."""
        if (q is None) == (qid is None):
            raise ApiError(422, "one_query", "Give either q, a text to search for, or qid, a judged query.", "q")
        model, lookup, begun = self._service.models.current, self._service.lookup, time.perf_counter()
        asked, without_vectors = await self._service.vectors.of(schema.Query(id=qid or "", text=q), request)
        online = self._service.online
        other = None if online is None else online.other(model, asked, session)

        def job() -> schema.SearchResponse:
            candidates = lookup.candidates(asked, top, model)
            checkpoint()
            check_cost(model.cost, self._service.limits, candidates.sizes.tolist())
            answered, drawn = model.answer(candidates), schema.InterleaveResponse("", [])
            if online is not None and other is not None:
                drawn = online.searched(model, other, candidates, answered, asked, session, show) or drawn
            documents, runs, weights = lookup.found(
                model, candidates, show, answered=answered, judged_as=qid, besides=drawn.documents
            )
            checkpoint()
            explanation, neighbours = lookup.explanation(model, candidates) if documents else (None, [])
            return schema.SearchResponse(
                query=lookup.query(qid) if qid is not None else schema.KnownQuery("", q),
                model=model.version,
                candidates=len(candidates.features),
                documents=documents,
                explanation=explanation,
                neighbours=neighbours,
                milliseconds=1000 * (time.perf_counter() - begun),
                runs=runs,
                weights=weights,
                judging=self._judging(qid, q, documents),
                without_vectors=without_vectors,
                impression=drawn.impression or None,
                interleaved=drawn.documents,
                teams=drawn.teams or [] if teams else [],
            )

        threads = self._service.long if model.is_long([lookup.size_of(asked, top)]) else self._service.threads
        found = await threads.run(job, request, seconds=self._service.limits.seconds - (time.perf_counter() - begun))
        if online is not None:
            online.count(other, found.impression)
        self._service.metrics.back_offs += bool(found.explanation and found.explanation.get("note"))
        return json_response(found)

    async def vector(self, request: Request) -> Response:
        """The vector to search an engine by: the query's own, or its text embedded, adapted as the model adapts it.

        A text needs an index, or the name of an embedder that made its vectors.
        """
        service = self._service
        asked = decode(_VECTOR, await read_body(request, service.limits))
        model = service.models.current
        query, without = await service.vectors.of(asked.query, request)
        if without:
            raise ApiError(503, "no_vector", "The embedder returned no vector for the query. Try again later.")
        if query.vector is None:
            said = "There is no vector, and no index with vectors to embed a text by. Send `vector`, or load an index."
            raise ApiError(422, "no_vector", said, "query.vector")
        adapter = adapter_of(model.ranker)

        def job() -> schema.VectorResponse:
            own = np.array(decoded(query.vector or []))
            found = own if adapter is None else adapter.transform(own)
            vector = found.tolist() if asked.dtype is None else packed(found, asked.dtype)
            shift = None
            if asked.explain and isinstance(adapter, AdaptedVectors):
                shift = service.lookup.shift(adapter, own)
            return schema.VectorResponse(vector, adapter is not None, model.version, shift)

        return json_response(await service.threads.run(job, request))

    def _judging(self, qid: str | None, q: str | None, documents: list[schema.FoundDocument]) -> schema.Judging | None:
        """Return the grades given to the documents on the page, if they can be judged."""
        if self._service.judging is None or not documents:
            return None
        query = self._service.lookup.to_judge(qid, q).id
        known = self._service.judging.of(query)
        return schema.Judging(query, {each.id: known[each.id] for each in documents if each.id in known})

    async def queries(
        self,
        request: Request,
        like: Annotated[str, Query(max_length=1000, description="Letters of the id or the text.")] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Response:
        """Judged queries to choose from."""
        found = await self._service.threads.run(lambda: self._service.lookup.queries(like, limit), request)
        return json_response(schema.QueriesResponse(found))

    async def differences(self) -> Response:
        """The model's gains and losses on judged queries, by NDCG@10, against the orders it is compared with.

        Computed on the first request, and kept until the model is replaced.
        """
        return json_response(await self._differences.current())


class JudgeRoutes(_Routes):
    """Grades that are given on the page."""

    async def judge(self, request: Request) -> Response:
        """Give a document a grade for a query, or remove its grade; only where the service has `--judge FILE`."""
        file, lookup, limits = self._service.judging, self._service.lookup, self._service.limits
        if file is None:
            message = "Results are not judged here: the service was started without a file for judgments."
            raise ApiError(404, "not_judging", message)
        short = replace(limits, body_bytes=min(limits.body_bytes, _JUDGEMENT_BYTES))
        asked = decode(_JUDGEMENT, await read_body(request, short))

        def job() -> schema.JudgementResponse:
            query = lookup.to_judge(asked.query.id, asked.query.text)
            lookup.require_document(query.id, asked.document)
            count = file.judge(query, asked.document, asked.grade)
            return schema.JudgementResponse(query.id, asked.document, asked.grade, count)

        # Writing to a disk takes time, so not in the threads of others.
        try:
            return json_response(await self._service.judges.run(job))
        except ApiError as error:
            if error.code != "too_slow":
                raise
            message = (
                f"Whether the grade was kept is not known: there was no answer from the disk within {limits.seconds:g} "
                "seconds. Give it again; the same grade twice does no harm."
            )
            raise ApiError(503, "outcome_unknown", message) from None


class OnlineRoutes(_Routes):
    """Interleaved rankings, and users' actions on them."""

    def _online(self) -> Online:
        if self._service.online is None:
            message = "Nothing is logged here: the service was started without a folder to log to."
            raise ApiError(404, "not_logging", message)
        return self._service.online

    async def interleave(self, request: Request) -> Response:
        """One list of two to five rankings of any engines, by team-draft; only where the service has `--log FOLDER`.

        Drawn at random or, with a `session`, from the session and the query, so that a repeat gives the same list.
        """
        online = self._online()
        asked = decode(_INTERLEAVE, await read_body(request, self._service.limits))
        found = online.interleaved(asked)
        online.answers["interleaved"] += 1
        return json_response(found)

    async def events(self, request: Request) -> Response:
        """Log clicks on impressions; answered once they are on the disk. The same event again counts once."""
        online, limits = self._online(), self._service.limits
        short = replace(limits, body_bytes=min(limits.body_bytes, _EVENTS_BYTES))
        return json_response(await online.keep(decode(_EVENTS, await read_body(request, short)), limits))

    async def experiment(self) -> Response:
        """The verdict of the log so far, as often as you like, and the counts of the last hour."""
        online, service = self._online(), self._service
        told = await online.experiment.told(min(service.limits.seconds, _VERDICT_SECONDS))
        return json_response(
            schema.ExperimentResponse(
                model=service.models.current.version,
                against=None if online.against is None else online.against.current.version,
                share=online.share,
                verdict=None if told is None else told.verdict,
                problem=None if told is None else told.problem,
                age=None if told is None else time.monotonic() - told.when,
                hour=online.last_hour.of(online.totals()),
                failing=online.log.problem,
            )
        )


class GatewayRoutes(_Routes):
    """Documents that a search engine finds, ranked."""

    def __init__(self, service: Service, rank: RankRoutes) -> None:
        super().__init__(service)
        self._rank = rank

    async def hits(
        self,
        request: Request,
        q: Annotated[str, Query(min_length=1, max_length=10_000, description="The search query.")],
        kind: Annotated[str | None, Query(alias="class", max_length=1000, description="The query's class.")] = None,
        show: _Show = 10,
        session: _Session = None,
        teams: _Teams = False,
    ) -> Response:
        """Have the search engine find documents, and rank them; only where the service is a gateway to an engine.

        If the model cannot rank them, they are in the engine's own order, and `note` says why.
        """
        gateway, model = self._service.gateway, self._service.models.current
        if gateway is None:
            raise ApiError(404, "no_gateway", "There is no engine here: the service was not started as a gateway.")
        found = {each.id: each for each in await gateway.found(q, request)}
        if not found:
            return json_response(schema.HitsResponse(q, model.version, []))
        listed = [schema.Document(each, schema.unread([])) for each in found]
        query = schema.Query(text=q, class_=kind)
        asked = schema.RankRequest(query, listed, top=show, session=session, teams=teams)
        try:
            read = Read(asked, gateway.rows(list(found.values()), model), model, large=False)
            answer, behind = await self._rank.ranked(read, request)
        except (QuerywiseError, ApiError) as error:
            if isinstance(error, ApiError) and error.code == "gone":
                raise
            gateway.answers["engine"] += 1
            own = [schema.Hit(each.id, each.score, each.source) for each in found.values()]
            return json_response(schema.HitsResponse(q, None, own[:show], note=str(error)))
        gateway.answers["ranked"] += 1
        self._service.observe(behind)
        ranked = [schema.Hit(each.id, each.score, found[each.id].source) for each in answer.documents]
        return json_response(
            schema.HitsResponse(q, answer.model, ranked, impression=answer.impression, teams=answer.teams)
        )


class StatusRoutes(_Routes):
    """The model that is served, and the state of the service."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._told = PerModel(lambda model: service.readers.run(partial(self._about, model)))

    async def model(self, request: Request) -> Response:
        """The model that is served."""
        content = await self._told.of(self._service.models.current)
        await self._service.turns.take(request, 0)
        return Response(content, media_type=JSON)

    def _about(self, model: LoadedModel) -> bytes:
        """Return a model's description. With 60,000 features it takes megabytes, so it is made once, in a thread."""
        manifest, lookup = model.manifest, self._service.lookup
        return encode(
            schema.ModelResponse(
                version=model.version,
                ranker=type(model.ranker).__name__,
                per_query=depends_on_query(model.ranker),
                feature_count=manifest.feature_count,
                feature_names=None if manifest.feature_names is None else list(manifest.feature_names),
                missing=manifest.missing,
                versions=manifest.versions,
                notes=manifest.notes,
                settings=model.settings(),
                searches=lookup.index is not None,
                judged_queries=0 if lookup.judged is None else len(lookup.judged),
                highest_grade=None if self._service.judging is None else self._service.judging.highest,
                retrain=self._service.retrain,
                experiment=self._service.online is not None,
                feature_descriptions=descriptions(manifest.feature_names or ()),
            )
        )

    async def healthz(self) -> dict[str, str]:
        """Whether the process answers. `embedder` is `failing` while it is not called, and absent otherwise."""
        return {"status": "alive", **({"embedder": "failing"} if self._service.vectors.circuit.is_open else {})}

    async def readyz(self) -> Response:
        """Whether the service should receive requests; 503 while it shuts down."""
        service = self._service
        state = {"status": "draining" if service.draining else "ready", "model": service.models.current.version}
        if service.models.problem is not None:
            state["problem"] = service.models.problem
        return json_response(state, 503 if service.draining else 200)

    async def metrics(self) -> Response:
        """Counts and times, as Prometheus reads them."""
        service, model = self._service, self._service.models.current
        text = service.metrics.text(model.version, type(model.ranker).__name__, service.models.problem is not None)
        text += service.vectors.metrics()
        text += "" if service.online is None else service.online.metrics()
        text += "" if service.gateway is None else service.gateway.metrics()
        return Response(text, media_type="text/plain; version=0.0.4")


def create_app(service: Service) -> ASGIApp:
    """The whole application."""
    return Guard(create_api(service), service)


def create_api(service: Service) -> Api:
    """The application without its guard: nothing is counted, and no token is asked for."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.watch())
        yield
        watching.cancel()
        await service.close()

    app = Api(lifespan=lifespan)
    add_routes(app, service)
    add_static_files(app)
    return app


def api_description() -> JsonObject:
    """The OpenAPI document, without a model to serve."""
    app = Api()
    no_service: Any = None
    add_routes(app, no_service)
    return app.openapi()
