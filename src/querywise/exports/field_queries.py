"""A collection's fields in an engine: an index with our terms, and a query for every feature that an engine computes.

For a text field, bm25 is the score of its words; all, whole and exact are 1 if it has all words of the query, has them
as one phrase, and if one of its texts is the query. Over all fields, sum and best are the sum and the largest of the
fields' weighted bm25; all and most tell whether all words, and three in four, are in some field; hit is the number of
fields with one of them. A number is read from its field, with the collection's median if it is missing. Features of the
whole list (z-scores, ranks) and of word order cannot be queries: they come with the request, or from a gateway.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from querywise.data.collections import Document
from querywise.data.fields import Fields
from querywise.exports.target import TEXT, ByFields, FieldLayout, FieldQuery
from querywise.retrieval.boosts import BEST, COMBINED, CROSS, DISMAX, MOST, TIED, Boosts, as_text
from querywise.retrieval.words import STOP_WORDS, Tokeniser
from querywise.runtime.values import Json, JsonObject

KEYWORDS, SOLR_KEYWORDS = "{{keywords}}", "${keywords}"
_WORDS, _EXACT = "querywise", "exact"  # the names of the analyzer, and of the subfield with whole texts
_LOG = "querywise-log"  # the feature store that Solr logs from
_LONGEST = 256  # letters of a text that is kept whole
_PLAIN = re.compile(r"[A-Za-z_][\w.]*")  # a field that Solr's functions can name
_FACTOR = 2.2  # k1 + 1, a factor of our BM25 but not of Solr's


def layout_of(fields: Fields, documents: Iterable[Document]) -> FieldLayout:
    """Return what an index needs to know of the fields: their types, and facts about the numbers in the documents."""
    columns: dict[str, list[float]] = {each.name: [] for each in fields.numbers}
    for document in documents:
        for name, own in columns.items():
            value = document.values[name]
            assert isinstance(value, float)
            own.append(value)
    medians, lacking, unfit = dict[str, float](), set[str](), set[str]()
    for spec in fields.numbers:
        values = np.array(columns[spec.name])
        known = values[np.isfinite(values)]
        medians[spec.name] = float(np.median(known)) if len(known) else 0.0
        lacking |= {spec.name} if len(known) < len(values) else set()
        days = spec.kind == "date" and bool((known != np.floor(known)).any())
        unfit |= {spec.name} if days or known.min(initial=0.0) < 0 else set()
    exact = tuple(each.name for each in fields.specs if each.kind in ("text", "texts"))
    return FieldLayout(fields, exact, medians, frozenset(lacking), frozenset(unfit))


def queries_of(layout: FieldLayout) -> list[FieldQuery]:
    """Return every feature of these fields that an engine can compute."""
    weights = {each.name: float(each.weight) for each in layout.fields.specs if each.has_words}
    found = []
    for name in weights:
        own = {name: 1.0}
        found += [FieldQuery(f"{name}.bm25", "sum", own), FieldQuery(f"{name}.all", "all", own)]
        found += [FieldQuery(f"{name}.{how}", how, own) for how in ("whole", "exact") if name in layout.exact]
    if weights:
        found += [FieldQuery(f"fields.{how}", how, weights) for how in ("sum", "best", "all", "most", "hit")]
    for spec in layout.fields.numbers:
        own = {spec.name: 1.0}
        if spec.name not in layout.unfit:
            kind = "true" if spec.kind == "boolean" else "number"
            found.append(FieldQuery(spec.name, kind, own, layout.medians[spec.name]))
            found += [FieldQuery(f"{spec.name}.log", "log", own, layout.medians[spec.name])] if spec.log else []
        found += [FieldQuery(f"{spec.name}.missing", "missing", own)] if spec.name in layout.lacking else []
    return found


class _Asked(NamedTuple):
    """The parts that every form of a query is made of."""

    field: str
    boosted: list[Json]

    @staticmethod
    def of(query: FieldQuery, factor: float = 1.0) -> _Asked:
        boosted: list[Json] = [
            name if weight * factor == 1 else f"{name}^{weight * factor:g}" for name, weight in query.fields.items()
        ]
        return _Asked(next(iter(query.fields)), boosted)


def as_query(query: FieldQuery) -> JsonObject:
    """Return the OpenSearch or Elasticsearch query whose score is the feature."""
    field, boosted = _Asked.of(query)
    if query.how == "sum" and len(query.fields) == 1:
        return {"match": {field: KEYWORDS}}
    if query.how in ("sum", "best"):
        return {"multi_match": {"query": KEYWORDS, "type": f"{_KIND[query.how]}_fields", "fields": boosted}}
    if query.how == "hit":
        matches: list[Json] = [_whether({"match": {name: KEYWORDS}}) for name in query.fields]
        return {"bool": {"should": matches}}
    if query.how in ("number", "log"):
        value: JsonObject = {"field": field, "missing": query.missing}
        value |= {"modifier": "ln1p"} if query.how == "log" else {}
        return {"function_score": {"query": {"match_all": {}}, "field_value_factor": value, "boost_mode": "replace"}}
    names: list[Json] = [*query.fields]
    across: JsonObject = {"query": KEYWORDS, "type": "cross_fields", "fields": names}
    asked: dict[str, JsonObject] = {
        "all": {"multi_match": {**across, "operator": "and"}},
        "most": {"multi_match": {**across, "minimum_should_match": "75%"}},
        "whole": {"match_phrase": {field: KEYWORDS}},
        "exact": {"match": {f"{field}.{_EXACT}": KEYWORDS}},
        "true": {"term": {field: True}},
        "missing": {"bool": {"must_not": {"exists": {"field": field}}}},
    }
    return _whether(asked[query.how])


_KIND = {"sum": "most", "best": "best"}


def _whether(query: JsonObject) -> JsonObject:
    """Return a query that scores matching documents 1."""
    return {"constant_score": {"filter": query}}


def for_plugin(queries: Sequence[FieldQuery]) -> Json:
    """Return a feature set for the Learning to Rank plugins."""
    how: JsonObject = {"params": ["keywords"], "template_language": "mustache"}
    listed: list[Json] = [{"name": each.name, **how, "template": as_query(each)} for each in queries]
    return {"featureset": {"features": listed}}


def for_native(queries: Sequence[FieldQuery]) -> Json:
    """Return the feature extractors for Elasticsearch's own learning_to_rank."""
    listed: list[Json] = [{"query_extractor": {"feature_name": each.name, "query": as_query(each)}} for each in queries]
    return {"learning_to_rank": {"feature_extractors": listed}}


