"""A collection with adapted query vectors and weights of its runs."""

from __future__ import annotations

from querywise.contracts.protocols import Ranker
from querywise.data.collections import Collection
from querywise.rankers.weights.fusion import Weights
from querywise.retrieval.adapting import Adaptation
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import Index
from querywise.runtime.arrays import Floats
from tests.support.adapting import made


class World:
    """A collection whose query vectors learn, and weights of its runs that were fitted on candidates found by them."""

    def __init__(self) -> None:
        self.collection: Collection
        self.index: Index
        self.collection, self.index = made()
        judged = judged_candidates(self.collection, self.index, top=10, vector_top=10)[0]
        train, self.adapter = Adaptation(self.collection, self.index, "by-query", top=10, vector_top=10).learned(judged)
        self.ranker: Ranker = Weights().fit(train).with_adapter(self.adapter)

    @property
    def queries(self) -> Floats:
        """The queries' own vectors."""
        table = self.collection.queries
        assert table is not None
        assert table.vectors is not None
        return table.vectors
