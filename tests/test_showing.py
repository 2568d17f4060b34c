"""Objects that show themselves: short texts, tables for notebooks, data frames, axes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from querywise import KnnOnline, RankSVM, compare, evaluate, explain, from_arrays, make_folds, make_judged, tune, why
from querywise.data.collections import Collection, Document
from querywise.data.folds import Fold, Folds
from querywise.data.judged import Judged
from querywise.data.judgements import Judgements
from querywise.data.parquet.writing import write_shards
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import Run
from querywise.display.tables import LIBRARIES, Column, as_frame, table
from querywise.display.words import short
from querywise.errors import DataError
from querywise.evaluation.compare import Compared
from querywise.evaluation.evaluate import Evaluation
from querywise.evaluation.significance import holm, paired_t_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import Tuned
from querywise.explanations.explain import Explanation, Reason
from querywise.retrieval.index import build_index
from querywise.runtime.values import Grid

ODD = "<b>5$ & $6</b>"  # markup and mathematics in a name


@pytest.fixture(scope="module")
def data() -> Judged:
    return make_judged(40, 8, 4, noise=0.7)


@pytest.fixture(scope="module")
def compared(data: Judged) -> Compared:
    fits: dict[str, Fit] = {
        "single": lambda train, valid: RankSVM().fit(train),
        ODD: lambda train, valid: KnnOnline(RankSVM(), k=5).fit(train),
        "weak": lambda train, valid: RankSVM(l2=1e6).fit(train),
    }
    return compare(fits, make_folds(data), measures=["map", "ndcg@10"])


@pytest.fixture(scope="module")
def ranker(data: Judged) -> KnnOnline:
    return KnnOnline(RankSVM(), k=5, back_off=None).fit(data)


@pytest.fixture(scope="module")
def explanation(data: Judged, ranker: KnnOnline) -> Explanation:
    return explain(ranker, data.candidates, data.query_ids[0])


@pytest.fixture(scope="module")
def reason(data: Judged, ranker: KnnOnline) -> Reason:
    return why(ranker, data.candidates, data.query_ids[0], *map(data.candidates.document_label, (0, 1)))


@pytest.fixture(scope="module")
def tuned(data: Judged) -> Tuned[RankSVM]:
    train, valid, _ = make_folds(data)[0]
    return tune(RankSVM, {"l2": [1.0, 0.01, 100.0], "loss": ["squared_hinge"]}, train=train, valid=valid)


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    if "matplotlib.pyplot" in sys.modules:
        from matplotlib import pyplot

        pyplot.close("all")


def evaluation_of(data: Judged) -> Evaluation:
    return evaluate(np.arange(len(data.labels), dtype=float), data, measures=["map", "p@1"])


def test_data_says_how_much_there_is(data: Judged, tmp_path: Any) -> None:
    folds = make_folds(data)
    counts = np.bincount(data.labels).tolist()
    grades = ", ".join(f"{grade}: {count}" for grade, count in enumerate(counts))
    assert repr(data) == f"Judged(40 queries, 320 documents, 4 features, grades {grades})"
    assert repr(data.candidates) == "Candidates(40 queries, 320 documents, 4 features)"
    assert repr(folds) == "Folds(5 folds of 40 queries)"
    assert repr(Folds([lambda: folds[0]])) == "Folds(1 fold, read when asked for)"
    assert repr(folds[0]) == "Fold(queries: train 24, valid 8, test 8; 4 features)"
    assert isinstance(folds[0], Fold)
    shards = write_shards([data], tmp_path / "set.parquet")
    assert repr(shards).endswith("set.parquet': 40 queries, 320 documents, 4 features, 1 file)")
    table = QueryTable(("a", "b"), texts=("x", None), classes=("one", None), vectors=np.eye(2))
    assert repr(table) == "QueryTable(2 queries, texts, 1 class, vectors of 2 numbers)"
    assert repr(Run("ours", {"q": {"D1": 1.0, "D2": 2.0}})) == "Run('ours', 1 query, 2 documents)"
    assert repr(Judgements(np.array([0, 1]), ("D",), np.array([1]))) == "Judgements(1 query, 1 document)"


def test_an_index_and_a_collection_say_how_much_there_is() -> None:
    collection = Collection("zoo", lambda: [Document("D1", "jaguar", "a large cat")], QueryTable(("q",)))
    assert repr(collection) == "Collection('zoo', 1 query, 0 judgments)"
    index = build_index(collection.documents())
    assert repr(index) == f"Index(1 document, {len(index.terms)} terms, fields {', '.join(index.fields)})"


def test_documents_nobody_judged_are_counted_and_many_grades_are_not_listed() -> None:
    unjudged = from_arrays([[1.0], [2.0]], qid=["a", "a"])
    assert repr(unjudged) == "Judged(1 query, 2 documents, 1 feature, grades none, 2 unjudged)"
    many = from_arrays(np.ones((9, 1)), np.arange(9), qid=["a"] * 9)
    assert "grades 0 to 8" in repr(many)
    assert "unjudged documents" in unjudged._repr_html_()


def test_a_repr_never_lists_all_ids() -> None:
    large = make_judged(2000, 3, 2)
    table = evaluation_of(large)
    shown = [large, large.candidates, make_folds(large), make_folds(large)[0], table]
    assert max(len(repr(each)) for each in shown) < 120


def test_results_are_a_line_or_a_few(
    compared: Compared, explanation: Explanation, reason: Reason, tuned: Tuned[RankSVM], data: Judged
) -> None:
    assert repr(evaluation_of(data)).startswith("Evaluation(map 0.")
    assert repr(evaluation_of(data)).endswith("; 40 queries, flavour 'standard')")
    lines = repr(compared).split("\n")
    assert lines[0] == "Compared(3 methods on 40 test queries of 5 folds, flavour 'standard', baseline 'single')"
    assert [line.split()[0] for line in lines[1:]] == ["method", "single", "<b>5$", "weak"]
    assert len({len(line) for line in lines[3:]}) == 1, "numbers stand below one another"
    assert repr(explanation).startswith(f"Explanation(query {data.query_ids[0]!r}: a model of 5 training queries, the")
    assert repr(reason).startswith(f"Reason(query {data.query_ids[0]!r}: ")
    assert repr(tuned).startswith("Tuned(RankSVM, {'l2': ")
    assert repr(tuned).endswith("the best of 3 settings)")
    assert max(map(len, (repr(explanation), repr(reason), repr(tuned), repr(compared.trained["weak"])))) < 400


def test_a_comparison_of_many_methods_stays_short(compared: Compared) -> None:
    found = compared.differences
    many = {f"method {number}": compared.evaluations["weak"] for number in range(30)}
    text = type(found)({"single": found.base, **many}, "single").text("first")
    assert len(text.split("\n")) == 15
    assert text.endswith("… and 19 more")


class Tags(HTMLParser):
    """The tags that are open at the end, and every text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_tables_are_whole_escaped_and_need_nothing_else(
    compared: Compared, explanation: Explanation, reason: Reason, data: Judged
) -> None:
    shown = [data, compared, explanation, reason, evaluation_of(data)]
    for text in (each._repr_html_() for each in shown):  # type: ignore[attr-defined]
        tags = Tags(text)
        assert not tags.open
        assert tags.seen <= {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}
        assert "http" not in text
        assert "#" not in text.replace("&#x27;", "'"), "colours are those of the page"
    assert "&lt;b&gt;5$ &amp; $6&lt;/b&gt;" in compared._repr_html_()
    assert "Holm&#x27;s correction for 2 methods" in compared._repr_html_()


