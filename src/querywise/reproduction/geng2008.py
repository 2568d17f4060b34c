"""Query-dependent ranking by k nearest neighbours [geng2008]_: its comparison, its figures, its claims.

All methods use a ranking SVM; parameters are chosen on the validation part of each fold by MAP. Rows named *hinge* have
the paper's loss and weighting (hinge, every pair alike, no prior) with λ as chosen for the single model and two values
of k; the others ours. That loss shares no curvature: with more than 600 training queries it is given one k and 50
stored models. In the sweep over k there is no prior, as in the paper, and λ is the one validation chose for the single
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from querywise.contracts.forms import Linear
from querywise.data.folds import Fold, Folds
from querywise.data.judged import Candidates, Judged
from querywise.evaluation.analysis import change_ratios, class_shares, stability_bounds
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import tune, tune_or_fit
from querywise.methods import METHODS, Method
from querywise.report.figures import line_figure, plane_figure
from querywise.report.tables import Column, Table
from querywise.reproduction.claims import Claim, judged, p_text, write_findings
from querywise.reproduction.rows import FLAVOUR, fitting, gain_of, p_of, rows_table
from querywise.runtime.arrays import Floats
from querywise.runtime.files import atomic_text, make_folder
from querywise.runtime.progress import track

SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0)
FEWER = (10, 30)  # stored models, where not one per training query
KNN = ("knn-online", "knn-offline-1", "knn-offline-2")
SINGLE, CLASSES = "single", "query-classes"
PAPER = {"loss": "hinge", "pairs": "pair"}
_PAPER_K = (0.2, 0.5)
_MANY = 600  # training queries beyond which the paper's loss, which shares no curvature, is given less to do:
_FEWER_OF_MANY = 50  # stored models, and only the first k
_CURVE = tuple(f"ndcg@{position}" for position in range(1, 11))
_MAIN = "mean_ndcg@10"
_MEASURES = (*_CURVE, _MAIN, "map")
_SWEPT = ("ndcg@5", "ndcg@10", "map")
_FLAT = 0.05  # as in p < 0.05


def reproduce(folds: Folds, out: Path, *, reference: int | str | None = None) -> Path:
    """Write table.md, numbers.json and the figures into a folder; returns the table's path."""
    make_folder(out)
    parts = list(folds)
    classes = any(parts[0].train.classes)
    seen = _Seen()
    compared = compare(
        _fits(reference, classes=classes),
        parts,
        measures=_MEASURES,
        flavour=FLAVOUR,
        observe=seen.look,
    )
    swept = _sweep(parts, reference)
    stability = _stability(parts[0], reference)
    claims = _claims(compared, swept, seen)
    numbers = {
        "comparison": compared.as_json(),
        "sweep": swept,
        "stability": stability,
        "locality": seen.locality,
        "classifier_f1": seen.f1,
    }
    tables = [_table(compared), _sweep_table(swept), _stability_text(stability)]
    table = write_findings(out, numbers, tables, claims)
    _draw(out, compared, swept)
    return table


class _Seen:
    """What only the fitted rankers know: the classifier's F1, and how many neighbours are of a query's own class."""

    def __init__(self) -> None:
        self.f1: list[float] = []
        self._shares: list[Floats] = []
        self._chance: list[float] = []

    def look(self, fold: Fold, name: str, ranker: Any) -> None:
        if name == CLASSES:
            self.f1.append(ranker.f1_)
        if name == f"{KNN[0]}, no prior" and any(fold.test.classes):
            members = ranker.training_queries(fold.test.candidates)
            self._shares.append(class_shares(members, fold.train.classes, fold.test.classes))
            drawn = [_class_shares(part, fold.train) for part in (fold.train, fold.test)]
            self._chance.append(float(drawn[0] @ drawn[1]))

    @property
    def locality(self) -> dict[str, float] | None:
        """The share of neighbours of the same class, and what it would be by chance."""
        if not self._shares:
            return None
        return {"share": float(np.nanmean(np.concatenate(self._shares))), "chance": float(np.mean(self._chance))}


def _class_shares(part: Judged, train: Judged) -> Floats:
    """Which share of some queries is of each of the training queries' classes."""
    return np.array(
        [np.mean([each == name for each in part.classes]) for name in sorted(filter(None, {*train.classes}))]
    )


