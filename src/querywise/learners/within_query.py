"""A document's features relative to its query: z-scores and ranks among the candidates."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from querywise.data.judged import Candidates
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import compiled
from querywise.runtime.threads import in_threads

_NOISE = 1e-12  # relative to the values' size: a smaller spread is a rounding error
_SMALLEST = -1_000  # smallest power of two to divide by: squares of smaller values would underflow
_BLOCK = 20_000  # rows at a time, in each thread


class WithinQuery(NamedTuple):
    """Columns of numbers relative to their query.

    Attributes:
        means, spreads: a row per query; the spread is the standard deviation.
        z: a row per document, its distance from the mean in spreads.
        ranks: the share of the query's other documents that it is above, ties counting half. If all are tied, up to
            rounding, z is 0 and the rank ½.
    """

    means: Floats
    spreads: Floats
    z: Floats
    ranks: Floats


def within_query(values: Floats, candidates: Candidates, *, ranks: bool = True) -> WithinQuery:
    """Return the z-score and rank of every row of `values`, one per document, within its query.

    With `ranks=False` there are no rows of ranks.

    Results are bit-identical for any order of a query's documents, and whatever other queries are present.

    >>> two = Candidates(np.array([[1.0], [3.0], [7.0]]), np.array([0, 2, 3]), ("a", "b"))
    >>> found = within_query(two.features, two)
    >>> found.means[:, 0].tolist(), found.z[:, 0].tolist(), found.ranks[:, 0].tolist()
    ([2.0, 7.0], [-1.0, 1.0, 0.0], [0.0, 1.0, 0.5])
    """
    by_query, by_rank = (len(candidates), values.shape[1]), (len(values) if ranks else 0, values.shape[1])
    found = WithinQuery(np.zeros(by_query), np.zeros(by_query), np.empty(values.shape), np.empty(by_rank))

    def stand(block: tuple[int, int]) -> None:
        for query in range(*block):
            rows = candidates.rows(query)
            # faster than passing a view to kernels
            own, level = values[rows].copy(), np.empty(values.shape[1], np.bool_)
            if not len(own):
                continue
            # numpy sorts faster than a kernel.
            order = np.argsort(own, axis=0, kind="stable") if ranks else None
            ascending = np.sort(own, axis=0) if order is None else np.take_along_axis(own, order, axis=0)
            _stand(own, ascending, level, found.means[query], found.spreads[query], found.z[rows])
            if order is not None:
                _rank(ascending, order, level, found.ranks[rows])

    size = max(1, _BLOCK // max(1, values.shape[1] // 8))
    in_threads(stand, [(0, 1)] if len(candidates) == 1 else list(candidates.blocks(size)))
    return found


@compiled
def _stand(values: Floats, ascending: Floats, level: Bools, means: Floats, spreads: Floats, z: Floats) -> None:
    """Compute one query's z-scores, given its values both in row order and in `ascending` order per column.

    Afterwards `ascending` is divided by powers of two, and `level` says whether all values of a column are tied.
    """
    count, columns = values.shape
    powers, down = np.empty(columns, np.int64), np.empty(columns)
    for column in range(columns):
        # Dividing by a power of two is exact, and keeps squares from overflowing.
        largest = max(abs(ascending[0, column]), abs(ascending[-1, column]))
        powers[column] = max(math.frexp(largest)[1], _SMALLEST)
        down[column] = math.ldexp(1.0, -powers[column])
        means[column] = spreads[column] = 0.0
    for place in range(count):  # from the smallest on, so that the order of the documents does not matter
        for column in range(columns):
            ascending[place, column] *= down[column]
            means[column] += ascending[place, column]
    for column in range(columns):
        means[column] /= count
    for place in range(count):
        for column in range(columns):
            spreads[column] += (ascending[place, column] - means[column]) ** 2
    for column in range(columns):
        spreads[column] = math.sqrt(spreads[column] / count)
        alike = ascending[0, column] == ascending[-1, column]
        means[column] = ascending[0, column] + 0.0 if alike else means[column]
        level[column] = alike or spreads[column] <= _NOISE * abs(means[column])
    for row in range(count):
        for column in range(columns):
            away = values[row, column] * down[column] - means[column]
            z[row, column] = 0.0 if level[column] else away / spreads[column]
    for column in range(columns):
        means[column] = math.ldexp(means[column], powers[column])
        spreads[column] = 0.0 if level[column] else math.ldexp(spreads[column], powers[column])


@compiled
def _rank(ascending: Floats, order: Ints, level: Bools, ranks: Floats) -> None:
    """Compute one query's ranks from its values in ascending order and their rows; ½ if all are tied."""
    count = len(order)
    for column in range(order.shape[1]):
        start = 0
        while start < count:
            end = start + 1
            while end < count and (level[column] or ascending[end, column] == ascending[start, column]):
                end += 1
            rank = 0.5 if level[column] else (start + end - 1) / (2.0 * (count - 1))
            for place in range(start, end):
                ranks[order[place, column], column] = rank
            start = end
