"""The worked examples of CONTRIBUTING: a file and a line in a table, and everything else knows what is new."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from tests.serving import serving

ROOT = Path(__file__).parent.parent


def blocks(kind: str, heading: str) -> list[str]:
    """The blocks of a kind, such as python, in a section of CONTRIBUTING."""
    section = re.split(r"^## ", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    found = next(each for each in section if each.startswith(f"{heading}\n"))
    return re.findall(rf"```{kind}\n(.*?)```", found, re.DOTALL)


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, old
    file.write_text(text.replace(old, new))


def apply(diff: str, folder: Path) -> None:
    """Change files as a diff says whose hunks have no line numbers."""
    for each in re.split(r"^--- .*\n", diff, flags=re.MULTILINE)[1:]:
        heading, *hunks = re.split(r"^@@\n", each, flags=re.MULTILINE)
        file = folder / heading.removeprefix("+++ b/").strip()
        for hunk in hunks:
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] in " -")
            new = "".join(line[1:] for line in lines if line[0] in " +")
            change(file, old, new)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the blocks of CONTRIBUTING in their places, and some data beside it."""
    folder = tmp_path_factory.mktemp("contributing")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc"))  # with what is compiled
    code, entry, other_code, other_entry = blocks("python", "Adding a ranker")
    package = folder / "src" / "querywise"
    (package / "learners" / "centroids.py").write_text(code)
    (package / "learners" / "network.py").write_text(other_code)
    change(package / "methods" / "table.py", "def find_method(", f"{entry}\n\n{other_entry}\n\ndef find_method(")
    (reader,) = blocks("python", "Adding a reader")
    (package / "data" / "csv_features.py").write_text(reader)
    for heading in ("Adding a reader", "Adding a field to an answer of the service"):
        (diff,) = blocks("diff", heading)
        apply(diff, folder)
    data = make_judged(60, 8, 4)
    write_letor(folder / "train.txt", data)
    queries = np.repeat(data.query_ids, data.candidates.sizes).tolist()
    numbers = np.column_stack([data.labels, data.candidates.features]).tolist()
    rows = [f"{query},{','.join(map(str, row))}" for query, row in zip(queries, numbers, strict=True)]
    (folder / "train.csv").write_text("\n".join(["qid,label,a,b,c,d", *rows]))
    (folder / "bad.csv").write_text("qid,label,a\nq1,1,long\n")
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
        ranked = server.post("/v1/rank", {"query": {"id": "q"}, "documents": documents, "top": 3}).json()
        assert len(ranked["documents"]) == 3
        assert ranked["candidates"] == 5
        fields = server.get("/openapi.json").json()["components"]["schemas"]["RankResponse"]["properties"]
        assert fields["candidates"] == {"type": "integer"}


@pytest.mark.slow
def test_a_reader_is_found_by_every_command(place: Path) -> None:
    _, ranked, _, from_letor, _, from_shards = call(
        place,
        "fit train.csv --method centroids --out from-csv",
        "rank from-csv train.csv",
        "fit train.txt --method centroids --out from-letor",
        "rank from-letor train.txt",
        "convert train.csv --out shards",
        "rank from-csv shards",
    )
    assert ranked == from_letor == from_shards
    command = [sys.executable, "-c", _PROGRAM, "fit bad.csv --method centroids --out bad"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=place, env=surroundings(place))
    ((code, _, said),) = json.loads(done.stdout)
    assert code != 0
    assert "bad.csv:2: expected 2 numbers after the query's id (could not convert" in " ".join(said.split())


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
