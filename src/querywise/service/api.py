"""FastAPI with a short way to the endpoints that read a body, the files of the page, and the OpenAPI document.

Bodies are described by the schemas that msgspec reads and writes them with. Responses are JSON; whatever a request is
refused for has the one shape `ErrorResponse`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from pathlib import Path

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Lifespan, Receive, Scope, Send

from querywise.errors import DataError, QuerywiseError
from querywise.runtime.values import Json, JsonObject
from querywise.service import schema

JSON = "application/json"
encode = msgspec.json.Encoder().encode
Endpoint = Callable[[Request], Awaitable[Response]]
_PAGE = files("querywise.service") / "page"
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_PAGES = {"index.html": "/", "docs.html": "/docs"}
# Path: file in page/.
FILES = {
    _PAGES.get(each.name, f"/{each.name}"): each.name for each in _PAGE.iterdir() if Path(each.name).suffix in _KINDS
}
_HEADERS = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_ABOUT = "Ranks documents with a model that depends on the query. Every error has the one shape `ErrorResponse`."


class ApiError(Exception):
    """A rejected request: its HTTP status, a code for programs, a message for people, and a location in the request."""

    def __init__(self, status: int, code: str, message: str, where: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.where = where


class RequestDataError(DataError):
    """Data in a request that the model cannot rank, and the location of the data in the request."""

    def __init__(self, message: str, where: str) -> None:
        super().__init__(message)
        self.where = where


def json_response(
    content: msgspec.Struct | Mapping[str, Json], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with a JSON body."""
    return Response(encode(content), status, headers, JSON)


def error_response(
    status: int, code: str, message: str, where: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    """An error as a response. 503 says when to try again; after 408 and 413 the rest of the body is not read."""
    more = {"retry-after": "1"} if status == 503 else {"connection": "close"} if status in (408, 413) else {}
    return json_response(
        schema.ErrorResponse(schema.Problem(code, message, where)), status, {**more, **(headers or {})}
    )


def response_to(error: Exception) -> tuple[Response, bool]:
    """The response to an exception, and whether it was raised on purpose."""
    if isinstance(error, ApiError):
        return error_response(error.status, error.code, error.message, error.where), True
    if isinstance(error, QuerywiseError):
        return error_response(422, "invalid", str(error), getattr(error, "where", None)), True
    return error_response(500, "internal", "Something went wrong here; it has been logged."), False


def add_error_handlers(app: FastAPI) -> None:
    """Turn every exception into an `ErrorResponse`."""

    @app.exception_handler(ApiError)
    @app.exception_handler(QuerywiseError)
    @app.exception_handler(Exception)
    async def answered(_: Request, error: Exception) -> Response:
        return response_to(error)[0]

    @app.exception_handler(RequestValidationError)
    async def invalid_parameter(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return error_response(422, "invalid", str(first["msg"]), ".".join(map(str, first["loc"])))

    @app.exception_handler(HTTPException)
    async def no_route(_: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
        return error_response(error.status_code, code, str(error.detail), headers=headers)


class Api(FastAPI):
    """An application whose routes of bodies are found by their path and called at once.

    They are ordinary routes too: in the OpenAPI document, and for any other method than POST.
    """

    def __init__(self, lifespan: Lifespan[FastAPI] | None = None) -> None:
        # A redirect to the path without its last slash would lead to whatever Host the request named.
        super().__init__(
            title="querywise", version="1", docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan
        )
        self._direct: dict[str, APIRoute] = {}
        self._described: list[type] = []
        add_error_handlers(self)

    def add_body_route(self, path: str, endpoint: Endpoint, description: JsonObject | None = None) -> None:
        """Add an endpoint that answers the bodies posted to a path."""
        self.add_api_route(path, endpoint, methods=["POST"], openapi_extra=description, response_class=Response)
        route = self.routes[-1]
        assert isinstance(route, APIRoute)
        self._direct[path] = route

    def add_get_route(self, path: str, endpoint: Callable[..., Awaitable[Response]], response: type) -> None:
        """Add an endpoint that reads no body and returns a response of this type."""
        description = self.describe(None, response)
        self.add_api_route(path, endpoint, methods=["GET"], openapi_extra=description, response_class=Response)

    def describe(self, request: type | None, response: type) -> JsonObject:
        """The description of one route: its request body, if it has one, its response, and the errors."""
        kinds = [kind for kind in (request, response) if kind is not None]
        self._described += kinds
        parts, _ = schema.components(*kinds, schema.ErrorResponse)
        content: list[JsonObject] = [{"content": {JSON: {"schema": part}}} for part in parts]
        described: JsonObject = {
            "responses": {
                "200": {"description": "The answer.", **content[-2]},
                "4XX": {"description": "Refused; `error.message` says why.", **content[-1]},
                "503": {"description": "Too busy, or too slow.", **content[-1]},
            }
        }
        return {"requestBody": {"required": True, **content[0]}, **described} if request is not None else described

    def openapi(self) -> JsonObject:
        """The OpenAPI document of all routes; made once."""
        if self.openapi_schema is None:
            made = get_openapi(title=self.title, version=self.version, routes=self.routes, description=_ABOUT)
            _, parts = schema.components(*self._described, schema.ErrorResponse)
            made["components"] = {"schemas": parts}
            for path in made["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            self.openapi_schema = made
        return self.openapi_schema

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        found = self._direct.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None:
            await super().__call__(scope, receive, send)
            return
        scope["route"] = found
        unexpected: Exception | None = None
        try:
            response = await found.endpoint(Request(scope, receive))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered
            response, expected = response_to(error)
            unexpected = None if expected else error
        await response(scope, receive, send)
        if unexpected is not None:
            raise unexpected


def add_static_files(app: FastAPI, first: str = "index.html") -> None:
    """Add a route for each file; they are read once, here. first: the page at /."""
    for path, name in {**FILES, "/": first}.items():
        content, kind = (_PAGE / name).read_bytes(), _KINDS[Path(name).suffix]

        def page(content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=kind, headers=_HEADERS)

        app.add_api_route(path, page, include_in_schema=False, methods=["GET"])
