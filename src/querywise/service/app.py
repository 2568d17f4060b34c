"""The application: routes, static files and the guard, put together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from querywise.runtime.values import JsonObject
from querywise.service import openapi
from querywise.service.api import Api
from querywise.service.guards import Guard
from querywise.service.routes import add_routes
from querywise.service.service import Service
from querywise.service.static_files import add_static_files


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
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    return app


def api_description() -> JsonObject:
    """The OpenAPI document, without a model to serve."""
    app = Api()
    no_service: Any = None
    add_routes(app, no_service)
    return openapi.document(app)
