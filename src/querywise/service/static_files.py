"""The files of the page in the browser."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, Response

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


def add_static_files(app: FastAPI) -> None:
    """Add a route for each file; they are read once, here."""
    for path, name in FILES.items():
        content, kind = (_PAGE / name).read_bytes(), _KINDS[Path(name).suffix]

        def page(content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=kind, headers=_HEADERS)

        app.add_api_route(path, page, include_in_schema=False, methods=["GET"])
