"""Rankers from plain settings, as people type them: numbers and names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from querywise.errors import DataError
from querywise.parameters import parameters_of
from querywise.viewnames import view_named


def ranksvm(
    *,
    l2: float = 1.0,
    loss: str = "squared_hinge",
    pairs: str = "query",
    scale: str = "standard",
    tolerance: float = 1e-3,
) -> Any:
    """A ranking SVM."""
    from querywise.learners.ranksvm import RankSVM

    build: Any = RankSVM  # which refuses unknown names itself, with the known ones
    return build(l2, loss=loss, pairs=pairs, scale=scale, tolerance=tolerance)


def lambdamart(
    *,
    trees: int = 500,
    leaves: int = 15,
    learning_rate: float = 0.05,
    min_documents: int = 20,
    objective: str = "lambdarank",
    bag: int = 1,
    seed: int = 0,
) -> Any:
    """Boosted trees."""
    from querywise.learners.trees import LambdaMART

    build: Any = LambdaMART  # which refuses unknown names itself, with the known ones
    growth = {"leaves": leaves, "learning_rate": learning_rate, "min_documents": min_documents, "seed": seed}
    return build(trees, objective=objective, bag=bag, **growth)


def single(*, l2: float = 1.0, loss: str = "squared_hinge", pairs: str = "query") -> Any:
    """One ranking SVM for all queries."""
    from querywise.rankers.single import Single

    return Single(ranksvm(l2=l2, loss=loss, pairs=pairs))


def bm25(*, reference: int | str | None = None) -> Any:
    """One feature as it stands."""
    from querywise.rankers.column import OneFeature
    from querywise.text.scores import BM25

    return OneFeature(BM25 if reference is None else reference)


def query_classes(
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
    """A ranking SVM per class of query."""
    from querywise.rankers.classes import QueryClasses

    return QueryClasses(
        ranksvm(l2=l2, loss=loss, pairs=pairs), view=view_named(view, reference, top), known=known, seed=seed
    )


def local_learner(
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
    learner = ranksvm(l2=l2, loss=loss, pairs=pairs, scale=scale, tolerance=tolerance)
    if base == "lambdamart":
        learner = lambdamart()
    else:
        learner.prior_l2 = prior_l2 or None
    learner.prior = "global" if prior_l2 else None
    return learner


def knn(kind: str) -> Callable[..., Any]:
    """What builds one of the classes in `querywise.rankers.knn`, handed its learner."""

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
        from querywise.rankers import knn as kinds

        how: Any = metric
        tree: Any = search
        near = Nearest(k, metric=how, search=tree) if radius is None else Radius(radius, metric=how)
        ranker = getattr(kinds, kind)
        stored = {"models": models} if kind != "KnnOnline" else {}
        if models is not None and not stored:
            raise DataError("models=… says how many models to store; knn-online stores none.")
        return ranker(learner, k, view=view_named(view, reference, top), neighborhood=near, back_off=back_off, **stored)

    return build


def naive(
    learner: Any,
    *,
    clusters: float = 20,
    top: int = 10,
    view: str | None = None,
    reference: int | str | None = None,
    softness: float = 0.0,
    seed: int = 0,
) -> Any:
    """The model of the nearest cluster."""
    from querywise.rankers.clusters import Naive

    place = view_named(view, reference, top)
    return Naive(learner, clusters, top=top, view=place, softness=softness, seed=seed)


def select_ranker(
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
    """All models of clusters, by how they served similar queries."""
    from querywise.rankers.clusters import SelectRanker

    place = view_named(view, reference, top)
    return SelectRanker(
        learner, clusters, k, reference=reference, view=place, floor=floor, softness=softness, seed=seed
    )


def transform(
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
    """All models of clusters, by distance."""
    from querywise.rankers.clusters import Transform

    place = view_named(view, reference, top)
    return Transform(
        learner, clusters, reference=reference, top=top, view=place, floor=floor, softness=softness, seed=seed
    )


def regressor(
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


def regression(learner: Any) -> Any:
    """A regression alone: aTVT that moves nothing."""
    from querywise.rankers.atvt import ATVT

    return ATVT(learner, rounds=0)


def atvt(
    learner: Any,
    *,
    penalty: str = "l2",
    scale_penalty: float = 100.0,
    shift_penalty: float = 1.0,
    variant: str = "weighted",
    rounds: int = 4,
) -> Any:
    """A regression, learned as if queries differed in level and scale."""
    from querywise.rankers.atvt import ATVT

    how: Any = penalty
    form: Any = variant
    return ATVT(
        learner, scale_penalty=scale_penalty, shift_penalty=shift_penalty, penalty=how, variant=form, rounds=rounds
    )


def ser(
    *,
    cost: float = 1.0,
    grades: str = "three",
    theta: float = 0.5,
    smoothing: float = 1.0,
    similarity: str = "trace",
    similarity_scale: float = 1.0,
    norm: float | None = None,
) -> Any:
    """An ensemble of features."""
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


def sser(supervised: Any, *, gamma: float = 0.5, neighbours: int = 5) -> Any:
    """An ensemble with the settings of a supervised one that also heeds a query's own documents."""
    from querywise.rankers.ensemble import SSER

    return SSER(gamma, neighbours=neighbours, **parameters_of(supervised))


