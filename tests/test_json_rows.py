"""Rows of numbers cut out of JSON by compiled code, against Python's own reading."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.json_rows import cut_rows

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
WRITTEN = st.one_of(
    FLOATS.map(repr),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.6f}"),
    st.integers(-(10**20), 10**20).map(str),
    st.decimals(-(10**6), 10**6, allow_nan=False, allow_infinity=False, places=12).map("{:f}".format),
    st.sampled_from(["0", "-0", "-0.0", "9007199254740993", "0.1", "1e22", "1E-22", "123456789012345", "1" * 17]),
)
SPACE = st.sampled_from(["", " ", "\n", "\t ", "\r\n"])


def read(*rows: str, width: int = 3) -> list[list[float]] | None:
    text = "{" + ",".join(f'"features":{row}' for row in rows) + "}"
    found = cut_rows(text.encode(), width, math.pi)
    assert found is None or found.rest == ("{" + ",".join(['"features":[]'] * len(rows)) + "}").encode()
    return None if found is None else found.rows.tolist()


@settings(deadline=None)
@given(st.lists(st.lists(WRITTEN, min_size=3, max_size=3), max_size=4), SPACE)
def test_what_is_read_is_what_python_reads_to_the_last_bit(rows: list[list[str]], space: str) -> None:
    found = read(*(f"[{space}" + f"{space},{space}".join(row) + f"{space}]" for row in rows))
    expected = [[float(each) for each in row] for row in rows]
    if found is None:  # left to Python: allowed only where a number is long or far from 1
        plain = [value for row in rows for value in row if len(value) < 16 and "e" not in value.lower()]
        assert len(plain) < 3 * len(rows)
    else:
        assert np.array(found).tobytes() == np.array(expected).tobytes()


def test_ordinary_numbers_are_not_left_to_python() -> None:
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=(200, 5)), rng.normal(size=(200, 5)).round(6), rng.integers(0, 99, (200, 5))):
        assert read(*map(json.dumps, values.tolist()), width=5) == values.tolist()


def test_null_is_a_missing_value() -> None:
    assert read("[1,null,3]", "[null,\nnull ,null]") == [[1, math.pi, 3], [math.pi] * 3]
    assert read("[1,-null,3]") is None


@settings(deadline=None)
@given(st.text("0123456789.eE+-nul ", max_size=7))
def test_a_number_is_read_if_it_is_one_of_json(text: str) -> None:
    try:
        expected = json.loads(text)
    except json.JSONDecodeError:
        assert read(f"[{text}]", width=1) is None
    else:
        found = read(f"[{text}]", width=1)
        assert found in (None, [[math.pi if expected is None else float(expected)]])


def test_anything_else_is_left_to_python() -> None:
    for text in ("[1,2]", "[1,2,3,4]", '[1,"2",3]', '{"a":1}', "[1,[2],3]", "[1,true,3]", "[1e400,2,3]", "7", "null"):
        assert read(text) is None, text
    for text in ("[1,2,3", "[1,2,", "[1,2,3e", "[1,2,3e+", "[1,2,-", "[1,2,nul", "[1,2,3.", "[", ""):
        assert cut_rows(b'{"features":' + text.encode(), 3, 0.0) is None, text
        assert read(text) is None, text
    assert read("[]", width=0) is None
    assert read() == []


def test_all_else_stays_as_it_is() -> None:
    text = rb' {"a" : "\"features\":[1]" , "features" :[1] , "b":["features", "\u0041", "x\\"],"c" :{"features": [2]}} '
    found = cut_rows(text, 1, 0.0)
    assert found is not None
    assert json.loads(found.rest) == {**json.loads(text), "features": [], "c": {"features": []}}
    assert found.rows.tolist() == [[1], [2]]
    assert cut_rows(b'{"featur\\u0065s": [1], "features": [1]}', 1, 0.0) is None  # two keys of one name
    for cut_off in range(len(text) - 2):
        assert cut_rows(text[:cut_off], 1, 0.0) is None or text[cut_off - 1 : cut_off] == b"}"


@settings(deadline=None)
@given(st.lists(st.text('ab"\\[]{}:, é', max_size=20), min_size=1, max_size=6), SPACE, st.booleans())
def test_strings_of_any_length_stay_as_they_are(strings: list[str], space: str, indented: bool) -> None:
    documents = [{"id": each, "features": [number, 0.5], "of": [each]} for number, each in enumerate(strings)]
    text = json.dumps({"documents": documents}, indent=1 if indented else None).encode() + space.encode()
    found = cut_rows(text, 2, 0.0)
    assert found is not None
    emptied = [{**each, "features": []} for each in documents]
    assert json.loads(found.rest) == {"documents": emptied}
    assert found.rows.tolist() == [[float(number), 0.5] for number in range(len(strings))]


@settings(deadline=None, max_examples=50)
@given(st.text('ab"\\é', max_size=12), st.integers(0, 200))
def test_text_that_ends_too_early_is_no_json_after_it_either(name: str, places: int) -> None:
    whole = json.dumps({"documents": [{"id": name, "features": [1, 0.5]}, {"features": [2.25, 3], "id": name}]})
    text = whole.encode()[: places % len(whole.encode())] + b"}"
    found = cut_rows(text, 2, 0.0)
    try:
        json.loads(text)
    except json.JSONDecodeError:
        if found is not None:
            with pytest.raises(json.JSONDecodeError):
                json.loads(found.rest)
