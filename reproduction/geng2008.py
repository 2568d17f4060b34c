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
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.data.judged import Judged
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.rankings import class_shares
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import Tuned, tune_or_fit
from querywise.locality.neighborhoods import Everyone, Nearest, Search
from querywise.methods import METHODS
from querywise.rankers.neighbors import fitted_view
from querywise.report.tables import Table
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached
from querywise.runtime.files import make_folder
from querywise.runtime.values import JsonObject, Settings
from reproduction.geng2008_sweep import (
    CLASSES,
    GAMMA,
    KNN,
    MAIN,
    ONLINE_HINGE,
    PARTS,
    SINGLE,
    SWEPT,
    Sweep,
    at_share,
    by_part,
    stability,
    stability_text,
    sweep,
    sweep_table,
)
from reproduction.papers import (
    FLAVOUR,
    NO_BACK_OFF,
    PAPER,
    by_paper,
    fitting,
    line_figure,
    p_text,
    plane_figure,
    rows_table,
    tests_of,
    write_findings,
)
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
    values_of,
    within,
)

ALIKE = 0.01  # of mean NDCG: the largest difference that counts as none
_ALMOST = 9  # "almost always": so many of the ten positions
_LOW, _MIDDLE, _HIGH = 0.05, 0.3, 0.85  # shares k/m that claims on k are tested at
_PAPERS_P = "< 0.05"
NEAREST = (1, 5, 10)
SAME, BY_CHANCE = "share of the same class", "all"
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
    values = {**values_of(compared), **swept.as_values(), **seen.as_values()}
    claims = claims_of(values, swept, seen.f1, found)
    queries = compared.judged.candidates.query_ids
    return write_findings(out, numbers, tables, claims, quick=quick, queries=queries, values=values)


def claims_of(values: Values, swept: Sweep, f1: Sequence[float], stable: JsonObject) -> list[Claim]:
    """Every claim. f1: of QC's classifier by fold. stable: what `stability` found."""
    return [
        _beats(values, SINGLE, "All three KNN methods beat Single in mean NDCG"),
        _almost_always(values, SINGLE, _positions(SINGLE)),
        *_about_classes(values, f1),
        _alike(values),
        _rises_and_falls(values),
        certain("With k = m KNN is the same as Single (§4.2.2)", "all models then have the same pairs"),
        *_about_ratios(swept, values),
        _larger(swept, values),
        *_nearer(values, f1),
        *_about_theory(stable),
    ]


def _positions(rival: str) -> str:
    said = {SINGLE: "Single", CLASSES: "QC"}[rival]
    return f"All three almost always beat {said}, NDCG@1 to @10 (Figure 7; at {_ALMOST} of {len(_CURVE)} or more)"


def _about_classes(values: Values, f1: Sequence[float]) -> list[Claim]:
    beaten, no_better = "All three beat QC in mean NDCG", "QC is no better than Single in mean NDCG"
    about = "That is mainly because QC's classifier errs: its F1 is about 60 %"
    if not f1:
        ps = {beaten: _PAPERS_P}
        claims = (beaten, _positions(CLASSES), no_better, about)
        return [untestable(claim, "there are no classes", paper=ps.get(claim, "")) for claim in claims]
    lower = paired(values, *(column(by_paper(name), MAIN) for name in (CLASSES, SINGLE)), sign=-1)
    return [
        _beats(values, CLASSES, beaten),
        _almost_always(values, CLASSES, _positions(CLASSES)),
        claimed(no_better, f"{-lower.difference:+.4f}", [lower]),
        untestable(about, f"the classifier and its classes are others, and its F1 here is {100 * np.mean(f1):.0f} %"),
    ]


def _almost_always(values: Values, rival: str, claim: str) -> Claim:
    """At how many positions each is above a rival."""
    above = {
        name: sum(
            float(values[column(by_paper(name), each)].mean()) > float(values[column(by_paper(rival), each)].mean())
            for each in _CURVE
        )
        for name in KNN
    }
    here = f"{', '.join(f'{name} at {count}' for name, count in above.items())} of {len(_CURVE)}"
    return claimed(claim, here, [Part(count - _ALMOST + 0.5) for count in above.values()])


