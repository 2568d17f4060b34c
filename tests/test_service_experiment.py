"""The page's tab of an experiment: the verdict, the curve, the models, the last hour, as visitors see them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.testclient import TestClient

from querywise.data.synthetic import make_judged
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.online.log import EventLog
from querywise.rankers.single import OneFeature
from querywise.service.loaded_model import ModelFolder
from querywise.service.online import LastHour, Online
from querywise.service.routes import create_app
from querywise.service.service import Service
from querywise.storage import save, version_of
from tests.axe import violations
from tests.commands import run
from tests.serving import Serving, serving
from tests.support.online import click, played, request_of, settled


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, data = tmp_path_factory.mktemp("experiment"), make_judged(30, 12, 4)
    save(RankSVM().fit(data), folder / "a")
    save(OneFeature(2).fit(data), folder / "b")
    return folder


def told(asked: Any) -> dict[str, Any]:
    """What the service says of the experiment, once it has read the log; asked: a client with `get`."""
    for _ in range(60):
        found: dict[str, Any] = asked.get("/v1/online").json()
        if found["verdict"] is not None or found["problem"] is not None:
            return found
    raise AssertionError("the log was not read within three minutes")


def versions(models: Path) -> tuple[str, str]:
    return version_of(models / "a")[:12], version_of(models / "b")[:12]


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Serving]:
    """A service whose log has 300 draws of made-up users, who prefer the model compared with."""
    played(models / "log", 300, share=0.7, names=versions(models))
    with serving(models / "a", "--against", models / "b", "--log", models / "log") as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, bypass_csp=True, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    yield made
    context.close()
    assert wrong == []


# Over HTTP


def test_the_verdict_is_that_of_the_command_and_the_hour_is_counted(server: Serving, models: Path) -> None:
    said = json.loads(run(models, "online", "log", "--json").stdout)
    before = told(server)
    assert {name: before["verdict"][name] for name in said} == {**said, "kinds": said["kinds"][:12]}
    assert (before["model"], before["against"]) == versions(models)
    last = before["verdict"]["curve"][-1]
    [contest] = said["contests"]
    assert last["draws"] == contest["wins"] + contest["losses"]
    assert last["rate"] == pytest.approx(contest["win_rate"])
    assert [last["low"], last["high"]] == pytest.approx(contest["interval"])
    assert before["problem"] is before["failing"] is None
    answer = server.post("/v1/rank", request_of(3, top=4)).json()
    events = [click(answer["impression"], answer["documents"][0]["id"]), click("forged", "d1")]
    assert server.post("/v1/events", {"events": [*events, events[0]]}).status_code == 200
    hour = server.get("/v1/online").json()["hour"]
    grown = {name: count - before["hour"][name] for name, count in hour.items() if count != before["hour"][name]}
    assert grown == {"interleaved": 1, "accepted": 1, "duplicates": 1, "unknown": 1}


def test_a_log_without_a_draw_and_one_that_cannot_be_written_are_told(models: Path, tmp_path: Path) -> None:
    online = Online(EventLog(tmp_path / "log", most_bytes=400), ModelFolder(models / "b"))
    with TestClient(create_app(Service(ModelFolder(models / "a"), online=online))) as asked:
        found = told(asked)
        assert found["verdict"] is None
        assert re.fullmatch(
            r".*log: (nothing was interleaved yet|this is not the log of an experiment)\..*", found["problem"]
        )
        for _ in range(3):
            impression = asked.post("/v1/rank", json=request_of(3)).json()["impression"]
        assert asked.post("/v1/events", json={"events": [click(impression, "d1")]}).status_code == 503
        found = asked.get("/v1/online").json()
        assert "the log is full" in found["failing"]
        assert found["hour"]["lost"] == 1
    with TestClient(create_app(Service(ModelFolder(models / "a")))) as asked:
        assert asked.get("/v1/online").status_code == 404
        assert asked.get("/v1/model").json()["experiment"] is False


def test_an_hour_has_sixty_minutes() -> None:
    hour = LastHour()
    for minute in range(1, 181):
        hour.remember({"accepted": minute})
        assert hour.of({"accepted": minute}) == {"accepted": min(minute, 60)}


# In a browser


@pytest.mark.browser
def test_the_tab_shows_the_verdict_the_curve_the_models_and_the_hour(page: Page, server: Serving, models: Path) -> None:
    ours, theirs = versions(models)
    said = json.loads(run(models, "online", "log", "--json").stdout)
    [contest] = said["contests"]
    page.goto(server.url)
    page.get_by_role("link", name="Experiment").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Users prefer {theirs}")
    expect(page).to_have_title(f"Users prefer {theirs} – querywise")
    expect(page.locator("#experiment-verdict")).to_have_text(said["notes"][-1])
    assert page.url.endswith("/?experiment")
    expect(page.get_by_role("link", name="Experiment")).to_have_attribute("aria-current", "page")
    plot = page.locator("#curve svg")
    label = plot.get_attribute("aria-label") or ""
    decided = contest["wins"] + contest["losses"]
    assert label.startswith(
        f"Win rate of {theirs} after {decided} draws with a winner: {100 * contest['win_rate']:.1f} %"
    )
    along = (page.locator("#curve .rate").get_attribute("d") or "").count("L") + 1
    assert along == len(said["curve"])
    rows = page.locator("#arms tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text(f"{ours}served{contest['losses']}")
    expect(rows.nth(1)).to_contain_text(f"{theirs}compared with it{contest['wins']}")
    expect(page.locator("#hour tbody tr").first).to_contain_text("answers of both models")
    expect(page.locator("#kinds tbody tr")).to_have_count(len(said["kinds"]))
    assert page.locator("#lost").is_visible() == bool(said["lost"])
    page.get_by_role("link", name="Rankings").click()
    expect(page.locator("#bare-title")).to_be_visible()
    page.go_back()
    expect(page.locator("#experiment-title")).to_be_visible()


@pytest.mark.browser
def test_the_last_hour_marks_what_is_wrong(page: Page, server: Serving, models: Path) -> None:
    assert server.post("/v1/events", {"events": [click("forged", "d1")]}).json()["unknown"] == 1
    page.goto(f"{server.url}/?experiment")
    marked = page.locator("#hour .wrong-count")
    expect(marked).to_have_count(1)
    expect(page.locator("#hour tr").filter(has=page.locator(".wrong-count"))).to_contain_text(
        "clicks on ids not made here"
    )


@pytest.mark.browser
def test_an_experiment_that_has_just_begun_says_so(page: Page, models: Path, tmp_path: Path) -> None:
    with serving(models / "a", "--against", models / "b", "--log", tmp_path / "log") as begun:
        assert begun.post("/v1/rank", request_of(3, top=4)).status_code == 200
        settled(tmp_path / "log", 1)
        page.goto(f"{begun.url}/?experiment")
        expect(page.locator("#experiment-title")).to_have_text("Not decided yet")
        expect(page.locator("#experiment-verdict")).to_contain_text("Not decided: no draw of")
        expect(page.locator("#arms")).to_contain_text("1 are open")
        expect(page.locator("#curve")).to_be_hidden()
    with serving(models / "a") as plain:
        page.goto(f"{plain.url}/?experiment")
        expect(page.locator("#bare-title")).to_be_visible()
        expect(page.locator("#tabs")).to_be_hidden()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page: Page, server: Serving, scheme: Any, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{server.url}/?experiment")
    page.wait_for_selector("#curve svg")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
