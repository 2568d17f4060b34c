"""Missing values replaced by the mean, as part of the model, so that training and serving do the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from querywise.contracts.answers import Answer, refused
from querywise.contracts.asking import AnyRanker
from querywise.contracts.forms import no_missing
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.rows import MEAN
from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import FITTED, Known, contents, floats, ints, part, require

_MARK = "missing {}"  # what the column is called that marks where a feature is missing


@dataclass(eq=False, repr=False)
class MissingValues(AnyRanker):
    """A ranker on features without gaps: a missing value (NaN) becomes the feature's mean.

    The mean is over the training documents that have the feature. For every feature that some training document lacks,
    the ranker inside gets one more column, after all features: 1 where it is missing, else 0. Without missing values in
    training there are no such columns, and the ranker inside is fitted as it would be alone. Of data that was not read
    with missing="allowed" nothing can be missing, and what its file left out is 0: a value that is missing later, when
    documents are ranked, is then 0 too.

    policy: what missing values become; "mean" is the only way that is the same for all rankers.
    """

    ranker: Ranker
    policy: Literal["mean"] = "mean"

    stored = contents(
        FITTED,
        means_=floats("features"),
        marked_=ints("marks", below="features"),
        ranker_=part(Ranker, features="columns"),
    )

    @property
    def missing_policy(self) -> str:
        """What it does with missing values."""
        if self.policy != MEAN:
            raise DataError(
                f"MissingValues(policy={self.policy!r}) is unknown. Known: {MEAN}; trees handle missing values "
                "themselves with LambdaMART(missing='native')."
            )
        return self.policy

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Learn the means, then fit the ranker on features without gaps."""
        assert self.missing_policy == MEAN, "or it is refused there"
        data.require_learnable(missing="allowed")
        candidates = data.candidates
        if valid is not None:
            valid.candidates.require_features(data.feature_count, data.feature_names, missing="allowed")
        gaps = np.isnan(candidates.features)
        could_lack = candidates.missing == "allowed"
        self.means_ = np.array([_mean(column) if could_lack else 0.0 for column in candidates.features.T])
        lost = np.flatnonzero(np.isnan(self.means_))
        if len(lost):
            raise DataError(
                f"Feature {candidates.feature_label(int(lost[0]))} is missing in all {len(gaps)} training documents, "
                "so it has no mean. Leave it out."
            )
        self.marked_ = np.flatnonzero(gaps.any(axis=0))
        self._remember_features(data)
        # The very same objects for all rankers of a grid, so that these share what they compute of them.
        whole = cached("filled", None, data, lambda: replace(data, candidates=self.filled(candidates)))
        held_out = None
        if valid is not None:
            held_out = cached("filled", whole, valid, lambda: replace(valid, candidates=self.filled(valid.candidates)))
        self.ranker_ = unfitted(self.ranker).fit(whole, valid=held_out)
        return self

    def _check_stored(self, known: Known) -> None:
        """The ranker inside sees every feature, and a mark for each that may be missing."""
        require(bool(np.all(np.diff(self.marked_) > 0)), "MissingValues.marked_ are not in ascending order")
        known.tie("columns", known.sizes["features"] + known.sizes["marks"], "MissingValues.ranker_")

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.ranker_.predict(self.filled(seen))

    def _answer(self, seen: Candidates, /) -> Answer:
        found = self.ranker_.answer(self.filled(seen))
        if not len(self.marked_):  # nothing was missing in training, so that it has no columns of its own
            return found
        why = no_missing(type(self), "it fills missing values and marks them in columns of their own")
        return refused(found, found.facts().refused or why)

    def filled(self, candidates: Candidates, /) -> Candidates:
        """The same candidates without gaps, as the ranker inside sees them."""
        features = candidates.features
        gaps = np.isnan(features)
        if not len(self.marked_):
            return replace(candidates, features=np.where(gaps, self.means_, features), missing="refused")
        labels = self.feature_names_ or tuple(str(column + 1) for column in range(self.feature_count_))
        names = (*labels, *(_MARK.format(labels[column]) for column in self.marked_.tolist()))
        whole = np.hstack([np.where(gaps, self.means_, features), gaps[:, self.marked_].astype(np.float64)])
        return replace(candidates, features=whole, feature_names=names, missing="refused")


def _mean(column: Floats) -> float:
    """The mean of the values that are there, the same in whatever order they stand; NaN without any."""
    known = np.sort(column[~np.isnan(column)])
    return float(known.sum() / len(known)) if len(known) else np.nan
