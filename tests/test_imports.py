"""Who may import whom: downward only, no cycles, heavy libraries late."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "querywise"
REPRODUCTION = Path(__file__).parent.parent / "reproduction"

# A room may import from the rows above its own; rooms of one row do not import one another.
_DOORS = {"__init__", "__main__"}  # `import querywise` and `python -m querywise`
LAYERS = [
    ["errors"],
    ["runtime"],
    ["display"],
    ["data"],
    ["contracts", "measures"],
    ["retrieval", "learners"],
    ["locality"],
    ["rankers"],
    ["methods", "evaluation"],
    ["explanations", "clicks"],
    ["storage", "report", "sklearn", "online"],
    ["exports", "service"],
    ["jobs"],
    ["cli"],
]
NEVER = {
    ("evaluation", "learners"): "any system's scores can be compared",
    ("evaluation", "rankers"): "any system's scores can be compared",
    ("learners", "evaluation"): "a learner does not grade itself",
    ("service", "evaluation"): "what answers requests does not grade",
    ("storage", "evaluation"): "a model is stored without being judged",
    ("exports", "evaluation"): "a model is exported without being judged",
}
# A library, and the one room or the files that may import it.
ONLY_IN: dict[str, str | tuple[str, ...]] = {
    "ray": "runtime/ray.py",
    "grpc": "runtime/ray.py",
    "fastapi": "service/",
    "starlette": "service/",
    "lightgbm": "learners/trees/",
    "typer": "cli/",
    "msgspec": "service/",
    "numba": "runtime/compiled.py",
    "narwhals": "data/frames.py",
    "pyarrow": ("data/parquet/arrow.py", "display/tables.py"),
    "uvicorn": ("service/server.py", "service/connection.py"),
    "safetensors": "storage/models.py",
    "Stemmer": "retrieval/words.py",
    "tokenizers": "retrieval/embedders/static.py",
    "sentence_transformers": "retrieval/embedders/sentences.py",
}
# What opens connections to other machines: modules and functions to import, and methods.
OUTGOING = {
    *("urllib.request", "urllib3", "http.client", "requests", "httpx", "aiohttp", "websockets", "xmlrpc.client"),
    *("ftplib", "smtplib", "poplib", "imaplib", "telnetlib", "paramiko", "huggingface_hub", "openai", "elasticsearch"),
    *("socket.create_connection", "asyncio.open_connection", "asyncio.open_unix_connection"),
}
CONNECTING = {".create_connection", ".connect", ".connect_ex", ".open_connection", ".open_unix_connection", ".urlopen"}
MAY_CONNECT = {
    "runtime/http_client.py": "every request to another machine",
    "runtime/ray.py": "looks whether anybody listens where --cluster says, and sends nothing",
}


def sources(root: Path = ROOT) -> list[Path]:
    return sorted(root.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> list[tuple[str, bool]]:
    """Every module a file imports, for type checking too, and whether it does so at its top."""
    found: list[tuple[str, bool]] = []
    tree = ast.parse(path.read_text())

    def visit(node: ast.AST, top: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((name.name, top) for name in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                found.append((child.module, top))
                if child.module.startswith(("querywise", "reproduction")):
                    found.extend((f"{child.module}.{name.name}", top) for name in child.names)
            visit(child, top and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)))

    visit(tree, True)
    return found


def modules(root: Path = ROOT) -> dict[str, Path]:
    names = {}
    for path in sources(root):
        dotted = ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
        names[dotted.removesuffix(".__init__")] = path
    return names


def upward(path: Path, known: dict[str, Path]) -> list[str]:
    """What a file imports that it may not."""
    if room(path) in _DOORS:
        return []
    wrong, file = [], path.relative_to(ROOT).as_posix()
    level = next(i for i, row in enumerate(LAYERS) if room(path) in row)
    for name, _ in imported(path):
        if name.startswith("querywise.") and name in known and known[name] != path:
            target = room(known[name])
            if (room(path), target) in NEVER:
                wrong.append(f"{file} may not import {name}: {NEVER[room(path), target]}")
            depth = next(i for i, row in enumerate(LAYERS) if target in row)
            if depth >= level and target != room(path):
                wrong.append(f"{file} may not import {name}: {room(path)} stands above it")
    return wrong


def test_imports_point_downward() -> None:
    known = modules()
    wrong = [each for path in sources() for each in upward(path, known)]
    assert not wrong, "\n".join(wrong)


def test_no_room_imports_what_stands_beside_the_package() -> None:
    beside = {"reproduction", "benchmarks", "tests", "docs", "examples"}
    assert [(path, name) for path in sources() for name, _ in imported(path) if name.split(".")[0] in beside] == []


def test_a_reproduction_imports_rooms_and_only_its_command_the_command_line() -> None:
    for path in sources(REPRODUCTION):
        names = [name for name, _ in imported(path)]
        assert not {name.split(".")[0] for name in names} & {"benchmarks", "tests", "docs", "examples"}, path
        assert not {name.split(".")[0] for name in names} & (set(ONLY_IN) - {"typer"}), path
        if path.stem not in ("command", "__main__"):
            assert not [name for name in names if name.startswith(("querywise.cli", "querywise.jobs", "typer"))], path


def test_files_of_tests_import_from_no_other() -> None:
    project = ROOT.parent.parent
    files = [*project.glob("tests/**/*.py"), *project.glob("benchmarks/*.py"), *project.glob("reproduction/*.py")]
    found = {
        str(path): re.findall(r"^ *from (tests\.(?:\w+\.)*test_\w+) import", path.read_text(), re.M) for path in files
    }
    assert {path: names for path, names in found.items() if names} == {}, "what several use is in tests/support"


def test_every_room_has_its_place() -> None:
    placed = {name for row in LAYERS for name in row}
    assert {room(path) for path in sources()} - _DOORS == placed


def test_there_is_no_cycle() -> None:
    known = modules() | modules(REPRODUCTION)
    graph = {name: {other for other, _ in imported(path) if other in known} - {name} for name, path in known.items()}
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail, name))
        if name not in done:
            for other in graph[name] - {"querywise", "reproduction"}:
                walk(other, (*trail, name))
            done.add(name)

    for name in graph:
        walk(name, ())


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_is_known_in_one_place(library: str) -> None:
    users = {
        str(path.relative_to(ROOT))
        for path in sources()
        if any(name.split(".")[0] == library for name, _ in imported(path))
    }
    given = ONLY_IN[library]
    places = (given,) if isinstance(given, str) else given
    found = [
        {user for user in users if user == place or (place.endswith("/") and user.startswith(place))}
        for place in places
    ]
    assert all(found), f"nothing in one of {places} imports {library}"
    assert users == set().union(*found), f"only {places} may import {library}"


def outgoing(path: Path) -> list[str]:
    """What a file has that could open a connection."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [str(node.module), *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.append(f".{node.func.attr}")
    return [each for each in found if each in OUTGOING or each.partition(".")[0] in OUTGOING or each in CONNECTING]


