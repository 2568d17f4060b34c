"""The HTTP interface: paths, what they take and give, and the one shape of errors."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from querywise.contracts.answers import Answer
from querywise.errors import QuerywiseError
from querywise.explanations.explain import as_dict, depends_on_query
from querywise.runtime.values import JsonObject
from querywise.service import schema
from querywise.service.folder import ModelFolder
from querywise.service.limits import Limits
from querywise.service.lookup import Shelf
from querywise.service.metrics import Metrics
from querywise.service.refusals import Refused
from querywise.service.work import Work

_Result = TypeVar("_Result")
logger = logging.getLogger("querywise.service")

_JSON = "application/json"
_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_GUARDED = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_OPEN = {"/healthz", "/readyz", *_PAGE}  # paths that need no token
_FEW = 4  # queries of a batch from which on it is work for a thread
_LOOKS_PER_SECOND = 20  # queries whose distance is measured though nothing depends on it
_encode = msgspec.json.Encoder().encode


class Service:
    """Everything that answers: the model folder, what can be looked up, threads, counts."""

    def __init__(
        self,
        models: ModelFolder,
        shelf: Shelf | None = None,
        *,
        limits: Limits | None = None,
        token: str | None = None,
        look_every: float = 1.0,
    ) -> None:
        self.models = models
        self.shelf = shelf or Shelf()
        self.shelf.check(models.current)
        models.accept = self.shelf.check
        self.limits = limits or Limits()
        self.token = token
        self.look_every = look_every
        self.metrics = Metrics()
        self.work = Work(self.limits)
        self.draining = False  # told to stop, and still answering
        self.closing = False  # every answer is the last of its connection
        self._looked = 0.0

    async def watch(self) -> None:
        """Take up models as they are replaced, until cancelled."""
        while True:
            await asyncio.sleep(self.look_every)
            outcome = await asyncio.get_running_loop().run_in_executor(None, self.models.refresh)
            if outcome == "same":
                continue
            self.metrics.reloads[outcome] += 1
            if outcome == "replaced":
                logger.info("now serving model %s", self.models.current.version)
            else:
                logger.warning("still serving model %s: %s", self.models.current.version, self.models.problem)

    async def answer(self, job: Callable[[], _Result], *, small: bool) -> _Result:
        """Done at once where it is little, else by a thread."""
        return job() if small else await self.work.run(job)

    def observe(self, answer: Answer) -> None:
        """Count documents and back-offs, and how far queries are from those the model knows."""
        self.metrics.documents += len(answer.seen.features)
        known = None if answer.place is None else answer.place.known
        if known is None or not len(answer.seen):
            return
        if math.isfinite(known.limit):  # the distances had to be known to answer
            gaps = known.distances()
        elif time.monotonic() - self._looked >= 1 / _LOOKS_PER_SECOND:
            gaps = known.few(_FEW)  # of a batch a few stand for all
        else:
            return
        self._looked = time.monotonic()
        for distance in gaps.tolist():
            self.metrics.distances.add(distance)
            self.metrics.back_offs += int(distance > known.limit)


def create_app(service: Service) -> ASGIApp:
    """The application, guarded."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.watch())
        yield
        watching.cancel()
        service.work.close()

    app = FastAPI(title="querywise", version="1", docs_url=None, redoc_url=None, lifespan=lifespan)
    _add_paths(app, service)
    _add_page(app)
    _add_errors(app)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return _Guard(app, service)


def api_description() -> JsonObject:
    """The OpenAPI document, without a model to serve."""
    app = FastAPI(title="querywise", version="1")
    nobody: Any = None
    _add_paths(app, nobody)
    return _openapi(app)


def _add_paths(app: FastAPI, service: Service) -> None:
    _add_answers(app, service)
    _add_looking_up(app, service)
    _add_state(app, service)


