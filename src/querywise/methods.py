"""The names people type, and what they stand for: one table that the command line, comparisons and the docs read."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from querywise.builders import (
    adarank,
    atvt,
    bm25,
    knn,
    lambdamart,
    listnet,
    local_learner,
    mhr_bc,
    naive,
    query_classes,
    querywise,
    rankboost,
    ranksvm,
    regression,
    regressor,
    select_ranker,
    ser,
    single,
    sser,
    transform,
)
from querywise.contracts import Ranker
from querywise.data.parts import Training, has_texts
from querywise.errors import DataError

TEXT_VIEW = "gradient:text"  # tried beside a method's own where queries have a text and no view is asked for


@dataclass(frozen=True)
class Method:
    """A ranker by name: how to build it, which parameters are worth trying, and one line on what it is."""

    name: str
    description: str
    build: Callable[..., Ranker]
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    grids: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)  # other ones, by base

    def grid_on(self, data: Training, base: str | None = None) -> Mapping[str, Sequence[Any]]:
        """What is worth trying on some data, with some base: where queries have a text, a view of it too."""
        if base is not None and base in self.grids:
            return self.grids[base]
        view = self.parameters.get("view")
        return {**self.grid, "view": (view.default, TEXT_VIEW)} if view is not None and has_texts(data) else self.grid

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """What can be set, with its defaults."""
        return inspect.signature(self.build).parameters


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
        Method("bm25", "no learning: one feature as it stands, BM25 or the one named by reference", bm25),
        Method(
            "ranksvm",
            "one linear model for all queries, trained on preference pairs",
            _normalisable(ranksvm),
            {"l2": _L2},
        ),
        Method(
            "lambdamart",
            "one forest of boosted trees for all queries (LightGBM)",
            _normalisable(lambdamart),
            {"leaves": (7, 15, 31), "learning_rate": (0.03, 0.1)},
        ),
        Method(
            "single",
            "one ranking SVM for all queries: what those below are measured against",
            _normalisable(single),
            {"l2": _L2},
        ),
        Method(
            "query-classes",
            "one model per class of query, and a classifier",
            _normalisable(query_classes),
            {"l2": _L2},
        ),
        *(
            Method(name, description, _normalisable(_with_settings_of(local_learner, knn(kind))), _KNN_GRID)
            for name, kind, description in (
                ("knn-online", "KnnOnline", "a model of its own for each query, from its neighbours"),
                ("knn-offline-1", "KnnOffline1", "the stored model that shares most training pairs"),
                ("knn-offline-2", "KnnOffline2", "the stored model of the nearest training query"),
            )
        ),
        Method(
            "naive",
            "a model per cluster of relevant documents; the nearest cluster's answers",
            _normalisable(_with_settings_of(local_learner, naive)),
            {**_CLUSTERS_GRID, "top": (5, 50)},
        ),
        Method(
            "select-ranker",
            "the models of naive, blended by how each served training queries like this one",
            _normalisable(_with_settings_of(local_learner, select_ranker)),
            {**_CLUSTERS_GRID, "k": (5, 20), "floor": (0.0, 0.7)},
        ),
        Method(
            "transform",
            "a model per cluster in the plane of two models, blended by distance",
            _normalisable(_with_settings_of(local_learner, transform)),
            {**_CLUSTERS_GRID, "top": (5, 50), "floor": (0.0, 0.5)},
        ),
        Method(
            "regression",
            "one regression for all queries, on the grades: what the next is measured against",
            _normalisable(_with_settings_of(regressor, regression)),
            _SHRINKAGE,
            {"kernel": _SMOOTHNESS},
        ),
        Method(
            "atvt",
            "one regression, learned as if queries differed in level and scale",
            _normalisable(_with_settings_of(regressor, atvt)),
            {**_SHRINKAGE, **_TRANSFORMS},
            {"kernel": {**_SMOOTHNESS, **_TRANSFORMS}},
        ),
        Method(
            "ser",
            "an ensemble: every feature a ranker, one weight each, none negative",
            ser,
            {"norm": (None, 10.0), "cost": (0.1, 1.0, 10.0)},
        ),
        Method(
            "sser",
            "the same, weighted anew for each query by its own documents",
            _with_settings_of(ser, sser),
            {"norm": (None, 10.0), "gamma": (0.0, 0.1, 0.5, 2.0, 5.0)},
        ),
        Method(
            "rankboost",
            "thresholds on single features, boosted over preference pairs",
            _normalisable(rankboost),
            {"thresholds": (8, 16, 64), "learning_rate": (0.3, 1.0)},
        ),
        Method(
            "listnet",
            "one linear model, trained on whole lists",
            _normalisable(listnet),
            {"l2": (0.01, 0.03, 0.1, 0.3, 1.0)},
        ),
        Method("adarank", "single features, boosted over queries by MAP or NDCG", _normalisable(adarank)),
        Method(
            "mhr-bc",
            "a ranking SVM per pair of grades, put together by Borda count",
            _normalisable(mhr_bc),
            {"l2": (0.1, 1.0, 3.0)},
        ),
        Method(
            "querywise",
            "a blend of trees that see their query's other candidates and of knn-online; the one to try first",
            querywise,
            {"scores": ("standard", "rank")},
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
