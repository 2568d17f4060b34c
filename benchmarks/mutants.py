"""Do the tests notice a mistake in the mathematics? One small mistake at a time: `python -m benchmarks.mutants`.

A mutant is a copy of the project in which one operator, sign, bound or choice of the mathematics is another one. The
tests of its module kill it by failing, or by taking far too long; a mutant that survives is either a hole in the tests
or the same program as before. The same mutants are made every time, wherever files and lines have moved to.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import queue
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.mutations import Mutant, mutants


class Module(NamedTuple):
    """Where some mathematics is, below src/querywise, and what tests it: runs of pytest, the fastest first."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


# A mutant is known by the name of its module, so a file that moves, or is split, needs another path here and no more.
MODULES = {
    "newton": Module(
        ("learners/ranksvm/newton.py",), ("tests/test_ranksvm.py tests/test_kernels.py tests/test_local_models.py",)
    ),
    "measures": Module(("measures/formulas.py",), ("tests/test_order.py tests/test_measures.py",)),
    "storage": Module(
        ("storage/models.py", "storage/objects.py", "storage/models.py"),
        (
            "tests/test_storage.py tests/test_storage_changes.py tests/test_damaged_models.py",
            "tests/test_rankers_conform.py -k sav",
        ),
    ),
    "neighborhoods": Module(("locality/neighborhoods.py",), ("tests/test_neighborhoods.py tests/test_knn.py",)),
    "arithmetic": Module(
        ("exports/arithmetic.py",),
        (
            "tests/test_arithmetic.py",
            "tests/test_exports.py -k 'arithm or threshold or millionth or apart or absent'",
            "tests/test_exports.py -k 'as_we_do or otherwise'",
            "tests/test_exports_mistakes.py -k thresholds",
        ),
    ),
}

_ROOT = Path(__file__).parent.parent
_SOURCES = "src/querywise"
_SAMPLE = 24  # of each module
_SEED = 2008
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "querywise-demo")
_PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0", "--hypothesis-seed=0")
_NO_TESTS = 5  # pytest's own number for it


def sample(every: Sequence[Mutant], size: int) -> list[Mutant]:
    """So many of them, at equal distances, from a place that the seed decides."""
    size = min(size, len(every))
    first = random.Random(_SEED).random()
    return [every[int((number + first) * len(every) / size)] for number in range(size)]


