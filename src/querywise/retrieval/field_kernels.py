"""Compiled kernels of `field_features`: how a query matches the words of documents, field by field and in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled

_Counts = NDArray[np.int32]


@compiled
def meet(
    tokens: _Counts,
    item_ends: Ints,
    document_ends: Ints,
    lengths: _Counts,
    means: Floats,
    idf: Floats,
    weights: Floats,
    rarity: Floats,
    words: int,
    needed: int,
    k1: float,
    b: float,
    sequence: Ints,
    places: Ints,
    documents: Ints,
    found: Floats,
    over: Floats,
) -> None:
    """Read the words of every document once, field by field.

    Args:
        tokens: the words of all items, concatenated.
        item_ends: item i ends at item_ends[i + 1].
        document_ends: field f's items of document d end at document_ends[f N + d + 1].
        lengths, means, weights: of each field.
        idf: of each field, by the query's distinct words.
        rarity: the idf of these words over all fields, 0 for stop words.
        words: the number of distinct words without stop words, which come first.
        needed: how many of them count as most.
        k1, b: the parameters of BM25.
        sequence: the index of the distinct word at each position of the query.
        places: 1 + that index for every word of the index, or 0.
        documents: the documents.
        found: documents × fields × 8, filled in the order of the names in `field_features`.
        over: documents × 9, filled likewise.
    """
    fields, many, terms = lengths.shape[0], lengths.shape[1], len(rarity)
    counts, pseudo, there = np.empty(terms), np.empty(terms), np.empty(terms)
    run, common, numbers = np.zeros(len(sequence) + 1, np.int64), np.zeros(len(sequence) + 1, np.int64), np.zeros(3)
    covered, whole, mass = np.zeros(len(sequence)), max(words, 1), 0.0
    for term in range(terms):
        mass += rarity[term]
    for row, document in enumerate(documents):
        pseudo[:], there[:], covered[:] = 0.0, 0.0, 0.0
        total, best, hit = 0.0, 0.0, 0.0
        for field in range(fields):
            counts[:], numbers[:] = 0.0, 0.0
            own, place, most, met = found[row, field], field * many + document, 0.0, 0
            for item in range(document_ends[place], document_ends[place + 1]):
                first, end, shared = item_ends[item], item_ends[item + 1], 0
                for at in range(first, end):
                    column = places[tokens[at]] - 1
                    if column >= 0:
                        counts[column] += 1.0
                        shared += 1
                if shared > 0:
                    met += shared
                    most = max(most, shared / (end - first))
                    _read_in_order(tokens, first, end, places, sequence, run, common, numbers, covered)
            long = lengths[field, document]
            score, norm, held = 0.0, 1 - b + b * (long / means[field]), 0
            if met > 0:
                for term in range(terms):
                    if counts[term] > 0:
                        score += idf[field, term] * counts[term] * (k1 + 1) / (counts[term] + k1 * norm)
                        pseudo[term] += weights[field] * counts[term] / max(norm, 1e-12)
                        there[term] = 1.0
                        held += 1 if term < words else 0
                hit += 1.0
            own[0], own[1], own[2], own[3] = score, held / whole, most, 1.0 if numbers[2] >= 10 else 0.0
            own[4], own[5] = numbers[0] / max(len(sequence), 1), numbers[1] / max(len(sequence), 1)
            own[6], own[7] = numbers[2] % 10, long
            total += weights[field] * score
            best = max(best, weights[field] * score)
        _add_over(pseudo, there, covered, rarity, mass, words, needed, k1, over[row])
        over[row, 1], over[row, 2], over[row, 7] = total, best, hit


@compiled
def _read_in_order(
    tokens: _Counts,
    first: int,
    end: int,
    places: Ints,
    sequence: Ints,
    run: Ints,
    common: Ints,
    numbers: Floats,
    covered: Floats,
) -> None:
    """Update the longest run of the query's words, the longest common subsequence and named items with one item.

    `numbers` holds the longest run so far, the longest subsequence, and how many items are named, at most 9, plus 10 if
    an item is the whole query. `covered` marks the positions of the query where items are named.
    """
    long, size = len(sequence), end - first
    run[:], common[:] = 0, 0
    for place in range(first, end):
        column, whole = places[tokens[place]] - 1, False
        if column < 0:
            run[:] = 0
            continue
        before, last = 0, 0  # of the previous word, at the previous position
        for at in range(long):
            run_above, common_above = run[at + 1], common[at + 1]
            if sequence[at] == column:
                run[at + 1] = before + 1
                common[at + 1] = max(common_above, last + 1)
                numbers[0] = max(numbers[0], before + 1)
                if place == end - 1 and before + 1 == size:
                    whole = True
                    for bit in range(at + 1 - size, at + 1):
                        covered[bit] = 1.0
            else:
                run[at + 1] = 0
            common[at + 1] = max(common[at + 1], common[at])
            before, last = run_above, common_above
        if whole:
            named = min(numbers[2] % 10 + 1, 9)
            numbers[2] = named + (10 if size == long or numbers[2] >= 10 else 0)
    numbers[1] = max(numbers[1], common[long])


@compiled
def _add_over(
    pseudo: Floats,
    there: Floats,
    covered: Floats,
    rarity: Floats,
    mass: float,
    words: int,
    needed: int,
    k1: float,
    over: Floats,
) -> None:
    """Compute the features over all fields of a document, except those that are summed over fields."""
    score, held, rare, marked = 0.0, 0, 0.0, 0.0
    for term in range(len(there)):
        if there[term] > 0:
            score += rarity[term] * pseudo[term] * (k1 + 1) / (pseudo[term] + k1)
            rare += rarity[term]
            held += 1 if term < words else 0
    for place in range(len(covered)):
        marked += covered[place]
    over[0], over[3], over[4] = score, held / max(words, 1), rare / mass if mass > 0 else 0.0
    over[5] = 1.0 if 0 < words == held else 0.0
    over[6] = 1.0 if words > 0 and held >= needed else 0.0
    over[8] = marked / max(len(covered), 1)


@compiled
def measure(
    tokens: _Counts, item_ends: Ints, document_ends: Ints, first_stop: int, lengths: _Counts, frequency: _Counts
) -> None:
    """Count each document's words in each field without stop words, and how many documents contain each word."""
    fields, many = lengths.shape
    last = np.full(frequency.shape[1], -1, np.int64)
    for field in range(fields):
        for document in range(many):
            place, count = field * many + document, 0
            for at in range(item_ends[document_ends[place]], item_ends[document_ends[place + 1]]):
                word = tokens[at]
                if word < first_stop:
                    count += 1
                    if last[word] != place:
                        last[word] = place
                        frequency[field, word] += 1
            lengths[field, document] = count
