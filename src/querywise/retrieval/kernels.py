"""Compiled kernels of words: the terms of the 25 scores, BM25's best documents, and how a query matches each field.

For `scores`, numpy computes all logarithms at once between the kernels. Products, quotients and sums follow the
formulas, and sums are formed in numpy's own order, so every bit equals numpy's result for the formulas on tables of all
terms. A cell is a term in a document; a sum runs over the cells of a document.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.compiled import compiled

LOW, HIGH = 4, 3  # logarithms per cell: for L2, L4, L8, L10, and for H3, H4, H5
_FAR = 16  # postings per document from which binary search replaces a scan
_SHORTEST = 1e-12  # mean length if all documents are empty
_LANES, _BLOCK = 8, 128  # numpy keeps eight partial sums, over at most this many numbers
_PARTS = 64  # stack size for recursive halving, enough for any number of terms
_Counts = NDArray[np.int32]


@compiled
def find_cells(
    starts: Ints, holders: _Counts, often: _Counts, terms: Ints, documents: Ints, zeros: Ints, cells: Ints
) -> int:
    """List the cells: the document's row, the term's column, and the count. Return their number.

    Term −1 is unknown. `zeros` has a zero for every document of the index, before and after the call. `cells` has room
    for one more than there can be. The result is −1 if a document does not exist.
    """
    again, repeated, found = np.empty(len(documents), np.int64), False, 0
    for document in documents:
        if document < 0 or document >= len(zeros):
            return -1
    for row, document in enumerate(documents):
        again[row] = zeros[document]
        repeated = repeated or again[row] > 0
        zeros[document] = row + 1
    for column, term in enumerate(terms):
        first, end = (starts[term], starts[term + 1]) if term >= 0 else (0, 0)
        if end - first <= _FAR * len(documents):
            for place in range(first, end):  # rows that were not requested are overwritten by the next
                row = zeros[holders[place]]
                cells[found, 0], cells[found, 1], cells[found, 2] = row - 1, column, often[place]
                found += 1 if row > 0 else 0
        else:
            for row, document in enumerate(documents):
                place = _place_of(document, holders, first, end)
                cells[found, 0], cells[found, 1], cells[found, 2] = row, column, often[place]
                found += 1 if holders[place] == document and zeros[document] == row + 1 else 0
    for document in documents:
        zeros[document] = 0
    return _repeat(again, cells, found) if repeated else found


@compiled
def _place_of(document: int, holders: _Counts, first: int, end: int) -> int:
    """Return the last position with a number up to this one, or the first position."""
    while end - first > 1:
        middle = (first + end) // 2
        if holders[middle] <= document:
            first = middle
        else:
            end = middle
    return first


@compiled
def _repeat(again: Ints, cells: Ints, found: int) -> int:
    """Add cells for documents that are requested repeatedly.

    `again` is the previous row with the same document, plus 1.
    """
    cell = 0
    while cell < found:
        row = again[cells[cell, 0]]
        if row > 0:
            cells[found, 0], cells[found, 1], cells[found, 2] = row - 1, cells[cell, 1], cells[cell, 2]
            found += 1
        cell += 1
    return found


@compiled
def list_low(
    starts: Ints,
    holders: _Counts,
    often: _Counts,
    totals: Ints,
    lengths: _Counts,
    idf: Floats,
    size: float,
    terms: Ints,
    documents: Ints,
    zeros: Ints,
    cells: Ints,
    shares: Floats,
    tables: Floats,
    both: Floats,
    factors: Floats,
    arguments: Floats,
) -> int:
    """List the cells of a field and the arguments of their logarithms.

    Return their number, or −1 for a missing document.

    Args:
        shares: receives c/|d| of the cells.
        tables: receives documents × terms: c, and where it is not 0.
        both: c is added to it.
        factors: receives log(N/df) of the terms.
        arguments: receives max(log(N/df), 1) of the terms and |C|/c(t,C) + 1, for L6 and L7, then those of the cells.
    """
    used, rarity = 2 * len(terms), np.empty(len(terms))
    for column, term in enumerate(terms):
        factors[column] = idf[term] if term >= 0 else 0.0
        rarity[column] = size / max(float(totals[term]) if term >= 0 else 0.0, 1.0)
        arguments[column] = max(factors[column], 1.0)
        arguments[len(terms) + column] = rarity[column] + 1
    _clear(tables.ravel())
    found = find_cells(starts, holders, often, terms, documents, zeros, cells)
    for cell in range(found):
        row, column, count = cells[cell, 0], cells[cell, 1], float(cells[cell, 2])
        tables[0, row, column], tables[1, row, column] = count, 1.0
        both[column, row] += count
        share = count / max(float(lengths[documents[row]]), 1.0)
        shares[cell] = share
        arguments[used] = count + 1
        arguments[used + 1] = share + 1
        arguments[used + 2] = share * factors[column] + 1
        arguments[used + 3] = share * rarity[column] + 1
        used += LOW
    return found


@compiled
def list_high(
    totals: Ints,
    lengths: _Counts,
    distinct: _Counts,
    rarities: Floats,
    size: float,
    longest: float,
    mean: float,
    k1: float,
    b: float,
    mu: float,
    mix: float,
    discount: float,
    terms: Ints,
    documents: Ints,
    counts: Floats,
    plain: Floats,
    arguments: Floats,
) -> None:
    """Compute each cell's contribution to BM25, and the arguments of its logarithms in H3 to H5, as terms × documents.

    `rarities` is BM25's idf of all terms.
    """
    many = len(documents)
    saturation, length, smooth = np.empty(many), np.empty(many), np.empty(many)
    for row, document in enumerate(documents):
        known, different = float(lengths[document]), float(distinct[document])
        saturation[row] = k1 * (1 - b + b * (known / max(mean, _SHORTEST)))
        length[row], different = (known, different) if known > 0 else (max(longest, 1.0), 1.0)
        smooth[row] = discount * different / length[row]
    for column, term in enumerate(terms):
        # An unknown term counts as half an occurrence.
        background = max(float(totals[term]) if term >= 0 else 0.0, 0.5) / max(size, 1.0)
        rare = rarities[term] if term >= 0 else 0.0
        for row in range(many):  # np.divide, since the operator would check every divisor first
            often = counts[column, row]
            divisor = often + saturation[row] if often > 0 else 1.0
            plain[column, row] = np.divide(rare * often * (k1 + 1), divisor)
            arguments[0, column, row] = np.divide(often + mu * background, length[row] + mu)
            arguments[1, column, row] = (1 - mix) * np.divide(often, length[row]) + mix * background
            rest = np.divide(max(often - discount, 0.0), length[row])
            arguments[2, column, row] = rest + smooth[row] * background


@compiled
def add_low(
    cells: Ints, shares: Floats, logarithms: Floats, counts: Floats, products: Floats, first: int, scores: Floats
) -> None:
    """Write L1 to L10 to the columns from `first` on; `products` are L5, L6, L7, L9."""
    many, terms = counts.shape
    if terms > _BLOCK:
        sums = _add_tables(cells, shares, logarithms[2 * terms :], many, terms)
    else:
        sums = _add_cells(cells, shares, logarithms[2 * terms :], many, terms)
    for row in range(many):
        total = 0.0
        for column in range(terms):
            total += counts[row, column]
        scores[row, first], scores[row, first + 2] = total, sums[row, LOW]
        scores[row, first + 1], scores[row, first + 3] = sums[row, 0], sums[row, 1]
        scores[row, first + 7], scores[row, first + 9] = sums[row, 2], sums[row, 3]
        for number in range(3):
            scores[row, first + 4 + number] = products[number, row]
        scores[row, first + 8] = products[3, row]


@compiled
def _add_cells(cells: Ints, shares: Floats, logarithms: Floats, many: int, terms: int) -> Floats:
    """Sum the logarithms of each document's cells, then their shares, like `_add_block` without zeros."""
    full = terms - terms % _LANES
    lanes = np.zeros((_LANES if full > 0 else 1, many, LOW + 1))
    for cell in range(len(cells)):
        row, column = cells[cell, 0], cells[cell, 1]
        if column < full:
            for number in range(LOW):
                lanes[column % _LANES, row, number] += logarithms[LOW * cell + number]
            lanes[column % _LANES, row, LOW] += shares[cell]
    sums: Floats = lanes[0]
    if full > 0:
        for row in range(many):
            for i in range(LOW + 1):
                left = (lanes[0, row, i] + lanes[1, row, i]) + (lanes[2, row, i] + lanes[3, row, i])
                right = (lanes[4, row, i] + lanes[5, row, i]) + (lanes[6, row, i] + lanes[7, row, i])
                sums[row, i] = left + right
    for cell in range(len(cells)):
        row = cells[cell, 0]
        if cells[cell, 1] >= full:
            for number in range(LOW):
                sums[row, number] += logarithms[LOW * cell + number]
            sums[row, LOW] += shares[cell]
    return sums


