"""The files of the page in the browser."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, Response

# Path: file in page/, media type.
FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/docs": ("docs.html", "text/html"),
    "/docs.js": ("docs.js", "text/javascript"),
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
    for path, (name, kind) in FILES.items():
        content = (files("querywise.service") / "page" / name).read_bytes()

        def page(content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=kind, headers=_HEADERS)

        app.add_api_route(path, page, include_in_schema=False, methods=["GET"])
