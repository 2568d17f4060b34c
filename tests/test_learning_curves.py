"""Learning curves of what is compared: which queries are trained on, what is tested, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from querywise import RankSVM, learning_curves
from querywise.cli import app
from querywise.contracts.answers import Scorer
from querywise.data.folds import Fold, make_folds
from querywise.data.judged import Judged
from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.compare import compare
from querywise.evaluation.evaluate import Evaluation
from querywise.evaluation.foreign import System
from querywise.evaluation.learning_curves import LearningCurves, cut, sizes_up_to, training_queries
from querywise.evaluation.resume import Kept
from querywise.evaluation.significance import holm, paired_t_test
from querywise.jobs.compare import CompareOptions, run
from querywise.methods import METHODS
from tests.support.compared import COUNTED, Counting, contents

DATA = make_judged(120, 6, 3, noise=0.3)
SYSTEMS: dict[str, System] = {"svm": RankSVM(), "strong": RankSVM(l2=100.0), "first": lambda X: X[:, 0]}


# Which queries are trained on


def test_sizes_double_up_to_all() -> None:
    assert sizes_up_to(30) == (30,)
    assert sizes_up_to(20) == (20,)
    assert sizes_up_to(60) == (30, 60)
    assert sizes_up_to(471) == (30, 60, 120, 240, 471)


def test_fewer_queries_are_among_those_of_more_and_the_test_part_stays() -> None:
    fold = Fold(DATA.select(range(70)), DATA.select(range(70, 90)), DATA.select(range(90, 120)))
    small, large = cut(fold, 30), cut(fold, 60)
    assert set(small.train.candidates.query_ids) < set(large.train.candidates.query_ids)
    assert (len(small.train), len(small.valid), len(large.valid)) == (30, 10, 17)
    assert small.test is fold.test
    assert cut(fold, 70).train.candidates.query_ids == fold.train.candidates.query_ids


def test_every_size_is_the_comparison_on_folds_that_are_cut() -> None:
    seen: list[tuple[int, frozenset[str]]] = []

    def looked_at(train: Judged, valid: Judged) -> Scorer:
        seen.append((len(valid), frozenset(train.query_ids)))
        return RankSVM().fit(train)

    folds = make_folds(DATA, folds=4)
    found = learning_curves({"looked at": looked_at}, folds, measures="map")
    assert [len(train) for _, train in seen] == [60] * 4 + [30] * 4, "all of them first, and once"
    assert [valid for valid, _ in seen] == [30] * 4 + [15] * 4
    assert all(small < large for (_, small), (_, large) in zip(seen[4:], seen[:4], strict=True))
    alone = compare({"svm": RankSVM()}, [cut(fold, 30) for fold in folds], measures="map")
    np.testing.assert_array_equal(found.evaluations[30]["looked at"].values, alone.evaluations["svm"].values)


@pytest.fixture(scope="module")
def found() -> LearningCurves:
    """Three systems, one of which learns nothing."""
    return learning_curves(SYSTEMS, make_folds(DATA), measures="map,ndcg@10", baseline="strong")


def test_the_last_size_is_the_comparison_itself(found: LearningCurves) -> None:
    whole = compare(SYSTEMS, make_folds(DATA), measures="map,ndcg@10", baseline="strong")
    assert found.sizes == (30, 60, 72)
    assert found.names == whole.names
    for name in whole.names:
        np.testing.assert_array_equal(found.evaluations[72][name].values, whole.evaluations[name].values)
        assert found.evaluations[30][name].query_ids == whole.evaluations[name].query_ids


def test_what_is_not_trained_is_the_same_at_every_size(found: LearningCurves) -> None:
    assert found.given == ("first",)
    assert len({found.mean(size, "first", "map") for size in found.sizes}) == 1
    assert "first" not in found.rises("map")
    assert len({found.mean(size, "svm", "map") for size in found.sizes}) == 3


# The tests


def test_every_p_is_corrected_for_the_whole_table(found: LearningCurves) -> None:
    tested = found.against_baseline("map")
    assert list(tested) == [(size, name) for size in found.sizes for name in ("svm", "first")]
    alone = [
        paired_t_test(found.evaluations[size][name]["map"], found.evaluations[size]["strong"]["map"]).p
        for size, name in tested
    ]
    assert [each.found.p for each in tested.values()] == alone
    assert [each.p_holm for each in tested.values()] == holm(alone)
    rises = found.rises("map")
    pairs = [(found.evaluations[72][name]["map"], found.evaluations[30][name]["map"]) for name in ("svm", "strong")]
    assert [each.p_holm for each in rises.values()] == holm([paired_t_test(*pair).p for pair in pairs])
    assert list(rises) == ["svm", "strong"]


def test_json_has_what_is_printed(found: LearningCurves) -> None:
    said = json.loads(json.dumps(found.as_json()))
    assert said["sizes"] == [30, 60, 72]
    assert said["training_queries"] == [72] * 5
    assert said["given"] == ["first"]
    svm = said["measures"]["map"]["methods"]["svm"]
    printed = repr(found)
    assert all(f"{mean:.4f}" in printed for mean in svm["mean"])
    assert svm["p_holm"] == [found.against_baseline("map")[size, "svm"].p_holm for size in found.sizes]
    assert said["measures"]["map"]["methods"]["strong"]["p"] == [None] * 3
    assert said["measures"]["map"]["last_doubling"]["from"] == 30
    assert printed.splitlines()[0] == (
        "LearningCurves(3 methods on 120 test queries, flavour 'standard', baseline 'strong')"
    )
    assert len(printed.splitlines()) == 1 + 2 * 5
    assert found._repr_html_().count("<table") == 2


def test_the_frame_has_a_row_per_size_and_method_and_the_plot_a_line_per_method(found: LearningCurves) -> None:
    frame = found.to_frame()
    assert list(frame["queries"]) == [30] * 3 + [60] * 3 + [72] * 3
    assert list(frame["map"][:3]) == [found.mean(30, name, "map") for name in SYSTEMS]
    axes = found.plot("ndcg@10")
    assert [np.asarray(line.get_xdata()).tolist() for line in axes.get_lines()] == [[30, 60, 72]] * 3
    assert [each.get_text() for each in axes.get_xticklabels()] == ["30", "60", "72"]
    near = curves({"alone": {30: 0.0, 60: 0.1, 120: 0.1, 240: 0.2, 250: 0.2}})
    assert [each.get_text() for each in near.plot().get_xticklabels()] == ["30", "60", "120", "", "250"]


# What is said of it


def curves(values: Mapping[str, Mapping[int, float]], *, counts: Sequence[int] = (120,)) -> LearningCurves:
    """Methods whose values differ by query a little, and whose means differ by what is given."""
    base = np.random.default_rng(0).uniform(0.3, 0.6, 200)

    def evaluation(name: str, size: int) -> Evaluation:
        moved = np.random.default_rng([list(values).index(name), size]).normal(0, 0.01, 200)
        column = base + values[name][size] + moved - moved.mean()
        return Evaluation(tuple(map(str, range(200))), ("map",), column[:, None], "standard")

    sizes = sorted({size for each in values.values() for size in each})
    every = {size: {name: evaluation(name, size) for name in values if size in values[name]} for size in sizes}
    return LearningCurves(every, next(iter(values)), ("map",), "standard", tuple(counts))


LEVEL = dict.fromkeys((30, 60, 120), 0.0)


@pytest.mark.parametrize(
    ("other", "where"),
    [
        ({30: 0.0, 60: 0.1, 120: 0.1}, "is significantly ahead of base from 60 training queries on."),
        ({30: 0.1, 60: 0.1, 120: 0.1}, "is significantly ahead of base at every size."),
        ({30: 0.0, 60: 0.0, 120: 0.1}, "is significantly ahead of base with all training queries alone."),
        ({30: 0.1, 60: 0.0, 120: 0.0}, "is significantly ahead of base with 30 training queries alone."),
        (
            {30: -0.1, 60: 0.0, 120: 0.1},
            "is significantly ahead of base with all training queries alone, and significantly behind base with 30 "
            "training queries alone.",
        ),
        (LEVEL, "is not significantly different from base at any size."),
        ({60: 0.1, 120: 0.1}, "is significantly ahead of base from 60 training queries on."),
    ],
)
def test_it_is_said_from_which_size_on_a_method_is_ahead(other: dict[int, float], where: str) -> None:
    assert curves({"base": LEVEL, "other": other}).said("map")[0] == f"other {where}"


@pytest.mark.parametrize(
    ("sizes", "since"), [((30, 60, 120, 240, 470), 240), ((30, 60, 120, 240, 300), 120), ((30, 60), 30), ((50,), None)]
)
def test_the_last_doubling_begins_as_near_to_half_as_it_can(sizes: tuple[int, ...], since: int | None) -> None:
    assert curves({"base": dict.fromkeys(sizes, 0.0)}, counts=sizes[-1:]).since == since


def test_methods_of_which_the_same_is_true_are_named_together() -> None:
    higher = dict.fromkeys(LEVEL, 0.1)
    said = curves({"base": LEVEL, "one": higher, "two": higher, "three": higher}).said("map")
    assert said[0] == "one, two and three are significantly ahead of base at every size."


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ({30: 0.0, 60: 0.1, 120: 0.2}, ": it still rises, and more judged queries would probably help."),
        ({30: 0.0, 60: 0.1, 120: 0.1}, ", which may be luck: whether more judged queries would help is not known"),
        ({30: 0.0, 60: 0.2, 120: 0.1}, ": more queries did not help."),
        ({30: 0.0, 60: 0.0, 100: 0.2, 120: 0.1}, ", but nothing from 100 on: whether more judged queries would help"),
    ],
)
def test_more_queries_would_help_only_where_the_last_doubling_did(values: dict[int, float], end: str) -> None:
    (said,) = curves({"alone": values}).said("map")
    assert said.startswith("From 60 to all 120 training queries, alone ")
    assert f"){end}" in said


def test_the_best_is_chosen_among_many_and_its_rise_is_corrected_for_them() -> None:
    many = {"base": LEVEL, **{f"m{each}": {30: 0.0, 60: 0.0, 120: 0.0015} for each in range(1, 9)}}
    found = curves(many)
    rises = found.rises("map")
    best = max(rises, key=lambda name: found.mean(120, name, "map") or 0.0)
    assert rises[best].p_holm > rises[best].found.p
    assert f"{best}, the best of what is trained, gained" in found.said("map")[-1]
    assert "Holm's correction for 9 methods" in found.said("map")[-1]


def test_folds_of_several_sizes_are_said_to_be() -> None:
    assert "to all 120 to 122 training queries" in curves({"alone": LEVEL}, counts=(121, 120, 122)).said("map")[0]


# What cannot be drawn


def test_too_few_queries_are_refused_before_anything_is_trained() -> None:
    def never(train: Judged, valid: Judged) -> Scorer:
        raise AssertionError("nothing is trained")

    with pytest.raises(
        DataError,
        match=r"^fold 1 of 5: 54 training queries\. Learning curves begin with 30 and need 60 or more: give more "
        r"queries, or compare with all of them alone\.$",
    ):
        learning_curves({"never": never}, make_folds(make_judged(90, 6, 3)))


def test_where_nothing_is_trained_there_is_no_curve() -> None:
    with pytest.raises(DataError, match=r"^There is nothing to train: first were fitted before\. Give"):
        learning_curves({"first": lambda X: X[:, 0]}, make_folds(DATA))


def test_a_baseline_that_is_not_there_is_refused_as_compare_refuses_it() -> None:
    with pytest.raises(DataError, match="The baseline 'other' is not among the methods: svm"):
        learning_curves({"svm": RankSVM()}, make_folds(DATA), baseline="other")


def test_a_method_that_needs_more_queries_is_left_out_where_they_are_too_few() -> None:
    def picky(train: Judged, valid: Judged) -> Scorer:
        if len(train) < 50:
            raise DataError(f"{len(train)} queries are too few for it.")
        return RankSVM().fit(train)

    found = learning_curves({"svm": RankSVM(), "picky": picky}, make_folds(DATA), measures="map")
    assert list(found.evaluations[30]) == ["svm"]
    assert found.refused == {30: {"picky": "30 queries are too few for it."}}
    assert list(found.against_baseline("map")) == [(60, "picky"), (72, "picky")]
    assert found.said("map")[-1] == "Not trained on 30 queries: picky. 30 queries are too few for it."
    assert found.as_json()["refused"] == {"30": {"picky": "30 queries are too few for it."}}


# The command, its report, and what is kept of it


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[Counting]:
    """A method that counts how often it is fitted, and can be interrupted."""
    monkeypatch.setattr(Counting, "fits", 0)
    monkeypatch.setattr(Counting, "stops_at", -1)
    monkeypatch.setitem(METHODS, "counted", COUNTED)
    return Counting


ASKED = CompareOptions(("counted",), measures="map", curves=True)


def test_an_interrupted_curve_goes_on_and_ends_as_if_nothing_had_happened(
    tmp_path: Path, counted: type[Counting]
) -> None:
    folds = make_folds(DATA)
    counted.stops_at = 7
    with pytest.raises(KeyboardInterrupt) as stop:
        run(ASKED, folds, tmp_path / "interrupted", title="T")
    where = tmp_path / "interrupted" / "runs"
    assert stop.value.__notes__ == [f"7 of 15 results (a method on a fold each) are kept in {where}"]
    assert len(list((where / "with-30").glob("fold?-counted.json"))) == 2
    assert "Learning curves" not in (where.parent / "report.html").read_text(), "what is finished is there already"
    run(ASKED, folds, tmp_path / "interrupted", title="T")
    assert counted.fits == 15, "nothing is fitted twice"
    run(ASKED, folds, tmp_path / "whole", title="T")
    assert counted.fits == 30
    files = contents(tmp_path / "interrupted")
    assert files == contents(tmp_path / "whole")
    assert {"learning-curves.csv", "figures/learning-curves.svg", "runs/with-60/fold5-counted.csv"} <= set(files)
    run(replace(ASKED, curves=False), folds, tmp_path / "whole", title="T")
    assert counted.fits == 30
    assert not {"learning-curves.csv", "figures/learning-curves.svg"} & set(contents(tmp_path / "whole"))


def test_curves_are_kept_from_python_too(tmp_path: Path, counted: type[Counting]) -> None:
    systems = {"ours": lambda train, valid: Counting().fit(train)}
    for _ in range(2):
        found = learning_curves(systems, make_folds(DATA), kept=Kept(tmp_path, {"ours": {"l2": 1}}))
        assert counted.fits == 15
    assert found.sizes == (30, 60, 72)


def test_the_report_has_the_section_the_table_and_the_chart(tmp_path: Path) -> None:
    asked = CompareOptions(("ranksvm", "bm25"), measures="map", fixed={"l2": 1.0, "reference": 0}, curves=True)
    found, page = run(asked, make_folds(DATA), tmp_path, title="T")
    assert found.curves is not None
    assert page is not None
    section = page.read_text().split('<section id="curves">')[1].split("</section>")[0]
    assert section.startswith("<h2>Learning curves</h2>")
    assert "its parameters were chosen again on these" in section
    assert section.count("<polyline") == 2
    assert section.count("<tr>") == 1 + len(found.curves.sizes)
    for size in found.curves.sizes:
        assert f"ranksvm, training queries {size}: {found.curves.mean(size, 'ranksvm', 'map'):.4f}" in section
    whole = json.loads((tmp_path / "report.json").read_text())
    assert whole["learning_curves"] == json.loads(json.dumps(found.curves.as_json()))
    means = whole["learning_curves"]["measures"]["map"]["methods"]["ranksvm"]["mean"]
    assert means[-1] == whole["methods"]["ranksvm"]["means"]["map"]
    rows = (tmp_path / "learning-curves.csv").read_text().splitlines()
    assert rows[0] == "training queries,ranksvm,bm25,p (bm25)"
    assert [row.split(",")[:2] for row in rows[1:]] == [
        [str(size), repr(mean)] for size, mean in zip(found.curves.sizes, means, strict=True)
    ]
    text = (tmp_path / "report.md").read_text()
    assert "## Learning curves" in text
    assert "](figures/learning-curves.svg)" in text


def test_scores_of_another_system_are_a_level_line(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("".join(f"{label!r}\n" for label in DATA.labels.tolist()))
    asked = CompareOptions(("ranksvm",), (f"theirs={tmp_path / 's.txt'}",), "map", baseline="theirs", fixed={"l2": 1.0})
    found, _ = run(replace(asked, curves=True), make_folds(DATA), tmp_path / "r", title="T")
    assert found.curves is not None
    assert [found.curves.mean(size, "theirs", "map") for size in found.curves.sizes] == [1.0] * 3
    text = (tmp_path / "r" / "report.md").read_text()
    assert "ranksvm is significantly behind theirs at every size." in text
    assert "The same at every size, as they are not trained here: theirs." in text


def said_by(*words: str) -> str:
    shown = CliRunner().invoke(app, ["compare", *words], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def test_the_command_prints_the_curves_and_has_them_in_json(tmp_path: Path) -> None:
    write_letor(tmp_path / "data.txt", DATA)
    words = [str(tmp_path / "data.txt"), "--methods", "ranksvm,bm25", "--set", "l2=1.0", "--reference", "1", "--curves"]
    text = said_by(*words, "--quiet")
    assert "training queries" in text
    assert "at the same size, Holm's correction for 3 comparisons" in text
    assert "From 30 to all 72 training queries, " in text
    told = json.loads(said_by(*words, "--quiet", "--json"))
    assert told["learning_curves"]["sizes"] == [30, 60, 72]


def test_too_few_queries_are_said_and_the_comparison_is_made(tmp_path: Path) -> None:
    write_letor(tmp_path / "data.txt", make_judged(60, 6, 3))
    words = [str(tmp_path / "data.txt"), "--methods", "ranksvm", "--set", "l2=1.0", "--out", str(tmp_path / "r")]
    plain = (
        "There are no learning curves to draw: the smallest fold has 36 training queries. They begin with 30 queries, "
        "and need twice as many."
    )
    assert plain in said_by(*words, "--curves", "--quiet")
    page = (tmp_path / "r" / "report.html").read_text()
    assert f"<h2>Learning curves</h2>\n<p>{plain}</p>" in page
    assert not (tmp_path / "r" / "learning-curves.csv").exists()
    assert "learning curves" not in said_by(*words, "--quiet")


def test_given_scores_alone_have_no_curves(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("".join(f"{label!r}\n" for label in DATA.labels.tolist()))
    asked = CompareOptions((), (f"theirs={tmp_path / 's.txt'}",), "map", curves=True)
    found, _ = run(asked, make_folds(DATA), tmp_path / "r", title="T")
    assert found.curves is not None
    assert found.curves.said("map") == [
        "There are no learning curves to draw: nothing that is compared here is trained here."
    ]


def test_counts_are_those_of_every_fold() -> None:
    assert training_queries(make_folds(make_judged(11, 4, 2))) == [7, 6, 6, 7, 7]