def test_nothing_known_is_an_empty_cell() -> None:
    shown = table(("a", "b", "c"), [("x", None, float("nan"))])
    assert shown.count("></td>") == 2
    assert table(("a",), [], title="t") == '<div style="margin:0.3em 0"><b>t</b></div>'


def test_long_names_are_cut_in_the_middle() -> None:
    assert short("x" * 36) == "x" * 36
    assert len(short("x" * 99)) == 36


def test_an_evaluation_as_a_frame_has_a_row_per_query(data: Judged) -> None:
    table = evaluation_of(data)
    frame: Any = table.to_frame()
    assert list(frame.columns) == ["query", "map", "p@1"]
    assert frame["query"].tolist() == list(data.query_ids)
    assert frame["map"].mean() == pytest.approx(table.mean()["map"])


def test_a_comparison_as_a_frame_has_differences_and_both_ps(compared: Compared) -> None:
    frame: Any = compared.to_frame()
    assert frame["method"].tolist() == ["single", ODD, "weak"]
    base = compared.evaluations["single"]["map"]
    found = [paired_t_test(compared.evaluations[name]["map"], base) for name in (ODD, "weak")]
    assert frame["map_difference"].tolist() == [0.0, *(each.difference for each in found)]
    assert frame["map_p"].tolist()[1:] == [each.p for each in found]
    assert frame["map_p_holm"].tolist()[1:] == holm([each.p for each in found])
    assert np.isnan(frame["map_p"][0])
    other: Any = compared.to_frame(test="randomisation")
    assert other["map_p"][2] == compared.against_baseline("weak", "map", test="randomisation").p


