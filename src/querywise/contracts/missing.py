"""What rankers say of missing values: their policy, which is stored with them.

"zero": what is absent in a file or request is 0, and NaN is refused. "mean": NaN becomes the mean of training, with a
column that marks it. "native": NaN goes to the side that trees have learned for it.
"""

from __future__ import annotations

from querywise.contracts.protocols import Fittable, QueryAdapter
from querywise.data.rows import ZERO, Missing, reading_for


def policy_of(ranker: Fittable | QueryAdapter) -> str:
    """What a ranker does with missing values."""
    policy: str = getattr(ranker, "missing_policy", ZERO)  # to ask for the contract takes 20 times as long in a request
    return policy


def missing_for(ranker: Fittable) -> Missing:
    """Whether a ranker takes documents with missing values."""
    return reading_for(policy_of(ranker))
