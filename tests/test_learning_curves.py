"""Learning curves of what is compared: which queries are trained on, what is tested, and what is said of it."""

from __future__ import annotations

from querywise.data.folds import Fold
from querywise.data.synthetic import make_judged
from querywise.evaluation.learning_curves import cut, sizes_up_to

DATA = make_judged(120, 6, 3, noise=0.3)


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
