"""Compare the scores of Elasticsearch's own learning_to_rank with those in parity.jsonl, for every exported model.

What it puts into the engine: an index with one number per feature, and a copy of every model that reads these numbers.
Of every second document it leaves out the features that are 0: an absent feature must count as 0.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from querywise.exports.scripts.check_parity import HERE, Engine, EngineError, Server, main, read_json

SINCE = (8, 15)  # the first version that takes these models


class ElasticsearchNative(Engine):
    """Feature values in fields of an index, read by function scores."""

    def __init__(self, server: Server, export: dict[str, Any], name: str, collection: str | None) -> None:
        super().__init__(server, export, name)
        self.ids = {model["name"]: f"{name}-{number}" for number, model in enumerate(export["models"])}

    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """Create the index with the documents, and models that read their fields."""
        require_version(self.server)
        self.size = len(documents)
        fields = {f"f{place}": {"type": "double"} for place in range(len(self.features))}
        self._make(self.name, {"settings": {"number_of_shards": 1}, "mappings": {"properties": fields}}, "an index")
        lines = []
        for number, document in enumerate(documents):
            values = {f"f{place}": document["features"][name] for place, name in enumerate(self.features)}
            given = {field: value for field, value in values.items() if value != 0 or number % 2}
            lines += [json.dumps({"index": {"_id": document["id"]}}), json.dumps(given)]
        bulk = "\n".join(lines) + "\n"
        done = self.server.ask("POST", f"{self.name}/_bulk?refresh=true", bulk, "application/x-ndjson")
        if done.get("errors"):
            raise EngineError(f"Some documents were not indexed: {json.dumps(done)[:500]}")
        extractors = [self._number(place, name) for place, name in enumerate(self.features)]
        config = {"learning_to_rank": {"feature_extractors": extractors}}
        for model, file in models.items():
            copied = {**read_json(file), "inference_config": config}
            self._make(f"_ml/trained_models/{self.ids[model]}", copied, "a model")

    def _make(self, place: str, body: Any, what: str) -> None:
        try:
            self.make("PUT", place, body, place, what)
        except EngineError as error:
            raise with_licence(error) from None

    @staticmethod
    def _number(place: int, feature: str) -> dict[str, Any]:
        field = f"f{place}"
        query = {"exists": {"field": field}}
        scored = {"query": query, "field_value_factor": {"field": field}, "boost_mode": "replace"}
        return {"query_extractor": {"feature_name": feature, "query": {"function_score": scored}}}

    def scores(self, model: str) -> dict[str, float]:
        """Return the engine's scores by one model."""
        by_model = {"model_id": self.ids[model], "params": {}}
        rescored = {"window_size": self.size, "learning_to_rank": by_model}
        asked = {"size": self.size, "query": {"match_all": {}}, "rescore": rescored}
        found = self.server.ask("POST", f"{self.name}/_search", asked)
        return {hit["_id"]: float(hit["_score"]) for hit in found["hits"]["hits"]}

    def logged(self, where: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """Return the values of the exported features for some documents of an index."""
        config = read_json(HERE / "feature_extractors.json")["learning_to_rank"]
        extractors = [each["query_extractor"] for each in config["feature_extractors"]]
        named = [{"bool": {"must": [each["query"]], "_name": each["feature_name"]}} for each in extractors]
        query = {"bool": {"filter": [{"ids": {"values": ids}}], "should": named}}
        source = json.dumps({"size": len(ids), "_source": False, "query": query})
        asked = {"source": source, "params": {"keywords": keywords}}
        found = self.server.ask("POST", f"{where}/_search/template?include_named_queries_score=true", asked)
        scores = {hit["_id"]: hit.get("matched_queries", {}) for hit in found["hits"]["hits"]}
        return {name: {each: float(score) for each, score in own.items()} for name, own in scores.items()}


def require_version(server: Server) -> None:
    """Raise EngineError unless the server is an Elasticsearch that takes these models."""
    version = server.ask("GET", "").get("version")
    about = version if isinstance(version, dict) else {}
    number = str(about.get("number", ""))
    if about.get("distribution") == "opensearch":
        raise EngineError(f"{server.url} is OpenSearch {number}, which has no such rescorer: export --to opensearch.")
    found = re.match(r"(\d+)\.(\d+)", number)
    if found is None:
        raise EngineError(f"{server.url} does not say which version of Elasticsearch it is. Is --url right?")
    if about.get("build_flavor") != "serverless" and (int(found[1]), int(found[2])) < SINCE:
        raise EngineError(
            f"{server.url} is Elasticsearch {number}; its own learning_to_rank takes these models from version "
            f"{SINCE[0]}.{SINCE[1]} on. Upgrade it, or export for its plugin: --to elasticsearch."
        )


def with_licence(error: EngineError) -> EngineError:
    """Return the error, with advice if the engine has no machine learning or no license for it."""
    if re.search("no handler found", str(error)):
        return EngineError(f"{error} This node has no machine learning: take Elastic's own distribution.")
    if re.search(r": 403 .*licen[cs]e", str(error)):
        return EngineError(
            f"{error} Learning to rank needs an Enterprise licence, or a trial "
            '(curl -X POST "$URL/_license/start_trial?acknowledge=true"); the plugin needs none: --to elasticsearch.'
        )
    return error


if __name__ == "__main__":
    sys.exit(main(ElasticsearchNative))
