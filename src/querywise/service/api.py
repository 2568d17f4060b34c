"""FastAPI with a short way to the endpoints that read a body: they are found by their path, and called at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fastapi import FastAPI, Request, Response
from starlette.types import Lifespan, Receive, Scope, Send

from querywise.runtime.values import JsonObject
from querywise.service.responses import add_error_handlers, response_to

Endpoint = Callable[[Request], Awaitable[Response]]


class _Direct(NamedTuple):
    """What a request to a path is answered by."""

    path: str
    endpoint: Endpoint


class Api(FastAPI):
    """An application whose routes of bodies are found by their path and called at once.

    They are ordinary routes too: in the OpenAPI document, and for any other method than POST.
    """

    def __init__(self, lifespan: Lifespan[FastAPI] | None = None) -> None:
        # A redirect to the path without its last slash would lead to whatever Host the request named.
        super().__init__(
            title="querywise", version="1", docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan
        )
        self._direct: dict[str, _Direct] = {}
        add_error_handlers(self)

    def add_body_route(self, path: str, endpoint: Endpoint, description: JsonObject | None = None) -> None:
        """Have bodies that are posted to a path answered by an endpoint."""
        self.add_api_route(path, endpoint, methods=["POST"], openapi_extra=description, response_class=Response)
        self._direct[path] = _Direct(path, endpoint)

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
