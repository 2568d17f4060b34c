"""What each feature adds to each document's score, for this query's model and for the global one.

Rows sum to the score, up to what all documents of the query have in common: the differences between documents are
exact. A linear model adds weight × value, a stump or tree what it gives for the feature it asks about, a blend the
shares of its models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from querywise.arrays import Floats
from querywise.data.groups import Candidates
from querywise.errors import DataError
from querywise.learners.context import QueryContext
from querywise.learners.linear import LinearModels
from querywise.learners.standing import standing
from querywise.rankers.atvt import ATVT
from querywise.rankers.blend import Blend
from querywise.rankers.classes import QueryClasses
from querywise.rankers.clusters import Naive, SelectRanker, Transform
from querywise.rankers.column import OneFeature
from querywise.rankers.ensemble import SER, SSER
from querywise.rankers.knn import KnnOffline2, KnnOnline, models_of
from querywise.rankers.nearby import NearbyBlend
from querywise.rankers.normalised import QueryNormalised, normalised
from querywise.rankers.single import Single
from querywise.rankers.voting import CombSUM


@dataclass(frozen=True, eq=False)
class Contributions:
    """Documents × features, in the model that answers the query and in the global one; the same where that answers.

    `labels` name the features and `seen` are their values, as the model sees them: a learner in context sees more than
    there are in the data. `models`, documents × models, are what each model of a blend adds,
    its share included; without columns where one model answers alone.
    """

    labels: tuple[str, ...]
    seen: Floats
    here: Floats
    everyone: Floats
    models: Floats

    @property
    def is_global(self) -> bool:
        """Whether the global model answers."""
        return self.here is self.everyone


def contributions(ranker: Any, query: Candidates) -> Contributions:
    """Those of the documents of one query; a DataError where a score is not a sum over features."""
    if isinstance(ranker, QueryNormalised):
        return contributions(ranker.ranker_, normalised(query))
    if isinstance(ranker, SER):
        return _ensemble(ranker, normalised(query))
    if isinstance(ranker, (SelectRanker, Transform)):
        return _blended(ranker, query)
    if isinstance(ranker, NearbyBlend):
        return _added_up(ranker.blend_, query, ranker.model_weights(query)[0])
    if isinstance(ranker, Blend):
        return _added_up(ranker, query, ranker.weights_)
    model, everyone = answering_models(ranker, query)
    seen = _seen(everyone, query)
    ours = _terms(everyone, seen)
    return _parts(seen, ours if model is everyone else _terms(model, seen), ours)


def _parts(seen: Candidates, here: Floats, everyone: Floats, models: Floats | None = None) -> Contributions:
    labels = tuple(seen.feature_label(column) for column in range(seen.features.shape[1]))
    none = np.zeros((len(seen.features), 0))
    return Contributions(labels, seen.features, here, everyone, none if models is None else models)


def _seen(model: Any, query: Candidates) -> Candidates:
    """The documents as the model sees them: with their context, where it has one."""
    if isinstance(model, Single):
        return _seen(model.model_, query)
    if isinstance(model, QueryContext):
        return replace(model.context(query), feature_names=model.context_names_)
    return query


def answering_models(ranker: Any, query: Candidates) -> tuple[Any, Any]:
    """The one model that answers a query, and the global one; the very same where that answers, or there is no other.

    Where several are blended there is no such model, and the ranker stands for itself.
    """
    if isinstance(ranker, QueryNormalised):
        return answering_models(ranker.ranker_, normalised(query))
    if isinstance(ranker, (KnnOnline, KnnOffline2)):
        models, index, everyone = models_of(ranker, query)
        return _picked(models, int(index[0]), everyone), everyone
    if isinstance(ranker, QueryClasses):
        number = int(ranker.chosen(query)[0])
        return _picked(ranker.models_, number if ranker.usable_[number] else -1, ranker.everyone_), ranker.everyone_
    if isinstance(ranker, Naive):
        groups = ranker.groups_
        return _picked(groups.models_, int(ranker.chosen(query)[0]), groups.everyone_), groups.everyone_
    return ranker, ranker


def linear_weights(model: Any, width: int) -> Floats | None:
    """The weights of a linear model; None of any other."""
    if isinstance(model, CombSUM):
        return np.ones(width)
    if isinstance(model, OneFeature):
        alone: Floats = (np.arange(width) == model.column_).astype(np.float64)
        return alone
    if isinstance(model, Blend):
        return None  # its weights are of rankers
    found: Floats | None = model if isinstance(model, np.ndarray) else getattr(model, "weights_", None)
    return found


def scores_by_everyone(ranker: Any, candidates: Candidates) -> Floats:
    """What one model for all queries makes of the documents: the ranker's own global model."""
    if isinstance(ranker, QueryNormalised):
        return scores_by_everyone(ranker.ranker_, normalised(candidates))
    if isinstance(ranker, SSER):
        scores: Floats = SER.predict(ranker, candidates)
        return scores
    if isinstance(ranker, NearbyBlend):
        return scores_by_everyone(ranker.blend_, candidates)
    if isinstance(ranker, Blend):
        alone = [scores_by_everyone(each, candidates) for each in ranker.rankers_]
        return ranker.blended(np.column_stack(alone), candidates)
    everyone = ranker
    if isinstance(ranker, KnnOnline):
        everyone = ranker.prepared_.everyone
    elif isinstance(ranker, KnnOffline2):
        everyone = ranker.offline_.everyone_
    elif isinstance(ranker, QueryClasses):
        everyone = ranker.everyone_
    elif isinstance(ranker, (Naive, SelectRanker, Transform)):
        everyone = ranker.groups_.everyone_
    found: Floats = everyone.predict(candidates)
    return found


