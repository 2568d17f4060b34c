"""Boosts of fields as requests: a multi_match, Solr's qf and tie, Vespa's expression; indexes with our words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from querywise.exports.target import TEXT, ByFields
from querywise.retrieval.boosts import BEST, COMBINED, CROSS, DISMAX, MOST, TIED, Boosts, as_text
from querywise.retrieval.words import STOP_WORDS, Tokeniser
from querywise.runtime.values import Json, JsonObject

_WORDS = "querywise"  # the name of the analyzer


def _opensearch(asked: Boosts) -> JsonObject | None:
    """A multi_match; None of the forms that OpenSearch does not have."""
    if asked.form not in (MOST, BEST, CROSS):
        return None
    return _query("multi_match", asked, {"type": asked.form})


def _elasticsearch(asked: Boosts) -> JsonObject | None:
    """A multi_match, or combined_fields."""
    return _query("combined_fields", asked, {}) if asked.form == COMBINED else _opensearch(asked)


def _query(kind: str, asked: Boosts, more: JsonObject) -> JsonObject:
    fields: list[Json] = [*as_text(asked.used)]
    tie: JsonObject = {"tie_breaker": asked.tie} if asked.form in TIED else {}
    return {"query": {kind: {"query": TEXT, **more, "fields": fields, **tie}}}


def _solr(asked: Boosts) -> JsonObject | None:
    """Parameters of edismax, whose tie is by word: 1 adds everything up. None of the forms that it does not have."""
    if asked.form not in (MOST, DISMAX):
        return None
    tie = 1.0 if asked.form == MOST else asked.tie
    return {"defType": "edismax", "q": TEXT, "q.op": "OR", "qf": " ".join(as_text(asked.used)), "tie": f"{tie:g}"}


def _vespa(asked: Boosts) -> JsonObject | None:
    """A rank profile; None of the forms that go by word, of which a profile knows nothing."""
    if asked.form not in (MOST, BEST):
        return None
    parts = [f"{boost:g} * bm25({name})" for name, boost in asked.used.items()]
    total = " + ".join(parts)
    if asked.form == BEST:
        best = reduce(lambda first, second: f"max({first}, {second})", parts)
        total = f"{1 - asked.tie:g} * {best} + {asked.tie:g} * ({total})"
    return {"rank_profile": f"rank-profile boosts {{\n    first-phase {{\n        expression: {total}\n    }}\n}}\n"}


def _index(names: Sequence[str], tokeniser: Tokeniser) -> JsonObject:
    """Settings and mappings of an index of OpenSearch or Elasticsearch."""
    filters: dict[str, Json] = {}
    if tokeniser.stop_words:
        filters["querywise_stops"] = {"type": "stop", "stopwords": [*sorted(STOP_WORDS)]}
    if tokeniser.language is not None:
        filters["querywise_stems"] = {"type": "snowball", "language": tokeniser.language.capitalize()}
    analyzer: Json = {"type": "custom", "tokenizer": "standard", "filter": ["lowercase", *filters]}
    mappings: dict[str, Json] = {name: {"type": "text", "analyzer": _WORDS} for name in names}
    settings: JsonObject = {"analysis": {"filter": filters, "analyzer": {_WORDS: analyzer}}}
    return {"settings": settings, "mappings": {"properties": mappings}}


def _schema(names: Sequence[str], tokeniser: Tokeniser) -> JsonObject:
    """What is sent to Solr's `schema`, and the file of stop words to put beside it."""
    filters: list[Json] = [{"class": "solr.LowerCaseFilterFactory"}]
    if tokeniser.stop_words:
        filters.append({"class": "solr.StopFilterFactory", "words": f"{_WORDS}_stops.txt"})
    if tokeniser.language is not None:
        filters.append({"class": "solr.SnowballPorterFilterFactory", "language": tokeniser.language.capitalize()})
    analyzer: Json = {"tokenizer": {"class": "solr.StandardTokenizerFactory"}, "filters": filters}
    fields: list[Json] = [{"name": name, "type": _WORDS, "multiValued": True} for name in names]
    kind: Json = {"name": _WORDS, "class": "solr.TextField", "analyzer": analyzer}
    files: JsonObject = {f"{_WORDS}_stops.txt": "\n".join(sorted(STOP_WORDS))} if tokeniser.stop_words else {}
    return {"files": files, "schema": {"add-field-type": kind, "add-field": fields}}


OPENSEARCH, ELASTICSEARCH = ByFields(_opensearch, _index), ByFields(_elasticsearch, _index)
SOLR, VESPA = ByFields(_solr, _schema), ByFields(_vespa)
