"""Rankers to export, engines to export them to, and what an export says."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import pytest

from querywise import (
    Judged,
    KnnOffline1,
    KnnOffline2,
    LambdaMART,
    QueryTable,
    RankSVM,
    Single,
    TextView,
    make_judged,
)
from querywise.exports.targets import TARGETS
from querywise.learners.classic.adarank import AdaRank
from querywise.learners.classic.listnet import ListNet
from querywise.learners.classic.rankboost import RankBoost
from querywise.learners.trees.boosting import TreeRegression
from querywise.rankers.atvt import ATVT
from querywise.rankers.clusters import Naive, QueryClasses
from querywise.rankers.single import OneFeature
from tests import commands
from tests.commands import Done
from tests.emulated import LearningToRank, Vespa, serving
from tests.query_languages import words_in

ENGINES = {name: target.models for name, target in TARGETS.items() if target.models is not None}


WORDS = ("how to install", "jaguar", "price of", "define")


RANKERS: dict[str, Any] = {
    "ranksvm": RankSVM,
    "single": lambda: Single(ListNet()),
    "adarank": AdaRank,
    "one feature": lambda: OneFeature(1),
    "trees": lambda: LambdaMART(8, leaves=7),
    "stumps": lambda: RankBoost(12),
    "atvt": lambda: ATVT(TreeRegression(6)),
    "knn-offline-1": lambda: KnnOffline1(RankSVM(), k=0.3, models=3, view=TextView(5)),
    "knn-offline-2": lambda: KnnOffline2(RankSVM(), k=0.3, models=4, view=TextView(5)),
    "knn by documents": lambda: KnnOffline2(RankSVM(), k=0.3, models=4),
    "classes": lambda: QueryClasses(RankSVM(), view=TextView(5)),
    "known classes": lambda: QueryClasses(RankSVM(), view=TextView(5), known=True),
    "naive": lambda: Naive(RankSVM(), 3),
    "local trees": lambda: KnnOffline2(LambdaMART(4, leaves=4, prior="global"), k=0.4, models=3, view=TextView(5)),
}


ROUTED = ("knn-offline-1", "knn-offline-2", "knn by documents", "classes", "known classes", "naive", "local trees")


def world(seed: int = 0) -> Judged:
    """Raw features of very different sizes, some below 0, and queries with a text, a class and a column."""
    made = make_judged(60, 12, 5, kinds=3, seed=seed)
    sizes = np.array([1.0, 40.0, 1e-3, 2e4, 0.2])
    ids = made.candidates.query_ids
    table = QueryTable(
        ids,
        texts=tuple(f"{WORDS[number % 4]} thing {number % 7}" for number in range(len(ids))),
        classes=tuple(("informational", "navigational", "transactional")[number % 3] for number in range(len(ids))),
        columns=np.arange(len(ids), dtype=np.float64)[:, None] % 5,
        column_names=("clicks",),
    )
    names = ("title.bm25", "body bm25", "clicks", "length", "age")
    features = (made.candidates.features * sizes).astype(np.float32)  # as an engine logs them
    changed = replace(made.candidates, features=features, queries=table, feature_names=names)
    return replace(made, candidates=changed)


def engine_for(name: str, folder: Path) -> Any:
    return Vespa(folder / "parity-app") if name == "vespa" else LearningToRank()


def checked(folder: Path, engine: Any, name: str, *more: str) -> commands.Done:
    """check_parity.py, with the arguments a user gives it."""
    with serving(engine) as url:
        words = ["--url", f"{url}/solr", "--collection", "scratch"] if name == "solr" else ["--url", url]
        return commands.run_script(folder / "check_parity.py", *words, *more)


def ranks_alike(ours: Any, theirs: Any) -> bool:
    """Whether two score lists order documents alike, ties of ours aside."""
    order = np.argsort(-ours, kind="stable")
    apart = np.diff(ours[order]) < 0
    return bool(np.all(np.diff(theirs[order])[apart] < 0))


def one_line(result: Done) -> str:
    """What was said of a mistake."""
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


@contextmanager
def answering(*said: bytes) -> Iterator[str]:
    """A server that says this to whoever connects; nothing at all, and the connection is held."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            held: list[socket.socket] = []
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    for each in held:
                        each.close()
                    return
                if said:
                    connection.recv(65536)
                    connection.sendall(b"".join(said))
                    connection.shutdown(socket.SHUT_WR)
                    with suppress(OSError):  # an unread request would reset the connection, and what was said be lost
                        while connection.recv(65536):
                            pass
                    connection.close()
                else:
                    held.append(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


ROOT = Path(__file__).parent.parent.parent


def assert_clean(place: Path) -> None:
    """In our own style, with every name defined and no import unused."""
    for asked in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        command = [sys.executable, "-m", "ruff", *asked, "--config", str(ROOT / "pyproject.toml"), str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


TRICKY = (
    'AC/DC "unbalanced (title:',
    "title:jaguar",
    "jaguar -cat",
    "NOT jaguar",
    "jaguar AND (",
    "it's a \\ jaguar\\",
    "${keywords} jaguar",
    "${q:jaguar}",
    "{!func}jaguar",
    "jaguar' v=$q}] {",
    'jaguar")) or true or (("{{keywords}}',
    "*:*",
    "-jaguar",
)


SHOP: dict[str, dict[str, Any]] = {
    "a": {"title": "AC DC live", "body": "unbalanced loads"},
    "b": {"title": "jaguar", "body": "a cat"},
    "c": {"title": "cars", "body": "the jaguar as a title"},
    "d": {"title": "something else", "body": "of another kind"},
}


NUMBERS = ("clicks", "length", "age")


def shop() -> dict[str, dict[str, Any]]:
    return {name: {**texts, **dict.fromkeys(NUMBERS, 1.0)} for name, texts in SHOP.items()}


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The request that router.py writes, run here: a process for each would take seconds."""
    found = importlib.util.spec_from_file_location("router", folder / "router.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["router.py", *words])
    capsys.readouterr()
    assert module.main() == 0
    return json.loads(capsys.readouterr().out)


def with_words(text: str) -> list[str]:
    """The documents that have one of the words."""
    return [name for name, texts in SHOP.items() if words_in(text) & words_in(" ".join(texts.values()))]


class Said(NamedTuple):
    """An answer of a server: its status, and its JSON."""

    code: int
    content: Any


class Asked(NamedTuple):
    """A request to a server."""

    method: str
    path: str


Replies = Callable[[Asked], Said]


@contextmanager
def replying(replies: Replies) -> Iterator[tuple[str, list[Asked]]]:
    """A server over HTTP; gives its address and, as they come, the requests to it."""
    seen: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.append(Asked(self.command, self.path))
            said = replies(seen[-1])
            data = json.dumps(said.content).encode()
            self.send_response(said.code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def definitions(engine: str, fields: tuple[str, ...] = ("title",)) -> Any:
    """How an engine computes the features of `world`: each finds the words in one of the fields."""
    names = world().candidates.feature_names or ()
    pairs = [(name, fields[place % len(fields)]) for place, name in enumerate(names)]
    if engine == "solr":
        kind = "org.apache.solr.ltr.feature.SolrFeature"
        simple = "{{!simple q.operators='' qf={field}^2}}${{keywords}}"
        return [{"name": name, "class": kind, "params": {"q": simple.format(field=field)}} for name, field in pairs]
    queries = {name: {"match": {field: "{{keywords}}"}} for name, field in pairs}
    if engine == "elasticsearch-native":
        return [{"query_extractor": {"feature_name": name, "query": query}} for name, query in queries.items()]
    more = {"params": ["keywords"], "template_language": "mustache"}
    return [{"name": name, **more, "template": query} for name, query in queries.items()]


def positive(seed: int = 0) -> Judged:
    """Features as this engine logs them: not below 0, and 0 where a query does not match."""
    data = world(seed)
    features = np.abs(data.candidates.features)
    features[:, 1] = np.where(features[:, 1] > 20, features[:, 1], 0.0)
    return replace(data, candidates=replace(data.candidates, features=features))
