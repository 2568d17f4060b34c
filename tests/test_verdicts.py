"""The papers' verdicts are repeated from stored values by a script that shares no code with what wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, spearmanr

from benchmarks.verdicts import VALUES, check, judged, main
from reproduction.papers import write_findings
from reproduction.verdicts import Part, Values, alike, certain, claimed, paired, untestable, within


@pytest.mark.parametrize("folder", judged(), ids=lambda folder: folder.name)
def test_every_stored_table_and_verdict_comes_out_again(folder: Path) -> None:
    found = check(folder)
    assert found.wrong == []
    assert found.claims > 5
    assert found.cells >= 5 * found.claims + 20 * (folder / VALUES).exists()


def written(folder: Path, *, seed: int = 0) -> Path:
    """A folder with a claim of every kind of test and verdict."""
    rng = np.random.default_rng(seed)
    one = rng.random(60)
    values: Values = {
        "one | map": one,
        "two | map": one + rng.normal(0.05, 0.1, 60),
        "few | map": np.where(rng.random(60) < 0.3, np.nan, one),
        "some": (rng.random(60) < 0.5).astype(np.float64),
        "others": (rng.random(60) < 0.5).astype(np.float64),
    }
    names = "one | map", "two | map"
    low, high = (one[values[name] > 0] for name in ("some", "others"))
    ranks = spearmanr(values[names[0]], values[names[1]])
    claims = [
        claimed("Two is above one", "so it is", [paired(values, *reversed(names))]),
        claimed("One is above two", "it is not", [paired(values, *names), paired(values, "few | map", names[1])]),
        claimed("By ranks, among some", "", [paired(values, *names, sign=-1, test="wilcoxon", among="some")]),
        claimed("They are alike", "", [alike(values, *names, 0.2), alike(values, *names, 0.01)]),
        claimed("Unpaired", "", [Part(float(low.mean() - high.mean()), float(mannwhitneyu(low, high).pvalue),
                                      "mann-whitney", (names[0], "some", "others"))]),
        claimed("Correlated", "", [Part(float(ranks.statistic), float(ranks.pvalue), "spearman", names)]),
        claimed("About a half", "0.52", [within(0.52, 0.45, 0.55)]),
        untestable("Of other data", "there are none"),
        certain("It can be done", "it can"),
    ]  # fmt: skip
    means = {name: float(values[f"{name} | map"].mean()) for name in ("one", "two")}
    p = paired(values, *names).p
    table = "\n".join([
        "| method | MAP | p (MAP, one) |",
        "| --- | ---: | ---: |",
        f"| one | {means['one']:.4f} |  |",
        f"| two | {means['two']:.4f} | {'< 0.0001' if (p or 0) < 0.0001 else f'{p:.4f}'} |",
        "",
    ])  # fmt: skip
    queries = [f"q{number}" for number in range(60)]
    write_findings(folder, {}, [table], claims, queries=queries, values=values)
    return folder


def test_a_folder_as_it_was_written_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(3):
        found = check(written(tmp_path, seed=seed))
        assert found.wrong == []
        assert found.claims == 9
        assert found.cells == 9 * 5 + 4
    assert main([tmp_path]) == 0
    assert f"{tmp_path.name}: 9 claims and 49 cells checked, 0 differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("| reproduced, no test |", "| reproduced, not significant |", "About a half: printed 'reproduced, not"),
        ("| reversed |", "| not reproduced |", "One is above two: printed 'not reproduced'"),
        ("| one | 0.", "| one | 1.", "one, MAP: printed '1."),
    ],
)
def test_a_changed_page_is_found(tmp_path: Path, old: str, new: str, said: str) -> None:
    page = written(tmp_path) / "table.md"
    assert old in page.read_text()
    page.write_text(page.read_text().replace(old, new, 1))
    assert any(said in each for each in check(tmp_path).wrong)
    assert main([tmp_path]) == 1


def test_a_changed_p_is_found(tmp_path: Path) -> None:
    path = written(tmp_path) / "numbers.json"
    content = json.loads(path.read_text())
    content["claims"][0]["parts"][0]["p"] /= 2
    content["claims"][0]["p"] /= 2
    path.write_text(json.dumps(content))
    assert any("Two is above one: p of" in each for each in check(tmp_path).wrong)
