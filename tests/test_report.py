"""A report: its numbers made anew by plain means from the files beside it, its sentences, its forms."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from markdown_it import MarkdownIt
from scipy import stats

from querywise.data.folds import make_folds
from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.evaluation.compare import Compared
from querywise.evaluation.findings import Findings, findings
from querywise.evaluation.rankings import breakdowns, by_difficulty, by_quarter, extremes
from querywise.jobs.compare import CompareOptions, run
from querywise.measures.score_files import write_scores
from querywise.report.drawings import Figure, differences, ndcg_curves
from querywise.report.sections import Section
from querywise.report.tables import Column, Table
from querywise.report.writing import markdown_page, write_report
from querywise.runtime.arrays import Bools, Floats, Ints
from tests.support.ranks import planted

Rows = list[list[str]]


def world(seed: int = 3, queries: int = 45) -> Judged:
    """Queries of 3 to 60 documents and two classes, some without one; grades follow a taste that the class changes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 61, queries)
    kind = rng.integers(0, 2, queries)
    centre = np.where(kind[:, None] == 1, 1.0, -1.0) * np.array([1.0, -1.0, 0.5])
    x = rng.normal(size=(sizes.sum(), 3)) + np.repeat(centre, sizes, axis=0)
    taste = np.where(np.repeat(kind, sizes) == 1, x[:, 0] - 1, -x[:, 0] - 1) + 0.5 * x[:, 2]
    labels = np.digitize(taste + rng.normal(size=len(x)), [0.4, 1.8])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    labels[starts[4] : starts[5]] = 0
    ids = tuple(f"q{number}" for number in range(queries))
    classes = tuple(None if number % 11 == 3 else ("low", "high")[kind[number]] for number in range(queries))
    texts = tuple(f"what is “{number}”, {'pretty ' * (number % 7)}please?" for number in range(queries))
    documents = tuple(f"doc-{number}" for number in range(len(x)))
    table = QueryTable(ids, texts=texts, classes=classes)
    return Judged(Candidates(x, starts, ids, document_ids=documents, queries=table), labels)


DATA = world()
NAMES = ("single", "knn-offline-2", "query-classes", "theirs")
MEASURES = ("map", "ndcg@10", "mean_ndcg")


