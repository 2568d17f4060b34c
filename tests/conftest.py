"""What holds for all tests: examples of a quick run, which process runs what, real data, the browser."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.worlds import REAL_DATA

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# A busy machine is no failure, nor slow to draw examples.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("check", settings.get_profile("patient"), max_examples=15)  # of `make check`; see worlds.py
settings.load_profile("patient")

# Seconds of a test, roughly, by its marks. What takes long begins first, so that no process works alone at the end.
_SECONDS = {"cluster": 5.0, "browser": 5.0, "slow": 2.0}


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a test of a long text by its beginning: names are sent between processes and put into the environment."""
    return f"{val[:40]!r} and so on" if isinstance(val, str | bytes) and len(val) > 100 else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Divide the tests into groups, each run in one process, and begin with those that take longest.

    The tests of a file are a group, so that what they share is made once. A slow test that shares no fixture is a group
    of its own.
    """
    if not config.getoption("loadgroup", default=False):
        yield
        return
    for item in items:
        alone = item.get_closest_marker("slow") and not _shares_a_fixture(item)
        if not alone and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(config.rootpath))))
    yield
    seconds: defaultdict[str, float] = defaultdict(float)
    for item in items:
        seconds[_group(item)] += max(_SECONDS.get(mark.name, 0.1) for mark in item.iter_markers())
    items.sort(key=lambda item: (-seconds[_group(item)], _group(item)))


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else item.nodeid


def _shares_a_fixture(item: pytest.Item) -> bool:
    """Whether a test uses a fixture of ours that lasts longer than the test."""
    fixtures: dict[str, Any] = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
    return any(each.scope != "function" and each.baseid for found in fixtures.values() for each in found)


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
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)  # a busy machine is no failure
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
