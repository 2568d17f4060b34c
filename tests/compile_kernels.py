"""Compile what the tests run, once, before several processes would each do it: `python -m tests.compile_kernels`.

Compiled code is kept on disk. What is missing here is compiled by the first test that needs it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from querywise.data.collections import Document
from querywise.data.json_rows import cut_rows, read_base64
from querywise.data.judged import Judged
from querywise.data.letor import read_letor, write_letor
from querywise.data.synthetic import make_judged
from querywise.learners.ranksvm.anchors import Anchors, Given
from querywise.learners.ranksvm.local_kernels import upper
from querywise.learners.ranksvm.newton import Ridge
from querywise.learners.ranksvm.preferences import Preferences
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.ranksvm.systems import Curved
from querywise.learners.weights import WeightRows
from querywise.locality.coarse import Coarse
from querywise.rankers.ensemble.graph import energy_in_blocks
from querywise.retrieval.bm25 import search
from querywise.retrieval.features import features_of
from querywise.retrieval.index import build_index
from tests.support.rankers import RANKERS, fitted_once


def _read_data() -> None:
    data = _data()
    with tempfile.TemporaryDirectory() as folder:
        write_letor(Path(folder, "data.txt"), data)
        read_letor(Path(folder, "data.txt"))
    cut_rows(b'{"features": [1.5, 2]}', 2, 0.0)
    read_base64(np.frombuffer(b"aHR0cA==", np.uint8))


def _data() -> Judged:
    return make_judged(queries=8, documents=6, features=4, kinds=2)


def _find_neighbors() -> None:
    data = _data()
    Coarse.of(data.candidates.features).perhaps_nearest(data.candidates.features[0].copy(), 0.0)
    energy_in_blocks(data.candidates.features, 3)
    upper(np.ones(3, np.float32), 1.0, np.zeros((2, 2)))


def _sweep_long_lists() -> None:
    RankSVM().fit(make_judged(queries=2, documents=500, features=2))


def _search_an_index() -> None:
    index = build_index([Document("D1", "jaguar", "a large cat"), Document("D2", "python", "a large snake")])
    features_of(index, "large cat", search(index, "large cat").documents)
    index.fields["both"].counts_of(index.numbers_of("large cat"), np.arange(2))


def _rank(name: str) -> None:
    fitted = fitted_once(name)
    fitted.ranker.predict(fitted.data.candidates)


def _train_from_anchors() -> None:
    data = _data()
    pairs = Preferences(data.candidates.features, data.labels, data.candidates.starts)
    shares, ridge = WeightRows.of(csr_array(np.ones((1, len(data)))), pairs.pairs, "query"), Ridge(1.0, np.zeros(4))
    curved = Curved(np.ones((len(data), 4)), np.ones((len(data), 10), np.float32))
    for tolerance in (None, 1.0):
        given = Given.of(pairs.pairs, "query", curved, pairs, ridge, tolerance)
        anchors = Anchors.of(shares, given, np.zeros((1, 4)))
        anchors.bare(shares.matrix())
        row = anchors.row(shares.matrix())
        near = anchors.nearest(row)
        assert near is not None
        if tolerance is not None:
            anchors.certified(near, row)


STEPS: list[Callable[[], None]] = [
    _sweep_long_lists, _read_data, _find_neighbors, _train_from_anchors, _search_an_index,
    *(partial(_rank, name) for name in RANKERS),
]  # fmt: skip


def _take(number: int) -> None:
    STEPS[number]()


def compile_kernels() -> None:
    """Take all steps in two processes, from both ends, since steps that follow each other need the same kernels."""
    count = len(STEPS)
    order = [count - 1 - turn // 2 if turn % 2 else turn // 2 for turn in range(count)]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        list(pool.map(_take, order))


if __name__ == "__main__":
    compile_kernels()
