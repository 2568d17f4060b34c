"""What a reproduction leaves behind: its numbers, its tables, and the paper's claims last in both."""

from __future__ import annotations

import json
from pathlib import Path

from querywise.reproduction.claims import judged, write_findings

TABLE = "| method | MAP |\n|---|---:|\n| one | 0.5 |\n"


def test_the_claims_come_last_in_both_files(tmp_path: Path) -> None:
    claims = [judged("It rises", "+1 %", True), judged("It is known", "nobody judged", None)]
    written = write_findings(tmp_path, {"sweep": [0.1]}, [TABLE, TABLE], claims)
    assert written == tmp_path / "table.md"
    text = written.read_text()
    assert text.startswith(TABLE + "\n" + TABLE + "\n| the paper |")
    assert text.rstrip().endswith("| It is known | nobody judged | not testable here |")
    content = json.loads((tmp_path / "numbers.json").read_text())
    assert list(content) == ["sweep", "claims"]
    assert content["claims"][0] == {"claim": "It rises", "here": "+1 %", "outcome": "reproduced"}


def test_without_claims_nothing_is_said_of_them(tmp_path: Path) -> None:
    written = write_findings(tmp_path, {"sweep": [0.1]}, [TABLE])
    assert written.read_text() == TABLE
    assert (tmp_path / "numbers.json").read_text() == '{\n "sweep": [\n  0.1\n ]\n}\n'
