"""Sums over preference pairs without enumerating them: the compiled kernels of the ranking SVM.

A pair (a, b) with label a above label b and margin t = s_a − s_b costs ℓ(t), one family for both losses:

    ℓ(t) = 0                                 t ≥ upper
         = q (upper − t)²                    lower < t < upper         (the band: the pairs with curvature)
         = q (upper − lower) (upper + lower − 2t)      t ≤ lower       (a straight line that continues the parabola)

squared hinge: upper = 1, lower = −∞, q = 1. Hinge smoothed over a half-width δ: upper = 1 + δ, lower = 1 − δ,
q = 1/(4δ), which lies between the hinge and the hinge + δ/4.

The documents of a query are in ascending order of label, so the partners below a document are all the documents up
to where its label begins. There are two ways to sum:

- directly, a branch-free loop over partners: cheapest for lists with few pairs per document, as most have;
- by a sweep, for long lists: with the documents sorted by score, the partners of a document are a run of that order.
  As the document moves up, the run's ends move up with it, so counts and sums per label level cost O(n · levels).
"""

from __future__ import annotations

import numpy as np

from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import ascending, compiled, compiled_loosely, sort_by

MOST_DIRECTLY = 64  # pairs per document


@compiled
def _direct(scores: Floats, levels: Ints, shape: tuple[float, float, float], gradient: Floats, degree: Floats) -> float:
    """Compute Σ ℓ, its derivative by each score and each document's pairs in the band, pair by pair.

    With v = max(0, upper − t) and w = min(v, upper − lower), ℓ = q w (2v − w) and dℓ/dt = −2 q w.
    """
    upper, lower, q = shape
    width = upper - lower
    total, below = 0.0, 0
    for a in range(len(scores)):
        gradient[a] = 0.0
        degree[a] = 0.0
    for a in range(1, len(scores)):
        if levels[a] != levels[a - 1]:
            below = a
        gap, pull, pairs = upper - scores[a], 0.0, 0.0
        for b in range(below):
            v = max(gap + scores[b], 0.0)
            w = min(v, width)
            total += w * (2 * v - w)
            pull += w
            gradient[b] += w
            in_band = 1.0 if 0.0 < v < width else 0.0
            pairs += in_band
            degree[b] += in_band
        gradient[a] -= pull
        degree[a] += pairs
    for a in range(len(scores)):
        gradient[a] *= 2 * q
    return q * total


@compiled_loosely
def _squared_hinge(scores: Floats, levels: Ints, gradient: Floats) -> float:
    """Compute the same for the squared hinge, ℓ = max(0, 1 − t)², without counting pairs."""
    gradient[:] = 0.0
    total, below = 0.0, 0
    for a in range(1, len(scores)):
        if levels[a] != levels[a - 1]:
            below = a
        gap, pull = 1.0 - scores[a], 0.0
        for b in range(below):
            v = max(gap + scores[b], 0.0)
            total += v * v
            pull += v
            gradient[b] += v
        gradient[a] -= pull
    gradient *= 2.0
    return total


@compiled_loosely
def _squared_hinge_by_fours(scores: Floats, levels: Ints, gradient: Floats) -> float:
    """Compute the same with half the derivative, four upper documents of a level at a time.

    A pair's v² is v (1 − s_a) + v s_b, so Σ v² follows from the sums of v over each document's pairs.
    """
    n, total, below, a = len(scores), 0.0, 0, 1
    one, zero = scores.dtype.type(1.0), scores.dtype.type(0.0)
    gradient[:] = zero
    while a < n:
        if levels[a] != levels[a - 1]:
            below = a
        if below > 0 and a + 3 < n and levels[a + 3] == levels[a]:
            g0, g1, g2, g3 = one - scores[a], one - scores[a + 1], one - scores[a + 2], one - scores[a + 3]
            p0, p1, p2, p3 = zero, zero, zero, zero
            for b in range(below):
                s = scores[b]
                v0, v1, v2, v3 = max(g0 + s, zero), max(g1 + s, zero), max(g2 + s, zero), max(g3 + s, zero)
                p0, p1, p2, p3 = p0 + v0, p1 + v1, p2 + v2, p3 + v3
                gradient[b] += (v0 + v1) + (v2 + v3)
            gradient[a] -= p0
            gradient[a + 1] -= p1
            gradient[a + 2] -= p2
            gradient[a + 3] -= p3
            total += (p0 + p1) + (p2 + p3)
            a += 4
        else:
            g0, p0 = one - scores[a], zero
            for b in range(below):
                v0 = max(g0 + scores[b], zero)
                p0 += v0
                gradient[b] += v0
            gradient[a] -= p0
            total += p0
            a += 1
    for b in range(n):
        total += scores[b] * gradient[b]
    return total