def _describes(request: type | None, response: type) -> dict[str, Any]:
    """What OpenAPI says of a path: bodies by the schemas that really read and write them."""
    kinds = [kind for kind in (request, response, schema.ErrorResponse) if kind is not None]
    parts, _ = schema.components(*kinds)
    content = [{"content": {_JSON: {"schema": part}}} for part in parts]
    said: dict[str, Any] = {
        "responses": {
            "200": {"description": "The answer.", **content[-2]},
            "4XX": {"description": "Refused; `error.message` says why.", **content[-1]},
            "503": {"description": "Too busy, or too slow.", **content[-1]},
        }
    }
    return {"requestBody": {"required": True, **content[0]}, **said} if request is not None else said


def _openapi(app: FastAPI) -> dict[str, Any]:
    from fastapi.openapi.utils import get_openapi

    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes, description=_ABOUT)
        _, parts = schema.components(*_DESCRIBED)
        made["components"] = {"schemas": parts}
        for path in made["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        app.openapi_schema = made
    return app.openapi_schema


_ABOUT = "Ranks documents with a model that depends on the query. Every error has the one shape `ErrorResponse`."
_DESCRIBED = (
    schema.RankRequest,
    schema.RankResponse,
    schema.BatchRequest,
    schema.BatchResponse,
    schema.ExplainRequest,
    schema.SearchResponse,
    schema.QueriesResponse,
    schema.ModelResponse,
    schema.ErrorResponse,
)


def _add_answers(app: FastAPI, service: Service) -> None:
    read_one, read_many = msgspec.json.Decoder(schema.RankRequest), msgspec.json.Decoder(schema.BatchRequest)
    read_explain = msgspec.json.Decoder(schema.ExplainRequest)
    read_anything = msgspec.json.Decoder()

    def bounded(documents: int, queries: int = 1) -> int:
        if queries > service.limits.queries:
            raise Refused(
                413,
                "too_many_queries",
                f"The request has {queries} queries; up to {service.limits.queries} are answered at a time.",
                "requests",
            )
        if documents > service.limits.documents:
            raise Refused(
                413,
                "too_many_documents",
                f"The request has {documents} documents; up to {service.limits.documents} are ranked at a time.",
                "documents",
            )
        return documents

    @app.post("/v1/rank", openapi_extra=_describes(schema.RankRequest, schema.RankResponse), response_class=Response)
    async def rank(request: Request) -> Response:
        """Rank the documents of one query."""
        asked = decoded(read_one, await body_of(request, service.limits))
        served = service.models.current
        small = served.is_small(bounded(len(asked.documents)))
        answers, answer = await service.answer(lambda: served.rank([asked]), small=small)
        service.observe(answer)
        return Response(_encode(answers[0]), media_type=_JSON)

    @app.post(
        "/v1/rank/batch", openapi_extra=_describes(schema.BatchRequest, schema.BatchResponse), response_class=Response
    )
    async def rank_batch(request: Request) -> Response:
        """Rank the documents of several queries."""
        asked = decoded(read_many, await body_of(request, service.limits))
        served = service.models.current
        documents = sum(len(each.documents) for each in asked.requests)
        small = served.is_small(bounded(documents, len(asked.requests))) and len(asked.requests) < _FEW
        answers, answer = await service.answer(lambda: served.rank(asked.requests), small=small)
        service.observe(answer)
        return Response(_encode(schema.BatchResponse(answers)), media_type=_JSON)

    @app.post("/v1/explain", openapi_extra=_describes(schema.ExplainRequest, dict[str, Any]), response_class=Response)
    async def explain(request: Request) -> Response:
        """What is particular to a query, or why one document is above another; the parts add up exactly.

        `known` are the words and classes of the neighbours, in their order.
        """
        asked = decoded(read_explain, await body_of(request, service.limits))
        if (asked.above is None) != (asked.below is None):
            raise Refused(422, "one_document", "`above` and `below` go together.", "above")
        bounded(len(asked.documents or []))
        served = service.models.current

        def job() -> dict[str, Any]:
            given = asked.documents is not None
            candidates = (
                served.candidates([asked]) if given else service.shelf.candidates(asked.query, bounded(asked.top))
            )
            found = served.explain(candidates, asked)
            known = [service.shelf.query(each.query_id) for each in found.neighbours]
            return {**as_dict(found), "model": served.version, "known": known}

        return Response(_encode(await service.answer(job, small=False)), media_type=_JSON)

    @app.post("/v1/echo", openapi_extra=_describes(schema.RankRequest, schema.QueriesResponse), response_class=Response)
    async def echo(request: Request) -> Response:
        """Read a body as JSON and rank nothing: what the server itself costs."""
        decoded(read_anything, await body_of(request, service.limits))
        return Response(_encode(schema.QueriesResponse([])), media_type=_JSON)


def _add_looking_up(app: FastAPI, service: Service) -> None:
    @app.get("/v1/search", openapi_extra=_describes(None, schema.SearchResponse), response_class=Response)
    async def search(
        q: Annotated[str | None, Query(max_length=10_000, description="What is looked for.")] = None,
        qid: Annotated[str | None, Query(max_length=1000, description="Or: a judged query, by its id.")] = None,
        top: Annotated[int, Query(ge=1, le=1000, description="Candidates to rank.")] = 100,
        show: Annotated[int, Query(ge=1, le=1000, description="Documents to show.")] = 10,
    ) -> Response:
        """Find candidates and rank them, by this query's model and by one model for all."""
        if (q is None) == (qid is None):
            raise Refused(422, "one_query", "Give either q, a text to search for, or qid, a judged query.", "q")
        served, begun = service.models.current, time.perf_counter()

        def job() -> schema.SearchResponse:
            asked = schema.Query(id=qid or "", text=q)
            candidates = service.shelf.candidates(asked, top)
            documents = service.shelf.found(served, candidates, show, judged_as=qid)
            explanation, neighbours = service.shelf.explanation(served, candidates) if documents else (None, [])
            query = service.shelf.query(qid) if qid is not None else schema.KnownQuery("", q)
            took = 1000 * (time.perf_counter() - begun)
            ranked = len(candidates.features)
            return schema.SearchResponse(query, served.version, ranked, documents, explanation, neighbours, took)

        return Response(_encode(await service.work.run(job)), media_type=_JSON)

    @app.get("/v1/queries", openapi_extra=_describes(None, schema.QueriesResponse), response_class=Response)
    async def queries(
        like: Annotated[str, Query(max_length=1000, description="Letters of the id or the text.")] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Response:
        """Judged queries to choose from."""
        found = await service.work.run(lambda: service.shelf.queries(like, limit))
        return Response(_encode(schema.QueriesResponse(found)), media_type=_JSON)


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/v1/model", openapi_extra=_describes(None, schema.ModelResponse), response_class=Response)
    async def model() -> Response:
        """What is being served."""
        served, shelf = service.models.current, service.shelf
        said = served.manifest
        found = schema.ModelResponse(
            version=served.version,
            ranker=type(served.ranker).__name__,
            per_query=depends_on_query(served.ranker),
            feature_count=said.feature_count,
            feature_names=None if said.feature_names is None else list(said.feature_names),
            missing=said.missing,
            versions=said.versions,
            notes=said.notes,
            settings=served.settings(),
            searches=shelf.index is not None,
            judged_queries=0 if shelf.judged is None else len(shelf.judged),
        )
        return Response(_encode(found), media_type=_JSON)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> Response:
        """Whether it should be sent requests; 503 while it shuts down."""
        state = {"status": "draining" if service.draining else "ready", "model": service.models.current.version}
        if service.models.problem is not None:
            state["problem"] = service.models.problem
        return Response(_encode(state), 503 if service.draining else 200, media_type=_JSON)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counts and times, as Prometheus reads them."""
        served = service.models.current
        text = service.metrics.text(served.version, type(served.ranker).__name__, service.models.problem is not None)
        return Response(text, media_type="text/plain; version=0.0.4")


def _add_page(app: FastAPI) -> None:
    for path, (name, kind) in _PAGE.items():
        content = (files("querywise.service") / "page" / name).read_bytes()

        def page(content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=kind, headers=_GUARDED)

        app.add_api_route(path, page, include_in_schema=False, methods=["GET"])


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return problem(error.status, error.code, error.message, error.where)

    @app.exception_handler(QuerywiseError)
    async def cannot(_: Request, error: QuerywiseError) -> Response:
        return problem(422, "invalid", str(error), getattr(error, "where", None))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return problem(422, "invalid", str(first["msg"]), ".".join(map(str, first["loc"])))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return problem(500, "internal", "Something went wrong here; it has been logged.")

    @app.exception_handler(HTTPException)
    async def nowhere(_: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
        return problem(error.status_code, code, str(error.detail), headers=headers)


def problem(
    status: int, code: str, message: str, where: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    """An error in the one shape."""
    more = {"retry-after": "1"} if status == 503 else {"connection": "close"} if status in (408, 413) else {}
    content = _encode(schema.ErrorResponse(schema.Problem(code, message, where)))
    return Response(content, status, media_type=_JSON, headers={**more, **(headers or {})})


async def body_of(request: Request, limits: Limits) -> bytes:
    """The body of a request, refused as soon as it is known to be too long, or comes too slowly."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise Refused(415, "encoded", f"The body is encoded as {encoding}; send it as it is.", "content-encoding")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.body_bytes:
        raise _too_long(limits)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body_bytes:
                    raise _too_long(limits)
                parts.append(part)
    except TimeoutError:
        raise Refused(408, "too_slow", f"The body was not there within {limits.seconds:g} seconds.") from None
    except ClientDisconnect:
        raise Refused(400, "gone", "The connection was closed before the body was complete.") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_long(limits: Limits) -> Refused:
    return Refused(
        413, "too_long", f"The body is longer than {limits.body_bytes} bytes. Send fewer documents at a time."
    )


def decoded(decoder: msgspec.json.Decoder[_Result], body: bytes) -> _Result:
    """A request, or what is wrong with it and where."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        raise Refused(422, "invalid", f"{message}.", where.strip("`").removeprefix("$").lstrip(".") or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "not_json", f"The body is not JSON that can be read: {error}.") from None


class _Guard:
    """Before everything: the token; around everything: counts, times, and no error without its shape."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service, begun, status = self._service, time.perf_counter(), 500
        if scope["method"] == "HEAD":  # the server leaves the body out
            scope = {**scope, "method": "GET"}
        complete = False

        async def counted(message: Message) -> None:
            nonlocal status, complete
            if message["type"] == "http.response.start":
                status = message["status"]
                if service.closing:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        service.metrics.in_flight += 1
        try:
            if self._is_stranger(scope):
                answer = problem(401, "unauthorised", "Send the token: `Authorization: Bearer …`.")
                answer.headers["www-authenticate"] = "Bearer"
                await answer(scope, receive, counted)
            else:
                await self._app(scope, receive, counted)
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if not complete:  # the connection is of no use any more
                raise
        finally:
            service.metrics.in_flight -= 1
            service.metrics.answered(_path_of(scope), status, time.perf_counter() - begun)

    def _is_stranger(self, scope: Scope) -> bool:
        token = self._service.token
        if token is None or scope["path"] in _OPEN:
            return False
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, word = given.partition(b" ")
        return scheme.lower() != b"bearer" or not hmac.compare_digest(word.strip(), token.encode())


def _path_of(scope: Scope) -> str:
    """The route's own path; one name for all others, so that strangers cannot make up labels."""
    route = scope.get("route")
    return str(route.path) if route is not None else "other"
