"""Boosts of fields as requests: a multi_match, Solr's qf and tie, Vespa's expression."""

from __future__ import annotations

from functools import reduce

from querywise.exports.field_queries import for_native, for_plugin, for_solr, for_vespa, in_lucene, in_solr
from querywise.exports.target import TEXT, ByFields
from querywise.retrieval.boosts import BEST, COMBINED, CROSS, DISMAX, MOST, TIED, Boosts, as_text
from querywise.runtime.values import Json, JsonObject


def _opensearch(asked: Boosts) -> JsonObject | None:
    """Return a multi_match; None for a form that OpenSearch lacks."""
    if asked.form not in (MOST, BEST, CROSS):
        return None
    return _query("multi_match", asked, {"type": asked.form})


def _elasticsearch(asked: Boosts) -> JsonObject | None:
    """Return a multi_match, or combined_fields."""
    return _query("combined_fields", asked, {}) if asked.form == COMBINED else _opensearch(asked)


def _query(kind: str, asked: Boosts, more: JsonObject) -> JsonObject:
    fields: list[Json] = [*as_text(asked.used)]
    tie: JsonObject = {"tie_breaker": asked.tie} if asked.form in TIED else {}
    return {"query": {kind: {"query": TEXT, **more, "fields": fields, **tie}}}


def _solr(asked: Boosts) -> JsonObject | None:
    """Return parameters of edismax, whose tie is per word: 1 sums them. None for a form that edismax lacks."""
    if asked.form not in (MOST, DISMAX):
        return None
    tie = 1.0 if asked.form == MOST else asked.tie
    return {"defType": "edismax", "q": TEXT, "q.op": "OR", "qf": " ".join(as_text(asked.used)), "tie": f"{tie:g}"}


def _vespa(asked: Boosts) -> JsonObject | None:
    """Return a rank profile; None for forms per word, which a profile cannot express."""
    if asked.form not in (MOST, BEST):
        return None
    parts = [f"{boost:g} * bm25({name})" for name, boost in asked.used.items()]
    total = " + ".join(parts)
    if asked.form == BEST:
        best = reduce(lambda first, second: f"max({first}, {second})", parts)
        total = f"{1 - asked.tie:g} * {best} + {asked.tie:g} * ({total})"
    return {"rank_profile": f"rank-profile boosts {{\n    first-phase {{\n        expression: {total}\n    }}\n}}\n"}


OPENSEARCH = ByFields(_opensearch, in_lucene, for_plugin)
ELASTICSEARCH = ByFields(_elasticsearch, in_lucene, for_plugin)
ELASTICSEARCH_NATIVE = ByFields(None, in_lucene, for_native)
SOLR = ByFields(_solr, in_solr, for_solr)
VESPA = ByFields(_vespa, None, for_vespa)
