"""Compiled kernels of local models: gradients and curvatures of queries, their weighted sums, and small systems.

The later kernels process one row of V relative to an anchor: its shares, its differences, and sums over these only.
"""

from __future__ import annotations

import numpy as np

from querywise.learners.ranksvm.kernels import model_sum
from querywise.runtime.arrays import Floats, Ints, Singles
from querywise.runtime.compiled import ascending, compiled, compiled_loosely


@compiled_loosely
def packed_sums(pointers: Ints, queries: Ints, weights: Singles, packed: Singles, sums: Singles) -> None:
    """Compute rows of V·H, where V is sparse (pointers, queries, weights) and H a table of packed triangles.

    H is processed in strips of columns that stay in the cache, and four of its rows at a time, so that sums are written
    less often. A row is summed in the order of its queries, independently of other rows. For a single row only its sums
    are reused, and longer strips are faster.
    """
    columns = packed.shape[1]
    strip = 256 if len(pointers) > 2 else 4096
    for begin in range(0, columns, strip):
        end = min(begin + strip, columns)
        for row in range(len(pointers) - 1):
            out = sums[row, begin:end]
            out[:] = 0.0
            place, last = pointers[row], pointers[row + 1]
            while place + 4 <= last:
                w0, w1, w2, w3 = weights[place], weights[place + 1], weights[place + 2], weights[place + 3]
                h0, h1 = packed[queries[place], begin:end], packed[queries[place + 1], begin:end]
                h2, h3 = packed[queries[place + 2], begin:end], packed[queries[place + 3], begin:end]
                for j in range(end - begin):
                    out[j] += (w0 * h0[j] + w1 * h1[j]) + (w2 * h2[j] + w3 * h3[j])
                place += 4
            while place < last:
                weight, source = weights[place], packed[queries[place], begin:end]
                for j in range(end - begin):
                    out[j] += weight * source[j]
                place += 1


@compiled
def curvature_rows(
    features: Floats,
    scores: Floats,
    levels: Ints,
    starts: Ints,
    first: int,
    last: int,
    upper: float,
    lower: float,
    degree: Floats,
    weights: Floats,
    rows: Floats,
) -> None:
    """Compute rows Y with Xᵀ L X = symmetric part of Xᵀ Y, for queries first..last−1, each times its weight.

    L = D − A − Aᵀ is the Laplacian of the pairs in the band, A_ab = 1 for each such pair (a above b). Since xᵀAx =
    xᵀAᵀx, Y = D X − 2 A X suffices, and A X needs one sweep. `rows` begins with the first row of query `first`.
    """
    columns = features.shape[1]
    offset = starts[first]
    for query in range(first, last):
        begin, end = starts[query], starts[query + 1]
        n = end - begin
        level_count = 0
        for row in range(begin, end):
            level_count = max(level_count, levels[row] + 1)
        if level_count < 2 or weights[query] == 0.0:
            rows[begin - offset : end - offset] = 0.0
            continue
        s = scores[begin:end]
        order = ascending(s)
        sums = np.zeros((level_count, columns))
        head, tail = 0, 0
        for i in range(n):
            a = order[i]
            while head < n and s[order[head]] < s[a] - lower:
                level, source = levels[begin + order[head]], begin + order[head]
                for j in range(columns):
                    sums[level, j] += features[source, j]
                head += 1
            while tail < head and s[order[tail]] <= s[a] - upper:
                level, source = levels[begin + order[tail]], begin + order[tail]
                for j in range(columns):
                    sums[level, j] -= features[source, j]
                tail += 1
            row = begin + a
            weight = weights[query]
            own = degree[row]
            for j in range(columns):
                rows[row - offset, j] = weight * own * features[row, j]
            for level in range(levels[row]):
                for j in range(columns):
                    rows[row - offset, j] -= 2 * weight * sums[level, j]