def rankboost(*, rounds: int = 300, thresholds: int = 16, learning_rate: float = 1.0, patience: int = 50) -> Any:
    """Thresholds boosted over pairs."""
    from querywise.learners.rankboost import RankBoost

    return RankBoost(rounds, thresholds=thresholds, learning_rate=learning_rate, patience=patience)


def listnet(*, l2: float = 0.03) -> Any:
    """A linear model trained on lists."""
    from querywise.learners.listnet import ListNet

    return ListNet(l2)


def adarank(*, rounds: int = 500, measure: str = "map", repeat: bool = False, patience: int = 50) -> Any:
    """Features boosted over queries."""
    from querywise.learners.adarank import AdaRank

    return AdaRank(rounds, measure=measure, repeat=repeat, patience=patience)


def mhr_bc(*, l2: float = 1.0, loss: str = "squared_hinge", pairs: str = "query") -> Any:
    """A ranking SVM per pair of grades."""
    from querywise.learners.hyperplanes import MultipleHyperplanes

    build: Any = MultipleHyperplanes
    return build(l2, loss=loss, pairs=pairs)


def querywise(
    *,
    context: str = "z",
    scores: str = "standard",
    weights: str = "equal",
    measure: str = "map",
    shrinkage: float = 0.5,
    bag: int = 5,
    trees: int = 500,
    leaves: int = 15,
    learning_rate: float = 0.05,
    min_documents: int = 20,
    k: float = 0.2,
    l2: float = 0.1,
    prior_l2: float = 5.0,
    view: str = "top-mean",
    reference: int | str | None = None,
    top: int = 50,
    seed: int = 0,
) -> Any:
    """Trees in their query's context, by both objectives, and a local linear model for each query, blended."""
    from querywise.learners.context import QueryContext
    from querywise.learners.trees import OBJECTIVES
    from querywise.rankers.blend import Blend

    growth: Any = {"leaves": leaves, "learning_rate": learning_rate, "min_documents": min_documents, "seed": seed}
    columns = [] if context == "none" else context.split("+")
    forests = [lambdamart(trees=trees, objective=each, bag=bag, **growth) for each in OBJECTIVES]
    step: Any = None  # bare: the blend gains nothing from certified models
    local = local_learner(l2=l2, prior_l2=prior_l2, tolerance=step)
    online = knn("KnnOnline")(local, k=k, view=view, reference=reference, top=top)
    build: Any = Blend  # which refuses unknown names itself, with the known ones
    rankers = [*(QueryContext(each, columns) for each in forests), online]
    return build(rankers, scores=scores, weights=weights, measure=measure, shrinkage=shrinkage)
