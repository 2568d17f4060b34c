"""A baseline is its own list: what other systems find beside it does not change its value."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from querywise import Candidates, compare, make_folds, read_judged
from querywise.data.folds import read_folds, write_parts
from querywise.data.judged import concatenate, judged_by
from querywise.data.judgements import Judgement, grades_of, read_judgements
from querywise.data.run_columns import Run
from querywise.data.runs import read_run, tabulate_runs
from querywise.errors import DataError
from querywise.evaluation.compare import Compared, own_coverage
from querywise.evaluation.evaluate import evaluate_run
from querywise.evaluation.rankings import all_ranks, extremes, ranked
from querywise.measures.score_files import write_runs
from querywise.methods import METHODS
from querywise.rankers.single import OneFeature
from querywise.retrieval.index import build_index
from querywise.retrieval.reading import collection_from
from querywise.retrieval.search import runs_of
from querywise.retrieval.stdlib import stdlib_collection
from tests.commands import output, refused, run
from tests.support.vectors import collection_with_vectors

MEASURES = ("map", "ndcg@10", "recall@50", "recall@100", "p@5")
SHARED = Path(__file__).parent.parent.parent / "shared" / "data"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    collection_with_vectors(folder)
    return folder


def alone(data: Path | str, name: str = "bm25", flavour: str = "trec", **how: object) -> Compared:
    """One method on five folds of a collection."""
    folds = make_folds(read_judged(data, **how))  # type: ignore[arg-type]
    return compare({name: METHODS[name].build()}, folds, measures=MEASURES, flavour=flavour)


def same_whatever_is_beside(data: Path | str, vectors: Path, written: Path) -> None:
    """The row `bm25` has one value to the last bit, which is that of the run in a folder that `fuse` writes."""
    kept = read_run(written / "bm25.trec")
    for flavour in ("standard", "trec"):
        words = alone(data, flavour=flavour)
        for how in ({"embed": "lsa"}, {"vectors": vectors}):
            both = alone(data, flavour=flavour, **how)
            assert both.judged.query_ids == words.judged.query_ids
            assert np.array_equal(both.evaluations["bm25"].values, words.evaluations["bm25"].values)
            assert both.evaluations["bm25"].mean() == words.evaluations["bm25"].mean()
        judgements = stdlib_collection().judgements if data == "stdlib" else _judgements(Path(data))
        of_run = evaluate_run(kept, grades_of(judgements), measures=MEASURES, flavour=flavour)
        values = dict(zip(of_run.query_ids, of_run.values.tolist(), strict=True))
        assert [values[query] for query in words.judged.query_ids] == words.evaluations["bm25"].values.tolist()


def _judgements(folder: Path) -> list[Judgement]:
    return list(read_judgements(next(folder.glob("qrels.*"))))


def test_bm25_has_one_value_whatever_finds_documents_beside_it(place: Path, tmp_path: Path) -> None:
    words = ["fuse", "--collection", place / "docs", "--keep-runs", tmp_path, "--method", "rrf", "--quiet"]
    output(run(None, *words))
    same_whatever_is_beside(place / "docs", place / "vectors", tmp_path)


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::querywise.errors.Hint")  # some documents have no words
@pytest.mark.parametrize("name", ["cranfield", "vaswani", "stdlib"])
def test_bm25_has_one_value_on_real_collections(name: str, tmp_path: Path) -> None:
    data = name if name == "stdlib" else SHARED / name
    vectors = SHARED / "vectors" / name
    if name == "stdlib" and not _same_python(vectors):
        pytest.skip("the vectors are of another Python's documentation")
    collection = collection_from(Path(data))
    write_runs(runs_of(collection, build_index(collection.documents())), tmp_path)  # as fuse makes them
    same_whatever_is_beside(data, vectors, tmp_path)


def _same_python(vectors: Path) -> bool:
    known = set(json.loads((vectors / "documents.json").read_text()))
    return {each.id for each in stdlib_collection().documents()} <= known


def test_vectors_are_measured_on_what_they_found_and_no_more(place: Path) -> None:
    found = alone(place / "docs", "vectors", vectors=place / "vectors", top=3, vector_top=4)

    assert {len(each) for each in found.lists["vectors"].scores.values()} == {4}
    assert found.judged.candidates.sizes.max() > 4
    assert (
        own_coverage(found.lists["vectors"], found.judgements).recall
        == found.evaluations["vectors"].mean()["recall@50"]
    )


def test_a_list_is_as_deep_as_asked_for_or_100_though_fewer_of_it_are_candidates(place: Path) -> None:
    beside = read_judged(place / "docs", embed="lsa")
    few = read_judged(place / "docs", embed="lsa", top=3)

    assert [run.name for run in beside.runs] == ["bm25", "vectors"]
    assert {len(own) for own in beside.runs[0].scores.values()} == {10}  # all that have a word of the query
    assert {len(own) for own in few.runs[0].scores.values()} == {3}


def test_a_feature_that_holds_a_runs_scores_is_that_run_and_others_are_not(place: Path) -> None:
    folds = make_folds(read_judged(place / "docs", vectors=place / "vectors", top=3, vector_top=4))
    rankers = {
        name: OneFeature(name) for name in ("run.vectors.score", "run.bm25.reciprocal_rank", "H1.bm25", "length.body")
    }
    found = compare(rankers, folds, measures=MEASURES)

    assert {name: len(each.scores["q0tree"]) for name, each in found.lists.items()} == {
        "run.vectors.score": 4,
        "run.bm25.reciprocal_rank": 3,
        "H1.bm25": 3,
    }


def test_features_in_files_keep_the_whole_lists(place: Path, tmp_path: Path) -> None:
    data = read_judged(place / "docs", vectors=place / "vectors", vector_top=2)
    write_parts(data, tmp_path / "parts")
    found = compare({"bm25": METHODS["bm25"].build()}, read_folds(tmp_path / "parts"), measures=MEASURES)
    for path in (tmp_path / "parts").glob("*.trec"):
        path.unlink()
    without = compare({"bm25": METHODS["bm25"].build()}, read_folds(tmp_path / "parts"), measures=MEASURES)
    whole = alone(place / "docs", flavour="standard")

    expected = dict(zip(whole.judged.query_ids, whole.evaluations["bm25"].values.tolist(), strict=True))
    for each in (found, without):  # BM25 finds ten documents here: all of them are candidates, and columns tell which
        assert [expected[query] for query in each.judged.query_ids] == each.evaluations["bm25"].values.tolist()
    assert [run.name for run in found.judged.runs] == ["bm25", "vectors"]
    assert without.judged.runs == ()


def test_a_document_that_a_run_did_not_find_has_no_rank_in_its_list(place: Path) -> None:
    data = read_judged(place / "docs", vectors=place / "vectors", top=2, vector_top=3)
    rankers = {name: METHODS[name].build() for name in ("bm25", "vectors", "rrf")}
    found = compare(rankers, make_folds(data), measures=MEASURES)
    ranks = all_ranks(found)

    assert ranks[:, 0].max() == 2
    assert ranks[:, 1].max() == 3
    assert (ranks[:, 2] > 0).all()
    some = ranked(found, ranks, 0)
    assert {0} < set(some.ranks[:, 0].tolist())
    best, _ = extremes(found, "vectors", "map")
    assert all(len(each.tops[0]) == 2 and len(each.tops[1]) == 3 for each in best)


def test_a_report_writes_its_rankings_as_runs_that_give_its_values(place: Path, tmp_path: Path) -> None:
    words = ["compare", place / "docs", "--vectors", place / "vectors", "--methods", "bm25,vectors,rrf"]
    found = json.loads(output(run(tmp_path, *words, "--measures", "map,ndcg@10", "--out", "report", "--json")))

    grades = grades_of(_judgements(place / "docs"))
    for name in ("bm25", "vectors", "rrf"):
        table = evaluate_run(read_run(tmp_path / "report" / "runs" / f"{name}.trec"), grades)
        assert table.mean() == pytest.approx(found["methods"][name]["mean"], abs=1e-12)


def test_the_method_vectors_says_what_it_lacks(place: Path) -> None:
    told = refused(run(place, "compare", "docs", "--methods", "bm25,vectors"))

    assert "There is no feature 'similarity': these documents have no vectors." in told
    assert "--vectors" in told
    assert "--embed" in told


def test_lists_of_sets_that_are_joined_are_joined(place: Path) -> None:
    one = read_judged(place / "docs")
    two = read_judged(place / "docs")
    joined = concatenate([one.select([0, 1]), two.select([2, 3])])

    assert dict(joined.runs[0].scores["q2tree"]) == dict(one.runs[0].scores["q2tree"])


def test_runs_without_document_ids_are_told_apart_by_row() -> None:
    runs = tabulate_runs(
        [Run("a", {"q1": {"D1": 2.0}, "q2": {"D2": 1.0}}), Run("b", {"q1": {"D2": 2.0}, "q2": {"D2": 2.0}})]
    )
    judged = judged_by(runs, {"q1": {"D1": 1}, "q2": {"D1": 1}})
    nameless = Candidates(runs.features, runs.starts, runs.query_ids, feature_names=runs.feature_names)
    data = type(judged)(nameless, judged.labels)
    found = compare({"a": OneFeature("run.a.score")}, data, data, data, measures=["recall@10"])

    assert found.evaluations["a"].values.ravel().tolist() == [1.0, 0.0]


def test_a_ranking_by_an_unknown_feature_is_refused_as_before(place: Path) -> None:
    with pytest.raises(DataError, match="There is no feature 'nothing'"):
        OneFeature("nothing").fit(read_judged(place / "docs"))
