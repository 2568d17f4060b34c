"""The names people type, and what they stand for: one table that the command line, comparisons and the docs read."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from querywise.contracts import Ranker
from querywise.data.groups import Judged
from querywise.errors import DataError
from querywise.parameters import parameters_of

TEXT_VIEW = "gradient:text"  # tried beside a method's own where queries have a text and no view is asked for


@dataclass(frozen=True)
class Method:
    """A ranker by name: how to build it, which parameters are worth trying, and one line on what it is."""

    name: str
    description: str
    build: Callable[..., Ranker]
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    grids: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)  # other ones, by base

    def grid_on(self, data: Judged, base: str | None = None) -> Mapping[str, Sequence[Any]]:
        """What is worth trying on some data, with some base: where queries have a text, a view of it too."""
        if base is not None and base in self.grids:
            return self.grids[base]
        table = data.candidates.queries
        worded = table is not None and table.texts is not None and any(table.texts)
        view = self.parameters.get("view")
        return {**self.grid, "view": (view.default, TEXT_VIEW)} if worded and view is not None else self.grid

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """What can be set, with its defaults."""
        return inspect.signature(self.build).parameters


def _ranksvm(
    *,
    l2: float = 1.0,
    loss: str = "squared_hinge",
    pairs: str = "query",
    scale: str = "standard",
    tolerance: float = 1e-3,
) -> Any:
    from querywise.learners.ranksvm import RankSVM

    build: Any = RankSVM  # which refuses unknown names itself, with the known ones
    return build(l2, loss=loss, pairs=pairs, scale=scale, tolerance=tolerance)


def _lambdamart(
    *, trees: int = 500, leaves: int = 15, learning_rate: float = 0.05, min_documents: int = 20, seed: int = 0
) -> Any:
    from querywise.learners.trees import LambdaMART

    return LambdaMART(trees, leaves=leaves, learning_rate=learning_rate, min_documents=min_documents, seed=seed)


def _single(*, l2: float = 1.0, loss: str = "squared_hinge", pairs: str = "query") -> Any:
    from querywise.rankers.single import Single

    return Single(_ranksvm(l2=l2, loss=loss, pairs=pairs))


def _bm25(*, reference: int | str | None = None) -> Any:
    from querywise.rankers.column import OneFeature
    from querywise.text.scores import BM25

    return OneFeature(BM25 if reference is None else reference)


def _query_classes(
    *,
    l2: float = 1.0,
    view: str = "top-mean",
    reference: int | str | None = None,
    top: int = 50,
    known: bool = False,
    loss: str = "squared_hinge",
    pairs: str = "query",
    seed: int = 0,
) -> Any:
    from querywise.rankers.classes import QueryClasses

    return QueryClasses(
        _ranksvm(l2=l2, loss=loss, pairs=pairs), view=_view(view, reference, top), known=known, seed=seed
    )


def _local_learner(
    *,
    l2: float = 1.0,
    prior_l2: float = 0.0,
    loss: str = "squared_hinge",
    pairs: str = "query",
    scale: str = "standard",
    tolerance: float = 1e-3,
    base: str = "ranksvm",
) -> Any:
    """What local models are trained by: prior_l2 holds ranking SVMs to the global one, and lets trees start from it."""
    if base not in ("ranksvm", "lambdamart"):
        raise DataError(f"base={base!r} is unknown. Known: ranksvm, lambdamart.")
    learner = _ranksvm(l2=l2, loss=loss, pairs=pairs, scale=scale, tolerance=tolerance)
    if base == "lambdamart":
        learner = _lambdamart()
    else:
        learner.prior_l2 = prior_l2 or None
    learner.prior = "global" if prior_l2 else None
    return learner


def _with_settings_of(make: Callable[..., Any], build: Callable[..., Any]) -> Callable[..., Any]:
    """A method with the settings of the learner that `make` makes; `build` is handed the learner."""
    own, learning = (inspect.signature(each).parameters for each in (build, make))

    @functools.wraps(build)
    def built(**settings: Any) -> Any:
        learner = make(**{name: settings.pop(name) for name in learning if name in settings})
        return build(learner, **settings)

    shown = [each for each in {**own, **learning}.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    built.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return built


def _knn(kind: str) -> Callable[..., Any]:
    def build(
        learner: Any,
        *,
        k: float = 0.2,
        view: str = "top-mean",
        reference: int | str | None = None,
        top: int = 50,
        radius: float | None = None,
        metric: str = "euclidean",
        search: str = "brute",
        back_off: float | None = None,
        models: float | None = None,
    ) -> Any:
        from querywise.neighborhoods import Nearest, Radius
        from querywise.rankers import knn

        how: Any = metric
        tree: Any = search
        near = Nearest(k, metric=how, search=tree) if radius is None else Radius(radius, metric=how)
        ranker = getattr(knn, kind)
        stored = {"models": models} if kind != "KnnOnline" else {}
        if models is not None and not stored:
            raise DataError("models=… says how many models to store; knn-online stores none.")
        return ranker(learner, k, view=_view(view, reference, top), neighborhood=near, back_off=back_off, **stored)

    return build


def _naive(
    learner: Any,
    *,
    clusters: float = 20,
    top: int = 10,
    view: str | None = None,
    reference: int | str | None = None,
    softness: float = 0.0,
    seed: int = 0,
) -> Any:
    from querywise.rankers.clusters import Naive

    place = _view(view, reference, top)
    return Naive(learner, clusters, top=top, view=place, softness=softness, seed=seed)


def _select_ranker(
    learner: Any,
    *,
    clusters: float = 20,
    k: int = 10,
    view: str | None = None,
    reference: int | str | None = None,
    top: int = 10,
    floor: float = 0.0,
    softness: float = 0.0,
    seed: int = 0,
) -> Any:
    from querywise.rankers.clusters import SelectRanker

    place = _view(view, reference, top)
    return SelectRanker(
        learner, clusters, k, reference=reference, view=place, floor=floor, softness=softness, seed=seed
    )


def _transform(
    learner: Any,
    *,
    clusters: float = 20,
    top: int = 10,
    view: str | None = None,
    reference: int | str | None = None,
    floor: float = 0.0,
    softness: float = 0.0,
    seed: int = 0,
) -> Any:
    from querywise.rankers.clusters import Transform

    place = _view(view, reference, top)
    return Transform(
        learner, clusters, reference=reference, top=top, view=place, floor=floor, softness=softness, seed=seed
    )


def _regressor(
    *,
    base: str = "trees",
    trees: int = 300,
    leaves: int = 15,
    learning_rate: float = 0.05,
    min_documents: int = 20,
    kernel: str = "gaussian",
    width: float = 1.0,
    l2: float = 1.0,
    seed: int = 0,
) -> Any:
    """A regression by name: trees heeds the first settings, kernel those from `kernel` on."""
    from querywise.learners.kernel import KernelRidge
    from querywise.learners.trees import TreeRegression

    if base not in ("trees", "kernel"):
        raise DataError(f"base={base!r} is unknown. Known: trees, kernel.")
    if base == "trees":
        return TreeRegression(trees, leaves=leaves, learning_rate=learning_rate, min_documents=min_documents, seed=seed)
    kind: Any = kernel
    return KernelRidge(l2, kernel=kind, width=width, seed=seed)


def _regression(learner: Any) -> Any:
    from querywise.rankers.atvt import ATVT

    return ATVT(learner, rounds=0)


def _atvt(
    learner: Any,
    *,
    penalty: str = "l2",
    scale_penalty: float = 100.0,
    shift_penalty: float = 1.0,
    variant: str = "weighted",
    rounds: int = 4,
) -> Any:
    from querywise.rankers.atvt import ATVT

    how: Any = penalty
    form: Any = variant
    return ATVT(
        learner, scale_penalty=scale_penalty, shift_penalty=shift_penalty, penalty=how, variant=form, rounds=rounds
    )


def _ser(
    *,
    cost: float = 1.0,
    grades: str = "three",
    theta: float = 0.5,
    smoothing: float = 1.0,
    similarity: str = "trace",
    similarity_scale: float = 1.0,
    norm: float | None = None,
) -> Any:
    from querywise.rankers.ensemble import SER

    build: Any = SER  # which refuses unknown names itself, with the known ones
    return build(
        cost,
        grades=grades,
        theta=theta,
        smoothing=smoothing,
        similarity=similarity,
        similarity_scale=similarity_scale,
        norm=norm,
    )


def _sser(supervised: Any, *, gamma: float = 0.5, neighbours: int = 5) -> Any:
    from querywise.rankers.ensemble import SSER

    return SSER(gamma, neighbours=neighbours, **parameters_of(supervised))


def _rankboost(*, rounds: int = 300, thresholds: int = 16, learning_rate: float = 1.0, patience: int = 50) -> Any:
    from querywise.learners.rankboost import RankBoost

    return RankBoost(rounds, thresholds=thresholds, learning_rate=learning_rate, patience=patience)


def _listnet(*, l2: float = 0.03) -> Any:
    from querywise.learners.listnet import ListNet

    return ListNet(l2)


def _adarank(*, rounds: int = 500, measure: str = "map", repeat: bool = False, patience: int = 50) -> Any:
    from querywise.learners.adarank import AdaRank

    return AdaRank(rounds, measure=measure, repeat=repeat, patience=patience)


def _mhr_bc(*, l2: float = 1.0, loss: str = "squared_hinge", pairs: str = "query") -> Any:
    from querywise.learners.hyperplanes import MultipleHyperplanes

    build: Any = MultipleHyperplanes
    return build(l2, loss=loss, pairs=pairs)


VIEWS = ("top-mean", "text", "columns", "two-models", "divergence")
_LEARNED = ("learned", "gradient")  # of what stands behind the colon; of top-mean where nothing does


def _view(name: str | None, reference: int | str | None, top: int) -> Any:
    """A view by name, None the method's own; `reference` is a column by name or from 0, None the single model."""
    if name is None:
        return None
    from querywise.rankers.column import OneFeature
    from querywise.rankers.gradients import GradientView
    from querywise.rankers.metric import LearnedMetric
    from querywise.views.columns import Columns, SideBySide
    from querywise.views.divergence import Divergence
    from querywise.views.text import TextView
    from querywise.views.topmean import TopMean
    from querywise.views.twomodels import TwoModels

    how, colon, rest = name.partition(":")
    if how in _LEARNED:
        view = _view(rest if colon else VIEWS[0], reference, top)
        return LearnedMetric(view) if how == "learned" else GradientView(view)
    parts = name.split("+")
    unknown = [part for part in parts if part not in VIEWS]
    if unknown:
        raise DataError(
            f"Unknown view {unknown[0]!r}. Known: {', '.join(VIEWS)}, several joined by +, and learned or gradient, "
            "or either of a view as in gradient:text."
        )
    views: dict[str, Any] = {
        "top-mean": TopMean(reference, top),
        "text": TextView(),
        "columns": Columns(),
        "two-models": TwoModels(OneFeature() if reference is None else reference, None, top),
        "divergence": Divergence(reference),
    }
    made = [views[part] for part in parts]
    return made[0] if len(made) == 1 else SideBySide(made)


