"""What [lin2011]_ claims, judged on its own rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from querywise.evaluation.compare import Compared
from querywise.evaluation.rankings import Breakdown, by_difficulty, relevant_documents
from querywise.evaluation.significance import SIGNIFICANT
from reproduction.lin2011_sweep import ALONE, LEVEL, NAIVE, THEIRS, Sweep, swept_at
from reproduction.papers import p_text
from reproduction.verdicts import (
    Claim,
    Part,
    Values,
    alike,
    certain,
    claimed,
    column,
    paired,
    untestable,
    within,
)

RIVALS = ("rankboost", "listnet", "adarank, repeat")
PRECISIONS = tuple(f"p@{position}" for position in (1, 2, 5, 10))
GAINS = tuple(f"ndcg@{position}" for position in (1, 2, 5, 10))
MEASURES = ("map", *PRECISIONS, *GAINS, "mean_ndcg")
_PRECISE = "p@2"
ALIKE = 0.01  # of MAP: the largest difference that counts as none
_RANK, _AROUND = 19, 5  # "around the 19th": within five places
AGGREGATED = THEIRS[1:]
QUERIES = 784  # of MQ2008, about which some claims are
_SHARES = {"hard": 0.38, "normal": 0.31, "easy": 0.02}  # of its queries, as the paper has them
_OFF = 0.01  # by which a share may differ
_WELL, _BADLY = 0.8, 0.2  # average precision from which on, and up to which, RankSVM ranks a query well, and badly
_PAPERS_WORDS = {"1 to 3": "hard", "4 to 20": "normal", "more than 20": "easy"}  # by relevant documents


def _said(measure: str) -> str:
    return "mean NDCG" if measure == "mean_ndcg" else measure.upper()


def claims_of(swept: Sweep, difficulty: Breakdown, values: Values, *, mq2008: bool) -> list[Claim]:
    """Every claim. mq2008: whether the data is MQ2008."""
    naive = THEIRS[0]
    worse = paired(values, column(naive, "map"), column(ALONE, "map"), sign=-1)
    better = {name: paired(values, column(name, "map"), column(naive, "map")) for name in AGGREGATED}
    elsewhere = "MQ2007 is not at hand"
    return [
        untestable("All three beat LETOR's rank-aggregation baselines (Table 1)", "those used other data"),
        claimed(
            "SelectRanker and Transform are better than Naive in MAP (Table 1)",
            ", ".join(f"{name} {each.difference:+.4f}" for name, each in better.items()),
            [*better.values()],
        ),
        claimed("Naive is worse than RankSVM in MAP (Table 2)", f"{-worse.difference:+.4f}", [worse]),
        _alike(values),
        _not_surely_better(values),
        *_about_mq2008(values, known=mq2008),
        untestable("Transform has the best MAP (MQ2007)", elsewhere),
        untestable("SelectRanker has the best P@1, P@2 and P@5 (MQ2007)", elsewhere),
        untestable("SelectRanker has the best NDCG (MQ2007)", elsewhere),
        untestable(
            "17 / 47 / 21 % of the queries are hard / normal / easy, many have no relevant document (MQ2007, Figure 4)",
            elsewhere,
        ),
        *_about_selection(swept),
        *(each for name in AGGREGATED for each in _about_difficulty(difficulty, name, values)),
        _about_extremes(values),
        untestable("Misspelled queries gain (Table 4)", "no query text with known misspellings is at hand"),
        certain(
            "SelectRanker's time complexity is the largest of the three (§2.3)",
            "it scores by all models, as Transform does, and compares the divergence of each besides",
        ),
        untestable(
            "SelectRanker's further steps do not add too much to the response time (§2.3)",
            "no limit is named; the benchmarks time answers",
        ),
        untestable(
            "Filtering out local models that are not relevant is a key to improvement (§3.4, §4)",
            "the paper leaves it as future work and names no filter",
        ),
    ]


def _alike(values: Values) -> Claim:
    pairs = list(product(THEIRS, (ALONE, *RIVALS)))
    gains = {pair: paired(values, *(column(name, "map") for name in pair)).difference for pair in pairs}
    farthest = max(pairs, key=lambda pair: abs(gains[pair]))
    return claimed(
        f"All three are comparable to the global models: MAP within ±{ALIKE} (§4)",
        f"farthest: {farthest[0]} {gains[farthest]:+.4f} against {farthest[1]}; p of the test of equivalence",
        [alike(values, column(name, "map"), column(rival, "map"), ALIKE) for name, rival in pairs],
    )


def _not_surely_better(values: Values) -> Claim:
    """What the paper says of the significance of its gains."""
    ps = {pair: part.p or 0.0 for pair, part in _against_alone(values, THEIRS).items() if part.difference > 0}
    least = min(ps, key=lambda pair: ps[pair], default=None)
    here = "there is no gain" if least is None else f"the smallest of {len(ps)} p: {least[0]}, {_said(least[1])}"
    p = 1.0 if least is None else ps[least]
    return claimed(
        "No gain of the three over RankSVM is significant (Table 2; p from 0.05 up in every measure)",
        f"{here}, {p_text(p)}",
        [Part(p - SIGNIFICANT)],
    )


def _against_alone(values: Values, names: Sequence[str]) -> dict[tuple[str, str], Part]:
    """Every difference of some rows from RankSVM."""
    return {
        (name, each): paired(values, column(name, each), column(ALONE, each)) for name, each in product(names, MEASURES)
    }


def _about_mq2008(values: Values, *, known: bool) -> list[Claim]:
    most = "SelectRanker and Transform are better than RankSVM in most measures (MQ2008; more than half)"
    precise = "SelectRanker has the best P@2 of all, the global models among them (MQ2008)"
    others = "In every other measure a global model is the best (MQ2008)"
    gain = "SelectRanker's NDCG is better than RankSVM's (MQ2008)"
    shares = f"{' / '.join(f'{100 * each:.0f}' for each in _SHARES.values())} % of the queries are hard / normal / easy"
    shares += f" (MQ2008; ±{100 * _OFF:.0f} point)"
    if not known:
        why = "this is not MQ2008"
        return [untestable(each, why) for each in (most, precise, others, gain, shares)]
    parts = _against_alone(values, AGGREGATED)
    gains = {name: [each for each in MEASURES if parts[name, each].difference > 0] for name in AGGREGATED}
    said = "; ".join(f"{name} in {len(each)} of {len(MEASURES)} measures" for name, each in gains.items())
    by_ndcg = {each: parts[THEIRS[1], each] for each in (*GAINS, "mean_ndcg")}
    found = {word: float(values[word].mean()) for word in _SHARES}
    return [
        claimed(most, said, [Part(len(each) / len(MEASURES) - 0.5) for each in gains.values()],
                paper="not significant"),
        _best_in(values, THEIRS[1], [_PRECISE], precise),
        _others_best(values, others),
        claimed(gain, ", ".join(f"{_said(each)} {part.difference:+.4f}" for each, part in by_ndcg.items()),
                [*by_ndcg.values()], paper="not significant"),
        claimed(shares, " / ".join(f"{100 * each:.1f}" for each in found.values()) + " %",
                [within(each, _SHARES[word] - _OFF, _SHARES[word] + _OFF) for word, each in found.items()]),
    ]  # fmt: skip


def _others_best(values: Values, claim: str) -> Claim:
    """Of every measure but P@2: the best global model against the best of the three."""
    parts = {}
    for each in MEASURES:
        if each != _PRECISE:
            theirs, others = (
                max((column(name, each) for name in names), key=lambda name: float(values[name].mean()))
                for names in (THEIRS, (ALONE, *RIVALS))
            )
            parts[each] = paired(values, others, theirs)
    led = [_said(each) for each, part in parts.items() if part.difference <= 0]
    return claimed(claim, f"not in {', '.join(led)}" if led else "in all of them", [*parts.values()])


def _best_in(values: Values, name: str, measures: Sequence[str], claim: str) -> Claim:
    rivals = [rival for rival in (ALONE, *THEIRS, *RIVALS) if rival != name]
    parts = {
        (each, rival): paired(values, column(name, each), column(rival, each))
        for each, rival in product(measures, rivals)
    }
    least = {each: min(rivals, key=lambda rival: parts[each, rival].difference) for each in measures}
    here = ", ".join(
        f"{_said(each)} {parts[each, rival].difference:+.4f} against {rival}" for each, rival in least.items()
    )
    return claimed(claim, f"against the best other: {here}", [*parts.values()])


def _about_selection(swept: Sweep) -> list[Claim]:
    counts, rank, values = swept.clusters, swept.single_rank, swept.values
    only = {
        count: paired(values, swept_at("RelevantOnly", count), LEVEL, settings=len(counts) - 1) for count in counts[1:]
    }
    best = max(only, key=lambda count: only[count].difference)
    cleaner = {count: paired(values, swept_at("RelevantOnly", count), swept_at(NAIVE, count)) for count in counts[1:]}
    upper = {count: float(values[swept_at("UpperBound", count)].mean()) for count in (counts[1], counts[-1])}
    above = paired(values, swept_at("UpperBound", counts[-1]), LEVEL)
    room = "Always choosing the best local model leaves a lot of room (UpperBound, Figure 2)"
    here = (
        ", ".join(f"{mean:.4f} with {count}" for count, mean in upper.items())
        + f" clusters, {ALONE} {float(values[LEVEL].mean()):.4f}"
    )
    return [
        claimed(
            "Routed by its true relevant documents, Naive can beat RankSVM (RelevantOnly, Figure 2; at one number)",
            f"{', '.join(f'{each.difference:+.4f} with {count}' for count, each in only.items())} clusters; "
            f"p of the best, times {len(only)}",
            [only[best]],
        ),
        claimed(
            "The representation of queries is the main reason why Naive does not perform well (Figure 2; RelevantOnly "
            "above it at every number)",
            f"{', '.join(f'{each.difference:+.4f} with {count}' for count, each in cleaner.items())} clusters",
            [*cleaner.values()],
        ),
        certain(room, f"{here}; the best is chosen by the judgments themselves")
        if above.difference > 0
        else claimed(room, here, [above]),
        claimed(
            f"RankSVM is reached at about the {_RANK}th best of 100 models (Figure 3; ±{_AROUND} places)",
            "never" if rank is None else f"at rank {rank}",
            [Part(-1.0) if rank is None else within(rank, _RANK - _AROUND - 0.5, _RANK + _AROUND + 0.5)],
        ),
    ]


def of_difficulty(compared: Compared) -> Values:
    """1 for the queries of each kind, 0 for the others."""
    found = by_difficulty(relevant_documents(compared))
    return {word: found[label].astype(np.float64) for label, word in _PAPERS_WORDS.items()}


def _about_difficulty(found: Breakdown, name: str, values: Values) -> list[Claim]:
    """Table 3: better where there are few relevant documents, worse where there are many."""
    labels = {_PAPERS_WORDS[group.label] for group in found.groups if group.label in _PAPERS_WORDS}
    claims = []
    for words, sign, said in ((("hard", "normal"), 1, "better"), (("easy",), -1, "worse")):
        claim = f"{name.partition(',')[0]} is {said} on {' and '.join(words)} queries (Table 3)"
        missing = [word for word in words if word not in labels]
        if missing:
            claims.append(untestable(claim, f"there are no {' and no '.join(missing)} queries"))
            continue
        parts = {
            word: paired(values, column(name, "map"), column(ALONE, "map"), sign=sign, among=word) for word in words
        }
        here = ", ".join(f"{word} {sign * part.difference:+.4f} (p = {part.p:.2f})" for word, part in parts.items())
        claims.append(claimed(claim, here, [*parts.values()]))
    return claims


def _about_extremes(values: Values) -> Claim:
    """Table 4: what is very good or very bad goes towards the middle, whatever takes its place."""
    alone = values[column(ALONE, "map")]
    relevant = sum(values[word] for word in _PAPERS_WORDS.values()) > 0
    badly, well = relevant & (alone <= _BADLY), relevant & (alone >= _WELL)
    gains = {name: values[column(name, "map")] - alone for name in AGGREGATED}
    said = [
        f"{name} {' and '.join(f'{each[chosen].mean():+.4f}' for chosen in (badly, well) if chosen.any())}"
        for name, each in gains.items()
    ]
    return certain(
        f"Queries that RankSVM ranks badly gain, those it ranks well lose (Table 4; AP to {_BADLY}, from {_WELL})",
        f"{', '.join(said)}: chosen by RankSVM's own values, they can hardly but fall back to the mean",
    )
