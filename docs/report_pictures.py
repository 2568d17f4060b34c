"""Pictures of a report, for the documentation: `python docs/report_pictures.py querywise-demo/report/report.html`.

They are taken with Chromium, opened as a file, and written to docs/figures/report/.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Page

OUT = Path(__file__).parent / "figures" / "report"
SIZES = {"1280": (1280, 800), "390": (390, 844)}


def main(report: Path, out: Path) -> None:
    """Take every picture."""
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                page.goto(report.resolve().as_uri())
                _pictures(page, out, size if scheme == "light" else f"{size}-dark")
                page.close()
        # A sheet of A4 within margins of 1 cm.
        page = browser.new_page(viewport={"width": 718, "height": 1045})
        page.emulate_media(media="print")
        page.goto(report.resolve().as_uri())
        page.screenshot(path=out / "print.png")
        browser.close()
    for path in out.glob("*.png"):
        _shrink(path)


def _shrink(path: Path) -> None:
    """Keep 128 colours, which is all that these pages need."""
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


def _pictures(page: Page, out: Path, name: str) -> None:
    """The first screen, the table of queries, one query opened, and what the models use."""
    page.screenshot(path=out / f"first-{name}.png")
    page.evaluate("document.getElementById('queries').scrollIntoView()")
    page.screenshot(path=out / f"queries-{name}.png")
    row = page.locator("tr.query").nth(1)
    row.locator("button").click()
    page.locator(".rankings table").first.wait_for()
    row.evaluate("(row) => row.scrollIntoView()")
    page.screenshot(path=out / f"query-{name}.png")
    row.locator("button").click()
    page.evaluate("document.getElementById('features').scrollIntoView()")
    page.screenshot(path=out / f"features-{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else OUT)
