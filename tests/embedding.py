"""A service that embeds texts as OpenAI's does, for tests: what it is asked is noted, and it can go wrong."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service(ThreadingHTTPServer):
    """A service that answers with the length of each text, and with whatever is wrong before that."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wrong: list[
            Any
        ] = []  # what to do instead, once each: a status, a body, an address to redirect to, or a word
        self.asked: list[list[str]] = []
        self.keys: list[str | None] = []
        self.models: list[str] = []
        self.sent = 0  # bytes of answers that never end
        self.done = threading.Event()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def address(self) -> str:
        return f"{self.origin}/v1/embeddings#small"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body["input"])
        self.server.keys.append(self.headers.get("Authorization"))
        self.server.models.append(body["model"])
        rows = [{"index": place, "embedding": [len(text), 1.5]} for place, text in enumerate(body["input"])]
        status, answer = 200, json.dumps({"data": rows[::-1]}).encode()  # in any order
        if self.server.wrong:
            wrong = self.server.wrong.pop(0)
            if wrong in ("trickle", "trickling headers"):
                self.trickle(answer, headers=wrong == "trickle")
                return
            if wrong == "late":
                self.server.done.wait(20)
                return
            if isinstance(wrong, str) and wrong.startswith("http"):
                self.send_response(307)
                self.send_header("Location", wrong)
                self.end_headers()
                return
            if wrong == "endless":
                self.endless()
                return
            status = wrong if isinstance(wrong, int) else 200
            answer = f"no: {self.headers.get('Authorization')}".encode() if isinstance(wrong, int) else answer
            if isinstance(wrong, bytes):
                answer = wrong
            elif wrong == "cut":
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer[:10])
                self.close_connection = True
                return
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def trickle(self, answer: bytes, *, headers: bool) -> None:
        """A byte now and then, for ever: of the answer after its headers, or of these."""
        if headers:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer) + 10**5))
            self.end_headers()
        with contextlib.suppress(OSError):
            for byte in answer if headers else b"HTTP/1.0 200 OK\r\nX: " + b"x" * 10**6:
                self.wfile.write(bytes([byte]))
                if self.server.done.wait(0.05):
                    return

    def endless(self) -> None:
        """Numbers for ever, as fast as they are taken."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"embedding": [')
        with contextlib.suppress(OSError):
            while not self.server.done.is_set():
                self.wfile.write(b"0.125, " * 10_000)
                self.server.sent += 70_000

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def embedding_service() -> Iterator[Service]:
    """One that runs while the block does."""
    server = Service()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.done.set()
        server.shutdown()
        thread.join()
        server.server_close()
