"""The package as others get it: built, installed without the repository and without optional packages, and used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from tests.commands import Done, plain

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
pytestmark = pytest.mark.xdist_group("package")


def test_every_place_that_names_the_version_names_the_same() -> None:
    cited = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {VERSION}\n" in cited
    changes = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = re.search(r"^date-released: (.+)$", cited, re.MULTILINE)
    assert released is not None
    assert changes[:2] == ["Unreleased", f"{VERSION} – {released[1]}"]


def test_the_package_says_what_it_is() -> None:
    versions = [each for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert [each.rpartition(" ")[2] for each in versions] == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == ">=3.11"
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert PROJECT["license"] == "Apache-2.0"
    assert f"license: {PROJECT['license']}\n" in (ROOT / "CITATION.cff").read_text()


class Built(NamedTuple):
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist, and the wheel made of it, by what is installed: nothing is fetched."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(next(folder.glob("*.whl")), next(folder.glob("*.tar.gz")))


@pytest.mark.slow
def test_the_files_hold_what_they_should(built: Built) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "querywise").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    about = f"querywise-{VERSION}.dist-info"
    assert {name for name in names if not name.startswith(about)} == sources
    assert {"querywise/py.typed", "querywise/__init__.pyi", "querywise/service/page/index.html"} <= names
    assert {"querywise/report/page/report.css", "querywise/exports/scripts/router.py"} <= names
    assert {f"{about}/licenses/LICENSE", f"{about}/entry_points.txt"} <= names
    with tarfile.open(built.sdist) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "Makefile", "CHANGELOG.md", "tests/conftest.py", "docs/generate.py"} <= packed
    assert {"benchmarks/__main__.py", "reproduction/__main__.py", "reproduction/geng2008.py"} <= packed
    assert {f"src/{name}" for name in sources} <= packed
    assert not [name for name in packed | names if "__pycache__" in name or name.startswith((".venv", "dist/"))]
    assert built.sdist.stat().st_size < 4_000_000


def needed(name: str) -> dict[str, Distribution]:
    """A package that is installed here with all that it needs, by name."""
    found: dict[str, Distribution] = {}
    left = [name]
    while left:
        this = left.pop()
        if this in found:
            continue
        try:
            found[this] = distribution(this)
        except PackageNotFoundError:  # for another system
            continue
        for line in found[this].requires or []:
            asked = Requirement(line)
            if asked.marker is None or asked.marker.evaluate({"extra": ""}):
                left.append(asked.name)
    return found


class Installed(NamedTuple):
    """An environment with querywise and what it requires, and an empty folder to work in."""

    environment: Path
    folder: Path

    def run(self, *words: object) -> Done:
        environment = {name: value for name, value in plain().items() if not name.startswith(("PYTHON", "VIRTUAL"))}
        command = [str(self.environment / "bin" / str(words[0])), *map(str, words[1:])]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder, env={**environment, "CI": "true"}
        )

    @property
    def packages(self) -> Path:
        return next((self.environment / "lib").glob("python*/site-packages"))


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a new environment. What it requires is linked from here, so that nothing is fetched."""
    made = Installed(tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("work"))
    venv.create(made.environment, symlinks=True)
    python = str(made.environment / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, str(built.wheel)], check=True, env={**plain(), "PYTHONPATH": ""})
    wanted = [Requirement(line).name for line in PROJECT["dependencies"]]
    for name in {each: None for one in wanted for each in needed(one)}:
        found = distribution(name)
        tops = {path.parts[0] for path in found.files or [] if path.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            if not (made.packages / top).exists():
                os.symlink(Path(str(found.locate_file(top))), made.packages / top)
    return made


@pytest.mark.slow
def test_the_package_is_imported_from_where_it_is_installed(installed: Installed) -> None:
    code = "import querywise, sys; print(querywise.__version__, querywise.__file__); querywise.LambdaMART"
    done = installed.run("python", "-c", code)
    assert done.stderr == ""
    assert done.stdout.split() == [VERSION, str(installed.packages / "querywise" / "__init__.py")]


@pytest.mark.slow
def test_the_command_helps_and_examines_itself(installed: Installed) -> None:
    helped = installed.run("querywise", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "doctor" in helped.stdout
    done = installed.run("querywise", "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["works"] is True
    assert found["querywise"] == VERSION
    assert found["folder"] == str(installed.packages / "querywise")
    assert found["compiled_code"]["writable"] is True
    assert {each["state"] for each in found["required"]} == {"works"}
    assert {each["state"] for each in found["optional"].values()} == {"not installed"}
    for extra in ("serve", "cluster", "static", "usearch", "figures", "peers"):
        assert found["optional"][extra]["install"] == f"pip install 'querywise[{extra}]'"
    assert list(installed.folder.iterdir()) == []


@pytest.mark.slow
def test_a_model_is_trained_and_ranks_and_what_is_missing_is_told(installed: Installed) -> None:
    write_letor(installed.folder / "train.txt", make_judged(queries=6, documents=5, features=3))
    fitted = installed.run("querywise", "fit", "train.txt", "--out", "model", "--method", "lambdamart", "--quiet")
    assert fitted.returncode == 0, fitted.stdout + fitted.stderr
    ranked = installed.run("querywise", "rank", "model", "train.txt", "--out", "scores.txt")
    assert ranked.returncode == 0, ranked.stderr
    assert len((installed.folder / "scores.txt").read_text().splitlines()) == 30
    collection = installed.folder / "text"
    collection.mkdir()
    (collection / "corpus.jsonl").write_text('{"_id": "a", "text": "big cats"}\n{"_id": "b", "text": "dogs"}\n')
    (collection / "queries.jsonl").write_text('{"_id": "q", "text": "cats"}\n')
    (collection / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    hints = {
        "serve": ("serve", "model"),
        "cluster": ("fit", "train.txt", "--out", "other", "--cluster", "auto"),
        "static": ("index", "text", "--out", "index", "--embed", "static"),
        "usearch": ("index", "text", "--out", "index", "--embed", "lsa", "--vector-search", "usearch"),
    }
    for extra, words in hints.items():
        done = installed.run("querywise", *words)
        assert done.returncode == 2, done.stdout + done.stderr
        assert f"pip install 'querywise[{extra}]'" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    moved = installed.run("querywise", "reproduce", "geng2008", "train.txt", "--out", "paper")
    assert moved.returncode == 2
    assert "Type there: python -m reproduction geng2008 train.txt --out paper" in moved.stderr
    beside = f"import sys; sys.path.append({str(ROOT)!r}); from reproduction.__main__ import main; main()"
    paper = installed.run("python", "-c", beside, "geng2008", "train.txt", "--out", "paper")
    assert paper.returncode == 2, paper.stdout + paper.stderr
    assert "pip install 'querywise[figures]'" in paper.stderr
    assert "Traceback" not in paper.stderr
    drawn = installed.run("python", "-c", "from querywise.display.tables import axes_or_new; axes_or_new(None)")
    assert "A plot needs the package matplotlib. Install it with: pip install 'querywise[figures]'" in drawn.stderr
    shutil.rmtree(collection)
