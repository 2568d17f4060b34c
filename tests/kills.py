"""Commands that are killed just before a chosen change to a file, and what must hold afterwards.

A process of its own imports everything once and then forks for each command: `python -m tests.kills`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import querywise
from querywise.data.collections import Collection, Document, write_collection
from querywise.data.letor import read_letor, write_letor
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.rankers.weights.fusion import Weights
from querywise.storage import save
from tests.commands import contents
from tests.worlds import as_runs

# What Python says, before it does it, of everything that changes files; the last is how two folders change places.
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree", "ctypes.dlsym"}


@dataclass(frozen=True)
class Command:
    """A command that writes `out`; `{turn}` in it is 1 for what is there before and 2 for what is written over it."""

    words: str
    out: str
    costly: bool = False  # whether it takes seconds, so that not every point can be tried
    timed: str | None = None  # files whose names begin so hold measured times: the same command writes others


COMMANDS = (
    Command("fit data{turn}.txt --method ranksvm --out model", "model"),
    Command("convert data{turn}.txt --out shards --rows 40", "shards"),
    Command("index docs{turn} --out index", "index"),
    Command("export fitted{turn} --to opensearch --out exported --rows 3", "exported"),
    Command("rank fitted{turn} data1.txt --out scores.parquet", "scores.parquet"),
    Command("rank fitted{turn} data1.txt --out run.trec", "run.trec"),
    Command("features docs{turn} --out parts", "parts"),
    Command("index docs{turn} --embed lsa --out with-vectors", "with-vectors"),
    Command(
        "fuse words{turn}.trec vectors{turn}.trec --judged graded{turn}.tsv --method weights --out fusion",
        "fusion",
        costly=True,
        timed="report/",
    ),
    Command("export fused{turn} --to opensearch-hybrid --out hybrid", "hybrid"),
    Command("compare data{turn}.txt --methods single --out report", "report", timed=""),
)


class Killer:
    """Runs commands in a folder, each killed before its n-th change to a file below it, or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kills"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )

    def run(self, words: str, *, at: int | None = None) -> int:
        """How many changes the command made; it must end well, or be killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"root": str(self._root), "words": words.split(), "at": at}) + "\n")
        self._process.stdin.flush()
        status, changes, said = json.loads(self._process.stdout.readline())
        assert status == (0 if at is None else -signal.SIGKILL) or (at is not None and status == 0), (words, at, said)
        return int(changes)

    def close(self) -> None:
        self._process.communicate()


@contextlib.contextmanager
def killer(root: Path) -> Iterator[Killer]:
    """Everything that the commands read, in a folder, and who runs them there."""
    for turn in (1, 2):
        write_letor(root / f"data{turn}.txt", make_judged(30, 6, 3, seed=turn))
        queries = QueryTable(tuple("abcde"), texts=("cat", "dog", "bird", "fish", "cow"))
        words = ["cat", "dog", "bird", "fish", "cow"]
        documents = [Document(f"d{n}", words[n % 5], f"{words[n % 5]} and {words[n % 3]} {turn}") for n in range(20)]
        qrels = root / f"docs{turn}" / "qrels.tsv"
        write_collection(Collection("docs", partial(iter, documents), queries), root / f"docs{turn}")
        lines = [f"{query}\td{n}\t{int(n % 5 == place)}\n" for place, query in enumerate("abcde") for n in range(10)]
        qrels.write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
        _write_runs(root, turn)
        save(Weights().fit(as_runs(make_judged(10, 6, 2, seed=turn))), root / f"fused{turn}")
    found = Killer(root)
    for turn in (1, 2):
        found.run(f"fit data{turn}.txt --method ranksvm --out fitted{turn}")
    try:
        yield found
    finally:
        found.close()


def _write_runs(root: Path, turn: int) -> None:
    """Two runs of ten queries and what is relevant: each run is right about every second query."""
    rows = [(query, document) for query in range(10) for document in range(4)]
    for side, name in enumerate(("words", "vectors")):
        lines = [
            f"q{query} Q0 d{document} 1 {5 - (document + turn * (query + side)) % 4} {name}\n"
            for query, document in rows
        ]
        (root / f"{name}{turn}.trec").write_text("".join(lines))
    graded = "".join(f"q{query}\td{document}\t{int(document == query % 2)}\n" for query, document in rows)
    (root / f"graded{turn}.tsv").write_text(graded)


def kill_everywhere(
    killer: Killer, root: Path, command: Command, *, over: bool, points: Callable[[int], Sequence[int]]
) -> int:
    """Kill a command before each of some of its changes, over an older result or where there is none; how many kills.

    What was there must then be there whole, or the new; the next run must end well and leave nothing else behind.
    """
    out, second = root / command.out, command.words.format(turn=2)
    before: dict[str, bytes] = {}
    if over:
        killer.run(command.words.format(turn=1))
        before = _content(out, command.timed)
    kept = root / "kept"
    _move(out, kept)
    beside = {each.name for each in root.iterdir()}
    _move(kept, out, copy=True)
    kills = points(killer.run(second))
    after = _content(out, command.timed)
    for at in kills:
        _clear(out)
        _move(kept, out, copy=True)
        killer.run(second, at=at)
        found = _content(out, command.timed)
        assert found in (before, after), (second, at, sorted(found))
        killer.run(second)
        assert _content(out, command.timed) == after, (second, at)
        left = {each.name for each in root.iterdir()} - beside - {command.out}
        assert not left, (second, at, left)
        hidden = list(out.rglob(".*")) if out.is_dir() else []
        assert not hidden, (second, at, hidden)
    _clear(out)
    _clear(kept)
    return len(kills)


def _content(out: Path, timed: str | None) -> dict[str, bytes]:
    """What a reader sees: files by name, without those that the manifest of a model does not name.

    Files with measured times do not count.
    """
    if out.is_file():
        return {"": out.read_bytes()}
    found = {name: text for name, text in contents(out).items() if not name.split("/")[-1].startswith(".")}
    manifest = found.get("manifest.json", b"").decode()
    seen = {name: text for name, text in found.items() if not name.startswith("arrays-") or name in manifest}
    return {name: text for name, text in seen.items() if timed is None or not name.startswith(timed)}


def _move(path: Path, to: Path, *, copy: bool = False) -> None:
    _clear(to)
    if not path.exists():
        return
    if copy:
        shutil.copytree(path, to) if path.is_dir() else shutil.copy(path, to)
    else:
        path.rename(to)


def _clear(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _serve() -> None:
    """Run the commands that come in, each in a fork of this process."""
    ours = [module.name for module in pkgutil.walk_packages(querywise.__path__, "querywise.")]
    for name in ("pyarrow.parquet", "matplotlib.pyplot", "safetensors.numpy", "scipy.stats", *ours):
        if "scripts" not in name and not name.endswith((".ray", "__main__")):
            importlib.import_module(name)  # once, not in every fork
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("1 qid:1 1:1\n")
        file.flush()
        read_letor(file.name)  # the first kernel to be loaded takes half a second
    gc.freeze()  # what is there stays: a fork that looked for garbage in it would copy it
    for line in sys.stdin:
        asked = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _child(Path(asked["root"]), asked["words"], asked["at"], writing)
        os.close(writing)
        with open(reading, "rb") as told:
            said = told.read().decode().split("\n", 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps([status, int(said[0] or 0), said[-1]]), flush=True)


def _child(root: Path, words: list[str], at: int | None, told: int) -> None:
    from querywise.cli import main

    os.chdir(root)
    changes = 0
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(root.parent / "said.txt", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal changes
        if _is_change(event, arguments, str(root)):
            changes += 1
            if changes == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    sys.argv = ["querywise", *words]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        os.write(told, f"{changes}\n{Path(root.parent / 'said.txt').read_text()}".encode())
        os._exit(code)


def _is_change(event: str, arguments: tuple[object, ...], root: str) -> bool:
    if event == "open":
        path, _, flags = arguments
        if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return False
        return isinstance(path, (str, os.PathLike, bytes)) and _is_below(path, root)
    if event == "ctypes.dlsym":
        return "rename" in str(arguments[1])
    return event in _CHANGES and isinstance(arguments[0], (str, os.PathLike, bytes)) and _is_below(arguments[0], root)


def _is_below(path: str | bytes | os.PathLike[str], root: str) -> bool:
    return os.path.abspath(os.fsdecode(path)).startswith(root + os.sep)


if __name__ == "__main__":
    _serve()
