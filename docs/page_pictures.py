"""Pictures of the service's page, for the documentation: `python docs/page_pictures.py`.

Two models are fitted on the collection in examples/code, weights of runs and local models, and served; what Chromium
shows of them is written to docs/figures/service/.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OUT = Path(__file__).parent / "figures" / "service"
CODE = Path(__file__).parent.parent / "examples" / "code"
QUERYWISE = Path(sys.executable).parent / "querywise"
LOOKS = {"1280": (1280, 800, "light"), "390": (390, 844, "light"), "dark": (1280, 800, "dark")}
WIDE = ("1280",)  # enough where nothing else changes
TOKEN = "for-pictures"
WEIGHTS = ("weights-by-query", "way=neighbours", "view=text", "kappa=1", "shrinkage=1.0", "k=20")
LOCAL = ("knn-online", "l2=0.1", "k=0.2", "view=text")


def main(out: Path) -> None:
    """Take every picture."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        folder = Path(place)
        _fitted(folder)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        with _served(folder, "weights") as url:
            for name, query in (("weights", "path exists?"), ("backed-off", "bootstrap")):
                _taken(browser, url, name, out, partial(_found, asked=f"q={query}"))
        with _served(folder, "local") as url:
            for run in ("bm25", "vectors", "fused"):
                _taken(browser, url, run, out, partial(_beside, run=run), WIDE)
            _taken(browser, url, "page", out, partial(_found, asked="q=read a file"), WIDE)
            for name, act in (("judge", _judged), ("step", _stepped), ("feature", _explained)):
                _taken(browser, url, name, out, act)
        take_desk(browser, folder, out)
        browser.close()


def take_desk(browser: Browser, folder: Path, out: Path) -> None:
    """The judging page, after two made-up judges have graded some documents by the keys below."""
    lines = (CODE / "qrels.tsv").read_text().splitlines()[1:41]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    words = ("serve", "--pairs", folder / "pairs.tsv", "--collection", CODE, "--judge", folder / "desk.qrels")
    with _started(words) as url:
        for judge, keys in (("ben", "32013201320132013210"), ("ann", "3201320032113201")):
            _taken(browser, url, "desk", out, partial(_graded, judge=judge, keys=keys), WIDE)


def _graded(page: Page, judge: str, keys: str) -> None:
    """So many documents have a grade, and their agreement is told."""
    page.evaluate(f"localStorage.setItem('querywise.judge', '{judge}')")
    page.goto("/")
    page.wait_for_selector("#progress-title")
    for key in keys:
        with page.expect_response("**/v1/judging"):
            page.keyboard.press(key)
        page.wait_for_selector("#main[aria-busy=false]")
    page.wait_for_timeout(5_000)


def _fitted(folder: Path) -> None:
    """An index with vectors, five parts of the judged queries, and two models of the first three of them."""
    _run("index", CODE, "--embed", "lsa", "--out", folder / "index")
    _run("features", CODE, "--embed", "lsa", "--out", folder / "parts")
    train = [folder / "parts" / f"S{part}.txt" for part in (1, 2, 3)]
    for name, (method, *settings) in (("weights", WEIGHTS), ("local", LOCAL)):
        chosen = [word for setting in settings for word in ("--set", setting)]
        _run("fit", *train, "--method", method, *chosen, "--out", folder / name)


def _run(*words: object) -> None:
    subprocess.run([QUERYWISE, *map(str, words), "--quiet"], check=True)


@contextlib.contextmanager
def _served(folder: Path, model: str) -> Iterator[str]:
    """The address of a service of a model, with the last part of the judged queries."""
    known = ("--data", folder / "parts" / "S5.txt", "--queries", folder / "parts" / "queries.jsonl")
    words = ("serve", folder / model, "--index", folder / "index", *known, "--judge", folder / "given.qrels")
    with _started(words) as url:
        yield url


@contextlib.contextmanager
def _started(words: Iterable[object]) -> Iterator[str]:
    """The address of a service."""
    environment = {**os.environ, "QUERYWISE_TOKEN": TOKEN}
    command = [str(QUERYWISE), *map(str, words), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            yield next(found[1] for line in process.stderr if (found := re.search(r"on (http://\S+)", line)))
        finally:
            process.terminate()


def _taken(
    browser: Browser, url: str, name: str, out: Path, act: Callable[[Page], None], looks: Iterable[str] = LOOKS
) -> None:
    """One picture in every look."""
    for look in looks:
        width, height, scheme = LOOKS[look]
        page = browser.new_page(viewport={"width": width, "height": height}, base_url=url, reduced_motion="reduce")
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.goto("/docs")
        page.evaluate(f"sessionStorage.setItem('querywise.token', '{TOKEN}')")
        act(page)
        page.wait_for_timeout(300)
        path = out / f"{name}-{look}.png"
        page.screenshot(path=path)
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)
        page.close()


def _found(page: Page, asked: str) -> None:
    page.goto(f"/?{asked}")
    page.wait_for_selector("#ours li[data-id]")


def _beside(page: Page, run: str) -> None:
    _found(page, "q=read a file")
    page.locator("#beside").select_option(run)


def _judged(page: Page) -> None:
    """The first document has the highest grade, and the second none."""
    _found(page, "q=read a file")
    for place, grade in ((0, 1), (1, 0)):
        buttons = page.locator("#ours li[data-id]").nth(place).locator(".give")
        if buttons.nth(grade).get_attribute("aria-pressed") == "false":
            with page.expect_response("**/v1/judgements"):
                buttons.nth(grade).click()
    page.locator("#ours li[data-id]").nth(0).focus()


def _stepped(page: Page) -> None:
    """The second of the greatest losses beside BM25."""
    _found(page, "q=read a file")
    page.locator("#beside").select_option("bm25")
    for number in (1, 2):
        page.get_by_role("button", name="Next").click()
        page.get_by_text(re.compile(f"^{number} of ")).wait_for()


def _explained(page: Page) -> None:
    """A feature of an explanation, with what it means."""
    _found(page, "q=read a file")
    page.locator(".ask").first.click()
    page.wait_for_selector("#reason .sum")
    page.locator("#reason .meant").nth(1).focus()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
