"""What can be put around the ranker of a method, as one more setting says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from querywise.errors import DataError

if TYPE_CHECKING:
    from querywise.contracts.protocols import Ranker


def normalised(ranker: Ranker, normalise: Literal["none", "query"] = "none") -> Ranker:
    """A ranker on the features as they are, or normalised within their query.

    normalise: query scales every feature within its query's candidates, 0 the smallest, 1 the largest.
    """
    from querywise.rankers.normalised import QueryNormalised

    return QueryNormalised(ranker) if normalise == "query" else ranker


def with_missing(ranker: Ranker, missing: Literal["zero", "mean"] = "zero") -> Ranker:
    """A ranker that refuses missing values, or fills them.

    missing: what a missing feature becomes: zero is 0 for what a file or request leaves out, and refuses NaN;
    mean is the mean of training, with a column that marks it.
    """
    from querywise.rankers.missing import MissingValues

    return MissingValues(ranker) if missing == "mean" else ranker


def with_missing_or_native(ranker: Ranker, missing: Literal["zero", "mean", "native"] = "zero") -> Ranker:
    """The same of trees, which can also handle missing values themselves.

    missing: what a missing feature becomes: zero is 0 for what a file or request leaves out, and refuses NaN;
    mean is the mean of training, with a column that marks it; native is the side that trees learn for it.
    """
    if missing != "native":
        return with_missing(ranker, missing)
    from querywise.learners.trees.boosting import LambdaMART

    if not isinstance(ranker, LambdaMART):
        raise DataError(
            "missing='native' is for trees on the features as they are. Leave out normalise and signals, or set "
            "missing='mean'."
        )
    ranker.missing = "native"
    return ranker
