"""Rankers on features that are prepared within the model, so that training and serving treat them the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from querywise.contracts.answers import Answer, refused
from querywise.contracts.asking import AnyRanker
from querywise.contracts.forms import depends_on_the_list, no_missing
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.normalisation import NORMALISATIONS
from querywise.data.rows import MEAN
from querywise.data.run_columns import run_columns
from querywise.errors import DataError
from querywise.rankers.weights.fusion import runs_of
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import FITTED, Known, contents, floats, ints, part, require

_MARK = "missing {}"  # the name of the column that marks where a feature is missing


@dataclass(eq=False, repr=False)
class MissingValues(AnyRanker):
    """A ranker that replaces missing values (NaN) by the feature's mean.

    The mean is over the training documents that have the feature. For every feature that some training document lacks,
    the wrapped ranker gets one more column, after all features: 1 where it is missing, else 0. Without missing values
    in training there are no such columns, and the wrapped ranker is fitted as it would be on its own. In data that was
    not read with missing="allowed" nothing is missing, and values left out of its file are 0: a value that is missing
    later, when documents are ranked, is then 0 too.

    Args:
        ranker: The wrapped ranker.
        policy: The replacement of missing values; "mean" is the only one that is the same for all rankers.

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
        """How it treats missing values."""
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
        # Share one object among all rankers of a grid, so that they share what they compute from it.
        whole = cached("filled", None, data, lambda: replace(data, candidates=self.filled(candidates)))
        held_out = None
        if valid is not None:
            held_out = cached("filled", whole, valid, lambda: replace(valid, candidates=self.filled(valid.candidates)))
        self.ranker_ = unfitted(self.ranker).fit(whole, valid=held_out)
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that the ranker inside sees every feature, and a mark for each that may be missing."""
        require(bool(np.all(np.diff(self.marked_) > 0)), "MissingValues.marked_ are not in ascending order")
        known.tie("columns", known.sizes["features"] + known.sizes["marks"], "MissingValues.ranker_")

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.ranker_.predict(self.filled(seen))

    def _answer(self, seen: Candidates, /) -> Answer:
        found = self.ranker_.answer(self.filled(seen))
        if not len(self.marked_):  # nothing was missing in training, so there are no extra columns
            return found
        why = no_missing(type(self), "it fills missing values and marks them in columns of their own")
        return refused(found, found.facts().refused or why)

    def filled(self, candidates: Candidates, /) -> Candidates:
        """Return the candidates without gaps, as the wrapped ranker sees them."""
        features = candidates.features
        gaps = np.isnan(features)
        if not len(self.marked_):
            return replace(candidates, features=np.where(gaps, self.means_, features), missing="refused")
        labels = self.feature_names_ or tuple(str(column + 1) for column in range(self.feature_count_))
        names = (*labels, *(_MARK.format(labels[column]) for column in self.marked_.tolist()))
        whole = np.hstack([np.where(gaps, self.means_, features), gaps[:, self.marked_].astype(np.float64)])
        return replace(candidates, features=whole, feature_names=names, missing="refused")


def _mean(column: Floats) -> float:
    """Return the mean of the known values, the same in any order; NaN if there are none."""
    known = np.sort(column[~np.isnan(column)])
    return float(known.sum() / len(known)) if len(known) else np.nan


@dataclass(eq=False, repr=False)
class QueryNormalised(AnyRanker):
    """A ranker on features normalized within each query's candidates, from 0 for the smallest to 1 for the largest.

    This is LETOR's query-level normalization; a feature that is the same for all candidates is 0. Scoring one candidate
    takes the whole list, which a search engine's own models cannot do.
    """

    ranker: Ranker

    stored = contents(FITTED, ranker_=part(Ranker))

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Fit the ranker on normalized features."""
        for each in (data,) if valid is None else (data, valid):
            each.candidates.require_moderate()
        held_out = None if valid is None else replace(valid, candidates=normalised(valid.candidates))
        self.ranker_ = unfitted(self.ranker).fit(replace(data, candidates=normalised(data.candidates)), valid=held_out)
        return self

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.ranker_.predict(normalised(seen))

    def _answer(self, seen: Candidates, /) -> Answer:
        why = depends_on_the_list(
            type(self),
            "sees every feature on the scale of its query's candidates",
            "Fit the ranker inside it on raw features, and export that.",
        )
        return refused(self.ranker_.answer(normalised(seen)), why)


