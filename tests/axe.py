"""axe-core, which looks for what people without sight, a mouse or colours cannot use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.engines.artifacts import NpmSet, UnavailableError

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = NpmSet("axe", ("axe-core@4.10.2",), "9a472f88925115666e357ac5f3041a4d4e31f132a8f8387c05dbf2fde7970c74")


def violations(page: Page) -> list[tuple[str, str]]:
    """What it finds on a page as it is now: the rule, and the first element that breaks it.

    A page with a content security policy needs a context of the browser that passes it by.
    """
    try:
        script = (AXE.fetch() / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    except UnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    page.evaluate(script)
    found = page.evaluate("axe.run()")
    assert found["passes"], "it looked at something"
    return [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]]
