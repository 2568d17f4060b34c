"""What to judge next: draws that keep estimates unbiased, whatever was judged before, and a file to go through."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from querywise.data.judgements import write_judgements
from querywise.data.run_columns import Run
from querywise.data.runs import write_list
from querywise.errors import DataError
from querywise.evaluation.next_judgments import Pair, draw, estimate
from tests.commands import output, refused, run

Labels = dict[str, dict[str, int]]


def world(queries: int = 40, documents: int = 25, gap: float = 0.8, seed: int = 0) -> tuple[list[Run], Labels]:
    """Two systems of which the first is better, and the grades of all documents."""
    chance = np.random.default_rng(seed)
    grades: Labels = {}
    scores: dict[str, dict[str, dict[str, float]]] = {"good": {}, "bad": {}}
    for number in range(queries):
        relevance = chance.normal(size=documents)
        ids = [f"d{place}" for place in range(documents)]
        grades[f"q{number}"] = dict(zip(ids, np.clip(np.floor(relevance), 0, 2).astype(int).tolist(), strict=True))
        for name, spread in (("good", 0.5), ("bad", 0.5 + gap)):
            found = relevance + chance.normal(0, spread, documents)
            scores[name][f"q{number}"] = dict(zip(ids, found.tolist(), strict=True))
    return [Run(name, own) for name, own in scores.items()], grades


def first_of(pairs: list[Pair], grades: Labels, count: int) -> Labels:
    """The grades of the first pairs of a draw."""
    found: Labels = {}
    for each in pairs[:count]:
        found.setdefault(each.query, {})[each.document] = grades[each.query][each.document]
    return found


def dcg(run: Run, grades: Labels) -> list[float]:
    """DCG@10 of every query, in plain words."""
    found = []
    for query, own in run.scores.items():
        best = sorted(own, key=lambda each: -own[each])[:10]
        found.append(sum((2 ** grades[query][each] - 1) / np.log2(rank + 2) for rank, each in enumerate(best)))
    return found


def test_all_judgments_give_the_paired_t_test_of_all() -> None:
    runs, grades = world()
    pairs = draw(runs, {})
    found = estimate(runs, pairs, grades)
    ours, theirs = (dcg(each, grades) for each in runs)
    plain = stats.ttest_rel(ours, theirs)
    (standing,) = found.standings
    assert standing.difference == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert standing.p == pytest.approx(plain.pvalue)
    assert (found.judged, found.left) == (len(pairs), 0)
    assert found.said()[-1].startswith("good is better than bad: dcg@10 +")


def test_documents_on_which_rankings_agree_come_last_and_none_is_left_out() -> None:
    runs, _ = world(5)
    lists = {query: dict(own) for query, own in runs[0].scores.items()}
    lists["q0"]["d0"] = 99.0
    same = Run("same", lists)
    pairs = draw([runs[0], same], {})
    share = {(each.query, each.document): each.share for each in pairs}
    assert max(share, key=lambda each: share[each]) == ("q0", "d0")
    assert min(share.values()) == pytest.approx(0.2 / len(pairs))
    assert sum(share.values()) == pytest.approx(1)
    assert [each.priority for each in pairs] == sorted(each.priority for each in pairs)
    assert draw([runs[0], same], {}) == pairs
    assert draw([runs[0], same], {}, seed=1) != pairs


@pytest.mark.slow
def test_estimates_are_unbiased_and_their_errors_true_also_after_a_second_draw() -> None:
    runs, grades = world()
    truth = np.mean(dcg(runs[0], grades)) - np.mean(dcg(runs[1], grades))
    once, twice, errors = [], [], []
    for seed in range(300):
        pairs = draw(runs, {}, seed=seed)
        (first,) = estimate(runs, pairs, first_of(pairs, grades, 120)).standings
        once.append(first.difference)
        errors.append(first.error**2)
        if seed < 150:
            known = first_of(pairs, grades, 120)
            again = draw(runs, known, seed=seed)
            (second,) = estimate(runs, again, first_of(again, grades, 200)).standings
            twice.append(second.difference)
    assert np.mean(once) == pytest.approx(truth, abs=4 * np.std(once) / np.sqrt(300))
    assert np.mean(twice) == pytest.approx(truth, abs=4 * np.std(twice) / np.sqrt(150))
    assert np.std(twice) < np.std(once)
    # The error counts the luck of the queries too, which these draws have in common.
    assert np.mean(errors) > np.var(once)
    own = np.subtract(dcg(runs[0], grades), dcg(runs[1], grades))
    assert np.mean(errors) == pytest.approx(np.var(once) + own.var(ddof=1) / len(own), rel=0.15)


@pytest.mark.slow
def test_equal_systems_are_rarely_told_apart() -> None:
    wrong = 0
    for seed in range(200):
        runs, grades = world(60, gap=0.0, seed=seed)
        pairs = draw(runs, {}, seed=seed)
        wrong += estimate(runs, pairs, first_of(pairs, grades, len(pairs) // 4)).standings[0].is_decided
    assert wrong <= 20, "5 % expected"


def test_cheap_labels_say_where_gains_are_expected_and_bias_nothing() -> None:
    runs, grades = world()
    pairs = draw(runs, {}, cheap=grades)
    relevant = np.mean([grades[each.query][each.document] > 0 for each in pairs[:60]])
    plain = np.mean([grades[each.query][each.document] > 0 for each in draw(runs, {})[:60]])
    assert relevant > plain
    wrong = {query: {document: 2 - grade for document, grade in own.items()} for query, own in grades.items()}
    truth = np.mean(dcg(runs[0], grades)) - np.mean(dcg(runs[1], grades))
    found = []
    for seed in range(60):
        pairs = draw(runs, {}, cheap=wrong, seed=seed)
        found.append(estimate(runs, pairs, first_of(pairs, grades, 200)).standings[0].difference)
    assert np.mean(found) == pytest.approx(truth, abs=4 * np.std(found) / np.sqrt(60))


def test_judgments_out_of_turn_count_nothing_and_are_told() -> None:
    runs, grades = world(8)
    pairs = draw(runs, {})
    known = first_of(pairs, grades, 10)
    for each in pairs[20:25]:
        known.setdefault(each.query, {})[each.document] = grades[each.query][each.document]
    found = estimate(runs, pairs, known)
    assert (found.judged, found.out_of_turn) == (10, 5)
    assert "5 judgments out of turn counted nothing" in found.said()[1]
    assert found.standings == estimate(runs, pairs, first_of(pairs, grades, 10)).standings


@pytest.mark.parametrize("measure", ["ndcg@10", "map", "dcg", "dcg@0", "p@x"])
def test_measures_that_are_no_sums_over_documents_are_refused(measure: str) -> None:
    with pytest.raises(DataError, match="expected dcg@k or p@k"):
        draw(world(3)[0], {}, measure=measure)


def test_a_draw_of_other_runs_is_refused() -> None:
    runs, grades = world(3)
    pairs = draw(runs, {})
    with pytest.raises(DataError, match="it was made of other runs"):
        estimate(runs, pairs[1:], grades)
    with pytest.raises(DataError, match="Two runs or more, of different names"):
        draw([runs[0], runs[0]], {})
    known = first_of(pairs, grades, 5)
    again = draw(runs, known)
    with pytest.raises(DataError, match="was judged when the draw was made, and is not now"):
        estimate(runs, again, {})


def test_the_command_draws_once_and_then_says_where_the_systems_stand(tmp_path: Path) -> None:
    runs, grades = world()
    for each in runs:
        write_list(tmp_path / f"{each.name}.trec", each)
    words = ("next", "--run", "good.trec", "--run", "bad.trec", "--out", "next.tsv", "--judged", "given.qrels")
    shown = output(run(tmp_path, *words))
    assert "0 of " in shown
    assert "good and bad: nothing of the draw is judged yet." in shown
    drawn = (tmp_path / "next.tsv").read_text()
    coming = json.loads(output(run(tmp_path, *words, "--json", "--show", 150)))["next"]
    known: Labels = {}
    for query, document in coming:
        known.setdefault(query, {})[document] = grades[query][document]
    write_judgements(tmp_path / "given.qrels", tuple(known), tuple(known.values()))
    found = json.loads(output(run(tmp_path, *words, "--json")))
    assert found["judged"] == 150
    assert found["standings"][0]["difference"] > 0
    assert (tmp_path / "next.tsv").read_text() == drawn
    assert drawn.splitlines()[1].split("\t")[:2] == coming[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "query\tdocument\tshare\tpriority\n",
        "a\tb\t0.5\n",
        "a\tb\t2\t1\n",
        "a\tb\tnan\t1\n",
        "a\tb\t.5\t-1\n",
        "a\tb\t.5\t2\na\tc\t.5\t1\n",
        "a\tb\t.5\t1\na\tb\t.5\t2\n",
        "\x00\n",
    ],
)
def test_a_damaged_draw_is_refused_in_a_line(tmp_path: Path, text: str) -> None:
    runs, _ = world(2)
    for each in runs:
        write_list(tmp_path / f"{each.name}.trec", each)
    (tmp_path / "next.tsv").write_text(text)
    said = refused(run(tmp_path, "next", "--run", "good.trec", "--run", "bad.trec", "--out", "next.tsv"))
    assert "next.tsv" in said