def _about_theory(stable: JsonObject) -> list[Claim]:
    """Sections 3.2.2, 3.3.3 and 3.3.4."""
    found: dict[str, Any] = dict(stable)
    left: Sequence[dict[str, Any]] = found["one_pair_left_out"]
    changes = "; ".join(f"{each['largest_change']:.4f} of {each['bound']:.4f} at p = {each['pairs']}" for each in left)
    bound, largest = found["paper_bound"], found["largest_loss"]
    empty = f", and empty: no loss is above {largest:.2f}" if bound >= largest else ""
    steady = "Ranking SVM has the leave-one-instance-out stability τ(p) = κ²/(λp) (Definition 1, §3.3.4)"
    here = f"a loss changes by at most {changes}"
    if not left:
        first = untestable(steady, "there are too few pairs")
    elif all(each["bound"] >= largest for each in left):
        first = certain(steady, f"{here}; no loss is above {largest:.2f}, so that τ(p) bounds nothing")
    else:
        first = claimed(steady, here, [Part(each["bound"] - each["largest_change"]) for each in left])
    return [
        first,
        certain(
            "Losses differ by at most τ(min(p₁, p₂)) (p₁ + p₂ − 2Δ) (Theorem 1)",
            f"a theorem; with that τ the bound is {bound:.2f} on average here{empty}",
        ),
        untestable(
            "Answering by the Offline methods takes about as long as by Single (Table 1)",
            "no limit is named; the benchmarks time answers by Offline-2",
        ),
        untestable(
            "Training the Offline methods takes about k (k/m)^(c − 1) times as long as Single (§3.3.3)",
            "our local models are trained together, not one by one",
        ),
        untestable(
            "Training a model for each query online is not affordable in practice (§1)",
            "no limit is named; the benchmarks time it",
        ),
    ]


def _beats(values: Values, rival: str, claim: str) -> Claim:
    parts = {name: paired(values, column(by_paper(name), MAIN), column(by_paper(rival), MAIN)) for name in KNN}
    here = ", ".join(f"{name} {part.difference:+.4f} ({p_text(part.p or 0.0)})" for name, part in parts.items())
    return claimed(claim, here, [*parts.values()], paper=_PAPERS_P)


def _alike(values: Values) -> Claim:
    names = [column(by_paper(name), MAIN) for name in KNN]
    parts = [alike(values, ours, theirs, ALIKE) for ours, theirs in combinations(names, 2)]
    return claimed(
        f"Online, Offline-1 and Offline-2 are alike: mean NDCG within ±{ALIKE}",
        f"largest difference {ALIKE - min(part.difference for part in parts):.4f}; p of the test of equivalence",
        parts,
    )


def _rises_and_falls(values: Values) -> Claim:
    """Figure 8, of Online at a low, a middle and the largest k."""

    def online(share: float, measure: str) -> str:
        return at_share(ONLINE_HINGE, share, measure)

    tests = {
        (measure, said): paired(values, online(_MIDDLE, measure), online(other, measure))
        for measure in SWEPT[:2]
        for said, other in ((f"{100 * _LOW:g} %", _LOW), ("m", 1.0))
    }
    here = ", ".join(
        f"{measure.upper()} against {said} {each.difference:+.4f}" for (measure, said), each in tests.items()
    )
    return claimed(
        f"Quality rises with k, is best at 20 to 50 % of m, and falls (Figure 8; tested at {100 * _MIDDLE:g} % "
        f"against {100 * _LOW:g} % and m)",
        f"Online at k = {100 * _MIDDLE:g} %: {here}",
        [*tests.values()],
    )


def _about_ratios(swept: Sweep, values: Values) -> list[Claim]:
    """Figure 9."""
    first, second = KNN[1:]
    below = [share for share in swept.shares if share < 1]
    apart = [paired(values, at_share(second, share, GAMMA), at_share(first, share, GAMMA)) for share in below]
    lower = sum(part.difference > 0 for part in apart)
    less = claimed("Offline-1 changes less than Offline-2 (Figure 9)", f"at {lower} of {len(below)} k below m", apart)
    points = ", ".join(
        f"{name} {' '.join(f'{np.nanmean(swept.ratios[name][share]):.3f}' for share in (_LOW, _HIGH, 1.0))}"
        for name in KNN[1:]
    )
    to_zero = "The change ratio goes to 0 as k goes to m (Figure 9)"
    largest = max(float(np.nanmean(swept.ratios[name][share])) for name in KNN[1:] for share in swept.shares)
    ends = max(float(np.nanmax(swept.ratios[name][1.0])) for name in KNN[1:])
    found = f"at k = {100 * _LOW:g} %, {100 * _HIGH:g} % and m: {points}"
    return [
        untestable(
            "The change ratio is always small (Figure 9)", f"no limit is named; its mean is at most {largest:.3f} here"
        ),
        less,
        certain(to_zero, f"{found}; with k = m all models have the same pairs")
        if ends == 0
        else claimed(to_zero, found, [within(ends, -1.0, 0.0)]),
    ]


