"""The compiled kernels of one row of V beside an anchor: its shares, what it differs in, and sums over that alone."""

from __future__ import annotations

import numpy as np

from querywise.learners.ranksvm.curvature_kernels import factorise, packed_sums
from querywise.learners.ranksvm.kernels import model_sum
from querywise.runtime.arrays import Floats, Ints, Singles
from querywise.runtime.compiled import compiled, compiled_loosely


@compiled
def shared_out(queries: Ints, weights: Floats, pairs: Ints, by_pair: bool) -> tuple[Ints, Floats]:
    """A row of weights as `WeightRows.of` has it, the queries with a share alone; none where it refuses a weight."""
    found, shares, count, total = np.empty(len(queries), np.int64), np.empty(len(queries)), 0, 0.0
    for place in range(len(queries)):
        weight, own = weights[place], pairs[queries[place]]
        if not 0.0 <= weight < np.inf:
            return found[:0], shares[:0]
        share = weight * (own if by_pair else min(own, 1))
        if share > 0.0:
            found[count], shares[count] = queries[place], share
            total += share
            count += 1
    for place in range(count):
        shares[place] /= total
    return found[:count], shares[:count]


@compiled
def nearest_row(
    rows: Floats, held: Singles, sizes: Singles, queries: Ints, shares: Floats
) -> tuple[int, float, Ints, Floats]:
    """A row of V, given by its queries and their shares, as a multiple of the one of `rows` it resembles most.

    `held` is 1 where a query, first, has a share in a row, and `sizes` are its sums. Returned are the number of that
    row, how many times it is taken, and what is left: the queries in ascending order, and a difference for each.
    """
    common = np.zeros(len(rows), np.float32)
    for query in queries:
        source = held[query]
        for row in range(len(common)):
            common[row] += source[row]
    best = 0
    for row in range(1, len(common)):
        if sizes[row] - 2 * common[row] < sizes[best] - 2 * common[best]:
            best = row
    other, own, largest, times = rows[best], np.zeros(rows.shape[1]), 0.0, 0.0
    for place in range(len(queries)):
        query, share = queries[place], shares[place]
        own[query] = share
        if share * other[query] > largest:  # one that counts in full in both, where some share a place
            largest, times = share * other[query], share / other[query]
    left, differences, count = np.empty(len(own), np.int64), np.empty(len(own)), 0
    for query in range(len(own)):
        taken = times * other[query]
        if abs(own[query] - taken) > 1e-12 * max(own[query], taken):  # less is rounding
            left[count], differences[count] = query, own[query] - taken
            count += 1
    return best, times, left[:count], differences[:count]


@compiled
def add_system(
    times: float,
    queries: Ints,
    shares: Floats,
    gradients: Floats,
    curvatures: Singles,
    anchor: Singles,
    gradient: Floats,
    packed: Singles,
) -> None:
    """Add δ·G to a gradient, and make a packed sum c a·H + δ·H, δ being `shares` of `queries` and a·H `anchor`."""
    ends, weights = np.array([0, len(queries)]), np.empty(len(queries), np.float32)
    for place in range(len(queries)):
        weights[place] = shares[place]
        source = gradients[queries[place]]
        for j in range(len(gradient)):
            gradient[j] += shares[place] * source[j]
    packed_sums(ends, queries, weights, curvatures, packed)
    factor = np.float32(times)
    for j in range(len(anchor)):
        packed[0, j] += factor * anchor[j]


@compiled
def bare_system(
    queries: Ints,
    weights: Floats,
    pairs: Ints,
    by_pair: bool,
    rows: Floats,
    held: Singles,
    sizes: Singles,
    sums: Singles,
    pulls: Floats,
    gradients: Floats,
    curvatures: Singles,
    far: float,
    strength: float,
    gradient: Floats,
    packed: Singles,
) -> bool:
    """The system of a row's step from w₀, beside the anchor that it resembles most; False where that is not much.

    The row is what `shared_out` is given; `rows` to `pulls` are those of the anchors, the tables are G and H. v·G is
    added to `gradient`, a row, and v·H written to `packed`. far: the share of its queries that may be left. strength:
    what `factorise` adds to the diagonal, so that the gradient becomes the step; below 0 it stays.
    """
    queries, shares = shared_out(queries, weights, pairs, by_pair)
    if len(queries) == 0:
        return False
    anchor, times, left, differences = nearest_row(rows, held, sizes, queries, shares)
    if len(left) > far * len(queries):
        return False
    for j in range(gradient.shape[1]):
        gradient[0, j] += times * pulls[anchor, j]
    add_system(times, left, differences, gradients, curvatures, sums[anchor], gradient[0], packed)
    if strength >= 0.0:
        factorise(packed, strength, gradient, packed[:0])
    return True


@compiled_loosely
def _scores(rows: Floats, weights: Floats, scores: Floats) -> None:
    """Weighted sums of rows, four at a time."""
    zero, row = weights.dtype.type(0.0), 0
    while row + 4 <= len(rows):
        r0, r1, r2, r3 = rows[row], rows[row + 1], rows[row + 2], rows[row + 3]
        s0, s1, s2, s3 = zero, zero, zero, zero
        for j in range(len(weights)):
            weight = weights[j]
            s0 += r0[j] * weight
            s1 += r1[j] * weight
            s2 += r2[j] * weight
            s3 += r3[j] * weight
        scores[row], scores[row + 1], scores[row + 2], scores[row + 3] = s0, s1, s2, s3
        row += 4
    while row < len(rows):
        r0, s0 = rows[row], zero
        for j in range(len(weights)):
            s0 += r0[j] * weights[j]
        scores[row] = s0
        row += 1


@compiled_loosely
def _sum_of_rows(rows: Floats, by: Floats, out: Floats) -> None:
    """The sum of rows, each by a factor, four at a time."""
    out[:] = 0.0
    row = 0
    while row + 4 <= len(rows):
        r0, r1, r2, r3 = rows[row], rows[row + 1], rows[row + 2], rows[row + 3]
        b0, b1, b2, b3 = by[row], by[row + 1], by[row + 2], by[row + 3]
        for j in range(len(out)):
            out[j] += (b0 * r0[j] + b1 * r1[j]) + (b2 * r2[j] + b3 * r3[j])
        row += 4
    while row < len(rows):
        r0, b0 = rows[row], by[row]
        for j in range(len(out)):
            out[j] += b0 * r0[j]
        row += 1


@compiled_loosely
def rounded_objective(
    features: Floats,
    levels: Ints,
    starts: Ints,
    pairs: Ints,
    queries: Ints,
    shares: Floats,
    weights: Floats,
    gradient: Floats,
) -> float:
    """The losses of one model over the queries it has a share in; their gradient is added to `gradient`.

    Those of a query are computed in the precision of `features` and `weights`, the single one. These may have more
    columns than the gradient: of zeros.
    """
    longest, total = 0, 0.0
    for query in queries:
        longest = max(longest, starts[query + 1] - starts[query])
    real = weights.dtype.type
    scores, pulls, moved = np.empty(longest, real), np.empty(longest, real), np.empty(len(weights), real)
    for place in range(len(queries)):
        query = queries[place]
        begin, end = starts[query], starts[query + 1]
        rows, own, by_score = features[begin:end], scores[: end - begin], pulls[: end - begin]
        _scores(rows, weights, own)
        loss = model_sum(own, levels[begin:end], by_score)
        _sum_of_rows(rows, by_score, moved)
        coefficient = shares[place] / pairs[query]
        total += coefficient * loss
        for j in range(len(gradient)):
            gradient[j] += 2 * coefficient * moved[j]
    return total
