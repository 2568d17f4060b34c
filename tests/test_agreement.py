"""Agreement of cheap labels with people's: known coefficients, intervals that hold, and whether labels may choose."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from querywise.data.judgements import Grades, write_judgements
from querywise.data.run_columns import Run
from querywise.data.runs import write_list
from querywise.errors import DataError
from querywise.evaluation.agreement import agree
from tests.commands import output, refused, run
from tests.worlds import examples

DOCUMENTS = 20
Labels = dict[str, dict[str, int]]


def world(
    queries: int = 120, *, liked: str = "", noise: float = 0.2, every: int = 3, seed: int = 0
) -> tuple[Labels, Labels, list[Run]]:
    """Cheap labels of all queries, human ones of some, and two runs; a judge may like what one of them puts first."""
    chance = np.random.default_rng(seed)
    cheap: Labels = {}
    human: Labels = {}
    scores: dict[str, dict[str, dict[str, float]]] = {"good": {}, "bad": {}}
    for number in range(queries):
        relevance = chance.normal(size=DOCUMENTS)
        grades = np.clip(np.floor(relevance + 1), 0, 3).astype(np.int64)
        lists = {
            "good": relevance + chance.normal(0, 0.7, DOCUMENTS),
            "bad": relevance + chance.normal(0, 1.5, DOCUMENTS),
        }
        ids = [f"d{number}-{place}" for place in range(DOCUMENTS)]
        erring = np.where(chance.random(DOCUMENTS) < noise, chance.integers(0, 4, DOCUMENTS), grades)
        if liked:
            erring = np.where((-lists[liked]).argsort().argsort() < 3, 3, erring)
        name = f"q{number}"
        cheap[name] = dict(zip(ids, erring.tolist(), strict=True))
        if number % every == 0:
            human[name] = dict(zip(ids, grades.tolist(), strict=True))
        for system, own in lists.items():
            scores[system][name] = dict(zip(ids, own.tolist(), strict=True))
    return cheap, human, [Run(name, own) for name, own in scores.items()]


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12), st.floats(0, 1))
def test_coefficients_are_those_of_scikit_learn(seed: int, queries: int, noise: float) -> None:
    cheap, human, _ = world(queries, every=1, noise=noise, seed=seed)
    ours = [grade for query in human for grade in human[query].values()]
    theirs = [cheap[query][document] for query in human for document in human[query]]
    found = agree(cheap, human)
    assert found.measures["kappa"].value == pytest.approx(cohen_kappa_score(ours, theirs))
    assert found.measures["weighted kappa"].value == pytest.approx(cohen_kappa_score(ours, theirs, weights="quadratic"))
    relevant = cohen_kappa_score(np.array(ours) > 0, np.array(theirs) > 0)
    assert found.measures["kappa of grade 1 and above"].value == pytest.approx(relevant)
    assert found.measures["same grade"].value == pytest.approx(np.mean(np.array(ours) == theirs))
    assert found.confusion.sum() == found.pairs == len(ours)
    for each in found.measures.values():
        assert each.low <= each.high


def test_equal_labels_agree_and_may_choose() -> None:
    _, human, runs = world(every=1)
    found = agree(human, human, runs=runs)
    assert found.measures["kappa"].value == 1
    assert list(found.measures["bias (cheap grade less human grade)"]) == [0, 0, 0]
    (choice,) = found.choices
    assert (choice.answer, choice.bias.value) == ("yes", 0)
    assert found.said()[0].startswith("Yes, these labels may choose between good and bad: ndcg@10 +")


def test_a_judge_that_likes_one_system_may_not_choose_and_is_told_to_lean_to_it() -> None:
    cheap, human, runs = world(liked="bad")
    found = agree(cheap, human, runs=runs)
    (choice,) = found.choices
    assert choice.cheap < 0 < choice.human
    assert choice.p < 0.01
    assert choice.answer == "no"
    assert found.said()[0].startswith("No, these labels may not choose between good and bad: they favor bad, by -")
    by_system = {each.name: each.leaning for each in found.slices if each.kind.startswith("system")}
    assert by_system["bad alone"].low > 0 > by_system["good alone"].high
    assert any("cheap labels lean to bad alone" in each for each in found.said())


@pytest.mark.slow
def test_errors_at_random_are_no_leaning_although_the_better_system_finds_more_to_lose() -> None:
    """A noisy judge lowers high grades and raises low ones, so its plain bias differs between systems."""
    biases, leanings = [], []
    for seed in range(30):
        cheap, human, runs = world(60, noise=0.6, every=2, seed=seed)
        found = agree(cheap, human, runs=runs)
        own = next(each for each in found.slices if each.name == "all of them")
        biases.append(own.bias.high < found.measures["bias (cheap grade less human grade)"].value)
        leanings.append(own.leaning.low <= 0 <= own.leaning.high)
    assert sum(biases) > 25
    assert sum(leanings) >= 25


def test_few_human_queries_leave_it_open_and_say_how_many_would_tell() -> None:
    cheap, human, runs = world(400, noise=0.5, every=1)
    close = Run(
        "good too",
        {query: {d: s + 0.3 * (hash_of(d) % 3) for d, s in own.items()} for query, own in runs[0].scores.items()},
    )
    few = {query: human[query] for query in list(human)[:8]}
    choice = agree(cheap, few, runs=[runs[0], close]).choices[0]
    said = choice.said(8)
    assert choice.answer == "unknown"
    assert said.startswith("Nobody knows yet whether these labels may choose between good and good too")
    assert choice.needed is None or choice.needed > 8


def hash_of(text: str) -> int:
    return sum(map(ord, text))


@pytest.mark.slow
def test_intervals_hold_and_depend_on_nothing_but_the_labels() -> None:
    whole = agree(*world(3_000, every=1, liked="bad")[:2]).measures
    held: dict[str, list[bool]] = {name: [] for name in whole}
    for seed in range(1, 101):
        found = agree(*world(60, every=1, liked="bad", seed=seed)[:2]).measures
        for name, each in found.items():
            held[name].append(each.low <= whole[name].value <= each.high)
    assert all(86 <= sum(each) <= 100 for each in held.values()), {name: sum(each) for name, each in held.items()}
    cheap, human, runs = world()
    assert agree(cheap, human, runs=runs).as_json() == agree(cheap, human, runs=runs).as_json()


def test_the_order_of_the_files_does_not_matter() -> None:
    cheap, human, runs = world(30)
    turned = [{query: own[query] for query in reversed(own)} for own in (cheap, human)]
    one, other = agree(cheap, human, runs=runs), agree(*turned, runs=runs)
    assert one.measures == other.measures
    assert [each.leaning for each in one.slices] == [each.leaning for each in other.slices]
    assert one.choices[0].bias == pytest.approx(other.choices[0].bias)


def test_pairs_are_cut_by_kind_length_and_rank() -> None:
    cheap, human, runs = world()
    classes = {query: "odd" if int(query[1:]) % 2 else "even" for query in human}
    for query, own in cheap.items():
        if classes.get(query) == "odd":
            own.update({document: min(grade + 1, 3) for document, grade in own.items()})
    lengths = {document: 10 + number for own in human.values() for number, document in enumerate(own)}
    words = {query: 1 + int(query[1:]) % 5 for query in human}
    found = agree(cheap, human, runs=runs, classes=classes, words=words, lengths=lengths)
    kinds = list(dict.fromkeys(each.kind for each in found.slices))
    system = "system that found it in its first 10"
    assert kinds == ["kind of query", "words of the query", "words of the document", "best rank", system]
    for kind in kinds:
        assert sum(each.pairs for each in found.slices if each.kind == kind) == found.pairs
    by_class = {each.name: each for each in found.slices if each.kind == "kind of query"}
    assert by_class["odd"].leaning.low > 0 > by_class["even"].leaning.high


@pytest.mark.parametrize(
    ("cheap", "human", "message"),
    [
        ({"a": {"d": 1}}, {"b": {"d": 1}}, "0 of 1 query that people judged have a document with both labels; two or"),
        (
            {"a": {f"d{n}": n for n in range(30)}, "b": {"d": 1}},
            {"a": {f"d{n}": 0 for n in range(30)}, "b": {"d": 1}},
            "The labels have 30 different grades together; expected 20 at most.",
        ),
    ],
)
def test_labels_that_cannot_be_compared_are_refused(cheap: Grades, human: Grades, message: str) -> None:
    with pytest.raises(DataError, match=message):
        agree(cheap, human)


def test_the_command_prints_tables_and_the_answer(tmp_path: Path) -> None:
    cheap, human, runs = world(liked="bad")
    for name, labels in (("cheap", cheap), ("human", human)):
        write_judgements(tmp_path / f"{name}.qrels", tuple(labels), tuple(labels.values()))
    for each in runs:
        write_list(tmp_path / f"{each.name}.trec", each)
    texts = [json.dumps({"_id": query, "text": "word " * (1 + len(query)), "class": query[-1]}) for query in cheap]
    (tmp_path / "queries.jsonl").write_text("\n".join(texts))
    corpus = [json.dumps({"_id": d, "text": "word " * (5 + n)}) for own in cheap.values() for n, d in enumerate(own)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(corpus))
    words = ("agree", "cheap.qrels", "human.qrels", "--run", "good.trec", "--run", "bad.trec", "--collection", ".")
    shown = output(run(tmp_path, *words))
    for said in ("weighted kappa", "kind of query", "words of the document", "No, these labels may not choose"):
        assert said in shown
    found = json.loads(output(run(tmp_path, *words, "--json")))
    assert found["choices"][0]["answer"] == "no"
    assert "name two or more" in output(run(tmp_path, "agree", "cheap.qrels", "human.qrels"))
    shallow = {query: dict(list(own.items())[:9]) for query, own in human.items()}
    write_judgements(tmp_path / "human.qrels", tuple(shallow), tuple(shallow.values()))
    assert "Caution: people judged" in output(run(tmp_path, *words))
    same = ("--run", "good.trec", "--run", "good.trec")
    assert "Two runs are called 'good'" in refused(run(tmp_path, "agree", "cheap.qrels", "human.qrels", *same))
    assert "human.qrels:1" not in refused(run(tmp_path, "agree", "cheap.qrels", "nowhere.qrels"))