@compiled
def packed_curvatures(
    features: Floats, rows: Floats, starts: Ints, first: int, last: int, q: float, packed: Singles
) -> None:
    """Compute the upper triangle of q (XᵀY + YᵀX), row by row, for each of the queries first..last−1; Y = `rows`."""
    columns = features.shape[1]
    offset = starts[first]
    for query in range(first, last):
        begin, end = starts[query], starts[query + 1]
        half = np.dot(features[begin:end].T, rows[begin - offset : end - offset])
        place = 0
        for i in range(columns):
            for j in range(i, columns):
                packed[query, place] = q * (half[i, j] + half[j, i])
                place += 1


@compiled
def query_gradients(
    features: Floats, by_score: Floats, starts: Ints, weights: Floats, first: int, last: int, gradients: Floats
) -> None:
    """Compute each query's Xᵀ · (derivative by each score), times its weight, for the queries first..last−1."""
    for query in range(first, last):
        target = gradients[query]
        target[:] = 0.0
        for row in range(starts[query], starts[query + 1]):
            pull, source = weights[query] * by_score[row], features[row]
            for j in range(len(target)):
                target[j] += pull * source[j]


@compiled
def unpacked(packed: Singles, diagonal: float, full: Floats) -> None:
    """Unpack upper triangles into full symmetric matrices, adding a constant to the diagonal."""
    columns = full.shape[1]
    for matrix in range(len(packed)):
        place = 0
        for i in range(columns):
            for j in range(i, columns):
                value = float(packed[matrix, place])
                full[matrix, i, j] = value
                full[matrix, j, i] = value
                place += 1
            full[matrix, i, i] += diagonal


@compiled
def upper(packed: Singles, diagonal: float, full: Floats) -> None:
    """Unpack an upper triangle into that of a full matrix, adding a constant to the diagonal; the rest is untouched."""
    d, place = len(full), 0
    for i in range(d):
        for j in range(i, d):
            full[i, j] = packed[place + j - i]
        place += d - i
        full[i, i] += diagonal


@compiled_loosely
def _take(row: Floats | Singles, factor: float, target: Floats, first: int) -> None:
    """Subtract `factor` times a row from another, from column `first` on."""
    for j in range(first, len(target)):
        target[j] -= factor * row[j]


@compiled_loosely
def _take_four(u: Floats, first: int, target: Floats, column: int) -> None:
    """Subtract rows first..first+3 of u, with their factors in a column, from another row, from that column on."""
    r0, r1, r2, r3 = u[first], u[first + 1], u[first + 2], u[first + 3]
    f0, f1, f2, f3 = r0[column], r1[column], r2[column], r3[column]
    for j in range(column, len(target)):
        target[j] -= (f0 * r0[j] + f1 * r1[j]) + (f2 * r2[j] + f3 * r3[j])


