"""The columns of first-stage runs: their names, and how they are found among features."""

from querywise.data.run_columns import RunColumns, run_columns, run_feature_names


def test_what_is_named_is_found_again_in_the_order_of_the_features() -> None:
    names = ("length", *run_feature_names(["vectors", "bm25"]), "title.length")

    assert run_columns(names) == [RunColumns("vectors", 1, 2), RunColumns("bm25", 3, 4)]


def test_a_run_may_have_dots_in_its_name() -> None:
    assert run_columns(run_feature_names(["bm25.title"])) == [RunColumns("bm25.title", 0, 1)]


def test_features_without_runs_have_none() -> None:
    assert run_columns(None) == []
    assert run_columns(["run.score", "run..score", "run..reciprocal_rank", "run.bm25.score"]) == []
