"""Responses: JSON bodies, and errors that a request is answered with, in the one shape `ErrorResponse`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from querywise.errors import DataError, QuerywiseError
from querywise.runtime.values import Json
from querywise.service.schema import ErrorResponse, Problem

JSON = "application/json"
encode = msgspec.json.Encoder().encode


class ApiError(Exception):
    """A request that is refused: the HTTP status, a code for programs, a message for people, a place in the request."""

    def __init__(self, status: int, code: str, message: str, where: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.where = where


class RequestDataError(DataError):
    """Data in a request that the model cannot rank, and its place in the request."""

    def __init__(self, message: str, where: str) -> None:
        super().__init__(message)
        self.where = where


def json_response(
    content: msgspec.Struct | Mapping[str, Json], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A body of JSON as a response."""
    return Response(encode(content), status, headers, JSON)


def error_response(
    status: int, code: str, message: str, where: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    """An error as a response. 503 says when to try again; after 408 and 413 the rest of the body is not read."""
    more = {"retry-after": "1"} if status == 503 else {"connection": "close"} if status in (408, 413) else {}
    return json_response(ErrorResponse(Problem(code, message, where)), status, {**more, **(headers or {})})


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