def _fits(reference: int | str | None, *, classes: bool) -> dict[str, Fit]:
    asked = {"reference": reference}
    fits = {SINGLE: fitting(SINGLE, {})}
    if classes:
        fits[CLASSES] = fitting(CLASSES, asked)
    for name in KNN:
        fits[f"{name}, no prior"] = fitting(name, {**asked, "prior_l2": 0.0})
        fits[f"{name}, prior"] = fitting(name, asked)
    metrics = {**METHODS[KNN[2]].grid, "view": ("top-mean", "learned")}
    fits[f"{KNN[2]}, prior, metric by validation"] = fitting(KNN[2], asked, metrics)
    for models in FEWER:
        fits[f"{KNN[2]}, prior, {models} models"] = fitting(KNN[2], {**asked, "models": models})
    fits[f"{SINGLE}, hinge"] = fitting(SINGLE, PAPER)
    for name in ([CLASSES] if classes else []) + list(KNN):
        fits[f"{name}, hinge"] = _by_the_paper(METHODS[name], asked)
    return fits


def _by_the_paper(method: Method, asked: dict[str, Any]) -> Fit:
    """A method with the paper's loss, λ from the single model's choice; k, where it has one, of two."""

    def fit(train: Judged, valid: Judged) -> Any:
        single = METHODS[SINGLE]
        l2 = tune_or_fit(single.build, single.grid, fixed=PAPER, train=train, valid=valid, flavour=FLAVOUR).parameters
        many = len(train) > _MANY
        fixed = {**PAPER, **asked, "l2": l2["l2"]}
        if many and method.name in KNN[1:]:
            fixed["models"] = _FEWER_OF_MANY
        grid = {"k": _PAPER_K[:1] if many else _PAPER_K} if "k" in method.settings else {}
        return tune_or_fit(method.build, grid, fixed=fixed, train=train, valid=valid, flavour=FLAVOUR)

    return fit


def _sweep(folds: Sequence[Fold], reference: int | str | None) -> dict[str, Any]:
    """Quality of every method, and change ratio of the offline ones, at every share k/m, over all test queries."""
    values: dict[str, list[list[Floats]]] = {name: [[] for _ in SHARES] for name in KNN}
    ratios: dict[str, list[list[Floats]]] = {name: [[] for _ in SHARES] for name in KNN[1:]}
    single = []
    for fold in track(folds, "Sweep over k"):
        tuned = tune(
            METHODS["single"].build, METHODS["single"].grid, train=fold.train, valid=fold.valid, flavour=FLAVOUR
        )
        single.append(_measured(tuned.ranker, fold))
        for place, share in enumerate(track(SHARES, "k")):
            trained = {}
            for name in KNN:
                ranker: Any = METHODS[name].build(k=share, reference=reference, **tuned.parameters).fit(fold.train)
                values[name][place].append(_measured(ranker, fold))
                trained[name] = ranker.training_queries(fold.test.candidates)
            for name in KNN[1:]:
                gammas = change_ratios(trained[name], trained[KNN[0]], fold.train.pairs)
                ratios[name][place].append(gammas)
    return {
        "shares": list(SHARES),
        "single": dict(zip(_SWEPT, np.concatenate(single).mean(axis=0).tolist(), strict=True)),
        "quality": {name: [_means(parts) for parts in each] for name, each in values.items()},
        "change_ratio": {
            name: [float(np.nanmean(np.concatenate(parts))) for parts in each] for name, each in ratios.items()
        },
        "undefined_change_ratios": {
            name: [int(np.isnan(np.concatenate(parts)).sum()) for parts in each] for name, each in ratios.items()
        },
    }


def _stability(fold: Fold, reference: int | str | None, *, queries: int = 20, l2: float = 1.0) -> dict[str, float]:
    """The bounds on the difference of losses between Online's and Offline-2's models, beside the real differences.

    The paper's loss and weighting: hinge, every pair alike, features as they are; the first test queries of a fold.
    """
    asked: dict[str, Any] = {"k": 0.3, "l2": l2, "loss": "hinge", "pairs": "pair", "scale": "none"}
    asked["reference"] = reference
    test = fold.test.select(range(min(queries, len(fold.test))))
    rankers: list[Any] = [METHODS[name].build(**asked).fit(fold.train) for name in ("knn-online", "knn-offline-2")]
    trained = [ranker.training_queries(test.candidates) for ranker in rankers]
    weights = [_weights(ranker, test.candidates) for ranker in rankers]
    train_pairs, test_pairs = _differences(fold.train), _differences(test)
    reach = max(float(np.max(np.einsum("ij,ij->i", each, each))) for each in (train_pairs, test_pairs) if len(each))
    theirs, ours = stability_bounds(trained[0], trained[1], fold.train.pairs, l2=l2, reach=reach)
    losses = [np.maximum(0.0, 1 - test_pairs @ each.T) for each in weights]
    real = np.abs(losses[0] - losses[1]).max(axis=0)
    return {
        "queries": len(test),
        "reach": reach,
        "paper_bound": float(np.nanmean(theirs)),
        "our_bound": float(np.mean(ours)),
        "largest_real_difference": float(real.max()),
        "mean_real_difference": float(np.abs(losses[0] - losses[1]).mean()),
        "share_within_our_bound": float(np.mean(real <= ours + 1e-9)),
    }


