"""Learning curves of five methods: what is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from querywise.data.folds import Folds, make_folds
from querywise.data.synthetic import make_judged
from reproduction import curves

DATA = make_judged(120, 6, 3, noise=0.3)


@pytest.mark.slow
def test_the_table_has_every_method_at_every_size(tmp_path: Path) -> None:
    folds = make_folds(DATA, folds=3)
    table = curves.reproduce(folds, tmp_path).read_text()
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers["sizes"] == [30, 40]
    for name in curves.LEADING:
        assert table.count(f"| {name} |") == 2
        means = [numbers["comparisons"][str(size)]["methods"][name]["mean"]["map"] for size in numbers["sizes"]]
        assert f"{means[0]:.4f}" in table
        assert f"{means[1]:.4f}" in table
    every = np.array([ps for of_measure in numbers["p"].values() for ps in of_measure.values()])
    assert every.shape == (2 * (len(curves.LEADING) - 1), 2)
    assert ((every >= 0) & (every <= 1)).all()
    assert {path.name for path in tmp_path.glob("*.svg")} == {"map.svg", "ndcg-10.svg"}
    gap = numbers["gap"]
    assert gap["reached"] == numbers["comparisons"]["40"]["methods"]["blend"]["mean"]["map"]
    assert gap["baseline"] == numbers["comparisons"]["40"]["methods"]["ranksvm"]["mean"]["map"]
    assert gap["reached"] <= gap["reachable"] <= gap["upper_bound"]

    def never() -> Folds:
        pytest.fail("a set that is there already is not made again")

    (tmp_path / "all").mkdir()
    shutil.copytree(tmp_path, tmp_path / "all" / "one-set", ignore=shutil.ignore_patterns("all"))
    page = curves.every({"one set": never}, tmp_path / "all").read_text()
    assert f"| one set | {gap['baseline']:.4f} | {gap['reached']:.4f} |" in page
    assert "reachable" in (tmp_path / "all" / "gap.svg").read_text()


def test_what_is_not_known_of_a_gap_is_left_out(tmp_path: Path) -> None:
    gap = {"baseline": 0.4, "reached": 0.5, "reachable": None, "upper_bound": 0.6, "luck": None, "closed": 0.5}
    page = curves.together({"a set": gap}, tmp_path).read_text()
    assert "| a set | 0.4000 | 0.5000 |  | 0.6000 |  | 50.0% |" in page
    assert ">reachable<" not in (tmp_path / "gap.svg").read_text()
