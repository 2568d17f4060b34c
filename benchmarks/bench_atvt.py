"""aTVT against one plain regression with the same trees."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.results import Result
from benchmarks.timing import best_seconds
from benchmarks.worlds import World
from querywise import Judged
from querywise.learners.regression import transforms
from querywise.learners.trees.boosting import TreeRegression
from querywise.rankers.atvt import ATVT

_TREES = 150


def measure() -> Iterator[Result]:
    """aTVT: five rounds, 1,000 queries × 35 documents × 46 features, 150 trees of 15 leaves.

    The ratio is ours / theirs. Theirs is the plain regression, the same trees fitted once; then one round. The (α, β)
    step is that of 20,000 queries × 35 documents, L2 and L1, beside one round on as many documents.
    """
    data = World(46, kinds=4).draw(1_000, 35, seed=1)
    plain = ATVT(TreeRegression(_TREES), rounds=0)
    ours = ATVT(TreeRegression(_TREES), rounds=5, tolerance=0.0)
    cached = best_seconds(lambda: plain.fit(data))
    took = best_seconds(lambda: ours.fit(data))
    ratio = took / cached
    yield Result("atvt", "five rounds", took, cached, "s", ratio, "≤ 6×", ratio <= 6)
    large = World(46, kinds=4).draw(20_000, 35, seed=1)
    candidates, targets = large.candidates, large.labels.astype(np.float64)
    regressor = TreeRegression(_TREES)
    fitted = regressor.fit(candidates.features, targets, np.ones(len(targets))).predict(candidates.features)

    def a_round() -> None:
        regressor.fit(candidates.features, targets, np.ones(len(targets))).predict(candidates.features)

    a_fit = best_seconds(a_round, times=2)
    for penalty in ("l2", "l1"):

        def step(penalty: str = penalty) -> None:
            transforms(
                targets,
                fitted,
                candidates.starts,
                scale_penalty=100.0,
                shift_penalty=1.0,
                penalty="l2" if penalty == "l2" else "l1",
            )

        step_took = best_seconds(step)
        share = step_took / (a_fit + step_took)
        what = f"(α, β) of 20,000 queries, {penalty.upper()}, beside a round"
        yield Result("atvt", what, step_took, a_fit + step_took, "s", share, "≤ 0.05×", share <= 0.05)
    yield from _answering(plain.fit(data), ours.fit(data), data)


def _answering(plain: ATVT, ours: ATVT, data: Judged) -> Iterator[Result]:
    theirs = best_seconds(lambda: plain.predict(data.candidates))
    took = best_seconds(lambda: ours.predict(data.candidates))
    yield Result("atvt", "ranking 1,000 queries", took, theirs, "s", took / theirs, "", None)
