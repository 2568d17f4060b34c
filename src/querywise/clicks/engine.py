"""Read User Behavior Insights from an engine: its queries and events, page by page, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from querywise.errors import DataError
from querywise.runtime.http_client import RequestError, ask
from querywise.runtime.values import Json

_INDICES = ("ubi_queries", "ubi_events")
_PAGE = 1_000  # records per response
_LARGEST, _SILENCE, _SECONDS = 50_000_000, 30.0, 120.0
_NESTED = 200  # lists and objects per record, on average: each takes many times its bytes in memory


def records_of(address: str) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield the queries, then the events, of an engine such as http://localhost:9200, by its scroll API."""
    base = address.rstrip("/")
    for index in _INDICES:
        found = _asked(f"{base}/{index}/_search?scroll=2m", {"size": _PAGE, "sort": ["_doc"]})
        while hits := _hits(found, base):
            for hit in hits:
                source = hit.get("_source", {})
                if not isinstance(source, dict):
                    raise DataError(f"{base}/{index}: expected a record in _source, found {source!r:.60}.")
                yield f"{base}/{index}/{hit.get('_id')}", source
            found = _asked(f"{base}/_search/scroll", {"scroll": "2m", "scroll_id": found.get("_scroll_id")})


def _asked(url: str, body: Mapping[str, Json]) -> Mapping[str, Json]:
    try:
        answer = ask(
            "POST",
            url,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            largest=_LARGEST,
            silence=_SILENCE,
            seconds=_SECONDS,
        )
    except RequestError as error:
        raise DataError(f"{url}: no answer ({error}). Is this the address of an engine with UBI's indices?") from None
    if answer.status != 200:
        raise DataError(f"{url}: the engine answers with status {answer.status}: {answer.shown(200)!r}.")
    if answer.content.count(b"{") + answer.content.count(b"[") > _PAGE * _NESTED:
        raise DataError(f"{url}: the answer has more values than {_PAGE} records have: {answer.shown(80)!r}.")
    try:
        found = json.loads(answer.content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DataError(f"{url}: the answer is no JSON record: {answer.shown(80)!r}.")
    return found


def _hits(answer: Mapping[str, Json], base: str) -> list[Mapping[str, Json]]:
    outer = answer.get("hits")
    found = outer.get("hits") if isinstance(outer, Mapping) else None
    if not isinstance(found, list) or len(found) > _PAGE or not all(isinstance(each, Mapping) for each in found):
        raise DataError(f"{base}: the answer has no hits, or more than were requested; expected a search response.")
    return found