def test_a_comparison_as_a_frame_by_query_has_every_value(compared: Compared) -> None:
    frame: Any = compared.to_frame(by="query")
    assert len(frame) == 3 * 40
    assert sorted(set(frame["fold"])) == [0, 1, 2, 3, 4]
    means = frame.groupby("method")["ndcg@10"].mean()
    assert means["weak"] == pytest.approx(compared.evaluations["weak"].mean()["ndcg@10"])
    with pytest.raises(DataError, match="by='method', by='query'"):
        compared.to_frame(by="fold")  # type: ignore[arg-type]


def test_explanations_as_frames(explanation: Explanation, reason: Reason) -> None:
    features: Any = explanation.to_frame()
    assert features["effect"].tolist() == [each.effect for each in explanation.departures]
    neighbours: Any = explanation.to_frame(of="neighbours")
    assert neighbours["weight"].sum() == pytest.approx(1)
    terms: Any = reason.to_frame()
    assert terms["here"].sum() == pytest.approx(reason.difference)
    assert len(as_any(reason.to_frame(of="models"))) == len(reason.models)
    with pytest.raises(DataError, match="'features', 'models', 'neighbours'"):
        reason.to_frame(of="words")  # type: ignore[arg-type]


def as_any(frame: Any) -> Any:
    return frame


def test_tried_settings_as_a_frame(tuned: Tuned[RankSVM]) -> None:
    frame: Any = tuned.to_frame()
    assert list(frame.columns) == ["l2", "loss", "map", "chosen"]
    assert frame["map"].tolist() == [each.value for each in tuned.tried]
    assert frame[frame["chosen"]]["l2"].tolist() == [tuned.parameters["l2"]]


def test_the_first_library_that_is_there_makes_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: dict[str, Column] = {"query": ["a", "b"], "map": np.array([0.5, 1.0])}
    for library in LIBRARIES:
        made: Any = as_frame(columns)
        assert type(made).__module__.split(".")[0] in (library, f"{library}_lib")
        assert [float(each) for each in made["map"].to_numpy()] == [0.5, 1.0]
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match="pip install pandas"):
        as_frame(columns)


def test_plots_give_axes_and_take_them(
    compared: Compared, explanation: Explanation, reason: Reason, tuned: Tuned[RankSVM], data: Judged
) -> None:
    from matplotlib import pyplot
    from matplotlib.axes import Axes

    shown: list[Any] = [evaluation_of(data), compared, explanation, reason, tuned]
    for each in shown:
        made = each.plot()
        assert isinstance(made, Axes)
        assert made.get_xlabel()
        made.figure.draw_without_rendering()  # type: ignore[union-attr]
        _, own = pyplot.subplots()
        before = len(pyplot.get_fignums())
        assert each.plot(ax=own) is own
        assert len(pyplot.get_fignums()) == before


def test_a_plot_shows_the_numbers(compared: Compared, reason: Reason, data: Judged, tuned: Tuned[RankSVM]) -> None:
    table = evaluation_of(data)
    axes = table.plot("p@1")
    heights = axes.patches[0].get_data().values  # type: ignore[attr-defined]
    assert heights.tolist() == sorted(table["p@1"].tolist(), reverse=True)
    axes = compared.plot("ndcg@10")
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["weak", ODD.replace("$", r"\$")]
    assert "difference in ndcg@10 from single" in axes.get_xlabel()
    axes = reason.plot(most=2)
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(reason.difference)  # type: ignore[attr-defined]
    line = tuned.plot().lines[0]
    assert np.asarray(line.get_xdata()).tolist() == [0.01, 1.0, 100.0]


def test_a_parameter_to_draw_must_be_clear(data: Judged) -> None:
    train, valid, _ = make_folds(data)[0]
    grid: Grid = {"l2": [1.0, 10.0], "loss": ["squared_hinge", "hinge"]}
    several = tune(RankSVM, grid, train=train, valid=valid)
    with pytest.raises(DataError, match=r"2 parameters \(l2, loss\); plot\(parameter=…\)"):
        several.plot()
    with pytest.raises(DataError, match=r"'k' was not tried. Tried: l2, loss"):
        several.plot("k")
    axes = several.plot("loss")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["squared_hinge", "hinge"]
    best = [max(each.value for each in several.tried if each.parameters["l2"] == l2) for l2 in (1.0, 10.0)]
    assert np.asarray(several.plot("l2").lines[0].get_ydata()).tolist() == best
    assert repr(tune(RankSVM, {}, train=train, valid=valid)).startswith("Tuned(RankSVM, {}: map")


def test_a_comparison_without_others_has_nothing_to_draw(data: Judged) -> None:
    alone = compare({"single": lambda train, valid: RankSVM().fit(train)}, [make_folds(data)[0]])
    with pytest.raises(DataError, match="compared with no other method"):
        alone.plot()
    assert "Holm" not in alone._repr_html_().split("</table>")[1]
