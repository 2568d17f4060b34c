from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querywise.data.frames import from_arrays
from querywise.data.judged import Candidates, Judged
from querywise.data.letor import read_letor
from querywise.errors import DataError
from querywise.evaluation.evaluate import Evaluation, evaluate
from querywise.measures.formulas import expected_reciprocal_rank, find_measure
from querywise.measures.order import FLAVOURS, RankedList
from querywise.measures.score_files import read_scores
from querywise.runtime.arrays import Floats, Ints
from tests.worlds import GOLDEN


def one_list(labels: list[int], measure: str, flavour: str = "standard") -> float:
    """The measure of one list, its labels already in ranked order."""
    conventions = replace(FLAVOURS[flavour], max_grade=max(labels, default=0))
    return find_measure(measure).of(RankedList(np.array(labels, dtype=np.int64)), conventions)


def golden_blocks(flavour: str) -> list[list[list[str]]]:
    text = (GOLDEN / flavour / "expected.txt").read_text()
    blocks = [[line.split("\t") for line in block.splitlines() if line] for block in text.split("\n\n")]
    return [block for block in blocks if block]


@pytest.mark.parametrize("flavour", ["letor4", "mslr"])
def test_every_value_the_official_evaluator_prints_is_ours_to_four_decimals(flavour: str) -> None:
    data = read_letor(GOLDEN / flavour / "judged.txt")
    scores = read_scores(GOLDEN / flavour / "scores.txt", data.candidates)
    blocks = golden_blocks(flavour)
    assert len(blocks) == 2, "precision with MAP, and NDCG"
    for heading, *rows in blocks:
        names = [name.lower().replace("meanndcg", "mean_ndcg") for name in heading[1:]]
        ours = evaluate(scores, data, measures=names, flavour=flavour)
        assert [row[0] for row in rows] == [*ours.query_ids, "Average"]
        table = np.vstack([ours.values, list(ours.mean().values())])
        expected = np.array([row[1:] for row in rows], dtype=np.float64)
        assert np.abs(table - expected).max() <= 0.5e-4 + 1e-12


def test_average_precision_is_its_formula() -> None:
    assert one_list([0, 1, 0, 2], "map") == (1 / 2 + 2 / 4) / 2


def test_the_flavours_differ_where_they_say_they_do() -> None:
    log = np.log2
    labels = [0, 2, 1]
    standard = (3 / log(3) + 1 / log(4)) / (3 / log(2) + 1 / log(3))
    letor = (3 / 1 + 1 / log(3)) / (3 + 1)
    linear = (2 / log(3) + 1 / log(4)) / (2 / log(2) + 1 / log(3))
    assert one_list(labels, "ndcg@3", "standard") == pytest.approx(standard, rel=1e-15)
    assert one_list(labels, "ndcg@3", "letor4") == pytest.approx(letor, rel=1e-15)
    assert one_list(labels, "ndcg@3", "trec") == pytest.approx(linear, rel=1e-15)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("measure", ["map", "ndcg", "ndcg@2", "ndcg@9", "mean_ndcg", "mean_ndcg@3"])
def test_a_list_without_a_relevant_document_counts_what_its_flavour_says(flavour: str, measure: str) -> None:
    expected = FLAVOURS[flavour].without_relevant
    if measure == "ndcg@9" and flavour in ("letor4", "mslr"):
        expected = 0.0
    assert one_list([0, 0, 0], measure, flavour) == expected


def test_ndcg_beyond_the_end_is_the_whole_list_or_a_hole() -> None:
    assert one_list([1, 0], "ndcg@5", "standard") == 1.0
    assert one_list([1, 0], "ndcg@5", "letor4") == 0.0
    assert one_list([1, 0], "mean_ndcg@4", "standard") == 1.0
    assert one_list([0, 0, 1], "mean_ndcg@4", "standard") == pytest.approx((0 + 0 + 0.5 + 0.5) / 4)
    assert one_list([1, 0], "mean_ndcg@4", "letor4") == 2 / 4
    assert one_list([1, 0], "mean_ndcg", "letor4") == 1.0