def normalised(candidates: Candidates) -> Candidates:
    """Return the candidates with (x − min) / (max − min) over each query.

    >>> features = np.array([[2.0, 5.0], [4.0, 5.0], [3.0, 5.0]])
    >>> normalised(Candidates(features, np.array([0, 3]), ("q",))).features[:, 0].tolist()
    [0.0, 1.0, 0.5]
    """
    filled = np.flatnonzero(candidates.sizes)
    if not len(filled):
        return candidates
    first, sizes = candidates.starts[filled], candidates.sizes[filled]
    low = np.repeat(np.minimum.reduceat(candidates.features, first), sizes, axis=0)
    high = np.repeat(np.maximum.reduceat(candidates.features, first), sizes, axis=0)
    spread = high / 2 - low / 2  # halves, so that the largest numbers do not overflow
    return replace(candidates, features=(candidates.features / 2 - low / 2) / np.where(spread > 0, spread, 1.0))


@dataclass(eq=False, repr=False)
class OnRuns(AnyRanker):
    """A ranker with one feature per run: the run's score, normalized over its own list, 0 if it lacks the document.

    The features are those of `join_runs`, computed from the columns run.NAME.score and run.NAME.reciprocal_rank.

    Args:
        ranker: The wrapped ranker.
        normalise: minmax goes from 1/n for the worst of n documents to 1, zscore counts standard deviations above the
            worst, rank is (n + 1 − rank)/n, none leaves scores unchanged, which must then be above 0.

    """

    ranker: Ranker
    normalise: Literal["minmax", "zscore", "rank", "none"] = "minmax"

    stored = contents(FITTED, ranker_=part(Ranker, features="runs"))

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Fit the ranker on the runs' features."""
        if self.normalise not in NORMALISATIONS:
            raise DataError(f"Unknown normalisation {self.normalise!r}. Known: {', '.join(NORMALISATIONS)}.")
        runs_of(type(self), data.feature_names)
        data.candidates.require_moderate()
        self._remember_features(data)
        held_out = None if valid is None else replace(valid, candidates=self.joined(valid.candidates))
        self.ranker_ = unfitted(self.ranker).fit(replace(data, candidates=self.joined(data.candidates)), valid=held_out)
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that the ranker inside sees the runs among the features."""
        known.tie("runs", len(run_columns(self.feature_names_)), "OnRuns.ranker_")

    def _predict(self, seen: Candidates, /) -> Floats:
        return self.ranker_.predict(self.joined(seen))

    def _answer(self, seen: Candidates, /) -> Answer:
        why = depends_on_the_list(type(self), "sees every run's scores on the scale of its own list")
        return refused(self.ranker_.answer(self.joined(seen)), why)

    def joined(self, candidates: Candidates) -> Candidates:
        """Return the documents with one feature per run."""
        runs, scale = run_columns(self.feature_names_), NORMALISATIONS[self.normalise]
        found = np.zeros((len(candidates.features), len(runs)))
        for query in range(len(candidates)):
            rows = candidates.rows(query)
            for column, run in enumerate(runs):
                listed = np.flatnonzero(candidates.features[rows, run.reciprocal_rank] > 0) + rows.start
                if len(listed):
                    found[listed, column] = scale(candidates.features[listed, run.score])
        return replace(candidates, features=found, feature_names=tuple(run.name for run in runs))