def _nearer(values: Values, f1: Sequence[float]) -> list[Claim]:
    """Figure 1 is about near queries: the nearest ones alone, not the k that were chosen to learn from."""
    counts = " and ".join((", ".join(map(str, NEAREST[:-1])), str(NEAREST[-1])))
    near = f"With high probability a query is of its neighbours' class (Figure 1; the {counts} nearest against chance)"
    mixed = "Queries of different classes are mixed, and no hard boundary separates them (Figure 1)"
    if column(SAME, str(NEAREST[0])) not in values:
        return [untestable(claim, "there are no classes") for claim in (near, mixed)]
    means = {count: 100 * float(np.nanmean(values[column(SAME, str(count))])) for count in NEAREST}
    chance = 100 * float(np.nanmean(values[column(SAME, BY_CHANCE)]))
    return [
        claimed(
            near,
            f"{', '.join(f'{mean:.1f} % of the {count}' for count, mean in means.items())}, by chance {chance:.1f} %; "
            "how high is not named",
            [paired(values, column(SAME, str(count)), column(SAME, BY_CHANCE)) for count in NEAREST],
        ),
        untestable(mixed, f"no limit is named; a classifier's F1 is {100 * np.mean(f1):.0f} %"),
    ]


def _larger(swept: Sweep, values: Values) -> Claim:
    """γ with a quarter of the training queries above that with half, and that above γ with all."""
    steps = [
        paired(values, by_part(name, PARTS[place]), by_part(name, PARTS[place + 1]))
        for name in swept.by_parts
        for place in range(len(PARTS) - 1)
    ]
    here = "; ".join(
        f"{name} {', '.join(f'{np.nanmean(part):.2f}' for part in each)}" for name, each in swept.by_parts.items()
    )
    claim = "The change ratio is smaller on a larger collection (Figure 9)"
    return claimed(claim, f"with a quarter, half and all training queries: {here}", steps)


class _Seen:
    """What only the fitted rankers know: the classifier's F1, and how many near queries are of a query's own class."""

    def __init__(self) -> None:
        self.f1: list[float] = []
        self._shares: list[Floats] = []

    def look(self, fold: Fold, name: str, ranker: Any) -> None:
        """Called with every fitted ranker."""
        if name == by_paper(CLASSES):
            self.f1.append(ranker.f1_)
        if name == by_paper(KNN[0]) and any(fold.test.classes):
            view = ranker.locality_.view_
            places = [view.points(part.candidates) for part in (fold.test, fold.train)]
            self._shares.append(near_shares(places[0], places[1], fold))

    def as_values(self) -> Values:
        """Of every test query with a class, the share of its nearest training queries, and of all, that are of it."""
        if not self._shares:
            return {}
        names = [column(SAME, str(each)) for each in (*NEAREST, BY_CHANCE)]
        return dict(zip(names, np.concatenate(self._shares).T, strict=True))

    @property
    def locality(self) -> dict[str, float] | None:
        """The means of these shares."""
        found = {name: float(np.nanmean(each)) for name, each in self.as_values().items()}
        return found or None


def near_shares(points: Floats, training: Floats, fold: Fold) -> Floats:
    """Queries × (1, 5, 10 nearest, all): the share of training queries of the own class; NaN without a class.

    points, training: places of the test and of the training queries; those equally distant share a place.
    """
    found = [Nearest(min(count, len(training))).fit(training).weights(points) for count in NEAREST]
    found.append(Everyone().fit(training).weights(points))
    return np.column_stack([class_shares(each, fold.train.classes, fold.test.classes) for each in found])


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
            level={SINGLE: swept.level[measure]},
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
