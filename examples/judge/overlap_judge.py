"""A judge that is no language model: it answers by OpenAI's chat protocol, and grades by overlap of words.

`python examples/judge/overlap_judge.py 18751` answers at http://127.0.0.1:18751/v1/chat/completions until it is ended.
The grade of a document is the share of the query's words that it has, in even steps from 0 to the highest grade.
`querywise judge` is tried on it where no model is at hand; for real judgments name the address of one.
"""

from __future__ import annotations

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def words_of(text: str) -> set[str]:
    """The words of a text, without the ends that English puts to them."""
    return {re.sub(r"(ing|es|s|ed)$", "", word) for word in re.findall(r"[a-z0-9]+", text.lower())}


def answer_to(message: str) -> str:
    """The grades of the documents in a prompt, as the usual prompt of `querywise judge` wants them."""
    highest = int(re.search(r"from 0 to ([0-9]+)", message)[1])
    _, _, rest = message.rpartition("\nQuery: ")
    query, *parts = re.split(r"\n\nDocument ([0-9]+):\n", rest.rpartition("\n\nAnswer with")[0])
    wanted, grades = words_of(query), {}
    for number, text in zip(parts[::2], parts[1::2], strict=True):
        share = len(wanted & words_of(text)) / max(len(wanted), 1)
        grades[number] = round(share * highest)
    return json.dumps(grades)


class Handler(BaseHTTPRequestHandler):
    """Answers requests for chat completions."""

    def do_POST(self) -> None:
        """Grade the documents of one request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = request["messages"][-1]["content"]
        answer = answer_to(message)
        usage = {"prompt_tokens": len(message) // 4, "completion_tokens": len(answer) // 4}
        choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
        body = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1/chat/completions", flush=True)
    server.serve_forever()
