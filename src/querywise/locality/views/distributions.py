"""Divergences between the distributions that models give to a query's documents: what `divergence` compiles."""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import compiled

_NOISE = 1e-12  # of the largest score: below it a spread is rounding; so is a divergence


@compiled
def divergences_of(base: Floats, scores: Floats, starts: Ints, found: Floats) -> None:
    """Σ_d P(d) log(P(d) / P_i(d)), queries × models, P and P_i the softmax of scores standardised in the query."""
    for query in range(len(starts) - 1):
        first, last = starts[query], starts[query + 1]
        found[query] = 0.0
        if last > first:
            chances, entropy = _distribution(base[first:last])
            _from(chances, entropy, scores[first:last], found[query])


@compiled
def divergences_where(base: Floats, scores: Floats, starts: Ints, wanted: Bools, found: Floats) -> None:
    """The same where wanted, queries × models; the rest of `found` stays as it is."""
    for query in range(len(starts) - 1):
        first, last = starts[query], starts[query + 1]
        many = 0
        for i in range(wanted.shape[1]):
            many += wanted[query, i]
        if last == first or many == 0:
            continue
        some, values, place = np.empty((last - first, many)), np.empty(many), 0
        for i in range(wanted.shape[1]):
            if wanted[query, i]:
                for row in range(first, last):
                    some[row - first, place] = scores[row, i]
                place += 1
        chances, entropy = _distribution(base[first:last])
        _from(chances, entropy, some, values)
        place = 0
        for i in range(wanted.shape[1]):
            if wanted[query, i]:
                found[query, i] = values[place]
                place += 1


@compiled
def _distribution(scores: Floats) -> tuple[Floats, float]:
    """The softmax of standardised scores, and Σ P log P."""
    size = max(np.max(np.abs(scores)), 1e-300)
    away = scores / size - np.mean(scores / size)
    spread = np.sqrt(np.mean(away * away))
    away = away * 0.0 if spread <= _NOISE else away / spread
    logs = away - np.max(away)
    logs = logs - np.log(np.sum(np.exp(logs)))
    chances = np.exp(logs)
    return chances, np.sum(chances * logs)


@compiled
def _from(chances: Floats, entropy: float, scores: Floats, found: Floats) -> None:
    """Σ P log P − Σ P z_i + log Σ exp z_i, z_i the standardised scores of model i."""
    documents, models = scores.shape
    size, top = _extremes(scores)
    mean, spread, cross, total = np.zeros(models), np.zeros(models), np.zeros(models), np.zeros(models)
    for row in range(documents):
        for i in range(models):
            mean[i] += scores[row, i] / size[i] / documents
    for row in range(documents):
        for i in range(models):
            away = scores[row, i] / size[i] - mean[i]
            spread[i] += away * away / documents
            cross[i] += chances[row] * away
    for i in range(models):
        spread[i] = 1.0 / np.sqrt(spread[i]) if np.sqrt(spread[i]) > _NOISE else 0.0
    for row in range(documents):
        for i in range(models):
            total[i] += np.exp((scores[row, i] / size[i] - top[i]) * spread[i])
    for i in range(models):
        value = entropy - cross[i] * spread[i] + (top[i] - mean[i]) * spread[i] + np.log(total[i])
        # Set rounding to 0: standardised, it would weigh as much as any other coordinate.
        found[i] = value if value > _NOISE else 0.0


@compiled
def _extremes(scores: Floats) -> tuple[Floats, Floats]:
    """Each model's largest absolute score, 1 where all are 0, and its highest over that.

    Divided by it scores lie in −1 … 1, whose squares neither overflow nor vanish.
    """
    size, top = np.zeros(scores.shape[1]), np.full(scores.shape[1], -np.inf)
    for row in range(len(scores)):
        for i in range(scores.shape[1]):
            size[i] = max(size[i], abs(scores[row, i]))
            top[i] = max(top[i], scores[row, i])
    for i in range(scores.shape[1]):
        size[i] = size[i] if size[i] > 0.0 else 1.0
        top[i] /= size[i]
    return size, top