def for_solr(queries: Sequence[FieldQuery]) -> Json:
    """Return the features for Solr's LTR module, without those that no Solr query or parameter can express."""
    kind = "org.apache.solr.ltr.feature.SolrFeature"
    found: list[Json] = []
    for each in queries:
        params = _solr(each) if all(map(_PLAIN.fullmatch, each.fields)) else None
        stored: JsonObject = {"store": _LOG, "name": each.name, "class": kind}
        found += [] if params is None else [{**stored, "params": params}]
    return found


def _solr(query: FieldQuery) -> JsonObject | None:
    field, boosted = _Asked.of(query, _FACTOR)
    names, known = " ".join(query.fields), f"def({field},{query.missing:g})"
    params: dict[str, JsonObject] = {
        "sum": {"q": f"{{!simple q.operators='' qf='{' '.join(map(str, boosted))}'}}{SOLR_KEYWORDS}"},
        "all": {"fq": [f"{{!dismax qf='{names}' mm=100%}}{SOLR_KEYWORDS}"]},  # simple requires stop words too
        "most": {"fq": [f"{{!dismax qf='{names}' mm=75%}}{SOLR_KEYWORDS}"]},
        "whole": {"fq": [f"{{!field f={field}}}{SOLR_KEYWORDS}"]},
        "exact": {"fq": [f"{{!field f={field}_{_EXACT}}}{SOLR_KEYWORDS}"]},
        "number": {"q": f"{{!func}}{known}"},
        "log": {"q": f"{{!func}}ln(sum(1,{known}))"},
        "true": {"fq": [f"{field}:true"]},
        "missing": {"fq": [f"*:* -{field}:[* TO *]"]},
    }
    return params.get(query.how)


def for_vespa(queries: Sequence[FieldQuery]) -> Json:
    """Return rank expressions by feature, without those that no simple expression gives."""
    found: dict[str, Json] = {}
    for each in queries:
        field, own = next(iter(each.fields)), [f"{weight:g} * bm25({name})" for name, weight in each.fields.items()]
        known = f"if (isNan(attribute({field})), {each.missing:g}, attribute({field}))"
        expressions = {
            "sum": f"bm25({field})" if len(own) == 1 else " + ".join(own),
            "best": own[0] if len(own) == 1 else f"max({own[0]}, 0)",
            "hit": " + ".join(f"matches({name})" for name in each.fields),
            "number": known,
            "log": f"log(1 + {known})",
            "true": f"attribute({field})",
            "missing": f"isNan(attribute({field}))",
        }
        for part in own[1:]:
            expressions["best"] = f"max({expressions['best']}, {part})"
        if each.how in expressions:
            found[each.name] = expressions[each.how]
    return found


