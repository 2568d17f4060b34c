"""Near-duplicates: found by every rule, told in every comparison, and kept together where that is asked for."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.folds import Fold, make_folds
from querywise.data.frames import from_arrays
from querywise.data.judged import Candidates, Judged
from querywise.data.letor import write_letor
from querywise.data.query_table import QueryTable, read_queries, write_queries
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, Hint
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.findings import as_json, findings
from querywise.evaluation.foreign import System
from querywise.evaluation.trained import Fit
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.rankers.single import OneFeature
from querywise.report.writing import write_report
from querywise.retrieval.twins import NearTwins, TwinFacts, _one_edit, grouped_by, near_groups
from tests.commands import run
from tests.worlds import REAL_DATA, examples, needs_real_data

ALONE = (
    *("red wine glass", "how old is the sun", "python list sort", "berlin weather", "tax return form"),
    *("guitar chords", "bake bread", "flights to rome", "knee pain", "cheap laptops", "map of peru", "chess openings"),
)


def facts(*texts: str | None, vectors: list[list[float]] | None = None) -> TwinFacts:
    nothing, count = (None,) * len(texts), len(texts)
    found = np.zeros((count, 0)) if vectors is None else np.array(vectors)
    return TwinFacts(tuple(map(str, range(count))), texts, nothing, nothing, found.astype(np.float32))


def are_twins(known: TwinFacts) -> bool:
    near = NearTwins(known)
    one = bool(near.among(np.array([0]), np.array([1]))[0] == 1)
    assert one == (near.components()[0] == near.components()[1])
    return one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("big cats", "cats big"),
        ("Running shoes!", "shoe run"),
        ("insidious 2", "insidious 3"),
        ("harry poter", "harry potter"),
        ("aabb", "cabb"),  # the letter that differs is one of two alike
        ("straße", "strasse"),
    ],
)
def test_words_in_another_order_or_one_edit_apart_make_near_twins(one: str, other: str) -> None:
    assert are_twins(facts(one, other))
    assert are_twins(facts(other, one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("new york new york", "new york"),
        ("insidious chapter 2", "insidious 2"),
        ("it", "if"),  # too short to tell
        ("form", "from it"),
        ("big cats", None),
        (None, None),
        ("", ""),
        ("?", "!"),
    ],
)
def test_other_words_do_not(one: str | None, other: str | None) -> None:
    assert not are_twins(facts(one, other))


def test_vectors_make_near_twins_above_a_cosine_of_0_95() -> None:
    assert are_twins(facts("a", "b", vectors=[[1.0, 0.0], [0.96, np.sqrt(1 - 0.96**2)]]))
    assert not are_twins(facts("a", "b", vectors=[[1.0, 0.0], [0.94, np.sqrt(1 - 0.94**2)]]))
    assert not are_twins(facts("a", "b", vectors=[[0.0, 0.0], [0.0, 0.0]]))


def test_the_same_relevant_documents_make_near_twins() -> None:
    rows = [("a", "D1", 1), ("a", "D2", 0), ("b", "D3", 0), ("b", "D1", 2), ("c", "D2", 1), ("d", "D2", 0)]
    qid, documents, labels = zip(*rows, strict=True)
    data = from_arrays([[1.0]] * 6, labels, qid=qid, document_ids=documents)
    assert near_groups(data) == ("a", "a", None, None)
    wider = data.with_judgements({"a": {"D1": 1, "D9": 1}, "b": {"D1": 2}, "c": {"D2": 1}})
    assert near_groups(wider) == (None,) * 4


def edits(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, start=1):
        last, row[0] = row[0], place
        for column, their in enumerate(other, start=1):
            last, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, last + (letter != their))
    return row[-1]


@settings(max_examples=examples(100), deadline=None)
@given(texts=st.lists(st.text("abc", min_size=4, max_size=8), min_size=2, max_size=12, unique=True))
def test_one_edit_is_what_the_distance_of_levenshtein_says(texts: list[str]) -> None:
    found = {frozenset((one, other)) for same in _one_edit(texts) for one in same for other in same if one != other}
    assert found == {frozenset((one, other)) for one in texts for other in texts if edits(one, other) == 1}


def test_a_query_is_not_its_own_twin_and_chains_are_one_component() -> None:
    near = NearTwins(facts("rocky 1", "rocky 2", "rocky 23", "big cats", "cats big"))
    every = np.arange(5)
    assert near.among(every, every).tolist() == [1, 0, 1, 4, 3]
    assert near.components().tolist() == [0, 0, 0, 1, 1]
    assert near.among(np.array([3]), np.array([3])).tolist() == [-1]


def test_the_same_components_come_of_many_vectors_as_of_each_pair() -> None:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(40, 12))
    vectors = (centers[rng.integers(40, size=1500)] + 0.05 * rng.normal(size=(1500, 12))).tolist()
    known = facts(*[None] * 1500, vectors=vectors)
    unit = np.array(vectors) / np.linalg.norm(vectors, axis=1)[:, None]
    known = replace(known, vectors=unit.astype(np.float32))
    assert len(set(NearTwins(known).components().tolist())) == len(
        {tuple(row) for row in (np.abs(unit @ unit.T) > 0.95).astype(int).tolist()}
    )


# In comparisons


def world(texts: tuple[str, ...], *, groups: tuple[str | None, ...] | None = None) -> Judged:
    data = make_judged(len(texts), 6, 3, seed=3)
    return data.with_queries(QueryTable(data.query_ids, texts=texts, groups=groups))


TWINS = tuple(each for text in ALONE for each in (f"{text} today", f"today {text}"))


def compared(data: Judged) -> Compared:
    systems: dict[str, Fit | System] = {"svm": RankSVM(), "first": OneFeature(0), "second": OneFeature(1)}
    return compare(systems, make_folds(data), measures=["map", "ndcg@10"])


def test_a_comparison_says_how_many_test_queries_have_a_near_twin_and_what_is_gained_there() -> None:
    found = compared(world((*TWINS, *ALONE)))
    assert found.twins is not None
    assert 12 <= found.twins.found.sum() <= 24
    assert not found.twins.found[[text in ALONE for text in _texts(found.judged)]].any()
    count = int(found.twins.found.sum())
    assert found.twins.text.startswith(
        f"{count} of 36 test queries ({100 * count / 36:.1f} %) have a near-duplicate among the queries that the "
        "methods "
        "learned from, such as “"
    )
    assert found.twins.example is not None
    assert sorted(found.twins.example[0].split()) == sorted(found.twins.example[1].split())
    assert found.twins.text in repr(found)
    gain = found.on_twins("map")["first"]
    assert gain.twins is not None and gain.rest is not None  # noqa: PT018
    ours, theirs = (found.evaluations[name]["map"] for name in ("first", "svm"))
    assert gain.twins.difference == pytest.approx((ours - theirs)[found.twins.found].mean())
    whole = count * gain.twins.difference + (36 - count) * gain.rest.difference
    assert whole == pytest.approx((ours - theirs).sum())
    told = found.as_json()["near_twins"]
    assert isinstance(told, dict)
    assert (told["queries"], told["share"], told["groups"]) == (count, count / 36, 0)
    assert as_json(findings(found, "map"))["near_twins"] == told


def _texts(data: Judged) -> tuple[str | None, ...]:
    assert data.candidates.queries is not None
    return data.candidates.queries.texts or ()


def test_nothing_is_said_where_nothing_leaks() -> None:
    found = compared(world(ALONE))
    assert found.twins is not None
    assert found.twins.text == ""
    assert "near_twins" not in found.as_json()
    assert "twin" not in repr(found)
    assert found.on_twins("map") == {}


def test_nothing_leaks_into_what_was_fitted_before() -> None:
    data = world(TWINS)
    assert compare({"svm": RankSVM().fit(data), "first": lambda X: X[:, 0]}, test=data).twins is None


def test_groups_that_are_kept_together_are_told_in_one_line() -> None:
    data = world((*TWINS, *ALONE))
    found = compared(data.with_groups(near_groups(data)))
    assert found.twins is not None
    assert found.twins.text == "Folds keep the 12 groups of queries together."
    assert not found.twins.is_told


def test_a_group_on_two_sides_of_given_folds_is_told() -> None:
    data = world(ALONE, groups=("g1", "g2", "g3", "g4") * 3)
    fold = Fold(data.select(range(6)), data.select([6, 7]), data.select([8, 9, 10, 11]))
    found = compare({"svm": RankSVM(), "first": OneFeature(0)}, [fold])
    assert found.twins is not None
    assert (found.twins.split, int(found.twins.found.sum())) == (4, 4)
    assert "4 of 4 test queries (100.0 %) have a near-duplicate or a query of their group among" in repr(found)
    gain = found.on_twins("map")["first"]
    assert gain.rest is None
    assert gain.twins is not None


def test_a_report_has_a_section_on_near_twins_and_warns_on_its_first_screen(tmp_path: Path) -> None:
    found = findings(compared(world((*TWINS, *ALONE))), "map")
    assert found.compared.twins is not None
    write_report(found, tmp_path, title="Twins")
    page, markdown = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    assert '<section id="twins"><h2>Near-duplicates</h2>' in page
    assert page.index("have a near-duplicate among") < page.index("Winner")
    assert found.compared.twins.text in markdown
    assert "| first | " in markdown[markdown.index("## Near-duplicates") :]
    header, *rows = (tmp_path / "near-twins.csv").read_text().splitlines()
    assert header.startswith("method,")
    assert [row.split(",")[0] for row in rows] == ["first", "second"]
    write_report(findings(compared(world(ALONE)), "map"), tmp_path, title="None")
    assert not (tmp_path / "near-twins.csv").exists()
    assert "Near-duplicates" not in (tmp_path / "report.html").read_text()


# Folds by near-duplicates


@pytest.fixture
def place(tmp_path: Path) -> Path:
    data = world((*TWINS, *ALONE))
    write_letor(tmp_path / "train.txt", data)
    assert data.candidates.queries is not None
    write_queries(tmp_path / "queries.jsonl", data.candidates.queries)
    return tmp_path


def asked(place: Path, *more: str) -> str:
    done = run(place, "compare", "train.txt", "--methods", "single,ranksvm", "--set", "l2=1.0", "--quiet", *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_says_what_leaks_and_folds_by_near_twins(place: Path) -> None:
    by_query = " ".join(asked(place).split())
    assert "have a near-duplicate among the queries that the methods learned from, such as" in by_query
    assert "compare again by near groups (group-by near), or give groups in queries.jsonl." in by_query
    told = json.loads(asked(place, "--json"))["near_twins"]
    assert told["queries"] > 0
    assert set(told["methods"]) == {"ranksvm"}
    near = json.loads(asked(place, "--json", "--group-by", "near"))["near_twins"]
    assert (near["queries"], near["groups"], near["methods"]) == (0, 12, {})
    assert "Folds keep the 12 groups of queries together." in " ".join(asked(place, "--group-by", "near").split())


def test_groups_can_be_left_out_of_account(place: Path) -> None:
    table = read_queries(place / "queries.jsonl")
    write_queries(place / "queries.jsonl", replace(table, groups=tuple(str(row // 2) for row in range(len(table)))))
    assert "Folds keep the 18 groups" in " ".join(asked(place).split())
    assert "have a near-duplicate" in " ".join(asked(place, "--group-by", "query").split())


def test_the_command_line_folds_by_time(place: Path) -> None:
    table = read_queries(place / "queries.jsonl")
    dates = np.arange(float(len(table)))[:, None]
    write_queries(place / "queries.jsonl", replace(table, columns=dates, column_names=("date",)))
    assert json.loads(asked(place, "--json", "--by-time", "date"))["queries"] == 26  # five of seven parts
    done = run(place, "compare", "train.txt", "--by-time", "day")
    assert done.returncode == 2
    assert "--by-time day is no column of the query data; it has date." in " ".join(done.stderr.split())


def test_what_group_by_cannot_do_is_refused(place: Path) -> None:
    done = run(place, "compare", "train.txt", "--group-by", "film")
    assert done.returncode == 2
    assert "--group-by film is unknown. Known: group, query, near." in done.stderr
    for part in range(1, 6):
        (place / f"S{part}.txt").write_text(f"1 qid:{part} 1:0.5\n")
    (place / "queries.jsonl").unlink()
    done = run(place, "compare", ".", "--group-by", "near")
    assert done.returncode == 2
    assert "these folds already exist and are used as they are" in " ".join(done.stderr.split())
    done = run(place, "compare", ".", "--by-time", "date")
    assert done.returncode == 2
    assert "are used as they are; --by-time date is for one file" in " ".join(done.stderr.split())
    with pytest.raises(DataError, match=r"^Near-duplicates are found by the texts or vectors of queries, or by"):
        near_groups(make_judged(5, 4, 3))


def test_a_chain_of_more_than_a_twentieth_of_the_queries_is_told() -> None:
    chain = world((*(f"rocky {number}" for number in range(5)), *ALONE))
    with pytest.warns(
        Hint, match=r"^One chain of near-duplicates has 5 of 17 queries \(29\.4 %\): .* rule is too loose here"
    ):
        grouped = grouped_by(chain, "near")
    assert grouped.groups.tolist()[:6] == [0, 0, 0, 0, 0, 1]
    found = compared(grouped)
    assert found.twins is not None
    assert found.twins.text.endswith(" The largest group has 5 of 17 queries.")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grouped_by(world(TWINS), "near")
        grouped_by(chain.with_groups(["rocky"] * 5 + [None] * len(ALONE)), "near")  # no chain: they were given so


def test_given_groups_stay_together_among_near_twins() -> None:
    data = world(("big cats", "cats big", "jaguar", "lion"), groups=("a", None, "a", None))
    assert near_groups(data) == ("q1", "q1", "q1", None)


@needs_real_data
def test_near_twins_of_a_search_for_films_mostly_mean_one_film() -> None:
    table = read_queries(REAL_DATA / "msrd" / "queries.jsonl")
    assert table.groups is not None
    count = len(table)
    data = Judged(Candidates(np.zeros((count, 1)), np.arange(count + 1), table.ids), np.zeros(count, np.int64))
    plain_data = data.with_queries(replace(table, groups=None))
    near = NearTwins(TwinFacts.of(plain_data))
    components = near.components()
    assert np.bincount(components).max() < 0.05 * count
    twin = near.among(np.arange(count), np.arange(count))
    assert 1_500 < (twin >= 0).sum() < 3_000
    same = [table.groups[query] == table.groups[other] for query, other in enumerate(twin) if other >= 0]
    assert np.mean(same) > 0.6
