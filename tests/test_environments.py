"""What a machine allows: folders that cannot be written to, cores that are taken, who reaches a cluster's ports."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import querywise
from querywise.runtime import threads

SOURCES = Path(querywise.__file__).parent.parent

# Root may write everywhere: without this capability it may not, as anybody else.
HUMBLY = """
import ctypes, os

if os.getuid() == 0:
    libc, header, bits = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, bits) == 0
    bits[0] &= ~0b110
    assert libc.capset(header, bits) == 0
"""


def python(code: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run some code in a process of its own, with some environment variables set or unset."""
    paths = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
    known = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run(
        [sys.executable, "-W", "default", "-c", textwrap.dedent(code)],
        env={name: value for name, value in known.items() if value is not None},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, str | None]]:
    """The environment of a process whose package and home can only be read; temporary files go to `TMPDIR`."""
    package = tmp_path / "package" / "querywise"
    shutil.copytree(SOURCES / "querywise", package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "home").mkdir()
    (tmp_path / "temporary").mkdir()
    closed = [tmp_path / "home", package, *(path for path in package.rglob("*") if path.is_dir())]
    for path in closed:
        path.chmod(0o555)
    yield {
        "PYTHONPATH": str(package.parent),
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": None,
        "NUMBA_CACHE_DIR": None,
        "TMPDIR": str(tmp_path / "temporary"),
    }
    for path in closed:
        path.chmod(0o755)


COMPILES = """
    import warnings
    from querywise.errors import Hint

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import numpy as np
        from querywise.rankers.ensemble.active_sets import scalar_product
    found = scalar_product(np.ones(2), np.ones(2), 0, 2)
    hints = [each for each in caught if issubclass(each.category, Hint)]
    assert found == 2, found
    print(len(hints), *(each.message for each in hints))
"""


@pytest.mark.slow
def test_without_a_folder_to_write_to_code_is_kept_in_a_private_temporary_one(places: dict[str, str | None]) -> None:
    done = python(HUMBLY + textwrap.dedent(COMPILES), **places)
    folder = Path(str(places["TMPDIR"])) / f"querywise-{os.getuid()}"
    assert done.stderr == ""
    assert done.stdout.startswith("1 ")
    assert f"is kept in {folder} until" in done.stdout
    assert "Set NUMBA_CACHE_DIR" in done.stdout
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.rglob("*.nbi"))


@pytest.mark.slow
@pytest.mark.parametrize("trap", ["foreign", "open", "link"])
def test_a_temporary_folder_that_others_can_write_to_is_not_used(places: dict[str, str | None], trap: str) -> None:
    folder = Path(str(places["TMPDIR"])) / f"querywise-{os.getuid()}"
    target = folder.with_name("target")
    (target if trap == "link" else folder).mkdir(mode=0o700)
    if trap == "open":
        folder.chmod(0o777)
    elif trap == "link":
        folder.symlink_to(target)
    elif os.getuid():
        pytest.skip("only root can give a folder away")
    else:
        os.chown(folder, 65534, 65534)
    done = python(HUMBLY + textwrap.dedent(COMPILES), **places)
    assert done.stderr == ""
    assert done.stdout.startswith("1 ")
    assert "is kept nowhere" in done.stdout
    assert not list(folder.parent.rglob("*.nbi"))


@pytest.mark.slow
def test_the_command_line_says_in_one_line_where_compiled_code_is(
    places: dict[str, str | None], tmp_path: Path
) -> None:
    (tmp_path / "train.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.1\n")
    (tmp_path / "scores.txt").write_text("2\n1\n")
    code = f"""
import sys
from querywise.cli import main
sys.argv = ["querywise", "evaluate", "{tmp_path}/train.txt", "{tmp_path}/scores.txt"]
main()
"""
    done = python(HUMBLY + code, **places)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "NUMBA_CACHE_DIR" in line]
    assert len(said) == 1
    assert said[0].startswith("hint: Neither querywise's own folder nor the home folder")
    assert "Traceback" not in done.stderr


LOADS = """
    import os
    import sklearn.cluster  # which has an OpenMP of its own
    from querywise.learners.trees.growth import lightgbm
    lightgbm()
    print(os.environ["OMP_WAIT_POLICY"])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("given", "found"), [(None, "passive"), ("active", "active")])
def test_threads_of_trees_sleep_while_they_wait_unless_told_otherwise(given: str | None, found: str) -> None:
    done = python(LOADS, OMP_WAIT_POLICY=given, OMP_DISPLAY_ENV="true")
    read = done.stderr.rpartition("OPENMP DISPLAY ENVIRONMENT BEGIN")[2]  # by the OpenMP that was loaded last
    assert done.stdout == f"{found}\n"
    assert f"OMP_WAIT_POLICY = '{found.upper()}'" in read


@pytest.mark.parametrize(
    ("said", "cores"), [("1", 1), ("0", 1), ("1,4", 1), ("64", None), ("", None), ("many", None), ("²", None)]
)
def test_cores_are_those_allowed(monkeypatch: pytest.MonkeyPatch, said: str, cores: int | None) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert threads.available_cores() == (cores or len(os.sched_getaffinity(0)))


def test_a_process_bound_to_one_core_works_with_one() -> None:
    code = """
        import os
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        from querywise.runtime.threads import cores, in_threads, _pool
        print(cores(), in_threads(abs, [-1, 2]), _pool().threads)
    """
    assert python(code, OMP_NUM_THREADS=None).stdout == "1 [1, 2] 1\n"


LISTENING = """
    import os, stat
    from pathlib import Path
    from querywise import Cluster

    def family(root):
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
            except OSError:
                pass
        found = {root}
        while more := {each for each, parent in parents.items() if parent in found} - found:
            found |= more
        return found

    def sockets(process):
        for path in Path(f"/proc/{process}/fd").glob("*"):
            try:
                yield os.readlink(path).removeprefix("socket:[").removesuffix("]")
            except OSError:
                pass

    with Cluster("auto"):
        import ray
        folder = ray._private.worker._global_node.get_temp_dir_path()
        print(oct(stat.S_IMODE(os.stat(os.path.dirname(folder)).st_mode)))
        print(oct(stat.S_IMODE(os.stat(os.environ["RAY_AUTH_TOKEN_PATH"]).st_mode)), os.environ["RAY_AUTH_MODE"])
        own = {each for process in family(os.getpid()) for each in sockets(process)}
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and words[9] in own:
                    print(words[1])
    print("RAY_AUTH_MODE" in os.environ, os.path.exists(os.path.dirname(folder)), Path.home().joinpath(".ray").exists())
"""
LOOPBACK = ("0100007F:", "0000000000000000FFFF00000100007F:", "00000000000000000000000001000000:")


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_of_ones_own_is_reached_from_this_machine_and_by_this_user_alone(tmp_path: Path) -> None:
    done = python(LISTENING, RAY_ADDRESS="127.0.0.1:9", HOME=str(tmp_path))  # nobody is there, nor asked
    mode, token, *listening, left = done.stdout.splitlines() or [done.stderr, "", ""]
    assert mode == "0o700", done.stderr
    assert token == "0o600 token"
    assert listening
    assert all(address.startswith(LOOPBACK) for address in listening), listening
    assert left == "False False False"
