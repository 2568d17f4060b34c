"""Features that are sent as bytes are ranked as those in JSON are, to the last bit, and refused as they are."""

from __future__ import annotations

import asyncio
import base64
import math
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from querywise import KnnOffline2, RankSVM, make_judged, save
from querywise.runtime.arrays import Floats
from querywise.service.api import RequestDataError
from querywise.service.documents import FeatureColumns
from querywise.service.loaded_model import ModelFolder
from querywise.service.routes import create_app
from querywise.service.schema import Numbers, Table
from querywise.service.service import Service

DATA = make_judged(40, 8, 4, kinds=2, seed=5)
ROWS = DATA.candidates.features[DATA.candidates.rows(3)]
IDS = [f"d{row}" for row in range(len(ROWS))]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    folder = tmp_path_factory.mktemp("served") / "model"
    save(KnnOffline2(RankSVM(), k=10).fit(DATA), folder)
    return Service(ModelFolder(Path(folder)))


def posted(service: Service, path: str, content: dict[str, Any]) -> httpx.Response:
    """The answer of the application."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.post(path, json=content)

    return asyncio.run(ask())


def sent(rows: Floats, kind: str = "<f8", **changes: Any) -> dict[str, Any]:
    """A table as it is sent."""
    content = base64.b64encode(rows.astype(kind).tobytes()).decode()
    return {"base64": content, "dtype": f"float{8 * int(kind[-1])}", "shape": list(rows.shape), **changes}


def asked(rows: Floats = ROWS, kind: str = "<f8", ids: list[str] = IDS, **changes: Any) -> dict[str, Any]:
    """A request whose features are bytes."""
    return {"query": {"id": "q"}, "documents": {"ids": ids, "features": sent(rows, kind, **changes)}}


def in_json(rows: Floats = ROWS) -> dict[str, Any]:
    """The same request in JSON."""
    documents = [{"id": name, "features": row} for name, row in zip(IDS, rows.tolist(), strict=True)]
    return {"query": {"id": "q"}, "documents": documents}


@pytest.mark.parametrize("path", ["/v1/rank", "/v1/explain"])
def test_bytes_and_json_are_answered_the_same(service: Service, path: str) -> None:
    expected = posted(service, path, in_json())
    assert expected.status_code == 200
    assert posted(service, path, asked()).content == expected.content


def test_single_precision_is_that_of_its_numbers(service: Service) -> None:
    rounded = ROWS.astype(np.float32).astype(np.float64)
    assert not np.array_equal(rounded, ROWS)
    expected = posted(service, "/v1/rank", in_json(rounded)).content
    assert posted(service, "/v1/rank", asked(kind="<f4")).content == expected


def test_a_batch_may_have_both(service: Service) -> None:
    both = posted(service, "/v1/rank/batch", {"requests": [in_json(), asked()]}).json()["responses"]
    assert both[0] == both[1]
    assert len(both[0]["documents"]) == len(ROWS)


def test_a_table_may_be_empty(service: Service) -> None:
    assert posted(service, "/v1/rank", asked(ROWS[:0], ids=[])).json()["documents"] == []


def test_base64_may_have_escapes(service: Service) -> None:
    rows = np.full(ROWS.shape, -np.nextafter(2.0, 0.0))  # its base64 is full of slashes, which some writers escape
    plain, escaped = sent(rows)["base64"], sent(rows)["base64"].replace("/", "\\/")
    assert escaped != plain
    found = [msgspec.json.decode(b'"%s"' % each.encode(), type=msgspec.Raw) for each in (plain, escaped)]
    tables = [Table(IDS, Numbers(each, "float64", list(rows.shape))) for each in found]
    for table in tables:
        assert np.array_equal(service.models.current.features.unpacked(table, "documents"), rows)


def changed(value: float) -> Floats:
    rows = ROWS.copy()
    rows[1, 2] = value
    return rows


FEATURES, BASE64 = "documents.features", sent(ROWS)["base64"]
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "NaN": (asked(changed(math.nan)), "Document 'd1' has nan for feature '3'", f"{FEATURES}.base64"),
    "infinity": (asked(changed(math.inf)), "Document 'd1' has inf for feature '3'", f"{FEATURES}.base64"),
    "infinity in single": (asked(changed(-math.inf), "<f4"), "has -inf for feature '3'", f"{FEATURES}.base64"),
    "fewer columns": (asked(ROWS[:, :3]), "The shape is [8, 3]; there are 8 ids", f"{FEATURES}.shape"),
    "fewer rows": (asked(ROWS[:5]), "The shape is [5, 4]; there are 8 ids", f"{FEATURES}.shape"),
    "turned": (asked(shape=[4, 8]), "The shape is [4, 8]", f"{FEATURES}.shape"),
    "three dimensions": (asked(shape=[8, 4, 1]), "`array` of length <= 2", f"{FEATURES}.shape"),
    "a negative size": (asked(shape=[-8, -4]), "`int` >= 0", f"{FEATURES}.shape[0]"),
    "too few bytes": (asked(dtype="float32"), "256 bytes; float32 of shape [8, 4] takes 128", f"{FEATURES}.base64"),
    "too many bytes": (asked(ROWS, "<f4", dtype="float64"), "Found 128 bytes; float64", f"{FEATURES}.base64"),
    "another kind": (asked(dtype="int64"), "Invalid enum value 'int64'", f"{FEATURES}.dtype"),
    "no base64": (asked(base64="…"), "Invalid base64", f"{FEATURES}.base64"),
    "a space in it": (asked(base64=BASE64[:8] + " " + BASE64[9:]), "Invalid base64", f"{FEATURES}.base64"),
    "cut off": (asked(base64=BASE64[:-1]), "Invalid base64", f"{FEATURES}.base64"),
    "digits": (asked(base64=1234567890), "Expected `bytes`, got `int`", f"{FEATURES}.base64"),
    "an id twice": (asked(ids=[*IDS[:7], "d2"]), "Id 'd2' is also that of documents.ids[2]", "documents.ids[7]"),
    "another field": (asked(order="F"), "unknown field `order`", FEATURES),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_with_a_reason(service: Service, name: str) -> None:
    content, message, where = WRONG[name]
    answer = posted(service, "/v1/rank", content)
    assert answer.status_code == 422
    assert message in answer.json()["error"]["message"]
    assert answer.json()["error"]["where"] == where


def test_numbers_too_large_to_compute_with_are_refused_in_both(service: Service) -> None:
    answers = [posted(service, "/v1/rank", of(changed(1e200))) for of in (asked, in_json)]
    assert answers[0].status_code == 422
    assert answers[0].content == answers[1].content


def test_nan_is_a_missing_value_where_the_model_knows_such() -> None:
    rows = np.array([[1.0, math.nan]])
    table = Table(["d"], msgspec.json.decode(msgspec.json.encode(sent(rows)), type=Numbers))
    found = FeatureColumns(("a", "b"), {"a": 0, "b": 1}, math.nan).unpacked(table, "documents")
    assert found.tobytes() == rows.tobytes()
    with pytest.raises(RequestDataError, match="Send 0 for a missing one"):
        FeatureColumns(("a", "b"), {"a": 0, "b": 1}, 0.0).unpacked(table, "documents")
