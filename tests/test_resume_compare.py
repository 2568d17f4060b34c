"""Comparisons that were interrupted are resumed: what is kept of them, and when it is used."""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from querywise.data.folds import Fold, Folds, make_folds
from querywise.data.judged import Judged
from querywise.data.letor import read_letor, write_letor
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.evaluation.compare import compare
from querywise.evaluation.resume import Kept
from querywise.evaluation.trained import Extra, Trained
from querywise.evaluation.tuning import Choice, Trial
from querywise.jobs.compare import CompareOptions, run
from querywise.methods import METHODS
from querywise.methods.table import RENAMED
from querywise.report.writing import begun
from querywise.runtime.arrays import Floats
from querywise.runtime.values import JsonObject
from tests import commands
from tests.support.compared import COUNTED, TIMED, Counting, contents
from tests.worlds import examples

DATA = make_judged(25, 8, 4, kinds=2, noise=0.4)


def counting(*, l2: float = 1.0) -> Any:
    """A ranker that counts.

    l2: says nothing to it.
    """
    return Counting()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[Counting]:
    """A method called `counted`, for as long as one test runs."""
    monkeypatch.setattr(Counting, "fits", 0)
    monkeypatch.setattr(Counting, "stops_at", -1)
    monkeypatch.setitem(METHODS, "counted", COUNTED)
    return Counting


def kept_compare(folder: Path, folds: Folds, settings: dict[str, Any] | None = None) -> dict[str, list[float]]:
    """Compare one method, keeping what is finished; its scores."""
    fits = {"ours": lambda train, valid: Counting().fit(train)}
    return {
        name: scores.tolist()
        for name, scores in compare(fits, folds, kept=Kept(folder, {"ours": settings or {"l2": 1}})).scores.items()
    }


# Interrupted and started again


@pytest.mark.slow
def test_a_comparison_interrupted_half_way_ends_as_if_nothing_had_happened(
    tmp_path: Path, counted: type[Counting]
) -> None:
    asked = CompareOptions(("single", "counted", "knn-offline-2"), fixed={"k": 0.4, "l2": 1.0})
    counted.stops_at = 2
    with pytest.raises(KeyboardInterrupt):
        run(asked, make_folds(DATA), tmp_path / "interrupted", title="T")
    assert counted.fits == 2
    assert not (tmp_path / "interrupted" / "report.html").exists()
    run(asked, make_folds(DATA), tmp_path / "interrupted", title="T")
    assert counted.fits == 5, "the two finished folds are not fitted again"
    run(asked, make_folds(DATA), tmp_path / "whole", title="T")
    found = contents(tmp_path / "interrupted")
    assert found == contents(tmp_path / "whole")
    assert {"report.json", "values.csv", "oracle.csv", "figures/ndcg.svg", "runs/fold5-single.json"} <= set(found)


def test_a_finished_comparison_trains_nothing_and_writes_the_same_again(
    tmp_path: Path, counted: type[Counting]
) -> None:
    asked = CompareOptions(("counted",), measures="map")
    run(asked, make_folds(DATA), tmp_path / "r", title="T")
    before = {name: path.read_bytes() for name in TIMED if (path := tmp_path / "r" / name).exists()}
    files = contents(tmp_path / "r")
    run(asked, make_folds(DATA), tmp_path / "r", title="T")
    assert counted.fits == 5
    assert contents(tmp_path / "r") == files
    assert {name: (tmp_path / "r" / name).read_bytes() for name in before} == before, "timings are kept too"