@dataclass(frozen=True)
class Made:
    """A report and the findings it was made of."""

    folder: Path
    found: Findings

    def table(self, name: str) -> Rows:
        with open(self.folder / f"{name}.csv", encoding="utf-8", newline="") as lines:
            return list(csv.reader(lines))

    def records(self, name: str) -> list[dict[str, str]]:
        head, *rows = self.table(name)
        return [dict(zip(head, row, strict=True)) for row in rows]

    @property
    def json(self) -> Any:
        return json.loads((self.folder / "report.json").read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("report")
    noise = np.random.default_rng(0).normal(size=len(DATA.labels))
    write_scores(folder / "theirs.txt", (0.6 * DATA.labels + noise).round(1))  # rounded, so that there are ties
    asked = CompareOptions(
        NAMES[:3],
        (f"theirs={folder / 'theirs.txt'}",),
        fixed={"k": 0.3, "l2": 1.0, "prior_l2": 0.5, "view": "top-mean"},
    )
    found, _ = run(asked, make_folds(DATA), folder / "r", title="A comparison")
    return Made(folder / "r", found)


# Every number made anew, from runs/*.csv, values.csv and queries.csv


def precision_of(ranked: Sequence[int]) -> float:
    hits, total = 0, 0.0
    for place, label in enumerate(ranked, start=1):
        if label > 0:
            hits += 1
            total += hits / place
    return total / hits if hits else 0.0


def ndcg_at_all(ranked: Sequence[int]) -> list[float]:
    def curve(labels: Sequence[int]) -> list[float]:
        total, found = 0.0, []
        for place, label in enumerate(labels, start=1):
            total += (2**label - 1) / math.log2(place + 1)
            found.append(total)
        return found

    if not any(ranked):
        return [0.0] * len(ranked)
    best = curve(sorted(ranked, reverse=True))
    return [one / two for one, two in zip(curve(ranked), best, strict=True)]


def measured(ranked: Sequence[int]) -> tuple[float, float, float]:
    curve = ndcg_at_all(ranked)
    return precision_of(ranked), curve[min(10, len(curve)) - 1], sum(curve) / len(curve)


def from_runs(made: Made) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Method → query → its measures, from the scores that were kept."""
    found: dict[str, dict[str, tuple[float, float, float]]] = {}
    for name in NAMES:
        found[name] = {}
        for fold in range(1, 6):
            lists: dict[str, list[tuple[float, int, int]]] = {}
            for number, row in enumerate(made.records(f"runs/fold{fold}-{name}")):
                lists.setdefault(row["query"], []).append((-float(row["score"]), number, int(row["label"])))
            for query, documents in lists.items():
                found[name][query] = measured([label for _, _, label in sorted(documents)])
    return found


@pytest.fixture(scope="module")
def values(made: Made) -> dict[str, Floats]:
    """Method → queries × measures, in the order of queries.csv."""
    plain = from_runs(made)
    order = [row["query"] for row in made.records("queries")]
    return {name: np.array([plain[name][query] for query in order]) for name in NAMES}


def p_of(ours: Floats, theirs: Floats) -> float:
    found: Any = stats.ttest_rel(ours, theirs)
    return float(found.pvalue)


def holm_of(ps: Sequence[float]) -> list[float]:
    steps = [min(1.0, sum(other >= p for other in ps) * p) for p in ps]
    return [max(step for step, other in zip(steps, ps, strict=True) if other <= p) for p in ps]


def number(text: str) -> float | None:
    return float(text) if text else None


def test_the_kept_scores_are_of_every_judged_document_once(made: Made) -> None:
    for name in NAMES:
        rows = [row for fold in range(1, 6) for row in made.records(f"runs/fold{fold}-{name}")]
        assert sorted((row["document"], int(row["label"])) for row in rows) == sorted(
            zip(DATA.candidates.document_ids or (), DATA.labels.tolist(), strict=True)
        )


def test_every_value_follows_from_the_kept_scores(made: Made, values: dict[str, Floats]) -> None:
    head, *rows = made.table("values")
    assert head == ["method", "query", *MEASURES]
    ids = [row["query"] for row in made.records("queries")]
    assert [row[:2] for row in rows] == [[name, query] for name in NAMES for query in ids]
    assert np.array([list(map(float, row[2:])) for row in rows]) == pytest.approx(np.concatenate(list(values.values())))


def test_what_is_said_of_the_queries_is_so(made: Made) -> None:
    rows = {row["query"]: row for row in made.records("queries")}
    assert list(rows) != list(DATA.candidates.query_ids), "fold by fold"
    for query, query_id in enumerate(DATA.candidates.query_ids):
        row = rows[query_id]
        labels = DATA.labels[DATA.candidates.rows(query)]
        assert (int(row["candidates"]), int(row["relevant"])) == (len(labels), int((labels > 0).sum()))
        assert row["class"] == (DATA.classes[query] or "")
        assert row["text"].replace("pretty ", "") == f"what is “{query}”, please?"
        assert float(row["distance"]) > 0
        in_fold = {each["query"] for each in made.records(f"runs/fold{row['fold']}-single")}
        assert query_id in in_fold


def test_the_main_table_follows_from_the_values(made: Made, values: dict[str, Floats]) -> None:
    base = values["single"]
    ps = {name: p_of(values[name][:, 0], base[:, 0]) for name in NAMES[1:]}
    corrected = dict(zip(ps, holm_of(list(ps.values())), strict=True))
    rows = made.records("table")
    assert [row["method"] for row in rows] == list(NAMES)
    for row in rows:
        name = row["method"]
        own = values[name]
        gains = own[:, 0] - base[:, 0]
        for place, measure in enumerate(MEASURES):
            assert float(row[measure]) == pytest.approx(float(own[:, place].mean()))
            expected = None if name == "single" else pytest.approx(p_of(own[:, place], base[:, place]))
            assert number(row[f"p ({measure})"]) == expected
        if name == "single":
            assert (row["Δ map"], row["p, Holm"], row["wins / ties / losses"]) == ("", "", "")
        else:
            assert float(row["Δ map"]) == pytest.approx(float(gains.mean()))
            assert float(row["p, Holm"]) == pytest.approx(corrected[name])
            counts = [int(text) for text in row["wins / ties / losses"].split(" / ")]
            assert counts == [int((gains > 1e-12).sum()), int((abs(gains) <= 1e-12).sum()), int((gains < -1e-12).sum())]


def test_the_tests_follow_from_the_values(made: Made, values: dict[str, Floats]) -> None:
    rows = {row["method"]: row for row in made.records("tests")}
    assert list(rows) == list(NAMES[1:])
    ps = [p_of(values[name][:, 0], values["single"][:, 0]) for name in rows]
    for (name, row), corrected in zip(rows.items(), holm_of(ps), strict=True):
        gains = values[name][:, 0] - values["single"][:, 0]
        gains[abs(gains) < 1e-12] = 0.0
        error = float(gains.std(ddof=1) / np.sqrt(len(gains)))
        interval: Any = stats.bootstrap((gains,), np.mean, method="percentile", n_resamples=10_000, rng=5)
        signs: Any = stats.permutation_test((gains,), np.mean, permutation_type="samples", n_resamples=10_000, rng=5)
        ranks: Any = stats.wilcoxon(gains)
        assert float(row["Δ map"]) == pytest.approx(float(gains.mean()))
        assert float(row["from"]) == pytest.approx(interval.confidence_interval.low, abs=0.1 * error)
        assert float(row["to"]) == pytest.approx(interval.confidence_interval.high, abs=0.1 * error)
        assert float(row["p, paired t-test"]) == pytest.approx(p_of(gains, np.zeros(len(gains))))
        assert float(row["p, Wilcoxon signed-rank test"]) == pytest.approx(float(ranks.pvalue), rel=0.02)
        assert float(row["p, randomisation test"]) == pytest.approx(float(signs.pvalue), abs=0.025)
        assert float(row["p, paired t-test, Holm"]) == pytest.approx(corrected)
        assert float(row["effect"]) == pytest.approx(float(gains.mean() / gains.std(ddof=1)))


def quarters(numbers: Sequence[float]) -> list[set[int]]:
    """Places of the numbers up to the first quartile, up to the second, up to the third, and above."""
    cuts = sorted(set(np.quantile(numbers, [0.25, 0.5, 0.75]).tolist()))
    groups: list[set[int]] = [set() for _ in range(len(cuts) + 1)]
    for place, value in enumerate(numbers):
        groups[sum(value > cut for cut in cuts)].add(place)
    return [group for group in groups if group]


def groups_by(made: Made, what: str) -> list[set[int]]:
    rows = made.records("queries")
    if what == "relevant-documents":
        found: list[set[int]] = [set() for _ in range(4)]
        for place, row in enumerate(rows):
            found[sum(int(row["relevant"]) >= least for least in (1, 4, 21))].add(place)
        return [group for group in found if group]
    if what == "class":
        names = sorted({row["class"] for row in rows if row["class"]})
        return [{place for place, row in enumerate(rows) if row["class"] == name} for name in names]
    if what == "number-of-candidates":
        return quarters([float(row["candidates"]) for row in rows])
    if what == "query-length":
        return quarters([len(row["text"].split()) for row in rows])
    found = [set(), set(), set(), set()]
    for fold in sorted({row["fold"] for row in rows}):
        own = [place for place, row in enumerate(rows) if row["fold"] == fold]
        cuts = np.quantile([float(rows[place]["distance"]) for place in own], [0.25, 0.5, 0.75])
        for place in own:
            found[sum(float(rows[place]["distance"]) > cut for cut in cuts)].add(place)
    return [group for group in found if group]


BREAKDOWNS = (
    "relevant-documents",
    "class",
    "distance-to-the-nearest-training-query",
    "number-of-candidates",
    "query-length",
)


@pytest.mark.parametrize("what", BREAKDOWNS)
def test_every_group_of_queries_follows_from_the_values(made: Made, values: dict[str, Floats], what: str) -> None:
    head, *rows = made.table(f"by-{what}")
    groups = groups_by(made, what)
    assert len(groups) > 1
    assert [int(heading.rsplit("(", 1)[1][:-1]) for heading in head[1::2]] == [len(group) for group in groups]
    assert [row[0] for row in rows] == list(NAMES)
    for row in rows:
        for place, group in enumerate(groups):
            ours, base = (values[name][sorted(group), 0] for name in (row[0], "single"))
            assert float(row[1 + 2 * place]) == pytest.approx(float(ours.mean()))
            if row[0] == "single":
                assert row[2 + 2 * place] == ""
            elif np.ptp(ours - base) > 1e-12:
                assert float(row[2 + 2 * place]) == pytest.approx(p_of(ours, base))


@pytest.mark.parametrize("what", BREAKDOWNS)
def test_no_two_columns_of_a_table_have_the_same_heading(made: Made, what: str) -> None:
    head = made.table(f"by-{what}")[0]
    assert len(set(head)) == len(head), "whoever reads the file by its headings would lose one"


def test_the_groups_of_queries_are_those_of_the_report(made: Made) -> None:
    titles = {title.split(" (")[0].replace(" ", "-"): groups for title, groups in made.json["breakdowns"].items()}
    assert set(titles) == set(BREAKDOWNS)
    for what, groups in titles.items():
        head, *rows = made.table(f"by-{what}")
        assert [f"{label} ({group['queries']})" for label, group in groups.items()] == head[1::2]
        for row in rows:
            assert [group["means"][row[0]] for group in groups.values()] == [float(cell) for cell in row[1::2]]
            ps = [group["p"][row[0]] for group in groups.values()]
            assert ps == [float(cell) if cell else 1.0 for cell in row[2::2]]


def test_the_oracle_gap_follows_from_the_notes(made: Made, values: dict[str, Floats]) -> None:
    folds = [row["fold"] for row in made.records("queries")]
    rows = {row["method"]: row for row in made.records("oracle")}
    assert list(rows) == ["knn-offline-2", "query-classes"]
    single = float(values["single"][:, 0].mean())
    for name, row in rows.items():
        extras = [
            json.loads((made.folder / "runs" / f"fold{fold}-{name}.json").read_text())["extra"] for fold in range(1, 6)
        ]
        best = [value for extra in extras for value in extra["best_model"]]
        assert len(best) == len(folds)
        assert float(row["UpperBound"]) == pytest.approx(sum(best) / len(best))
        assert float(row["MAP reached"]) == pytest.approx(float(values[name][:, 0].mean()))
        assert float(row["MAP of single"]) == pytest.approx(single)
        assert int(row["models"]) == (2 if name == "query-classes" else 27)
        weights = [folds.count(str(fold)) for fold in range(1, 6)]
        curve = [
            np.average(level, weights=weights) for level in zip(*(extra["by_rank"] for extra in extras), strict=True)
        ]
        below = [rank for rank, value in enumerate(curve, start=1) if value <= single]
        assert number(row["rank at which single is reached"]) == (below[0] if below else None)
        only = [value for extra in extras for value in extra.get("relevant_only", ())]
        assert number(row["RelevantOnly"]) == (pytest.approx(sum(only) / len(only)) if only else None)
        assert (values[name][:, 0] <= np.array(best) + 1e-9).all()


def test_the_shares_of_features_follow_from_the_notes(made: Made) -> None:
    rows, json_ = made.records("features"), made.json["features"]
    assert set(json_) == set(NAMES[:3]), "of other systems only scores are known"
    for name in NAMES[:3]:
        notes = [json.loads(path.read_text()) for path in sorted((made.folder / "runs").glob(f"fold?-{name}.json"))]
        told = [each["content"]["reasons"] if "content" in each else each["reasons"] for each in notes]
        queries = sum(each["queries"] for each in told)
        for place, feature in enumerate(told[0]["features"]):
            for ours, theirs in (("here", "share"), ("everyone", "global"), ("moved", "moved")):
                mean = sum(each["queries"] * each[ours][place] for each in told) / queries
                assert json_[name][feature][theirs] == pytest.approx(mean)
    shown = {row["feature"]: row for row in rows}
    for feature, row in shown.items():
        assert float(row["single"]) == json_["single"][feature]["share"]
    text = (made.folder / "report.md").read_text(encoding="utf-8")
    assert "Not explained: theirs. Its scores were computed elsewhere." in text


def test_the_json_says_what_the_tables_say(made: Made) -> None:
    content = made.json
    assert (content["queries"], content["baseline"], content["test"]) == (45, "single", "t")
    assert (content["verdict_measure"], content["flavour"]) == ("map", "standard")
    tests = {row["method"]: row for row in made.records("tests")}
    for row in made.records("table"):
        found = content["methods"][row["method"]]
        assert [found["means"][measure] for measure in MEASURES] == [float(row[measure]) for measure in MEASURES]
        if row["method"] == "single":
            continue
        assert [found["p_by_measure"][measure] for measure in MEASURES] == [
            float(row[f"p ({measure})"]) for measure in MEASURES
        ]
        assert (found["difference"], found["p_holm"]) == (float(row["Δ map"]), float(row["p, Holm"]))
        assert f"{found['wins']} / {found['ties']} / {found['losses']}" == row["wins / ties / losses"]
        other = tests[row["method"]]
        assert found["interval"] == [float(other["from"]), float(other["to"])]
        assert found["effect"] == float(other["effect"])
        assert list(found["p"].values()) == [float(cell) for heading, cell in other.items() if "test" in heading][:3]
    for row in made.records("oracle"):
        oracle = content["oracles"][row["method"]]
        assert [oracle[key] for key in ("map", "baseline", "upper_bound")] == [
            float(row[heading]) for heading in ("MAP reached", "MAP of single", "UpperBound")
        ]


def test_the_ndcg_curve_is_the_plain_one(made: Made) -> None:
    for name in NAMES:
        curves = []
        for fold in range(1, 6):
            lists: dict[str, list[tuple[float, int, int]]] = {}
            for place, row in enumerate(made.records(f"runs/fold{fold}-{name}")):
                lists.setdefault(row["query"], []).append((-float(row["score"]), place, int(row["label"])))
            curves += [ndcg_at_all([label for _, _, label in sorted(each)]) for each in lists.values()]
        expected = [float(np.mean([curve[min(cut, len(curve)) - 1] for curve in curves])) for cut in range(1, 11)]
        assert made.found.ndcg[name] == pytest.approx(tuple(expected))


def test_the_queries_that_moved_most_are_those(made: Made, values: dict[str, Floats]) -> None:
    shown = max(NAMES[1:], key=lambda name: values[name][:, 0].mean())
    gains = values[shown][:, 0] - values["single"][:, 0]
    for file, sign in (("best-queries", 1), ("worst-queries", -1)):
        rows = made.records(file)
        moved = np.sort((sign * gains)[sign * gains > 1e-12])[::-1][:10]
        assert [sign * (float(row[shown]) - float(row["single"])) for row in rows] == pytest.approx(moved.tolist())
        for row in rows:
            text, _, kind = row["query"].rpartition(" (")
            query = int(text.split("“")[1].split("”")[0]) if kind else int(row["query"].split("“")[1].split("”")[0])
            assert kind == (f"{DATA.classes[query]})" if DATA.classes[query] else "")


def test_the_best_documents_of_a_query_are_called_as_in_the_kept_scores(tmp_path: Path) -> None:
    bare = replace(DATA, candidates=replace(DATA.candidates, document_ids=None))
    write_scores(tmp_path / "a", DATA.labels.astype(np.float64))
    write_scores(tmp_path / "b", -DATA.labels.astype(np.float64))
    asked = CompareOptions((), (f"a={tmp_path / 'a'}", f"b={tmp_path / 'b'}"), measures="map")
    found, _ = run(asked, make_folds(bare), tmp_path / "r", title="T")
    made = Made(tmp_path / "r", found)
    documents = {(row["query"], row["document"]) for fold in range(1, 6) for row in made.records(f"runs/fold{fold}-a")}
    for row in made.records("worst-queries"):
        query = f"q{row['query'].split('“')[1].split('”')[0]}"
        for document in row["top under a"].split("; "):
            assert (query, document.rstrip("★ \u00a0")) in documents


UNSAFE = "\x00\x1b[31m\x07\x0b\x85\x9b\uffff"


def test_control_characters_of_the_data_are_in_no_file(tmp_path: Path) -> None:
    known = DATA.candidates.queries
    assert known is not None
    texts = tuple(f"{UNSAFE}{text}" for text in known.texts or ())
    classes = tuple(None if each is None else f"{each}{UNSAFE}" for each in known.classes or ())
    names = tuple(f"{each}{UNSAFE}" for each in "abc")
    candidates = replace(DATA.candidates, feature_names=names, queries=replace(known, texts=texts, classes=classes))
    asked = CompareOptions(("single", "query-classes"), (), measures="map", fixed={"l2": 1.0})
    run(asked, make_folds(replace(DATA, candidates=candidates)), tmp_path / "r", title=f"T{UNSAFE}")
    written = [path for path in (tmp_path / "r").rglob("*") if path.suffix in (".html", ".md", ".csv", ".svg", ".tex")]
    figures = [path for path in written if path.suffix == ".svg"]
    assert figures
    for path in figures:
        ElementTree.parse(path)
    for path in written:
        found = set(path.read_text(encoding="utf-8")) & set(UNSAFE) - set("[31m")
        assert not found, (path, found)
    assert "high\ufffd" in (tmp_path / "r" / "report.md").read_text(encoding="utf-8")


# What it says


def test_the_planted_ranks_are_what_is_measured() -> None:
    found = planted(base=[1, 2, 5, 10], other=[10, 4, 3, 1])
    assert found.compared.evaluations["base"]["map"].tolist() == pytest.approx([1, 0.5, 0.2, 0.1])
    assert found.compared.evaluations["other"]["map"].tolist() == pytest.approx([0.1, 0.25, 1 / 3, 1])


def test_a_significant_gain_is_said_to_be_better() -> None:
    found = planted(base=[2] * 30, new=[1] * 20 + [2] * 10)
    assert found.verdict.startswith("new is better than base: map 0.8333 against 0.5000 (+66.7 %), p")
    assert "< 0.0001, paired t-test, on 30 queries" in found.verdict
    assert found.verdict.endswith(".")


def test_a_p_value_is_written_with_one_sign() -> None:
    assert "= <" not in planted(base=[2] * 30, new=[1] * 20 + [2] * 10).verdict
    assert "p = 1.0000" in planted(base=[2] * 30, new=[2] * 30).verdict


def test_chance_is_said_to_make_no_significant_difference() -> None:
    found = planted(base=[2] * 30, new=[1, 10] * 15)
    assert found.verdict.startswith("Nothing beats base here. The best of the others, new, makes no significant diff")
    assert "map 0.5500 against 0.5000 (+10.0 %), p = 0.5" in found.verdict


def test_a_significant_loss_is_said_to_be_worse() -> None:
    found = planted(base=[1] * 30, new=[2] * 25 + [1] * 5)
    assert found.verdict.startswith("Nothing beats base here. The best of the others, new, is worse: map 0.5833")


def marked(found: Findings, folder: Path) -> list[str]:
    """The methods whose rows of the page are highlighted."""
    text = write_report(found, folder, title="T").read_text(encoding="utf-8")
    return [html.unescape(each) for each in re.findall(r"<tr class=['\"]marked['\"]>\s*<t[dh][^>]*>([^<]*)<", text)]


def test_only_a_winner_is_highlighted(tmp_path: Path) -> None:
    assert marked(planted(base=[2] * 30, new=[1] * 20 + [2] * 10, bad=[5] * 30), tmp_path) == ["new"]
    assert planted(base=[2] * 30, new=[1] * 20 + [2] * 10).winner == "new"


@pytest.mark.parametrize("others", [[2] * 25 + [1] * 5, [1, 3] * 15, [1] * 30])
def test_where_nothing_beats_the_baseline_nothing_is_highlighted(tmp_path: Path, others: list[int]) -> None:
    found = planted(base=[1] * 30, new=others, bad=[5] * 30)
    assert found.verdict.startswith("Nothing beats base here.")
    assert found.winner is None
    assert marked(found, tmp_path) == []
    assert marked(planted(only=[2] * 8), tmp_path) == []


def test_one_method_alone_is_evaluated_and_not_compared() -> None:
    found = planted(only=[2] * 8)
    assert found.verdict == "Only only was evaluated: map 0.5000 on 8 queries."
    assert (found.shown, found.others, found.best, found.worst) == (None, (), (), ())


def test_a_method_that_is_better_is_named_even_if_another_has_a_higher_mean_by_luck() -> None:
    # wild is higher on average but may be luck; steady is lower and is not.
    found = planted(base=[2] * 40, wild=[1] * 22 + [10] * 18, steady=[1] * 6 + [2] * 34)
    means = {each.name: each.means["map"] for each in found.methods}
    better = {each.name for each in found.methods if each.is_better}
    assert means["wild"] > means["steady"] > means["base"]
    assert better == {"steady"}
    assert found.verdict.startswith("steady is better than base")


@pytest.mark.parametrize(
    ("test", "name"),
    [("t", "paired t-test"), ("wilcoxon", "Wilcoxon signed-rank test"), ("randomisation", "randomisation test")],
)
def test_the_verdict_names_its_test_and_the_correction(test: str, name: str) -> None:
    assert f", {name}, on 20 queries" in planted(base=[2] * 20, a=[3, 1] * 10, test=test).verdict
    several = planted(base=[2] * 20, a=[3, 1] * 10, b=[3] * 20, test=test)
    assert f"{name}, Holm's correction for 2 methods" in several.verdict


def test_the_correction_can_take_significance_away() -> None:
    ranks = [1] * 6 + [2] * 34
    few = planted(base=[2] * 40, a=ranks)
    many = planted({"base": [2] * 40, "a": ranks, **{f"b{number}": [2] * 40 for number in range(9)}})
    assert few.methods[1].is_better
    assert many.methods[1].p["t"] == few.methods[1].p["t"]
    assert few.methods[1].corrected is not None
    assert many.methods[1].corrected == pytest.approx(10 * few.methods[1].corrected)
    assert not many.methods[1].is_better
    assert many.verdict.startswith("Nothing beats base here. The best of the others, a,")


def test_a_test_that_leans_the_other_way_than_the_mean_is_no_reason_to_call_it_better() -> None:
    # Many small losses and a few large gains: the mean is higher, the signed ranks say the opposite.
    found = planted(base=[4] * 90 + [10] * 12, a=[5] * 90 + [1] * 12, test="wilcoxon")
    assert found.methods[1].difference > 0
    assert found.methods[1].is_significant
    assert not found.methods[1].is_better
    assert found.verdict.startswith("Nothing beats base here")


def test_what_is_left_out_cannot_be_the_answer() -> None:
    whole = planted(base=[2] * 40, oracle=[1] * 40, a=[1] * 10 + [2] * 30)
    found = findings(whole.compared, "map", left_out=["oracle"])
    assert whole.verdict.startswith("oracle is better")
    assert found.verdict.startswith("a is better than base")
    assert found.compared_with == 1
    assert [each.name for each in found.methods] == ["base", "oracle", "a"]


def test_a_baseline_of_nothing_has_no_per_cent() -> None:
    found = planted(base=[10] * 10, new=[1] * 10, measure="p@1")
    assert "p@1 1.0000 against 0.0000, p" in found.verdict


def with_costs(found: Findings, **costs: tuple[float, float]) -> Findings:
    """The same findings of methods that took so many seconds to train and milliseconds per query to rank."""
    compared = found.compared
    trained = {
        name: tuple(
            replace(each, fit_seconds=costs[name][0], predict_seconds=costs[name][1] * len(compared.judged) / 1000)
            if name in costs
            else each
            for each in folds
        )
        for name, folds in compared.trained.items()
    }
    return findings(replace(compared, trained=trained), found.measure, test=found.test)


BLENDLIKE = {
    "base": [2] * 40,
    "blend": [1] * 30 + [2] * 10,
    "weights": [1] * 28 + [2] * 11 + [3],
    "poor": [3] * 38 + [4, 5],
}


def test_the_cheapest_method_that_is_not_significantly_worse_is_named_with_its_difference_and_costs() -> None:
    costs = {"base": (0.1, 0.01), "blend": (83.0, 0.31), "weights": (1.0, 0.02), "poor": (0.2, 0.01)}
    found = with_costs(planted(BLENDLIKE), **costs)
    ours, theirs = found.compared.evaluations["weights"]["map"], found.compared.evaluations["blend"]["map"]
    ps = [p_of(found.compared.evaluations[name]["map"], theirs) for name in ("base", "weights", "poor")]
    assert found.winner == "blend"
    assert found.cheapest is not None
    assert found.cheapest.others == ("weights",)
    assert [each.is_worse for each in found.cheapest.tests] == [True, False, True]
    assert found.advice == (
        f"weights is the cheapest method not significantly worse than blend: map {(ours - theirs).mean():+.4f}, "
        f"p = {holm_of(ps)[1]:.4f} (Holm, 3 tests), trained in 1 s instead of 83 s, 0.02 ms per query instead of 0.31."
    )
    decided: Any = found.decided()
    assert decided["cheapest"]["to_train"] == "weights"


def test_where_one_is_cheapest_to_train_and_another_to_rank_by_both_are_named() -> None:
    ranks = {**BLENDLIKE, "quick": BLENDLIKE["weights"]}
    costs = {"base": (0.1, 0.01), "blend": (83.0, 0.31), "weights": (1.0, 0.2), "quick": (9.0, 0.02), "poor": (1, 1)}
    found = with_costs(planted(ranks), **costs)
    assert found.cheapest is not None
    assert (found.cheapest.training, found.cheapest.ranking) == ("weights", "quick")
    assert "weights is the cheapest method to train that is not significantly worse than blend: " in found.advice
    assert "quick is the cheapest method to rank by that is not significantly worse than blend: " in found.advice


def test_no_method_is_advised_that_costs_more_than_the_best_or_is_significantly_worse() -> None:
    costs = {"base": (0.1, 0.01), "blend": (0.5, 0.02), "weights": (1.0, 0.03), "poor": (0.2, 0.01)}
    found = with_costs(planted(BLENDLIKE), **costs)
    assert found.cheapest is not None
    assert found.cheapest.others == ()
    assert re.fullmatch(
        r"Every method cheaper than blend is significantly worse; the closest is \w+: map -0\.\d{4}, p .* "
        r"\(Holm, 3 tests\), trained in 0\.\d s instead of 0\.5 s, 0\.01 ms per query instead of 0\.02\.",
        found.advice,
    )
    alone = with_costs(planted(BLENDLIKE), base=(1, 1), blend=(0.5, 0.02), weights=(1.0, 0.03), poor=(2, 1))
    assert alone.advice == "No method is cheaper than blend."


def test_where_nothing_beats_the_baseline_costs_are_beside_the_highest_mean() -> None:
    costs = {"base": (50.0, 1.0), "new": (2.0, 0.1)}
    found = with_costs(planted(base=[2] * 30, new=[1, 10] * 15), **costs)
    assert found.winner is None
    assert found.advice == "No method is cheaper than new, which has the highest mean."
    turned = with_costs(planted(base=[2] * 30, new=[1, 10] * 15), base=(2.0, 0.1), new=(50.0, 1.0))
    start = "base is the cheapest method not significantly worse than new, which has the highest mean: map -0.0500, p ="
    assert turned.advice.startswith(start)


def test_systems_whose_costs_are_not_known_are_not_advised() -> None:
    found = planted(BLENDLIKE)  # given scores cost nothing that is known
    assert found.cheapest is not None
    assert (found.cheapest.tests, found.advice) == ((), "")
    some = with_costs(found, base=(0.1, 0.01))
    assert some.advice.startswith(
        "Every method whose cost is known is significantly worse than blend; the closest is base: map -"
    )


def test_the_first_screen_and_markdown_name_the_cheapest_method(tmp_path: Path) -> None:
    costs = {"base": (0.1, 0.01), "blend": (83.0, 0.31), "weights": (1.0, 0.02), "poor": (0.2, 0.01)}
    found = with_costs(planted(BLENDLIKE), **costs)
    page = write_report(found, tmp_path, title="T").read_text(encoding="utf-8")
    first = page[: page.index("</header>")]
    assert "Cheapest, not significantly worse than blend</span> <b><strong>weights</strong>" in first
    assert found.advice in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("test", ["t", "wilcoxon"])
def test_any_two_methods_are_tested_against_each_other(tmp_path: Path, test: str) -> None:
    found = planted(BLENDLIKE, test=test)
    tables = {name: each["map"] for name, each in found.compared.evaluations.items()}
    by_hand: Any = {"t": stats.ttest_rel, "wilcoxon": stats.wilcoxon}[test]
    named = list(itertools.combinations(BLENDLIKE, 2))
    ps = [float(by_hand(tables[one], tables[two]).pvalue) for one, two in named]
    assert [(each.first, each.second) for each in found.pairs] == named
    assert [each.p for each in found.pairs] == pytest.approx(ps)
    assert [each.p_holm for each in found.pairs] == pytest.approx(holm_of(ps))
    alone = found.compared.test("poor", "weights", "map", test=test)
    assert alone.difference == pytest.approx((tables["poor"] - tables["weights"]).mean())
    assert alone.p == pytest.approx(ps[named.index(("weights", "poor"))])
    write_report(found, tmp_path, title="T")
    made = Made(tmp_path, found)
    cells = {(row["method"], name): row[f"− {name}"] for row in made.records("pairs") for name in BLENDLIKE}
    for (one, two), p in zip(named, holm_of(ps), strict=True):
        for first, second in ((one, two), (two, one)):
            difference, told = map(float, cells[first, second].split(" p "))
            assert difference == pytest.approx((tables[first] - tables[second]).mean())
            assert told == pytest.approx(p)
    assert all(cells[name, name] == "" for name in BLENDLIKE)
    assert made.json["pairs"] == [asdict(each) for each in found.pairs]


def test_only_significant_pairs_are_colored(tmp_path: Path) -> None:
    page = write_report(planted(BLENDLIKE), tmp_path, title="T").read_text(encoding="utf-8")
    pairs = page[page.index('aria-label="Table: pairs"') :]
    assert len(re.findall('class="number tested"', pairs)) == 2, "blend and weights, in both orders"
    assert len(re.findall('class="number tested rise"', pairs)) == len(re.findall("tested fall", pairs)) == 5


def test_what_is_not_in_a_comparison_cannot_be_tested() -> None:
    compared = planted(base=[2] * 8, new=[1] * 8).compared
    with pytest.raises(DataError, match=r"There is no method 'nwe' in this comparison. There are: base, new\."):
        compared.test("nwe", "base")
    with pytest.raises(DataError, match=r"Measure 'mrr' was not evaluated\. Evaluated: map\."):
        compared.test("new", "base", "mrr")


def test_what_a_hollow_dot_means_is_said(tmp_path: Path) -> None:
    pages = []
    for left_out in ((), ("oracle",)):
        compared = planted(base=[2] * 30, new=[1, 3, 2] * 10, oracle=[1] * 30).compared
        found = findings(compared, "map", left_out=left_out)
        pages.append(write_report(found, tmp_path, title="T").read_text(encoding="utf-8"))
    assert "a hollow one that it is not.</p>" in pages[0]
    assert "or that nothing was tested: oracle, shown for comparison alone.</p>" in pages[1]


def test_two_copies_of_one_method_do_not_differ(tmp_path: Path, made: Made) -> None:
    # The scores of `single` in the order of the data, handed in as another system's.
    kept = {
        row["document"]: float(row["score"]) for fold in range(1, 6) for row in made.records(f"runs/fold{fold}-single")
    }
    write_scores(tmp_path / "copy.txt", np.array([kept[each] for each in DATA.candidates.document_ids or ()]))
    asked = CompareOptions(("single",), (f"copy={tmp_path / 'copy.txt'}",), fixed={"l2": 1.0})
    found, page = run(asked, make_folds(DATA), tmp_path / "r", title="Twins")
    assert page is not None
    assert found.verdict.startswith("Nothing beats single here. The best of the others, copy, makes no significant dif")
    row = Made(tmp_path / "r", found).records("table")[1]
    assert [row[f"p ({measure})"] for measure in MEASURES] == ["1.0", "1.0", "1.0"]
    assert (row["Δ map"], row["wins / ties / losses"]) == ("0.0", "0 / 45 / 0")
    assert "Nothing beats single here." in page.read_text()
    assert "Nothing beats single here." in (tmp_path / "r" / "report.md").read_text()
    assert not (tmp_path / "r" / "best-queries.csv").exists()


def test_a_planted_difference_is_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, noise in (("noisy", 3.0), ("good", 0.5)):
        write_scores(tmp_path / name, DATA.labels + noise * rng.normal(size=len(DATA.labels)))
    asked = CompareOptions((), tuple(f"{name}={tmp_path / name}" for name in ("noisy", "good")), test="wilcoxon")
    found, page = run(asked, make_folds(DATA), tmp_path / "r", title="Planted")
    assert page is not None
    assert found.verdict.startswith("good is better than noisy: map ")
    assert "ms per query" not in found.verdict, "nobody timed them"
    head = page.read_text().split('<p class="verdict">')[1].split("</p>")[0]
    assert head.startswith("good is better than noisy: map ")
    assert (tmp_path / "r" / "report.md").read_text().startswith("# Planted\n\ngood is better than noisy: map ")


# Groups of queries


def times_in(masks: Iterable[Bools]) -> list[int]:
    """In how many of the groups each query is."""
    found: list[int] = np.sum(list(masks), axis=0).tolist()
    return found


@settings(deadline=None)
@given(values=arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1e5, allow_nan=False)))
def test_quarters_are_every_query_once_in_order(values: Floats) -> None:
    masks = list(by_quarter(values).values())
    assert times_in(masks) == [1] * len(values)
    assert all(values[one].max() < values[two].min() for one, two in itertools.pairwise(masks))


@settings(deadline=None)
@given(values=arrays(np.int64, st.integers(1, 60), elements=st.integers(0, 5)))
def test_equal_numbers_are_in_the_same_quarter(values: Ints) -> None:
    masks = by_quarter(values).values()
    assert times_in(masks) == [1] * len(values)
    for each in np.unique(values):
        assert sum(bool(mask[values == each].any()) for mask in masks) == 1


def test_quarters_whose_numbers_are_nearly_alike_stay_apart() -> None:
    values = np.linspace(0.5, 0.50001, 12)
    assert [int(mask.sum()) for mask in by_quarter(values).values()] == [3, 3, 3, 3]


def test_quarters_are_named_by_their_ends() -> None:
    assert {label: int(mask.sum()) for label, mask in by_quarter(np.arange(1, 9)).items()} == {
        "1 to 2": 2,
        "3 to 4": 2,
        "5 to 6": 2,
        "7 to 8": 2,
    }
    assert len(by_quarter(np.full(10, 7))) == 1, "what is everywhere the same is one group"
    assert {label: int(mask.sum()) for label, mask in by_quarter(np.array([1, 1, 1, 1, 1, 2])).items()} == {
        "1 to 1": 5,
        "2 to 2": 1,
    }
    assert list(by_quarter(np.array([999, 1200, 1201, 120000])))[-1] == "120000 to 120000"


@settings(deadline=None)
@given(relevant=arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 60)))
def test_difficulties_are_every_query_once(relevant: Ints) -> None:
    masks = by_difficulty(relevant)
    assert times_in(masks.values()) == [1] * len(relevant)
    for label, (least, most) in {"none": (0, 0), "1 to 3": (1, 3), "4 to 20": (4, 20)}.items():
        assert masks[label].tolist() == [least <= count <= most for count in relevant]


def test_the_groups_of_a_breakdown_are_all_queries_that_have_the_property(made: Made) -> None:
    counts = {
        each.title.split(" (")[0]: sum(group.queries for group in each.groups)
        for each in breakdowns(made.found.compared, "map")
    }
    classed = sum(name is not None for name in DATA.classes)
    assert counts == {
        "relevant documents": 45,
        "class": classed,
        "distance to the nearest training query": 45,
        "number of candidates": 45,
        "query length": 45,
    }


def test_what_all_queries_have_in_common_is_no_breakdown() -> None:
    assert breakdowns(planted(base=[1, 2, 3]).compared, "map") == []


def test_extremes_are_the_largest_first_and_never_the_wrong_sign() -> None:
    compared: Compared = planted(base=[2] * 30, new=[1] * 12 + [3] * 3 + [2] * 15).compared
    best, worst = extremes(compared, "new", "map", count=5, top=3)
    assert [each.values for each in best] == [(0.5, 1.0)] * 5
    assert [each.values[1] for each in worst] == pytest.approx([1 / 3] * 3)
    assert [len(top) for each in best for top in each.tops] == [3] * 10
    assert best[0].tops[1][0][1] == 1, "under new the relevant document is first"


# Tables and their forms

TRICKY = ("plain", "a|b", "a & b", "50 %", "x_1", "#2", "$5", "{y}", "~", "^", "\\cmd", "<b>", '"q"', "ä → ★", "it's")
cells = st.one_of(
    st.none(),
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00\r"), max_size=20),
)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(cells, cells, cells), max_size=8))
def test_csv_comes_back_to_the_last_bit(rows: list[tuple[Any, Any, Any]]) -> None:
    table = Table((Column("a, b"), Column('"c"', "value"), Column("p", "p")), tuple(rows))
    head, *read = csv.reader(io.StringIO(table.csv(), newline=""))
    assert head == ["a, b", '"c"', "p"]
    assert read == [
        ["" if cell is None else cell if isinstance(cell, str) else repr(cell) for cell in row] for row in rows
    ]


def markdown_rows(text: str) -> Rows:
    """The tables of a Markdown text as another program reads them."""
    rows: Rows = []
    inside = False
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type in ("table_open", "table_close"):
            inside = token.type == "table_open"
        elif token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and inside:
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows


@pytest.mark.parametrize("name", TRICKY)
def test_markdown_comes_back_with_its_cells(name: str) -> None:
    table = Table((Column(name), Column("map", "value")), ((name, 0.25), ("other", None)), "A caption.")
    rows = markdown_rows(table.markdown())
    assert rows == [[name, "map"], [name, "0.2500"], ["other", ""]]
    assert table.markdown().endswith("\n\nA caption.\n")


LATEX = {
    "x_1": r"x\_1",
    "a & b": r"a \& b",
    "50 %": r"50 \%",
    "#2": r"\#2",
    "$5": r"\$5",
    "{y}": r"\{y\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\cmd": r"\textbackslash{}cmd",
    "< 0.0001": r"$<$ 0.0001",
    "Δ map": r"$\Delta$ map",
    "plain": "plain",
}


@pytest.mark.parametrize(("text", "written"), LATEX.items(), ids=LATEX)
def test_latex_escapes_what_means_something_there(text: str, written: str) -> None:
    lines = Table((Column("method"), Column(text)), ((text, 0.5),)).latex().splitlines()
    assert lines == [
        r"\begin{tabular}{ll}",
        r"\toprule",
        rf"method & {written} \\",
        r"\midrule",
        rf"{written} & 0.5000 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_latex_has_a_cell_for_every_column_and_numbers_on_the_right(made: Made) -> None:
    lines = (made.folder / "table.tex").read_text().splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrrrrrl}"
    body = [line for line in lines if line.endswith(r"\\")]
    assert [line.count(" & ") for line in body] == [9] * 5
    assert "mean\\_ndcg" in body[0]
    assert lines[-1].startswith("% 45 test queries"), "the caption is a comment"


@pytest.mark.parametrize(
    ("kind", "cell", "written"),
    [
        ("value", 0.12345, "0.1235"),
        ("signed", 0.12345, "+0.1235"),
        ("signed", -0.5, "-0.5000"),
        ("p", 0.00009, "< 0.0001"),
        ("p", 0.0001, "0.0001"),
        ("count", 12345, "12,345"),
        ("time", 0.012345, "0.0123"),
        ("time", float("nan"), ""),
        ("value", None, ""),
        ("text", "as it is", "as it is"),
    ],
)
def test_numbers_are_written_for_people(kind: str, cell: Any, written: str) -> None:
    assert Column("x", kind).written(cell) == written


class Page(HTMLParser):
    """The texts of the cells, and how often each element opens."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []
        self.alts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.inside = True
            self.cells.append("")
        if tag == "img" or (tag == "svg" and ("role", "img") in attrs):
            self.alts.append(dict(attrs).get("alt") or dict(attrs).get("aria-label") or "")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] += data