def _normalisable(build: Callable[..., Any]) -> Callable[..., Any]:
    """The same method with a setting `normalise`: "query" puts features on the scale of their query's candidates."""

    @functools.wraps(build)
    def built(*, normalise: str = "none", **settings: Any) -> Any:
        from querywise.rankers.normalised import QueryNormalised

        if normalise not in ("none", "query"):
            raise DataError(f"normalise={normalise!r} is unknown. Known: none, query.")
        ranker = build(**settings)
        return QueryNormalised(ranker) if normalise == "query" else ranker

    known = inspect.signature(build)
    extra = inspect.Parameter("normalise", inspect.Parameter.KEYWORD_ONLY, default="none", annotation="str")
    built.__signature__ = known.replace(parameters=[*known.parameters.values(), extra])  # type: ignore[attr-defined]
    return built


_L2 = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_KNN_GRID = {"l2": (0.1, 1.0, 10.0), "k": (0.1, 0.2, 0.35, 0.6), "prior_l2": (0.0, 0.5, 5.0)}
_CLUSTERS_GRID = {"l2": (0.1, 1.0, 10.0), "clusters": (5, 20, 50), "prior_l2": (0.0, 0.5, 5.0)}

_SHRINKAGE = {"learning_rate": (0.03, 0.1)}
_SMOOTHNESS = {"l2": (0.1, 1.0, 10.0)}
_TRANSFORMS = {"scale_penalty": (1.0, 10.0, 100.0), "shift_penalty": (0.1, 1.0, 10.0)}

