"""A parameter that is chosen at the edge of its grid: what counts as one, and who is told."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest

from querywise import compare, make_judged, tune
from querywise.data.folds import make_folds
from querywise.data.letor import write_letor
from querywise.errors import EdgeHint
from querywise.evaluation.tuning import TunedFit, edges_of
from querywise.learners.ranksvm.ranksvm import RankSVM
from tests import commands


def beyond(name: str, values: list[float], reached: list[float]) -> float | None:
    best = max(range(len(values)), key=reached.__getitem__)
    found = list(edges_of([{name: each} for each in values], reached, {name: values[best]}))
    assert len(found) <= 1
    return found[0].beyond if found else None


@pytest.mark.parametrize(
    ("name", "values", "reached", "expected"),
    [
        ("l2", [0.1, 1.0, 10.0], [0.3, 0.2, 0.1], 0.01),
        ("l2", [0.1, 1.0, 10.0], [0.1, 0.2, 0.3], 100.0),
        ("l2", [10.0, 0.1, 1.0], [0.3, 0.1, 0.2], 100.0),  # in any order
        ("l2", [0.1, 1.0, 10.0], [0.1, 0.3, 0.2], None),
        ("l2", [0.1, 1.0, 10.0], [0.3, 0.3, 0.1], None),  # flat up to the edge
        ("l2", [0.1, 10.0], [0.3, 0.1], None),  # of two values each is at an edge
        ("prior_l2", [0.0, 0.5, 5.0], [0.3, 0.2, 0.1], None),  # nothing lies below 0
        ("prior_l2", [0.0, 0.5, 5.0], [0.1, 0.2, 0.3], 50.0),
        ("k", [0.1, 0.3, 0.6], [0.1, 0.2, 0.3], 1.0),
        ("k", [0.1, 0.5, 1.0], [0.1, 0.2, 0.3], None),  # a share ends at 1
        ("k", [1, 5, 25], [0.3, 0.2, 0.1], None),  # a count begins at 1
        ("k", [1, 5, 25], [0.1, 0.2, 0.3], 125),
        ("leaves", [7, 15, 31], [0.3, 0.2, 0.1], 3),
    ],
)
def test_an_edge_counts_where_the_measure_still_rises_and_a_further_value_is_possible(
    name: str, values: list[float], reached: list[float], expected: float | None
) -> None:
    assert beyond(name, values, reached) == expected


def test_other_parameters_are_held_at_their_best() -> None:
    tried = [{"l2": l2, "k": k} for l2 in (0.1, 1.0, 10.0) for k in (0.1, 0.3, 0.6)]
    reached = [0.5, 0.6, 0.5, 0.4, 0.3, 0.3, 0.2, 0.2, 0.2]
    (found,) = edges_of(tried, reached, {"l2": 0.1, "k": 0.3})
    assert found.text == "l2 0.1 is the smallest of 0.1, 1, 10"


def test_a_comparison_warns_once_and_counts_folds() -> None:
    folds = make_folds(make_judged(40, 8, 4, seed=3))
    fit = TunedFit(lambda l2: RankSVM(l2=l2), {"l2": [0.1, 1.0, 10.0, 100.0]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compared = compare({"svm": fit, "again": fit}, folds, measures="map")
    (hint,) = [each for each in caught if issubclass(each.category, EdgeHint)]
    assert hint.filename == __file__
    found = compared.edges
    assert {each.method for each in found} == {"svm", "again"}
    assert all(each.parameter == "l2" and each.of == 5 for each in found)
    words = r"svm: l2 \S+ is the (smallest|largest) of 0\.1, 1, 10, 100 \(in \d of 5 folds\)"
    assert re.search(words, str(hint.message))
    assert compared.as_json()["edges"] == [each.as_json() for each in found]


def test_tuning_tells_its_edges() -> None:
    data = make_judged(60, 8, 4, seed=3)
    found = tune(lambda l2: RankSVM(l2=l2), {"l2": [0.001, 1.0, 10.0]}, train=data, valid=data)
    assert [each.parameter for each in found.edges] == ["l2"], found.tried


def test_the_command_line_says_it_in_one_line_and_quietly_not_at_all(tmp_path: Path) -> None:
    write_letor(tmp_path / "data.txt", make_judged(40, 8, 4, seed=3))
    words = ["compare", "data.txt", "--methods", "ranksvm,single", "--out", "report", "--json"]
    done = commands.run(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    edges = json.loads(done.stdout)["edges"]
    assert done.stderr.startswith("hint: Chosen at the edge of the grid: "), done.stderr
    assert done.stderr.endswith("On the command line: --set NAME=VALUE.\n")
    assert done.stderr.count("\n") == 1
    assert json.loads((tmp_path / "report" / "report.json").read_text())["edges"] == edges
    assert "beyond the edge of the grid: " in (tmp_path / "report" / "report.md").read_text()
    assert commands.output(commands.run(tmp_path, *words, "--quiet"))
