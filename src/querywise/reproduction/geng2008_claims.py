"""What [geng2008]_ says, on the data at hand: judged on the paper's own rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from querywise.evaluation.compared import Compared
from querywise.evaluation.significance import equivalence_test, paired_t_test
from querywise.reproduction.claims import Claim, claimed, untestable
from querywise.reproduction.geng2008_names import CLASSES, KNN, MAIN, SINGLE, by_paper
from querywise.reproduction.geng2008_sweep import ONLINE_HINGE, SWEPT, Sweep
from querywise.reproduction.rows import gain_of, p_of
from querywise.runtime.arrays import Floats

ALIKE = 0.01  # of mean NDCG: the largest difference that counts as none
_F1, _AROUND = 0.6, 0.05  # "about 60 %": within five points
_LOW, _MIDDLE, _HIGH = 0.05, 0.3, 0.85  # shares k/m that claims on k are tested at
_PAPERS_P = "< 0.05"
_THEIRS = tuple(map(by_paper, KNN))


def claims_of(compared: Compared, swept: Sweep, f1: Sequence[float], shares: Floats, chance: Floats) -> list[Claim]:
    """Every claim. f1: of QC's classifier by fold; shares: of neighbours of a query's class, chance: of all queries."""
    return [
        _beats(compared, by_paper(SINGLE), "All three KNN methods beat Single in mean NDCG"),
        *_about_classes(compared, f1),
        _alike(compared),
        *_about_k(swept),
        _nearer(shares, chance),
        _larger(swept),
    ]


def _about_classes(compared: Compared, f1: Sequence[float]) -> list[Claim]:
    beaten, no_better = "All three beat QC in mean NDCG", "QC is no better than Single in mean NDCG"
    about = f"QC's classifier reaches F1 of about {100 * _F1:.0f} % (±{100 * _AROUND:.0f} points)"
    if by_paper(CLASSES) not in compared.names:
        ps = (_PAPERS_P, "", "")
        return [
            untestable(claim, "there are no classes", paper=p)
            for claim, p in zip((beaten, no_better, about), ps, strict=True)
        ]
    rivals = by_paper(CLASSES), by_paper(SINGLE)
    gain, p = gain_of(compared, *rivals, MAIN), p_of(compared, *rivals, MAIN)
    mean = float(np.mean(f1))
    return [
        _beats(compared, by_paper(CLASSES), beaten),
        claimed(no_better, f"{gain:+.4f}", same=gain <= 0, p=p),
        claimed(about, f"{100 * mean:.0f} %", same=abs(mean - _F1) <= _AROUND),
    ]


def _beats(compared: Compared, rival: str, claim: str) -> Claim:
    gains = {name: gain_of(compared, by_paper(name), rival, MAIN) for name in KNN}
    p = max(p_of(compared, name, rival, MAIN) for name in _THEIRS)
    here = ", ".join(f"{name} {gain:+.4f}" for name, gain in gains.items())
    return claimed(claim, here, same=all(gain > 0 for gain in gains.values()), p=p, paper=_PAPERS_P)


def _alike(compared: Compared) -> Claim:
    values = [compared.evaluations[name][MAIN] for name in _THEIRS]
    pairs = [(a, b) for place, a in enumerate(values) for b in values[place + 1 :]]
    largest = max(abs(float(a.mean() - b.mean())) for a, b in pairs)
    return claimed(
        f"Online, Offline-1 and Offline-2 are alike: mean NDCG within ±{ALIKE}",
        f"largest difference {largest:.4f}; p of the test of equivalence",
        same=largest < ALIKE,
        p=max(equivalence_test(a, b, ALIKE).p for a, b in pairs),
    )


def _about_k(swept: Sweep) -> list[Claim]:
    low, middle, whole = (swept.values[ONLINE_HINGE][share] for share in (_LOW, _MIDDLE, 1.0))
    tests = {
        (measure, said): paired_t_test(middle[:, place], other[:, place])
        for place, measure in enumerate(SWEPT[:2])
        for said, other in ((f"{100 * _LOW:g} %", low), ("m", whole))
    }
    here = ", ".join(
        f"{measure.upper()} against {said} {each.difference:+.4f}" for (measure, said), each in tests.items()
    )
    rising = claimed(
        "Quality rises with k, is best at 20 to 50 % of m, and falls (Figure 8)",
        f"Online at k = {100 * _MIDDLE:g} %: {here}",
        same=all(each.difference > 0 for each in tests.values()),
        p=max(each.p for each in tests.values()),
    )
    first, second = (swept.ratios[name] for name in KNN[1:])
    below = [share for share in swept.shares if share < 1]
    apart = [_compared(second[share], first[share]) for share in below]
    lower = sum(gap > 0 for gap, _ in apart)
    less = claimed(
        "Offline-1 changes less than Offline-2 (Figure 9)",
        f"at {lower} of {len(below)} k below m",
        same=lower == len(below),
        p=max(p for _, p in apart),
    )
    falls = [_compared(each[_LOW], each[_HIGH]) for each in (first, second)]
    ends = [float(np.nanmean(each[1.0])) for each in (first, second)]
    points = ", ".join(
        f"{name} {' '.join(f'{np.nanmean(each[share]):.3f}' for share in (_LOW, _HIGH, 1.0))}"
        for name, each in zip(KNN[1:], (first, second), strict=True)
    )
    to_zero = claimed(
        "The change ratio goes to 0 as k goes to m (Figure 9)",
        f"at k = {100 * _LOW:g} %, {100 * _HIGH:g} % and m: {points}",
        same=max(ends) == 0 and all(gap > 0 for gap, _ in falls),
        p=max(p for _, p in falls),
    )
    return [rising, less, to_zero]


def _nearer(shares: Floats, chance: Floats) -> Claim:
    claim = "Near queries are of the same class more often than by chance (Figure 1)"
    known = ~np.isnan(shares)
    if not known.any():
        return untestable(claim, "there are no classes")
    found = paired_t_test(shares[known], chance[known])
    here = f"{100 * shares[known].mean():.1f} %, by chance {100 * chance[known].mean():.1f} %"
    return claimed(claim, here, same=found.difference > 0, p=found.p)


def _larger(swept: Sweep) -> Claim:
    """γ with a quarter of the training queries above that with half, and that above γ with all."""
    steps = [_compared(*pair) for each in swept.by_parts.values() for pair in ((each[0], each[1]), (each[1], each[2]))]
    here = "; ".join(
        f"{name} {', '.join(f'{np.nanmean(part):.2f}' for part in each)}" for name, each in swept.by_parts.items()
    )
    return claimed(
        "The change ratio is smaller on a larger collection (Figure 9)",
        f"with a quarter, half and all training queries: {here}",
        same=all(gap > 0 for gap, _ in steps),
        p=max(p for _, p in steps),
    )


def _compared(ours: Floats, theirs: Floats) -> tuple[float, float]:
    """The mean difference over the queries where both are known, and its p."""
    known = ~np.isnan(ours) & ~np.isnan(theirs)
    found = paired_t_test(ours[known], theirs[known])
    return found.difference, found.p
