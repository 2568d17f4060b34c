"""Contributions of features to a document's score, under this query's model and under the global one.

Rows sum to the score, up to a constant of the query's documents: the differences between documents are exact. In a
linear model a feature contributes weight × value, in a stump its value, in a forest its Shapley values. In a blend it
contributes what it adds to its rankers' scores, on the blend's scale and times each ranker's share. Contributions are
computed only for the requested documents; if scores are scaled within the query, that scale is of the scores of all its
documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querywise.contracts.answers import ALL, Answer, Blended, Model, Once, Rows, Scorer, Terms, answer_of
from querywise.contracts.forms import Refusal
from querywise.data.judged import Candidates
from querywise.errors import DataError
from querywise.learners.within_query import within_query
from querywise.runtime.arrays import Floats

_ROUNDING = 1e-12  # of the sum of the absolute contributions to a score: a smaller difference is rounding error


@dataclass(frozen=True, eq=False)
class Contributions:
    """Documents × features, under the model that scores the query and under the global one, which may be the same.

    `labels` name the features and `seen` are their values, as the model gets them: a learner in context gets more
    features than the data has. `models`, documents × models, are the contributions of each model of a blend, including
    its share; without columns if one model scores alone. `by_models` tells whether any of them distinguishes any two
    documents of the query. `scores` and `common_scores` are of all documents of the query: what the contributions would
    sum to, up to a constant.
    """

    labels: tuple[str, ...]
    seen: Floats
    here: Floats
    everyone: Floats
    models: Floats
    by_models: bool
    scores: Once[Floats]
    common_scores: Once[Floats]

    @property
    def is_global(self) -> bool:
        """Whether the global model scores the query."""
        return self.here is self.everyone


def contributions(ranker: Scorer, query: Candidates) -> Contributions:
    """Return the contributions for one query's documents; raise DataError if a score is not a sum over features."""
    return contributions_in(answer_of(ranker, query))


def contributions_in(answer: Answer, rows: Rows = ALL) -> Contributions:
    """Return the contributions in the answer to one query, for some of its documents."""
    if answer.blend is not None:
        return (_added_ranks if answer.local.scale == "rank" else _added_up)(answer, answer.blend, rows)
    if answer.local.scale == "range":
        return _mixed(answer, rows)
    everyone = _terms(answer.everyone, answer.seen, rows)
    model = answer.answering(0)
    return _parts(answer, everyone, everyone if model is answer.everyone else _terms(model, answer.seen, rows))


def one_query(answer: Answer, query: int) -> Answer:
    """Return the answer to one of several queries, without its position, reusing what is computed for all."""
    rows = answer.seen.rows(query)
    return Answer(
        answer.seen.select([query]),
        Once(answer.common),
        Once(lambda: answer.scores()[rows]),
        varies=answer.varies,
        local=answer.local._replace(shares=Once(lambda: answer.local.shares()[[query]])),
        blend=answer.blend and answer.blend._replace(answers=tuple(one_query(each, query) for each in answer.members)),
    )


def _terms(model: Model, seen: Candidates, rows: Rows) -> Terms:
    found = model.terms(seen, rows)
    if isinstance(found, Refusal):
        raise DataError(found.reason)
    return found


def _parts(answer: Answer, everyone: Terms, here: Terms) -> Contributions:
    """Return the contributions of one model that scores alone."""
    none, common = np.zeros((len(everyone.values), 0)), Once(answer.by_everyone)
    own = (everyone.labels, everyone.values, here.parts, everyone.parts)
    return Contributions(*own, none, False, answer.scores, common)


def _shares_of(answer: Answer) -> Floats:
    """Return the weight of each model for the one query."""
    found: Floats = answer.local.shares()[[0]].toarray()[0]
    return found


def _added_up(answer: Answer, blend: Blended, rows: Rows) -> Contributions:
    """Return the contributions in a blend of z-scores: each ranker's, divided by the spread of its scores here.

    In the global model the rankers have their usual shares. All rankers get the features first and, if any, their
    context after them.
    """
    shares, usual = _shares_of(answer), blend.usual
    every = [contributions_in(each, rows) for each in answer.members]
    widest = max(every, key=lambda each: each.seen.shape[1])
    here, everyone = np.zeros_like(widest.seen), np.zeros_like(widest.seen)
    models = np.zeros((len(widest.seen), len(every)))
    by_models = False
    for number, (part, weight, share) in enumerate(zip(every, usual, shares, strict=True)):
        width = part.seen.shape[1]
        factor = _to_unit_spread(part.scores(), answer.seen)
        common = factor if part.is_global else _to_unit_spread(part.common_scores(), answer.seen)
        own = _scaled(part.here, factor)
        here[:, :width] += share * own
        everyone[:, :width] += weight * (own if part.is_global else _scaled(part.everyone, common))
        models[:, number] = (share * own).sum(axis=1)
        by_models |= bool(share) and factor is not None
    alone = all(part.is_global for part in every) and np.array_equal(shares, usual)
    sums = (widest.labels, widest.seen, everyone if alone else here, everyone)
    return Contributions(*sums, models, by_models, answer.scores, Once(answer.by_everyone))


