"""Missing values: NaN among the features, where a reader was asked to allow it.

A ranker handles them if its policy is to (`contracts/missing.py`); any other refuses them before it computes anything.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.runtime.values import Json

Missing: TypeAlias = Literal["refused", "allowed"]
ZERO, MEAN, NATIVE = "zero", "mean", "native"
_CHOICES = (
    "'mean', the mean of training with a column that marks it: querywise.rankers.missing.MissingValues(ranker, "
    "policy='mean'), recommended(missing='mean') or the setting missing=mean; or 'native', the side that trees learn: "
    "LambdaMART(missing='native') or the setting missing=native"
)
ALLOW = (
    f"Or keep them with missing='allowed' and choose what the model puts in their place: {_CHOICES}. On the command "
    "line the setting does both."
)


def reading_for(policy: Json) -> Missing:
    """Whether a model of this policy takes missing values; a policy may be the value of a setting."""
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
        f"Feature {label} is missing in {counts[column]} of {rows} documents{others}, and this ranker has no policy "
        f"for it. Choose one: {_CHOICES}. Or fill them first."
    )