def test_mslr_calls_documents_relevant_from_label_two_on() -> None:
    assert one_list([1, 2], "map", "mslr") == 1 / 2
    assert one_list([1, 2], "map", "letor4") == 1.0


def test_precision_counts_positions_beyond_the_end_as_not_relevant() -> None:
    assert one_list([1, 1], "p@4") == 2 / 4


def test_reciprocal_rank_and_its_cut() -> None:
    assert one_list([0, 0, 1], "mrr") == 1 / 3
    assert one_list([0, 0, 1], "mrr@2") == 0.0


def test_the_highest_grade_of_expected_reciprocal_rank_is_the_lists_own_where_none_is_set() -> None:
    found = expected_reciprocal_rank(RankedList(np.array([2, 0, 1])), None, FLAVOURS["standard"])
    assert found == pytest.approx(3 / 4 + (1 - 3 / 4) * 1 / 4 / 3)


def test_expected_reciprocal_rank_is_its_formula() -> None:
    stop = [(2**label - 1) / 2**2 for label in (1, 2, 0)]
    expected = stop[0] + (1 - stop[0]) * stop[1] / 2 + (1 - stop[0]) * (1 - stop[1]) * stop[2] / 3
    assert one_list([1, 2, 0], "err") == pytest.approx(expected, rel=1e-15)


def test_any_grade_is_legal_even_where_two_to_its_power_is_beyond_counting() -> None:
    assert one_list([900, 3, 0], "err") == pytest.approx(1.0)
    assert one_list([900, 3, 0], "ndcg@3") == 1.0


lists_of_labels = st.lists(st.integers(0, 4), min_size=1, max_size=30)


@given(lists_of_labels, st.sampled_from(["map", "mrr", "p@5", "ndcg", "ndcg@7", "mean_ndcg", "mean_ndcg@10", "err"]))
def test_every_measure_lies_between_zero_and_one(labels: list[int], measure: str) -> None:
    for flavour in FLAVOURS:
        assert 0 <= one_list(labels, measure, flavour) <= 1 + 1e-12


@given(lists_of_labels)
def test_the_best_order_is_worth_one(labels: list[int]) -> None:
    best = sorted(labels, reverse=True)
    if best[0] > 0:
        assert one_list(best, "ndcg") == pytest.approx(1.0, rel=1e-14)
        assert one_list(best, "map") == 1.0


@given(lists_of_labels, st.randoms())
def test_a_swap_that_lifts_a_better_document_never_hurts(labels: list[int], random: object) -> None:
    for i in range(len(labels) - 1):
        if labels[i] < labels[i + 1]:
            lifted = [*labels[:i], labels[i + 1], labels[i], *labels[i + 2 :]]
            for measure in ("map", "ndcg", "mean_ndcg", "err", "mrr"):
                assert one_list(lifted, measure) >= one_list(labels, measure) - 1e-12
            break


def random_set(seed: int = 0, queries: int = 40) -> tuple[Floats, Judged]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 20, size=queries)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    labels = rng.integers(0, 3, size=starts[-1]) * rng.integers(0, 2, size=starts[-1])
    data = Judged(Candidates(np.zeros((starts[-1], 1)), starts, tuple(map(str, range(queries)))), labels)
    return rng.normal(size=starts[-1]), data


def test_the_lightgbm_flavour_is_what_lightgbm_prints() -> None:
    import lightgbm

    scores, data = random_set()
    sizes = data.candidates.sizes
    # Trees that reproduce the scores would hide the evaluator; an initial score and no tree shows it bare.
    dataset = lightgbm.Dataset(np.zeros((len(scores), 1)), label=data.labels, group=sizes, init_score=scores)
    found: dict[str, dict[str, list[float]]] = {}
    lightgbm.train(
        {"objective": "lambdarank", "metric": ["ndcg", "map"], "eval_at": [3, 10], "verbose": -1, "min_data_in_bin": 1},
        dataset,
        num_boost_round=1,
        valid_sets=[dataset],
        callbacks=[lightgbm.record_evaluation(found)],
    )
    ours = evaluate(scores, data, measures=["ndcg@3", "ndcg@10", "map"], flavour="lightgbm").mean()
    theirs = {name: values[0] for name, values in found["training"].items()}
    assert ours["ndcg@3"] == pytest.approx(theirs["ndcg@3"], abs=1e-9)
    assert ours["ndcg@10"] == pytest.approx(theirs["ndcg@10"], abs=1e-9)


