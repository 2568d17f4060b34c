"""The figures of real click logs that the page shows are those of the command beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import real_clicks

ROOT = Path(__file__).parents[1]
CLICKS = ROOT.parent / "shared" / "data" / "clicks"


@pytest.mark.real_data
@pytest.mark.slow
def test_the_page_shows_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["real_clicks", str(CLICKS)])
    real_clicks.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(rows) == 11 + 7
    page = (ROOT / "docs" / "clicks.md").read_text().partition("## Two real logs")[2]
    assert [line for line in page.splitlines() if line.startswith("|")] == rows
