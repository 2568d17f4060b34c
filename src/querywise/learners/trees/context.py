"""Features in the context of their query: each relative to the query's other candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from querywise.contracts.answers import ALL, Rows, Terms
from querywise.contracts.asking import OneModel
from querywise.contracts.forms import Refusal, depends_on_the_list
from querywise.contracts.protocols import Learner, NamesCoordinates, QueryView, Ranker, TeachesLocally
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.learners.local_models import require_alike
from querywise.learners.trees.boosting import LambdaMART
from querywise.learners.trees.forest import Binned, read_trees
from querywise.learners.within_query import within_query
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import FITTED, Known, Optional, Several, Text, contents, part, require

OF_FEATURES = {"mean": "mean of {}", "spread": "spread of {}", "z": "z-score of {}", "rank": "rank of {}"}
GROUPS = (*OF_FEATURES, "length", "view")
_BLOCK = 100_000  # rows scored at a time, to avoid a second table of all documents


@dataclass(eq=False, repr=False)
class QueryContext(OneModel):
    """A learner on features and their position within the query.

    In addition to the features themselves it gets, for each of them, the query's *mean* and *spread*, and the
    document's *z* (how many spreads above the mean) and *rank* (the share of the query's other documents it is above,
    ties half); the list's *length*; and with a `view`, the query's coordinates in it. A feature that is the same for
    all candidates of a query has z 0 and rank ½. Scoring one document requires the whole list.

    Args:
        learner: the learner.
        columns: which of the groups mean, spread, z, rank and length to add; z alone did best on validation data.
        view: a view whose coordinates are added with the group view.
    """

    learner: Learner
    columns: Sequence[str] = ("z",)
    _: KW_ONLY
    view: QueryView | None = None

    stored = contents(
        FITTED,
        view_=Optional(part(QueryView)),
        context_names_=Several(Text(), "columns"),
        learner_=part(Ranker, features="columns"),
    )

    def fit(self, data: Judged, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Fit the learner on the features and their context."""
        unknown = next((name for name in self.columns if name not in GROUPS), None)
        if isinstance(self.columns, str) or unknown is not None:
            raise DataError(
                f"QueryContext(columns={self.columns!r}): expected a list of {', '.join(GROUPS)}"
                + (f"; {unknown!r} is none of them." if unknown is not None else ".")
            )
        if ("view" in self.columns) != (self.view is not None):
            raise DataError(
                "QueryContext: the columns and the view do not fit. Give both view=… and 'view' among the columns, or "
                f"neither; found columns={list(self.columns)!r} and view={self.view!r}."
            )
        candidates = data.candidates
        if valid is not None:
            valid.candidates.require_features(candidates.features.shape[1], candidates.feature_names)
        self.view_: QueryView | None = None if self.view is None else unfitted(self.view).fit(data)
        self._remember_features(data)
        self.context_names_ = self._names(candidates)
        held_out = None if valid is None else self._widened(valid)
        self.learner_ = unfitted(self.learner).fit(self._widened(data), query_weights=query_weights, valid=held_out)
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that the learner inside sees the requested columns."""
        require(not isinstance(self.columns, str) and {*self.columns} <= {*GROUPS}, "QueryContext.columns are unknown")
        require(("view" in self.columns) == (self.view_ is not None), "QueryContext.columns and its view_ do not fit")
        width = known.sizes["features"] * (1 + len({*self.columns} & {"mean", "spread", "z", "rank"}))
        width += "length" in self.columns
        if self.view_ is not None:
            width += known.size_of(self.view_, "coordinates")
        known.tie("columns", width, "QueryContext.context_names_")
        require_alike(self.learner, self.learner_, "QueryContext.learner_")

    def local(self, everyone: Learner, /) -> QueryContext:
        """Return the learner of local models, as the inner learner defines it, on the same columns."""
        assert isinstance(everyone, QueryContext), "the global model of this learner"
        inside = self.learner
        learner = inside.local(everyone.learner_) if isinstance(inside, TeachesLocally) else inside
        return QueryContext(learner, self.columns, view=self.view)

    def _predict(self, seen: Candidates, /) -> Floats:
        if len(seen.features) <= _BLOCK:
            return self.learner_.predict(self._shared(seen))
        parts = (seen.select(np.arange(*block)) for block in seen.blocks(_BLOCK))
        return np.concatenate([self.learner_.predict(self.context(part)) for part in parts])

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms | Refusal:
        """Return the inner learner's contributions of the features and of the context columns."""
        context = self.context(seen)
        widened = replace(context, feature_names=self.context_names_)
        return self.learner_.answer(context).everyone.terms(widened, rows)

    def form(self) -> Refusal:
        """Return a refusal: an engine does not compute such columns."""
        return depends_on_the_list(
            type(self),
            "sees every document beside its query's other candidates",
            "Fit the learner inside it, and export that.",
        )

    def context(self, candidates: Candidates, /) -> Candidates:
        """Return the candidates with the added columns, as the learner sees them."""
        if not hasattr(self, "context_names_"):
            raise NotFittedError(self)
        candidates.require_features(self.feature_count_, self.feature_names_)
        found = within_query(candidates.features, candidates, ranks="rank" in self.columns)
        by_query: dict[str, Callable[[], Floats]] = {
            "mean": lambda: found.means,
            "spread": lambda: found.spreads,
            "length": lambda: candidates.sizes[:, None].astype(np.float64),
            "view": lambda: self._points(candidates),
        }
        groups = {"z": found.z, "rank": found.ranks}
        added = [
            groups[name] if name in groups else np.repeat(by_query[name](), candidates.sizes, axis=0)
            for name in GROUPS
            if name in self.columns
        ]
        # A model trained without names accepts documents with any names; so does the learner in it.
        names = None if self.feature_names_ is None else self.context_names_
        return candidates.with_features(np.concatenate([candidates.features, *added], axis=1), names)

    def _points(self, candidates: Candidates) -> Floats:
        """Return the coordinates of queries in the view; columns without names are taken to be those of training."""
        assert self.view_ is not None, "fit has looked at this"
        named = candidates.feature_names is not None or self.feature_names_ is None
        return self.view_.points(candidates if named else replace(candidates, feature_names=self.feature_names_))

    def _widened(self, data: Judged) -> Judged:
        """Return judged queries in context, computed once for all learners that need the same."""

        def made() -> Judged:
            return replace(data, candidates=self._shared(data.candidates))

        return made() if self.view_ is not None else cached("widened", self.asked(), data, made)

    def _shared(self, candidates: Candidates) -> Candidates:
        """Return the context of queries, computed once for all learners that need the same."""
        if self.view_ is not None:
            return self.context(candidates)
        return cached("context", self.asked(), candidates, lambda: self.context(candidates))

    def asked(self) -> tuple[Sequence[str], tuple[str, ...] | None]:
        """Return the settings that determine the columns and their names."""
        return tuple(self.columns), self.feature_names_

    def _names(self, candidates: Candidates) -> tuple[str, ...]:
        """Return the names of all columns, such as `rank of bm25`."""
        labels = candidates.feature_names or tuple(f"feature {each + 1}" for each in range(self.feature_count_))
        names = list(labels)
        for group in GROUPS:
            if group in self.columns and group in OF_FEATURES:
                names += [OF_FEATURES[group].format(label) for label in labels]
            elif group in self.columns and group == "length":
                names.append("list length")
            elif group in self.columns:
                assert self.view_ is not None, "fit has looked at this"
                names += _coordinates(self.view_, candidates.select([0]))
        return tuple(names)


def _coordinates(view: QueryView, candidates: Candidates) -> Sequence[str]:
    """Return the names of a view's coordinates, such as `signal bm25.margin`, or their numbers."""
    if isinstance(view, NamesCoordinates):
        return view.coordinate_names(candidates)
    return [f"view coordinate {number + 1}" for number in range(view.points(candidates).shape[1])]


class SharedContext(NamedTuple):
    """Rankers, by index, that share one context, with that context and their forests."""

    numbers: tuple[int, ...]
    context: QueryContext
    grown: Binned

    @staticmethod
    def of(rankers: Sequence[Ranker]) -> SharedContext | None:
        """Return the largest set of rankers that can be evaluated together, or None if there are not at least two."""
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
        return None if grown is None else SharedContext(tuple(number for number, _, _ in most), most[0][1], grown)

    def scores(self, candidates: Candidates) -> Floats:
        """Return documents × these rankers: what each would predict by itself."""
        return self.grown.by_bag(self.context.context(candidates).features)
