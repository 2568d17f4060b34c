from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.errors import NotFittedError
from querywise.evaluation.evaluate import evaluate
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.views.columns import Columns
from querywise.locality.views.learned import LearnedMetric
from querywise.rankers.knn import KnnOffline2
from querywise.storage import load, save


def moods_among_noise(queries: int, *, seed: int, noise: int = 8) -> Judged:
    """Half of the queries want feature 0 high, half low; one of their columns tells which, the others are noise."""
    rng = np.random.default_rng(seed)
    mood = np.where(rng.random(queries) < 0.5, 1.0, -1.0)
    features = rng.normal(size=(queries, 8, 2))
    merit = mood[:, None] * features[:, :, 0] + 0.3 * rng.normal(size=(queries, 8))
    labels = (merit > np.median(merit, axis=1, keepdims=True)).astype(np.int64)
    columns = np.column_stack([mood + 0.5 * rng.normal(size=queries), rng.normal(size=(queries, noise))])
    ids = tuple(f"{seed}-{number}" for number in range(queries))
    names = tuple(f"c{number}" for number in range(noise + 1))
    table = QueryTable(ids, columns=columns, column_names=names)
    candidates = Candidates(features.reshape(-1, 2), np.arange(queries + 1) * 8, ids, queries=table)
    return Judged(candidates, labels.ravel())


def with_classes(data: Judged) -> Judged:
    table = data.candidates.queries
    assert table is not None
    assert table.columns is not None
    classes = tuple("up" if value > 0 else "down" for value in table.columns[:, 0])
    return replace(data, candidates=replace(data.candidates, queries=replace(table, classes=classes)))


def test_the_coordinate_that_tells_queries_apart_is_stretched() -> None:
    data = moods_among_noise(120, seed=1)
    for known in (data, with_classes(data)):
        stretch = LearnedMetric(Columns()).fit(known).stretch_
        assert np.argmax(stretch) == 0
        assert np.sum(stretch**2) == pytest.approx(9)
        assert stretch[0] > 2 * np.max(stretch[1:])


def test_near_queries_then_serve_each_other_better() -> None:
    train, test = moods_among_noise(120, seed=1), moods_among_noise(60, seed=2)
    quality = {}
    for name, view in (("plain", Columns()), ("learned", LearnedMetric(Columns()))):
        ranker = KnnOffline2(RankSVM(), k=15, view=view).fit(train)
        quality[name] = evaluate(ranker.predict(test.candidates), test, measures=["map"]).mean()["map"]
    assert quality["learned"] > quality["plain"] + 0.05


def test_where_nothing_can_be_learned_the_view_stays_as_it_is() -> None:
    train = moods_among_noise(6, seed=1)
    assert np.array_equal(LearnedMetric(Columns(), k=1.0).fit(train).stretch_, np.ones(9))


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    data = moods_among_noise(40, seed=3)
    ranker = KnnOffline2(RankSVM(), k=10, view=LearnedMetric()).fit(data)
    save(ranker, tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.predict(data.candidates), ranker.predict(data.candidates))


def test_points_before_fit_say_what_to_do() -> None:
    with pytest.raises(NotFittedError):
        LearnedMetric().points(moods_among_noise(5, seed=0).candidates)


def test_the_order_of_the_training_queries_changes_nothing() -> None:
    data = moods_among_noise(60, seed=1)
    turned = data.select(np.random.default_rng(0).permutation(len(data)))
    stretches = [LearnedMetric(Columns()).fit(each).stretch_ for each in (data, turned)]
    assert stretches[0] == pytest.approx(stretches[1], abs=1e-9)
