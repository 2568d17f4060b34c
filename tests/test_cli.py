"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.verdicts import check
from querywise.data.folds import make_folds
from querywise.data.letor import read_letor, write_letor
from querywise.data.synthetic import make_judged
from querywise.methods import METHODS, PEERS
from querywise.storage import load, read_manifest
from reproduction import hoi2008, zha2006
from reproduction.verdicts import OUTCOMES
from tests import commands


def reproduce(*words: object) -> str:
    return commands.output(commands.reproduce(None, *words))


def run(*words: object) -> str:
    return commands.output(commands.run(None, *words))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with S1..S5, and a model trained on the first three."""
    root = tmp_path_factory.mktemp("letor")
    data = make_judged(60, 8, 4, noise=0.3)
    for part in range(5):
        write_letor(root / f"S{part + 1}.txt", data.select(range(12 * part, 12 * part + 12)))
    run("fit", root / "S1.txt", root / "S2.txt", root / "S3.txt", "--valid", root / "S4.txt", "--out", root / "model")
    return root


@pytest.fixture(scope="module")
def one_fold(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """The same data as one fold, for tables that take long to make."""
    root = tmp_path_factory.mktemp("fold")
    for name, parts in {"train": "123", "vali": "4", "test": "5"}.items():
        (root / f"{name}.txt").write_text("".join((folder / f"S{part}.txt").read_text() for part in parts))
    return root


@pytest.mark.slow
def test_fit_rank_evaluate_as_the_readme_says(folder: Path, tmp_path: Path) -> None:
    test = folder / "S5.txt"
    assert "96 documents of 12 queries ranked" in run("rank", folder / "model", test, "--out", tmp_path / "run.trec")
    run("rank", folder / "model", test, "--out", tmp_path / "scores.txt", "--quiet")
    table = run("evaluate", test, tmp_path / "scores.txt", "--measures", "map,p@1", "--per-query", tmp_path / "o.csv")
    assert "12 queries, flavour standard" in table
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 13
    from_run = json.loads(run("evaluate", test, tmp_path / "run.trec", "--measures", "map", "--json"))
    from_scores = json.loads(run("evaluate", test, tmp_path / "scores.txt", "--measures", "map", "--json"))
    assert from_run == from_scores
    assert from_run["mean"]["map"] > 0.5


def test_scores_go_to_standard_output_without_a_file(folder: Path) -> None:
    scores = [float(line) for line in run("rank", folder / "model", folder / "S5.txt").splitlines()]
    assert len(scores) == 96


def test_the_model_remembers_how_its_parameters_were_chosen(folder: Path) -> None:
    notes: Any = read_manifest(folder / "model").notes
    assert notes["method"] == "ranksvm"
    assert notes["chosen_by"] == {"measure": "map", "flavour": "standard"}
    values = [trial["value"] for trial in notes["tried"]]
    best = notes["tried"][int(np.argmax(values))]["parameters"]
    assert best == notes["parameters"]


@pytest.mark.slow
def test_a_fold_of_a_folder_is_the_files_it_stands_for(folder: Path, tmp_path: Path) -> None:
    content = json.loads(run("fit", folder, "--fold", 1, "--out", tmp_path / "m", "--json"))
    assert content["parameters"] == read_manifest(folder / "model").notes["parameters"]
    by_fold = run("rank", tmp_path / "m", folder / "S5.txt")
    assert by_fold == run("rank", folder / "model", folder / "S5.txt")


def test_a_parameter_can_be_fixed(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    run("fit", folder / "S1.txt", "--method", "lambdamart", "--set", "trees=5", "--set", "leaves=4", "--out", out)
    assert read_manifest(out).notes["parameters"] == {"trees": 5, "leaves": 4}


def test_compare_prints_the_paired_test(folder: Path) -> None:
    text = run("compare", folder, "--methods", "ranksvm,ranksvm", "--measures", "map,ndcg@10")
    assert "60 test queries, flavour standard; p: paired t-test against ranksvm" in text
    content = json.loads(run("compare", folder / "S1.txt", "--methods", "ranksvm", "--json"))
    assert content["queries"] == 12


def test_methods_lists_everything_that_can_be_fitted_or_compared_with() -> None:
    text = run("methods")
    assert "ranksvm" in text
    assert "lambdamart" in text
    assert [entry["name"] for entry in json.loads(run("methods", "--json"))] == [*METHODS, *PEERS]


@pytest.mark.slow
def test_a_query_dependent_model_is_fitted_ranked_with_and_explained(folder: Path, tmp_path: Path) -> None:
    words = ["--fold", 1, "--method", "knn-online", "--view", "top-mean", "--reference", 2]
    run("fit", folder, *words, "--k", 12, "--out", tmp_path / "m")
    chosen: Any = read_manifest(tmp_path / "m").notes["parameters"]
    assert (chosen["k"], chosen["reference"]) == (12, 1)
    assert len(run("rank", tmp_path / "m", folder / "S5.txt").splitlines()) == 96
    qid = read_letor(folder / "S5.txt").candidates.query_ids[3]
    text = run("explain", tmp_path / "m", folder / "S5.txt", "--qid", qid)
    assert f"Query {qid}: its model was trained on 12 queries" in text
    content = json.loads(run("explain", tmp_path / "m", folder / "S5.txt", "--qid", qid, "--json"))
    gaps = [each["distance"] for each in content["neighbours"]]
    assert len(gaps) == 12
    assert gaps == sorted(gaps)
    candidates = read_letor(folder / "S5.txt").candidates
    rows = candidates.rows(3)
    pair = ["--qid", qid, "--above", 1, "--below", 2]  # documents without ids go by their place in the query
    reason = json.loads(run("explain", tmp_path / "m", folder / "S5.txt", *pair, "--json"))
    scores = load(tmp_path / "m").predict(candidates)[rows]
    assert sum(each["here"] for each in reason["terms"]) == pytest.approx(scores[0] - scores[1], abs=1e-9)
    assert f"{abs(reason['difference']):.4f}" in run("explain", tmp_path / "m", folder / "S5.txt", *pair)
    run("fit", folder, *words, "--k", "auto", "--out", tmp_path / "m")
    again: Any = read_manifest(tmp_path / "m").notes["parameters"]
    assert again["k"] in METHODS["knn-online"].grid["k"]


@pytest.mark.slow
def test_the_papers_tables_and_figures_are_made_anew(one_fold: Path, tmp_path: Path) -> None:
    text = reproduce("geng2008", one_fold, "--quick", "--out", tmp_path / "report")
    assert text.startswith("**A quick run: the first fold and thin grids.")
    theirs, ours = (text.index(f"p: paired t-test against {name}.") for name in ("single, hinge", "single"))
    assert theirs < ours, "the paper's rows come first"
    assert "12 of 12 test queries have at most 50 documents: their top 50 is the whole list." in text
    numbers = json.loads((tmp_path / "report" / "numbers.json").read_text())
    methods = numbers["comparison"]["methods"]
    plain, tree = (methods[f"knn-online, no prior{search}"]["mean"] for search in ("", ", kd_tree"))
    assert plain == tree, "search is exact"
    swept = numbers["sweep"]
    whole = {name: points["1"]["map"] for name, points in swept["quality"].items() if name != "knn-online, hinge"}
    assert all(abs(value - swept["single"]["map"]) < 1e-12 for value in whole.values()), "k = m is single"
    assert swept["change_ratio"]["knn-offline-2"][-1] == 0
    assert set(swept["change_ratio_by_parts"]["knn-offline-1"]) == {"1", "2", "4"}
    assert numbers["stability"]["share_within_our_bound"] == 1.0
    assert all(each["largest_change"] <= each["bound"] for each in numbers["stability"]["one_pair_left_out"])
    assert {each["outcome"] for each in numbers["claims"]} <= {*OUTCOMES}
    found = check(tmp_path / "report")
    assert (found.wrong, found.unstored) == ([], 0), "every table and verdict comes out of the stored values"
    drawn = {path.name for path in (tmp_path / "report").glob("*.svg")}
    assert drawn >= {"ndcg.svg", "map-against-k.svg", "change-ratio-against-k.svg"}


@pytest.mark.slow
def test_the_tables_of_local_models_from_clusters_are_made_anew(one_fold: Path, tmp_path: Path) -> None:
    text = reproduce("lin2011", one_fold, "--reference", "1", "--quick", "--out", tmp_path / "report")
    assert text.startswith("**A quick run: the first fold and thin grids.")
    assert "12 test queries, flavour letor4; p: paired t-test against single, hinge." in text
    assert "12 test queries, flavour letor4; p: paired t-test against single and lambdamart." in text
    numbers = json.loads((tmp_path / "report" / "numbers.json").read_text())
    swept = numbers["sweep"]
    for name in ("naive", "select-ranker", "transform", "UpperBound", "RelevantOnly"):
        assert abs(swept["map"][name][0] - swept["single"]) < 1e-12, "one cluster is the single model"
    assert swept["by_rank"] == sorted(swept["by_rank"], reverse=True)
    assert swept["by_rank"][0] == pytest.approx(swept["map"]["UpperBound"][-1])
    assert sum(numbers["relevant"]) > 0
    assert swept["groups"]["transform"][0] == 1
    assert (np.array(swept["thin_groups"]["naive"]) <= swept["groups"]["naive"]).all()
    rows = list(numbers["comparison"]["methods"])
    methods = ["single", "naive", "select-ranker", "transform"]
    assert rows[:4] == [f"{name}, hinge" for name in methods], "the paper's rows come first"
    assert rows[7:11] == methods, "ours stand beside them"
    assert {each["scale"] for each in numbers["chosen"]["naive, hinge"]} == {"none"}
    assert len(numbers["groups"]["transform"]) == 1, "a fold"
    said = {each["claim"]: each["outcome"] for each in numbers["claims"]}
    assert {said[claim] for claim in said if "MQ2007" in claim or "MQ2008" in claim} == {"not testable"}
    drawn = {path.name for path in (tmp_path / "report").glob("*.svg")}
    assert drawn == {"against-clusters.svg", "by-rank.svg", "relevant.svg"}


@pytest.mark.slow
def test_the_tables_of_ensembles_are_made_anew(one_fold: Path, tmp_path: Path) -> None:
    text = reproduce("hoi2008", one_fold, "--rankers", "1-2,4", "--out", tmp_path / "report")
    assert "The paper's rankers are columns 1–2, 4; rows named *all columns* have all 4." in text
    assert "12 test queries, flavour letor4; p: paired t-test against ranksvm, hinge and ser." in text
    numbers = json.loads((tmp_path / "report" / "numbers.json").read_text())
    assert set(numbers["training_seconds"]) >= {"ser", "sser", "rankboost", "listnet", "adarank", "mhr-bc"}
    assert all(len(values) == 8 for values in numbers["map_against_gamma"].values())
    assert numbers["columns"] == [1, 2, 4]
    assert numbers["training_queries"]["in all"] == [36]
    rows = list(numbers["comparison"]["methods"])
    assert rows[:5] == ["ranksvm, hinge", "ser", "sser", "sser, γ = 0.5", "sser, γ by cross-validation"]
    assert rows[5:12] == [*hoi2008.CLASSIC, *hoi2008.OURS]
    assert f"{numbers['pairs']:,} pairs." in text
    assert numbers["training_seconds"][hoi2008.WRITTEN_DOWN] > 0
    assert {each["cost"] for each in numbers["chosen"]["sser"]} == {1.0}, "as in the paper"
    assert {each["grades"] for each in numbers["chosen"]["ser, all columns"]} <= {"three", "difference"}
    assert {path.name for path in (tmp_path / "report").glob("*.svg")} == {"precision.svg", "against-gamma.svg"}


@pytest.mark.slow
def test_the_tables_of_atvt_are_made_anew(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diagonal = ((1.0, 0.1), (10.0, 1.0), (100.0, 10.0))
    few = zha2006.Size(1, diagonal, {"trees": [10], "learning_rate": [0.1]})
    monkeypatch.setattr(zha2006, "_PARTS", 2)
    monkeypatch.setattr(zha2006.Size, "of", staticmethod(lambda fold, quick: few))
    text = reproduce("zha2006", folder, "--out", tmp_path / "report")
    assert "60 test queries, flavour standard; without aTVT" in text
    numbers = json.loads((tmp_path / "report" / "numbers.json").read_text())
    assert list(numbers["comparison"]["methods"])[:2] == ["regression", "aTVT, λ by cross-validation"]
    away = [abs(numbers["moments"][zha2006.cell(*each)][0][0] - 1) for each in diagonal]
    assert away[2] < away[0] + 0.05
    assert all(trace[0] >= trace[1] for traces in numbers["traces"].values() for trace in traces), "a step never rises"
    assert {each["variant"] for each in numbers["chosen"]["aTVT, λ_α = 10, λ_β = 1"]} == {"updating"}
    assert sum(each[1] for each in numbers["quarters"]) == 60
    found = check(tmp_path / "report")
    assert (found.wrong, found.unstored) == ([], 0), "every table and verdict comes out of the stored values"
    assert {path.name for path in (tmp_path / "report").glob("*.svg")} == {"transforms.svg", "objective.svg"}


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["zha2006", "hoi2008"])
def test_a_quick_run_shows_every_table_and_says_on_top_that_it_is_quick(paper: str, tmp_path: Path) -> None:
    write_letor(tmp_path / "all.txt", make_judged(100, 6, 4, noise=0.3))
    text = reproduce(paper, tmp_path / "all.txt", "--quick", "--out", tmp_path / "report")
    assert text.startswith("**A quick run: the first fold and thin grids.")
    assert "20 test queries" in text, "one fold"
    assert text.count("| --- |") >= 4, "the tables"
    assert "| the paper | its p | here | our p | verdict |" in text
    assert json.loads((tmp_path / "report" / "numbers.json").read_text())["quick"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("blend", "--quick"), "--quick: there is no quick run of blend. Leave --quick out, or name"),
        (("zha2006", "--rankers", "1"), "--rankers: zha2006 takes no rankers. Leave --rankers out, or name hoi2008."),
        (("hoi2008", "--rankers", "1-"), "found '1-', expected columns from 1 up"),
        (("hoi2008", "--rankers", "0"), "found '0', expected columns from 1 up, like 1-10,16,20-25."),
        (("hoi2008", "--rankers", "3-2"), "found '3-2', expected columns from 1 up"),
        (("hoi2008", "--rankers", "1,x"), "found 'x', expected columns from 1 up"),
        (("hoi2008", "--rankers", "3-5"), "found column 5, but the data has columns 1 to 4. Name some of these."),
    ],
)
def test_what_a_reproduction_cannot_take_is_refused(
    words: tuple[str, ...], said: str, folder: Path, tmp_path: Path
) -> None:
    done = commands.reproduce(None, words[0], folder, *words[1:], "--out", tmp_path / "report")
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_the_former_command_names_the_new_one() -> None:
    told = commands.refused(commands.run(None, "reproduce", "geng2008", "my data", "--reference", 37, "-q"))
    assert told.endswith("Type there: python -m reproduction geng2008 'my data' --reference 37 -q\n")
    assert commands.refused(commands.run(None, "reproduce")).endswith("python -m reproduction --help\n")
    assert len(run("reproduce", "--help").splitlines()) < 12


def test_reproductions_run_in_a_clone_and_refuse_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "reproduction", "zha2006", str(tmp_path / "nowhere"), "--out", str(tmp_path)]
    clone = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=clone, env=commands.plain())
    assert "nowhere" in commands.refused(done)
    usage = commands.reproduce(tmp_path, "zha2006")
    assert usage.returncode == 2
    assert "Usage: python -m reproduction [OPTIONS]" in usage.stderr


@pytest.mark.slow
def test_a_comparison_can_give_every_method_of_trees_the_same_bag(folder: Path, tmp_path: Path) -> None:
    words = ["--methods", "lambdamart,single", "--bag", 2, "--out", tmp_path / "report"]
    run("compare", folder, *words)
    kept = [json.loads(path.read_text()) for path in sorted((tmp_path / "report" / "runs").glob("fold?-*[a-z].json"))]
    chosen = [each["notes"]["parameters"] for each in kept if "notes" in each]
    assert sum("bag" in each for each in chosen) == 5
    assert {each["bag"] for each in chosen if "bag" in each} == {2}


def test_help_and_version() -> None:
    assert "Learning to rank, query by query." in run("--help")
    assert "--valid" in run("fit", "--help")
    assert run("--version").startswith("querywise 0.")


def test_query_classes_come_in_by_the_side_file(folder: Path, tmp_path: Path) -> None:
    ids = read_letor(folder / "S1.txt").candidates.query_ids
    lines = [json.dumps({"_id": query_id, "text": "jaguar", "class": "animal"}) for query_id in ids]
    (tmp_path / "queries.jsonl").write_text("\n".join(lines))
    run("fit", folder / "S1.txt", "--queries", tmp_path / "queries.jsonl", "--out", tmp_path / "m")


@pytest.mark.slow
def test_classes_from_the_side_file_reach_the_folds_of_a_folder(folder: Path, tmp_path: Path) -> None:
    classes = make_judged(60, 8, 4, noise=0.3, kinds=2).candidates.queries
    assert classes is not None
    assert classes.classes is not None
    pairs = zip(classes.ids, classes.classes, strict=True)
    (tmp_path / "q.jsonl").write_text("\n".join(json.dumps({"_id": each, "class": name}) for each, name in pairs))
    words = ["--queries", tmp_path / "q.jsonl"]
    text = run("fit", folder, "--fold", 2, "--method", "query-classes", *words, "--out", tmp_path / "m")
    assert "The classifier's macro F1" in text
    content = json.loads(run("compare", folder, "--methods", "single,query-classes", *words, "--json"))
    assert set(content["methods"]) == {"single", "query-classes"}


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error(folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        done = commands.run_process(folder, "rank", "model", "S5.txt", stdout=closed)
    assert (done.returncode, done.stderr) == (0, "")


def test_folds_made_from_one_file_do_not_depend_on_anything_but_the_seed(folder: Path) -> None:
    data = read_letor(folder / "S1.txt")
    first, again = make_folds(data, seed=3)[0], make_folds(data, seed=3)[0]
    assert first.test.candidates.query_ids == again.test.candidates.query_ids
