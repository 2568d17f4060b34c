from __future__ import annotations

import ast
from pathlib import Path

import querywise

STUB = Path(querywise.__file__).with_suffix(".pyi")


def test_every_public_name_resolves_and_lives_where_the_table_says() -> None:
    for name, home in querywise._HOMES.items():  # type: ignore[attr-defined]
        assert getattr(querywise, name).__module__ == home


def test_the_names_are_sorted_and_the_stub_lists_the_same() -> None:
    homes = querywise._HOMES  # type: ignore[attr-defined]
    assert list(homes) == sorted(homes)
    stub = {
        alias.asname: node.module
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert stub == homes


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(querywise, "magic")
    assert "RankSVM" in dir(querywise)


def test_every_public_name_has_a_docstring() -> None:
    for name in querywise._HOMES:  # type: ignore[attr-defined]
        assert getattr(querywise, name).__doc__, name