HOSTILE = ("<script>alert('a')</script>", "quote\"d' & co", "a|b", "größe → é", "</table><b>")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A report whose systems, queries, classes and documents are called what no page should contain as it is."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(1)
    candidates = DATA.candidates
    table = QueryTable(
        candidates.query_ids,
        texts=tuple(f"<i>{number}</i> & | more" for number in range(len(DATA))),
        classes=tuple(("<u>", "r&d")[number % 2] for number in range(len(DATA))),
    )
    documents = tuple(f"<d|{number}&>" for number in range(len(DATA.labels)))
    data = replace(DATA, candidates=replace(candidates, document_ids=documents, queries=table))
    asked = []
    for number, name in enumerate(HOSTILE):
        write_scores(folder / f"{number}.txt", DATA.labels + (1 + number) * rng.normal(size=len(DATA.labels)))
        asked.append(f"{name}={folder / f'{number}.txt'}")
    found, _ = run(
        CompareOptions((), tuple(asked), measures="map"), make_folds(data), folder / "r", title="<h1> & “co”"
    )
    return Made(folder / "r", found)


def test_names_are_escaped_in_html(hostile: Made) -> None:
    text = (hostile.folder / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags.count("script") == 3, "only our own: the data, and what sorts and lists it"
    assert page.tags.count("h1") == 1
    assert not {"i", "u", "b", "d"} & set(page.tags)
    for name in HOSTILE:
        assert name in page.cells
    assert any(HOSTILE[0] in alt for alt in page.alts)
    assert page.tags.count("table") == text.count("</table>")
    assert any("<i>" in cell and "</i> & | more (" in cell for cell in page.cells)


def test_names_stay_in_their_cells_in_markdown_and_csv(hostile: Made) -> None:
    rows = markdown_rows((hostile.folder / "table.md").read_text(encoding="utf-8"))
    assert [row[0] for row in rows[1:]] == list(HOSTILE)
    assert {len(row) for row in rows} == {len(rows[0])}
    assert [row["method"] for row in hostile.records("table")] == list(HOSTILE)
    whole = markdown_rows((hostile.folder / "report.md").read_text(encoding="utf-8"))
    assert any(row[0].startswith("<i>") and row[0].endswith("(r&d)") for row in whole)


MARKDOWN = (
    "<img src=x onerror=alert(1)>",
    "[link](http://elsewhere.example)",
    "![x](http://elsewhere.example/x.png)",
    "**bold** _soft_ `code` ~~gone~~",
    "&lt;b&gt; &#60;",
    "<http://elsewhere.example>",
    "[x]: http://elsewhere.example",
    "\\[a](b) \\<b>",
)


@pytest.mark.parametrize("text", MARKDOWN)
def test_no_text_of_the_data_is_markup_in_markdown(text: str) -> None:
    table = Table((Column(text), Column("map", "value")), ((text, 0.25),), text)
    several = f"{text}\n# heading\n- list\n1. list\n> said\n    code\n| a | b |\n```\ncode\n===\n***\n[a]: b\n{text}"
    figure = Figure("a.svg", text, ndcg_curves(planted(one=[2] * 30, two=[1] * 30))[0].chart)
    page = markdown_page([Section(f"{text}\n# more", several, (("table", table),), (figure,), code=f"a\n{text}")])
    tokens = MarkdownIt("commonmark").enable("table").enable("strikethrough").parse(page)
    kinds = {child.type for token in tokens for child in [token, *(token.children or ())]}
    assert not kinds & {
        *("html_inline", "html_block", "link_open", "em_open", "strong_open", "s_open", "code_inline", "fence", "hr"),
        *("bullet_list_open", "ordered_list_open", "blockquote_open"),
    }
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1"]
    images = [each for token in tokens for each in token.children or () if each.type == "image"]
    assert [each.attrs["src"] for each in images] == ["figures/a.svg"]
    assert images[0].content.replace("\\", "") == text.replace("\\", "")
    assert markdown_rows(page) == [[text, "map"], [text, "0.2500"]], "and reads as it is"
    assert sum(token.type == "table_open" for token in tokens) == 1


@pytest.mark.parametrize("names", [("$x_$", "b"), ("検索", "b"), ("_a", "_b"), ("<b>", "c & d")])
def test_any_name_can_stand_in_a_figure(names: tuple[str, str]) -> None:
    found = planted({names[0]: [2] * 30, names[1]: [1, 3, 2] * 10})
    curves, others = (draw(found)[0].chart for draw in (ndcg_curves, differences))
    for drawn in (curves.html(), curves.file()):
        assert all(f">{html.escape(name)}<" in drawn for name in names)
    assert f">{html.escape(names[1])}<" in others.file()


def test_a_very_long_name_leaves_room_for_the_figure() -> None:
    name = "a-name-" + "that-goes-on-" * 9
    found = planted({name: [2] * 30, "b" + name: [1, 3, 2] * 10})
    for draw in (ndcg_curves, differences):
        assert ">ba-name-that-" in draw(found)[0].chart.file()


def test_systems_of_any_name_can_be_told_apart_in_a_figure() -> None:
    figure = ndcg_curves(planted(ours=[2] * 30, theirs=[1, 3, 2] * 10, third=[1, 1, 5] * 10))[0].chart.file()
    lines = set(re.findall(r'<polyline [^>]*stroke="(#[0-9a-f]{6})"', figure))
    assert len(lines) == 3, "a colour each"


# The files of a report


def test_everything_a_report_links_to_is_there(made: Made) -> None:
    text = (made.folder / "report.md").read_text(encoding="utf-8")
    linked = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(linked) >= 6
    assert len(set(linked)) == len(linked)
    for name in linked:
        assert (made.folder / name).read_text(encoding="utf-8").lstrip().startswith("<?xml")
    drawn = {f"figures/{path.name}" for path in (made.folder / "figures").iterdir()}
    assert drawn == set(linked)


def test_every_figure_of_the_page_says_what_it_shows(made: Made) -> None:
    page = Page((made.folder / "report.html").read_text(encoding="utf-8"))
    assert page.tags.count("figure") == page.tags.count("figcaption") == len(list((made.folder / "figures").iterdir()))
    assert len(page.alts) == page.tags.count("figure") - 1, "the first one is a list"
    assert all(len(alt) > 10 for alt in page.alts)


def test_markdown_and_html_hold_the_same_tables(made: Made) -> None:
    page = Page((made.folder / "report.html").read_text(encoding="utf-8"))
    rows = markdown_rows((made.folder / "report.md").read_text(encoding="utf-8"))
    assert sorted(cell for row in rows for cell in row) == sorted(page.cells)


@pytest.mark.slow
def test_the_same_numbers_give_the_same_bytes(tmp_path: Path, made: Made) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        write_report(made.found, folder, title="A comparison")
    one, two = ({str(path.relative_to(f)): path.read_bytes() for path in f.rglob("*.*")} for f in folders)
    assert one == two
    first = {str(path.relative_to(made.folder)): path.read_bytes() for path in made.folder.rglob("*.*")}
    assert {name: content for name, content in first.items() if not name.startswith("runs/fold")} == one


def test_a_report_of_fewer_things_does_not_leave_those_of_an_older_one(tmp_path: Path) -> None:
    write_report(planted(base=[2] * 30, new=[1, 3, 2] * 10), tmp_path, title="T")
    assert (tmp_path / "best-queries.csv").exists()
    (tmp_path / "figures" / "mine.svg").write_text("<svg/>")
    for name in ("upper-bound.svg", "transforms-2.svg"):  # as other methods have
        (tmp_path / "figures" / name).write_text("<svg/>")
        with (tmp_path / "report.md").open("a", encoding="utf-8") as page:
            page.write(f"![something](figures/{name})\n")
    write_report(planted(base=[2] * 30), tmp_path, title="T")
    assert (tmp_path / "figures" / "mine.svg").exists(), "it is of no report"
    (tmp_path / "figures" / "mine.svg").unlink()
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert not (tmp_path / "best-queries.csv").exists()
    assert {f"figures/{path.name}" for path in (tmp_path / "figures").iterdir()} == set(
        re.findall(r"\((figures/[^)]+)\)", text)
    )


def test_json_is_json(made: Made, hostile: Made) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    for each in (made, hostile):
        for path in [each.folder / "report.json", *(each.folder / "runs").glob("*.json")]:
            json.loads(path.read_text(), parse_constant=refuse)


def test_a_story_stands_behind_the_verdict(tmp_path: Path) -> None:
    found = planted(base=[2] * 30, new=[1, 3, 2] * 10)
    page = write_report(found, tmp_path, title="T", story="Told once & for all.").read_text()
    assert page.count("Told once &amp; for all.") == 1
    assert page.index(found.verdict[:20]) < page.index("Told once")


def test_sentences_count_in_the_singular_too(tmp_path: Path) -> None:
    write_report(planted(base=[2] * 30, new=[1] + [3] * 29), tmp_path, title="T")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "wins 1 query," in text
    assert "1 methods" not in text
