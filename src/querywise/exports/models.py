"""What of a fitted ranker an engine can run: linear models and forests, each with a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from querywise.arrays import Floats
from querywise.data.groups import Candidates
from querywise.errors import DataError, NotFittedError
from querywise.learners.adarank import AdaRank
from querywise.learners.linear import LinearModels, linear_scores
from querywise.learners.listnet import ListNet
from querywise.learners.rankboost import RankBoost
from querywise.learners.ranksvm import RankSVM
from querywise.learners.trees import LambdaMART, TreeRegression, trees_of
from querywise.rankers.atvt import ATVT
from querywise.rankers.classes import QueryClasses
from querywise.rankers.clusters import Naive
from querywise.rankers.column import OneFeature
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.rankers.single import Single

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_WITHIN = "an engine's model sees one document at a time and cannot know that. "
_REFUSED = {
    "QueryNormalised": "sees every feature on the scale of its query's candidates; "
    + _WITHIN
    + "Fit the ranker inside it on raw features, and export that.",
    "SER": "brings every feature to 0 … 1 within the query; " + _WITHIN + "Fit ranksvm or knn-offline-2 instead.",
    "SSER": "learns from all documents of the query; " + _WITHIN + "Fit ranksvm or knn-offline-2 instead.",
    "SelectRanker": "blends models whose scores it brings to 0 … 1 within the query; "
    + _WITHIN
    + "Fit naive or knn-offline-2, which pick one model.",
    "Transform": "blends models whose scores it brings to 0 … 1 within the query; "
    + _WITHIN
    + "Fit naive or knn-offline-2, which pick one model.",
    "QueryContext": "sees every document beside its query's other candidates; "
    + _WITHIN
    + "Fit the learner inside it, and export that.",
    **dict.fromkeys(
        ("Blend", "NearbyBlend"),
        "adds up scores of several rankers, brought to one scale within the query; "
        + _WITHIN
        + "Fit lambdamart or knn-offline-2 instead.",
    ),
    "MultipleHyperplanes": "counts votes among the documents of the query; " + _WITHIN + "Fit ranksvm instead.",
    **dict.fromkeys(
        ("CombSUM", "CombMNZ", "ReciprocalRank", "Borda"), "votes among the documents of the query; " + _WITHIN
    ),
}


@dataclass(frozen=True, eq=False)
class Linear:
    """A weighted sum of the features."""

    weights: Floats


@dataclass(frozen=True)
class Leaf:
    """What a document that comes here is worth."""

    value: float


@dataclass(frozen=True)
class Split:
    """A document goes low where the feature's value is at most the threshold."""

    column: int
    threshold: float
    low: Split | Leaf
    high: Split | Leaf


@dataclass(frozen=True)
class Forest:
    """A sum of trees."""

    trees: tuple[Split | Leaf, ...]


Form = Linear | Forest


@dataclass(frozen=True, eq=False)
class NamedModel:
    """One model for the engine. number is what routing calls it, −1 the global model; what says whom it is for.

    `own` is how the fitted ranker scores a table of features by this model: what the engine has to agree with.
    """

    name: str
    number: int
    what: str
    form: Form
    own: Callable[[Floats], Floats]


@dataclass(frozen=True)
class Exported:
    """The models of a ranker, the global one first, and the names of its features.

    Where every query gets a model of its own, trained as it arrives, only the global one is here.
    """

    features: tuple[str, ...]
    models: tuple[NamedModel, ...]
    trained_on_arrival: bool = False

    @property
    def is_linear(self) -> bool:
        """Whether all models are weighted sums."""
        return all(isinstance(model.form, Linear) for model in self.models)


def exported(ranker: Any, name: str) -> Exported:
    """The models of a fitted ranker under names that begin with this one."""
    if not _NAME.fullmatch(name):
        raise DataError(f"{name!r}: engines take names of small letters, digits, - and _ that begin with a letter.")
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    names = ranker.feature_names_ or tuple(f"f{column + 1}" for column in range(ranker.feature_count_))
    if isinstance(ranker, (KnnOffline2, QueryClasses, Naive)):
        return Exported(names, tuple(_several(ranker, name)))
    if isinstance(ranker, KnnOnline):
        return Exported(names, (_one(ranker.prepared_.everyone, f"{name}-global", _EVERYONE),), True)
    return Exported(names, (_one(ranker, name, "all queries"),))


_EVERYONE = "the global model, for queries without one of their own"


