"""Significance: paired tests over the queries that both rankers scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats

SIGNIFICANT = 0.05
_DRAWS = 10_000
_Key = TypeVar("_Key")
_BLOCK = 4_000_000  # numbers drawn at a time
_FEW = 13  # queries up to which all signs are enumerated if there are ties
TEST_NAMES = {"t": "paired t-test", "wilcoxon": "Wilcoxon signed-rank test", "randomisation": "randomisation test"}


@dataclass(frozen=True)
class Comparison:
    """Our values against theirs, query by query. `direction`: the sign of the test statistic, 1 for ours."""

    test: str
    difference: float
    p: float
    wins: int
    ties: int
    losses: int
    direction: int


def paired_t_test(ours: Floats, theirs: Floats) -> Comparison:
    """Return Student's paired t-test, two-sided. Identical values are no evidence: p = 1.

    >>> result = paired_t_test(np.array([0.5, 0.7, 0.9]), np.array([0.4, 0.5, 0.6]))
    >>> result.wins, round(result.p, 4)
    (3, 0.0742)
    """
    from scipy.special import stdtr  # scipy.stats takes a second to import

    gain = _gains(ours, theirs)
    count = len(gain)
    spread = float(gain.std(ddof=1)) if count > 1 else 0.0
    mean = float(gain.mean()) if count else 0.0
    if spread > 0:
        p = float(2 * stdtr(count - 1, -abs(mean) / (spread / np.sqrt(count))))
    else:
        p = 1.0 if mean == 0 or count < 2 else 0.0
    return _compared("paired t-test", gain, p)


def equivalence_test(ours: Floats, theirs: Floats, bound: float) -> Comparison:
    """Return two one-sided paired t-tests: a small p means that the mean difference lies within ±bound.

    A p above 0.05 of an ordinary test says that no difference was seen; a p below 0.05 of this one, that none is large.

    >>> equivalence_test(np.array([0.5, 0.7, 0.9]), np.array([0.5, 0.7, 0.9]), 0.01).p
    0.0
    """
    if not bound > 0:
        raise DataError(
            f"equivalence_test(bound={bound}) must be above 0: the largest difference that counts as no difference."
        )
    from scipy.special import stdtr

    gain = _gains(ours, theirs)
    count = len(gain)
    if count < 2:
        return _compared("equivalence", gain, 1.0)
    mean, error = float(gain.mean()), float(gain.std(ddof=1)) / np.sqrt(count)
    room = bound - abs(mean)
    p = float(stdtr(count - 1, -room / error)) if error > 0 else float(room <= 0)
    return _compared("equivalence", gain, p)


def wilcoxon_test(ours: Floats, theirs: Floats) -> Comparison:
    """Return Wilcoxon's signed-rank test, two-sided, without queries that do not differ; p = 1 if none differs."""
    gain = _gains(ours, theirs)
    if not gain.any():
        return _compared("Wilcoxon signed-rank", gain, 1.0)
    from scipy.stats import rankdata, wilcoxon

    moved = gain[gain != 0]
    ranks = rankdata(np.abs(moved))
    ties = len(np.unique(ranks)) < len(gain)  # queries that do not differ are ties too
    p = _exact(ranks, moved > 0) if ties and len(gain) <= _FEW else float(wilcoxon(gain).pvalue)
    return _compared("Wilcoxon signed-rank", gain, p, direction=float(np.sign(moved) @ ranks))


def _exact(ranks: Floats, up: Bools) -> float:
    """Return the exact two-sided p of the signed-rank test, over all possible signs of these ranks."""
    observed, sums = ranks[up].sum(), np.zeros(1)
    for rank in ranks:
        sums = np.concatenate([sums, sums + rank])
    return min(1.0, 2 * float(min(np.mean(sums <= observed), np.mean(sums >= observed))))


