"""The worked examples of CONTRIBUTING: a file and a function in a table, and everything else knows the ranker."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from tests.serving import serving

ROOT = Path(__file__).parent.parent
_TABLE = "def find_method("


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the blocks of CONTRIBUTING in their places, and some data beside it."""
    folder = tmp_path_factory.mktemp("contributing")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc"))  # with what is compiled
    code, entry, other_code, other_entry = re.findall(
        r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
    )
    (folder / "src" / "querywise" / "learners" / "centroids.py").write_text(code)
    (folder / "src" / "querywise" / "learners" / "network.py").write_text(other_code)
    table = folder / "src" / "querywise" / "methods" / "table.py"
    text = table.read_text()
    assert text.count(_TABLE) == 1
    table.write_text(text.replace(_TABLE, f"{entry}\n\n{other_entry}\n\n{_TABLE}"))
    write_letor(folder / "train.txt", make_judged(60, 8, 4))
    return folder


def surroundings(place: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{place / 'src'}{os.pathsep}{ROOT}"}


_PROGRAM = """
import json, sys
from tests.commands import run
done = [run(None, *command.split()) for command in sys.argv[1:]]
print(json.dumps([[each.returncode, each.stdout, each.stderr] for each in done]))
"""


def call(place: Path, *commands: str) -> list[str]:
    """What commands print, one after the other in one process with the changed package."""
    command = [sys.executable, "-c", _PROGRAM, *commands]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=place, env=surroundings(place))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [code for code, _, _ in found] == [0] * len(commands), found
    return [printed for _, printed, _ in found]


@pytest.mark.slow
def test_it_is_shown_compared_stored_explained_ranked_and_exported(place: Path) -> None:
    shown, compared, _, explained, ranked, _ = call(
        place,
        "methods centroids",
        "compare train.txt --methods centroids,adarank --json --quiet",
        "fit train.txt --method centroids --set balance=0.5 --out model",
        "explain model train.txt --qid q1 --above 1 --below 2 --json",
        "rank model train.txt",
        "export model --to opensearch --out export",
    )
    assert "how much the mean of the others counts" in shown
    assert "centroids" in json.dumps(json.loads(compared))
    why = json.loads(explained)
    assert sum(each["here"] for each in why["terms"]) == pytest.approx(why["difference"])
    assert len(ranked.split()) == 480
    assert json.loads((place / "export" / "export.json").read_text())["ranker"] == "Centroids"


@pytest.mark.slow
def test_it_is_served(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call(place, "fit train.txt --method centroids --out served")
    monkeypatch.setenv("PYTHONPATH", surroundings(place)["PYTHONPATH"])
    with serving(place / "served") as server:
        assert server.get("/v1/model").json()["ranker"] == "Centroids"
        documents = [{"id": str(row), "features": [row, 0, 1, 2]} for row in range(5)]
        ranked = server.post("/v1/rank", {"query": {"id": "q"}, "documents": documents}).json()
        assert len(ranked["documents"]) == 5


_MISSING = """
import sys
sys.modules["sklearn"] = None
from querywise import ModelFileError, load
try:
    load("network")
except ModelFileError as error:
    print(error)
"""


@pytest.mark.slow
def test_one_with_an_optional_package_is_compared_stored_and_refused_with_reasons(place: Path) -> None:
    compared, _, ranked = call(
        place,
        "compare train.txt --methods network,adarank --json --quiet",
        "fit train.txt --method network --set units=4 --out network",
        "rank network train.txt",
    )
    assert "network" in json.dumps(json.loads(compared))
    assert len(ranked.split()) == 480
    command = [sys.executable, "-c", _PROGRAM, "export network --to opensearch --out refused"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=place, env=surroundings(place))
    ((code, _, said),) = json.loads(done.stdout)
    assert code != 0
    assert "A Network cannot be exported: the engines run weighted sums and trees" in " ".join(said.split())
    command = [sys.executable, "-c", _MISSING]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=place, env=surroundings(place))
    assert done.stdout == (
        "The model is a Network, which needs the package sklearn. Install it with: pip install 'scikit-learn>=1.7'\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["centroids", "network"])
def test_it_conforms(name: str, place: Path) -> None:
    """The suite finds it in the table, and mypy by its contract."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", name]
    suite = [*command, str(ROOT / "tests" / "test_rankers_conform.py")]
    done = subprocess.run(suite, check=False, capture_output=True, text=True, cwd=ROOT, env=surroundings(place))
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b\d\d passed", done.stdout), done.stdout
