from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import querywise
from querywise.errors import QuerywiseError

STUB = Path(querywise.__file__).with_suffix(".pyi")
PACKAGE: Any = querywise
HOMES: dict[str, str] = PACKAGE._HOMES
MOVED: dict[str, str] = PACKAGE._MOVED


def moved(name: str) -> Any:
    with pytest.warns(DeprecationWarning, match=f"from {MOVED[name]} import {name}"):
        return getattr(querywise, name)


def test_every_public_name_resolves_and_lives_where_the_table_says() -> None:
    for name, home in HOMES.items():
        assert getattr(querywise, name).__module__ == home


def test_a_name_that_moved_goes_on_working_with_a_hint() -> None:
    for name, home in MOVED.items():
        assert moved(name).__module__ == home
        assert name not in dir(querywise)
        assert name not in PACKAGE.__all__


def test_the_hint_points_at_the_line_that_asks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nfrom querywise import Clusters, RankSVM\n")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert f"{script}:2: DeprecationWarning: " in run.stderr
    assert "from querywise.locality.groupings import Clusters" in run.stderr
    assert run.stderr.count("DeprecationWarning") == 1


def test_the_names_are_sorted_and_the_stub_lists_the_same() -> None:
    assert list(HOMES) == sorted(HOMES)
    assert list(MOVED) == sorted(MOVED)
    assert not set(HOMES) & set(MOVED)
    body = ast.parse(STUB.read_text()).body
    stub = {alias.asname: node.module for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert stub == {**HOMES, **MOVED}


def test_about_fifty_names_are_at_the_top() -> None:
    assert 35 <= len(PACKAGE.__all__) <= 56
    assert set(PACKAGE.__all__) == set(HOMES) <= set(dir(querywise))


def test_every_error_is_at_the_top() -> None:
    known: list[type[QuerywiseError]] = [QuerywiseError, *QuerywiseError.__subclasses__()]
    assert {each.__name__ for each in known if each.__module__ == "querywise.errors"} <= set(HOMES)


def test_the_version_is_that_of_the_installed_package() -> None:
    assert querywise.__version__ == version("querywise")
    assert "__version__" in dir(querywise)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(querywise, "magic")
    assert "RankSVM" in dir(querywise)


def test_every_public_name_has_a_docstring() -> None:
    for name in HOMES:
        assert getattr(querywise, name).__doc__, name