@compiled
def _is_short(levels: Ints) -> bool:
    """Return whether a list has so few pairs per document that direct summation is cheaper than sorting."""
    pairs, below = 0, 0
    for a in range(1, len(levels)):
        if levels[a] != levels[a - 1]:
            below = a
        pairs += below
    return pairs <= MOST_DIRECTLY * len(levels)


@compiled
def direct_sums(
    scores: Floats,
    levels: Ints,
    starts: Ints,
    long: Bools,
    first: int,
    last: int,
    shape: tuple[float, float, float],
    losses: Floats,
    gradient: Floats,
    degree: Floats,
) -> None:
    """Compute, for queries first..last−1, Σ ℓ over pairs, its derivative by each score, and each document's band pairs.

    Queries marked in `long` are left to `swept_sums`, which is compiled only if there are any.
    """
    for query in range(first, last):
        begin, end = starts[query], starts[query + 1]
        if not long[query]:
            losses[query] = _direct(scores[begin:end], levels[begin:end], shape, gradient[begin:end], degree[begin:end])


@compiled
def _model_sums(scores: Floats, levels: Ints, losses: Floats, gradient: Floats) -> None:
    """Compute one query's squared hinge losses under some models, a row of scores each, and their derivatives.

    Single models use these sums, so that their results stay bit-identical.
    """
    if _is_short(levels):
        for model in range(len(scores)):
            losses[model] = _squared_hinge(scores[model], levels, gradient[model])
        return
    degree, order = np.empty(len(levels)), ascending(scores[0])
    for model in range(len(scores)):
        losses[model] = swept(scores[model], levels, order, (1.0, -np.inf, 1.0), gradient[model], degree)


@compiled
def model_sum(scores: Floats, levels: Ints, gradient: Floats) -> float:
    """Return one query's squared hinge loss under one model, in its scores' precision, with half the derivative."""
    if _is_short(levels):
        return _squared_hinge_by_fours(scores, levels, gradient)
    loss = swept(scores, levels, ascending(scores), (1.0, -np.inf, 1.0), gradient, np.empty(len(levels)))
    gradient *= scores.dtype.type(0.5)
    return loss


@compiled
def _sums_of_models(scores: Floats, levels: Ints, losses: Floats, gradient: Floats) -> None:
    """Compute the same for many models, faster, with half the derivative.

    Models of one query order its documents similarly, so each sort starts from the order of the previous model.
    """
    if _is_short(levels):
        for model in range(len(scores)):
            losses[model] = _squared_hinge_by_fours(scores[model], levels, gradient[model])
        return
    degree, order = np.empty(len(levels)), ascending(scores[0])
    for model in range(len(scores)):
        losses[model] = swept(scores[model], levels, order, (1.0, -np.inf, 1.0), gradient[model], degree)
    gradient *= 0.5


@compiled_loosely
def _take_rows(source: Floats, target: Floats) -> float:
    """Copy rows, centering them if they go to single precision; return the largest squared norm of a row."""
    mean, largest = np.zeros(source.shape[1]), 0.0
    for row in range(len(source) if target.itemsize < source.itemsize else 0):
        for j in range(len(mean)):
            mean[j] += source[row, j] / len(source)
    for row in range(len(source)):
        norm = 0.0
        for j in range(len(mean)):
            value = source[row, j] - mean[j]
            target[row, j] = value
            norm += value * value
        largest = max(largest, norm)
    return largest