def _weights(ranker: Any, candidates: Candidates) -> Floats:
    """Every query's weights, the global ones where it has no model of its own."""
    answer = ranker.answer(candidates)
    forms = [answer.answering(query).form() for query in range(len(candidates))]
    return np.array([form.weights for form in forms if isinstance(form, Linear)])


def _differences(data: Judged) -> Floats:
    """x_a − x_b of every pair."""
    found = [np.zeros((0, data.candidates.features.shape[1]))]
    for query in range(len(data)):
        rows = data.candidates.rows(query)
        x, y = data.candidates.features[rows], data.labels[rows]
        above, below = np.nonzero(y[:, None] > y[None, :])
        found.append(x[above] - x[below])
    return np.concatenate(found)


def _stability_text(found: dict[str, float]) -> str:
    return (
        f"Stability, hinge loss, λ = 1, k = 30 % of m, {found['queries']:.0f} test queries: Online's and Offline-2's "
        f"models differ in loss on held-out pairs by {found['mean_real_difference']:.3f} on average and "
        f"{found['largest_real_difference']:.3f} at most; the paper's bound is {found['paper_bound']:.2f} on average, "
        f"ours {found['our_bound']:.2f}, and holds for {100 * found['share_within_our_bound']:.0f} % of the queries.\n"
    )


def _measured(ranker: Any, fold: Fold) -> Floats:
    return evaluate(ranker.predict(fold.test.candidates), fold.test, measures=_SWEPT, flavour=FLAVOUR).values


def _means(parts: Sequence[Floats]) -> dict[str, float]:
    return dict(zip(_SWEPT, np.concatenate(parts).mean(axis=0).tolist(), strict=True))


def _draw(out: Path, compared: Compared, swept: dict[str, Any]) -> None:
    shown = [SINGLE, *(name for name in (CLASSES,) if name in compared.names), *(f"{name}, prior" for name in KNN)]
    curves = {name: [compared.evaluations[name].mean()[measure] for measure in _CURVE] for name in shown}
    line_figure(
        out / "ndcg.svg", range(1, 11), curves, labels=("position", "NDCG"), title="NDCG at 1 to 10 (flavour letor4)"
    )
    percent = [100 * share for share in swept["shares"]]
    for measure in _SWEPT:
        line_figure(
            out / f"{measure.replace('@', '-')}-against-k.svg",
            percent,
            {name: [point[measure] for point in points] for name, points in swept["quality"].items()},
            level={SINGLE: swept["single"][measure]},
            labels=("k, % of the training queries", measure.upper()),
            title=f"{measure.upper()} against k, no prior",
        )
    line_figure(
        out / "change-ratio-against-k.svg",
        percent,
        swept["change_ratio"],
        labels=("k, % of the training queries", "mean change ratio γ"),
        title="Change ratio between a stored model's training pairs and Online's",
    )
    if compared.classes:
        first = compared.fold_of == 0
        places = np.array(compared.trained[f"{KNN[0]}, no prior"][0].extra.places)
        with atomic_text(out / "queries.svg") as file:
            file.write(plane_figure(places, {name: chosen[first] for name, chosen in compared.classes.items()}))