def in_lucene(layout: FieldLayout, tokeniser: Tokeniser) -> JsonObject:
    """Return settings and mappings for an index of OpenSearch or Elasticsearch."""
    filters: dict[str, Json] = {}
    if tokeniser.stop_words:
        filters["querywise_stops"] = {"type": "stop", "stopwords": [*sorted(STOP_WORDS)]}
    if tokeniser.language is not None:
        filters["querywise_stems"] = {"type": "snowball", "language": tokeniser.language.capitalize()}
    analyzer: Json = {"type": "custom", "tokenizer": "standard", "filter": ["lowercase", *filters]}
    analysis: JsonObject = {"filter": filters, "analyzer": {_WORDS: analyzer}}
    if layout.exact:
        analysis["normalizer"] = {_WORDS: {"type": "custom", "filter": ["lowercase"]}}
    whole: Json = {_EXACT: {"type": "keyword", "normalizer": _WORDS, "ignore_above": _LONGEST}}
    mappings: dict[str, Json] = {}
    for name in layout.fields.words:
        mappings[name] = {"type": "text", "analyzer": _WORDS} | ({"fields": whole} if name in layout.exact else {})
    mappings |= {name: {"type": kind} for name, kind in _numbers(layout, "double", "boolean", "date").items()}
    return {"settings": {"analysis": analysis}, "mappings": {"properties": mappings}}


def in_solr(layout: FieldLayout, tokeniser: Tokeniser) -> JsonObject:
    """Return what to send to Solr's `schema`, and the stop word file to put beside it."""
    filters: list[Json] = [{"class": "solr.LowerCaseFilterFactory"}]
    if tokeniser.stop_words:
        filters.append({"class": "solr.StopFilterFactory", "words": f"{_WORDS}_stops.txt"})
    if tokeniser.language is not None:
        filters.append({"class": "solr.SnowballPorterFilterFactory", "language": tokeniser.language.capitalize()})
    words: JsonObject = {"tokenizer": {"class": "solr.StandardTokenizerFactory"}, "filters": filters}
    apart: JsonObject = {"class": "solr.TextField", "positionIncrementGap": "100"}  # phrases end with their text
    kinds: list[Json] = [{"name": _WORDS, **apart, "analyzer": words}]
    fields: list[Json] = [{"name": name, "type": _WORDS, "multiValued": True} for name in layout.fields.words]
    schema: JsonObject = {"add-field-type": kinds, "add-field": fields}
    if layout.exact:
        lower: JsonObject = {"tokenizer": {"class": "solr.KeywordTokenizerFactory"}, "filters": filters[:1]}
        kinds.append({"name": f"{_WORDS}_{_EXACT}", **apart, "analyzer": lower})
        named = {name: f"{name}_{_EXACT}" for name in layout.exact}
        made: JsonObject = {"type": f"{_WORDS}_{_EXACT}", "multiValued": True, "stored": False}
        fields += [{"name": each, **made} for each in named.values()]
        schema["add-copy-field"] = [{"source": name, "dest": [each]} for name, each in named.items()]
    numbers = _numbers(layout, f"{_WORDS}_number", f"{_WORDS}_boolean", f"{_WORDS}_date")
    classes = {"number": "solr.DoublePointField", "boolean": "solr.BoolField", "date": "solr.DatePointField"}
    used = {kind: own for kind, own in classes.items() if f"{_WORDS}_{kind}" in numbers.values()}
    kinds += [{"name": f"{_WORDS}_{kind}", "class": own, "docValues": True} for kind, own in used.items()]
    fields += [{"name": name, "type": kind} for name, kind in numbers.items()]
    files: JsonObject = {f"{_WORDS}_stops.txt": "\n".join(sorted(STOP_WORDS))} if tokeniser.stop_words else {}
    return {"files": files, "schema": schema}


def _numbers(layout: FieldLayout, number: str, boolean: str, date: str) -> Mapping[str, str]:
    """Return the engine's type of every numeric field; dates that are whole years are numbers."""
    kinds = {"number": number, "boolean": boolean}
    days = {each.name for each in layout.fields.numbers if each.kind == "date" and each.name in layout.unfit}
    return {each.name: date if each.name in days else kinds.get(each.kind, number) for each in layout.fields.numbers}


def is_close(one: float, other: float) -> bool:
    """Whether an engine's value equals ours within one percent: engines store long lengths imprecisely."""
    return math.isclose(one, other, rel_tol=0.01, abs_tol=1e-6)


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


def _solr_boosts(asked: Boosts) -> JsonObject | None:
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
SOLR = ByFields(_solr_boosts, in_solr, for_solr)
VESPA = ByFields(_vespa, None, for_vespa)
