"""Compile what the tests run, once, before several processes would each do it: `python -m tests.compile_kernels`.

Compiled code is kept on disk. What is missing here is compiled by the first test that needs it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from querywise.data.collections import Document
from querywise.data.json_rows import cut_rows
from querywise.data.letor import read_letor, write_letor
from querywise.data.synthetic import make_judged
from querywise.learners.ranksvm.curvature_kernels import nearest_row, upper
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.coarse import Coarse
from querywise.rankers.ensemble.long_lists import energy_in_blocks
from querywise.retrieval.bm25 import search
from querywise.retrieval.features import features_of
from querywise.retrieval.index import build_index
from tests.test_rankers_conform import RANKERS, fitted_once


def compile_kernels() -> None:
    """Read data, search an index, and fit every kind of ranker and rank with it."""
    data = make_judged(queries=8, documents=6, features=4, kinds=2)
    with tempfile.TemporaryDirectory() as folder:
        write_letor(Path(folder, "data.txt"), data)
        read_letor(Path(folder, "data.txt"))
    cut_rows(b'{"features": [1.5, 2]}', 2, 0.0)
    Coarse.of(data.candidates.features).perhaps_nearest(data.candidates.features[0].copy(), 0.0)
    energy_in_blocks(data.candidates.features, 3)
    RankSVM().fit(make_judged(queries=2, documents=500, features=2))  # long lists are swept
    singles = np.ones((2, 2), np.float32)
    nearest_row(np.ones((2, 2)), singles, singles[0], np.arange(2), np.ones(2))
    upper(np.ones(3, np.float32), 1.0, np.zeros((2, 2)))
    index = build_index([Document("D1", "jaguar", "a large cat"), Document("D2", "python", "a large snake")])
    features_of(index, "large cat", search(index, "large cat").documents)
    index.fields["both"].counts_of(index.numbers_of("large cat"), np.arange(2))
    for name in RANKERS:
        fitted = fitted_once(name)
        fitted.ranker.predict(fitted.data.candidates)


if __name__ == "__main__":
    compile_kernels()