def test_connections_to_other_machines_are_opened_in_one_module() -> None:
    connecting = {path.relative_to(ROOT).as_posix(): found for path in sources() if (found := outgoing(path))}
    assert connecting.keys() == MAY_CONNECT.keys(), connecting


@pytest.mark.parametrize(
    "text",
    [
        "import urllib.request",
        "from urllib import request",
        "from http import client",
        "import requests",
        "def f():\n    from httpx import get",
        "import socket\nsocket.create_connection(('a', 1))",
        "from socket import create_connection\ncreate_connection(('a', 1))",
        "line.connect(('a', 1))",
        "asyncio.open_connection('a', 1)",
        "import urllib\nurllib.request.urlopen('http://a')",
    ],
)
def test_a_new_way_out_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(text)
    assert outgoing(tmp_path / "new.py")


def loaded_by(statement: str) -> set[str]:
    script = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in run.stdout.split()}


def test_importing_the_package_loads_no_heavy_library() -> None:
    heavy = {"numpy", "scipy", "numba", "lightgbm", "sklearn", "rich", "typer", "narwhals", "pandas", "pyarrow"}
    assert not heavy & loaded_by("import querywise")


def test_importing_the_command_line_loads_no_mathematics() -> None:
    assert not {"numpy", "scipy", "numba", "lightgbm", "sklearn"} & loaded_by("import querywise.cli")


def test_finding_a_method_loads_no_mathematics() -> None:
    statement = "from querywise.methods import METHODS, find_method\n[find_method(name).home for name in METHODS]"
    assert not {"numpy", "scipy", "numba", "lightgbm", "sklearn"} & loaded_by(statement)
