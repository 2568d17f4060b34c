from __future__ import annotations

import ast
from importlib.metadata import version
from pathlib import Path
from typing import Any

import querywise
from querywise.errors import QuerywiseError

STUB = Path(querywise.__file__).with_suffix(".pyi")
PACKAGE: Any = querywise
HOMES: dict[str, str] = PACKAGE._HOMES


def test_every_public_name_resolves_and_lives_where_the_table_says() -> None:
    for name, home in HOMES.items():
        assert getattr(querywise, name).__module__ == home


def test_a_name_that_is_not_at_the_top_is_imported_from_its_module() -> None:
    assert not hasattr(querywise, "Clusters")


def test_the_names_are_sorted_and_the_stub_lists_the_same() -> None:
    assert list(HOMES) == sorted(HOMES)
    body = ast.parse(STUB.read_text()).body
    stub = {alias.asname: node.module for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert stub == HOMES


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
