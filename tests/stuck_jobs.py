"""Every thread pool with a job that never ends: others are answered meanwhile, and the process ends when it is told to.

`python -m tests.stuck_jobs serve …` is `querywise serve …` in which some jobs never end.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.serving import Serving, started

STUCK = "stuck"  # the query whose answer never comes
_TOKEN = "a-token-of-the-test"
_SECONDS = 0.5  # that an answer of the service may take
_PATIENCE = 60.0  # seconds that are waited for an end; far more than it takes


def _never(*_: object) -> Any:
    threading.Event().wait()


def _serve(hangs: Path, words: list[str]) -> None:
    """The command, with jobs that never end: those for the stuck query, and every look at the model folder."""
    from querywise.cli import main
    from querywise.service.judging import JudgementFile
    from querywise.service.loaded_model import LoadedModel, ModelFolder
    from querywise.service.lookup import Lookup

    def stuck_if(kind: Any, name: str, condition: Callable[..., bool]) -> None:
        original = getattr(kind, name)
        setattr(kind, name, lambda self, *given: (_never if condition(*given) else original)(self, *given))

    stuck_if(LoadedModel, "rank", lambda requests, *_: any(each.query.id == STUCK for each in requests))
    stuck_if(LoadedModel, "explain", lambda _, request: request.query.id == STUCK)
    stuck_if(Lookup, "embedded", lambda text: text == STUCK)
    stuck_if(Lookup, "queries", lambda like, _: like == STUCK)
    stuck_if(JudgementFile, "judge", lambda _, document, grade: grade == 0)
    stuck_if(ModelFolder, "refresh", hangs.exists)
    kind: Any = LoadedModel
    kind.is_quick = lambda self, sizes: False
    kind.is_long = lambda self, sizes: len(sizes) > 1
    sys.argv = ["querywise", *words]
    main()


@dataclass(frozen=True)
class Asked:
    """Two requests for the same pool: one whose job never ends, and another."""

    stuck: Callable[[httpx.Client], httpx.Response]
    other: Callable[[httpx.Client], httpx.Response]
    goes_on: bool = False  # whether the stuck one is answered all the same


def _post(path: str, content: Callable[[str], object]) -> Asked:
    return Asked(lambda to: to.post(path, json=content(STUCK)), lambda to: to.post(path, json=content("q")))


def _pools(width: int) -> dict[str, Asked]:
    documents = [{"id": str(number), "features": [number / 7] * width} for number in range(3)]

    def one(name: str) -> dict[str, Any]:
        return {"query": {"id": name}, "documents": documents}

    def grade(given: int) -> dict[str, Any]:
        return {"query": {"text": "jam"}, "document": "jam-apple", "grade": given}

    return {
        "rankings": _post("/v1/rank", one),
        "long rankings": _post("/v1/rank/batch", lambda name: {"requests": [one(name)] * 2}),
        "explanations": _post("/v1/explain", lambda name: one(name) | {"above": "1", "below": "2"}),
        "judgements": _post("/v1/judgements", lambda name: grade(0 if name == STUCK else 1)),
        "query vectors": Asked(
            lambda to: to.get("/v1/search", params={"q": STUCK}),
            lambda to: to.get("/v1/search", params={"q": "jam"}),
            goes_on=True,
        ),
    }


def service_pools(place: Path) -> dict[str, str]:
    """What is wrong with each pool of the service, where anything is, by its name.

    place: a folder with a model, an index with vectors of `lsa`, and features that they were made of.
    """
    hangs, found = place / "hangs", dict[str, str]()
    words = (place / "model", "--index", place / "index", "--data", place / "features" / "S1.txt")
    more = ("--judge", place / "grades.txt", "--timeout", _SECONDS, "--port", 0)
    command = [sys.executable, "-m", "tests.stuck_jobs", hangs, "serve", *words, *more]
    with (
        started(command, {"QUERYWISE_TOKEN": _TOKEN, "OMP_WAIT_POLICY": "passive"}) as server,
        httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {_TOKEN}"}, timeout=_PATIENCE) as client,
    ):
        pools = _pools(client.get("/v1/model").json()["feature_count"])
        hangs.touch()
        for name, asked in pools.items():
            found[name] = _problem(client, asked)
        found["the model folder"] = "" if client.get("/readyz").status_code == 200 else "not ready"
        found["the end of the service"] = _ended(server)
    return found


def _problem(client: httpx.Client, asked: Asked) -> str:
    """What is wrong, if anything, while three jobs of a pool never end: its threads are fewer where cores are."""
    for _ in range(3):
        status = asked.stuck(client).status_code
        if status != (200 if asked.goes_on else 503):
            return f"the stuck request was answered by {status}"
        other = asked.other(client)
        if other.status_code != 200:
            return f"another request was answered by {other.status_code}: {other.text}"
        if client.get("/healthz").status_code != 200:
            return "/healthz does not answer"
    return ""


def _ended(server: Serving) -> str:
    server.process.send_signal(signal.SIGTERM)
    try:
        code = server.process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        return "SIGTERM does not end it"
    return "" if code == 0 else f"it ended with {code}"


# Programs that must print "done" and end. In each, one job of a pool never ends.
PROGRAMS = {
    "work in pieces": """
        import threading
        from querywise.runtime.threads import _pool, in_threads
        begun = threading.Event()
        _pool().submit(lambda: (begun.set(), threading.Event().wait()))
        begun.wait()
        assert in_threads(abs, range(-9, 0)) == list(range(9, 0, -1))
    """,
    "work in pieces, after a fork": """
        import os, signal
        from querywise.runtime.threads import in_threads
        in_threads(abs, range(9))
        child = os.fork()
        if not child:
            signal.alarm(20)
            in_threads(abs, range(9))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """,
    "jobs on a cluster": """
        import threading
        from querywise import Cluster
        from querywise.runtime import ray
        ray._LEAVE = 0.1
        def job(number):
            if number:
                raise ValueError("stop")
            threading.Event().wait()
        try:
            Cluster().together(job, [0, 1], "Jobs")
        except ValueError:
            pass
    """,
    "lines of progress": """
        import sys, threading
        from querywise.runtime import progress
        progress.FIRST = 0.01
        writing = threading.Event()
        class Nobody:
            def write(self, text):
                writing.set()
                threading.Event().wait()
        sys.stderr = Nobody()
        with progress.Lines():
            writing.wait()
        sys.stderr = sys.__stderr__
    """,
    "the log of an experiment": """
        import pathlib, tempfile, threading
        from querywise.online import log
        log._CLOSING_SECONDS = 0.1
        begun = threading.Event()
        def never():
            begun.set()
            threading.Event().wait()
        with tempfile.TemporaryDirectory() as folder:
            events = log.EventLog(pathlib.Path(folder, "log"))
            events.add(never, 10, awaited=False)
            begun.wait()
            assert not events.add(lambda: b"{}", 2, awaited=True).done()
            events.close()
    """,
    "packages that are tried": """
        import pathlib, sys, tempfile
        from querywise.jobs import trials
        trials._SECONDS = 3
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "never_imported.py").write_text("import time; time.sleep(1e6)")
            sys.path.insert(0, folder)
            assert "gave no answer within 3 seconds" in trials.tried(["never_imported"])["never_imported"].error
    """,
    "requests to a judge": """
        import pathlib, tempfile, threading
        from querywise.jobs import judge
        judge._LAST_SECONDS = 0.1
        def answered(planned, request, job):
            if request.query == "q2":
                threading.Event().wait()
            if request.query == "q3":
                raise ValueError("stop")
            return judge._Answered('{"1": 1}', (1, 1))
        judge._answered = answered
        asked = judge.Judge("http://localhost:1/v1#m")
        pool = {name: ["D"] for name in ("q1", "q2", "q3")}
        requests = tuple(judge._requests(asked, pool, dict.fromkeys(pool, "text"), {"D": "text"}))
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "out")
            try:
                judge.run(judge.Plan(asked, "http://localhost:1/v1", 3, requests, {}, judge.Budget()), out)
            except ValueError:
                pass
            assert len(out.with_name("out.answers.jsonl").read_text().splitlines()) == 1
    """,
    "what is compiled beside": """
        import subprocess, sys
        from querywise.jobs import first_use
        first_use._SECONDS = 0.5
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"]) as process:
            first_use._wait(process)
            process.kill()
    """,
}


def program_problem(name: str) -> str:
    """What is wrong with a program, if anything."""
    code = textwrap.dedent(PROGRAMS[name]) + "\nprint('done', flush=True)\n"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired as late:
        return "it printed all and does not end" if b"done" in (late.stdout or b"") else "it never ends"
    return "" if done.returncode == 0 and done.stdout == "done\n" else f"{done.returncode}: {done.stderr[-500:]}"


def prepare(place: Path, run: Callable[[Path, Sequence[object]], object]) -> None:
    """What `service_pools` serves; `run` runs a command in a folder."""
    from tests.support.vectors import collection_with_vectors

    collection_with_vectors(place)
    for command, more in (("index", ()), ("features", ()), ("fit", ("--method", "ranksvm", "--set", "l2=1"))):
        out = "model" if command == "fit" else command
        run(place, (command, "docs", "--embed", "lsa", *more, "--out", out, "-q"))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.argv[2:])