@compiled
def model_objectives(
    features: Floats,
    levels: Ints,
    starts: Ints,
    pairs: Ints,
    pointers: Ints,
    models: Ints,
    shares: Floats,
    weights: Floats,
    first: int,
    last: int,
    values: Floats,
    gradient: Floats,
) -> float:
    """Add the queries first..last−1 to the losses and gradients of the models that have a share in them.

    pointers, models and shares are the columns of V, a row per query; a row of `weights` is a model. A query's losses
    are computed in the precision of `weights`; in single precision its rows are centered, which changes no margin.
    Returns the largest squared norm of a row.
    """
    columns, most, longest, largest = weights.shape[1], 0, 0, 0.0
    real = weights.dtype.type
    for query in range(first, last):
        most = max(most, pointers[query + 1] - pointers[query])
        longest = max(longest, starts[query + 1] - starts[query])
    row_room, losses = np.empty((longest, columns), real), np.empty(most)
    chosen_room, moved_room = np.empty((most, columns), real), np.empty((most, columns), real)
    score_room, gradient_room = np.empty(longest * most, real), np.empty(longest * most, real)
    for query in range(first, last):
        mine = models[pointers[query] : pointers[query + 1]]
        if len(mine) == 0 or pairs[query] == 0:
            continue
        begin, end = starts[query], starts[query + 1]
        x, chosen, moved = row_room[: end - begin], chosen_room[: len(mine)], moved_room[: len(mine)]
        largest = max(largest, _take_rows(features[begin:end], x))
        for row in range(len(mine)):
            for j in range(columns):
                chosen[row, j] = weights[mine[row], j]
        size = (end - begin) * len(mine)
        scores = score_room[:size].reshape(len(mine), end - begin)
        by_score = gradient_room[:size].reshape(len(mine), end - begin)
        np.dot(chosen, x.T, scores)
        _sums_of_models(scores, levels[begin:end], losses, by_score)
        np.dot(by_score, x, moved)
        for row in range(len(mine)):
            coefficient = shares[pointers[query] + row] / pairs[query]
            values[mine[row]] += coefficient * losses[row]
            for j in range(columns):
                gradient[mine[row], j] += 2 * coefficient * moved[row, j]
    return largest


@compiled
def gradients_at(
    features: Floats, levels: Ints, starts: Ints, pairs: Ints, models: Floats, first: int, last: int, gradients: Floats
) -> None:
    """Compute the gradient of each query's mean loss under each of a few models, for the queries first..last−1."""
    losses = np.empty(len(models))
    for query in range(first, last):
        if pairs[query] == 0:
            gradients[:, query] = 0.0
            continue
        x = features[starts[query] : starts[query + 1]]
        scores = np.dot(models, x.T)
        by_score = np.empty_like(scores)
        _sums_of_models(scores, levels[starts[query] : starts[query + 1]], losses, by_score)
        gradients[:, query] = np.dot(by_score, x) * (2.0 / pairs[query])


@compiled_loosely
def model_objective(
    features: Floats,
    levels: Ints,
    starts: Ints,
    pairs: Ints,
    queries: Ints,
    shares: Floats,
    weights: Floats,
    gradient: Floats,
) -> float:
    """Return one model's losses over the queries that it has a share in, adding their gradient to `gradient`."""
    columns, longest = features.shape[1], 0
    for query in queries:
        longest = max(longest, starts[query + 1] - starts[query])
    scores, by_score = np.empty((1, longest)), np.empty((1, longest))
    loss, total = np.empty(1), 0.0
    for place in range(len(queries)):
        query = queries[place]
        begin, end = starts[query], starts[query + 1]
        x = features[begin:end]
        for row in range(end - begin):
            score = 0.0
            for j in range(columns):
                score += x[row, j] * weights[j]
            scores[0, row] = score
        _model_sums(scores[:, : end - begin], levels[begin:end], loss, by_score[:, : end - begin])
        coefficient = shares[place] / pairs[query]
        total += coefficient * loss[0]
        for row in range(end - begin):
            pull = coefficient * by_score[0, row]
            for j in range(columns):
                gradient[j] += pull * x[row, j]
    return total


@compiled
def _sort(scores: Floats, order: Ints) -> None:
    """Sort `order` by ascending score, starting from its current order, which is nearly free if that is close."""
    n = len(order)
    moves = 8 * n
    for i in range(1, n):
        row, j = order[i], i
        while j > 0 and scores[order[j - 1]] > scores[row]:
            order[j] = order[j - 1]
            j -= 1
            moves -= 1
        order[j] = row
        if moves < 0:
            sort_by(scores, order)
            return


