"""Quality and change ratio against k and against the number of training queries (Figures 8 and 9 of [geng2008]_).

No prior. λ is the one validation chose for the single model with the same loss, T the paper's 50. With the paper's loss
there is Online alone: a model per test query, not one per training query, for every k. The change ratio γ does not
depend on the loss. "A larger collection" is all training queries against two halves and four quarters of them, drawn
at random once; γ of a test query is the mean over the halves, or quarters, known where each of them has one, and k is
20 % of the training queries there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.forms import Linear
from querywise.data.folds import Fold
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.tuning import tune
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.methods import METHODS
from querywise.report.tables import Cell, Column, Table
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.progress import track
from querywise.runtime.values import JsonObject, Settings
from reproduction.papers import FLAVOUR, NO_BACK_OFF, PAPER, by_paper, pair_differences
from reproduction.verdicts import Values, column

KNN = ("knn-online", "knn-offline-1", "knn-offline-2")
SINGLE, CLASSES = "single", "query-classes"
MAIN = "mean_ndcg@10"
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0)
FEW_SHARES = (0.05, 0.3, 0.85, 1.0)  # of a quick run
HINGE_SHARES = (0.05, 0.3, 1.0)  # of the hinge loss where there is much data: its models are fitted one by one
SWEPT = ("ndcg@5", "ndcg@10", "map")
PARTS = (4, 2, 1)  # quarters, halves, all
_SHARE_OF_PARTS = 0.2
_Values = dict[str, dict[float, Floats]]
_COUNTS = (50, 100, 200)  # pairs to learn from
_LEFT_OUT = 10  # of them, one at a time
_EXACT = 1e-9  # relative objective gap: the change by one pair is small
ONLINE_HINGE = by_paper(KNN[0])
GAMMA = "change ratio"


def at_share(name: str, share: float, measure: str) -> str:
    """The column of a method at a share k/m."""
    return column(name, f"k = {100 * share:g} %", measure)


def by_part(name: str, parts: int) -> str:
    """The column of a method's γ where the training queries come in so many parts."""
    return column(name, f"training queries in {parts}", GAMMA)


@dataclass(frozen=True)
class Sweep:
    """Per test query: measures of the single model and of every method at every share k/m; γ there and by parts.

    values: method → share → queries × measures. ratios: method → share → γ of every query, NaN where undefined.
    by_parts: method → γ of every query for quarters, halves and all.
    """

    shares: tuple[float, ...]
    single: Floats
    values: dict[str, dict[float, Floats]]
    ratios: dict[str, dict[float, Floats]]
    by_parts: dict[str, list[Floats]]

    def as_values(self) -> Values:
        """Everything, by the names of its columns."""
        found = {column(f"{SINGLE} of the sweep", each): self.single[:, place] for place, each in enumerate(SWEPT)}
        for name, shares in self.values.items():
            for share, each in shares.items():
                found |= {at_share(name, share, measure): each[:, place] for place, measure in enumerate(SWEPT)}
        for name in self.ratios:
            found |= {at_share(name, share, GAMMA): each for share, each in self.ratios[name].items()}
            found |= {by_part(name, part): each for part, each in zip(PARTS, self.by_parts[name], strict=True)}
        return found

    @property
    def level(self) -> dict[str, float]:
        """Means of the single model."""
        return dict(zip(SWEPT, self.single.mean(axis=0).tolist(), strict=True))

    @property
    def quality(self) -> dict[str, list[dict[str, float]]]:
        """Means of the methods that have every share."""
        return {
            name: [dict(zip(SWEPT, found[share].mean(axis=0).tolist(), strict=True)) for share in self.shares]
            for name, found in self.values.items()
            if len(found) == len(self.shares)
        }

    @property
    def change_ratio(self) -> dict[str, list[float]]:
        """Mean γ at every share."""
        return {name: [float(np.nanmean(found[share])) for share in self.shares] for name, found in self.ratios.items()}

    def as_json(self) -> JsonObject:
        """Means, and how many γ are undefined."""
        means = {
            name: {
                f"{share:g}": dict(zip(SWEPT, each.mean(axis=0).tolist(), strict=True)) for share, each in found.items()
            }
            for name, found in self.values.items()
        }
        undefined = {
            name: [int(np.isnan(found[share]).sum()) for share in self.shares] for name, found in self.ratios.items()
        }
        return {
            "shares": list(self.shares),
            "single": self.level,
            "quality": means,
            "change_ratio": self.change_ratio,
            "undefined_change_ratios": undefined,
            "change_ratio_by_parts": {
                name: {str(parts): float(np.nanmean(each)) for parts, each in zip(PARTS, found, strict=True)}
                for name, found in self.by_parts.items()
            },
        }


