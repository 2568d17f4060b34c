"""What each feature adds to a document's score, for this query's model and for the global one.

Rows sum to the score, up to what all documents of the query have in common: the differences between documents are
exact. A linear model adds weight × value, a stump its value, a forest its Shapley values. A blend adds what each
feature adds to its rankers' scores, on the blend's scale and times each ranker's share. Parts are computed for the
documents asked about alone; where scores are brought to one scale within the query, that scale is of the scores of all
its documents.
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

_ROUNDING = 1e-12  # of the sum of the absolute parts of a score: a difference below it is rounding


@dataclass(frozen=True, eq=False)
class Contributions:
    """Documents × features, in the model that scores the query and in the global one; the same where that is used.

    `labels` name the features and `seen` are their values, as the model gets them: a learner in context gets more than
    there are in the data. `models`, documents × models, are what each model of a blend adds,
    its share included; without columns where one model scores alone. `by_models`: whether any of them tells any two
    documents of the query apart. `scores` and `common_scores` are of all documents of the query: what the parts of each
    would sum to, up to what all have in common.
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
    """Those of the documents of one query; a DataError where a score is not a sum over features."""
    return contributions_in(answer_of(ranker, query))


def contributions_in(answer: Answer, rows: Rows = ALL) -> Contributions:
    """Those in the answer to one query, of some of its documents."""
    if answer.blend is not None:
        return (_added_ranks if answer.local.scale == "rank" else _added_up)(answer, answer.blend, rows)
    if answer.local.scale == "range":
        return _mixed(answer, rows)
    everyone = _terms(answer.everyone, answer.seen, rows)
    model = answer.answering(0)
    return _parts(answer, everyone, everyone if model is answer.everyone else _terms(model, answer.seen, rows))


def one_query(answer: Answer, query: int) -> Answer:
    """How one of several queries is scored, without its position; what is computed for all of them is used."""
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
    """Those of one model that scores alone."""
    none, common = np.zeros((len(everyone.values), 0)), Once(answer.by_everyone)
    own = (everyone.labels, everyone.values, here.parts, everyone.parts)
    return Contributions(*own, none, False, answer.scores, common)


def _shares_of(answer: Answer) -> Floats:
    """How much each model counts for the one query."""
    found: Floats = answer.local.shares()[[0]].toarray()[0]
    return found


def _added_up(answer: Answer, blend: Blended, rows: Rows) -> Contributions:
    """A blend adds up z-scores: each ranker's parts, divided by the spread of its scores here.

    For everyone the rankers' shares are the usual ones. All rankers get the features first and, if anything, their
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
    """A blend of ranks adds up the share of documents that each ranker puts below.

    A rank is no sum over features, so each ranker's rank is shared out among the features of its score (`_shared_out`).
    A ranker whose score is no sum either keeps a column of its own.
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
    """The contributions in an answer; None where its scores are no sums over features."""
    try:
        return contributions_in(answer, rows)
    except DataError:
        return None


def _shared_out(parts: Floats, scores: Floats, ranks: Floats, rows: Rows) -> Floats:
    """The ranks of some documents as sums over features, up to what all these documents have in common.

    parts: what each feature adds to their scores. scores, ranks: of all documents of the query.

    A document's rank, less the rank that the mean score of these documents would have, is shared out in proportion to
    what each feature adds to its score, less the mean. Of two documents, their difference in rank is shared out in
    proportion to the difference of their parts. Features that add and features that take away nearly cancel where two
    scores are close, and proportion alone would give them huge parts: those against the difference in rank count with
    at most the ratio of the spreads of ranks and scores, and those in its favor have the rest, in proportion.
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
    evenly = np.broadcast_to(1 / max(gains.shape[1], 1), gains.shape)  # only where rounding alone tells scores apart
    found: Floats = rest * np.divide(favor, sums, out=evenly.copy(), where=sums != 0) + rate * against
    return found


def _to_unit_spread(scores: Floats, query: Candidates) -> float | None:
    """What scores are divided by to have spread 1; None where all are alike."""
    found = within_query(scores[:, None], query)
    return float(found.spreads[0, 0]) if found.z.any() else None


def _scaled(parts: Floats, divisor: float | None) -> Floats:
    return np.zeros_like(parts) if divisor is None else parts / divisor


def _mixed(answer: Answer, rows: Rows) -> Contributions:
    """A mixture brings each model's scores to 0 … 1 within the query; so the global one's here, to be compared."""
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
    """What scores are divided by to span 1; None where all are alike, up to rounding of them and of their parts."""
    reach = float(np.ptp(scores)) if len(scores) else 0.0
    size = max(float(np.abs(scores).max(initial=0.0)), float(np.abs(parts).sum(axis=1).max(initial=0.0)))
    return None if reach <= 1e-12 * size else reach
