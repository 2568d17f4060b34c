"""What [lin2011]_ says, on the data at hand: judged on the paper's own rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from querywise.evaluation.breakdown import Breakdown
from querywise.evaluation.compared import Compared
from querywise.evaluation.significance import equivalence_test
from querywise.reproduction.claims import Claim, claimed, untestable
from querywise.reproduction.lin2011_names import (
    GAINS,
    MEASURES,
    METHOD_NAMES,
    NAIVE,
    PRECISIONS,
    SELECT,
    SINGLE,
    TRANSFORM,
)
from querywise.reproduction.lin2011_sweep import Sweep
from querywise.reproduction.rows import gain_of, p_of

ALIKE = 0.01  # of MAP: the largest difference that counts as none
_RANK, _AROUND = 19, 5  # "around the 19th": within five places
_AGGREGATED = METHOD_NAMES[1:]


def claims_of(compared: Compared, swept: Sweep, difficulty: Breakdown) -> list[Claim]:
    """Every claim."""
    naive = gain_of(compared, NAIVE, SINGLE, "map")
    return [
        untestable("All three beat LETOR's rank-aggregation baselines (Table 1)", "those used other data"),
        claimed("Naive is worse than RankSVM in MAP", f"{naive:+.4f}", same=naive < 0,
                p=p_of(compared, NAIVE, SINGLE, "map")),
        _alike(compared),
        _mostly_better(compared),
        _best_in(compared, TRANSFORM, ("map",), "Transform has the best MAP (MQ2007)"),
        _best_in(compared, SELECT, PRECISIONS[:3], "SelectRanker has the best P@1, P@2 and P@5 (MQ2007)"),
        _best_in(compared, SELECT, GAINS, "SelectRanker has the best NDCG (MQ2007)"),
        *_about_selection(swept),
        *(_about_difficulty(difficulty, name) for name in _AGGREGATED),
        untestable("Misspelled queries gain (Table 4)", "no query text with known misspellings is at hand"),
    ]  # fmt: skip


def _alike(compared: Compared) -> Claim:
    gains = {name: gain_of(compared, name, SINGLE, "map") for name in _AGGREGATED}
    values = compared.evaluations
    return claimed(
        f"SelectRanker and Transform do not differ from RankSVM in MAP: within ±{ALIKE}",
        ", ".join(f"{name} {gain:+.4f}" for name, gain in gains.items()) + "; p of the test of equivalence",
        same=all(abs(gain) < ALIKE for gain in gains.values()),
        p=max(equivalence_test(values[name]["map"], values[SINGLE]["map"], ALIKE).p for name in _AGGREGATED),
        paper="no difference significant",
    )


def _mostly_better(compared: Compared) -> Claim:
    """Of every method, most differences are gains; p is the largest of theirs."""
    gains = {name: [each for each in MEASURES if gain_of(compared, name, SINGLE, each) > 0] for name in _AGGREGATED}
    here = "; ".join(f"{name} in {len(each)} of {len(MEASURES)} measures" for name, each in gains.items())
    return claimed(
        "SelectRanker and Transform are better than RankSVM in most measures (MQ2008)",
        here,
        same=all(len(each) > len(MEASURES) / 2 for each in gains.values()),
        p=max((p_of(compared, name, SINGLE, each) for name, known in gains.items() for each in known), default=None),
        paper="not significant",
    )


def _best_in(compared: Compared, name: str, measures: Sequence[str], claim: str) -> Claim:
    rivals = [rival for rival in (SINGLE, *METHOD_NAMES) if rival != name]
    gains = {each: {rival: gain_of(compared, name, rival, each) for rival in rivals} for each in measures}
    least = {each: min(found, key=lambda rival: found[rival]) for each, found in gains.items()}
    here = ", ".join(f"{each.upper()} {gains[each][rival]:+.4f} against {rival}" for each, rival in least.items())
    return claimed(
        claim,
        f"against the best other: {here}",
        same=all(gain > 0 for found in gains.values() for gain in found.values()),
        p=max(p_of(compared, name, rival, each) for each in measures for rival in rivals),
    )


def _about_selection(swept: Sweep) -> list[Claim]:
    upper, only = (np.array(swept.map[name]) for name in ("UpperBound", "RelevantOnly"))
    counts, level, rank = swept.clusters, swept.single, swept.single_rank
    gains = ", ".join(f"{value - level:+.4f} with {count}" for count, value in zip(counts[1:], only[1:], strict=True))
    return [
        claimed(
            "Routed by its true relevant documents, Naive beats RankSVM (RelevantOnly, Figure 2)",
            f"{gains} clusters",
            same=bool(np.all(only[1:] > level)),
            p=max(swept.relevant_only_p[1:]),
        ),
        claimed(
            "UpperBound leaves much room, the more the more clusters (Figure 2)",
            f"{upper[1]:.4f} with {counts[1]} clusters, {upper[-1]:.4f} with {counts[-1]}",
            same=bool(np.all(np.diff(upper) > 0) and upper[-1] > level),
            p=max(swept.upper_bound_p),
        ),
        claimed(
            f"RankSVM is reached at about the {_RANK}th best of 100 models (Figure 3; ±{_AROUND} places)",
            "never" if rank is None else f"at rank {rank}",
            same=rank is not None and abs(rank - _RANK) <= _AROUND,
        ),
    ]


def _about_difficulty(found: Breakdown, name: str) -> Claim:
    """Table 3: better where there are few relevant documents, worse where there are many."""
    claim = f"{name} is better on hard and normal queries and worse on easy ones (Table 3)"
    groups = {group.label.split(":")[0]: group for group in found.groups if group.label != "none"}
    wanted = {"hard": 1, "normal": 1, "easy": -1}
    if len(groups) < len(wanted):
        return untestable(claim, f"there are no {' and no '.join(sorted({*wanted} - {*groups}))} queries")
    gains = {label: group.means[name] - group.means[SINGLE] for label, group in groups.items()}
    here = ", ".join(f"{label} {gains[label]:+.4f} (p = {group.p[name]:.2f})" for label, group in groups.items())
    same = all(gains[label] * wanted[label] > 0 for label in gains)
    return claimed(claim, here, same=same, p=max(group.p[name] for group in groups.values()))