def sweep(folds: Sequence[Fold], reference: int | str | None, *, quick: bool, many: bool) -> Sweep:
    """Everything over all test queries; many: less of the hinge loss."""
    shares = FEW_SHARES if quick else SHARES
    hinge = HINGE_SHARES if many else shares
    found = [_of_fold(fold, reference, shares, hinge) for fold in track(folds, "k")]
    names = (ONLINE_HINGE, *KNN)
    return Sweep(
        shares,
        np.concatenate([single for single, *_ in found]),
        {name: {s: np.concatenate([each[1][name][s] for each in found]) for s in found[0][1][name]} for name in names},
        {name: {s: np.concatenate([each[2][name][s] for each in found]) for s in shares} for name in KNN[1:]},
        {
            name: [np.concatenate([each[3][name][part] for each in found]) for part in range(len(PARTS))]
            for name in KNN[1:]
        },
    )


def _of_fold(
    fold: Fold, reference: int | str | None, shares: Sequence[float], hinge_shares: Sequence[float]
) -> tuple[Floats, _Values, _Values, dict[str, list[Floats]]]:
    """One fold: the single model's measures, those of every method, and the change ratios."""
    ours, theirs = (_tuned_l2(fold, loss) for loss in ({}, PAPER))
    values: _Values = {name: {} for name in (ONLINE_HINGE, *KNN)}
    ratios: _Values = {name: {} for name in KNN[1:]}
    for share in track(shares, "k"):
        trained = {}
        for name in KNN:
            ranker: Any = METHODS[name].build(k=share, reference=reference, l2=ours, **NO_BACK_OFF).fit(fold.train)
            values[name][share] = _measured(ranker, fold)
            trained[name] = ranker.training_queries(fold.test.candidates)
        for name in KNN[1:]:
            ratios[name][share] = change_ratios(trained[name], trained[KNN[0]], fold.train.pairs)
    for share in hinge_shares:
        online = METHODS[KNN[0]].build(k=share, reference=reference, l2=theirs, **PAPER, **NO_BACK_OFF).fit(fold.train)
        values[ONLINE_HINGE][share] = _measured(online, fold)
    single = _measured(METHODS[SINGLE].build(l2=ours).fit(fold.train), fold)
    return single, values, ratios, _by_parts(fold, reference, ours)


def _tuned_l2(fold: Fold, loss: Settings) -> float:
    """λ as validation chooses it for the single model."""
    method = METHODS[SINGLE]
    grid = {**method.grid, **{name: (value,) for name, value in loss.items()}}
    chosen: Any = tune(method.build, grid, train=fold.train, valid=fold.valid, flavour=FLAVOUR).parameters["l2"]
    return float(chosen)


def _by_parts(fold: Fold, reference: int | str | None, l2: float) -> dict[str, list[Floats]]:
    """γ of every test query where there are a quarter, half and all of the training queries."""
    turned = np.random.default_rng(0).permutation(len(fold.train))
    found: dict[str, list[Floats]] = {name: [] for name in KNN[1:]}
    for count in PARTS:
        parts = [fold.train.select(np.sort(each)) for each in np.array_split(turned, count)]
        gammas = [_ratios_of(part, fold, reference, l2) for part in parts if part.pairs.any()]
        for name in KNN[1:]:
            found[name].append(np.mean([each[name] for each in gammas], axis=0))
    return found


def _ratios_of(train: Judged, fold: Fold, reference: int | str | None, l2: float) -> dict[str, Floats]:
    asked: dict[str, Any] = {"k": _SHARE_OF_PARTS, "reference": reference, "l2": l2, "tolerance": None, **NO_BACK_OFF}
    trained = {}
    for name in KNN:
        ranker: Any = METHODS[name].build(**asked).fit(train)
        trained[name] = ranker.training_queries(fold.test.candidates)
    return {name: change_ratios(trained[name], trained[KNN[0]], train.pairs) for name in KNN[1:]}


def _measured(ranker: Any, fold: Fold) -> Floats:
    return evaluate(ranker, fold.test, measures=SWEPT, flavour=FLAVOUR).values


