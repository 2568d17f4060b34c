"""The compiled parser of LETOR / SVMlight lines: `label qid:id column:value … # comment`.

It makes two passes over the bytes: `survey` finds the size of the table, `parse` fills it. The few numbers that need
more than compiled arithmetic are listed for the caller, which reads them in Python. The text ends with a newline, at
which every loop stops. There are few functions here, since each takes a while to compile before the first file is read.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from querywise.data.decimals import EXACT, HARD, NOT_A_NUMBER, read_number, read_whole
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import compiled

Bytes = NDArray[np.uint8]

# The states that `parse` returns; the caller words the message.
DONE, LIST_FULL, BAD_LABEL, NO_QID, BAD_COLUMN, REPEATED_COLUMN, BAD_VALUE = range(7)

# The role of a byte: part of a token, a space between tokens, or the end of the tokens.
_TOKEN, _SPACE, _END = range(3)
_KINDS = np.full(256, _TOKEN)
_KINDS[[9, 13, 32]], _KINDS[[10, 35]] = _SPACE, _END
_QID = np.frombuffer(b"qid:", np.uint8)


@compiled
def _past_space(text: Bytes, i: int) -> int:
    while _KINDS[text[i]] == _SPACE:
        i += 1
    return i


@compiled
def survey(text: Bytes, begin: int, end: int) -> tuple[int, int]:
    """Return the number of rows in `text[begin:end]`, and the largest column number."""
    rows, largest, i = 0, 0, begin
    while i < end:
        i = _past_space(text, i)
        if _KINDS[text[i]] == _TOKEN:
            rows += 1
        while _KINDS[text[i]] == _TOKEN:
            # A column number consists of a token's leading digits; a query id may itself contain colons.
            number, i = read_whole(text, i)
            if text[i] == 58 and number > largest:
                largest = number
            while _KINDS[text[i]] == _TOKEN:
                i += 1
            i = _past_space(text, i)
        while text[i] != 10:
            i += 1
        i += 1
    return rows, largest


@compiled
def _read_head(text: Bytes, i: int) -> tuple[int, int | np.int64, int, int]:
    """Read a row's label and query id.

    Returns DONE, the label, and the id's start and end; or an error, 0 and its position twice.
    """
    label, after, state = read_number(text, i)
    if state != EXACT or _KINDS[text[after]] == _TOKEN or label < 0 or label != math.floor(label) or label > 2**53:
        return BAD_LABEL, 0, i, i
    after = _past_space(text, after)
    query_id, place = after, 0
    while place < 4 and text[query_id] == _QID[place]:
        query_id, place = query_id + 1, place + 1
    after = query_id
    while _KINDS[text[after]] == _TOKEN:
        after += 1
    return (NO_QID, 0, i, i) if place < 4 or query_id == after else (DONE, np.int64(label), query_id, after)


@compiled
def parse(
    text: Bytes,
    begin: int,
    end: int,
    row: int,
    features: Floats,
    labels: Ints,
    spans: Ints,
    begins: Bools,
    seen: Ints,
    hard: Ints,
) -> tuple[int, int, int, int]:
    """Fill the table from `text[begin:end]`, starting at `row`.

    `spans` receives, for every row, start and end of its query id and of its comment; `begins`, whether its query id
    differs from that of the row before (undefined for the first row). `seen` holds for every column the last row with a
    value in it, counted from 1. `hard` receives row, column and position of the numbers left to Python. Returns the
    state, its position, the next row, and how many numbers are in `hard`; after LIST_FULL call again from there.
    """
    hard_count, i, other, other_end, width = 0, begin, begin, begin, features.shape[1]
    while i < end:
        line, i = i, _past_space(text, i)
        if _KINDS[text[i]] == _TOKEN:
            if hard_count + width > len(hard):
                return LIST_FULL, line, row, hard_count
            state, labels[row], query_id, i = _read_head(text, i)
            if state != DONE:
                return state, i, row, hard_count
            spans[row, 0], spans[row, 1], place = query_id, i, query_id
            while place < i and text[place] == text[other + place - query_id]:
                place += 1
            begins[row] = place < i or i - query_id != other_end - other
            other, other_end, i = query_id, i, _past_space(text, i)
            while _KINDS[text[i]] == _TOKEN:
                token = i
                column, i = read_whole(text, i)
                if text[i] != 58 or column < 1 or column > width:
                    return BAD_COLUMN, token, row, hard_count
                if seen[column - 1] > row:
                    return REPEATED_COLUMN, token, row, hard_count
                seen[column - 1] = row + 1
                place = i + 1
                features[row, column - 1], i, state = read_number(text, place)
                if state == NOT_A_NUMBER or _KINDS[text[i]] == _TOKEN:
                    return BAD_VALUE, token, row, hard_count
                if state == HARD:
                    hard[hard_count, 0], hard[hard_count, 1], hard[hard_count, 2] = row, column - 1, place
                    hard_count += 1
                i = _past_space(text, i)
            if text[i] == 35:
                spans[row, 2] = i + 1
                while text[i] != 10:
                    i += 1
                spans[row, 3] = i
            row += 1
        while text[i] != 10:
            i += 1
        i += 1
    return DONE, end, row, hard_count
