"""What the recommended ranker costs beside the baseline most people have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

import lightgbm
import numpy as np

from benchmarks.bench_knn import REAL
from benchmarks.floors import least_seconds
from benchmarks.results import Result, above, alone, at_most
from benchmarks.timing import best_seconds, seconds
from querywise import Candidates, Judged, read_letor
from querywise.methods import METHODS
from querywise.runtime.parameters import learned_bytes

_BAG, _DOCUMENTS, _TIMES = 5, 100, 3


def measure() -> Iterator[Result]:
    """The method blend: MQ2008, fold 1, all trees averaged over five seeds.

    Theirs is LightGBM called five times, once for each seed, on the raw features with the parameters of our LambdaMART;
    all stop on the validation part. Our LambdaMART grows the same forests, side by side. An answer is that for one
    query of 100 documents. The ratio is ours / theirs. The floor of training is our LambdaMART, whose trees are part of
    the blend; that of an answer is reading the model once.
    """
    if not REAL.is_dir():
        print("MQ2008 is not in shared/data beside the project, so it is left out.")
        return
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    train, valid = (read_letor([REAL / f"S{number}.txt" for number in part]) for part in ((1, 2, 3), (4,)))
    blend, forests = (METHODS[name].build(bag=_BAG) for name in ("blend", "lambdamart"))
    took = _by_turns(
        {
            "blend": lambda: blend.fit(train, valid=valid),
            "forests": lambda: forests.fit(train, valid=valid),
            "lightgbm": lambda: _by_lightgbm(train, valid),
        }
    )
    yield above(
        took["forests"],
        at_most("blend", "training", ours=took["blend"], theirs=took["lightgbm"], unit="s", most=2.5),
    )
    yield at_most("blend", "training LambdaMART", ours=took["forests"], theirs=took["lightgbm"], unit="s")
    yield at_most("blend", "training ÷ LambdaMART's", ours=took["blend"], theirs=took["forests"], unit="s")
    features = train.candidates.features[np.arange(_DOCUMENTS) * 7]
    query = Candidates(features, np.array([0, _DOCUMENTS]), ("q",))
    answers = [1e3 * best_seconds(lambda each=each: each.predict(query), times=200) for each in (blend, forests)]  # type: ignore[misc]
    yield above(
        1e3 * least_seconds(read=learned_bytes(blend)),
        alone("blend", "an answer, 100 documents", ours=answers[0], unit="ms", below=0.6),
    )
    yield alone("blend", "an answer by LambdaMART", ours=answers[1], unit="ms")
    yield alone("blend", "the model", ours=learned_bytes(blend) / 1e6, unit="MB")


def _by_turns(works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The shortest of several turns of each, after one that does not count."""
    turns = [{name: seconds(work) for name, work in works.items()} for _ in range(_TIMES + 1)][1:]
    return {name: min(turn[name] for turn in turns) for name in works}


def _by_lightgbm(train: Judged, valid: Judged) -> list[lightgbm.Booster]:
    """As many forests as a bag has, by what LightGBM's users call."""
    training, checked = (
        lightgbm.Dataset(part.candidates.features, label=part.labels, group=part.candidates.sizes)
        for part in (train, valid)
    )
    shared = {
        "objective": "lambdarank",
        "metric": "ndcg",
        "eval_at": [10],
        "num_leaves": 15,
        "learning_rate": 0.05,
        "min_data_in_leaf": 20,
        "feature_fraction": 0.5,
        "deterministic": True,
        "force_col_wise": True,
        "verbose": -1,
    }
    stop = lightgbm.early_stopping(50, verbose=False)
    return [
        lightgbm.train({**shared, "feature_fraction_seed": seed}, training, 500, [checked], callbacks=[stop])
        for seed in range(_BAG)
    ]