def test_standard_and_trec_ndcg_agree_with_scikit_learn() -> None:
    from sklearn.metrics import ndcg_score

    scores, data = random_set()
    for flavour in ("standard", "trec"):
        gains = 2**data.labels - 1 if flavour == "standard" else data.labels
        ours = evaluate(scores, data, measures=["ndcg@5"], flavour=flavour)
        for query in range(len(data)):
            rows = data.candidates.rows(query)
            if len(scores[rows]) > 1:
                theirs = ndcg_score([gains[rows]], [scores[rows]], k=5)
                assert ours.values[query, 0] == pytest.approx(theirs, abs=1e-12)


def test_the_order_of_queries_does_not_matter() -> None:
    scores, data = random_set()
    turned = np.random.default_rng(1).permutation(len(data))
    rows = np.concatenate([np.arange(*data.candidates.rows(int(query)).indices(len(scores))) for query in turned])
    straight = evaluate(scores, data, measures=["map", "ndcg@10"])
    shuffled = evaluate(scores[rows], data.select(turned), measures=["map", "ndcg@10"])
    assert np.array_equal(shuffled.values, straight.values[turned])


def tied(ids: list[str], labels: Ints) -> Judged:
    return from_arrays(np.zeros((len(ids), 1)), labels, qid=["q"] * len(ids), document_ids=ids)


def test_ties_keep_file_order_except_in_trec_where_the_last_id_comes_first() -> None:
    data = tied(["a", "c", "b"], np.array([1, 0, 0]))
    assert evaluate(np.zeros(3), data, measures=["mrr"]).mean() == {"mrr": 1.0}
    assert evaluate(np.zeros(3), data, measures=["mrr"], flavour="trec").mean() == {"mrr": 1 / 3}


def test_a_query_without_documents_counts_zero_and_stays() -> None:
    data = Judged(Candidates(np.ones((1, 1)), np.array([0, 0, 1]), ("empty", "full")), np.array([1]))
    table = evaluate(np.ones(1), data, measures=["map", "ndcg@5", "p@1", "err", "mrr", "dcg", "mean_ndcg"])
    assert np.all(table.values[0] == 0)
    assert table.mean()["map"] == 0.5


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fallout", "Unknown measure 'fallout'. Known: map, mrr or mrr@k, p@k"),
        ("p", "is written p@k"),
        ("map@5", "is written map"),
        ("ndcg@0", "Unknown measure"),
        ("ndcg@ten", "Unknown measure"),
    ],
)
def test_an_unknown_measure_is_named_with_the_known_ones(name: str, words: str) -> None:
    with pytest.raises(DataError, match=words.replace(".", r"\.")):
        find_measure(name)


def test_an_unknown_flavour_is_named_with_the_known_ones() -> None:
    scores, data = random_set()
    with pytest.raises(DataError, match="Known: standard, letor4, mslr, trec, lightgbm"):
        evaluate(scores, data, flavour="ranklib")


def test_scores_of_another_length_or_not_finite_are_refused() -> None:
    scores, data = random_set()
    with pytest.raises(DataError, match=rf"There are {len(scores)} documents but {len(scores) - 1} scores"):
        evaluate(scores[1:], data)
    scores[3] = np.nan
    with pytest.raises(DataError, match="The score of document 4 is nan"):
        evaluate(scores, data)


