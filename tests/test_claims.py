"""What a reproduction leaves behind: its numbers, its tables, and the paper's claims last in both, by one rule."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from querywise.evaluation.rankings import DIFFICULTIES, Breakdown, QueryGroup
from querywise.evaluation.significance import paired_t_test
from querywise.runtime.values import Json
from reproduction import geng2008, lin2011_claims
from reproduction.lin2011_sweep import ALONE, THEIRS
from reproduction.papers import write_findings
from reproduction.verdicts import CERTAIN, Part, alike, certain, claimed, paired, untestable, verdict, within

TABLE = "| method | MAP |\n| --- | ---: |\n| one | 0.5 |\n"


def test_the_claims_come_last_in_both_files(tmp_path: Path) -> None:
    values = {"ours": np.array([0.5, 0.75, np.nan, 1.0]), "theirs": np.array([0.25, 0.5, 0.1, 0.8])}
    claims = [
        claimed("It rises", "+1 %", [Part(0.1, 0.03, "t", ("ours", "theirs"))], paper="< 0.01"),
        untestable("It is known", "nobody judged it"),
    ]
    written = write_findings(tmp_path, {"sweep": [0.1]}, [TABLE, TABLE], claims, queries="abcd", values=values)
    assert written == tmp_path / "table.md"
    text = written.read_text()
    assert text.startswith(TABLE + "\n" + TABLE + "\n| the paper | its p | here | our p | verdict |")
    assert "| It rises | < 0.01 | +1 % | 0.0300 | reproduced, significant |" in text
    assert text.rstrip().endswith("| It is known |  |  |  | not testable: nobody judged it |")
    content = json.loads((tmp_path / "numbers.json").read_text())
    assert list(content) == ["sweep", "printed", "claims"]
    expected = {"claim": "It rises", "paper": "< 0.01", "here": "+1 %", "p": 0.03, "outcome": "reproduced, significant"}
    parts = content["claims"][0].pop("parts")
    assert content["claims"][0] == expected
    assert parts == [Part(0.1, 0.03, "t", ("ours", "theirs"))._asdict() | {"columns": ["ours", "theirs"]}]
    stored = json.loads(gzip.decompress((tmp_path / "values.json.gz").read_bytes()))
    assert stored["queries"] == ["a", "b", "c", "d"]
    assert stored["columns"] == {"ours": [0.5, 0.75, None, 1.0], "theirs": [0.25, 0.5, 0.1, 0.8]}


@pytest.mark.parametrize(
    ("parts", "p", "outcome"),
    [
        ([Part(0.1, 0.049)], 0.049, "reproduced, significant"),
        ([Part(0.1, 0.001), Part(0.1, 0.05)], 0.05, "reproduced, not significant"),
        ([Part(0.1)], None, "reproduced, no test"),
        ([Part(0.1, 0.01), Part(0.2)], 0.01, "reproduced, significant"),
        ([Part(-0.1)], None, "not reproduced"),
        ([Part(0.0, 1.0)], None, "not reproduced"),
        ([Part(0.1, 1e-9), Part(-0.1, 0.6)], 1.0, "not reproduced"),
        ([Part(-0.1, 0.02), Part(-0.1, 0.03), Part(0.1, 1e-9)], 0.06, "not reproduced"),
        ([Part(-0.1, 0.02), Part(-0.1, 0.8)], 0.04, "reversed"),
        ([Part(-0.1, 0.049)], 0.049, "reversed"),
    ],
)
def test_one_rule_for_all_claims(parts: list[Part], p: float | None, outcome: str) -> None:
    found = claimed("a", "b", parts)
    assert found.p == pytest.approx(p) if p is not None else found.p is None
    assert found.outcome == outcome
    assert verdict(parts) == (found.p, outcome)


def test_what_could_not_come_out_otherwise_has_no_p() -> None:
    found = certain("It can be done", "it can")
    assert (found.p, found.outcome) == (None, CERTAIN)


def test_a_paired_part_counts_the_queries_that_are_known_and_belong() -> None:
    values = {
        "ours": np.array([1.0, 3.0, np.nan, 9.0]),
        "theirs": np.array([0.0, 1.0, 5.0, 0.0]),
        "easy": np.array([1.0, 1.0, 1.0, 0.0]),
    }
    assert paired(values, "ours", "theirs").difference == pytest.approx(4.0)
    found = paired(values, "ours", "theirs", sign=-1, among="easy")
    assert found.difference == pytest.approx(-1.5)
    assert found.p == pytest.approx(paired_t_test(np.array([1.0, 3.0]), np.array([0.0, 1.0])).p)
    assert (found.columns, found.sign, found.among, found.test) == (("ours", "theirs"), -1, "easy", "t")


def test_alike_is_tested_within_a_bound_and_reversed_beyond_it() -> None:
    spread = np.random.default_rng(0).normal(0, 0.01, 200)
    near, far = ({"a": 0.5 + shift + spread, "b": np.full(200, 0.5)} for shift in (0.001, 0.05))
    assert claimed("", "", [alike(near, "a", "b", 0.01)]).outcome == "reproduced, significant"
    assert claimed("", "", [alike(far, "a", "b", 0.01)]).outcome == "reversed"


def test_a_threshold_has_no_test() -> None:
    outside = within(0.51, 0.55, 0.65)
    assert outside.p is None
    assert outside.difference == pytest.approx(-0.04)
    assert claimed("", "", [within(0.6, 0.55, 0.65)]).outcome == "reproduced, no test"


def test_without_claims_nothing_is_said_of_them(tmp_path: Path) -> None:
    written = write_findings(tmp_path, {"sweep": [0.1]}, [TABLE])
    assert written.read_text() == TABLE
    content = json.loads((tmp_path / "numbers.json").read_text())
    assert content == {"sweep": [0.1], "printed": [[["method", "MAP"], ["one", "0.5"]]]}


def test_the_papers_words_for_difficulty_are_found_in_our_groups() -> None:
    gains = dict(zip((label for label, _, _ in DIFFICULTIES), (0.0, 0.01, 0.02, -0.03), strict=True))
    names = "single, hinge", "transform, hinge"
    groups = [QueryGroup(label, 5, {names[0]: 0.5, names[1]: 0.5 + gain}, {}) for label, gain in gains.items()]
    noise = np.tile([-0.03, 0.03, -0.02, 0.02, 0.0], 4)
    values = {f"{names[0]} | map": np.full(20, 0.5), f"{names[1]} | map": 0.5 + np.repeat([*gains.values()], 5) + noise}
    values |= {
        word: np.repeat([0.0] * (place + 1) + [1.0] + [0.0] * (2 - place), 5)
        for place, word in enumerate(("hard", "normal", "easy"))
    }
    better, worse = lin2011_claims._about_difficulty(Breakdown("relevant documents", tuple(groups)), names[1], values)
    ps = [part.p or 0 for each in (better, worse) for part in each.parts]
    said = [
        f"{each} (p = {p:.2f})" for each, p in zip(("hard +0.0100", "normal +0.0200", "easy -0.0300"), ps, strict=True)
    ]
    assert (better.claim, worse.claim) == (
        "transform is better on hard and normal queries (Table 3)", "transform is worse on easy queries (Table 3)",
    )  # fmt: skip
    assert (better.here, worse.here) == (", ".join(said[:2]), said[2])
    assert (better.p, worse.p) == (max(ps[:2]), ps[2])
    assert better.outcome == worse.outcome == "reproduced, not significant"
    better, worse = lin2011_claims._about_difficulty(
        Breakdown("relevant documents", tuple(groups[:3])), names[1], values
    )
    assert (better.outcome, worse.outcome) == ("reproduced, not significant", "not testable")
    assert worse.here == "there are no easy queries"


def test_what_can_be_is_tested_at_its_best_and_pays_for_the_choice() -> None:
    rng = np.random.default_rng(0)
    values = {"ours": rng.random(40) + 0.1, "theirs": rng.random(40)}
    once, chosen = (paired(values, "ours", "theirs", settings=number) for number in (1, 5))
    assert chosen.p == min(1.0, 5 * (once.p or 0))
    assert chosen.difference == once.difference
    assert paired(values, "ours", "theirs", settings=10**6).p == 1.0


def test_claims_about_mq2008_are_judged_on_it_and_nowhere_else() -> None:
    rng = np.random.default_rng(1)
    rows = (ALONE, *THEIRS, *lin2011_claims.RIVALS)
    base = {measure: rng.random(100) for measure in lin2011_claims.MEASURES}
    values = {f"{row} | {measure}": base[measure] - 0.01 * place for place, row in enumerate(rows) for measure in base}
    for measure in base:
        values[f"select-ranker, hinge | {measure}"] = base[measure] + (0.02 if measure == "p@2" else -0.001)
    kinds = np.repeat([0, 1, 2, 3], [29, 38, 31, 2])
    values |= {word: (kinds == number).astype(np.float64) for number, word in enumerate(("hard", "normal", "easy"), 1)}
    found = {each.claim: each for each in lin2011_claims._about_mq2008(values, known=True)}
    assert [each.outcome.partition(",")[0] for each in found.values()] == [
        "not reproduced", "reproduced", "reproduced", "reversed", "reproduced",
    ]  # fmt: skip
    most, precise, others, gain, shares = found.values()
    assert most.here == "select-ranker, hinge in 1 of 10 measures; transform, hinge in 0 of 10 measures"
    assert precise.here == "against the best other: P@2 +0.0200 against single, hinge"
    assert (others.here, shares.here) == ("in all of them", "38.0 / 31.0 / 2.0 %")
    assert gain.here.startswith("NDCG@1 -0.0010, NDCG@2 -0.0010")
    elsewhere = lin2011_claims._about_mq2008(values, known=False)
    assert [(each.claim, each.outcome) for each in elsewhere] == [(claim, "not testable") for claim in found]


def test_all_three_are_held_to_every_global_model() -> None:
    rng = np.random.default_rng(2)
    level = rng.random(100)
    values = {f"{row} | map": level + rng.normal(0, 0.005, 100) for row in (ALONE, *THEIRS, *lin2011_claims.RIVALS)}
    near = lin2011_claims._alike(values)
    assert (len(near.parts), near.outcome) == (12, "reproduced, significant")
    values["listnet | map"] = values["listnet | map"] + 0.1
    far = lin2011_claims._alike(values)
    assert far.outcome == "reversed"
    assert far.here.startswith("farthest: ")
    assert "against listnet" in far.here


@pytest.mark.parametrize(
    ("largest_loss", "change", "outcome"),
    [(2.0, 0.3, "reproduced, no test"), (2.0, 0.7, "not reproduced"), (0.1, 0.05, CERTAIN)],
)
def test_a_stability_above_every_loss_bounds_nothing(largest_loss: float, change: float, outcome: str) -> None:
    left: list[Json] = [{"pairs": 50, "largest_change": change, "bound": 0.5}]
    stability, theorem, *others = geng2008._about_theory(
        {"one_pair_left_out": left, "paper_bound": 5.0, "largest_loss": largest_loss}
    )
    assert (stability.outcome, theorem.outcome) == (outcome, CERTAIN)
    assert theorem.here.endswith(f"and empty: no loss is above {largest_loss:.2f}")
    assert {each.outcome for each in others} == {"not testable"}
