"""A blend of several rankers: the weighted sum of their scores, normalised within the query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.answers import ALL, Answer, Blended, Facts, Local, Once, Rows, Scale, Stored
from querywise.contracts.asking import AnyRanker, ready
from querywise.contracts.forms import Refusal, depends_on_the_list, no_sum
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.learners.classic.lists import Worth, check_worth
from querywise.learners.local_models import FittedModels, side_by_side
from querywise.learners.trees.context import SideBySide
from querywise.learners.within_query import within_query
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached, caching
from querywise.runtime.parameters import forget_derived, unfitted
from querywise.runtime.stored import FITTED, Several, contents, floats, part

SCALES: dict[str, Scale] = {"standard": "z", "rank": "rank"}
WEIGHTS = ("equal", "learned")
_STEPS = (0.2, 0.1, 0.05)  # how much weight moves from one ranker to another at a time
_RISE = 1e-9  # of a measure: less is rounding
_FEW = 4096  # documents: of more, what is shared takes less time than what is not


@dataclass(eq=False, repr=False)
class Blend(AnyRanker):
    """The weighted sum of several rankers' scores.

    rankers: one or more, in a list. Copies are fitted; one that is fitted already is fitted anew.
    scores: how a ranker's scores are made comparable within a query. "standard" takes their mean away and divides by
    their spread, "rank" puts the share of documents each one is above; a query that a ranker scores all alike is 0
    there, or ½.
    weights: "equal", or "learned" on validation queries by `measure`; without validation queries they are equal.
    measure: the measure that learned weights maximise: map, ndcg or ndcg@k.
    shrinkage: how far learned weights are shrunk towards equal ones, 0 not at all and 1 entirely. Rankers that stop
    early on those queries look better there than they are, and a few queries decide by luck: shrinkage answers both.

    After fit, `rankers_` are the fitted rankers and `weights_` their weights, which sum to 1.

    Refused: with DataError, no ranker at all, a shrinkage outside 0 to 1, another measure, and what a ranker refuses.

    >>> from querywise import Blend, KnnOnline, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = Blend([RankSVM(), KnnOnline(RankSVM(), k=8)]).fit(train, valid=valid)
    >>> ranker.weights_.tolist(), ranker.predict(test).shape
    ([0.5, 0.5], (100,))
    """

    rankers: Sequence[Ranker]
    _: KW_ONLY
    scores: Literal["standard", "rank"] = "standard"
    weights: Literal["equal", "learned"] = "equal"
    measure: str = "map"
    shrinkage: float = 0.5

    stored = contents(FITTED, rankers_=Several(part(Ranker), "rankers>0"), weights_=floats("rankers"))

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Fit every ranker, then learn on `valid` how much each counts, if that is asked for."""
        self._check()
        data.candidates.require_moderate()
        with caching():  # what several rankers need is made once
            self.rankers_ = tuple(_fitted(each, data, valid) for each in self.rankers)
        forget_derived(self)
        self._remember_features(data)
        self.weights_ = np.full(len(self.rankers_), 1 / len(self.rankers_))
        if self.weights == "learned" and valid is not None and len(valid):
            learned = learned_weights(self.scaled(valid.candidates), Worth(valid, self.measure))
            self.weights_ = self.shrinkage * self.weights_ + (1 - self.shrinkage) * learned
        return self

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.blended(self._scores(seen), seen)

    def _answer(self, seen: Candidates, /) -> Answer:
        """Every ranker's answer, with the same weights for all queries."""
        members, models = self.members(seen), self.several_models()
        return Answer(
            seen,
            lambda: Common(self),
            Once(lambda: self.blended(self._scores(seen, members), seen)),
            varies=any(each.varies for each in members),
            local=Local(
                Once(lambda: models),
                Once(lambda: csr_array(np.tile(self.weights_, (len(seen), 1)))),
                SCALES[self.scores],
                Stored("ranker {}".format, np.ones(len(models), np.bool_)),
            ),
            blend=Blended(members, self.names(), self.weights_),
            facts=lambda: Facts(refused=self.refusal(type(self))),
        )

    def members(self, candidates: Candidates) -> tuple[Answer, ...]:
        """How each ranker answers."""
        return tuple(each.answer(candidates) for each in self.rankers_)

    def names(self) -> tuple[str, ...]:
        """What each ranker is called."""
        return tuple(map(_name_of, self.rankers_))

    @staticmethod
    def refusal(whose: type) -> Refusal:
        """Why no engine runs a blend."""
        return depends_on_the_list(
            whose,
            "adds up scores of several rankers, brought to one scale within the query",
            "Fit lambdamart or knn-offline-2 instead.",
        )

    def scaled(self, candidates: Candidates, /) -> Floats:
        """Documents × rankers: every ranker's scores, comparable within the query."""
        seen = ready(self, candidates)
        return self.comparable(self._scores(seen), seen)

    @cached_property
    def _forests(self) -> SideBySide | None:
        return SideBySide.of(self.rankers_)

    def _scores(self, seen: Candidates, members: tuple[Answer, ...] | None = None) -> Floats:
        """Documents × rankers: the scores of each, forests that see the same asked at once where documents are few.

        members: the rankers' answers, where there are any: what one of them finds out is then found once.
        """
        forests = self._forests
        if forests is None or len(seen.features) > _FEW:
            if members is not None:
                return scores_of(members)
            with caching("context"):
                return self.several_models().scores(seen)
        scores = np.empty((len(seen.features), len(self.rankers_)))
        scores[:, forests.numbers] = forests.scores(seen)
        for number, each in enumerate(self.rankers_):
            if number not in forests.numbers:
                scores[:, number] = each.predict(seen) if members is None else members[number].scores()
        return scores

    def blended(self, scores: Floats, candidates: Candidates, /) -> Floats:
        """One score per document from any scores of as many rankers, such as each one's own predictions."""
        return _weighed(self.comparable(scores, candidates), self.weights_)

    def comparable(self, scores: Floats, candidates: Candidates, /) -> Floats:
        """Documents × rankers: any scores of theirs, on one scale within the query."""
        found = within_query(scores, candidates, ranks=self.scores == "rank")
        return found.z if self.scores == "standard" else found.ranks

    def several_models(self) -> FittedModels:
        """The fitted rankers."""
        return FittedModels(self.rankers_)

    def _check(self) -> None:
        if not len(self.rankers):
            raise DataError(
                "Blend has no ranker to blend. Give it at least one, as in Blend([RankSVM(), LambdaMART()])."
            )
        for name, known in (("scores", SCALES), ("weights", WEIGHTS)):
            if getattr(self, name) not in known:
                raise DataError(f"Blend({name}={getattr(self, name)!r}) is unknown. Known: {', '.join(known)}.")
        if not 0 <= self.shrinkage <= 1:
            raise DataError(f"Blend(shrinkage={self.shrinkage}) must lie between 0 and 1.")
        check_worth(self.measure)


