"""A query's vector, from an embedding model, as a point."""

from __future__ import annotations

from typing import Self

import numpy as np

from querywise.contracts.answers import Scorer
from querywise.contracts.estimators import Estimator
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.locality.views.looking import views_in
from querywise.runtime.arrays import Bools, Floats
from querywise.runtime.stored import contents, floats


class VectorView(Estimator):
    """The vector of a query, made of length 1, so that near queries are those of similar meaning.

    The vectors come with the queries (`queries.jsonl`: `vector`, or the vectors of a text collection). A query
    without a vector, or with one that is 0 throughout, is put at the mean of the training queries, and is not `known`.
    """

    stored = contents(centre_=floats("coordinates"))

    def fit(self, data: Judged, /) -> Self:
        """Learn the mean, and the dimension."""
        units, known = _units(data.candidates)
        if not known.any():
            raise DataError("The view VectorView needs vectors of the queries, and all of these are 0 throughout.")
        self.centre_ = units[known].mean(axis=0)
        return self

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The vector of a query alone."""
        return ("vector",)

    def known(self, candidates: Candidates, /) -> Bools:
        """The queries with a vector that is not 0 throughout."""
        return _units(candidates)[1]

    def points(self, candidates: Candidates, /) -> Floats:
        """One row per query."""
        if not hasattr(self, "centre_"):
            raise NotFittedError(self)
        units, known = _units(candidates)
        if not units.shape[1]:  # no vector came with these queries
            return np.tile(self.centre_, (len(units), 1))
        if units.shape[1] != len(self.centre_):
            raise DataError(
                f"The queries' vectors have {units.shape[1]} numbers; the model was trained with {len(self.centre_)}. "
                "Use the same embedding model."
            )
        units[~known] = self.centre_
        return units


def vector_lengths(ranker: Scorer) -> frozenset[int]:
    """How many numbers the vector of a query has, by each view inside of a fitted ranker that looks at it."""
    return frozenset(len(view.centre_) for view in views_in(ranker, VectorView) if hasattr(view, "centre_"))


def _units(candidates: Candidates) -> tuple[Floats, Bools]:
    """Vectors of length 1, and which of them are no zeros."""
    table = candidates.queries
    if table is None or table.vectors is None:
        raise DataError(
            "The view VectorView needs the vectors of the queries, and these have none. Give a queries.jsonl whose "
            'lines have a "vector": data.with_queries(read_queries(path)); over HTTP, query.vector.',
            arguments=("queries",),
        )
    lengths = np.sqrt(np.einsum("ij,ij->i", table.vectors, table.vectors))
    return table.vectors / np.where(lengths > 0, lengths, 1.0)[:, None], lengths > 0
