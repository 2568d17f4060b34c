"""The job of `querywise log`: log the features that an engine computes for judged queries.

Features are the scores of named queries, what the Learning to Rank plugin logs, or Solr's `[features]`. Nothing is
written to the engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from querywise.data.candidates import Candidates
from querywise.data.collections import Collection, read_topics
from querywise.data.judged import Judged, judged_by
from querywise.data.judgements import read_grades
from querywise.data.letor import QUERIES
from querywise.data.parquet.writing import write_log
from querywise.data.query_table import QueryTable, write_queries
from querywise.errors import DataError
from querywise.exports.field_queries import KEYWORDS, is_close, layout_of, queries_of
from querywise.exports.scripts.check_elasticsearch import Elasticsearch
from querywise.exports.scripts.check_parity import EngineError, Server, reading
from querywise.exports.scripts.check_solr import Solr
from querywise.exports.target import as_text, defined
from querywise.exports.targets import TARGETS
from querywise.retrieval.features import JUDGED
from querywise.retrieval.reading import Retrieval, collection_from, judged_from_text
from querywise.retrieval.words import Tokeniser
from querywise.runtime.files import atomic_text, make_folder
from querywise.runtime.progress import track
from querywise.runtime.values import Json, JsonObject, is_finite_number

ENGINES = ("opensearch", "elasticsearch", "solr")
_AT_ONCE = 500  # documents in a request
_QRELS = "qrels.tsv"
_EXPECTED = (
    'The features must be a list of {"name": …, "template": {…}}, as the plugin takes it, or of {"query_extractor": '
    '{"feature_name": …, "query": {…}}}, as features.json of a collection with fields has them.'
)
FeatureValues = Mapping[str, Mapping[str, float]]  # by document and feature


@dataclass(frozen=True)
class EngineIndex:
    """An engine's address, and what is searched there.

    Attributes:
        name: The name of the index or collection.
        store: The feature set or feature store in the engine whose features are logged.
        features: Instead of a store, the queries whose scores are logged.
        headers: HTTP headers of every request.
        timeout: Seconds to wait for a response.

    """

    engine: str
    url: str
    name: str
    store: str | None = None
    features: Json = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise DataError(f"Unknown engine {self.engine!r}. Known: {', '.join(ENGINES)}.")
        if (self.store is None) == (self.features is None):
            raise DataError(
                "Name what the engine computes: features, a file with a query for each, or store, a feature set in the "
                "engine; one of the two."
            )
        if self.engine == "solr" and self.store is None:
            raise DataError(
                "Solr logs the features of a store: put the file to schema/feature-store, and name the store.",
                arguments=("store",),
            )


def write_fields_for(engine: str, data: Path, out: Path, language: str | None) -> list[str]:
    """Write index.json and features.json of a collection's fields into a folder; return the features' names."""
    known = {name: each.fields for name, each in TARGETS.items() if each.fields is not None}
    if engine not in known:
        raise DataError(f"Unknown engine {engine!r}. Known: {', '.join(known)}.")
    collection, target = collection_from(data), known[engine]
    if collection.fields is None:
        raise DataError(f"{data}: the documents have only a title and a text, and no fields of their own.")
    layout = layout_of(collection.fields, collection.documents())
    features = target.features(queries_of(layout))
    if isinstance(features, dict) and not features.keys() & {"featureset", "learning_to_rank"}:
        names = list(features)
    else:
        names = list(_named(features))
    make_folder(out)
    texts = {"features.json": features}
    texts |= {} if target.index is None else {"index.json": target.index(layout, Tokeniser(language))}
    for name, content in texts.items():
        with atomic_text(out / name) as file:
            file.write(as_text(content))
    return names


class LoggedFeatures(NamedTuple):
    """Judged documents with the features that an engine computed, and the number of those that it does not have."""

    judged: Judged
    absent: int


def judged_queries(queries: Path, judgements: Path | None = None) -> tuple[QueryTable, dict[str, dict[str, int]]]:
    """Read queries and grades from a folder with both files, or from one file each."""
    asked, judged = (queries / QUERIES, queries / _QRELS) if queries.is_dir() else (queries, None)
    judged = judgements or judged
    if judged is None:
        raise DataError(f"{queries}: name the judgments too, or a folder with {QUERIES} and {_QRELS}.")
    table, grades = read_topics(asked), read_grades(judged)
    known = {query: text for query, text in zip(table.ids, table.texts or (), strict=True) if text}
    stray = next((query for query in grades if query not in known), None)
    if stray is not None:
        raise DataError(f"{judged}: query {stray!r} is judged here, and {asked} does not have its text.")
    return table, grades


def log_features(index: EngineIndex, table: QueryTable, grades: Mapping[str, Mapping[str, int]]) -> LoggedFeatures:
    """Have an engine compute its features for every judged document, query by query."""
    asked = table.select([query for query in table.ids if query in grades])
    if not len(asked):
        raise DataError("No query is judged, so there is nothing to log.")
    found: list[tuple[str, dict[str, Mapping[str, float]]]] = []
    server = server_of(index)
    with answers_of(server):
        names, ask = asking(index, server)
        for query, text in track(list(zip(asked.ids, asked.texts or (), strict=True)), "Logging"):
            own = dict[str, Mapping[str, float]]()
            wanted = list(grades[query])
            for first in range(0, len(wanted), _AT_ONCE):
                own |= ask(text or "", wanted[first : first + _AT_ONCE])
            found.append((query, {each: own[each] for each in grades[query] if each in own}))
    rows = [(document, values) for _, own in found for document, values in own.items()]
    if not rows:
        raise DataError(f"{index.name} has none of the judged documents. Do its ids match those of the judgments?")
    candidates = Candidates(
        features=np.array([[values.get(name, 0.0) for name in names] for _, values in rows]),
        starts=np.cumsum([0, *(len(own) for _, own in found)]),
        query_ids=asked.ids,
        document_ids=tuple(document for document, _ in rows),
        feature_names=tuple(names),
        queries=asked,
    )
    here = {query: {each: grades[query][each] for each in own} for query, own in found}
    absent = sum(len(grades[query]) for query in asked.ids) - len(rows)
    return LoggedFeatures(judged_by(candidates, here), absent)


def server_of(index: EngineIndex) -> Server:
    """Return the client of an engine; raise DataError for an invalid address."""
    try:
        return Server(index.url, dict(index.headers), index.timeout)
    except EngineError as error:
        raise DataError(str(error)) from None


@contextlib.contextmanager
def answers_of(server: Server) -> Iterator[None]:
    """Turn errors of an engine, or in its answers, into a DataError; our own errors pass unchanged."""
    ours: DataError | None = None
    try:
        with reading(server):
            try:
                yield
            except DataError as error:  # is also a ValueError, which would be blamed on the answer
                ours = error
    except EngineError as error:
        raise DataError(str(error)) from None
    if ours is not None:
        raise ours


def asking(index: EngineIndex, server: Server) -> tuple[list[str], Callable[[str, list[str]], FeatureValues]]:
    """Return the names of the features, and a function that computes them for documents of a query."""
    place, where = quote(index.name, safe=""), f"{index.engine}'s feature set {index.store!r}"
    if index.store is None:
        queries = _named_queries(index.features)
        return list(queries), lambda text, ids: _scores(server, place, queries, text, ids)
    store = quote(index.store, safe="")
    if index.engine == "solr":
        listed: Json = server.ask("GET", f"{place}/schema/feature-store/{store}").get("features")
        names = _names(listed, where)
        solr = Solr(server, _export(index.store, names), "log", index.name)
        return names, lambda text, ids: solr.logged(place, text, ids)
    listed = server.ask("GET", f"_ltr/_featureset/{store}")["_source"]["featureset"]["features"]
    names = _names(listed, where)
    plugin = Elasticsearch(server, _export(index.store, names), "log", None)
    return names, lambda text, ids: plugin.logged(place, text, ids)


def _export(store: str, names: list[str]) -> JsonObject:
    return {"name": store, "features": {"in_engine": [*names]}}


def _names(listed: Json, where: str) -> list[str]:
    names = [str(each["name"]) for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    if not names:
        raise DataError(f"{where} has no features. Upload them first.")
    return names


def _named(content: Json) -> dict[str, Json]:
    """Return the definition of every feature, from a plugin's feature set, feature extractors, or Solr's features."""
    native = isinstance(content, dict) and "learning_to_rank" in content
    inside = ("learning_to_rank", "feature_extractors") if native else ("featureset", "features")
    found: dict[str, Json] = {}
    for each in defined(content, _EXPECTED, inside):
        own = each.get("query_extractor", each)
        asked = own if isinstance(own, dict) else {}
        name = asked.get("feature_name", asked.get("name"))
        if not isinstance(name, str) or name in found:
            raise DataError(_EXPECTED)
        found[name] = asked.get("query", asked.get("template"))
    return found


def _named_queries(content: Json) -> dict[str, Json]:
    """Return the query of every feature."""
    found = _named(content)
    if not found or not all(isinstance(each, dict) for each in found.values()):
        raise DataError(_EXPECTED)
    return found


def _scores(server: Server, index: str, queries: Mapping[str, Json], text: str, ids: list[str]) -> FeatureValues:
    """Return scores of named queries, beside a filter that has none."""
    named: list[Json] = [{"bool": {"must": [filled(each, text)], "_name": name}} for name, each in queries.items()]
    asked = {
        "size": len(ids),
        "_source": False,
        "query": {"bool": {"filter": [{"ids": {"values": [*ids]}}], "should": named}},
    }
    answer = server.ask("POST", f"{index}/_search?include_named_queries_score=true", asked)
    found: dict[str, Mapping[str, float]] = {}
    for hit in answer["hits"]["hits"]:
        scores = hit.get("matched_queries", {})
        if not isinstance(scores, dict):
            raise DataError(
                f"{server.url} returns the queries that match but not their scores; that needs OpenSearch 2.8 or "
                "Elasticsearch 8.8, or later; or log what the plugin computes, by the name of its feature set."
            )
        wrong = next((name for name, score in scores.items() if not is_finite_number(score)), None)
        if wrong is not None:
            raise DataError(f"{server.url}: the score of {wrong!r:.60} is {scores[wrong]!r:.40}, not a finite number.")
        found[hit["_id"]] = {name: float(score) for name, score in scores.items()}
    return found


def filled(query: Json, text: str) -> Json:
    """Return a query with the user's words filled in."""
    if isinstance(query, dict):
        return {name: filled(each, text) for name, each in query.items()}
    if isinstance(query, list):
        return [filled(each, text) for each in query]
    return query.replace(KEYWORDS, text) if isinstance(query, str) else query


