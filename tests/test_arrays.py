"""Arrays that are marked read-only, as all are in memory that processes share: kernels take them as they are."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from querywise.data.synthetic import make_judged
from querywise.learners.ranksvm.preferences import SQUARED_HINGE, Preferences
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.rankers.ensemble.ensemble import SSER
from querywise.rankers.knn import KnnOnline
from querywise.runtime.arrays import for_kernels, frozen

TRAIN = make_judged(queries=20, documents=8, features=4, kinds=2)
TEST = make_judged(queries=5, documents=8, features=4, kinds=2, seed=1).candidates
RANKERS: dict[str, Callable[[], Any]] = {
    "local": lambda: KnnOnline(RankSVM(), k=5),
    "many pairs": lambda: KnnOnline(RankSVM(tolerance=1e-9), k=20),
    "hinge": lambda: KnnOnline(RankSVM(loss="hinge", tolerance=1e-2), k=5),
    "trees": lambda: LambdaMART(5, leaves=4, min_documents=3),
    "semi-supervised": SSER,
}


def elsewhere(thing: Any) -> Any:
    """The same as another process has it, with every array in memory that may only be read."""
    buffers: list[pickle.PickleBuffer] = []
    frame = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(frame, buffers=[bytes(each.raw()) for each in buffers])


def compiled_for() -> dict[str, int]:
    """For how many kinds of arguments every kernel has been compiled."""
    loaded = {name: vars(module) for name, module in list(sys.modules.items()) if name.startswith("querywise.")}
    every = {f"{name}.{each}": kernel for name, inside in loaded.items() for each, kernel in inside.items()}
    return {name: len(kernel.signatures) for name, kernel in every.items() if hasattr(kernel, "nopython_signatures")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RANKERS)
def test_a_ranker_in_shared_memory_scores_the_same_and_has_nothing_compiled_anew(kind: str) -> None:
    ranker = RANKERS[kind]().fit(TRAIN)
    expected, before = ranker.predict(TEST), compiled_for()
    assert any(before.values())
    assert elsewhere(ranker).predict(TEST).tobytes() == expected.tobytes()
    assert compiled_for() == before


def test_pairs_in_shared_memory_add_up_to_the_same_and_have_nothing_compiled_anew() -> None:
    here = Preferences(TRAIN.candidates.features, TRAIN.labels, TRAIN.candidates.starts)
    weights = np.linspace(0.1, 1, len(TRAIN))

    def added_up(pairs: Preferences, shared: Callable[[Any], Any]) -> list[Any]:
        scores = shared(pairs.scores(np.arange(4.0)))
        sums = shared(pairs.sums(scores, SQUARED_HINGE))
        at = (scores, sums.degree, shared(weights), SQUARED_HINGE)
        return [*sums, pairs.curvature(*at), pairs.curvatures(*at), pairs.gradients(sums.gradient, shared(weights))]

    expected, before = added_up(here, lambda value: value), compiled_for()
    there = elsewhere(here)
    found = added_up(there, elsewhere)
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]
    assert compiled_for() == before
    assert not there.features.flags.writeable, "what is shared stays marked"


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0,), (0, 4)])
def test_a_kernel_is_given_the_memory_of_an_array_without_its_mark(shape: tuple[int, ...]) -> None:
    array = np.ones(shape)
    marked = frozen(array)
    given = for_kernels(marked)
    assert given.flags.writeable
    assert (given.shape, given.dtype, given.strides) == (array.shape, array.dtype, array.strides)
    assert not marked.flags.writeable
    assert np.shares_memory(given, array) or not array.size
    assert for_kernels(array) is array
