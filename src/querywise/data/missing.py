"""Missing values: NaN among the features, where a reader was asked to allow it.

A ranker handles them if its policy is to (`missing_policy`); any other refuses them before it computes anything.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Floats

Missing: TypeAlias = Literal["refused", "allowed"]
ZERO, MEAN, NATIVE = "zero", "mean", "native"
POLICIES = (ZERO, MEAN, NATIVE)
_CHOICES = (
    "'mean', the mean of training with a column that marks it: MissingValues(ranker, policy='mean') or the setting "
    "missing=mean; or 'native', the side that trees learn: LambdaMART(missing='native') or the setting missing=native"
)
ALLOW = (
    f"Or keep them with missing='allowed' and choose what the model puts in their place: {_CHOICES}. On the command "
    "line the setting does both."
)


@runtime_checkable
class HandlesMissing(Protocol):
    """A ranker that says what it does with missing values; others have the policy "zero"."""

    @property
    def missing_policy(self) -> str:
        """One of `POLICIES`."""
        ...


def policy_of(ranker: object) -> str:  # of any class, and scores of any system
    """What a ranker does with missing values.

    "zero": what is absent in a file or request is 0, and NaN is refused. "mean", "native": NaN is handled.
    """
    return ranker.missing_policy if isinstance(ranker, HandlesMissing) else ZERO


def takes_missing(ranker: object) -> bool:  # as above
    """Whether a ranker takes documents with missing values."""
    return policy_of(ranker) != ZERO


def reading_for(policy: object) -> Missing:  # of a setting, which may be anything
    """How files are read for a model of this policy."""
    return "allowed" if policy in (MEAN, NATIVE) else "refused"


def check_missing(missing: str) -> None:
    """Refuse an argument `missing` of a reader that nobody knows."""
    if missing not in ("refused", "allowed"):
        raise DataError(
            f"missing={missing!r}: expected 'refused' or 'allowed'. What a model puts in their place is its policy: "
            f"{_CHOICES}.",
            arguments=("missing",),
        )


def require_whole(features: Floats, names: tuple[str, ...] | None) -> None:
    """Refuse missing values, with what there is to choose from."""
    counts = np.isnan(features).sum(axis=0)
    having = np.flatnonzero(counts)
    if not len(having):
        return
    column, rows = int(having[0]), len(features)
    label = names[column] if names is not None else str(column + 1)
    others = f" ({len(having) - 1} more features have missing values)" if len(having) > 1 else ""
    raise DataError(
        f"Feature {label} is missing in {counts[column]} of {rows} documents{others}, and this ranker has no policy for "
        f"it. Choose one: {_CHOICES}. Or fill them first."
    )
