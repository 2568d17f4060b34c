"""What holds for all tests: how many examples a quick run tries, and what is skipped where there is no real data."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.worlds import REAL_DATA

settings.register_profile("check", max_examples=15)  # `make check` asks for it; see `examples` in worlds.py


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Real data is not part of the project; a machine that builds it must have it."""
    if item.get_closest_marker("real_data") and not REAL_DATA.is_dir() and not os.environ.get("CI"):
        pytest.skip("real judged data is not on this machine")
