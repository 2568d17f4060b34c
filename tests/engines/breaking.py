"""A way to a server that breaks off: requests are passed on until some number of a kind, and then the line is cut."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def breaking(url: str, method: str, after: int, ending: str = "") -> Iterator[str]:
    """The address of a server by way of one that cuts the line at the next such request after this many.

    ending: how the path of such a request ends.
    """
    seen, root = 0, urllib.parse.urlsplit(url).path

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            nonlocal seen
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            counts = self.command == method and self.path.endswith(ending)
            seen += counts
            if counts and seen > after:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            path = self.path.removeprefix(root)
            kind = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
            request = urllib.request.Request(url + path, body or None, kind, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    code, content = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                code, content = error.code, error.read()
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{root}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
