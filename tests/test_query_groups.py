"""Groups of queries: how they are given, and that no fold, split or cross-validation ever separates one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.collections import read_collection
from querywise.data.folds import Fold, cut_up, make_folds, read_folds, split, split_queries, write_parts
from querywise.data.frames import from_arrays, from_frame
from querywise.data.judged import Candidates, Judged, concatenate, judged_by
from querywise.data.parquet.tables import read_parquet
from querywise.data.parquet.writing import convert
from querywise.data.query_groups import deal, deal_in_turn, equal_sizes, first_groups
from querywise.data.query_table import QueryTable, read_queries, write_queries
from querywise.data.run_columns import Run
from querywise.data.runs import tabulate_runs
from querywise.data.synthetic import make_judged
from querywise.data.training import content_order
from querywise.errors import DataError
from querywise.evaluation.learning_curves import cut
from querywise.evaluation.tuning import cross_validated
from querywise.jobs import fit
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.rankers.blend import Blend, CrossFitting
from querywise.rankers.clusters import _parts
from querywise.rankers.weights import by_query
from querywise.rankers.weights.by_query import WeightsByQuery
from querywise.runtime.arrays import Floats
from querywise.sklearn import Ranker
from tests.worlds import REAL_DATA, examples, needs_real_data

QUERIES = 60
WORLD = make_judged(QUERIES, 4, 2)
Sides = Sequence[Judged]  # parts of one split, of which no two may share a group


class Recorder:
    """A ranker that notes what it is fitted on, what decides when it stops, and what it is asked."""

    seen: list[list[Judged]] = []  # noqa: RUF012  of all of them

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        Recorder.seen.append([data] if valid is None else [data, valid])
        return self

    def predict(self, candidates: Candidates, /) -> Floats:
        Recorder.seen[-1].append(unlabelled(candidates))
        return np.arange(len(candidates.features), dtype=float)


def unlabelled(candidates: Candidates) -> Judged:
    return Judged(candidates, np.zeros(len(candidates.features), np.int64))


def noted(work: Callable[[], object]) -> list[list[Judged]]:
    Recorder.seen = []
    work()
    assert Recorder.seen
    return Recorder.seen


class _StopError(Exception):
    pass


def by_cross_fitting(data: Judged) -> list[Sides]:
    class Noted(CrossFitting):
        def _held_out(self, data: Judged, held: Any, kept: Any, valid: Any) -> Any:
            found = zip(held, kept, strict=True)
            raise _StopError([(data.select(ours), data.select(others)) for ours, others in found])

    with pytest.raises(_StopError) as stopped:
        Noted("NearbyBlend", Blend([RankSVM()]), None, 5, "map", 0).over(data, None)
    found: list[Sides] = stopped.value.args[0]
    return found


def by_weights(data: Judged) -> list[Sides]:
    def noted(lists: Any, ways: Any, everyone: Any, place: Any) -> Any:
        raise _StopError([data.select(place == part) for part in range(5)])

    nothing: Any = None
    lists: Any = SimpleNamespace(data=data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_query, "_held_out", noted)
        with pytest.raises(_StopError) as stopped:
            by_query.cross_validated(lists, [], [], nothing, folds=5, seed=0)
    found: Sides = stopped.value.args[0]
    return [found]


def by_choice(data: Judged) -> Sequence[Sides]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "find_method", lambda name: SimpleNamespace(build=Recorder))
        return noted(lambda: fit.choose(data, measure="map", flavour="standard"))


def by_sklearn(data: Judged) -> Sequence[Sides]:
    rows = data.candidates
    qid = [rows.query_ids[query] for query in rows.query_of_row]
    groups = [f"g{data.groups[query]}" for query in rows.query_of_row]
    ranker: Any = Recorder()
    return noted(lambda: Ranker(ranker, validation=0.3).fit(rows.features, data.labels, qid=qid, query_groups=groups))


def by_classes(data: Judged) -> list[Sides]:
    parts = _parts(np.arange(len(data)) % 2, data.groups, 0)
    return [(data.select(seen), data.select(held)) for seen, held in parts]


def by_learning_curves(data: Judged) -> list[Sides]:
    smaller = [cut(Fold(data, data, data), size).train for size in (5, 30)]
    rest = [[query for query, each in enumerate(data.query_ids) if each not in part.query_ids] for part in smaller]
    return [(part, data.select(others)) for part, others in zip(smaller, rest, strict=True)]


SPLITTERS: dict[str, Callable[[Judged], Sequence[Sides]]] = {
    "make_folds": lambda data: list(make_folds(data, folds=4)),
    "cut_up": lambda data: [cut_up(data, folds=4, seed=3)],
    "split": lambda data: [split(data)],
    "split_queries": lambda data: [split_queries(data)],
    "tune": lambda data: noted(lambda: cross_validated(Recorder, {}, data=data, folds=4)),
    "fit --method auto": by_choice,
    "cross-fitting": by_cross_fitting,
    "weights by query": by_weights,
    "scikit-learn": by_sklearn,
    "classes": by_classes,
    "learning curves": by_learning_curves,
}


def names(part: Judged) -> set[str | None]:
    table = part.candidates.queries
    assert table is not None
    assert table.groups is not None
    return set(table.groups) - {None}


# Ten groups or more, some of one query, some of many.
GROUPS = st.lists(st.integers(0, 25), min_size=QUERIES - 12, max_size=QUERIES - 12).map(
    lambda drawn: [*range(12), *drawn]
)


@pytest.mark.parametrize("splitter", SPLITTERS)
@settings(max_examples=examples(25), deadline=None)
@given(groups=GROUPS)
def test_no_group_is_ever_on_two_sides(splitter: str, groups: list[int]) -> None:
    data = WORLD.with_groups(groups)
    for sides in SPLITTERS[splitter](data):
        for number, side in enumerate(sides):
            assert len(side)
            for other in sides[:number]:
                assert not names(side) & names(other)


@pytest.mark.parametrize("splitter", sorted(set(SPLITTERS) - {"scikit-learn"}))
def test_groups_of_one_query_split_as_no_groups_do(splitter: str) -> None:
    alone = SPLITTERS[splitter](WORLD.with_groups([None] * QUERIES))
    plain = SPLITTERS[splitter](WORLD.with_groups(None))
    assert [[part.query_ids for part in sides] for sides in alone] == [
        [part.query_ids for part in sides] for sides in plain
    ]


def test_without_groups_parts_are_those_of_earlier_versions() -> None:
    shuffled = np.random.default_rng(7).permutation(23)
    alone = np.arange(23)
    runs = deal(shuffled, equal_sizes(23, 5), alone)
    assert [part.tolist() for part in runs] == [np.sort(part).tolist() for part in np.array_split(shuffled, 5)]
    assert deal_in_turn(shuffled, 5, alone).tolist() == (shuffled % 5).tolist()
    assert first_groups(shuffled, 9, alone).tolist() == np.sort(shuffled[:9]).tolist()


@settings(max_examples=examples(100), deadline=None)
@given(groups=GROUPS, seed=st.integers(0, 100))
def test_parts_differ_in_size_by_no_more_than_the_largest_group(groups: list[int], seed: int) -> None:
    codes = WORLD.with_groups(groups).groups
    parts = deal(np.random.default_rng(seed).permutation(QUERIES), equal_sizes(QUERIES, 4), codes)
    assert sorted(np.concatenate(parts).tolist()) == list(range(QUERIES))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= np.bincount(codes).max()


def test_the_seed_decides_which_groups_are_together() -> None:
    groups = np.repeat(np.arange(20), np.arange(1, 21))  # each of another size
    order = [np.random.default_rng(seed).permutation(len(groups)) for seed in range(2)]
    one, other = ([set(groups[part]) for part in deal(each, equal_sizes(len(groups), 5), groups)] for each in order)
    assert all(part not in other for part in one)


def test_fewer_groups_than_parts_are_refused_with_both_numbers() -> None:
    data = WORLD.with_groups([query % 2 for query in range(QUERIES)])
    with pytest.raises(DataError, match=r"^5 parts need as many groups .*; the 60 queries are in 2 groups\.$"):
        make_folds(data)
    with pytest.raises(DataError, match=r"^3 parts need as many groups .* in 2 groups\.$"):
        split(data)
    with pytest.raises(DataError, match=r"needs 10 groups or more; the 60 training queries are in 2\. Name a method"):
        fit.choose(data, measure="map", flavour="standard")


def test_a_split_depends_on_ids_and_groups_and_not_on_the_order_of_rows() -> None:
    data = WORLD.with_groups([query // 7 for query in range(QUERIES)])
    turned = data.select(np.random.default_rng(1).permutation(QUERIES))
    for one, other in zip(split(data), split(turned), strict=True):
        assert set(one.query_ids) == set(other.query_ids)


# How groups are given


def test_queries_jsonl_has_groups_as_texts_or_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text('{"_id": "1", "group": "t9"}\n{"_id": "2", "group": 9}\n{"_id": "3"}\n')
    table = read_queries(path)
    assert table.groups == ("t9", "9", None)
    assert repr(table) == "QueryTable(3 queries, 2 groups)"
    write_queries(tmp_path / "again.jsonl", table)
    assert read_queries(tmp_path / "again.jsonl").groups == table.groups


@pytest.mark.parametrize("group", ["9.5", "true", "[1]", '{"a": 1}'])
def test_a_group_that_is_neither_is_refused_with_its_line(tmp_path: Path, group: str) -> None:
    (tmp_path / "queries.jsonl").write_text(f'{{"_id": "1"}}\n{{"_id": "2", "group": {group}}}\n')
    with pytest.raises(DataError, match=r'queries\.jsonl:2: "group" must be text or a whole number; found'):
        read_queries(tmp_path / "queries.jsonl")
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "group": " "}\n')
    with pytest.raises(DataError, match=r'queries\.jsonl:1: "group" is empty\. Leave it out'):
        read_queries(tmp_path / "queries.jsonl")


def test_arrays_have_groups_by_row_by_query_or_by_id() -> None:
    X, qid = [[1.0], [2.0], [3.0], [4.0]], ["b", "a", "b", "c"]
    by_row = from_arrays(X, [0, 1, 1, 0], qid=qid, query_groups=["one", 2, "one", None])
    by_query = from_arrays(X, [0, 1, 1, 0], qid=qid, query_groups=np.array(["one", "2", "c"])[[0, 1, 2]])
    by_id = from_arrays(X, [0, 1, 1, 0], qid=qid, query_groups={"a": 2, "b": "one"})
    assert by_row.candidates.queries is not None
    assert by_query.candidates.queries is not None
    assert by_row.query_ids == ("b", "a", "c")
    assert by_row.candidates.queries.groups == ("one", "2", None)
    assert by_query.candidates.queries.groups == ("one", "2", "c")
    assert by_id.candidates.queries is not None
    assert by_id.candidates.queries.groups == ("one", "2", None)
    assert by_row.groups.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["x", "y", "z", "y"], r"^Query 'b' is in group 'x' in one row and in 'z' in another\. All rows"),
        (["x", "y"], r"^There are 4 rows of 3 queries but 2 query groups; give one per row, or one per query\.$"),
        ({"nobody": "x"}, r"^query_groups has a group for query 'nobody', which is not among the 3 queries\.$"),
        ([1.5, 1, 1, 1], r"^The group of query 'b' is 1\.5; expected a text or a whole number, or None"),
        ("abcd", r"^query_groups must be one text or whole number per query; found 'abcd'\.$"),
    ],
)
def test_groups_that_contradict_or_do_not_fit_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays([[1.0]] * 4, [0, 1, 1, 0], qid=["b", "a", "b", "c"], query_groups=groups)


def test_a_frame_has_a_column_of_groups_which_is_no_feature() -> None:
    frame = pd.DataFrame({"qid": [1, 1, 2], "label": [1, 0, 1], "bm25": [1.0, 2.0, 3.0], "film": [7, 7, None]})
    data = from_frame(frame, query_group="film")
    assert data.feature_names == ("bm25",)
    assert data.candidates.queries is not None
    assert data.candidates.queries.groups == ("7", None)
    with pytest.raises(DataError, match=r"^The table has no column 'title'"):
        from_frame(frame, query_group="title")


def test_a_log_has_groups_which_shards_and_side_files_keep(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"qid": ["a", "a", "b"], "label": [1, 0, 1], "bm25": [1.0, 2.0, 3.0], "query_group": ["x", "x", "y"]}
    )
    frame.to_parquet(tmp_path / "log.parquet")
    read = read_parquet(tmp_path / "log.parquet")
    assert read.feature_names == ("bm25",)
    assert read.groups.tolist() == [0, 1]
    (tmp_path / "queries.jsonl").write_text('{"_id": "a", "text": "one"}\n{"_id": "b", "text": "two"}\n')
    shards = convert([tmp_path / "log.parquet"], tmp_path / "shards").whole()
    table = shards.candidates.queries
    assert table is not None
    assert (table.texts, table.groups) == (("one", "two"), ("x", "y"))


def test_a_folder_of_parts_and_a_text_collection_keep_groups(tmp_path: Path) -> None:
    data = WORLD.with_groups([f"g{query // 3}" for query in range(QUERIES)])
    write_parts(data, tmp_path / "parts")
    for fold in read_folds(tmp_path / "parts"):
        assert not names(fold.train) & names(fold.test)
        assert not names(fold.valid) & names(fold.test)
    (tmp_path / "corpus.jsonl").write_text('{"_id": "D", "text": "jaguar"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "jaguar", "group": 3}\n')
    queries = read_collection(tmp_path).queries
    assert queries is not None
    assert queries.groups == ("3",)


def test_groups_survive_selecting_joining_and_other_query_data() -> None:
    data = WORLD.with_groups([f"g{query // 3}" for query in range(QUERIES)])
    assert names(data.select([0, 1, 5])) == {"g0", "g1"}
    plain = make_judged(3, 4, 2, seed=1)
    other = Judged(Candidates(plain.candidates.features, plain.candidates.starts, ("x", "y", "z")), plain.labels)
    joined = concatenate([data.select([0, 1, 5]), other.with_queries(QueryTable(("x", "y", "z")))])
    assert joined.candidates.queries is not None
    assert joined.candidates.queries.groups == ("g0", "g0", "g1", None, None, None)
    assert names(data.with_queries(QueryTable(data.query_ids, texts=data.query_ids))) == names(data)


def test_only_groups_change_fingerprint_and_order() -> None:
    known = WORLD.with_queries(QueryTable(WORLD.query_ids, classes=WORLD.classes))
    assert known.with_groups(None).fingerprint() == known.fingerprint()
    assert known.with_groups([None] * QUERIES).fingerprint() != known.fingerprint()
    assert content_order(known.with_groups([None] * QUERIES)).tolist() == content_order(known).tolist()


def test_weights_by_query_are_not_chosen_where_groups_are_too_few_to_tell() -> None:
    ids = [f"q{number}" for number in range(40)]
    runs = [
        Run(
            name,
            {query: {f"D{d}": (d * number * step) % 7 + 1.0 for d in range(6)} for number, query in enumerate(ids)},
        )
        for name, step in (("bm25", 1), ("vectors", 2))
    ]
    data = judged_by(tabulate_runs(runs), {query: {f"D{number % 6}": 1} for number, query in enumerate(ids)})
    assert len(WeightsByQuery().fit(data).tried_) > 0
    assert WeightsByQuery().fit(data.with_groups([number % 2 for number in range(40)])).tried_ == ()


@needs_real_data
def test_folds_of_a_search_for_films_keep_every_film_on_one_side() -> None:
    table = read_queries(REAL_DATA / "msrd" / "queries.jsonl")
    rows = np.zeros((len(table), 1))
    data = Judged(Candidates(rows, np.arange(len(table) + 1), table.ids, queries=table), np.zeros(len(table), np.int64))
    assert (len(data), len(np.unique(data.groups))) == (13_939, 1_618)
    for fold in make_folds(data):
        assert not names(fold.test) & (names(fold.train) | names(fold.valid))
        assert abs(len(fold.test) - len(data) / 5) <= 2