class Copy:
    """A copy of the project to run tests in, with machine code of its own."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / _ROOT.name
        shutil.copytree(_ROOT, self.project, ignore=_LEFT_OUT)
        if (_ROOT.parent / "shared").exists():
            (folder / "shared").symlink_to(_ROOT.parent / "shared")
        self.machine_code = folder / "numba"
        self.process: subprocess.Popen[bytes] | None = None
        self.late = False  # whether the last tests took too long

    def verdict(self, mutant: Mutant, patience: float) -> str:
        """Whether the tests of its module kill the mutant."""
        path = self.project / _SOURCES / mutant.file
        original, times = path.read_bytes(), path.stat()
        try:
            self._put(path, mutant.text.encode())
            return "survived" if self.passes(mutant.module, patience) else "timeout" if self.late else "killed"
        finally:
            self._put(path, original)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def passes(self, module: str, patience: float | None = None, show: bool = False) -> bool:
        """Whether the tests of a module pass, doctests of its files included, within `patience` seconds."""
        files, tests = MODULES[module]
        doctests = [f"{_SOURCES}/{file}" for file in files]
        until = None if patience is None else time.monotonic() + patience
        return all(self._run(run, until, show) for run in (" ".join([*doctests, tests[0]]), *tests[1:]))

    def _run(self, arguments: str, until: float | None, show: bool) -> bool:
        shutil.rmtree(self.project / ".hypothesis", ignore_errors=True)  # examples that killed another mutant
        surroundings = os.environ | {
            "PYTHONPATH": f"{self.project / 'src'}{os.pathsep}{self.project}",
            "NUMBA_CACHE_DIR": str(self.machine_code),
            "OMP_WAIT_POLICY": "passive",
        }
        command = [sys.executable, *_PYTEST, *shlex.split(arguments)]
        out = None if show else subprocess.DEVNULL
        # In a session of its own, so that Ctrl-C does not look like a failed test.
        self.process = subprocess.Popen(
            command, cwd=self.project, env=surroundings, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = self.process.wait(None if until is None else max(until - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            self.late = self.process.returncode is None
            self.stop()
        if code == _NO_TESTS:
            raise SystemExit(f"pytest {arguments}: there are no such tests. Correct MODULES in benchmarks/mutants.py.")
        return code == 0

    def stop(self) -> None:
        """End the tests that run, and what they have started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _put(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        if b"import compiled" in content:  # machine code of other files may hold some of this one's
            shutil.rmtree(self.machine_code, ignore_errors=True)


class Results:
    """Verdicts by identity, kept in a file, if there is one, after each mutant."""

    def __init__(self, path: Path | None, stamp: str) -> None:
        self.path, self.stamp = path, stamp
        self.found: dict[str, dict[str, Any]] = {}
        if path is not None and not path.absolute().parent.is_dir():
            raise SystemExit(f"{path}: there is no folder {path.absolute().parent}; make it first.")
        if path is not None and path.exists():
            kept = _read(path)
            if kept["stamp"] != stamp:
                raise SystemExit(f"{path}: made with other sources or tests. Name another file, or remove this one.")
            self.found = kept["mutants"]

    def add(self, mutant: Mutant, verdict: str, seconds: float) -> None:
        """Keep one more."""
        entry = {"verdict": verdict, "seconds": round(seconds, 1), "file": mutant.file, "line": mutant.line}
        self.found[mutant.identity] = {**entry, "before": mutant.before, "after": mutant.after}
        if self.path is not None:
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps({"stamp": self.stamp, "mutants": self.found}, indent=1), encoding="utf-8")
            part.replace(self.path)


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_bytes())
        return {"stamp": kept["stamp"], "mutants": dict(kept["mutants"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path}: not a file that --out wrote ({error!r}).") from None


def _stamp() -> str:
    """A digest of sources and tests."""
    digest = hashlib.sha256()
    for file in sorted([*(_ROOT / "src").rglob("*.py"), *(_ROOT / "tests").rglob("*.py")]):
        digest.update(str(file.relative_to(_ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()


def chosen(modules: Sequence[str], against: dict[str, Any] | None) -> list[Mutant]:
    """The sample of some modules, or the mutants that an earlier run had."""
    found: list[Mutant] = []
    for module in modules:
        paths = {file: _ROOT / _SOURCES / file for file in MODULES[module].files}
        absent = [path for path in paths.values() if not path.is_file()]
        if absent:
            raise SystemExit(f"{absent[0]}: there is no such file. Correct MODULES in benchmarks/mutants.py.")
        every = mutants(module, {file: path.read_text(encoding="utf-8") for file, path in paths.items()})
        earlier = [mutant for mutant in every if mutant.identity in (against or {})]
        found += sample(every, _SAMPLE) if against is None else earlier
    return found


def run(every: Sequence[Mutant], results: Results, jobs: int) -> None:
    """Judge the mutants that have no verdict yet."""
    left = [mutant for mutant in every if mutant.identity not in results.found]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies = [Copy(Path(folder) / str(number)) for number in range(jobs if left else 0)]
        free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        list(map(free.put, copies))
        patience = {module: _patience(module, copies) for module in dict.fromkeys(each.module for each in left)}

        def judge(mutant: Mutant) -> tuple[str, float]:
            copy, start = free.get(), time.perf_counter()
            try:
                return copy.verdict(mutant, patience[mutant.module]), time.perf_counter() - start
            finally:
                free.put(copy)

        waiting = {pool.submit(judge, mutant): mutant for mutant in left}
        try:
            for number, done in enumerate(as_completed(waiting), len(every) - len(left) + 1):
                verdict, seconds = done.result()
                results.add(waiting[done], verdict, seconds)
                print(f"{number}/{len(every)}  {verdict:8}  {seconds:5.1f} s  {waiting[done].identity}", flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.stop()


def _patience(module: str, copies: Sequence[Copy]) -> float:
    """How long a mutant may take: far longer than the unmutated project, whose tests have to pass."""
    for copy in copies:  # compiles
        if not copy.passes(module):
            copy.passes(module, show=True)
            raise SystemExit(f"The tests of {module} fail without any mutant, as shown above. Repair that first.")
    start = time.perf_counter()
    copies[0].passes(module)
    seconds = time.perf_counter() - start
    print(f"{module}: its tests pass in {seconds:.0f} s", flush=True)
    return 60 + 5 * seconds  # the machine may be busier by then


def summary(every: Sequence[Mutant], results: Results, against: dict[str, Any] | None) -> Iterator[str]:
    """A table by module, then every survivor; beside an earlier run, also what is no longer killed."""
    killed = {mutant.identity for mutant in every if results.found[mutant.identity]["verdict"] != "survived"}
    yield f"\n{'module':15}{'mutants':>9}{'killed':>9}{'survived':>10}"
    for name in [*dict.fromkeys(mutant.module for mutant in every), "all"]:
        own = [mutant for mutant in every if name in (mutant.module, "all")]
        dead = sum(mutant.identity in killed for mutant in own)
        yield f"{name:15}{len(own):9}{dead:9}{len(own) - dead:10}"
    for mutant in every:
        if mutant.identity not in killed:
            yield f"\nsurvived  {shown(mutant)}"
    if against is not None:
        before = {identity for identity, entry in against.items() if entry["verdict"] != "survived"}
        lost = [mutant.identity for mutant in every if mutant.identity in before - killed]
        gone = sorted(set(against) - {mutant.identity for mutant in every})
        yield f"\nkilled before, not now: {', '.join(lost) or 'none'}"
        yield f"no longer in the source: {', '.join(gone) or 'none'}"


def shown(mutant: Mutant) -> str:
    """Where a mutant is, and the two lines, cut to what differs."""
    first = next((at for at, (a, b) in enumerate(zip(mutant.before, mutant.after, strict=False)) if a != b), 0)
    cut = slice(max(first - 70, 0), first + 70)
    where = f"{_SOURCES}/{mutant.file}:{mutant.line}"
    return f"{mutant.identity}\n  {where}\n  {mutant.before[cut]}\n  → {mutant.after[cut]}"


def main() -> None:
    """Read the options; list, or judge and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", metavar="MODULE", choices=MODULES, help=f"one of {', '.join(MODULES)}")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1, help="mutants at a time")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the verdicts; the same again goes on from there")
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="the mutants of an earlier --out, and what changed"
    )
    options = parser.parse_args()
    against = None if options.against is None else _read(options.against)["mutants"]
    modules = [options.only] if options.only else list(MODULES)
    if against is not None:
        against = {key: entry for key, entry in against.items() if key.partition(":")[0] in modules}
    every = chosen(modules, against)
    if options.list:
        print("\n".join(map(shown, every)))
        return
    results, start = Results(options.out, _stamp()), time.perf_counter()
    try:
        run(every, results, options.jobs)
    except KeyboardInterrupt:
        raise SystemExit("\nStopped." + (" The same command goes on from here." if options.out else "")) from None
    print("\n".join(summary(every, results, against)), f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
