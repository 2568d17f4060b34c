"""A hundred local models from clusters, and how differently they see queries, against one global model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from benchmarks.bench_knn import REAL, A, each_query, floor_of_models, milliseconds
from benchmarks.floors import least_seconds
from benchmarks.results import Result, above, at_most
from benchmarks.timing import best_in_turn
from querywise import Candidates, Judged, RankSVM, Single, read_letor
from querywise.locality.groupings import RelevantClusters
from querywise.locality.views.divergence import Divergence
from querywise.rankers.clusters import Naive, SelectRanker, Transform
from querywise.rankers.single import OneFeature
from querywise.runtime.arrays import Floats

_CLUSTERS = 100
_K = 10
_STARTS = 4  # of K-means
_ASKED = 200
_ROUNDS = 9  # each of them one call of everything that is compared
_TOLERANCES = {"bare": None, "checked": 1e-3}


def measure() -> Iterator[Result]:
    """Clusters: 100 local models, picked or blended by query, at λ = 1.

    A is 1,000 queries × 35 documents × 46 features; MQ2008 is real. The clusters are of relevant documents. Bare models
    are one Newton step; checked ones are proven to lie within 1e-3 of their optimum. The ratio is ours / theirs.

    Theirs is one RankSVM.fit on all queries, standardising included on either side. Models and views are
    RankSVM.prepare and .models for clusters that are there already, then Divergence from the feature that ranks best:
    finding that feature, fitting, and the points of the training queries. SelectRanker.fit is all there is to do, from
    K-means to the precision of every model. The floor counts what must be multiplied: for K-means the distances of all
    points from every candidate of its four starts, for models what they take in the bench of local models and the
    scores of all documents under each. All are measured in turn, nine times.

    An answer is to one query at a time, the median of 200: other queries of A's world, some of MQ2008's own. Theirs is
    Single's. Models are checked.
    """
    yield from _measure_set("A", A.train(), each_query(A.test()), aims=True)
    if REAL.is_dir():
        data = read_letor(sorted(REAL.glob("S*.txt")))
        some = np.linspace(0, len(data) - 1, _ASKED).astype(np.int64)
        yield from _measure_set("MQ2008", data, each_query(data.select(some)), aims=False)
    else:
        print("MQ2008 is not in shared/data beside the project, so it is left out.")


def _measure_set(name: str, data: Judged, asked: Sequence[Candidates], *, aims: bool) -> Iterator[Result]:
    members = _clustered(data).members_
    _models_and_views(data, members, None)  # whatever is compiled or loaded only once
    tolerances = _TOLERANCES.values()
    works: list[Callable[[], object]] = [lambda: RankSVM().fit(data), lambda: _clustered(data)]
    works += [functools.partial(_models_and_views, data, members, each) for each in tolerances]
    works += [functools.partial(SelectRanker(RankSVM(tolerance=each), _CLUSTERS, _K).fit, data) for each in tolerances]
    one_fit, grouping, *others = best_in_turn(works, times=_ROUNDS)
    models, whole = (dict(zip(_TOLERANCES, part, strict=True)) for part in (others[:2], others[2:]))
    for kind, took in models.items():
        found = _over(f"{name}, models and views, {kind}", took, one_fit, "s", most=5 if aims else None)
        yield above(_floor_of_views(data, members, kind), found)
    clustering = _floor_of_clusters(data)
    yield above(clustering, _over(f"{name}, K-means alone", grouping, one_fit, "s"))
    for kind, took in whole.items():
        found = _over(f"{name}, SelectRanker.fit, {kind}", took, one_fit, "s", most=8 if aims else None)
        yield above(clustering + _floor_of_views(data, members, kind), found)
    yield from _answering(name, data, asked)


def _answering(name: str, data: Judged, asked: Sequence[Candidates]) -> Iterator[Result]:
    by_one_model = _an_answer(Single(RankSVM()).fit(data), asked)
    for ranker in (
        Naive(RankSVM(), _CLUSTERS),
        SelectRanker(RankSVM(), _CLUSTERS, _K),
        Transform(RankSVM(), _CLUSTERS),
    ):
        took = _an_answer(ranker.fit(data), asked)
        yield _over(f"{name}, an answer by {type(ranker).__name__}", took, by_one_model, "ms")


def _an_answer(ranker: Any, asked: Sequence[Candidates]) -> float:
    """Milliseconds, the median of all queries, in the least disturbed of a few rounds."""
    return min(float(np.median(milliseconds(ranker.predict, asked))) for _ in range(3))


def _clustered(data: Judged) -> RelevantClusters:
    return RelevantClusters(_CLUSTERS).fit(np.zeros((0, 0)), data)


def _models_and_views(data: Judged, members: csr_array, tolerance: float | None) -> Floats:
    models = RankSVM(tolerance=tolerance).prepare(data).models(members)
    return Divergence(OneFeature(), models, standardise=False).fit(data).points(data.candidates)


def _floor_of_clusters(data: Judged) -> float:
    """The least seconds for K-means: the distances of all points from the candidates of every centre."""
    points, width = int((data.labels > 0).sum()), data.feature_count
    candidates = _STARTS * _CLUSTERS * (2 + int(np.log(_CLUSTERS)))
    return least_seconds(read=8.0 * points * width, multiplied=float(candidates * points * width))


def _floor_of_views(data: Judged, members: csr_array, kind: str) -> float:
    """The least seconds for the models of clusters, and for the scores of all documents under every model."""
    scores = data.candidates.features.size * members.shape[0]
    return floor_of_models(data, members, checked=kind == "checked") + least_seconds(multiplied=float(scores))


def _over(what: str, ours: float, theirs: float, unit: str, *, most: float | None = None) -> Result:
    """Our cost beside theirs, and how many times theirs it is."""
    return at_most("clusters", what, ours=ours, theirs=theirs, unit=unit, most=most)
