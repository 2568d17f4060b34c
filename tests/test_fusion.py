"""Runs put together: read, normalised, voted on, learned from, and the command that does it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querywise.contracts.run_weights import run_weights
from querywise.data.collections import Collection, Document
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import Judgement
from querywise.data.normalisation import NORMALISATIONS, minmax, zscore
from querywise.data.query_table import QueryTable, read_queries
from querywise.data.run_columns import Run
from querywise.data.runs import join_runs, judge, read_run, read_runs, tabulate_runs
from querywise.data.synthetic import make_judged
from querywise.errors import DataError, NotFittedError
from querywise.jobs.fuse import BEST_RUN, LEARNED, VOTES, Fusing, best_fusion, compare_fusions, fused, vote
from querywise.measures.score_files import write_runs
from querywise.rankers.weights.fusion import Borda, CombMNZ, CombSUM, EqualWeights, ReciprocalRank
from querywise.retrieval.bm25 import search
from querywise.retrieval.index import build_index
from querywise.retrieval.search import RUNS, runs_of
from querywise.runtime.arrays import Floats
from querywise.storage import load, save
from tests import commands
from tests.worlds import as_runs

# Documents A to D; the second run has no A, the first no D.
FIRST = Run("first", {"q": {"A": 30.0, "B": 20.0, "C": 10.0}})
SECOND = Run("second", {"q": {"D": 0.9, "C": 0.5, "B": 0.1}})


def by_document(candidates: Candidates, scores: Floats) -> dict[str, float]:
    assert candidates.document_ids is not None
    return dict(zip(candidates.document_ids, scores.tolist(), strict=True))


def voted(method: str, *runs: Run) -> dict[str, float]:
    candidates = join_runs(runs)
    return by_document(candidates, vote(candidates, method))


# The votes, by hand: minmax gives the three documents of a run 1, 2/3 and 1/3


def test_combsum_adds_what_each_run_gives() -> None:
    found = voted("combsum", FIRST, SECOND)
    assert found == pytest.approx({"A": 1, "B": 2 / 3 + 1 / 3, "C": 1 / 3 + 2 / 3, "D": 1})


def test_combmnz_multiplies_the_sum_with_the_number_of_runs() -> None:
    found = voted("combmnz", FIRST, SECOND)
    assert found == pytest.approx({"A": 1, "B": 2 * (2 / 3 + 1 / 3), "C": 2 * (1 / 3 + 2 / 3), "D": 1})


def test_reciprocal_rank_fusion_adds_one_over_sixty_and_the_rank() -> None:
    found = voted("rrf", FIRST, SECOND)
    assert found == pytest.approx({"A": 1 / 61, "B": 1 / 62 + 1 / 63, "C": 1 / 63 + 1 / 62, "D": 1 / 61})


def test_borda_counts_who_is_below_less_who_is_above() -> None:
    # First: A over B, C, D; B over C, D; C over D. Second: D, C, B, A.
    assert voted("borda", FIRST, SECOND) == {"A": 3 - 3, "B": 1 - 1, "C": -1 + 1, "D": -3 + 3}
    assert voted("borda", FIRST, FIRST_AGAIN) == {"A": 6, "B": 2, "C": -2, "D": -6}


FIRST_AGAIN = Run("again", {"q": {"A": 4.0, "B": 3.0, "C": 2.0, "D": 1.0}})


def test_the_documents_a_run_does_not_have_share_its_last_places() -> None:
    one = Run("one", {"q": {"A": 1.0}})
    four = Run("four", {"q": {"A": 1.0, "B": 1.0, "C": 1.0, "D": 1.0}})
    assert voted("borda", one, four) == {"A": 3, "B": -1, "C": -1, "D": -1}


def test_tied_documents_share_their_mean_rank() -> None:
    tied = Run("tied", {"q": {"A": 5.0, "B": 5.0, "C": 1.0}})
    other = Run("other", {"q": {"C": 1.0}})
    found = voted("rrf", tied, other)
    assert found == pytest.approx({"A": 1 / 61.5, "B": 1 / 61.5, "C": 1 / 63 + 1 / 61})


def test_a_query_that_one_run_lacks_is_ranked_by_the_others() -> None:
    more = Run("more", {**FIRST.scores, "r": {"X": 2.0, "Y": 1.0}})
    candidates = join_runs([more, SECOND])
    assert candidates.query_ids == ("q", "r")
    for method in VOTES:
        x, y = vote(candidates, method)[candidates.rows(1)]
        assert x > y


def test_the_constant_of_reciprocal_ranks_can_be_another_one() -> None:
    candidates = join_runs([FIRST, SECOND])
    data = Judged(candidates, np.array([1, 0, 0, 0]))
    found = by_document(candidates, ReciprocalRank(0).fit(data).predict(candidates))
    assert found == pytest.approx({"A": 1, "B": 1 / 2 + 1 / 3, "C": 1 / 3 + 1 / 2, "D": 1})
    with pytest.raises(DataError, match=r"ReciprocalRank\(k=-1\) must be a number from 0 up"):
        ReciprocalRank(-1).fit(data)


@pytest.mark.parametrize("kind", [CombSUM, CombMNZ, ReciprocalRank, Borda])
def test_votes_keep_the_promises_of_rankers(kind: type, tmp_path: Path) -> None:
    candidates = join_runs([FIRST, SECOND])
    with pytest.raises(NotFittedError):
        kind().predict(candidates)
    ranker = kind().fit(Judged(candidates, np.array([1, 0, 0, 0])))
    save(ranker, tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(candidates), ranker.predict(candidates))
    with pytest.raises(DataError, match="Feature 1 is 'second' but the model was trained with 'first' there"):
        ranker.predict(join_runs([SECOND, FIRST]))


# Normalisations


def test_minmax_goes_from_one_in_n_to_one() -> None:
    assert minmax(np.array([-7.0, -9.0, -8.0])) == pytest.approx([1, 1 / 3, 2 / 3])
    assert minmax(np.array([4.0])).tolist() == [1.0]
    assert minmax(np.array([4.0, 4.0])).tolist() == [1.0, 1.0]
    assert minmax(np.array([1.7e308, -1.7e308])).tolist() == [1.0, 0.5]


def test_zscore_counts_deviations_above_a_step_below_the_worst() -> None:
    scores = np.array([10.0, 4.0, 1.0])
    step = (10 - 1) / 2
    assert zscore(scores) == pytest.approx((scores - (1 - step)) / np.std(scores))
    assert zscore(np.array([4.0, 4.0])).tolist() == [1.0, 1.0]


def test_ranks_and_scores_as_they_stand() -> None:
    assert join_runs([FIRST, SECOND], normalise="rank").features[:, 0] == pytest.approx([1, 2 / 3, 1 / 3, 0])
    assert join_runs([FIRST, SECOND], normalise="none").features[:, 1].tolist() == [0, 0.1, 0.5, 0.9]


def test_scores_as_they_stand_must_be_above_those_of_missing_documents() -> None:
    likelihood = Run("lm", {"q": {"A": -4.0}})
    with pytest.raises(DataError, match=r"Run lm: document 'A' of query 'q' has score -4\.0, but .* Normalise"):
        join_runs([FIRST, likelihood], normalise="none")


def test_an_unknown_normalisation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"Unknown normalisation 'sum'\. Known: minmax, zscore, rank, none"):
        join_runs([FIRST, SECOND], normalise="sum")


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(finite, min_size=1, max_size=12), st.sampled_from(["minmax", "zscore", "rank"]))
def test_normalised_scores_are_above_zero_and_keep_order_and_ties(values: list[float], name: str) -> None:
    scores = np.array(values)
    found = NORMALISATIONS[name](scores)
    assert np.all(found > 0)
    assert np.isfinite(found).all()
    assert np.array_equal(
        np.sign(np.subtract.outer(found, found)),
        np.greater.outer(scores, scores) * 2.0 - 1.0 + np.equal.outer(scores, scores),
    )


documents = st.dictionaries(st.sampled_from("ABCDEF"), st.integers(-5, 5).map(float), min_size=1)


@given(st.lists(documents, min_size=2, max_size=4))
def test_neither_the_order_of_the_runs_nor_a_rising_scale_changes_a_vote_by_ranks(
    found: list[dict[str, float]],
) -> None:
    runs = [Run(str(number), {"q": each}) for number, each in enumerate(found)]
    bent = [Run(run.name, {"q": {key: np.exp(3 * value) for key, value in run.scores["q"].items()}}) for run in runs]
    for method in ("rrf", "borda"):
        assert voted(method, *reversed(runs)) == pytest.approx(voted(method, *runs))
        assert voted(method, *bent) == pytest.approx(voted(method, *runs))


# Reading


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_run_is_read_by_score_whatever_its_ranks_and_order(tmp_path: Path) -> None:
    path = written(tmp_path, "engine.trec", "2 Q0 D9 7 0.5 x\n\n1 Q0 D3 1 -2e1 x\n2 Q0 D1 1 0.25 x\n")
    run = read_run(path)
    assert run.name == "engine"
    assert run.scores == {"2": {"D9": 0.5, "D1": 0.25}, "1": {"D3": -20.0}}


def test_runs_are_written_so_that_they_are_read_as_they_were(tmp_path: Path) -> None:
    write_runs([FIRST, SECOND], tmp_path / "new" / "runs")
    again = read_runs([tmp_path / "new" / "runs" / f"{name}.trec" for name in ("first", "second")])
    assert again == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 D1 1 0.5\n", r":1: expected a run, 'query Q0 document rank score tag'; found 5 words"),
        ("q Q0 D1 1 0.5 x\nq Q0 D2 2 high x\n", r":2: the score is 'high'; expected a finite number"),
        ("q Q0 D1 1 nan x\n", r":1: the score is 'nan'"),
        ("q Q0 D1 1 -inf x\n", r":1: the score is '-inf'"),
        (
            "q Q0 D1 1 2 x\n\nq Q0 D1 2 1 x\n",
            r":3: document 'D1' of query 'q' is scored a second time, first on line 1",
        ),
        ("\n \n", r"bad\.trec: the file holds no line of a run"),
    ],
)
def test_what_is_malformed_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_run(written(tmp_path, "bad.trec", text))


def test_runs_that_cannot_be_fused_are_refused() -> None:
    with pytest.raises(DataError, match="two runs or more; there is first"):
        join_runs([FIRST])
    with pytest.raises(DataError, match="Two runs are called 'first'"):
        join_runs([FIRST, FIRST])
    with pytest.raises(
        DataError, match=r"No query is in all of the runs\. The first query of each: first 'q', other 'r'"
    ):
        join_runs([FIRST, Run("other", {"r": {"A": 1.0}})])


# Judgements


def test_unjudged_documents_count_zero_and_are_marked_and_unjudged_queries_are_left_out() -> None:
    runs = [Run("a", {"1": {"A": 2.0, "B": 1.0}, "2": {"A": 1.0}, "10": {"B": 1.0}}), Run("b", {"1": {"C": 1.0}})]
    said = [("1", "B", 2), ("1", "C", 0), ("1", "Z", 1), ("10", "A", 1), ("77", "A", 1)]
    data, coverage = judge(join_runs(runs), [Judgement(*each, "here") for each in said])
    assert data.candidates.query_ids == ("1", "10", "77")
    assert data.missed is not None
    assert [data.missed.of(query) for query in range(3)] == [{"Z": 1}, {"A": 1}, {"A": 1}]
    assert data.candidates.document_ids == ("A", "B", "C", "B")
    assert data.labels.tolist() == [0, 2, 0, 0]
    assert data.judged is not None
    assert data.judged.tolist() == [False, True, True, False]
    assert (coverage.queries, coverage.unjudged, coverage.without_candidates, coverage.without_relevant) == (3, 1, 1, 1)
    assert (coverage.relevant, coverage.found) == (4, 1)


def test_judgements_of_other_queries_are_refused_with_both_ids() -> None:
    with pytest.raises(DataError, match=r"None of the 1 queries of the runs is judged: the first is 'q', .* is 'q7'"):
        judge(join_runs([FIRST, SECOND]), [Judgement("q7", "A", 1, "here")])


# Learning


def world(queries: int = 20) -> tuple[list[Run], list[Judgement]]:
    """The run `good` knows the two relevant documents of ten but errs now and then, `noise` knows nothing."""
    rng = np.random.default_rng(0)
    good: dict[str, dict[str, float]] = {}
    noise: dict[str, dict[str, float]] = {}
    said = []
    for query in map(str, range(queries)):
        good[query] = {f"D{n}": float(n < 2) + 0.8 * rng.normal() for n in range(10)}
        noise[query] = {f"D{n}": 100 * rng.random() for n in range(1, 11)}
        said += [Judgement(query, f"D{n}", 1, "here") for n in range(2)]
    return [Run("good", good), Run("noise", noise)], said


@pytest.mark.slow
def test_learned_weights_prefer_the_run_that_knows() -> None:
    runs, said = world()
    data, _ = judge(tabulate_runs(runs), said)
    found = compare_fusions(data, Fusing())
    means = {each.name: each.means["map"] for each in found.methods}
    assert list(means) == [BEST_RUN, "run good", "run noise", *VOTES, "weights", "weights-by-query", "ser", "sser"]
    assert means["run noise"] < means["combsum"] < min(means["sser"], means["weights"])
    assert found.compared.baseline == max((BEST_RUN, *VOTES), key=lambda name: means[name])
    assert found.compared_with == 4, "only what learns weights is corrected for"


@pytest.mark.slow
def test_every_judged_query_is_scored_by_folds_that_did_not_see_it_and_the_others_by_all() -> None:
    runs, said = world()
    candidates = tabulate_runs(runs)
    data, _ = judge(candidates, [each for each in said if each.query not in ("3", "11")])
    asked = Fusing(method="sser")
    found = compare_fusions(data, asked)
    scores = fused(candidates, data, found.compared, asked)
    tested = found.compared.judged.candidates
    for number, query in enumerate(tested.query_ids):
        place = candidates.query_ids.index(query)
        assert np.array_equal(scores[candidates.rows(place)], found.compared.scores["sser"][tested.rows(number)])
    assert np.isfinite(scores).all()
    lone = scores[candidates.rows(candidates.query_ids.index("11"))]
    assert len(set(lone.tolist())) > 1
    best = fused(candidates, data, found.compared, Fusing(method=BEST_RUN))
    assert np.array_equal(best[candidates.rows(3)], join_runs(runs).features[candidates.rows(3), 0])


@pytest.mark.slow
def test_what_is_written_is_the_best_plain_one_unless_weights_gain_more_than_an_error() -> None:
    runs, said = world()
    data, _ = judge(tabulate_runs(runs), said)
    compared = compare_fusions(data, Fusing()).compared
    means = {name: each.mean()["map"] for name, each in compared.evaluations.items()}
    chosen = best_fusion(compared, Fusing())
    assert chosen in (compared.baseline, *LEARNED)
    gains = {
        name: compared.evaluations[name]["map"] - compared.evaluations[compared.baseline]["map"] for name in LEARNED
    }
    sure = {name for name, each in gains.items() if each.mean() > each.std(ddof=1) / np.sqrt(len(each))}
    assert chosen == max(sure, key=lambda name: means[name], default=compared.baseline)


def test_two_runs_alike_are_fused_by_a_vote() -> None:
    """Nothing can be learned from them: what is written is what is plain."""
    runs, said = world()
    data, _ = judge(tabulate_runs([runs[0], Run("again", runs[0].scores)]), said)
    assert best_fusion(compare_fusions(data, Fusing()).compared, Fusing()) in (BEST_RUN, *VOTES)


@pytest.mark.parametrize("normalise", ["minmax", "rank", "zscore"])
@pytest.mark.parametrize("method", VOTES)
def test_votes_on_the_columns_of_runs_are_those_on_joined_runs(method: str, normalise: str) -> None:
    runs, _ = world(5)
    expected = vote(join_runs(runs, normalise=normalise), method)
    assert vote(tabulate_runs(runs), method, normalise) == pytest.approx(expected, rel=1e-12)


def test_a_collections_own_runs_hold_each_rankers_best_documents() -> None:
    documents = [Document(f"D{n}", "", "cat " * (n + 1) + "dog " * (5 - n)) for n in range(5)]
    queries = QueryTable(("1", "2"), texts=("cat", "nothing"))
    index = build_index(documents)
    runs = runs_of(Collection("zoo", lambda: documents, queries), index, top=3)
    assert tuple(run.name for run in runs) == RUNS == ("bm25", "dirichlet", "jelinek_mercer", "absolute_discount")
    expected = search(index, "cat", top=3)
    ids = [index.document_ids[int(number)] for number in expected.documents]
    assert list(runs[0].scores) == ["1"], "a query that matches nothing is in no run"
    assert list(runs[0].scores["1"]) == ids
    assert list(runs[0].scores["1"].values()) == pytest.approx(expected.scores)
    assert all(len(run.scores["1"]) == 3 for run in runs)
    with pytest.raises(DataError, match="zoo: the collection has no queries with a text"):
        runs_of(Collection("zoo", lambda: documents), index)


# The command


def run(folder: Path, *words: object) -> str:
    return commands.output(commands.run(folder, "fuse", *words))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, judgements of all their queries but two, files with something wrong, and a small collection."""
    folder = tmp_path_factory.mktemp("fusion")
    runs, said = world()
    write_runs(runs, folder)
    known = [each for each in said if each.query not in ("3", "11")]
    written(folder, "qrels.txt", "".join(f"{each.query} 0 {each.document} {each.grade}\n" for each in known))
    written(folder, "few.txt", "1 0 D1 1\n2 0 D1 1\n")
    written(folder, "strange.txt", "x7 0 D1 1\n")
    written(folder, "empty.trec", "")
    written(folder, "other.trec", "zz Q0 D1 1 1.0 x\n")
    written(folder, "bad.trec", "1 Q0 D1 1 1.0 x\n1 Q0 D2 2 much x\n")
    save(EqualWeights().fit(as_runs(make_judged(8, 4, 2))), folder / "noted")
    written(folder / "noted", "notes.txt", "do not lose me")
    (folder / "docs").mkdir()
    words = ("fig", "plum", "pear", "lime", "kiwi", "date")
    texts = [f"{one} {two} {two}" for one in words for two in words]
    corpus = [json.dumps({"_id": f"D{n}", "title": "", "text": text}) for n, text in enumerate(texts)]
    asked = [json.dumps({"_id": word, "text": f"{word} tree"}) for word in words]
    written(folder / "docs", "corpus.jsonl", "\n".join(corpus))
    written(folder / "docs", "queries.jsonl", "\n".join(asked))
    grades = [f"{word}\tD{n}\t1" for n, text in enumerate(texts) for word in words if text == f"{word} {word} {word}"]
    written(folder / "docs", "qrels.tsv", "\n".join(grades))
    return folder


