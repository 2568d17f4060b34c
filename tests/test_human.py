"""Few human judgments beside many cheap ones: estimates, their errors, and a verdict that no biased judge reverses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from querywise import Candidates, Judged, compare
from querywise.data.judgements import write_judgements
from querywise.data.letor import write_letor
from querywise.errors import DataError
from querywise.evaluation.findings import findings
from querywise.evaluation.human import by_humans, estimate
from querywise.runtime.arrays import Floats, Ints
from tests.commands import output, refused, run
from tests.worlds import examples

DOCUMENTS = 8


def sample(seed: int, every: int, count: int) -> tuple[Floats, Floats, Ints]:
    """Human and cheap values of all queries, and which of them people judged."""
    chance = np.random.default_rng(seed)
    human = chance.normal(0.3, 1, every)
    cheap = 0.7 * human + chance.normal(0.5, 0.4, every)
    return human, cheap, np.sort(chance.choice(every, count, replace=False))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 60), st.floats(0, 1))
def test_no_weight_is_human_values_alone_and_equal_labels_are_all_of_them(seed: int, count: int, weight: float) -> None:
    human, cheap, chosen = sample(seed, 80, count)
    alone = estimate(human[chosen], cheap, chosen, weight=0)
    plain = stats.ttest_1samp(human[chosen], 0)
    assert alone.value == pytest.approx(human[chosen].mean())
    assert alone.p == pytest.approx(plain.pvalue)
    assert alone.interval == pytest.approx(tuple(plain.confidence_interval(0.95)))
    assert alone.worth == pytest.approx(count)
    same = estimate(human[chosen], human, chosen)
    assert (same.weight, same.value) == pytest.approx((1, human.mean()))
    assert same.error**2 == pytest.approx(human.var(ddof=1) / 80)
    moved = estimate(human[chosen], cheap + 5, chosen, weight=weight)  # a judge that is too kind to everything
    assert moved.value == pytest.approx(estimate(human[chosen], cheap, chosen, weight=weight).value)
    assert moved.error == pytest.approx(estimate(human[chosen], cheap, chosen, weight=weight).error)


def test_the_weight_makes_the_error_smallest_and_is_cut_to_0_and_1() -> None:
    human, cheap, chosen = sample(3, 400, 60)
    best = estimate(human[chosen], cheap, chosen)
    others = [estimate(human[chosen], cheap, chosen, weight=weight).error for weight in np.linspace(0, 1, 101)]
    assert 0 < best.weight <= 1
    assert best.error <= min(others) + 2e-3 * best.error  # s²(c) is that of all queries, λ that of the human ones
    assert estimate(human[chosen], -cheap, chosen).weight == 0
    assert estimate(human[chosen], cheap / 10, chosen).weight == 1
    assert best.worth > 60


def test_error_is_that_of_independent_draws() -> None:
    """Over 4,000 samples of queries the estimate is right on average, and spreads by the error it tells."""
    chance, values, errors = np.random.default_rng(0), [], []
    for _ in range(4_000):
        human = chance.normal(0.3, 1, 120)
        cheap = 0.7 * human + chance.normal(0.5, 0.4, 120)
        found = estimate(human[:60], cheap, np.arange(60), weight=0.8)
        values.append(found.value)
        errors.append(found.error**2)
    assert np.mean(values) == pytest.approx(0.3, abs=4 * np.std(values) / np.sqrt(4_000))
    assert np.var(values) == pytest.approx(np.mean(errors), rel=0.1)
    # The same variance by cutting all queries into human ones and the rest, which are independent.
    human, cheap, chosen = sample(5, 20_000, 10_000)
    rest = np.setdiff1d(np.arange(20_000), chosen)
    apart = (human[chosen] - 0.8 * 0.5 * cheap[chosen]).var() / 10_000 + (0.8 * 0.5) ** 2 * cheap[rest].var() / 10_000
    assert estimate(human[chosen], cheap, chosen, weight=0.8).error ** 2 == pytest.approx(apart, rel=0.02)


def world(queries: int = 240) -> tuple[Judged, dict[str, dict[str, int]], dict[str, Floats]]:
    """Two systems of which the good one is better, and a judge that likes whatever the bad one ranks first.

    Returns: cheap labels, human grades of every query, and the scores of both systems.
    """
    chance = np.random.default_rng(1)
    rows = queries * DOCUMENTS
    relevance = chance.normal(size=rows)
    truth = (relevance > 0.8).astype(int)
    scores = {"good": relevance + chance.normal(0, 0.8, rows), "bad": relevance + chance.normal(0, 1.4, rows)}
    places = (-scores["bad"].reshape(queries, DOCUMENTS)).argsort(axis=1).argsort(axis=1).ravel()
    cheap = np.where(places < 2, 1, truth)
    names = tuple(f"q{number}" for number in range(queries))
    ids = tuple(f"d{number % DOCUMENTS}" for number in range(rows))
    starts = np.arange(0, rows + 1, DOCUMENTS)
    features = np.column_stack([scores["good"], scores["bad"]])
    data = Judged(Candidates(features, starts, names, document_ids=ids, feature_names=("good", "bad")), cheap)
    by_query = truth.reshape(queries, DOCUMENTS).tolist()
    grades = {
        query: {f"d{place}": grade for place, grade in enumerate(own)}
        for query, own in zip(names, by_query, strict=True)
    }
    return data, grades, scores


def test_a_judge_that_likes_one_system_turns_the_plain_verdict_and_not_the_corrected_one() -> None:
    data, grades, _ = world()
    few = {query: grades[query] for query in list(grades)[::5]}
    systems = {"bad": lambda features: features[:, 1], "good": lambda features: features[:, 0]}
    compared = compare(systems, test=data, measures="ndcg@10")
    plain = compared.test("good", "bad", "ndcg@10")
    assert plain.difference < 0
    assert plain.p < 0.001
    assert findings(compared, "ndcg@10").winner is None
    human = by_humans(compared, few)
    found = findings(compared, "ndcg@10", human=human)
    labels = np.concatenate([list(own.values()) for own in grades.values()])
    truth = compare(systems, test=Judged(data.candidates, labels), measures="ndcg@10")
    whole = truth.test("good", "bad", "ndcg@10")
    assert whole.difference > 0
    estimated = human.difference("good", "bad", "ndcg@10")
    assert estimated.interval[0] < whole.difference < estimated.interval[1]
    assert found.winner == "good"
    assert "good is better than bad" in found.verdict
    assert "240 queries, 48 of them judged by people" in found.verdict
    said = " ".join(human.said("ndcg@10"))
    assert "By the cheap labels alone good would be worse than bad" in said
    assert "Cheap labels disfavor good against bad" in said


def test_all_queries_judged_by_people_give_the_plain_comparison_of_their_judgments() -> None:
    data, grades, _ = world(60)
    labels = np.concatenate([list(own.values()) for own in grades.values()])
    systems = {"bad": lambda features: features[:, 1], "good": lambda features: features[:, 0]}
    people = compare(systems, test=Judged(data.candidates, labels), measures="ndcg@10,map")
    same = by_humans(people, grades)
    for measure in people.measures:
        found = same.difference("good", "bad", measure)
        assert found.value == pytest.approx(people.test("good", "bad", measure).difference)
        assert found.p == pytest.approx(people.test("good", "bad", measure).p)
    beside = by_humans(compare(systems, test=data, measures="ndcg@10"), grades)
    assert beside.human["good"]["ndcg@10"] == pytest.approx(people.evaluations["good"]["ndcg@10"])


def test_what_people_must_have_judged_is_said() -> None:
    data, grades, _ = world(60)
    systems = {"bad": lambda features: features[:, 1], "good": lambda features: features[:, 0]}
    compared = compare(systems, test=data, measures="ndcg@5")
    easy = np.argsort(-compared.evaluations["bad"]["ndcg@5"])[:20]
    queries = list(grades)
    chosen = by_humans(compared, {queries[place]: grades[queries[place]] for place in easy.tolist()})
    assert "no random sample" in " ".join(chosen.said("ndcg@5"))
    shallow = {query: {each: own[each] for each in ("d0", "d1")} for query, own in grades.items()}
    assert "Judge the first documents of every method" in " ".join(by_humans(compared, shallow).said("ndcg@5"))
    more = by_humans(compared, {"elsewhere": {"d0": 1}, **grades})
    assert more.left_out == 1
    with pytest.raises(DataError, match=r"Of 1 query that people judged, 0 are among the 60 test queries"):
        by_humans(compared, {"elsewhere": {"d0": 1}})
    with pytest.raises(DataError, match="two or more"):
        estimate(np.ones(1), np.ones(5), np.array([0]))


def test_the_command_says_who_wins_by_people(tmp_path: Path) -> None:
    data, grades, _ = world(120)
    write_letor(tmp_path / "data.txt", data)
    few = list(grades)[::3]
    write_judgements(tmp_path / "few.qrels", few, [grades[query] for query in few])
    for name, column in (("good", 0), ("bad", 1)):
        (tmp_path / f"{name}.txt").write_text(
            "".join(f"{each!r}\n" for each in data.candidates.features[:, column].tolist())
        )
    asked = ("compare", "data.txt", "--methods", "none", "--scores", "bad=bad.txt", "--scores", "good=good.txt")
    plain = json.loads(output(run(tmp_path, *asked, "--measures", "ndcg@10", "--json")))
    assert plain["verdict"].startswith("Nothing beats bad here")
    people = (*asked, "--measures", "ndcg@10", "--human", "few.qrels")
    found = json.loads(output(run(tmp_path, *people, "--json")))
    assert found["verdict"].startswith("good is better than bad")
    assert found["human"]["human_queries"] == 40
    assert 0 < found["human"]["differences"]["good"]["ndcg@10"]["weight"] <= 1
    shown = output(run(tmp_path, *people, "--out", "report", "--quiet"))
    assert "λ" in shown
    assert "By the cheap labels alone good would be worse than bad" in " ".join(shown.split())
    page = (tmp_path / "report" / "report.md").read_text()
    assert "## Human judgments" in page
    assert "prediction-powered t-test" in page
    assert (tmp_path / "report" / "human-differences.csv").is_file()
    assert "with judgments by people the test is a t-test" in refused(run(tmp_path, *people, "--test", "wilcoxon"))
    (tmp_path / "empty.qrels").write_text("")
    assert "holds no judgment" in refused(run(tmp_path, *asked, "--human", "empty.qrels"))
