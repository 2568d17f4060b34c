"""What each feature adds to each document's score, for this query's model and for the global one.

Rows sum to the score, up to what all documents of the query have in common: the differences between documents are
exact. A linear model adds weight × value, a stump its value, a forest its Shapley values, a blend the shares
of its models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querywise.contracts.answers import Answer, Model, Scorer, Terms, answer_of
from querywise.contracts.forms import Refusal
from querywise.data.judged import Candidates
from querywise.errors import DataError
from querywise.learners.within_query import within_query
from querywise.runtime.arrays import Floats


@dataclass(frozen=True, eq=False)
class Contributions:
    """Documents × features, in the model that scores the query and in the global one; the same where that is used.

    `labels` name the features and `seen` are their values, as the model gets them: a learner in context gets more than
    there are in the data. `models`, documents × models, are what each model of a blend adds,
    its share included; without columns where one model scores alone.
    """

    labels: tuple[str, ...]
    seen: Floats
    here: Floats
    everyone: Floats
    models: Floats

    @property
    def is_global(self) -> bool:
        """Whether the global model scores the query."""
        return self.here is self.everyone


def contributions(ranker: Scorer, query: Candidates) -> Contributions:
    """Those of the documents of one query; a DataError where a score is not a sum over features."""
    return contributions_in(answer_of(ranker, query))


def contributions_in(answer: Answer) -> Contributions:
    """Those in the answer to one query."""
    if answer.members:
        return _added_ranks(answer) if answer.scale == "rank" else _added_up(answer)
    if answer.scale == "range":
        return _mixed(answer)
    everyone = _terms(answer.everyone, answer.seen)
    model = answer.answering(0)
    return _parts(everyone, everyone if model is answer.everyone else _terms(model, answer.seen))


def _terms(model: Model, seen: Candidates) -> Terms:
    found = model.terms(seen)
    if isinstance(found, Refusal):
        raise DataError(found.reason)
    return found


def _parts(everyone: Terms, here: Terms, models: Floats | None = None) -> Contributions:
    none = np.zeros((len(everyone.values), 0))
    return Contributions(
        everyone.labels, everyone.values, here.parts, everyone.parts, none if models is None else models
    )


def _shares_of(answer: Answer) -> Floats:
    """How much each model counts for the one query."""
    found: Floats = answer.shares()[[0]].toarray()[0]
    return found


def _added_up(answer: Answer) -> Contributions:
    """A blend adds up z-scores: each ranker's parts, divided by the spread of its scores here.

    For everyone the rankers' shares are the usual ones. All rankers get the features first and, if anything, their
    context after them.
    """
    shares, usual = _shares_of(answer), answer.usual
    assert usual is not None, "a blend has usual shares"
    every = [contributions_in(each) for each in answer.members]
    widest = max(every, key=lambda each: each.seen.shape[1])
    here, everyone = np.zeros_like(widest.seen), np.zeros_like(widest.seen)
    models = np.zeros((len(answer.seen.features), len(every)))
    for number, (part, weight, share) in enumerate(zip(every, usual, shares, strict=True)):
        width = part.seen.shape[1]
        own = _to_unit_spread(part.here, answer.seen)
        here[:, :width] += share * own
        everyone[:, :width] += weight * (own if part.is_global else _to_unit_spread(part.everyone, answer.seen))
        models[:, number] = (share * own).sum(axis=1)
    alone = all(part.is_global for part in every) and np.array_equal(shares, usual)
    return Contributions(widest.labels, widest.seen, everyone if alone else here, everyone, models)


def _added_ranks(answer: Answer) -> Contributions:
    """A blend of ranks is no sum over features, but one over rankers: the share of documents each puts below."""
    shares, seen, usual = _shares_of(answer), answer.seen, answer.usual
    assert usual is not None, "a blend has usual shares"
    ranks = within_query(np.column_stack([each.scores() for each in answer.members]), seen).ranks
    common = np.column_stack([each.by_everyone() for each in answer.members])
    everyone = within_query(common, seen).ranks * usual
    here = ranks * shares
    labels = tuple(f"rank by {name}" for name in answer.names)
    return Contributions(labels, ranks, everyone if np.array_equal(here, everyone) else here, everyone, here)


def _to_unit_spread(terms: Floats, query: Candidates) -> Floats:
    found = within_query(terms.sum(axis=1)[:, None], query)
    return terms / found.spreads[0, 0] if found.z.any() else np.zeros_like(terms)


def _mixed(answer: Answer) -> Contributions:
    """A mixture brings each model's scores to 0 … 1 within the query; so the global one's here, to be compared."""
    share, everyone = _shares_of(answer), _terms(answer.everyone, answer.seen)
    if not share.any():
        return _parts(everyone, everyone)
    every = np.zeros((len(everyone.values), len(share)))
    here = np.zeros_like(everyone.parts)
    for number in np.flatnonzero(share).tolist():
        terms = share[number] * _to_unit_range(_terms(answer.models()[number], answer.seen).parts)
        every[:, number] = terms.sum(axis=1)
        here += terms
    return _parts(everyone._replace(parts=_to_unit_range(everyone.parts)), everyone._replace(parts=here), every)


def _to_unit_range(terms: Floats) -> Floats:
    """Divided so that the scores they sum to span 1; nothing where all are alike."""
    scores = terms.sum(axis=1)
    reach = float(np.ptp(scores)) if len(scores) else 0.0
    tied = reach <= 1e-12 * float(np.abs(terms).sum(axis=1).max(initial=0.0))
    return np.zeros_like(terms) if tied else terms / reach