def test_without_judgements_the_runs_vote(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "fused.trec"
    text = run(place, "good.trec", "noise.trec", "--out", out)
    assert text == f"220 documents of 20 queries fused by rrf, written to {out}\n"
    fused_run = read_run(out)
    candidates = join_runs(read_runs([place / "good.trec", place / "noise.trec"]))
    expected = by_document(candidates.select([0]), vote(candidates, "rrf")[candidates.rows(0)])
    assert fused_run.scores["0"] == expected
    ranks = [line.split()[3] for line in out.read_text().splitlines()[:11]]
    assert ranks == [str(rank) for rank in range(1, 12)]
    assert out.read_text().splitlines()[0].endswith(" rrf")
    content = json.loads(run(place, "good.trec", "noise.trec", "--method", "borda", "--out", out, "--json"))
    expected_json = {"method": "borda", "runs": ["good", "noise"], "out": str(out)}
    assert content == {**expected_json, "queries_written": 20, "documents": 220}


@pytest.mark.slow
def test_with_judgements_it_compares_gives_a_verdict_and_writes_all_queries(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "fused.trec"
    text = run(place, "good.trec", "noise.trec", "--judged", "qrels.txt", "--names", "ours,theirs", "--out", out)
    for name in ("best-run", "run ours", "run theirs", *VOTES, *LEARNED):
        assert re.search(rf"^\s*{name}\s+0\.\d{{4}}", text, re.MULTILINE), name
    assert "18 test queries, flavour standard; p: paired t-test against" in text
    assert re.search(r"^(Nothing beats|[a-z-]+ is better than) ", text, re.MULTILINE)
    assert "36 of 36 relevant documents (100%) are among the candidates" in text
    assert "Left out: 2 of 20 queries without a judgment, such as " in text
    assert re.search(rf"220 documents of 20 queries fused by [a-z-]+, written to {out}\n$", text)
    assert set(read_run(out).scores) == {str(query) for query in range(20)}


@pytest.mark.slow
def test_a_folder_gets_the_model_the_weights_and_the_report(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "fusion"
    texts = [json.dumps({"_id": str(query), "text": f"query {query}"}) for query in range(20)]
    written(tmp_path, "queries.jsonl", "\n".join(texts))
    words = ("good.trec", "noise.trec", "--judged", "qrels.txt", "--queries", tmp_path / "queries.jsonl", "--out", out)
    text = run(place, *words, "--method", "weights-by-query", "--normalise", "l2")
    assert f"weights-by-query, fitted on all judged queries, written to {out}" in text
    page = (out / "report" / "report.html").read_text(encoding="utf-8")
    assert "querywise fuse good.trec noise.trec --judged qrels.txt" in page
    assert re.search(r"<dt>date</dt><dd>\d{4}-\d\d-\d\d \d\d:\d\d UTC</dd>", page)
    assert "<dt>data</dt><dd>good, noise</dd>" in page
    assert "What the models use" in page
    lines = [json.loads(line) for line in (out / "weights.jsonl").read_text().splitlines()]
    assert [each["_id"] for each in lines] == [str(query) for query in range(20)]
    ranker = load(out)
    candidates = tabulate_runs(read_runs([place / "good.trec", place / "noise.trec"]))
    candidates = candidates.with_queries(read_queries(tmp_path / "queries.jsonl"))
    found = run_weights(ranker.answer(candidates))
    assert [list(each["weights"].values()) for each in lines] == found.tolist()
    assert list(lines[0]["weights"]) == ["good", "noise"]
    content = json.loads(run(place, *words, "--method", "rrf", "--json"))
    assert content["method"] == "rrf"
    assert run_weights(load(out).answer(candidates))[0].tolist() == [0.5, 0.5]
    assert "borda has no weights of runs; --method weights" in run(place, *words, "--method", "borda")
    assert not (out / "weights.jsonl").exists(), "votes have no weights"


@pytest.mark.slow
def test_the_result_as_json_says_what_the_table_says(place: Path) -> None:
    words = ("good.trec", "noise.trec", "--judged", "qrels.txt", "--folds", 3, "--measures", "p@2", "--json")
    content = json.loads(run(place, *words, "--method", "ranksvm", "--baseline", "rrf", "--normalise", "rank"))
    assert content["coverage"]["queries"] == content["queries"] == 18
    assert content["baseline"] == "rrf"
    assert set(content["methods"]["ranksvm"]["mean"]) == {"p@2"}
    assert content["verdict"].endswith(".")
    assert "p@2" in content["verdict"]
    assert content["cheapest"]["than"] in content["methods"]
    assert len(content["pairs"]) == len(content["methods"]) * (len(content["methods"]) - 1) / 2
    again = json.loads(run(place, *words, "--method", "ranksvm", "--baseline", "rrf", "--normalise", "rank"))
    assert {name: each["mean"] for name, each in again["methods"].items()} == {
        name: each["mean"] for name, each in content["methods"].items()
    }


@pytest.mark.slow
def test_a_collection_makes_four_runs_that_can_be_kept(place: Path, tmp_path: Path) -> None:
    text = run(place, "--collection", "docs", "--folds", 3, "--keep-runs", tmp_path / "runs", "--top", 5)
    assert "run absolute_discount" in text
    assert {path.stem for path in (tmp_path / "runs").iterdir()} == set(RUNS)
    files = [tmp_path / "runs" / f"{name}.trec" for name in RUNS]
    same = run(place, *files, "--judged", "docs/qrels.tsv", "--folds", 3)
    times = re.compile(
        r" +[\d.]+ s +[\d.]+ +[\d.e+-]+ *$|^.*(?:significantly worse|No method is cheaper).*$", re.MULTILINE
    )
    assert times.sub("", same).rstrip() == times.sub("", text).rstrip()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("good.trec noise.trec", "name a file for it with --out"),
        ("good.trec --out new", "Fusing takes two runs or more; there is good."),
        ("--out new", "Fusing takes two runs or more; there is none."),
        ("good.trec nowhere.trec --out new", "nowhere.trec: there is no such file"),
        ("good.trec docs --out new", "docs: this is a folder"),
        ("good.trec empty.trec --out new", "empty.trec: the file holds no line of a run"),
        ("good.trec bad.trec --out new", "bad.trec:2: the score is 'much'"),
        ("good.trec other.trec --out new", "No query is in all of the runs"),
        ("good.trec good.trec --out new", "Two runs are called 'good'; give each a name of its own with --names"),
        ("good.trec noise.trec --out new --names a", "There are 2 runs but 1 names (a)"),
        ("good.trec noise.trec --out new --names a,,b", "--names a,,b: expected a name for every run"),
        ("good.trec noise.trec --out new --method sser", "--method sser learns from judgments"),
        ("good.trec noise.trec --out new --method magic", "Unknown method 'magic'. Known: combsum, combmnz, rrf"),
        ("good.trec noise.trec --out new --normalise sum", "Unknown normalisation 'sum'"),
        ("good.trec noise.trec --out nowhere/new", "nowhere does not exist; create it first"),
        ("good.trec noise.trec --keep-runs new --out new", "name one with --collection"),
        ("good.trec noise.trec --judged qrels.txt --out docs", "docs"),
        ("good.trec noise.trec --judged qrels.txt --out noted", "'notes.txt' does not belong to fused runs"),
        (
            "good.trec noise.trec --judged qrels.txt --queries docs/queries.jsonl",
            "are not in the query table, the first",
        ),
        ("good.trec noise.trec --judged nowhere.txt", "nowhere.txt: there is no such file"),
        ("good.trec noise.trec --judged empty.trec", "empty.trec: the file holds no judgment"),
        ("good.trec noise.trec --judged good.trec", "good.trec:1: expected 'query <tab> document <tab> grade'"),
        ("good.trec noise.trec --judged strange.txt", "None of the 20 queries of the runs is judged"),
        ("good.trec noise.trec --judged few.txt", "Folds need at least three queries"),
        ("good.trec noise.trec --judged qrels.txt --folds 19", "19 folds need at least one query each"),
        ("good.trec noise.trec --judged qrels.txt --baseline magic", "The baseline 'magic' is not among the methods"),
        ("good.trec noise.trec --judged qrels.txt --measures magic", "magic"),
        ("--collection nowhere", "nowhere: there is no corpus.jsonl here"),
    ],
)
def test_wrong_input_ends_with_one_message_and_nothing_written(place: Path, command: str, message: str) -> None:
    before = sorted(place.rglob("*"))
    assert message in commands.refused(commands.run(place, "fuse", *command.split()))
    assert sorted(place.rglob("*")) == before
