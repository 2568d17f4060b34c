"""What the rankers that weigh runs share: the lists, the answer, and one set of weights for all queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from querywise.contracts.answers import (
    Answer,
    Facts,
    Fused,
    Gain,
    Local,
    Models,
    Once,
    Place,
    alone,
    local_or_global,
    own_each,
)
from querywise.contracts.asking import AnyRanker, ready
from querywise.contracts.forms import Refusal, depends_on_the_list
from querywise.contracts.run_weights import run_weights
from querywise.data.judged import Candidates, Judged
from querywise.data.labels import refuse_weights
from querywise.data.normalisation import EngineNormalisation
from querywise.data.run_columns import RunColumns, run_columns
from querywise.learners.classic.lists import check_worth
from querywise.learners.linear import LinearModel, LinearModels
from querywise.rankers.weights.lists import Lists, check_normalise, normalised_runs, runs_of, together
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.stored import FITTED, Known, contents, floats, require


class OwnWeights(NamedTuple):
    """Queries × runs, and which queries have weights of their own; the others have the common ones."""

    weights: Floats
    local: Bools


class Fusion(AnyRanker):
    """A weighted sum of the runs' normalised scores. `weights_` are the common weights."""

    normalise: EngineNormalisation
    weights_: Floats

    stored = contents(FITTED, weights_=floats("runs", least=0.0))

    @property
    def runs_(self) -> tuple[str, ...]:
        """What the runs are called."""
        return tuple(run.name for run in self._columns())

    def _answer(self, seen: Candidates, /) -> Answer:
        """One set of weights for all queries."""
        return self.fused(self.lists(seen))

    def run_weights(self, candidates: Candidates, /) -> Floats:
        """Queries × runs: how much each run counts."""
        return run_weights(self.answer(candidates))

    def lists(self, candidates: Candidates) -> Candidates:
        """The documents with a feature per run."""
        return normalised_runs(ready(self, candidates), self._columns(), self.normalise)

    def judged_lists(self, data: Judged, valid: Judged | None, measure: str) -> Lists:
        """Those of training and validation queries; the columns are remembered."""
        check_normalise(type(self), self.normalise)
        check_worth(measure)
        self.remember(data)
        whole = together(data, valid)
        refuse_weights(whole, type(self).__name__, "it chooses weights of runs by the plain mean over queries")
        return Lists.of(whole, self._columns(), self.normalise, measure)

    def remember(self, data: Judged) -> None:
        """Remember the columns; those of fewer than two runs are refused."""
        data.require_learnable()
        runs_of(type(self), data.feature_names)
        self._remember_features(data)

    def fused(
        self,
        seen: Candidates,
        own: Callable[[], OwnWeights] | None = None,
        *,
        place: Place | None = None,
        gains: tuple[Gain, ...] = (),
    ) -> Answer:
        """The answer by the common weights, or by those that some queries have of their own."""
        common, facts = LinearModel(self.weights_), partial(Facts, gains=gains, refused=refusal(type(self)))
        if own is None:
            runs = Fused(self.runs_, self.weights_, lambda: np.tile(self.weights_, (len(seen), 1)))
            return alone(common, seen)._replace(runs=runs, facts=facts)
        found = Once(own)
        weights = Once(lambda: np.where(found().local[:, None], found().weights, self.weights_))
        models: Once[Models] = Once(lambda: LinearModels(found().weights[found().local]))
        return Answer(
            seen,
            lambda: common,
            Once(
                lambda: local_or_global(
                    seen, found().local, lambda queries, part: models().pick(part, np.arange(len(queries))), common
                )
            ),
            varies=True,
            local=Local(models, Once(lambda: own_each(found().local))),
            place=place,
            runs=Fused(self.runs_, self.weights_, weights),
            facts=facts,
        )

    def _columns(self) -> list[RunColumns]:
        return run_columns(self.feature_names_)

    def _check_stored(self, known: Known) -> None:
        """There are two runs or more among the features, and a weight for each."""
        known.tie("runs", len(run_columns(self.feature_names_)), "Fusion.weights_")
        require(known.sizes["runs"] > 1, "Fusion.feature_names_ name fewer than two runs")


def refusal(whose: type) -> Refusal:
    """Why no engine's model is made of weights of runs."""
    return depends_on_the_list(
        whose,
        "adds up scores of several runs, each normalised over its own list",
        "Its weights go into a hybrid query instead.",
    )


@dataclass(eq=False, repr=False)
class EqualWeights(Fusion):
    """Every run counts the same: CombSUM; with `rank`, reciprocal rank fusion. Nothing is learned.

    normalise: how a run's scores are made comparable over its own list, as engines do it. opensearch-min-max, l2 and
    z-score are OpenSearch's; rank is 1/(60 + rank), as in reciprocal rank fusion. A document that a run did not find
    counts 0 there.
    """

    normalise: EngineNormalisation = "opensearch-min-max"

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Remember the columns; there is nothing to learn, and weights of queries or documents change nothing."""
        check_normalise(type(self), self.normalise)
        self.remember(data)
        count = len(self.runs_)
        self.weights_ = np.full(count, 1 / count)
        return self


@dataclass(eq=False, repr=False)
class Weights(Fusion):
    """One weight per run for all queries: those under which training and validation queries are ranked best.

    w̄ maximises the mean measure over all weights in steps of 0.05; of equally good ones it is the nearest to equal
    weights. With more than three runs a coarser grid is tried, and then moves of 0.05 from one run to another. What was
    judged beyond the candidates counts.

    normalise: how a run's scores are made comparable over its own list, as engines do it. opensearch-min-max, l2 and
    z-score are OpenSearch's; rank is 1/(60 + rank), as in reciprocal rank fusion. A document that a run did not find
    counts 0 there.
    measure: the measure that weights maximise: map, ndcg or ndcg@k.
    """

    normalise: EngineNormalisation = "opensearch-min-max"
    _: KW_ONLY
    measure: str = "map"

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Find the weights on training and validation queries together."""
        return self.found_in(self.judged_lists(data, valid, self.measure))

    def found_in(self, lists: Lists) -> Self:
        """Find the weights on lists that are made already."""
        self.remember(lists.data)
        self.weights_ = lists.best
        return self