@dataclass(eq=False, repr=False)
class Common:
    """The blend of the rankers' global models."""

    blend: Blend

    def predict(self, seen: Candidates, /) -> Floats:
        """One score per document."""
        every = [each.by_everyone() for each in self.blend.members(seen)]
        return self.blend.blended(np.column_stack(every), seen)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Refusal:
        """None by itself: the parts are those of the rankers."""
        return no_sum(type(self.blend))

    def form(self) -> Refusal:
        """None: an engine knows no scale of the query."""
        return self.blend.refusal(type(self.blend))


def scores_of(members: Sequence[Answer]) -> Floats:
    """Documents × rankers: the scores of each answer, where what several need is made once."""
    with caching("context"):
        return side_by_side([each.scores() for each in members])


def _fitted(ranker: Ranker, data: Judged, valid: Judged | None) -> Ranker:
    """A ranker fitted; once for all blends of a grid that have it."""
    return cached("fitted", (ranker, valid), data, lambda: unfitted(ranker).fit(data, valid=valid))


def learned_weights(scaled: Floats, worth: Worth) -> Floats:
    """Weights from 0 up that sum to 1, under which some judged queries are ranked best.

    From equal weights on, the one move of weight from one ranker to another that raises the mean over the queries most
    is made, the first of equals, as long as there is one; then with smaller moves.
    """
    count = scaled.shape[1]
    shares = np.full(count, 1 / count)
    highest = float(worth.of(_weighed(scaled, shares)).mean())
    for step in _STEPS:
        while True:
            moves = [_moved(shares, giver, taker, step) for giver in range(count) for taker in range(count)]
            values = [float(worth.of(_weighed(scaled, each)).mean()) for each in moves]
            best = int(np.argmax(values))
            if values[best] <= highest + _RISE:
                break
            shares, highest = moves[best], values[best]
    return shares


def _moved(shares: Floats, giver: int, taker: int, step: float) -> Floats:
    moved = shares.copy()
    given = min(step, moved[giver])
    moved[giver] -= given
    moved[taker] += given
    return moved


def _weighed(scaled: Floats, weights: Floats) -> Floats:
    total: Floats = scaled[:, 0] * weights[0] + 0.0
    for column in range(1, len(weights)):  # one by one: the same bits whatever rows are beside it
        total += scaled[:, column] * weights[column]
    return total


def _name_of(thing: object) -> str:
    """An estimator and what it is made of: QueryContext of LambdaMART (rank_xendcg)."""
    inner, objective = getattr(thing, "learner", None), getattr(thing, "objective", None)
    said = type(thing).__name__ + (f" ({objective})" if isinstance(objective, str) else "")
    return said if inner is None else f"{said} of {_name_of(inner)}"
