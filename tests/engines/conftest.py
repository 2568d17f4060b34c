"""Tests of engines: each file is a group that runs in one process, with one server of its engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from tests.engines.artifacts import UnavailableError

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder; the tests of one file share its server."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engines)
            item.add_marker(pytest.mark.xdist_group(f"engines-{item.path.stem}"))


def without(error: UnavailableError) -> NoReturn:
    """Skip what cannot run here. A machine that builds the project must have all."""
    if os.environ.get("CI"):
        pytest.fail(str(error))
    pytest.skip(str(error))
