"""Query-dependent ranking by k nearest neighbours [geng2008]_: the comparison, quality and change ratio against k.

All methods use a ranking SVM; parameters are chosen on the validation part of each fold by MAP. In the sweep over k
there is no prior, as in the paper, and λ is the one validation chose for the single model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from querywise.arrays import Floats
from querywise.data.folds import Fold, Folds
from querywise.data.groups import Candidates, Judged
from querywise.errors import DataError
from querywise.evaluation.analysis import change_ratios, stability_bounds
from querywise.evaluation.compare import Compared, Fit, compare
from querywise.evaluation.evaluate import evaluate
from querywise.files import atomic_text
from querywise.methods import METHODS, Method
from querywise.progress import track
from querywise.rankers.knn import models_of
from querywise.report.figures import line_figure
from querywise.tuning import tune, tune_or_fit

FLAVOUR = "letor4"
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0)
FEWER = (10, 30)  # stored models, where not one per training query
KNN = ("knn-online", "knn-offline-1", "knn-offline-2")
_CURVE = tuple(f"ndcg@{position}" for position in range(1, 11))
_MEASURES = (*_CURVE, "mean_ndcg@10", "map")
_SWEPT = ("ndcg@5", "ndcg@10", "map")


def reproduce(folds: Folds, out: Path, *, reference: int | str | None = None) -> Path:
    """Write table.md, numbers.json and the figures into a folder; returns the table's path."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{out}: the folder cannot be made ({error.strerror}).") from None
    parts = list(folds)
    compared = compare(_fits(reference), track(parts, "Folds"), measures=_MEASURES, flavour=FLAVOUR)
    swept = _sweep(parts, reference)
    stability = _stability(parts[0], reference)
    numbers = {"comparison": compared.as_json(), "sweep": swept, "stability": stability}
    with atomic_text(out / "numbers.json") as file:
        json.dump(numbers, file, indent=1)
        file.write("\n")
    _draw(out, compared, swept)
    with atomic_text(out / "table.md") as file:
        file.write("\n".join([_table(compared), _sweep_table(swept), _stability_text(stability)]))
    return out / "table.md"


def _fits(reference: int | str | None) -> dict[str, Fit]:
    def fitting(method: Method, fixed: dict[str, Any]) -> Fit:
        return lambda train, valid: (
            tune_or_fit(method.build, method.grid, fixed=fixed, train=train, valid=valid, flavour=FLAVOUR).ranker
        )

    fits = {"single": fitting(METHODS["single"], {})}
    for name in KNN:
        fits[f"{name}, no prior"] = fitting(METHODS[name], {"reference": reference, "prior_l2": 0.0})
        fits[f"{name}, prior"] = fitting(METHODS[name], {"reference": reference})
    plain = METHODS["knn-offline-2"]
    metrics = replace(plain, grid={**plain.grid, "view": ("top-mean", "learned")})
    fits["knn-offline-2, prior, metric by validation"] = fitting(metrics, {"reference": reference})
    for models in FEWER:
        fits[f"knn-offline-2, prior, {models} models"] = fitting(plain, {"reference": reference, "models": models})
    return fits


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
    asked = {"k": 0.3, "l2": l2, "loss": "hinge", "pairs": "pair", "scale": "none", "reference": reference}
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
    models, index, everyone = models_of(ranker, candidates)
    return np.array([everyone.weights_ if number < 0 else models.weights[number] for number in index])


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
    shown = [compared.names[0], *(f"{name}, prior" for name in KNN)]
    curves = {name: [compared.evaluations[name].mean()[measure] for measure in _CURVE] for name in shown}
    line_figure(
        out / "ndcg.svg", range(1, 11), curves, labels=("position", "NDCG"), title="NDCG at 1 to 10 (flavour letor4)"
    )
    percent = [100 * share for share in swept["shares"]]
    for measure in ("ndcg@5", "ndcg@10", "map"):
        line_figure(
            out / f"{measure.replace('@', '-')}-against-k.svg",
            percent,
            {name: [point[measure] for point in points] for name, points in swept["quality"].items()},
            level={"single": swept["single"][measure]},
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


def _table(compared: Compared) -> str:
    """Every method's averages; p of MAP and of mean NDCG against the single model."""
    shown = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "mean_ndcg@10", "map")
    lines = [
        "| method | NDCG@1 | NDCG@3 | NDCG@5 | NDCG@10 | mean NDCG@1..10 | MAP | p (mean NDCG) | p (MAP) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in compared.names:
        means = compared.evaluations[name].mean()
        tests = [compared.against_baseline(name, measure).p for measure in ("mean_ndcg@10", "map")]
        p = ["", ""] if name == compared.names[0] else [f"{value:.3f}" for value in tests]
        lines.append("| " + " | ".join([name, *(f"{means[measure]:.4f}" for measure in shown), *p]) + " |")
    count = len(compared.evaluations[compared.names[0]])
    return "\n".join([*lines, "", f"{count} test queries, flavour {FLAVOUR}; p: paired t-test against single.", ""])


def _sweep_table(swept: dict[str, Any]) -> str:
    head = "| k, % of m | " + " | ".join(f"MAP {name}" for name in KNN) + " | " + " | ".join(f"γ {n}" for n in KNN[1:])
    lines = [head + " |", "|---" * (1 + len(KNN) + len(KNN) - 1) + "|"]
    for place, share in enumerate(swept["shares"]):
        maps = [f"{swept['quality'][name][place]['map']:.4f}" for name in KNN]
        gammas = [f"{swept['change_ratio'][name][place]:.3f}" for name in KNN[1:]]
        lines.append("| " + " | ".join([f"{100 * share:g}", *maps, *gammas]) + " |")
    return "\n".join([*lines, "", f"No prior; single reaches MAP {swept['single']['map']:.4f}.", ""])