METHODS = {
    method.name: method
    for method in (
        Method("bm25", "no learning: one feature as it stands, BM25 or the one named by reference", _bm25),
        Method(
            "ranksvm",
            "one linear model for all queries, trained on preference pairs",
            _normalisable(_ranksvm),
            {"l2": _L2},
        ),
        Method(
            "lambdamart",
            "one forest of boosted trees for all queries (LightGBM)",
            _normalisable(_lambdamart),
            {"leaves": (7, 15, 31), "learning_rate": (0.03, 0.1)},
        ),
        Method(
            "single",
            "one ranking SVM for all queries: what those below are measured against",
            _normalisable(_single),
            {"l2": _L2},
        ),
        Method(
            "query-classes",
            "one model per class of query, and a classifier",
            _normalisable(_query_classes),
            {"l2": _L2},
        ),
        *(
            Method(name, description, _normalisable(_with_settings_of(_local_learner, _knn(kind))), _KNN_GRID)
            for name, kind, description in (
                ("knn-online", "KnnOnline", "a model of its own for each query, from its neighbours"),
                ("knn-offline-1", "KnnOffline1", "the stored model that shares most training pairs"),
                ("knn-offline-2", "KnnOffline2", "the stored model of the nearest training query"),
            )
        ),
        Method(
            "naive",
            "a model per cluster of relevant documents; the nearest cluster's answers",
            _normalisable(_with_settings_of(_local_learner, _naive)),
            {**_CLUSTERS_GRID, "top": (5, 50)},
        ),
        Method(
            "select-ranker",
            "the models of naive, blended by how each served training queries like this one",
            _normalisable(_with_settings_of(_local_learner, _select_ranker)),
            {**_CLUSTERS_GRID, "k": (5, 20), "floor": (0.0, 0.7)},
        ),
        Method(
            "transform",
            "a model per cluster in the plane of two models, blended by distance",
            _normalisable(_with_settings_of(_local_learner, _transform)),
            {**_CLUSTERS_GRID, "top": (5, 50), "floor": (0.0, 0.5)},
        ),
        Method(
            "regression",
            "one regression for all queries, on the grades: what the next is measured against",
            _normalisable(_with_settings_of(_regressor, _regression)),
            _SHRINKAGE,
            {"kernel": _SMOOTHNESS},
        ),
        Method(
            "atvt",
            "one regression, learned as if queries differed in level and scale",
            _normalisable(_with_settings_of(_regressor, _atvt)),
            {**_SHRINKAGE, **_TRANSFORMS},
            {"kernel": {**_SMOOTHNESS, **_TRANSFORMS}},
        ),
        Method(
            "ser",
            "an ensemble: every feature a ranker, one weight each, none negative",
            _ser,
            {"norm": (None, 10.0), "cost": (0.1, 1.0, 10.0)},
        ),
        Method(
            "sser",
            "the same, weighted anew for each query by its own documents",
            _with_settings_of(_ser, _sser),
            {"norm": (None, 10.0), "gamma": (0.0, 0.1, 0.5, 2.0, 5.0)},
        ),
        Method(
            "rankboost",
            "thresholds on single features, boosted over preference pairs",
            _normalisable(_rankboost),
            {"thresholds": (8, 16, 64), "learning_rate": (0.3, 1.0)},
        ),
        Method(
            "listnet",
            "one linear model, trained on whole lists",
            _normalisable(_listnet),
            {"l2": (0.01, 0.03, 0.1, 0.3, 1.0)},
        ),
        Method("adarank", "single features, boosted over queries by MAP or NDCG", _normalisable(_adarank)),
        Method(
            "mhr-bc",
            "a ranking SVM per pair of grades, put together by Borda count",
            _normalisable(_mhr_bc),
            {"l2": (0.1, 1.0, 3.0)},
        ),
    )
}


def find_method(name: str) -> Method:
    """The method of that name."""
    try:
        return METHODS[name]
    except KeyError:
        raise DataError(f"Unknown method {name!r}. Known: {', '.join(METHODS)}.") from None


def parse_settings(method: Method, settings: Sequence[str]) -> dict[str, Any]:
    """Parameters from texts like `l2=0.3`; names and kinds are checked against the method's own."""
    known = method.parameters
    chosen: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in known:
            raise DataError(f"{setting!r} is not a setting of {method.name}. Known: {', '.join(known)}, as in l2=0.3.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        kind = str(known[name].annotation)
        numeric, whole = "float" in kind or "int" in kind, "int" in kind
        fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        fits = fits or (isinstance(value, str) and "str" in kind)
        if numeric and not fits and not (value is None and "None" in kind):
            raise DataError(f"{setting!r}: {name} must be a {'whole ' if whole else ''}number.")
        chosen[name] = value
    return chosen
