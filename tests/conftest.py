"""What holds for all tests: their order, how many examples a quick run tries, and what is skipped without real data."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.worlds import REAL_DATA

_LONG = ("cluster", "slow", "real_data", "browser")

settings.register_profile("check", max_examples=15)  # `make check` asks for it; see `examples` in worlds.py


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, so that no process is left alone with it in the end."""
    items.sort(key=lambda item: next((place for place, mark in enumerate(_LONG) if item.get_closest_marker(mark)), 9))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Real data is not part of the project; a machine that builds it must have it."""
    if item.get_closest_marker("real_data") and not REAL_DATA.is_dir() and not os.environ.get("CI"):
        pytest.skip("real judged data is not on this machine")
