"""A document's features within its query: z-scores and ranks among the candidates."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from querywise.data.judged import Candidates
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled
from querywise.runtime.sorting import ascending
from querywise.runtime.threads import in_threads

_NOISE = 1e-12  # of the values' size: a spread below it is rounding
_BLOCK = 20_000  # rows at a time, in each thread


class WithinQuery(NamedTuple):
    """Columns of numbers relative to their query.

    means, spreads: a row per query; the spread is the standard deviation. z: a row per document, its distance from the
    mean in spreads. ranks: the share of the query's other documents it is above, those level with it counting half.
    Where all are level, up to rounding, z is 0 and the rank ½.
    """

    means: Floats
    spreads: Floats
    z: Floats
    ranks: Floats


def within_query(values: Floats, candidates: Candidates) -> WithinQuery:
    """The z-score and rank of every row of `values`, one per document, within its query.

    The order of a query's documents, and which queries are beside it, change no bit.

    >>> two = Candidates(np.array([[1.0], [3.0], [7.0]]), np.array([0, 2, 3]), ("a", "b"))
    >>> found = within_query(two.features, two)
    >>> found.means[:, 0].tolist(), found.z[:, 0].tolist(), found.ranks[:, 0].tolist()
    ([2.0, 7.0], [-1.0, 1.0, 0.0], [0.0, 1.0, 0.5])
    """
    by_query = (len(candidates), values.shape[1])
    found = WithinQuery(np.zeros(by_query), np.zeros(by_query), np.empty(values.shape), np.empty(values.shape))
    rows = max(1, _BLOCK // max(1, values.shape[1] // 8))
    in_threads(lambda block: _stand(values, candidates.starts, *block, *found), list(candidates.blocks(rows)))
    return found


@compiled
def _stand(
    values: Floats, starts: Ints, first: int, last: int, means: Floats, spreads: Floats, z: Floats, ranks: Floats
) -> None:
    for query in range(first, last):
        begin, count = starts[query], starts[query + 1] - starts[query]
        if count == 0:
            continue
        for column in range(values.shape[1]):
            own = values[begin : begin + count, column].copy()
            turn = ascending(own)
            # Divided by a power of two, which is exact, so that no square is too large; added up from the smallest on,
            # so that the order of the documents does not show.
            power = math.frexp(max(abs(own[turn[0]]), abs(own[turn[-1]])))[1]
            total = 0.0
            for place in turn:
                own[place] = math.ldexp(own[place], -power)
                total += own[place]
            centre = total / count
            squares = 0.0
            for place in turn:
                squares += (own[place] - centre) ** 2
            spread = math.sqrt(squares / count)
            if own[turn[0]] == own[turn[-1]]:
                centre = own[turn[0]]
            level = spread <= _NOISE * abs(centre) or own[turn[0]] == own[turn[-1]]
            means[query, column] = math.ldexp(centre, power)
            spreads[query, column] = 0.0 if level else math.ldexp(spread, power)
            start = 0
            while start < count:
                end = start + 1
                while end < count and (level or own[turn[end]] == own[turn[start]]):
                    end += 1
                rank = 0.5 if level else (start + end - 1) / (2.0 * (count - 1))
                for place in turn[start:end]:
                    z[begin + place, column] = 0.0 if level else (own[place] - centre) / spread
                    ranks[begin + place, column] = rank
                start = end