def _added_ranks(answer: Answer, blend: Blended, rows: Rows) -> Contributions:
    """Return the contributions in a blend of ranks, which sums the share of documents that each ranker puts below.

    A rank is not a sum over features, so each ranker's rank is distributed over the features of its score
    (`_shared_out`). A ranker whose score is not a sum either keeps one column for itself.
    """
    shares, seen, usual = _shares_of(answer), answer.seen, blend.usual
    ranks = within_query(np.column_stack([each.scores() for each in answer.members]), seen).ranks
    common = within_query(np.column_stack([each.by_everyone() for each in answer.members]), seen).ranks
    here, everyone = ranks * shares, common * usual
    every = [_if_a_sum(each, rows) for each in answer.members]
    widest = max((each for each in every if each is not None), key=lambda each: each.seen.shape[1], default=None)
    opaque = [number for number, each in enumerate(every) if each is None]
    labels = () if widest is None else widest.labels
    values = np.zeros((len(ranks[rows]), 0)) if widest is None else widest.seen
    parts, common_parts = np.zeros_like(values), np.zeros_like(values)
    for number, part in enumerate(every):
        if part is not None:
            width = part.seen.shape[1]
            parts[:, :width] += _shared_out(part.here, part.scores(), here[:, number], rows)
            common_parts[:, :width] += _shared_out(part.everyone, part.common_scores(), everyone[:, number], rows)
    common_parts = np.column_stack([common_parts, everyone[rows][:, opaque]])
    same = np.array_equal(here, everyone) and all(each is None or each.is_global for each in every)
    return Contributions(
        (*labels, *(f"rank by {blend.names[number]}" for number in opaque)),
        np.column_stack([values, ranks[rows][:, opaque]]),
        common_parts if same else np.column_stack([parts, here[rows][:, opaque]]),
        common_parts,
        here[rows],
        bool(here.any()),
        Once(lambda: here.sum(axis=1)),
        Once(lambda: everyone.sum(axis=1)),
    )


def _if_a_sum(answer: Answer, rows: Rows) -> Contributions | None:
    """Return the contributions in an answer; None if its scores are not sums over features."""
    try:
        return contributions_in(answer, rows)
    except DataError:
        return None


def _shared_out(parts: Floats, scores: Floats, ranks: Floats, rows: Rows) -> Floats:
    """Return the ranks of some documents as sums over features, up to a constant of these documents.

    Args:
        parts: The contribution of each feature to their scores.
        scores: The scores of all documents of the query.
        ranks: The ranks of all documents of the query.
        rows: The documents' rows.

    A document's rank, minus the rank that the mean score of these documents would have, is distributed in proportion to
    each feature's contribution to its score, minus the mean. For two documents, their difference in rank is distributed
    in proportion to the difference of their contributions. Positive and negative contributions nearly cancel where two
    scores are close, and proportion alone would make them huge: those against the difference in rank count with at most
    the ratio of the spreads of ranks and scores, and those in its favor have the rest, in proportion.

    """
    own, order = scores[rows], np.argsort(scores, kind="stable")
    gains = parts - parts.mean(axis=0) if len(parts) else parts
    level = np.interp(own.mean(), scores[order], ranks[order]) if len(own) else 0.0
    rise = (ranks[rows] - level)[:, None]
    favor = np.where(gains * np.where(rise < 0, -1, 1) > 0, gains, 0.0)
    against, total = gains - favor, gains.sum(axis=1, keepdims=True)
    spread = float(scores.std()) if len(scores) else 0.0
    most = np.full(rise.shape, float(ranks.std()) / spread if spread > 0 else 0.0)
    clear = np.abs(total) > _ROUNDING * np.abs(gains).sum(axis=1, keepdims=True)
    rate = np.clip(np.divide(rise, total, out=most.copy(), where=clear), 0.0, most)
    rest, sums = rise - rate * against.sum(axis=1, keepdims=True), favor.sum(axis=1, keepdims=True)
    evenly = np.broadcast_to(1 / max(gains.shape[1], 1), gains.shape)  # only if rounding alone separates the scores
    found: Floats = rest * np.divide(favor, sums, out=evenly.copy(), where=sums != 0) + rate * against
    return found


def _to_unit_spread(scores: Floats, query: Candidates) -> float | None:
    """Return the divisor that gives scores spread 1; None if all are equal."""
    found = within_query(scores[:, None], query)
    return float(found.spreads[0, 0]) if found.z.any() else None


def _scaled(parts: Floats, divisor: float | None) -> Floats:
    return np.zeros_like(parts) if divisor is None else parts / divisor


def _mixed(answer: Answer, rows: Rows) -> Contributions:
    """Return the contributions in a mixture, whose models' scores, and here the global one's, are scaled to 0 … 1."""
    share, everyone = _shares_of(answer), _terms(answer.everyone, answer.seen, rows)
    if not share.any():
        return _parts(answer, everyone, everyone)
    every = np.zeros((len(everyone.values), len(share)))
    here = np.zeros_like(everyone.parts)
    by_models = False
    for number in np.flatnonzero(share).tolist():
        model = answer.local.models()[number]
        parts = _terms(model, answer.seen, rows).parts
        reach = _to_unit_range(model.predict(answer.seen), parts)
        terms = share[number] * _scaled(parts, reach)
        every[:, number] = terms.sum(axis=1)
        here += terms
        by_models |= reach is not None
    common = answer.by_everyone()
    reach = _to_unit_range(common, everyone.parts)
    own = (everyone.labels, everyone.values, here, _scaled(everyone.parts, reach))
    return Contributions(*own, every, by_models, answer.scores, Once(lambda: _scaled(common, reach)))


def _to_unit_range(scores: Floats, parts: Floats) -> float | None:
    """Return the divisor that gives scores range 1; None if all are equal up to rounding."""
    reach = float(np.ptp(scores)) if len(scores) else 0.0
    size = max(float(np.abs(scores).max(initial=0.0)), float(np.abs(parts).sum(axis=1).max(initial=0.0)))
    return None if reach <= 1e-12 * size else reach
