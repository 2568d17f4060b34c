"""Stability (Definition 1 and Theorem 1 of [geng2008]_): the bounds, beside real differences of losses.

Definition 1: a learner has leave-one-instance-out stability τ if, leaving one of p training pairs out, its loss on no
pair changes by more than τ(p). For the ranking SVM (hinge, mean over pairs) the paper has τ(p) = κ²/(λp), and so by
Theorem 1 two models differ by at most κ²γ/λ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from querywise.contracts.forms import Linear
from querywise.data.folds import Fold
from querywise.data.judged import Candidates, Judged
from querywise.evaluation.analysis import stability_bounds
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.methods import METHODS
from querywise.reproduction.rows import NO_BACK_OFF
from querywise.runtime.arrays import Floats
from querywise.runtime.values import JsonObject

_COUNTS = (50, 100, 200)  # pairs to learn from
_LEFT_OUT = 10  # of them, one at a time
_EXACT = 1e-9  # relative objective gap: the change by one pair is small


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
    train_pairs, test_pairs = _differences(fold.train), _differences(test)
    reach = max(float(np.max(np.einsum("ij,ij->i", each, each))) for each in (train_pairs, test_pairs) if len(each))
    theirs, ours = stability_bounds(trained[0], trained[1], fold.train.pairs, l2=l2, reach=reach)
    losses = [_losses(test_pairs, each) for each in weights]
    real = np.abs(losses[0] - losses[1]).max(axis=0)
    return {
        "queries": len(test),
        "reach": reach,
        "paper_bound": float(np.nanmean(theirs)),
        "our_bound": float(np.mean(ours)),
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


def _differences(data: Judged) -> Floats:
    """x_a − x_b of every pair."""
    found = [np.zeros((0, data.candidates.features.shape[1]))]
    for query in range(len(data)):
        rows = data.candidates.rows(query)
        x, y = data.candidates.features[rows], data.labels[rows]
        above, below = np.nonzero(y[:, None] > y[None, :])
        found.append(x[above] - x[below])
    return np.concatenate(found)


def stability_text(found: JsonObject) -> str:
    """What was found, in words."""
    said: dict[str, Any] = dict(found)
    left: Sequence[dict[str, Any]] = said["one_pair_left_out"]
    changes = "; ".join(f"{each['largest_change']:.4f} of {each['bound']:.4f} at p = {each['pairs']}" for each in left)
    held = all(each["largest_change"] <= each["bound"] for each in left)
    return (
        f"Stability, hinge loss, λ = 1, k = 30 % of m, {said['queries']} test queries: Online's and Offline-2's "
        f"models differ in loss on held-out pairs by {said['mean_real_difference']:.3f} on average and "
        f"{said['largest_real_difference']:.3f} at most; the paper's bound is {said['paper_bound']:.2f} on average, "
        f"ours {said['our_bound']:.2f}, and holds for {100 * said['share_within_our_bound']:.0f} % of the queries. "
        f"Definition 1, one of p training pairs left out: the loss on a held-out pair changes by at most {changes}, "
        f"the second number being τ(p) = κ²/(λp); it {'holds' if held else 'does not hold'}.\n"
    )