@compiled
def _sweep(
    scores: Floats,
    levels: Ints,
    shape: tuple[float, float, float],
    band: Floats,
    line: Floats,
    gradient: Floats,
    degree: Floats,
) -> float:
    """Compute the sums of each document as the *upper* one of its pairs, given ascending `scores`.

    Return the total loss.

    `gradient` receives dℓ/ds of the upper document, `degree` its number of pairs in the band. `band` and `line` are
    scratch space with a row per level: count, Σ s_b (and Σ s_b²) of the documents in the band and on the straight part.
    """
    upper, lower, q = shape
    n = len(scores)
    band[:] = 0.0
    line[:] = 0.0
    for i in range(n):
        line[levels[i], 0] += 1
        line[levels[i], 1] += scores[i]
    total, first, split = 0.0, 0, 0
    for a in range(n):
        while split < n and scores[split] < scores[a] - lower:
            level, s = levels[split], scores[split]
            line[level, 0] -= 1
            line[level, 1] -= s
            band[level, 0] += 1
            band[level, 1] += s
            band[level, 2] += s * s
            split += 1
        while first < split and scores[first] <= scores[a] - upper:
            level, s = levels[first], scores[first]
            band[level, 0] -= 1
            band[level, 1] -= s
            band[level, 2] -= s * s
            first += 1
        gap = upper - scores[a]
        pull, pairs = 0.0, 0.0
        for level in range(levels[a]):
            count, sums, squares = band[level, 0], band[level, 1], band[level, 2]
            total += q * (count * gap * gap + 2 * gap * sums + squares)
            pull -= 2 * q * (count * gap + sums)
            pairs += count
            if line[level, 0] > 0:
                width = q * (upper - lower)
                total += width * (line[level, 0] * (upper + lower - 2 * scores[a]) + 2 * line[level, 1])
                pull -= 2 * width * line[level, 0]
        gradient[a] = pull
        degree[a] = pairs
    return total


@compiled
def swept(
    scores: Floats, levels: Ints, order: Ints, shape: tuple[float, float, float], gradient: Floats, degree: Floats
) -> float:
    """Compute the same as `_direct` by two sweeps.

    `order` is a guess of the ascending order, replaced by the true one.
    """
    n, top = len(scores), levels[-1]
    band, line = np.empty((top + 1, 3)), np.empty((top + 1, 2))
    sorted_scores, sorted_levels = np.empty((2, n)), np.empty((2, n), np.int64)
    pulls, pairs, totals = np.empty((2, n)), np.empty((2, n)), np.empty(2)
    _sort(scores, order)
    mean = 0.0  # only differences matter; centering keeps the sums of squares small
    for i in range(n):
        mean += scores[i] / n
    for i in range(n):
        sorted_scores[0, i] = scores[order[i]] - mean
        sorted_levels[0, i] = levels[order[i]]
        # Lower documents: with scores and labels negated, the lower document of a pair becomes the upper one.
        sorted_scores[1, n - 1 - i] = -sorted_scores[0, i]
        sorted_levels[1, n - 1 - i] = top - sorted_levels[0, i]
    for side in range(2):
        totals[side] = _sweep(sorted_scores[side], sorted_levels[side], shape, band, line, pulls[side], pairs[side])
    for i in range(n):
        gradient[order[i]] = pulls[0, i] - pulls[1, n - 1 - i]
        degree[order[i]] = pairs[0, i] + pairs[1, n - 1 - i]
    return float(totals[0])


@compiled
def swept_sums(
    scores: Floats,
    levels: Ints,
    starts: Ints,
    long: Bools,
    first: int,
    last: int,
    shape: tuple[float, float, float],
    losses: Floats,
    gradient: Floats,
    degree: Floats,
) -> None:
    """Compute the same as `direct_sums`, for the queries marked in `long`."""
    for query in range(first, last):
        begin, end = starts[query], starts[query + 1]
        if long[query]:
            s, y, g, d = scores[begin:end], levels[begin:end], gradient[begin:end], degree[begin:end]
            losses[query] = swept(s, y, ascending(s), shape, g, d)