@compiled
def _add_tables(cells: Ints, shares: Floats, logarithms: Floats, many: int, terms: int) -> Floats:
    """Do the same for any number of terms, using tables."""
    sums, values, added = np.empty((many, LOW + 1)), np.empty((terms, many)), np.empty(many)
    for number in range(LOW + 1):
        _clear(values.ravel())
        for cell in range(len(cells)):
            value = logarithms[LOW * cell + number] if number < LOW else shares[cell]
            values[cells[cell, 1], cells[cell, 0]] = value
        add_up(values, added)
        for row in range(many):
            sums[row, number] = added[row]
    return sums


@compiled
def add_high(plain: Floats, logarithms: Floats, first: int, best: Floats, scores: Floats) -> None:
    """Write H1, also to `best`, and H3 to H5 to the columns from `first` on."""
    add_up(plain, best)
    sums = np.empty(len(best))
    for row in range(len(best)):
        scores[row, first] = best[row]
    for number in range(HIGH):
        add_up(logarithms[number], sums)
        for row in range(len(best)):
            scores[row, first + 2 + number] = sums[row]


@compiled
def add_up(values: Floats, sums: Floats) -> None:
    """Sum the rows of a table like numpy's pairwise summation: many rows as the sum of two halves, and so on."""
    if len(values) <= _BLOCK:
        _add_block(values, sums)
        return
    parts, waiting = np.empty((_PARTS, 2), np.int64), 1
    made, ready = np.empty((1 + len(values) // _LANES, len(sums))), 0
    parts[0, 0], parts[0, 1] = 0, len(values)
    while waiting > 0:
        waiting -= 1
        first, count = parts[waiting, 0], parts[waiting, 1]
        if count < 0:  # both halves are ready
            ready -= 1
            for i in range(len(sums)):
                made[ready - 1, i] += made[ready, i]
        elif count <= _BLOCK:
            _add_block(values[first : first + count], made[ready])
            ready += 1
        else:
            half = count // 2 - count // 2 % _LANES
            parts[waiting, 1] = -1
            parts[waiting + 1, 0], parts[waiting + 1, 1] = first + half, count - half
            parts[waiting + 2, 0], parts[waiting + 2, 1] = first, half
            waiting += 3
    for i in range(len(sums)):
        sums[i] = made[0, i]


@compiled
def _add_block(values: Floats, sums: Floats) -> None:
    """Sum the rows of a table in eight partial sums, and the rest one by one."""
    count, many = values.shape
    full = count - count % _LANES
    if full == 0:
        _clear(sums)
    else:
        lanes = np.zeros((_LANES, many))
        for row in range(full):
            for i in range(many):
                lanes[row % _LANES, i] += values[row, i]
        for i in range(many):
            left = (lanes[0, i] + lanes[1, i]) + (lanes[2, i] + lanes[3, i])
            right = (lanes[4, i] + lanes[5, i]) + (lanes[6, i] + lanes[7, i])
            sums[i] = left + right
    for row in range(full, count):
        for i in range(many):
            sums[i] += values[row, i]


@compiled
def _clear(values: Floats) -> None:
    for place in range(len(values)):
        values[place] = 0.0


_LEAST = float(np.finfo(np.float64).tiny)
_SMALL = 1e-200  # totals above this are counted in steps
_STEPS = 512


@compiled
def find_best(
    terms: Ints, starts: Ints, documents: _Counts, weights: Floats, sums: Floats, found: Ints, best: Floats
) -> int:
    """Find the documents with the largest sums of weights, largest first, ties in order; return their number.

    It finds as many as fit into `found`. `sums` has a zero for every document, before and after the call.
    """
    postings = 0
    for term in terms:
        postings += starts[term + 1] - starts[term]
        for place in range(starts[term], starts[term + 1]):
            sums[documents[place]] += weights[place]
    numbers, totals = np.empty(min(postings, len(sums)) + 1, np.int64), np.empty(min(postings, len(sums)) + 1)
    many = 0
    for term in terms:
        for place in range(starts[term], starts[term + 1]):
            document = documents[place]
            numbers[many], totals[many] = document, sums[document]
            many += 1 if sums[document] >= _LEAST else 0  # 0 means that it was added before
            sums[document] = 0.0
    count, room = 0, len(found)
    for place in range(_keep(numbers, totals, many, room) if many > room else many):
        if count < room:
            found[count], best[count] = numbers[place], totals[place]
            _rise(found, best, count)
            count += 1
        elif totals[place] > best[0] or (totals[place] == best[0] and numbers[place] < found[0]):
            found[0], best[0] = numbers[place], totals[place]
            _sink(found, best, room)
    for last in range(count - 1, 0, -1):
        found[0], found[last] = found[last], found[0]
        best[0], best[last] = best[last], best[0]
        _sink(found, best, last)
    return count


@compiled
def _keep(numbers: Ints, totals: Floats, many: int, room: int) -> int:
    """Move documents whose totals are among the `room` largest, and few others, to the front; return their number.

    Totals are counted in steps relative to the largest; documents below the step of the last of these are dropped.
    """
    largest = 0.0
    for place in range(many):
        largest = max(largest, totals[place])
    if not _SMALL < largest < 1 / _SMALL:
        return many
    scale, steps, step, kept = (_STEPS - 1) / largest, np.zeros(_STEPS, np.int64), _STEPS, 0
    for place in range(many):
        steps[int(totals[place] * scale)] += 1
    while kept < room:
        step -= 1
        kept += steps[step]
    kept = 0
    for place in range(many):
        numbers[kept], totals[kept], total = numbers[place], totals[place], totals[place]
        kept += 1 if int(total * scale) >= step else 0
    return kept


@compiled
def _rise(found: Ints, best: Floats, place: int) -> None:
    """Move the last element of a heap, whose worst is first, to its position."""
    while place > 0:
        above = (place - 1) // 2
        if best[above] < best[place] or (best[above] == best[place] and found[above] > found[place]):
            return
        found[above], found[place] = found[place], found[above]
        best[above], best[place] = best[place], best[above]
        place = above


@compiled
def _sink(found: Ints, best: Floats, count: int) -> None:
    """Move the first element of a heap of this size to its position."""
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