def test_another_method_is_added_without_training_the_first_again(tmp_path: Path, counted: type[Counting]) -> None:
    run(CompareOptions(("counted",), measures="map"), make_folds(DATA), tmp_path / "r", title="T")
    found, _ = run(
        CompareOptions(("single", "counted"), measures="map,ndcg@3", test="wilcoxon", fixed={"l2": 1.0}),
        make_folds(DATA),
        tmp_path / "r",
        title="T",
    )
    assert counted.fits == 10, "its setting l2 is another"
    assert [each.name for each in found.methods] == ["single", "counted"]
    run(
        CompareOptions(("counted", "single"), measures="map,p@1", baseline="single", fixed={"l2": 1.0}),
        make_folds(DATA),
        tmp_path / "r",
        title="Another title",
    )
    assert counted.fits == 10, "order, further measures, test, baseline and title are no settings of a method"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_killed_process_goes_on_where_it_stopped(tmp_path: Path) -> None:
    write_letor(tmp_path / "data.txt", DATA)
    command = ["compare", "data.txt", "--methods", "single,ranksvm", "--quiet", "--out", "killed"]
    process = commands.begun(tmp_path, *command)
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "killed" / "runs" / "fold2-single.json").exists():
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < until
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = tmp_path / "killed" / "runs" / "fold1-single.json"
    assert not (tmp_path / "killed" / "report.html").exists()
    stamp = done.stat().st_mtime_ns
    assert commands.run(tmp_path, *command).returncode == 0
    whole = make_folds(read_letor(tmp_path / "data.txt"))
    origin = begun("compare", "data.txt")
    run(
        CompareOptions(("single", "ranksvm")),
        whole,
        tmp_path / "whole",
        title="Methods compared on data.txt",
        origin=origin,
    )
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert done.stat().st_mtime_ns == stamp, "what was finished is not written again"


# What is kept counts only for the very same settings and data


@pytest.mark.parametrize(
    "other",
    [
        CompareOptions(("single",), measures="map", fixed={"l2": 0.01}),
        CompareOptions(("single",), measures="p@1,map", fixed={"l2": 1.0}),
        CompareOptions(("single",), measures="map", flavour="letor4", fixed={"l2": 1.0}),
    ],
    ids=["l2", "measure", "flavour"],
)
def test_other_settings_are_computed_anew(tmp_path: Path, other: CompareOptions) -> None:
    first = CompareOptions(("single",), measures="map", fixed={"l2": 1.0})
    folds = make_folds(DATA)
    run(first, folds, tmp_path / "used", title="T")
    run(other, folds, tmp_path / "used", title="T")
    run(other, folds, tmp_path / "new", title="T")
    assert contents(tmp_path / "used") == contents(tmp_path / "new")


