"""Numbers read by compiled code, against Python's own reading."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.decimals import read_rows

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
WRITTEN = st.one_of(
    FLOATS.map(repr),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.6f}"),
    st.integers(-(10**20), 10**20).map(str),
    st.decimals(-(10**6), 10**6, allow_nan=False, allow_infinity=False, places=12).map("{:f}".format),
    st.sampled_from(["0", "-0", "-0.0", "9007199254740993", "0.1", "1e22", "1E-22", "123456789012345", "1" * 17]),
)
SPACE = st.sampled_from(["", " ", "\n", "\t ", "\r\n"])


def read(text: str, rows: int, width: int) -> list[list[float]] | None:
    table = np.full((rows, width), np.nan)
    return table.tolist() if read_rows(np.frombuffer(text.encode(), np.uint8), table) else None


@settings(deadline=None)
@given(st.lists(st.lists(WRITTEN, min_size=3, max_size=3), max_size=4), SPACE)
def test_what_is_read_is_what_python_reads_to_the_last_bit(rows: list[list[str]], space: str) -> None:
    text = "".join("[" + f"{space},{space}".join(row) + space + "]" for row in rows)
    found = read(text, len(rows), 3)
    expected = [[float(each) for each in row] for row in rows]
    if found is None:  # left to Python: allowed only where a number is long or far from 1
        plain = [value for row in rows for value in row if len(value) < 16 and "e" not in value.lower()]
        assert len(plain) < 3 * len(rows)
    else:
        assert np.array(found).tobytes() == np.array(expected).reshape(len(rows), 3).tobytes()


def test_ordinary_numbers_are_not_left_to_python() -> None:
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=(200, 5)), rng.normal(size=(200, 5)).round(6), rng.integers(0, 99, (200, 5))):
        text = "".join(map(json.dumps, values.tolist()))
        assert read(text, 200, 5) == values.tolist()


def test_anything_else_is_left_to_python() -> None:
    for text in ("[1,2]", "[1,2,3,4]", "[1,null,3]", '[1,"2",3]', '{"a":1}', "[1,[2],3]", "[1,true,3]", "[1e400,2,3]"):
        assert read(text, 1, 3) is None, text
    assert read("[1,2,3][4,5,6]", 1, 3) is None
    assert read("[1,2,3]", 2, 3) is None
    assert read("", 0, 3) == []
