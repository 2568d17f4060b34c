"""The service with one more route, /v1/echo, which reads a body as JSON and ranks nothing: the server's own cost.

It is found and called as /v1/rank is.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import msgspec
from fastapi import Request, Response

from querywise.service.api import JSON, encode
from querywise.service.guards import decode, read_body
from querywise.service.loaded_model import ModelFolder
from querywise.service.routes import create_api
from querywise.service.schema import QueriesResponse
from querywise.service.server import run
from querywise.service.service import Service

_ANYTHING = msgspec.json.Decoder()


def serve(folder: Path) -> None:
    """Serve a model on a free port."""
    service = Service(ModelFolder(folder))
    api = create_api(service)

    async def echo(request: Request) -> Response:
        decode(_ANYTHING, await read_body(request, service.limits))
        return Response(encode(QueriesResponse([])), media_type=JSON)

    api.add_body_route("/v1/echo", echo)
    run(service, "127.0.0.1", 0, api)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    serve(Path(sys.argv[1]))