def test_the_table_is_written_exactly(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    scores, data = random_set()
    table = evaluate(scores, data, measures=["map", "ndcg@10"])
    table.write_csv(folder / "out.csv")
    lines = (folder / "out.csv").read_text().splitlines()
    assert lines[0] == "query,map,ndcg@10"
    assert np.array_equal([[float(cell) for cell in line.split(",")[1:]] for line in lines[1:]], table.values)
    table.write_json(folder / "out.json")
    import json

    content = json.loads((folder / "out.json").read_text())
    assert content["mean"] == table.mean()
    assert content["flavour"] == "standard"
    assert content["queries"]["0"]["map"] == table["map"][0]


def test_a_measure_that_was_not_evaluated_is_refused_with_those_that_were() -> None:
    table = Evaluation(("q",), ("map",), np.zeros((1, 1)), "standard")
    with pytest.raises(DataError, match="Evaluated: map"):
        table["ndcg@10"]


# Any list, in any flavour


RANGES = {"dcg": (0.0, np.inf)}
ANY = [
    "map", "mrr", "mrr@3", "p@1", "p@7", "ndcg", "ndcg@3", "mean_ndcg", "mean_ndcg@4", "dcg", "dcg@2", "err", "err@2",
    "recall", "recall@3", "r_precision", "bpref", "success@2", "rbp", "rbp@2", "judged@3",
]  # fmt: skip
SOME_GRADES = st.one_of(st.integers(-3, 5), st.integers(-(2**40), 2**62))


@given(
    ranked=st.lists(st.tuples(SOME_GRADES, st.booleans()), max_size=8),
    missed=st.lists(SOME_GRADES, max_size=6),
    flavour=st.sampled_from(list(FLAVOURS)),
    max_grade=st.one_of(st.none(), st.integers(1, 40)),
)
def test_every_measure_is_finite_and_in_its_range(
    ranked: list[tuple[int, bool]], missed: list[int], flavour: str, max_grade: int | None
) -> None:
    marked = np.array([known for _, known in ranked], np.bool_)
    grades = np.array([grade if known else 0 for grade, known in ranked], np.int64)
    found = RankedList(grades, marked, np.array(missed, np.int64))
    conventions = replace(FLAVOURS[flavour], max_grade=max_grade)
    for name in ANY:
        if name.startswith("dcg") and conventions.gain == "exponential" and grades.max(initial=0) > 900:
            with contextlib.suppress(DataError):  # too large to add up; a finite sum is right as well
                assert np.isfinite(find_measure(name).of(found, conventions))
            continue
        value = find_measure(name).of(found, conventions)
        low, high = RANGES.get(name.partition("@")[0], (0.0, 1.0))
        assert np.isfinite(value), (name, value)
        assert low <= value <= high + 1e-12, (name, value)


@pytest.mark.parametrize("name", ["recall@5", "map", "bpref", "ndcg@4"])
def test_a_relevant_document_beyond_the_list_lowers_what_counts_it(name: str) -> None:
    measure, few = find_measure(name), RankedList(np.array([1, 0, 1]), missed=np.array([0]))
    more = RankedList(few.grades, missed=np.array([0, 1]))
    assert measure.of(more, FLAVOURS["standard"]) < measure.of(few, FLAVOURS["standard"])
    assert measure.of(more, FLAVOURS["letor4"]) == measure.of(few, FLAVOURS["letor4"])


def test_rank_biased_precision_by_hand() -> None:
    assert one_list([1, 0, 1], "rbp") == pytest.approx(0.2 * (1 + 0.64))
    assert one_list([1, 0, 1], "rbp@2") == pytest.approx(0.2)


def test_bpref_by_hand() -> None:
    """Two judged others come before the second relevant document; the unjudged one does not count."""
    marked = np.array([True, False, True, True, True])
    found = RankedList(np.array([1, 0, 0, 0, 1]), marked, missed=np.array([1, 0]))
    assert find_measure("bpref").of(found, FLAVOURS["trec"]) == pytest.approx((1 + (1 - 2 / 3)) / 3)
