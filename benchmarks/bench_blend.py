"""What the recommended ranker costs beside the baseline most people have."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from benchmarks.bench_knn import REAL
from benchmarks.results import Result, alone
from benchmarks.timing import best_seconds, seconds
from querywise import Candidates, read_letor
from querywise.methods import METHODS
from querywise.runtime.parameters import learned_bytes

_BAG, _DOCUMENTS = 5, 100


def measure() -> Iterator[Result]:
    """The method blend: MQ2008, fold 1, all trees averaged over five seeds.

    Theirs is LambdaMART on the raw features with as many seeds; both stop on the validation part. An answer is that for
    one query of 100 documents. The ratio is ours / theirs.
    """
    if not REAL.is_dir():
        print("MQ2008 is not in shared/data beside the project, so it is left out.")
        return
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    train, valid = (read_letor([REAL / f"S{number}.txt" for number in part]) for part in ((1, 2, 3), (4,)))
    ours, theirs = (METHODS[name].build(bag=_BAG) for name in ("blend", "lambdamart"))
    for each in (theirs, ours):
        each.fit(train, valid=valid)  # whatever is compiled only once
    pairs = [
        (seconds(lambda: ours.fit(train, valid=valid)), seconds(lambda: theirs.fit(train, valid=valid)))
        for _ in range(3)
    ]
    one, other = (min(each) for each in zip(*pairs, strict=True))
    yield Result("blend", "training", one, other, "s", one / other, "≤ 5×", one / other <= 5)
    features = train.candidates.features[np.arange(_DOCUMENTS) * 7]
    query = Candidates(features, np.array([0, _DOCUMENTS]), ("q",))
    took = [1e3 * best_seconds(lambda each=each: each.predict(query), times=20) for each in (ours, theirs)]  # type: ignore[misc]
    yield alone("blend", "an answer, 100 documents", ours=took[0], unit="ms", below=3)
    yield alone("blend", "an answer by LambdaMART", ours=took[1], unit="ms")
    yield alone("blend", "the model", ours=learned_bytes(ours) / 1e6, unit="MB")