def test_what_was_kept_under_a_name_of_earlier_versions_is_computed_anew(
    tmp_path: Path, counted: type[Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RENAMED, "older", "counted")
    run(CompareOptions(("older",), measures="map"), make_folds(DATA), tmp_path / "r", title="T")
    expected = contents(tmp_path / "r")
    assert any("counted" in name for name in expected)
    assert not any("older" in name for name in expected)
    for path in list((tmp_path / "r" / "runs").iterdir()):  # as an earlier version would have left it
        path.write_text(path.read_text().replace('"counted"', '"older"'))
        path.rename(path.with_name(path.name.replace("counted", "older")))
    found, _ = run(CompareOptions(("older",), measures="map"), make_folds(DATA), tmp_path / "r", title="T")
    assert counted.fits == 10, "nothing of the older run is taken up"
    assert [each.name for each in found.methods] == ["counted"]
    again = contents(tmp_path / "r")
    assert {name: text for name, text in again.items() if "older" not in name} == expected
    run(CompareOptions(("counted",), measures="map", baseline="older"), make_folds(DATA), tmp_path / "r", title="T")
    assert counted.fits == 10, "whichever name is typed, it is the same method"


def first_changed(data: Judged, what: str) -> Judged:
    candidates = data.candidates
    if what == "a label":
        return replace(data, labels=np.concatenate([[1 - min(data.labels[0], 1)], data.labels[1:]]))
    if what == "a feature":
        features = candidates.features.copy()
        features[0, 0] += 1e-9
        return replace(data, candidates=replace(candidates, features=features))
    if what == "a document id":
        names = tuple(map(str, range(len(data.labels))))
        return replace(data, candidates=replace(candidates, document_ids=names))
    assert candidates.queries is not None
    ids = candidates.query_ids
    tables: dict[str, Callable[[], QueryTable]] = {
        "a text": lambda: QueryTable(ids, texts=("new",) + (None,) * (len(ids) - 1)),
        "a class": lambda: QueryTable(ids, classes=("new",) + (None,) * (len(ids) - 1)),
        "a column": lambda: QueryTable(ids, columns=np.ones((len(ids), 1)), column_names=("new",)),
    }
    return data.with_queries(tables[what]())


@pytest.mark.parametrize("what", ["a label", "a feature", "a document id", "a text", "a class", "a column"])
@pytest.mark.parametrize("part", [0, 1, 2], ids=["train", "valid", "test"])
def test_other_data_has_another_checksum(what: str, part: int) -> None:
    fold = make_folds(DATA)[0]
    assert fold.fingerprint() == make_folds(DATA)[0].fingerprint()
    parts = [first_changed(each, what) if place == part else each for place, each in enumerate(fold)]
    assert Fold(*parts).fingerprint() != fold.fingerprint()


def test_other_data_is_computed_anew(tmp_path: Path, counted: type[Counting]) -> None:
    folds, other = make_folds(DATA), make_folds(make_judged(25, 8, 4, seed=1))
    before = kept_compare(tmp_path, folds)
    assert kept_compare(tmp_path, other) == kept_compare(tmp_path / "new", other) != before
    assert kept_compare(tmp_path, make_folds(DATA, seed=7)) == kept_compare(tmp_path / "new", make_folds(DATA, seed=7))


def test_folds_that_stayed_the_same_are_used_again(tmp_path: Path, counted: type[Counting]) -> None:
    folds = list(make_folds(DATA))
    kept_compare(tmp_path, make_folds(DATA))
    changed = [lambda each=each: each for each in folds[:4]]
    another = folds[4]._replace(test=first_changed(folds[4].test, "a feature"))
    kept_compare(tmp_path, Folds([*changed, lambda: another]))
    assert counted.fits == 6


@pytest.mark.parametrize("order", [(4, 3, 2, 1, 0), (1, 2, 3, 4, 0), (2, 0, 4)])
def test_folds_in_another_order_find_their_results(
    tmp_path: Path, counted: type[Counting], order: tuple[int, ...]
) -> None:
    folds = list(make_folds(DATA))
    kept_compare(tmp_path / "r", make_folds(DATA))
    before = contents(tmp_path / "r")
    moved = Folds([partial(folds.__getitem__, number) for number in order])
    again = kept_compare(tmp_path / "r", moved)
    assert counted.fits == 5
    assert again == kept_compare(tmp_path / "new", moved)
    found = contents(tmp_path / "r")
    for place, number in enumerate(order):
        for kind in (".csv", ".json"):
            assert found[f"fold{place + 1}-ours{kind}"] == before[f"fold{number + 1}-ours{kind}"]


def test_scores_of_another_system_that_have_changed_are_read_again(tmp_path: Path) -> None:
    def reached(scores: Floats) -> float:
        (tmp_path / "s.txt").write_text("".join(f"{score!r}\n" for score in scores.tolist()))
        asked = CompareOptions((), ("theirs=" + str(tmp_path / "s.txt"),), measures="map")
        return run(asked, make_folds(DATA), tmp_path / "r", title="T")[0].methods[0].means["map"]

    right = DATA.labels.astype(np.float64)
    assert reached(right) == 1.0
    assert reached(-right) < 0.5
    assert reached(right) == 1.0


@pytest.mark.parametrize("names", [("é", "ü"), ("a b", "a-b"), ("a/b", "a|b"), ("../x", "..?x")])
def test_systems_whose_names_look_alike_as_file_names_are_kept_apart(tmp_path: Path, names: tuple[str, str]) -> None:
    scores = DATA.labels.astype(np.float64)
    asked = []
    for name, sign in zip(names, (1, -1), strict=True):
        path = tmp_path / f"{sign}.txt"
        path.write_text("".join(f"{sign * score!r}\n" for score in scores.tolist()))
        asked.append(f"{name}={path}")
    found, _ = run(CompareOptions((), tuple(asked), measures="map"), make_folds(DATA), tmp_path / "in" / "r", title="T")
    assert [each.means["map"] == 1.0 for each in found.methods] == [True, False]
    assert {path.name for path in (tmp_path / "in").iterdir()} == {"r"}, "and inside the folder"
    assert len(list((tmp_path / "in" / "r" / "runs").glob("*.csv"))) == 10, "a file for each in each fold"


# Damage


def cut(path: Path, characters: int) -> None:
    path.write_text(path.read_text()[:-characters])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "the scores are gone": lambda stem: stem.with_suffix(".csv").unlink(),
    "the notes are gone": lambda stem: stem.with_suffix(".json").unlink(),
    "the times are gone": lambda stem: stem.with_suffix(".times.json").unlink(),
    "the last line of the scores is gone": lambda stem: cut(stem.with_suffix(".csv"), 30),
    "the last digits of the scores are gone": lambda stem: cut(stem.with_suffix(".csv"), 4),
    "the scores are empty": lambda stem: stem.with_suffix(".csv").write_text(""),
    "the scores are no numbers": lambda stem: stem.with_suffix(".csv").write_text(
        "query,document,label,score\na,b,1,x"
    ),
    "the scores are not text": lambda stem: stem.with_suffix(".csv").write_bytes(b"\xff\xfe\x00" * 50),
    "the notes are half there": lambda stem: cut(stem.with_suffix(".json"), 20),
    "the notes are something else": lambda stem: stem.with_suffix(".json").write_text("[1, 2]"),
    "the notes lack a part": lambda stem: stem.with_suffix(".json").write_text(
        json.dumps({"settings": json.loads(stem.with_suffix(".json").read_text())["settings"]})
    ),
    "the times are half there": lambda stem: cut(stem.with_suffix(".times.json"), 5),
    "the times lack a part": lambda stem: stem.with_suffix(".times.json").write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_computed_anew(
    tmp_path: Path, damage: Callable[[Path], object], counted: type[Counting]
) -> None:
    folds = make_folds(DATA)
    scores = kept_compare(tmp_path / "r", folds)
    before = contents(tmp_path / "r")
    damage(tmp_path / "r" / "fold3-ours")
    assert kept_compare(tmp_path / "r", folds) == scores
    assert counted.fits == 6
    assert contents(tmp_path / "r") == before


HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**400, 1e308, math.nan, math.inf, "", "x", "<b>", "../../x", [], {}, [[]], [None], ["x"]),
    *({"x": 1}, [1e9] * 3, [[1, 2, 3]], {"x": [1]}, [{}], {"own": [1], "best": [], "other": []}),
)


