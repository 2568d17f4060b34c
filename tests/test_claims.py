"""What a reproduction leaves behind: its numbers, its tables, and the paper's claims last in both, by one rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from querywise.evaluation.rankings import DIFFICULTIES, Breakdown, Group
from querywise.reproduction import lin2011
from querywise.reproduction.papers import claimed, untestable, write_findings

TABLE = "| method | MAP |\n| --- | ---: |\n| one | 0.5 |\n"


def test_the_claims_come_last_in_both_files(tmp_path: Path) -> None:
    claims = [
        claimed("It rises", "+1 %", same=True, p=0.03, paper="< 0.01"),
        untestable("It is known", "nobody judged it"),
    ]
    written = write_findings(tmp_path, {"sweep": [0.1]}, [TABLE, TABLE], claims)
    assert written == tmp_path / "table.md"
    text = written.read_text()
    assert text.startswith(TABLE + "\n" + TABLE + "\n| the paper | its p | here | our p | outcome |")
    assert "| It rises | < 0.01 | +1 % | 0.0300 | same direction, significant |" in text
    assert text.rstrip().endswith("| It is known |  |  |  | not testable here, because nobody judged it |")
    content = json.loads((tmp_path / "numbers.json").read_text())
    assert list(content) == ["sweep", "printed", "claims"]
    expected = {"claim": "It rises", "paper": "< 0.01", "here": "+1 %", "p": 0.03}
    assert content["claims"][0] == {**expected, "outcome": "same direction, significant"}


@pytest.mark.parametrize(
    ("same", "p", "outcome"),
    [
        (True, 0.049, "same direction, significant"),
        (True, 0.05, "same direction, not significant"),
        (True, None, "same direction, not significant"),
        (False, 0.001, "not reproduced"),
        (False, 0.9, "not reproduced"),
    ],
)
def test_one_rule_for_all_claims(same: bool, p: float | None, outcome: str) -> None:
    assert claimed("a", "b", same=same, p=p).outcome == outcome


def test_without_claims_nothing_is_said_of_them(tmp_path: Path) -> None:
    written = write_findings(tmp_path, {"sweep": [0.1]}, [TABLE])
    assert written.read_text() == TABLE
    content = json.loads((tmp_path / "numbers.json").read_text())
    assert content == {"sweep": [0.1], "printed": [[["method", "MAP"], ["one", "0.5"]]]}


def test_the_papers_words_for_difficulty_are_found_in_our_groups() -> None:
    gains = dict(zip((label for label, _, _ in DIFFICULTIES), (0.0, 0.01, 0.02, -0.03), strict=True))
    groups = [
        Group(label, 5, {"single": 0.5, "transform": 0.5 + gain}, {"transform": 0.2}) for label, gain in gains.items()
    ]
    found = lin2011._about_difficulty(Breakdown("relevant documents", tuple(groups)), "transform")
    assert found.here == "hard +0.0100 (p = 0.20), normal +0.0200 (p = 0.20), easy -0.0300 (p = 0.20)"
    assert found.outcome == "same direction, not significant"
    fewer = lin2011._about_difficulty(Breakdown("relevant documents", tuple(groups[:3])), "transform")
    assert fewer.outcome == "not testable here"
    assert fewer.here == "there are no easy queries"