@compiled_loosely
def _take_four_from_four(u: Floats, first: int, row: int) -> None:
    """Do the same for the rows row..row+3 of u at once, from column `row` on; each value read is used four times."""
    r0, r1, r2, r3 = u[first], u[first + 1], u[first + 2], u[first + 3]
    t0, t1, t2, t3 = u[row], u[row + 1], u[row + 2], u[row + 3]
    a0, a1, a2, a3 = r0[row], r1[row], r2[row], r3[row]
    b0, b1, b2, b3 = r0[row + 1], r1[row + 1], r2[row + 1], r3[row + 1]
    c0, c1, c2, c3 = r0[row + 2], r1[row + 2], r2[row + 2], r3[row + 2]
    d0, d1, d2, d3 = r0[row + 3], r1[row + 3], r2[row + 3], r3[row + 3]
    for j in range(row, len(u)):
        x0, x1, x2, x3 = r0[j], r1[j], r2[j], r3[j]
        t0[j] -= (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
        t1[j] -= (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)
        t2[j] -= (c0 * x0 + c1 * x1) + (c2 * x2 + c3 * x3)
        t3[j] -= (d0 * x0 + d1 * x1) + (d2 * x2 + d3 * x3)


@compiled_loosely
def _factorise(packed: Singles, diagonal: float, u: Floats) -> None:
    """Write the Cholesky factor of a packed matrix, with a constant added to its diagonal, to the upper triangle of u.

    Rows are processed four at a time; what is below the diagonal is meaningless. Except for rounding, the packed matrix
    has no negative eigenvalue, so no pivot is below the constant.
    """
    d = len(u)
    upper(packed, diagonal, u)
    for first in range(0, d, 4):
        last = min(first + 4, d)
        for row in range(first, last):
            u[row, row] = max(u[row, row], diagonal)
            scale = 1.0 / np.sqrt(u[row, row])
            for j in range(row, d):
                u[row, j] *= scale
            for i in range(row + 1, last):
                _take(u[row], u[row, i], u[i], i)
        for i in range(last, d - 3, 4):
            _take_four_from_four(u, first, i)
        for i in range(d - (d - last) % 4, d):
            _take_four(u, first, u[i], i)


@compiled_loosely
def _solve(factor: Floats | Singles, x: Floats) -> None:
    """Replace a right-hand side by the solution of UᵀU x = right; `factor` holds the rows of U one after the other."""
    d, place = len(x), 0
    for i in range(d):
        row = factor[place : place + d - i]
        x[i] /= row[0]
        _take(row, x[i], x[i:], 1)
        place += d - i
    for i in range(d - 1, -1, -1):
        place -= d - i
        row, below, rest = factor[place : place + d - i], x[i:], 0.0
        for j in range(1, len(row)):
            rest += row[j] * below[j]
        x[i] = (x[i] - rest) / row[0]


@compiled
def factorise(packed: Singles, diagonal: float, right: Floats, factors: Singles) -> None:
    """Replace right-hand sides by the solutions for packed matrices with a constant added to their diagonals.

    `factors`, unless empty, receives the rows of the Cholesky factors.
    """
    d = right.shape[1]
    u, factor = np.empty((d, d)), np.empty(packed.shape[1])
    for matrix in range(len(packed)):
        _factorise(packed[matrix], diagonal, u)
        place = 0
        for i in range(d):
            for j in range(i, d):
                factor[place + j - i] = u[i, j]
            place += d - i
        _solve(factor, right[matrix])
        for place in range(len(factor) if len(factors) else 0):  # an array at once: seconds to compile its error
            factors[matrix, place] = factor[place]


@compiled
def solve(factors: Singles, rows: Ints, right: Floats) -> None:
    """Replace right-hand sides by the solutions for the factors with the indices in `rows`."""
    for number in range(len(rows)):
        _solve(factors[rows[number]], right[number])


@compiled
def shared_out(queries: Ints, weights: Floats, pairs: Ints, by_pair: bool) -> tuple[Ints, Floats]:
    """Return a row of weights like `WeightRows.of`, with only queries that have a share.

    The row is empty if a weight is invalid.
    """
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
    """Express a row of V, given by its queries and their shares, as a multiple of the most similar row of `rows`.

    `held` is 1 where a query (first axis) has a share in a row, and `sizes` are its sums. Returns the index of that
    row, the multiple, and the rest: the queries in ascending order, and a difference for each.
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
        if share * other[query] > largest:  # a query that counts fully in both rows, where some share a place
            largest, times = share * other[query], share / other[query]
    left, differences, count = np.empty(len(own), np.int64), np.empty(len(own)), 0
    for query in range(len(own)):
        taken = times * other[query]
        if abs(own[query] - taken) > 1e-12 * max(own[query], taken):  # less is rounding error
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
    """Add δ·G to a gradient, and compute the packed sum c a·H + δ·H; δ is `shares` of `queries`, a·H is `anchor`."""
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
    """Build the system of a row's step from w₀ relative to its most similar anchor.

    Return False if none is close enough.

    The row is given as to `shared_out`; `rows` to `pulls` belong to the anchors, and the tables are G and H. v·G is
    added to the row `gradient`, and v·H written to `packed`. `far` is the share of its queries that may remain.
    `strength` is added to the diagonal by `factorise`, which turns the gradient into the step; if negative, the
    gradient stays.
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
    """Compute weighted sums of rows, four at a time."""
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
    """Compute the sum of rows, each times a factor, four at a time."""
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
    """Return one model's losses over the queries that it has a share in, adding their gradient to `gradient`.

    They are computed in the single precision of `features` and `weights`, which may have extra columns of zeros.
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
