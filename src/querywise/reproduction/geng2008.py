"""Query-dependent ranking by k nearest neighbours [geng2008]_: its comparison, its figures, its claims.

The paper's own rows come first, *hinge*: its loss and weighting (hinge, every pair alike, no prior), λ as validation
chooses it for the single model, k and T as validation chooses them for Online; the stored models have the same k and T.
They are tested against `single, hinge` and `query-classes, hinge`, and all claims are judged on them. Our rows follow,
tested against `single` and `query-classes`: squared hinge, every query alike, λ, k, T and, where it says *prior*, μ
chosen by MAP on the validation part. *radius*, *cosine*, *kd_tree* are what the paper names as future work; the radii
tried are the median distances of training queries to their k-th neighbour, for the k that are tried.

Less is tried where there is much data: with more than 600 training queries λ is that of the single model, T is 50, and
the hinge loss, which shares no curvature, tries k of 30 and 60 % and has 5, 30 and 100 % in the figure. A quick run has
the first fold and one value of every parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.data.judged import Judged
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.rankings import class_shares
from querywise.evaluation.significance import equivalence_test, paired_t_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import Tuned, tune_or_fit
from querywise.locality.neighborhoods import Search
from querywise.methods import METHODS
from querywise.rankers.neighbors import fitted_view
from querywise.report.tables import Table
from querywise.reproduction.geng2008_sweep import (
    CLASSES,
    KNN,
    MAIN,
    ONLINE_HINGE,
    PAPER,
    SINGLE,
    SWEPT,
    Sweep,
    by_paper,
    stability,
    stability_text,
    sweep,
    sweep_table,
)
from querywise.reproduction.papers import (
    FLAVOUR,
    NO_BACK_OFF,
    Claim,
    claimed,
    fitting,
    gain_of,
    line_figure,
    p_of,
    plane_figure,
    rows_table,
    tests_of,
    untestable,
    write_findings,
)
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached
from querywise.runtime.files import make_folder
from querywise.runtime.values import JsonObject, Settings

ALIKE = 0.01  # of mean NDCG: the largest difference that counts as none
_F1, _AROUND = 0.6, 0.05  # "about 60 %": within five points
_LOW, _MIDDLE, _HIGH = 0.05, 0.3, 0.85  # shares k/m that claims on k are tested at
_PAPERS_P = "< 0.05"
_THEIRS = tuple(map(by_paper, KNN))
FEWER = (10, 30)  # stored models, where not one per training query
MANY = 600  # training queries beyond which less is tried
TOP = 50  # the paper's T
_GRID: Mapping[str, Sequence[Any]] = {"l2": (0.1, 1.0, 10.0), "k": (0.1, 0.3, 0.6), "top": (10, TOP)}
_PRIOR = {"prior_l2": (0.0, 2.0)}
_K_OF_MANY = (0.3, 0.6)  # of the hinge loss
_CURVE = tuple(f"ndcg@{position}" for position in range(1, 11))
_MEASURES = (*_CURVE, MAIN, "map")


def reproduce(folds: Folds, out: Path, *, reference: int | str | None = None, quick: bool = False) -> Path:
    """Write table.md, numbers.json and the figures into a folder; returns the table's path.

    quick: the shape of every table from one fold; its numbers are not to be quoted.
    """
    make_folder(out)
    parts = [folds[0]] if quick else list(folds)
    seen = _Seen()
    fits = _Rows(reference, quick=quick).all(classes=any(parts[0].train.classes))
    compared = compare(fits, parts, measures=_MEASURES, flavour=FLAVOUR, observe=seen.look)
    swept = sweep(parts, reference, quick=quick, many=len(parts[0].train) > MANY)
    found = stability(parts[0], reference, queries=5 if quick else 20)
    numbers: JsonObject = {
        "comparison": compared.as_json(),
        "tests": {
            name: found
            for rows, rivals in _tested(compared)
            for name, found in tests_of(compared, rows, rivals, (MAIN, "map")).items()
        },
        "chosen": {name: compared.parameters(name) for name in compared.names},
        "lists": _lists(compared),
        "sweep": swept.as_json(),
        "stability": found,
        "locality": seen.locality,
        "classifier_f1": seen.f1,
    }
    _draw(out, compared, swept)
    tables = [*_tables(compared), sweep_table(swept), stability_text(found)]
    claims = claims_of(compared, swept, seen.f1, seen.shares, seen.chance)
    return write_findings(out, numbers, tables, claims, quick=quick)


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


class _Seen:
    """What only the fitted rankers know: the classifier's F1, and how many neighbours are of a query's own class."""

    def __init__(self) -> None:
        self.f1: list[float] = []
        self._shares: list[Floats] = []
        self._chance: list[Floats] = []

    def look(self, fold: Fold, name: str, ranker: Any) -> None:
        """Called with every fitted ranker."""
        if name == by_paper(CLASSES):
            self.f1.append(ranker.f1_)
        if name == by_paper(KNN[0]) and any(fold.test.classes):
            members = ranker.training_queries(fold.test.candidates)
            self._shares.append(class_shares(members, fold.train.classes, fold.test.classes))
            self._chance.append(np.array([np.mean([each == own for each in fold.train.classes])
                                          for own in fold.test.classes]))  # fmt: skip

    @property
    def shares(self) -> Floats:
        """Of every test query with a class, the share of its neighbours that are of the same."""
        return np.concatenate([np.zeros(0), *self._shares])

    @property
    def chance(self) -> Floats:
        """The same share among all training queries."""
        return np.concatenate([np.zeros(0), *self._chance])

    @property
    def locality(self) -> dict[str, float] | None:
        """The share of neighbours of the same class, and what it would be by chance."""
        known = ~np.isnan(self.shares)
        if not known.any():
            return None
        return {"share": float(self.shares[known].mean()), "chance": float(self.chance[known].mean())}


class _Rows:
    """How every row of the comparison is fitted."""

    def __init__(self, reference: int | str | None, *, quick: bool) -> None:
        self.asked: Settings = {"reference": reference}
        self.quick = quick

    def all(self, *, classes: bool) -> dict[str, Fit]:
        """The paper's rows, then ours."""
        fits: dict[str, Fit] = {by_paper(SINGLE): self._single_by_paper}
        if classes:
            fits[by_paper(CLASSES)] = self._classes_by_paper
        fits |= {by_paper(name): partial(self._knn_by_paper, name) for name in KNN}
        fits[SINGLE] = fitting(SINGLE, {}, self._few(METHODS[SINGLE].grid))
        if classes:
            fits[CLASSES] = fitting(CLASSES, self.asked, self._few(METHODS[CLASSES].grid))
        for name in KNN:
            fits[f"{name}, no prior"] = self._ours(name, {"prior_l2": 0.0})
            fits[f"{name}, prior"] = self._ours(name, {}, _PRIOR)
        fits[f"{KNN[0]}, no prior, radius"] = self._by_radius
        fits[f"{KNN[0]}, no prior, cosine"] = self._ours(KNN[0], {"prior_l2": 0.0, "top": TOP, "metric": "cosine"})
        fits[f"{KNN[0]}, no prior, kd_tree"] = self._ours(KNN[0], {"prior_l2": 0.0, "search": "kd_tree"})
        metrics = {**_PRIOR, "view": ("top-mean", "learned")}
        fits[f"{KNN[2]}, prior, metric by validation"] = self._ours(KNN[2], {"top": TOP}, metrics)
        for models in FEWER[:1] if self.quick else FEWER:
            fits[f"{KNN[2]}, prior, {models} models"] = self._ours(KNN[2], {"top": TOP, "models": models}, _PRIOR)
        return fits

    def _few(self, grid: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """A grid as it is; quickly, one value of every parameter."""
        return {name: tuple(values[1::9] or values) if self.quick else values for name, values in grid.items()}

    def _single_by_paper(self, train: Judged, valid: Judged) -> Tuned[Any]:
        return self._single(train, valid, PAPER)

    def _single(self, train: Judged, valid: Judged, loss: Settings) -> Tuned[Any]:
        """The single model with the best λ, found once in a fold."""
        method = METHODS[SINGLE]
        return cached(
            "geng2008 single", (loss, self.quick), train,
            lambda: tune_or_fit(
                method.build, self._few(method.grid), fixed=loss, train=train, valid=valid, flavour=FLAVOUR
            ),
        )  # fmt: skip

    def _classes_by_paper(self, train: Judged, valid: Judged) -> Tuned[Any]:
        fixed = {**PAPER, **self.asked, "l2": self._single_by_paper(train, valid).parameters["l2"]}
        return tune_or_fit(METHODS[CLASSES].build, {}, fixed=fixed, train=train, valid=valid, flavour=FLAVOUR)

    def _online_by_paper(self, train: Judged, valid: Judged) -> Tuned[Any]:
        """Online with the paper's loss, its k and T chosen; found once in a fold."""
        grid = self._few({"k": _GRID["k"], "top": _GRID["top"]})
        if len(train) > MANY:
            grid = {"k": _K_OF_MANY, "top": (TOP,)}
        fixed = {**PAPER, **self.asked, **NO_BACK_OFF, "l2": self._single_by_paper(train, valid).parameters["l2"]}
        return cached(
            "online", (PAPER, self.asked, self.quick), train,
            lambda: tune_or_fit(
                METHODS[KNN[0]].build, grid, fixed=fixed, train=train, valid=valid, flavour=FLAVOUR
            ),
        )  # fmt: skip

    def _knn_by_paper(self, name: str, train: Judged, valid: Judged) -> Tuned[Any]:
        online = self._online_by_paper(train, valid)
        if name == KNN[0]:
            return online
        return tune_or_fit(METHODS[name].build, {}, fixed=online.parameters, train=train, valid=valid, flavour=FLAVOUR)

    def _ours(self, name: str, fixed: Settings, more: Mapping[str, Sequence[Any]] | None = None) -> Fit:
        """A method with our loss: the grid, and more where there is more to choose."""

        def fit(train: Judged, valid: Judged) -> Any:
            grid = {**self._grid(train, valid), **({} if more is None else self._few(more))}
            tried = {setting: values for setting, values in grid.items() if setting not in fixed}
            every = {**self.asked, **NO_BACK_OFF, **fixed}
            return tune_or_fit(METHODS[name].build, tried, fixed=every, train=train, valid=valid, flavour=FLAVOUR)

        return fit

    def _grid(self, train: Judged, valid: Judged) -> dict[str, Sequence[Any]]:
        grid = self._few(_GRID)
        if len(train) > MANY:
            grid |= {"l2": (self._single(train, valid, {}).parameters["l2"],), "top": (TOP,)}
        return grid

    def _by_radius(self, train: Judged, valid: Judged) -> Tuned[Any]:
        """Online with a radius instead of k: of the median distances to the k-th neighbour."""
        method, grid = METHODS[KNN[0]], self._grid(train, valid)
        view = fitted_view(method.build(**self.asked, top=TOP).view, train, self._single(train, valid, {}).ranker)  # type: ignore[attr-defined]
        places = view.points(train.candidates)
        radii = [_median_distance(places, share) for share in grid["k"]]
        fixed = {**self.asked, **NO_BACK_OFF, "prior_l2": 0.0, "top": TOP}
        tried = {"l2": grid["l2"], "radius": radii}
        return tune_or_fit(method.build, tried, fixed=fixed, train=train, valid=valid, flavour=FLAVOUR)


def _median_distance(places: Floats, share: float) -> float:
    """The median, over the training queries, of the distance to the k-th nearest, itself included."""
    count = max(1, round(share * len(places)))
    last = Search(places).nearest(places, count)[:, -1]
    return float(np.median(np.linalg.norm(places - places[last], axis=1)))


def _lists(compared: Compared) -> dict[str, int]:
    """How many test queries there are, and how many whose top T documents are all they have."""
    sizes = compared.judged.candidates.sizes
    return {"queries": len(sizes), "no_longer_than_top": int(np.sum(sizes <= TOP))}


def _tested(compared: Compared) -> list[tuple[list[str], list[str]]]:
    """The paper's rows and ours, each with what it is tested against."""
    theirs = [name for name in compared.names if name.endswith("hinge")]
    ours = [name for name in compared.names if name not in theirs]
    found = ((theirs, [by_paper(SINGLE), by_paper(CLASSES)]), (ours, [SINGLE, CLASSES]))
    return [(names, [name for name in rivals if name in names]) for names, rivals in found]


def _tables(compared: Compared) -> list[Table | str]:
    """The paper's rows and ours: averages; p of MAP and of mean NDCG against Single and QC with the same loss."""
    shown = {each: each.upper() for each in ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10")}
    shown |= {MAIN: "mean NDCG@1..10", "map": "MAP"}
    tables = [
        rows_table(compared, shown, rivals, {MAIN: "mean NDCG", "map": "MAP"}, names)
        for names, rivals in _tested(compared)
    ]
    lists = _lists(compared)
    said = f"{lists['no_longer_than_top']} of {lists['queries']} test queries have at most {TOP} documents"
    return [*tables, f"{said}: their top {TOP} is the whole list.\n"]


def _draw(out: Path, compared: Compared, swept: Sweep) -> None:
    shown = [name for name in compared.names if name.endswith("hinge")]
    curves = {name: [compared.evaluations[name].mean()[measure] for measure in _CURVE] for name in shown}
    title = "NDCG at 1 to 10, the paper's loss (flavour letor4)"
    line_figure(out / "ndcg.svg", range(1, 11), curves, labels=("position", "NDCG"), title=title)
    percent = [100 * share for share in swept.shares]
    for measure in SWEPT:
        line_figure(
            out / f"{measure.replace('@', '-')}-against-k.svg",
            percent,
            {name: [point[measure] for point in points] for name, points in swept.quality.items()},
            level={SINGLE: swept.single[measure]},
            labels=("k, % of the training queries", measure.upper()),
            title=f"{measure.upper()} against k, no prior",
        )
    line_figure(
        out / "change-ratio-against-k.svg",
        percent,
        swept.change_ratio,
        labels=("k, % of the training queries", "mean change ratio γ"),
        title="Change ratio between a stored model's training pairs and Online's",
    )
    if compared.classes:
        first = compared.fold_of == 0
        places = np.array(compared.trained[by_paper(KNN[0])][0].extra.places)
        plane_figure(out / "queries.svg", places, {name: own[first] for name, own in compared.classes.items()})
