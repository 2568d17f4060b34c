"""`querywise doctor`: packages that are broken in any way are lines of its answer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from querywise.jobs import doctor
from querywise.jobs.doctor import BROKEN, MISSING, OLD, PARTS, REQUIRED, WORKS, Checked, Examined
from querywise.jobs.trials import TRIALS, Outcome, tried
from tests.commands import plain

ROOT = Path(__file__).parent.parent
DEVELOPING = {"dev", "docs"}  # extras for who works on querywise itself
NOT_EXTRAS = {"sentence-transformers", "pandas", "polars"}


def project() -> dict[str, list[str]]:
    """The packages of every extra, and under "" those that are required."""
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = {"": said["dependencies"], **said["optional-dependencies"]}
    found = {extra: [re.split(r"[\[<>=;,]", line)[0].strip() for line in lines] for extra, lines in every.items()}
    for extra, inner in (("peers", "usearch"), ("cluster", "parquet")):  # which it asks for by `querywise[inner]`
        found[extra] = [*found[extra], *found[inner]]
    return {extra: [name for name in names if name != "querywise"] for extra, names in found.items()}


def test_what_is_examined_is_what_the_package_asks_for() -> None:
    asked = project()
    assert {name for each in REQUIRED for name in each.names} == set(asked[""])
    assert set(PARTS) - NOT_EXTRAS == set(asked) - DEVELOPING - {""}
    for extra in set(PARTS) - NOT_EXTRAS:
        assert all(any(name in each.names for each in PARTS[extra].packages) for name in asked[extra]), extra
        assert all(any(name in asked[extra] for name in each.names) for each in PARTS[extra].packages), extra
        assert PARTS[extra].install == f"pip install 'querywise[{extra}]'"
    modules = {each.module for part in PARTS.values() for each in part.packages} | {each.module for each in REQUIRED}
    assert set(TRIALS) <= modules


BAD = {
    "raises_an_error": ('raise ValueError("no\\nluck")', "ValueError: no"),
    "asks_to_stop": ("raise SystemExit(0)", "SystemExit: 0"),
    "says_nothing": ("raise BaseException", "BaseException"),
    "is_no_python": ("this is no Python", "SyntaxError: invalid syntax"),
    "aborts": ("import os; os.abort()", "ended its process with signal 6"),
    "leaves": ("import os; os._exit(3)", "ended its process with code 3"),
    "needs_more": ("import that_is_nowhere", "ModuleNotFoundError: No module named 'that_is_nowhere'"),
}


def test_a_package_that_is_broken_in_any_way_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (content, _) in BAD.items():
        (tmp_path / f"{name}.py").write_text(content)
    (tmp_path / "talks.py").write_text(
        "import sys; print('[]'); sys.stderr.write('much\\n'); sys.__stdout__.write('x')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = tried(["talks", *BAD, "json"])
    assert found.pop("talks") == found.pop("json") == Outcome("", "")
    assert list(found) == list(BAD)
    for name, (_, said) in BAD.items():
        assert found[name].error.startswith(said), name
        assert "\n" not in found[name].error


def test_versions_are_compared_by_their_numbers() -> None:
    package = doctor.CheckedPackage("scipy", ("scipy",))
    for wanted, state in ((">=0.9", WORKS), (">=1000.2", OLD)):
        found = doctor._judged(package, Outcome("", ""), {"scipy": wanted})
        assert found.state == state
    assert found.reason == "1000.2 or later is needed"
    assert doctor._install(found) == "pip install 'scipy>=1000.2'"
    assert doctor._numbers("2.10.0rc1") > doctor._numbers("2.9")
    assert doctor._numbers("2.0.0") == doctor._numbers("2")


def test_the_answer_for_people_says_what_to_do() -> None:
    required = [Checked("numpy", "2.0", BROKEN, "ImportError: no", wanted=">=2.0"), Checked("rich", "14", WORKS)]
    parts = {name: [Checked(each.names[0], None, MISSING) for each in part.packages] for name, part in PARTS.items()}
    found = Examined(required, parts, "")
    said = "\n".join(doctor.lines(found))
    assert not found.works
    assert "broken: ImportError: no\n    pip uninstall -y numpy && pip install 'numpy>=2.0'\n" in said
    assert "set NUMBA_CACHE_DIR" in said
    assert said.endswith("What is required does not work: numpy.")
    for part in PARTS.values():
        assert f"    {part.install}\n" in said
    assert json.loads(json.dumps(doctor.as_json(found)))["works"] is False


@pytest.mark.slow
@pytest.mark.parametrize("program", ["querywise", "querywise.jobs.doctor"])
def test_the_command_ends_with_1_where_a_required_package_is_broken(tmp_path: Path, program: str) -> None:
    broken = ["numpy"] if program == "querywise" else ["numpy", "typer"]  # without typer there is no command line
    for name in broken:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('made for another machine')")
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", program, *(["doctor"] if program == "querywise" else [])]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env={**plain(), "PYTHONPATH": paths}
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    for name in broken:
        assert re.search(rf"  {name} .* broken: RuntimeError: made for another machine\n", done.stdout)
        assert re.search(rf"What is required does not work: .*{name}", done.stdout)
    assert "Traceback" not in done.stdout