def sweep_table(swept: Sweep) -> str:
    """Figures 8 and 9 in numbers, and γ by the number of training queries."""
    names = (ONLINE_HINGE, *KNN)
    columns = [Column("k, % of m"), *(Column(f"MAP {name}", "value") for name in names)]
    columns += [Column(f"γ {name}", "value") for name in KNN[1:]]
    rows: list[tuple[Cell, ...]] = []
    for place, share in enumerate(swept.shares):
        quality = [swept.values[name].get(share) for name in names]
        cells: list[Cell] = [None if each is None else float(each.mean(axis=0)[SWEPT.index("map")]) for each in quality]
        rows.append((f"{100 * share:g}", *cells, *(swept.change_ratio[name][place] for name in KNN[1:])))
    said = f"No prior; single reaches MAP {swept.level['map']:.4f}."
    table = Table(tuple(columns), tuple(rows), said).markdown()
    parts: list[tuple[Cell, ...]] = [
        (label, *(float(np.nanmean(swept.by_parts[name][place])) for name in KNN[1:]))
        for place, label in enumerate(("a quarter", "half", "all"))
    ]
    headings = (Column("of the training queries"), *(Column(f"γ {name}", "value") for name in KNN[1:]))
    sizes = Table(headings, tuple(parts), "Change ratio at k = 20 % of the training queries.").markdown()
    return f"{table}\n{sizes}"


def stability(fold: Fold, reference: int | str | None, *, queries: int, l2: float = 1.0) -> JsonObject:
    """The bounds on the difference of losses between Online's and Offline-2's models, and Definition 1, both checked.

    The paper's loss and weighting: hinge, every pair alike, features as they are; the first test queries of a fold.
    """
    asked: dict[str, Any] = {"k": 0.3, "l2": l2, "loss": "hinge", "pairs": "pair", "scale": "none"}
    asked |= {"reference": reference, **NO_BACK_OFF}
    test = fold.test.select(range(min(queries, len(fold.test))))
    rankers: list[Any] = [METHODS[name].build(**asked).fit(fold.train) for name in ("knn-online", "knn-offline-2")]
    trained = [ranker.training_queries(test.candidates) for ranker in rankers]
    weights = [_weights(ranker, test.candidates) for ranker in rankers]
    train_pairs, test_pairs = pair_differences(fold.train), pair_differences(test)
    reach = max(float(np.max(np.einsum("ij,ij->i", each, each))) for each in (train_pairs, test_pairs) if len(each))
    theirs, ours = stability_bounds(trained[0], trained[1], fold.train.pairs, l2=l2, reach=reach)
    losses = [_losses(test_pairs, each) for each in weights]
    real = np.abs(losses[0] - losses[1]).max(axis=0)
    return {
        "queries": len(test),
        "reach": reach,
        "paper_bound": float(np.nanmean(theirs)),
        "our_bound": float(np.mean(ours)),
        "largest_loss": float(max(each.max() for each in losses)),
        "largest_real_difference": float(real.max()),
        "mean_real_difference": float(np.abs(losses[0] - losses[1]).mean()),
        "share_within_our_bound": float(np.mean(real <= ours + 1e-9)),
        "one_pair_left_out": _one_left_out(train_pairs, test_pairs, l2, reach),
    }


def _one_left_out(train: Floats, test: Floats, l2: float, reach: float) -> list[JsonObject]:
    """Definition 1 at several numbers of pairs: the largest change of a loss when one pair is left out, and τ(p)."""
    drawn = np.random.default_rng(0).permutation(len(train))
    found: list[JsonObject] = []
    for count in (each for each in _COUNTS if each <= len(train)):
        pairs = train[drawn[:count]]
        whole = _losses(test, _model(pairs, l2)[None, :])
        others = [_model(np.delete(pairs, left, axis=0), l2) for left in range(min(_LEFT_OUT, count))]
        change = np.abs(_losses(test, np.array(others)) - whole)
        found.append({"pairs": count, "largest_change": float(change.max()), "bound": reach / (l2 * count)})
    return found


def _model(differences: Floats, l2: float) -> Floats:
    """The weights learned from some pairs: of each a query of two documents, x_a − x_b above 0."""
    count, width = differences.shape
    features = np.zeros((2 * count, width))
    features[::2] = differences
    ids = tuple(map(str, range(count)))
    data = Judged(Candidates(features, 2 * np.arange(count + 1), ids), np.tile([1, 0], count))
    return RankSVM(l2, loss="hinge", pairs="pair", scale="none", tolerance=_EXACT).fit(data).weights_