def places_in(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in JSON, but for the settings, which decide whether the rest is looked at."""
    yield path
    keys = content if isinstance(content, dict) else range(min(len(content), 2)) if isinstance(content, list) else ()
    for key in keys:
        if (*path, key) != ("settings",):
            yield from places_in(content[key], (*path, key))


def put_at(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    content = copy.deepcopy(content)
    part = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return content


def test_results_that_were_tampered_with_are_never_a_traceback(tmp_path: Path) -> None:
    """Every key of every kept file, with every hostile value, read and reported; a wrong one is as good as none."""
    folds = make_folds(DATA, folds=3)
    asked = CompareOptions(("single", "knn-offline-2"), measures="map", baseline="single", fixed={"k": 0.4})
    run(asked, folds, tmp_path / "r", title="T")
    stem, fold = "fold1-knn-offline-2", folds[0]
    record = json.loads((tmp_path / "r" / "runs" / f"{stem}.json").read_text())
    kept = Kept(tmp_path / "r" / "runs", {"knn-offline-2": record["settings"]["method"]})
    whole = kept.get(0, "knn-offline-2", fold)
    assert whole is not None
    taken = []
    for name in (f"{stem}.json", f"{stem}.times.json"):
        path = tmp_path / "r" / "runs" / name
        before = path.read_text()
        content = json.loads(before)
        for place in places_in(content):
            for value in HOSTILE:
                path.write_text(json.dumps(put_at(content, place, value)))
                found = kept.get(0, "knn-offline-2", fold)
                if found is not None:
                    assert found.scores.tobytes() == whole.scores.tobytes()
                    taken.append((path, json.dumps(put_at(content, place, value)), before))
        path.write_text(before)
    assert taken, "another time of training cannot be told from the right one"
    for path, text, before in taken[:: max(len(taken) // 12, 1)]:
        path.write_text(text)
        run(asked, folds, tmp_path / "r", title="T")
        path.write_text(before)


def test_a_score_that_is_not_finite_is_not_used(tmp_path: Path, counted: type[Counting]) -> None:
    folds = make_folds(DATA)
    scores = kept_compare(tmp_path, folds)
    path = tmp_path / "fold1-ours.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1].rsplit(",", 1)[0] + ",nan"]) + "\n")
    assert kept_compare(tmp_path, folds) == scores


def test_what_is_kept_elsewhere_is_not_looked_at(tmp_path: Path, counted: type[Counting]) -> None:
    kept_compare(tmp_path / "a", make_folds(DATA))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    kept_compare(tmp_path / "b", make_folds(DATA))
    assert counted.fits == 5, "a copy of the folder is as good as the folder"
    kept_compare(tmp_path / "c", make_folds(DATA))
    assert counted.fits == 10


# Nothing is lost on the way


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(20))
@given(data=st.data())
def test_scores_come_back_to_the_last_bit(tmp_path: Path, data: st.DataObject) -> None:
    fold = make_folds(DATA)[0]
    count = len(fold.test.labels)
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    scores = np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)))
    seconds = data.draw(st.floats(0, 1e6))
    parameters: JsonObject = {"k": 0.2, "view": "top-mean", "top": 50}
    moderate, queries = st.floats(-1e150, 1e150), len(fold.test)
    tried = ({"k": 7, "view": "text", "top": 5}, 0.1), (parameters, data.draw(moderate))
    choice = Choice(parameters, "map", "standard", tuple(Trial(*each) for each in tried))
    distances = data.draw(st.lists(moderate, min_size=queries, max_size=queries))
    extra = Extra(0.5, distances=distances, moved={"q": [1.0, 0.1]}, places=[[0.1, -0.0]] * queries)
    kept = Kept(tmp_path, {"ours": {"l2": 0.1}})
    kept.put(0, "ours", fold, Trained(scores, seconds, 0.5, choice, extra))
    found = Kept(tmp_path, {"ours": {"l2": 0.1}}).get(0, "ours", fold)
    assert found is not None
    assert found.scores.tobytes() == scores.tobytes()
    assert (found.fit_seconds, found.predict_seconds) == (seconds, 0.5)
    assert repr([found.choice, found.extra]) == repr([choice, extra])


def test_times_that_nobody_knows_come_back_unknown(tmp_path: Path) -> None:
    fold = make_folds(DATA)[0]
    kept = Kept(tmp_path, {"theirs": {}})
    kept.put(0, "theirs", fold, Trained(np.zeros(len(fold.test.labels)), float("nan"), float("nan")))
    found = kept.get(0, "theirs", fold)
    assert found is not None
    assert np.isnan([found.fit_seconds, found.predict_seconds]).all()


def test_nothing_is_kept_where_nothing_is_to_be_written(
    tmp_path: Path, counted: type[Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found, page = run(CompareOptions(("counted",), measures="map"), make_folds(DATA), None, title="T")
    assert page is None
    assert found.methods[0].name == "counted"
    assert list(tmp_path.iterdir()) == []