def _picked(models: Any, number: int, everyone: Any) -> Any:
    if number < 0:
        return everyone
    return models.weights[number] if isinstance(models, LinearModels) else models.rankers[number]


def _terms(model: Any, query: Candidates) -> Floats:
    """Documents × features of one model."""
    if isinstance(model, Single):
        return _terms(model.model_, query)
    if isinstance(model, QueryContext):
        return _terms(model.learner_, query)
    weights: Floats | None = linear_weights(model, query.features.shape[1])
    if weights is not None:
        return query.features * weights
    source = model.regressor_ if isinstance(model, ATVT) else model
    if not hasattr(source, "contributions"):
        raise DataError(
            f"A {type(source).__name__}'s score is not a sum over features, so there are no parts to show. Linear "
            "models, trees, and rankers made of them have some."
        )
    found: Floats = source.contributions(query.features)
    return found


def _ensemble(ranker: SER, query: Candidates) -> Contributions:
    everyone = query.features * ranker.weights_
    here = query.features * ranker.query_weights(query)[0] if isinstance(ranker, SSER) and ranker.gamma else everyone
    return _parts(query, here, everyone)


def _added_up(ranker: Blend, query: Candidates, shares: Floats) -> Contributions:
    """A blend adds up z-scores: each ranker's parts, divided by the spread of its scores here.

    shares: the rankers' weights for this query; for everyone they are those of the blend. All rankers see the features
    first and, if anything, their context after them.
    """
    if ranker.scores == "rank":
        return _added_ranks(ranker, query, shares)
    every = [contributions(each, query) for each in ranker.rankers_]
    widest = max(every, key=lambda each: each.seen.shape[1])
    here, everyone = np.zeros_like(widest.seen), np.zeros_like(widest.seen)
    models = np.zeros((len(query.features), len(every)))
    for number, (part, weight, share) in enumerate(zip(every, ranker.weights_, shares, strict=True)):
        width = part.seen.shape[1]
        own = _to_unit_spread(part.here, query)
        here[:, :width] += share * own
        everyone[:, :width] += weight * (own if part.is_global else _to_unit_spread(part.everyone, query))
        models[:, number] = (share * own).sum(axis=1)
    alone = all(part.is_global for part in every) and np.array_equal(shares, ranker.weights_)
    return Contributions(widest.labels, widest.seen, everyone if alone else here, everyone, models)


def _added_ranks(ranker: Blend, query: Candidates, shares: Floats) -> Contributions:
    """A blend of ranks is no sum over features, but one over rankers: the share of documents each puts below."""
    ranks = ranker.scaled(query)
    common = [scores_by_everyone(each, query) for each in ranker.rankers_]
    everyone = standing(np.column_stack(common), query).ranks * ranker.weights_
    here = ranks * shares
    labels = tuple(f"rank by {name_of(each)}" for each in ranker.rankers_)
    return Contributions(labels, ranks, everyone if np.array_equal(here, everyone) else here, everyone, here)


def name_of(ranker: Any) -> str:
    """A ranker and what it is made of: QueryContext of LambdaMART (rank_xendcg)."""
    inner = getattr(ranker, "learner", None)
    objective = getattr(ranker, "objective", None)
    said = type(ranker).__name__ + (f" ({objective})" if isinstance(objective, str) else "")
    return said if inner is None else f"{said} of {name_of(inner)}"


def _to_unit_spread(terms: Floats, query: Candidates) -> Floats:
    found = standing(terms.sum(axis=1)[:, None], query)
    return terms / found.spreads[0, 0] if found.z.any() else np.zeros_like(terms)


def _blended(ranker: SelectRanker | Transform, query: Candidates) -> Contributions:
    """A blend brings each model's scores to 0 … 1 within the query; so the global one's here, to be compared."""
    groups, share = ranker.groups_, ranker.model_weights(query)[0]
    seen = _seen(groups.everyone_, query)
    everyone = _terms(groups.everyone_, seen)
    if not share.any():
        return _parts(seen, everyone, everyone)
    every = np.zeros((len(query.features), len(share)))
    here = np.zeros_like(everyone)
    for number in np.flatnonzero(share):
        terms = share[number] * _to_unit_range(_terms(_picked(groups.models_, int(number), None), seen))
        every[:, number] = terms.sum(axis=1)
        here += terms
    return _parts(seen, here, _to_unit_range(everyone), every)


def _to_unit_range(terms: Floats) -> Floats:
    """Divided so that the scores they sum to span 1; nothing where all are alike."""
    scores = terms.sum(axis=1)
    reach = float(np.ptp(scores)) if len(scores) else 0.0
    tied = reach <= 1e-12 * float(np.abs(terms).sum(axis=1).max(initial=0.0))
    return np.zeros_like(terms) if tied else terms / reach