def _several(ranker: KnnOffline2 | QueryClasses | Naive, name: str) -> list[NamedModel]:
    if isinstance(ranker, KnnOffline2):
        stored = ranker.offline_
        models, everyone, usable = stored.models_, stored.everyone_, stored.usable_
        whom = (
            [f"queries nearest to training query {each}" for each in stored.locality.query_ids_]
            if stored.models is None
            else [f"queries nearest to centre {number}" for number in range(len(models))]
        )
    elif isinstance(ranker, QueryClasses):
        models, everyone, usable = ranker.models_, ranker.everyone_, ranker.usable_
        whom = [f"queries of class {each}" for each in ranker.classes_]
    else:
        models, everyone = ranker.groups_.models_, ranker.groups_.everyone_
        usable = np.ones(len(models), np.bool_)
        whom = [f"queries nearest to cluster {number}" for number in range(len(models))]
    found = [_one(everyone, f"{name}-global", _EVERYONE)]
    digits = len(str(len(models) - 1))
    return found + [
        _stored(models, number, f"{name}-{number:0{digits}d}", whom[number])
        for number in np.flatnonzero(usable).tolist()
    ]


def _stored(models: Any, number: int, name: str, what: str) -> NamedModel:
    if not isinstance(models, LinearModels):
        return _one(models.rankers[number], name, what, number)
    weights = models.weights[number]
    return NamedModel(name, number, what, Linear(weights), lambda features: linear_scores(features, weights))


def _one(ranker: Any, name: str, what: str, number: int = -1) -> NamedModel:
    def own(features: Floats) -> Floats:
        together = Candidates(features, np.array([0, len(features)]), ("sample",))
        scores: Floats = ranker.predict(together)
        return scores

    return NamedModel(name, number, what, form_of(ranker), own)


def form_of(ranker: Any) -> Form:
    """One fitted model as an engine can run it, or a DataError with the reason why it cannot."""
    kind = type(ranker).__name__
    if kind in _REFUSED:
        raise DataError(f"A {kind} cannot be exported: it {_REFUSED[kind]}".rstrip())
    if isinstance(ranker, Single):
        return form_of(ranker.model_)
    if isinstance(ranker, OneFeature):
        return Linear(np.eye(ranker.feature_count_)[ranker.column_])
    if isinstance(ranker, (LambdaMART, TreeRegression)):
        return Forest(_grown(ranker))
    if isinstance(ranker, RankBoost):
        return Forest(_stumps(ranker))
    if isinstance(ranker, ATVT):
        if isinstance(ranker.regressor_, TreeRegression):
            return form_of(ranker.regressor_)
        raise DataError(
            f"aTVT over {type(ranker.regressor_).__name__} cannot be exported: the engines run weighted sums and "
            "trees. Fit it over trees (--base trees)."
        )
    if isinstance(ranker, (RankSVM, ListNet, AdaRank)):
        return Linear(np.asarray(ranker.weights_, dtype=np.float64))
    raise DataError(f"A {kind} cannot be exported: the engines run weighted sums and trees, and it is neither.")


def largest_number(form: Form) -> float:
    """The largest size of a weight, or of a threshold or leaf."""
    if isinstance(form, Linear):
        return float(np.abs(form.weights).max(initial=0.0))
    return max((_largest(tree) for tree in form.trees), default=0.0)


def _largest(node: Split | Leaf) -> float:
    if isinstance(node, Leaf):
        return abs(node.value)
    return max(abs(node.threshold), _largest(node.low), _largest(node.high))


def _grown(ranker: LambdaMART | TreeRegression) -> tuple[Split | Leaf, ...]:
    """All trees, those of a bag with leaves divided by its size: a sum of trees can be a mean of forests."""
    if isinstance(ranker, TreeRegression):
        return tuple(_node(tree, 1) for tree in trees_of(ranker.model_))
    below = () if ranker.base is None else _grown(ranker.base)
    return (*below, *(_node(tree, ranker.bag) for model in ranker.models_ for tree in trees_of(model)))


def _node(dumped: dict[str, Any], bag: int) -> Split | Leaf:
    if "leaf_value" in dumped:
        return Leaf(float(dumped["leaf_value"]) / bag)
    return Split(
        int(dumped["split_feature"]),
        float(dumped["threshold"]),
        _node(dumped["left_child"], bag),
        _node(dumped["right_child"], bag),
    )


def _stumps(ranker: RankBoost) -> tuple[Split | Leaf, ...]:
    stumps = zip(ranker.columns_, ranker.thresholds_, ranker.stump_weights_, strict=True)
    grown = tuple(Split(int(column), float(cut), Leaf(0.0), Leaf(float(weight))) for column, cut, weight in stumps)
    return grown or (Leaf(0.0),)
