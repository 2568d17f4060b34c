"""Bags of forests that see the same columns of a query's documents, asked at once: a blend has two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates
from querywise.learners.trees.boosting import LambdaMART
from querywise.learners.trees.context import QueryContext
from querywise.learners.trees.forest import Binned
from querywise.learners.trees.text import read_trees
from querywise.runtime.arrays import Floats


class SideBySide(NamedTuple):
    """Some of several rankers, by number, the context that all of these see, and their forests."""

    numbers: tuple[int, ...]
    context: QueryContext
    grown: Binned

    @staticmethod
    def of(rankers: Sequence[Ranker]) -> SideBySide | None:
        """Those of the rankers that can be asked at once; None where there are no two of them."""
        alike: dict[object, list[tuple[int, QueryContext, LambdaMART]]] = {}
        for number, each in enumerate(rankers):
            inner = each.learner_ if isinstance(each, QueryContext) and each.view_ is None else None
            if isinstance(each, QueryContext) and isinstance(inner, LambdaMART) and inner.base is None:
                alike.setdefault(each.asked(), []).append((number, each, inner))
        most = max(alike.values(), key=len, default=[])
        if len(most) < 2:
            return None
        bags = [[read_trees(text, each.feature_count_) for text in each.models_] for _, _, each in most]
        grown = Binned.of(*bags)
        return None if grown is None else SideBySide(tuple(number for number, _, _ in most), most[0][1], grown)

    def scores(self, candidates: Candidates) -> Floats:
        """Documents × these rankers: what each would predict by itself."""
        return self.grown.by_bag(self.context.context(candidates).features)