def randomisation_test(ours: Floats, theirs: Floats, *, seed: int = 0, draws: int = _DRAWS) -> Comparison:
    """Return Fisher's randomization test, two-sided: how often random signs give as large a mean difference.

    The observed assignment counts as one of the draws, so that p is never 0.
    """
    gain = _gains(ours, theirs)
    observed = abs(gain.sum())
    rng = np.random.default_rng(seed)
    as_large = 0
    for block in _blocks(draws, len(gain)):
        signs = rng.integers(0, 2, (block, len(gain)), dtype=np.int8) * 2.0 - 1.0
        as_large += int(np.sum(np.abs(signs @ gain) >= observed * (1 - 1e-12)))
    return _compared("randomisation", gain, (1 + as_large) / (1 + draws))


TESTS: dict[str, Callable[[Floats, Floats], Comparison]] = {
    "t": paired_t_test,
    "wilcoxon": wilcoxon_test,
    "randomisation": randomisation_test,
}


def find_test(name: str) -> Callable[[Floats, Floats], Comparison]:
    """Return the test of that name."""
    if name not in TESTS:
        raise DataError(f"Unknown test {name!r}. Known: {', '.join(TESTS)}.")
    return TESTS[name]


def bootstrap_interval(
    ours: Floats, theirs: Floats, *, confidence: float = 0.95, seed: int = 0, draws: int = _DRAWS
) -> tuple[float, float]:
    """Return the bootstrap percentile interval of the mean difference, resampling queries."""
    gain = _gains(ours, theirs)
    if not len(gain):
        return 0.0, 0.0
    rng = np.random.default_rng(seed)
    means = np.concatenate(
        [gain[rng.integers(0, len(gain), (block, len(gain)))].mean(axis=1) for block in _blocks(draws, len(gain))]
    )
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def effect_size(ours: Floats, theirs: Floats) -> float:
    """Return Cohen's d of paired values: the mean difference over its standard deviation; 0 if it never varies."""
    gain = _gains(ours, theirs)
    spread = float(gain.std(ddof=1)) if len(gain) > 1 else 0.0
    return float(gain.mean()) / spread if spread > 0 else 0.0


def holm(ps: Sequence[float]) -> list[float]:
    """Return Holm-corrected p-values: calling those below α significant keeps the family-wise error at α.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(ps, kind="stable")
    corrected = [0.0] * len(ps)
    least = 0.0
    for place, number in enumerate(order.tolist()):
        least = max(least, min(1.0, (len(ps) - place) * ps[number]))
        corrected[number] = least
    return corrected


class Corrected(NamedTuple):
    """A paired test, and its p after Holm's correction for all tests made with it."""

    found: Comparison
    p_holm: float

    @property
    def numbers(self) -> tuple[float, float, float]:
        """The difference, p, and Holm-corrected p."""
        return self.found.difference, self.found.p, self.p_holm

    @property
    def is_significant(self) -> bool:
        """Whether the corrected p is below 0.05."""
        return self.p_holm < SIGNIFICANT

    @property
    def side(self) -> int:
        """1 if the first is significantly higher by both the mean and the test, -1 if the other is, else 0."""
        lower, higher = sorted((np.sign(self.found.difference), self.found.direction))
        return int(lower) if self.is_significant and lower == higher else 0


def corrected(found: Mapping[_Key, Comparison]) -> dict[_Key, Corrected]:
    """Apply Holm's correction to paired tests."""
    ps = holm([each.p for each in found.values()])
    return {key: Corrected(each, p) for (key, each), p in zip(found.items(), ps, strict=True)}


def _gains(ours: Floats, theirs: Floats) -> Floats:
    if ours.shape != theirs.shape:
        raise DataError(f"Paired values must cover the same queries: {ours.size} against {theirs.size}.")
    gain: Floats = ours - theirs
    return gain


def _compared(test: str, gain: Floats, p: float, *, direction: float | None = None) -> Comparison:
    leaning = float(gain.sum()) if direction is None else direction
    return Comparison(
        test=test,
        difference=float(gain.mean()) if len(gain) else 0.0,
        p=p,
        wins=int(np.sum(gain > 0)),
        ties=int(np.sum(gain == 0)),
        losses=int(np.sum(gain < 0)),
        direction=int(np.sign(leaning)),
    )


def _blocks(draws: int, width: int) -> list[int]:
    size = max(1, min(draws, _BLOCK // max(width, 1)))
    return [min(size, draws - first) for first in range(0, draws, size)]
