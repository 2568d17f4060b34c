"""Quick runs of the reproductions: the shape of every table from one fold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from querywise.reproduction import geng2008, lin2011
from querywise.retrieval.reading import folds_of


@pytest.mark.slow
@pytest.mark.parametrize("reproduce", [geng2008.reproduce, lin2011.reproduce])
def test_a_quick_run_shows_every_table_and_says_on_top_that_it_is_quick(
    reproduce: Callable[..., Path], tmp_path: Path
) -> None:
    write_letor(tmp_path / "all.txt", make_judged(50, 6, 4, noise=0.3))
    text = reproduce(folds_of(tmp_path / "all.txt", None), tmp_path / "report", reference=0, quick=True).read_text()
    assert text.startswith("**A quick run: the first fold and thin grids.")
    assert "10 test queries" in text, "one fold"
    assert text.count("| --- |") >= 5, "the tables"
    assert "| the paper | its p | here | our p | outcome |" in text
    numbers: dict[str, Any] = json.loads((tmp_path / "report" / "numbers.json").read_text())
    assert numbers["quick"] is True
