"""Sums over the postings and words of a query: the compiled kernels of `bm25`, `index` and `scores`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled

_Counts = NDArray[np.int32]
_Four = tuple[float, float, float, float]
_NONE, _NOTHING = (0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0)
_LEAST = float(np.finfo(np.float64).tiny)
_LARGE = 1e150  # product of which the logarithm is taken before more is multiplied
_FAR = 16  # postings for each document looked for, from which on they are not read one by one


@compiled
def find_best(
    terms: Ints, starts: Ints, documents: _Counts, weights: Floats, sums: Floats, found: Ints, best: Floats
) -> int:
    """The documents with the largest sums of weights, of equals the earlier, largest first; how many there are.

    As many as `found` has room for. sums: one number for every document, all 0, before and after.
    """
    for term in terms:
        for place in range(starts[term], starts[term + 1]):
            sums[documents[place]] += weights[place]
    count, room = 0, len(found)
    for term in terms:
        for place in range(starts[term], starts[term + 1]):
            document = np.int64(documents[place])
            total = sums[document]
            sums[document] = 0.0
            if total < _LEAST:
                continue
            if count < room:
                found[count], best[count] = document, total
                _rise(found, best, count)
                count += 1
            elif total > best[0] or (total == best[0] and document < found[0]):
                found[0], best[0] = document, total
                _sink(found, best, room)
    for last in range(count - 1, 0, -1):
        found[0], found[last] = found[last], found[0]
        best[0], best[last] = best[last], best[0]
        _sink(found, best, last)
    return count


@compiled
def _rise(found: Ints, best: Floats, place: int) -> None:
    """Bring the last of a heap, whose worst is the first, to its place."""
    while place > 0:
        above = (place - 1) // 2
        if best[above] < best[place] or (best[above] == best[place] and found[above] > found[place]):
            return
        found[above], found[place] = found[place], found[above]
        best[above], best[place] = best[place], best[above]
        place = above


@compiled
def _sink(found: Ints, best: Floats, count: int) -> None:
    """Bring the first of a heap of so many to its place."""
    place = 0
    while 2 * place + 1 < count:
        below = 2 * place + 1
        other = below + 1
        if other < count and (
            best[other] < best[below] or (best[other] == best[below] and found[other] > found[below])
        ):
            below = other
        if best[place] < best[below] or (best[place] == best[below] and found[place] > found[below]):
            return
        found[below], found[place] = found[place], found[below]
        best[below], best[place] = best[place], best[below]
        place = below


@compiled
def find_places(starts: Ints, documents: _Counts, terms: Ints, asked: Ints, order: Ints, places: Ints) -> None:
    """The place of each posting of a term in a document asked for, into documents × terms; −1 where there is none.

    order: the documents asked for in ascending order of their numbers. A term −1 is nowhere.
    """
    for column, term in enumerate(terms):
        place, end = (starts[term], starts[term + 1]) if term >= 0 else (0, 0)
        far = end - place > _FAR * len(asked)
        for row in order:
            document = asked[row]
            step = 1 if far else 0
            while step > 0 and place + step < end and documents[place + step] < document:
                place += step
                step *= 2
            while step > 0:
                if place + step < end and documents[place + step] < document:
                    place += step
                step //= 2
            while place < end and documents[place] < document:
                place += 1
            places[row, column] = place if place < end and documents[place] == document else -1


@compiled
def low_scores(
    starts: Ints,
    documents: _Counts,
    counts: _Counts,
    totals: Ints,
    lengths: _Counts,
    size: int,
    terms: Ints,
    asked: Ints,
    order: Ints,
    first: int,
    scores: Floats,
) -> None:
    """L1 to L10 of the documents asked for, into the columns from `first` on."""
    places = np.empty((len(asked), len(terms)), np.int64)
    find_places(starts, documents, terms, asked, order, places)
    rows = np.empty((4, len(terms)))
    idf, rarity, above_one, surprise = rows[0], rows[1], rows[2], rows[3]
    for column, term in enumerate(terms):
        frequency, total = (starts[term + 1] - starts[term], totals[term]) if term >= 0 else (0, 0)
        idf[column], rarity[column] = math.log(len(lengths) / max(frequency, 1)), size / max(total, 1)
        above_one[column], surprise[column] = math.log(max(idf[column], 1.0)), math.log(rarity[column] + 1)
    for row, document in enumerate(asked):
        length = float(max(lengths[document], 1))
        l1 = l3 = l5 = l6 = l7 = l9 = 0.0
        logarithms, factors = _NONE, _NOTHING
        for column in range(len(terms)):
            if places[row, column] < 0:
                continue
            often = float(counts[places[row, column]])
            share = often / length
            l1, l3, l5 = l1 + often, l3 + share, l5 + idf[column]
            l6, l7, l9 = l6 + above_one[column], l7 + surprise[column], l9 + often * idf[column]
            one, two = factors[0] * (often + 1), factors[1] * (share + 1)
            three, four = factors[2] * (share * idf[column] + 1), factors[3] * (share * rarity[column] + 1)
            factors = one, two, three, four
            if max(one, two, three, four) > _LARGE:
                logarithms, factors = _added(logarithms, factors), _NOTHING
        l2, l4, l8, l10 = _added(logarithms, factors)
        for column, score in enumerate((l1, l2, l3, l4, l5, l6, l7, l8, l9, l10)):
            scores[row, first + column] = score


@compiled
def high_scores(
    starts: Ints,
    documents: _Counts,
    totals: Ints,
    counts: _Counts,
    weights: Floats,
    lengths: _Counts,
    distinct: _Counts,
    size: int,
    longest: int,
    smoothing: tuple[float, float, float],
    terms: Ints,
    asked: Ints,
    order: Ints,
    first: int,
    scores: Floats,
) -> None:
    """H1 to H5 of the documents asked for, into the columns from `first` on; weights: what each posting adds to H1."""
    places = np.empty((len(asked), len(terms)), np.int64)
    find_places(starts, documents, terms, asked, order, places)
    mu, mix, discount = smoothing
    background, many = np.empty(len(terms)), len(terms)
    for column, term in enumerate(terms):  # a term that is nowhere counts as half an occurrence
        background[column] = max(float(totals[term]) if term >= 0 else 0.0, 0.5) / max(size, 1)
    for row, document in enumerate(asked):
        empty = lengths[document] == 0
        length, different = (max(longest, 1), 1) if empty else (lengths[document], distinct[document])
        kept, rest = (1 - mix) / length, discount * different
        best = 0.0
        logarithms, factors = _NONE, _NOTHING
        for column in range(many):
            place, p = places[row, column], background[column]
            often = float(counts[place]) if place >= 0 else 0.0
            best += weights[place] if place >= 0 else 0.0
            one, two = factors[0] * (often + mu * p), factors[1] * (kept * often + mix * p)
            three = factors[2] * (max(often - discount, 0.0) + rest * p)
            factors = one, two, three, 1.0
            if min(one, two, three) < 1 / _LARGE or max(one, two, three) > _LARGE:
                logarithms, factors = _added(logarithms, factors), _NOTHING
        dirichlet, mixed, discounted, _ = _added(logarithms, factors)
        scores[row, first], scores[row, first + 1] = best, math.log1p(best)
        scores[row, first + 2] = dirichlet - many * math.log(length + mu)
        scores[row, first + 3] = mixed
        scores[row, first + 4] = discounted - many * math.log(float(length))


@compiled
def _added(sums: _Four, factors: _Four) -> _Four:
    """Sums, and the logarithms of products added to them: that of a product is the sum of theirs."""
    return (
        sums[0] + math.log(factors[0]),
        sums[1] + math.log(factors[1]),
        sums[2] + math.log(factors[2]),
        sums[3] + math.log(factors[3]),
    )