def _table(compared: Compared) -> str:
    """Every method's averages; p of MAP and of mean NDCG against the single model, and against QC if there is one."""
    shown = {each: each.upper() for each in ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10")}
    shown |= {_MAIN: "mean NDCG@1..10", "map": "MAP"}
    rivals = [name for name in (SINGLE, CLASSES) if name in compared.names]
    return rows_table(compared, shown, rivals, {_MAIN: "mean NDCG", "map": "MAP"}).markdown()


def _claims(compared: Compared, swept: dict[str, Any], seen: _Seen) -> list[Claim]:
    """What the paper says, method by method, on this data."""
    best = [_better(compared, f"{name}, no prior", f"{name}, prior") for name in KNN]
    claims = [
        _beats(compared, best, SINGLE, "All three KNN methods beat Single in mean NDCG (p < 0.05)"),
        *_about_classes(compared, best, seen),
        _alike(compared, best),
        *_about_k(swept),
    ]
    found = seen.locality
    here = "no classes" if found is None else f"{100 * found['share']:.0f} %, by chance {100 * found['chance']:.0f} %"
    nearer = None if found is None else found["share"] > 1.05 * found["chance"]
    claims.append(judged("Near queries are of the same class more often than by chance (Figure 1)", here, nearer))
    claims.append(judged("The change ratio is smaller on a larger collection", "one collection at a time", None))
    return claims


def _about_classes(compared: Compared, best: Sequence[str], seen: _Seen) -> list[Claim]:
    beaten, no_better = "All three beat QC (p < 0.05)", "QC is no better than Single"
    f1_claim = "QC's classifier reaches F1 of about 60 %"
    if CLASSES not in compared.names:
        return [judged(claim, "no classes", None) for claim in (beaten, no_better, f1_claim)]
    gain, p = gain_of(compared, CLASSES, SINGLE, _MAIN), p_of(compared, CLASSES, SINGLE, _MAIN)
    f1 = float(np.mean(seen.f1))
    return [
        _beats(compared, best, CLASSES, beaten),
        judged(no_better, f"{gain:+.4f}, {p_text(p)}", not (gain > 0 and p < _FLAT)),
        judged(f1_claim, f"{100 * f1:.0f} %", 0.5 <= f1 <= 0.7),
    ]


def _better(compared: Compared, one: str, other: str) -> str:
    """The variant that did better on validation data, in most folds."""
    wins = [a.valid_value >= b.valid_value for a, b in zip(compared.trained[one], compared.trained[other], strict=True)]
    return one if sum(wins) > len(wins) / 2 else other


def _beats(compared: Compared, names: Sequence[str], rival: str, claim: str) -> Claim:
    gains = [(gain_of(compared, name, rival, _MAIN), p_of(compared, name, rival, _MAIN)) for name in names]
    here = "; ".join(f"{name} {gain:+.4f}, {p_text(p)}" for name, (gain, p) in zip(names, gains, strict=True))
    return judged(claim, here, all(gain > 0 and p < _FLAT for gain, p in gains))


def _alike(compared: Compared, names: Sequence[str]) -> Claim:
    pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    ps = [p_of(compared, a, b, _MAIN) for a, b in pairs]
    return judged(
        "Online, Offline-1 and Offline-2 are alike", f"smallest p between two: {min(ps):.3f}", min(ps) >= _FLAT
    )


def _about_k(swept: dict[str, Any]) -> list[Claim]:
    shares = swept["shares"]
    peaks = {
        name: [shares[int(np.argmax([each[measure] for each in points]))] for measure in ("ndcg@5", "ndcg@10")]
        for name, points in swept["quality"].items()
    }
    first, second = (np.array(swept["change_ratio"][name]) for name in KNN[1:])
    lower = float(np.mean(first[:-1] <= second[:-1]))
    ends = (float(first[-1]), float(second[-1]))
    return [
        judged(
            "Quality is best at k of 20 to 50 % of m",
            "best NDCG@5 and @10 at "
            + ", ".join(f"{name} {100 * five:g} and {100 * ten:g} %" for name, (five, ten) in peaks.items()),
            all(0.2 <= share <= 0.5 for both in peaks.values() for share in both),
        ),
        judged(
            "Offline-1 changes less than Offline-2 (Figure 9)",
            f"at {100 * lower:.0f} % of the k below m",
            lower == 1.0,
        ),
        judged("The change ratio goes to 0 as k goes to m", f"at k = m: {ends[0]:.3f}, {ends[1]:.3f}", max(ends) == 0),
    ]


def _sweep_table(swept: dict[str, Any]) -> str:
    columns = [Column("k, % of m"), *(Column(f"MAP {name}", "value") for name in KNN)]
    columns += [Column(f"γ {name}", "value") for name in KNN[1:]]
    rows = [
        (f"{100 * share:g}", *(swept["quality"][name][place]["map"] for name in KNN),
         *(swept["change_ratio"][name][place] for name in KNN[1:]))
        for place, share in enumerate(swept["shares"])
    ]  # fmt: skip
    return Table(tuple(columns), tuple(rows), f"No prior; single reaches MAP {swept['single']['map']:.4f}.").markdown()