def _losses(differences: Floats, weights: Floats) -> Floats:
    """Pairs × models: the hinge loss."""
    found: Floats = np.maximum(0.0, 1 - differences @ weights.T)
    return found


def _weights(ranker: Any, candidates: Candidates) -> Floats:
    """Every query's weights, the global ones where it has no model of its own."""
    answer = ranker.answer(candidates)
    forms = [answer.answering(query).form() for query in range(len(candidates))]
    return np.array([form.weights for form in forms if isinstance(form, Linear)])


def stability_text(found: JsonObject) -> str:
    """What was found, in words."""
    said: dict[str, Any] = dict(found)
    left: Sequence[dict[str, Any]] = said["one_pair_left_out"]
    changes = "; ".join(f"{each['largest_change']:.4f} of {each['bound']:.4f} at p = {each['pairs']}" for each in left)
    held = all(each["largest_change"] <= each["bound"] for each in left)
    least, largest = min(said["paper_bound"], said["our_bound"]), said["largest_loss"]
    empty = f"Both are empty: no loss here is above {largest:.2f}. " if least >= largest else ""
    return (
        f"Stability, hinge loss, λ = 1, k = 30 % of m, {said['queries']} test queries: Online's and Offline-2's "
        f"models differ in loss on held-out pairs by {said['mean_real_difference']:.3f} on average and "
        f"{said['largest_real_difference']:.3f} at most; the paper's bound, κ²γ/λ by its Equation 3, is "
        f"{said['paper_bound']:.2f} on average, ours {said['our_bound']:.2f}, and holds for "
        f"{100 * said['share_within_our_bound']:.0f} % of the queries. {empty}"
        f"Definition 1, one of p training pairs left out: the loss on a held-out pair changes by at most {changes}, "
        f"the second number being τ(p) = κ²/(λp); it {'holds' if held else 'does not hold'}.\n"
    )


def change_ratios(ours: csr_array, theirs: csr_array, pairs: Ints) -> Floats:
    """γ = (p₁ + p₂ − 2Δ) / min(p₁, p₂) of two models' training pairs, row by row [geng2008]_.

    A row of each says which training queries a model was trained on, 1 or, where a place is shared, a part of it; Δ
    counts the pairs they share. Undefined, and NaN, where a model has no pair.

    >>> change_ratios(csr_array([[1.0, 1.0, 0.0]]), csr_array([[0.0, 1.0, 1.0]]), np.array([4, 6, 2]))
    array([0.75])
    """
    if ours.shape != theirs.shape:
        raise DataError(f"The two tables cover other queries: {ours.shape} against {theirs.shape}.")
    first, second = _parts(ours), _parts(theirs)
    counts = pairs.astype(np.float64)
    p1, p2 = np.asarray(first @ counts).ravel(), np.asarray(second @ counts).ravel()
    shared = np.asarray(first.minimum(second) @ counts).ravel()
    least = np.minimum(p1, p2)
    return np.where(least > 0, (p1 + p2 - 2 * shared) / np.where(least > 0, least, 1.0), np.nan)


def stability_bounds(
    ours: csr_array, theirs: csr_array, pairs: Ints, *, l2: float, reach: float
) -> tuple[Floats, Floats]:
    """Two bounds on how much the loss on any pair can differ between two hinge models, row by row.

    The paper's is κ² γ / λ [geng2008]_; the one that holds for the mean over pairs is (κ²/λ) ‖v₁ − v₂‖₁, v the share
    of each training query in a model's pairs. They are equal where p₁ = p₂. reach: κ², which bounds ‖x_a − x_b‖² over
    pairs.
    """
    gamma = change_ratios(ours, theirs, pairs)
    shares = [_shares(each, pairs) for each in (ours, theirs)]
    apart = np.asarray(abs(shares[0] - shares[1]).sum(axis=1)).ravel()
    return reach * gamma / l2, reach * apart / l2


def _parts(members: csr_array) -> csr_array:
    """How much each training query counts, at most 1."""
    return csr_array((np.minimum(members.data, 1.0), members.indices, members.indptr), shape=members.shape)


def _shares(members: csr_array, pairs: Ints) -> csr_array:
    counted = _parts(members).multiply(pairs[None, :].astype(np.float64)).tocsr()
    totals = np.asarray(counted.sum(axis=1)).ravel()
    return csr_array(counted.multiply((1 / np.where(totals > 0, totals, 1.0))[:, None]))
