"""Local models around queries, against one global model and against training each of them on explicit pairs.

The alternative is scikit-learn's LinearSVC, primal, on all pairs of the neighbours, building the pairs included. Its
tolerance is the loosest that ends within 1e-3 of the optimum, relative to it: what our checked models are held to.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from benchmarks.bench_ranksvm import build_pairs, fit_pairs, linear_svc, objective
from benchmarks.floors import least_seconds
from benchmarks.results import Result, above, alone, at_most, compared
from benchmarks.timing import best_seconds
from benchmarks.worlds import World
from querywise import Candidates, Judged, KnnOffline2, KnnOnline, RankSVM, Single, make_judged, read_letor
from querywise.locality.neighborhoods import Nearest
from querywise.locality.views.topmean import TopMean
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.scaling import Scaling

_L2 = 1.0
_CHECKED = 1e-3
_KINDS = 3
_SHARES = (0.3, 0.05)
_TRAINED = 20  # of the models, by LinearSVC
_TURNS = 9
_ASKED = 200
_ASKED_OF_PAIRS = 10
_MOST = {"A": (2.0, 4.0), "B": (4.0, 6.0)}  # times one fit: all models, bare and checked
_ONLINE = {"A": (0.3, 1.0), "B": (2.0, 5.0)}  # milliseconds: a model for one query, bare and checked
_TOLERANCES = (0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
REAL = Path(__file__).parents[2] / "shared" / "data" / "MQ2008"


@dataclass(frozen=True)
class Shape:
    """A made-up training set: queries × documents × features."""

    name: str
    queries: int
    documents: int
    features: int

    def train(self) -> Judged:
        """The training queries."""
        return make_judged(self.queries, self.documents, self.features, kinds=_KINDS)

    def test(self) -> Judged:
        """Other queries of the same world."""
        return World(self.features, kinds=_KINDS).draw(_ASKED, self.documents, seed=1)


A = Shape("A", 1_000, 35, 46)
_B = Shape("B", 1_500, 40, 200)


@dataclass(frozen=True)
class Detour:
    """What models trained on explicit pairs took, at which tolerance, and how far from its optimum the worst ended."""

    seconds: list[float]
    tolerance: float
    gap: float

    def __str__(self) -> str:
        return f"tol {self.tolerance:g}, {self.gap:+.0e}"


def measure_offline() -> Iterator[Result]:
    """Local models: RankSVM.prepare and .models, a model around every training query, at λ = 1.

    A is 1,000 queries × 35 documents × 46 features, B is 1,500 × 40 × 200; MQ2008 is real. k is a share of the queries.
    Bare models are one Newton step; checked ones are proven to lie within 1e-3 of their optimum.

    Against one fit, theirs is one RankSVM.fit on all queries, and the ratio is ours / theirs. One by one it would be
    100 to 400, by the cost formula of the paper that brought up local models.

    LinearSVC is trained on the neighbours' explicit pairs for 20 of the models, and the others are taken to cost as
    much. In brackets: the loosest tolerance that will do, and how far above its optimum the worst of the 20 ends. Ours
    uses all cores; LinearSVC knows only one.
    """
    for shape in (A, _B):
        yield from _measure_set(shape.name, shape.train(), aims=_MOST[shape.name], by_pairs=shape is A)
    if REAL.is_dir():
        yield from _measure_set("MQ2008", read_letor(sorted(REAL.glob("S*.txt"))))
    else:
        print("MQ2008 is not in shared/data beside the project, so it is left out.")


def measure_online() -> Iterator[Result]:
    """Answering: one query at a time.

    A and B are those of the local models, k = 30 %, 200 other queries. KnnOnline trains a model for the query that
    arrives; theirs is LinearSVC on the explicit pairs of the same neighbours, the median of 10 queries, not counting
    how they were found. KnnOffline2 less Single is what it takes to find the nearest model. The least that a model
    could take: reading all training queries' positions, and one factorisation; for a checked one also its rows.
    """
    for shape in (A, _B):
        train, test = shape.train(), shape.test()
        scaling = Scaling.learn(train.candidates.features, "standard")
        data, asked = _scaled(train, scaling), each_query(_scaled(test, scaling))
        yield from _online(shape.name, data, asked, aims=shape is A)
        yield _routing(shape.name, data, asked, k=0.3, below=0.2 if shape is A else None)
    world = World(136, kinds=_KINDS)
    data, asked = world.draw(18_919, 5, seed=1), each_query(world.draw(_ASKED, 120, seed=2))
    yield _routing("18,919 queries × 136 features", data, asked, k=20, below=0.4)


def _measure_set(
    name: str, given: Judged, *, aims: tuple[float, float] | None = None, by_pairs: bool = False
) -> Iterator[Result]:
    """Both shares on one training set, which is standardised beforehand, for us and for LinearSVC."""
    data = _scaled(given, Scaling.learn(given.candidates.features, "standard"))
    everyone = _ranksvm(None).fit(data)
    points = TopMean(everyone).fit(data).points(data.candidates)
    one_fit = best_seconds(lambda: _ranksvm(None).fit(data), times=9)
    looking = best_seconds(lambda: TopMean(everyone).fit(data).points(data.candidates))
    for share in _SHARES:
        finding = best_seconds(functools.partial(_nearest, points, share))
        case = f"{name}, k = {share:.0%}"
        first = share == _SHARES[0]
        most, least = aims if first else None, 200.0 if by_pairs and first else None
        yield from _measure_share(case, data, _nearest(points, share), one_fit, most=most, least=least)
        yield alone("knn", f"{case}, view and neighbours (not counted)", ours=looking + finding, unit="s")


def _measure_share(
    case: str,
    data: Judged,
    weights: csr_array,
    one_fit: float,
    *,
    most: tuple[float, float] | None,
    least: float | None,
) -> Iterator[Result]:
    bare, checked = (
        best_seconds(functools.partial(_all_models, data, weights, tolerance)) for tolerance in (None, _CHECKED)
    )
    for kind, took, aim in zip(("bare", "checked"), (bare, checked), most or (None, None), strict=True):
        found = at_most("knn", f"{case}, {kind}, against one fit", ours=took, theirs=one_fit, unit="s", most=aim)
        yield found if aim is None else above(floor_of_models(data, weights, checked=kind == "checked"), found)
    some = np.linspace(0, len(data) - 1, _TRAINED).astype(np.int64)
    detour = _by_pairs(data, [_neighbours(weights, row) for row in some])
    theirs = float(np.mean(detour.seconds)) * len(data)
    yield compared("knn", f"{case}, bare, LinearSVC", ours=bare, theirs=theirs, unit="s")
    what = f"{case}, checked, LinearSVC ({detour})"
    yield compared("knn", what, ours=checked, theirs=theirs, unit="s", at_least=least)


def floor_of_models(data: Judged, weights: csr_array, *, checked: bool) -> float:
    """The least seconds for all models: every query's curvature, V times these, a factorisation for each model.

    Checked ones also read their neighbours' rows once, for scores and for the gradient.
    """
    rows, width = data.candidates.features.shape
    curvature = (rows + weights.nnz) * width * (width + 1) / 2
    factors = weights.shape[0] * width**3 / 6
    checks = 2 * width * float((data.candidates.sizes[weights.indices]).sum()) if checked else 0.0
    return least_seconds(read=8.0 * rows * width, multiplied=curvature + factors + checks)


def _online(name: str, data: Judged, asked: Sequence[Candidates], *, aims: bool) -> Iterator[Result]:
    bare, checked = (KnnOnline(_ranksvm(tolerance), k=0.3, back_off=None).fit(data) for tolerance in (None, _CHECKED))
    members = [_neighbours(bare.training_queries(query), 0) for query in asked[:_ASKED_OF_PAIRS]]
    detour = _by_pairs(data, members)
    theirs = 1e3 * float(np.median(detour.seconds))
    for kind, ranker, least in (("bare", bare, 200), (f"checked, LinearSVC ({detour})", checked, 50)):
        took = milliseconds(ranker.predict, asked)
        middle, slow = np.quantile(took, (0.5, 0.99)).tolist()
        what = f"{name}, KnnOnline {kind}"
        yield compared("online", what, ours=middle, theirs=theirs, unit="ms", at_least=least if aims else None)
        yield alone("online", f"{name}, the same, 99th percentile", ours=slow, unit="ms")
    for kind, ranker, below in zip(("bare", "checked"), (bare, checked), _ONLINE[name], strict=True):
        middle = float(np.median(milliseconds(ranker.predict, asked)))
        found = alone("online", f"{name}, a model for one query, {kind}", ours=middle, unit="ms", below=below)
        width = data.candidates.features.shape[1]
        rows = 0.3 * len(data.candidates.features) if kind == "checked" else 0.0
        yield above(1e3 * least_seconds(read=8 * (len(data) + rows) * width, multiplied=width**3 / 6), found)


def _routing(name: str, data: Judged, asked: Sequence[Candidates], *, k: float, below: float | None = None) -> Result:
    single, routed = Single(_ranksvm(None)).fit(data), KnnOffline2(_ranksvm(None), k=k, back_off=None).fit(data)
    # In turn, for a machine may change its pace between the two.
    runs = [[float(np.median(milliseconds(each.predict, asked))) for each in (routed, single)] for _ in range(_TURNS)]
    added = np.median([of_routed - of_single for of_routed, of_single in runs])
    return alone("online", f"{name}, KnnOffline2 less Single", ours=float(added), unit="ms", below=below)


def _ranksvm(tolerance: float | None) -> RankSVM:
    return RankSVM(_L2, scale="none", tolerance=tolerance)


def _all_models(data: Judged, weights: csr_array, tolerance: float | None) -> object:
    return _ranksvm(tolerance).prepare(data).models(weights)


def _nearest(points: Floats, share: float) -> csr_array:
    return Nearest(share).fit(points).weights(points)


def _neighbours(weights: csr_array, row: int) -> Ints:
    chosen: Ints = weights.indices[weights.indptr[row] : weights.indptr[row + 1]].astype(np.int64)
    return chosen


def _scaled(data: Judged, scaling: Scaling) -> Judged:
    given = data.candidates
    return Judged(Candidates(scaling.apply(given.features), given.starts, given.query_ids), data.labels)


def each_query(data: Judged) -> list[Candidates]:
    """The queries, one by one."""
    return [data.candidates.select([query]) for query in range(len(data))]


def milliseconds(answer: Callable[[Candidates], object], asked: Sequence[Candidates]) -> Floats:
    """What each query takes, after ten that do not count."""
    for query in asked[:10]:
        answer(query)
    took = []
    for query in asked:
        begin = time.perf_counter()
        answer(query)
        took.append(1e3 * (time.perf_counter() - begin))
    return np.array(took)


def _by_pairs(data: Judged, members: Sequence[Ints]) -> Detour:
    """A model for each list of neighbours, at the loosest tolerance that is good enough for all of them."""
    for tolerance in _TOLERANCES:
        both = [_trained(data.select(each), tolerance) for each in members]
        detour = Detour([took for took, _ in both], tolerance, max(gap for _, gap in both))
        if detour.gap <= _CHECKED:
            break
    return detour


def _trained(data: Judged, tolerance: float) -> tuple[float, float]:
    """How long LinearSVC took, building pairs included, and how far above the optimum it ended, relative to it."""
    begin = time.perf_counter()
    pairs = build_pairs(data)
    model = linear_svc(_L2, dual=False, tolerance=tolerance)
    fit_pairs(model, pairs)
    took = time.perf_counter() - begin
    optimum = _ranksvm(None).fit(data).objective_
    return took, objective(model.coef_[0], pairs, _L2) / optimum - 1
