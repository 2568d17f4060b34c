"""The job of `querywise gateway`: rank an engine's first stage by the features that it computes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from urllib.parse import quote, urlencode

from querywise.errors import DataError
from querywise.exports.field_queries import KEYWORDS
from querywise.exports.scripts.check_parity import EngineError, Server
from querywise.jobs.log import EngineIndex, answers_of, asking, filled, server_of
from querywise.runtime.values import Json, JsonObject
from querywise.service.gateway import EngineHit, Gateway
from querywise.service.limits import Limits

CANDIDATES = 100
_IN_SOLR = "$keywords"
_PROBE = "querywise"  # searched for at startup
_Found = list[tuple[str, float, JsonObject]]  # id, score and content


def open_gateway(
    index: EngineIndex, first_stage: Json, candidates: int = CANDIDATES, limits: Limits | None = None
) -> Gateway:
    """Connect to an engine, and search there once.

    Args:
        index: The engine's index, and the features that the engine computes for its documents.
        first_stage: The search that finds candidates, with the user's words in it: the body of a search with
            `{{keywords}}`, or Solr's parameters with `$keywords`.
        candidates: The number of candidates to rank.
        limits: The `seconds` that the engine may take to answer.

    Returns:
        The gateway.

    Raises:
        DataError: If the engine does not respond, the index is missing, or the search is refused.

    """
    body = _checked(index.engine, first_stage)
    server = server_of(index)
    with answers_of(server):
        find = _finding(index, server, body, candidates)
        first = [document for document, _, _ in _first_found(index, find)]
        names, ask = asking(index, server)
        ask(_PROBE, first)

    def search(text: str) -> list[EngineHit]:
        with answers_of(server):
            found = find(text)
            values = ask(text, [document for document, _, _ in found]) if found else {}
        if found and not values:
            raise DataError(f"{index.url} computed no features of the {len(found)} documents that it found.")
        return [EngineHit(*each, values[each[0]]) for each in found if each[0] in values]  # others were just deleted

    return Gateway(names, search, limits)


def _checked(engine: str, first_stage: Json) -> JsonObject:
    """Return the first stage; raise DataError unless it is a search with the user's words in it."""
    key, words = ("q", _IN_SOLR) if engine == "solr" else ("query", KEYWORDS)
    example: JsonObject = {"query": {"match": {"title": KEYWORDS}}}
    if engine == "solr":
        example = {"q": "{!edismax qf='title body' v=$keywords}"}
    if not isinstance(first_stage, dict) or key not in first_stage or words not in json.dumps(first_stage):
        raise DataError(
            f"The first stage must be a search with {words} for the user's words, like {json.dumps(example)}.",
            arguments=("first_stage",),
        )
    if engine == "solr" and not all(isinstance(each, str) for each in first_stage.values()):
        raise DataError("Every parameter of the first stage in Solr must be a text.", arguments=("first_stage",))
    return first_stage


def _first_found(index: EngineIndex, find: Callable[[str], _Found]) -> _Found:
    """Search for one word at startup, to check that the index exists."""
    try:
        return find(_PROBE)
    except EngineError as error:
        if re.search(r": 404 ", str(error)) is None:
            raise
        kind = "collection" if index.engine == "solr" else "index"
        raise DataError(
            f"{index.url} has no {kind} {index.name!r} to search in. Name an existing one.", arguments=("index",)
        ) from None


def _finding(index: EngineIndex, server: Server, body: JsonObject, most: int) -> Callable[[str], _Found]:
    """Return a function that finds the candidates of a text, best first."""
    place = quote(index.name, safe="")

    def in_solr(text: str) -> _Found:
        words = text.replace("${", "$ {")  # Solr would expand ${…} anywhere
        sent = {"defType": "lucene", "fl": "*,score", **body, "keywords": words, "rows": most, "wt": "json"}
        kind = "application/x-www-form-urlencoded"
        found = server.ask("POST", f"{place}/select", urlencode(sent), kind)["response"]["docs"]
        return [(str(each["id"]), float(each.get("score", 0.0)), each) for each in found]

    def in_lucene(text: str) -> _Found:
        sent = filled(body, text)
        assert isinstance(sent, dict)
        found = server.ask("POST", f"{place}/_search", {**sent, "size": most})["hits"]["hits"]
        return [(each["_id"], float(each.get("_score") or 0.0), each.get("_source", {})) for each in found]

    return in_solr if index.engine == "solr" else in_lucene
