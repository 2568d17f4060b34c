"""The compiled parser of LETOR / SVMlight lines: `label qid:id column:value … # comment`.

Two passes over the bytes: `survey` finds how large the table is, `parse` fills it. The few numbers that need more than
compiled arithmetic are listed for the caller, which reads them by Python.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from querywise.data.decimals import EXACT, HARD, NOT_A_NUMBER, read_number
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.compiled import compiled

Bytes = NDArray[np.uint8]

# What `parse` found; the caller words the message.
DONE, LIST_FULL, BAD_LABEL, NO_QID, BAD_COLUMN, REPEATED_COLUMN, BAD_VALUE = range(7)


@compiled
def _is_space(byte: int) -> bool:
    return byte == 32 or byte == 9 or byte == 13


@compiled
def _ends_token(text: Bytes, i: int, end: int) -> bool:
    return i >= end or text[i] == 10 or text[i] == 35 or _is_space(text[i])


@compiled
def _past_space(text: Bytes, i: int, end: int) -> int:
    while i < end and _is_space(text[i]):
        i += 1
    return i


@compiled
def _end_of_line(text: Bytes, i: int, end: int) -> int:
    while i < end and text[i] != 10:
        i += 1
    return i


@compiled
def survey(text: Bytes, begin: int, end: int) -> tuple[int, int]:
    """How many rows the lines of `text[begin:end]` hold, and the largest column number."""
    rows, largest, i = 0, 0, begin
    while i < end:
        while i < end and _is_space(text[i]):
            i += 1
        if i < end and text[i] != 10 and text[i] != 35:
            rows += 1
        while i < end and text[i] != 10 and text[i] != 35:
            # A column number is the digits a token begins with; a query id may hold colons of its own.
            token, number = i, 0
            while i < end and 48 <= text[i] <= 57:
                # Saturate: an absurd number must stay absurd, not wrap around.
                number = min(number * 10 + (text[i] - 48), 1 << 40)
                i += 1
            if i > token and i < end and text[i] == 58:
                largest = max(largest, number)
            # Nearly every byte is above '#', and one comparison passes it over.
            while i < end and (text[i] > 35 or not _ends_token(text, i, end)):
                i += 1
            while i < end and _is_space(text[i]):
                i += 1
        while i < end and text[i] != 10:
            i += 1
        i += 1
    return rows, largest


@compiled
def _read_head(text: Bytes, i: int, end: int) -> tuple[int, int, int, int]:
    """A row's label and query id: DONE, the label, where the id begins and ends; or what is wrong, and where twice."""
    token = i
    label, i, state = read_number(text, i, end)
    if state != EXACT or not _ends_token(text, i, end) or label < 0 or label != math.floor(label) or label > 2**53:
        return BAD_LABEL, 0, token, token
    i = _past_space(text, i, end)
    if not (i + 4 <= end and text[i] == 113 and text[i + 1] == 105 and text[i + 2] == 100 and text[i + 3] == 58):
        return NO_QID, 0, token, token
    i += 4
    query_id = i
    while not _ends_token(text, i, end):
        i += 1
    return (NO_QID, 0, token, token) if query_id == i else (DONE, int(label), query_id, i)


@compiled
def parse(
    text: Bytes,
    begin: int,
    end: int,
    row: int,
    features: Floats,
    labels: Ints,
    spans: Ints,
    hard: Ints,
) -> tuple[int, int, int, int]:
    """Fill the table from `text[begin:end]`, starting at `row`.

    `spans` receives, for every row, begin and end of its query id and of its comment. `hard` receives row, column and
    position of the numbers left to Python. Returns the state, the position it concerns, the next row, and how many
    numbers are in `hard`; after LIST_FULL call again from there.
    """
    hard_count, i = 0, begin
    seen = np.zeros(features.shape[1], np.int64)  # the last row with a value in each column, counted from 1
    while i < end:
        line, i = i, _past_space(text, i, end)
        if i >= end or text[i] == 10 or text[i] == 35:
            i = _end_of_line(text, i, end) + 1
            continue
        if hard_count + features.shape[1] > hard.shape[0]:
            return LIST_FULL, line, row, hard_count
        state, labels[row], spans[row, 0], i = _read_head(text, i, end)
        spans[row, 1] = i
        if state != DONE:
            return state, i, row, hard_count
        while True:
            while i < end and _is_space(text[i]):
                i += 1
            if i >= end or text[i] == 10 or text[i] == 35:
                break
            token, column = i, 0
            while i < end and 48 <= text[i] <= 57:
                column = min(column * 10 + (text[i] - 48), 1 << 40)
                i += 1
            if i == token or i >= end or text[i] != 58 or column < 1 or column > features.shape[1]:
                return BAD_COLUMN, token, row, hard_count
            if seen[column - 1] == row + 1:
                return REPEATED_COLUMN, token, row, hard_count
            seen[column - 1] = row + 1
            place = i + 1
            value, i, state = read_number(text, place, end)
            if state == NOT_A_NUMBER or not _ends_token(text, i, end):
                return BAD_VALUE, token, row, hard_count
            if state == HARD:
                hard[hard_count, 0], hard[hard_count, 1], hard[hard_count, 2] = row, column - 1, place
                hard_count += 1
            features[row, column - 1] = value
        if i < end and text[i] == 35:
            spans[row, 2], i = i + 1, _end_of_line(text, i, end)
            spans[row, 3] = i
        i, row = i + 1, row + 1
    return DONE, end, row, hard_count


@compiled
def query_begins(text: Bytes, spans: Ints) -> Bools:
    """Which rows carry another query id than the row before them."""
    begins = np.empty(spans.shape[0], np.bool_)
    for row in range(spans.shape[0]):
        a, b = spans[max(row - 1, 0), 0], spans[row, 0]
        length = spans[row, 1] - b
        same = row > 0 and spans[row - 1, 1] - a == length
        if same:
            for i in range(length):
                if text[a + i] != text[b + i]:
                    same = False
                    break
        begins[row] = not same
    return begins
