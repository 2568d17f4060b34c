"""What holds for all tests: examples of a quick run, what begins first, what real data is needed for, the browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.worlds import REAL_DATA

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

settings.register_profile("patient", settings(), deadline=None)  # a busy machine is no failure
settings.register_profile("check", settings.get_profile("patient"), max_examples=15)  # of `make check`; see worlds.py
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no process works alone at the end; large groups do so anyway."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of one group share what is costly, like a cluster, and must not run in several processes at once.

    Real data is not part of the project; a machine that builds it must have it.
    """
    if item.config.getoption("loadgroup", default=False) and item.get_closest_marker("xdist_group"):
        assert "@" in item.nodeid, "this pytest-xdist does not keep groups of tests together under this pytest"
    if item.get_closest_marker("real_data") and not REAL_DATA.is_dir() and not os.environ.get("CI"):
        pytest.skip("real judged data is not on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        assert os.environ.get("CI") != "true", "a machine that builds must have chromium"
        pytest.skip("chromium is not on this machine")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A window in which no script fails unseen."""
    made = browser.new_page(viewport={"width": 1280, "height": 800})
    made.set_default_timeout(40_000)
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    yield made
    made.close()
    assert wrong == []
