"""Compare the scores of Elasticsearch or OpenSearch with those in parity.jsonl, for every exported model.

What it puts into the engine: an index with one number per feature, a feature set that reads them, and a copy of every
model. The plugin's store is created if there is none, and stays.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from querywise.exports.scripts.check_parity import Engine, EngineError, Server, main, read_json


class Elasticsearch(Engine):
    """Feature values in fields of an index, read by function scores.

    Function scores cannot be negative, so a feature has two fields: for the positive and the negative part of its
    value.
    """

    def __init__(self, server: Server, export: dict[str, Any], name: str, collection: str | None) -> None:
        super().__init__(server, export, name)
        self.feature_set = export["name"]

    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """Create the index with the documents, a feature set that reads their fields, and the models."""
        width = range(len(self.features))
        self.size = len(documents)
        fields = {f"{sign}{i}": {"type": "double"} for i in width for sign in ("plus", "minus")}
        shaped = {"settings": {"number_of_shards": 1}, "mappings": {"properties": fields}}
        self.make("PUT", self.name, shaped, self.name, "an index")
        lines = []
        for document in documents:
            values = [document["features"][feature] for feature in self.features]
            parts = {f"plus{i}": max(value, 0.0) for i, value in enumerate(values)}
            parts |= {f"minus{i}": max(-value, 0.0) for i, value in enumerate(values)}
            lines += [json.dumps({"index": {"_id": document["id"]}}), json.dumps(parts)]
        bulk = "\n".join(lines) + "\n"
        done = self.server.ask("POST", f"{self.name}/_bulk?refresh=true", bulk, "application/x-ndjson")
        if done.get("errors"):
            raise EngineError(f"Some documents were not indexed: {json.dumps(done)[:500]}")
        features = [self._number(f"{sign}{i}") for i in width for sign in ("plus", "minus")]
        features += [self._difference(feature, i) for i, feature in enumerate(self.features)]
        with contextlib.suppress(EngineError):
            self.server.ask("PUT", "_ltr")  # fails if it exists already
        path = f"_ltr/_featureset/{self.name}"
        # PUT refuses a name that is taken; POST would overwrite it.
        self.make("PUT", path, {"featureset": {"features": features}}, path, "a feature set")
        for model, file in models.items():
            copied = {**read_json(file)["model"], "name": f"{self.name}-{model}"}
            place = f"_ltr/_model/{self.name}-{model}"
            self.make("POST", f"{path}/_createmodel", {"model": copied}, place, "a model")

    @staticmethod
    def _number(field: str) -> dict[str, Any]:
        reads = {"query": {"match_all": {}}, "field_value_factor": {"field": field, "missing": 0}}
        template = {"function_score": {**reads, "boost_mode": "replace"}}
        return {"name": field, "params": [], "template_language": "mustache", "template": template}

    @staticmethod
    def _difference(feature: str, place: int) -> dict[str, Any]:
        template = f"plus{place} - minus{place}"
        return {"name": feature, "params": [], "template_language": "derived_expression", "template": template}

    def scores(self, model: str) -> dict[str, float]:
        """Return the engine's scores by one model."""
        by_model = {"sltr": {"model": f"{self.name}-{model}", "params": {}}}
        weights = {"query_weight": 0, "rescore_query_weight": 1}
        ranked = {
            "size": self.size,
            "query": {"match_all": {}},
            "rescore": {"window_size": self.size, "query": {**weights, "rescore_query": by_model}},
        }
        found = self.server.ask("POST", f"{self.name}/_search", ranked)
        return {hit["_id"]: float(hit["_score"]) for hit in found["hits"]["hits"]}

    def logged(self, where: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """Return the values of the uploaded features for some documents of an index."""
        features = {"sltr": {"_name": "features", "featureset": self.feature_set, "params": {"keywords": keywords}}}
        asked = {
            "size": len(ids),
            "query": {"bool": {"filter": [{"terms": {"_id": ids}}, features]}},
            "ext": {"ltr_log": {"log_specs": {"name": "features", "named_query": "features"}}},
        }
        found = self.server.ask("POST", f"{where}/_search", asked)
        logs = {hit["_id"]: hit["fields"]["_ltrlog"][0]["features"] for hit in found["hits"]["hits"]}
        return {name: {each["name"]: float(each.get("value", 0)) for each in log} for name, log in logs.items()}


if __name__ == "__main__":
    sys.exit(main(Elasticsearch))
