"""The OpenAPI document. Bodies are described by the schemas that msgspec reads and writes them with."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from querywise.runtime.values import JsonObject
from querywise.service import schema
from querywise.service.responses import JSON

_ABOUT = "Ranks documents with a model that depends on the query. Every error has the one shape `ErrorResponse`."
_DESCRIBED = (
    schema.RankRequest,
    schema.RankResponse,
    schema.BatchRequest,
    schema.BatchResponse,
    schema.ExplainRequest,
    schema.WeightsRequest,
    schema.RouteRequest,
    schema.RouteResponse,
    schema.JudgementRequest,
    schema.JudgementResponse,
    schema.SearchResponse,
    schema.QueriesResponse,
    schema.DifferencesResponse,
    schema.ModelResponse,
    schema.ErrorResponse,
)


def describe(request: type | None, response: type) -> JsonObject:
    """The description of one route: its request body, if it has one, its response, and the errors."""
    kinds = [kind for kind in (request, response, schema.ErrorResponse) if kind is not None]
    parts, _ = schema.components(*kinds)
    content: list[JsonObject] = [{"content": {JSON: {"schema": part}}} for part in parts]
    described: JsonObject = {
        "responses": {
            "200": {"description": "The answer.", **content[-2]},
            "4XX": {"description": "Refused; `error.message` says why.", **content[-1]},
            "503": {"description": "Too busy, or too slow.", **content[-1]},
        }
    }
    return {"requestBody": {"required": True, **content[0]}, **described} if request is not None else described


def document(app: FastAPI) -> JsonObject:
    """The document of all routes of an application; made once."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes, description=_ABOUT)
        _, parts = schema.components(*_DESCRIBED)
        made["components"] = {"schemas": parts}
        for path in made["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        app.openapi_schema = made
    return app.openapi_schema
