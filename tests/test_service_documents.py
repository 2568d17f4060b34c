"""Bodies whose features are read by one pass are read as any others: the same requests, numbers and errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from querywise.service.api import ApiError, RequestDataError
from querywise.service.documents import FeatureColumns, distinct_ids
from querywise.service.guards import decode, decode_documents
from querywise.service.routes import _BATCH, _EXPLAIN, _RANK
from tests.worlds import examples

FEATURES = FeatureColumns(("a", "b"), {"a": 0, "b": 1}, 0.0)
VALUES = st.sampled_from(["1", "-2.5", "0.1", "null", "1e3", "0.1234567890123456789", '"x"', "01", "[1]", "true"])
ROWS = st.one_of(
    st.tuples(VALUES, VALUES).map(lambda pair: f"[{pair[0]}, {pair[1]}]"),
    st.sampled_from(["[1, 2]", "[3,4]", '{"a": 1}', "[]", "[1,2,3]", "7", "null"]),
)
KEYS = st.sampled_from(['"features"'] * 6 + ['"featur\\u0065s"', '"other"', '"id"'])
DOCUMENTS = st.lists(
    st.tuples(st.sampled_from(['"d1"', '"d2"', '"é"', '"\\u0041"', '"features"', "5"]), KEYS, ROWS, st.booleans()).map(
        lambda each: f'{{"id": {each[0]}, {each[1]}: {each[2]}{", " + each[1] + ": [8, 9]" if each[3] else ""}}}'
    ),
    max_size=3,
).map(lambda parts: f"[{', '.join(parts)}]")
QUERIES = st.sampled_from(
    ['{"id": "q"}', '{"columns": {"features": 1}}', '{"text": "\\"features\\": [1, 2]"}', "{}", '{"features": [1, 2]}']
)
REQUESTS = st.tuples(QUERIES, DOCUMENTS, st.sampled_from(["", ', "documents": []', ', "top": 0'])).map(
    lambda each: f'{{"query": {each[0]}, "documents": {each[1]}{each[2]}}}'
)


def outcome(decoder: Any, body: bytes, *, at_once: bool) -> Any:
    """The request and the table of its documents, or the error."""
    try:
        asked, table = decode_documents(decoder, body, FEATURES) if at_once else (decode(decoder, body), None)
        parts = [each.documents or [] for each in getattr(asked, "requests", [asked])]
        if table is None:
            table = FEATURES.table(parts, list(map(str, range(len(parts)))))
        for number, part in enumerate(parts):
            distinct_ids(part, str(number))
    except ApiError as error:
        return error.status, error.message, error.where
    except RequestDataError as error:
        return str(error), error.where
    return [distinct_ids(part, "") for part in parts], table.tobytes(), getattr(asked, "query", None)


@settings(deadline=None, max_examples=examples(400))
@given(REQUESTS, st.integers(0, 300), st.sampled_from([None, b"", b'"', b"}", b"\\", b"]", b" ", b"\xff", b"0"]))
@example('{"query": {}, "documents": [{"id": "a", "features": [1, 2], "features": [3, 4]}]}', 0, None)
@example('{"query": {}, "documents": [{"id": "a", "features": [1, 2]}], "documents": []}', 0, None)
def test_read_at_once_is_read_the_same(request_: str, place: int, instead: bytes | None) -> None:
    body = request_.encode()
    if instead is not None:
        body = body[:place] + instead + body[place + 1 :]
    for decoder in (_RANK, _EXPLAIN):
        assert outcome(decoder, body, at_once=True) == outcome(decoder, body, at_once=False)
    several = b'{"requests": [' + body + b", " + body + b"]}"
    assert outcome(_BATCH, several, at_once=True) == outcome(_BATCH, several, at_once=False)


@pytest.mark.parametrize("documents", [1, 3, 200])
def test_usual_bodies_are_read_at_once(documents: int) -> None:
    rows = np.random.default_rng(documents).normal(size=(documents, 2))
    sent = [{"features": row, "id": f"é{number}"} for number, row in enumerate(rows.tolist())]
    body = {"query": {"id": "q", "text": 'say "features": [1]'}, "documents": sent}
    for indent in (None, 1):
        asked, table = decode_documents(_RANK, json.dumps(body, indent=indent).encode(), FEATURES)
        assert table is not None
        assert table.tobytes() == rows.tobytes()
        assert distinct_ids(asked.documents, "") == tuple(each["id"] for each in sent)