def write(logged: LoggedFeatures, out: Path) -> None:
    """Write a feature log for `read_parquet`, and queries.jsonl beside it if there is none."""
    write_log(out, logged.judged)
    table, beside = logged.judged.candidates.queries, out.with_name(QUERIES)
    if table is not None and not beside.exists():
        write_queries(beside, table)


class FeatureDifference(NamedTuple):
    """How an engine's values of a feature differ from ours.

    Attributes:
        differ: How many of `documents` differ by more than one percent.
        ratio: The median ratio of the engine's value to ours, where neither is 0.
        worst: The query and document with the largest difference, with the engine's value and ours.

    """

    feature: str
    documents: int
    differ: int
    ratio: float | None
    worst: tuple[str, str, float, float] | None


def differences(logged: Judged, data: Path | Collection, how: Retrieval, most: int = 100) -> list[FeatureDifference]:
    """Compare the features that both the engine and querywise compute, on the documents of some queries."""
    candidates = logged.candidates
    every = len(logged)
    chosen = candidates.select(np.unique(np.linspace(0, every - 1, min(most, every)).round().astype(int)))
    collection = collection_from(data)
    judgements = tuple(each for each in collection.judgements if each.query in {*chosen.query_ids})
    own = judged_from_text(replace(collection, judgements=judgements), retrieval=replace(how, candidates=JUDGED))
    names = [name for name in chosen.feature_names or () if name in (own.judged.feature_names or ())]
    theirs, ours = _by_pair(chosen), _by_pair(own.judged.candidates)
    pairs = [pair for pair in theirs if pair in ours]
    found = []
    for name in names:
        column, mine = chosen.column_of(name), own.judged.candidates.column_of(name)
        values = [(chosen.features[theirs[p], column], own.judged.candidates.features[ours[p], mine]) for p in pairs]
        off = [number for number, (one, other) in enumerate(values) if not is_close(float(one), float(other))]
        ratios = [one / other for one, other in values if one and other]
        far = max(off, key=lambda number: abs(values[number][0] - values[number][1]), default=None)
        worst = None if far is None else (*pairs[far], float(values[far][0]), float(values[far][1]))
        found.append(FeatureDifference(name, len(pairs), len(off), float(np.median(ratios)) if ratios else None, worst))
    return found


def _by_pair(candidates: Candidates) -> dict[tuple[str, str], int]:
    """Return the row of every query and document."""
    documents = candidates.document_ids or ()
    queries = (candidates.query_ids[query] for query in candidates.query_of_row.tolist())
    return {pair: row for row, pair in enumerate(zip(queries, documents, strict=True))}


def told(found: list[FeatureDifference]) -> list[tuple[str, ...]]:
    """Return table rows: the feature, how many values differ, the ratio, and the most different values."""
    rows: list[tuple[str, ...]] = []
    for each in found:
        ratio, far = "" if each.ratio is None else f"{each.ratio:.4g}", ""
        if each.worst is not None:
            query, document, theirs, ours = each.worst
            far = f"{document} for {query}: {theirs:.4g}, {ours:.4g}"
        rows.append((each.feature, f"{each.differ} of {each.documents}", ratio, far))
    return rows
