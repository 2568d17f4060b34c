"""Compare the scores of Solr with those in parity.jsonl, for every exported model.

What it puts into the engine: documents in the collection named with --collection, a feature store and a copy of every
model. The collection should be empty, with the LTR module on and the default dynamic fields *_d.
"""

from __future__ import annotations

import sys
import urllib.parse
from pathlib import Path
from typing import Any

from querywise.exports.scripts.check_parity import Engine, EngineError, Server, main, name_is_taken, read_json


class Solr(Engine):
    """Documents with a field per feature, read by FieldValueFeature."""

    def __init__(self, server: Server, export: dict[str, Any], name: str, collection: str | None) -> None:
        if collection is None:
            raise EngineError("Solr needs a collection to put the documents into: --collection NAME.")
        super().__init__(server, export, name, f"{collection}/")
        self.collection = collection
        self.feature_store = export["name"]
        self.ids: list[str] = []

    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """Add the documents, the feature store and the models, and reload the collection so that it uses them."""
        self._check_free()
        self.ids = [f"{self.name}-{document['id']}" for document in documents]  # none of these existed before
        content = [
            {"id": name, **{f"value{i}_d": document["features"][each] for i, each in enumerate(self.features)}}
            for name, document in zip(self.ids, documents, strict=True)
        ]
        self.ask("POST", "update?commit=true", content)
        reads = "org.apache.solr.ltr.feature.FieldValueFeature"
        features = [
            {"store": self.name, "name": each, "class": reads, "params": {"field": f"value{i}_d"}}
            for i, each in enumerate(self.features)
        ]
        self.made.append(f"schema/feature-store/{self.name}")  # did not exist before either
        self.ask("PUT", "schema/feature-store", features)
        for model, path in models.items():
            name = f"{self.name}-{model}"
            copied = {**read_json(path), "name": name, "store": self.name}
            self.make("PUT", "schema/model-store", copied, f"schema/model-store/{name}", "a model")
        try:
            self.server.ask("GET", f"admin/collections?action=RELOAD&name={self.collection}")
        except EngineError:  # not SolrCloud
            self.server.ask("GET", f"admin/cores?action=RELOAD&core={self.collection}")

    def _check_free(self) -> None:
        """Raise EngineError if documents or a feature store of the name exist: Solr would overwrite them silently."""
        asked = {"q": f"{{!prefix f=id}}{self.name}-", "fl": "id", "rows": "1"}
        if self._select(self.collection, asked):
            query = f"{{!prefix f=id}}{self.name}-"
            how = f"delete the query {query} in {self.collection}"
            raise name_is_taken(f"a document whose id begins with {self.name}-", how)
        stores = self._stores()
        if self.name in stores["featureStores"]:
            how = f'curl -X DELETE "$URL/{self.collection}/schema/feature-store/{self.name}", after its models'
            raise name_is_taken(f"a feature store called {self.name}", how)

    def _stores(self) -> dict[str, Any]:
        try:
            return self.ask("GET", "schema/feature-store")
        except EngineError as error:
            if "No REST managed resource" not in str(error):
                raise
            raise without_module(self.collection) from None

    def scores(self, model: str) -> dict[str, float]:
        """Return the engine's scores by one model."""
        asked = {
            "q": f"{{!prefix f=id}}{self.name}-",
            "rq": f"{{!ltr model={self.name}-{model} reRankDocs={len(self.ids)}}}",
            "fl": "id,score",
            "rows": str(len(self.ids)),
        }
        scores = {each["id"]: float(each["score"]) for each in self._select(self.collection, asked)}
        return {name.removeprefix(f"{self.name}-"): score for name, score in scores.items()}

    def logged(self, where: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """Return the values of the uploaded features for some documents of a collection."""
        asked = {
            "q": "{!terms f=id v=$documents}",
            "documents": ",".join(ids),
            "keywords": keywords.replace("${", "$ {"),  # Solr would expand ${…} anywhere
            "fl": f"id,[features store={self.feature_store} format=dense efi.keywords=$keywords]",
            "rows": str(len(ids)),
        }
        values: dict[str, dict[str, float]] = {}
        for document in self._select(where, asked):
            pairs = [each.rpartition("=") for each in document["[features]"].split(",")]
            values[document["id"]] = {name: float(value) for name, _, value in pairs}
        return values

    def _select(self, collection: str, asked: dict[str, str]) -> list[dict[str, Any]]:
        form = urllib.parse.urlencode({"defType": "lucene", **asked, "wt": "json"})  # whatever the handler's default is
        kind = "application/x-www-form-urlencoded"
        found: list[dict[str, Any]] = self.server.ask("POST", f"{collection}/select", form, kind)["response"]["docs"]
        return found

    def remove(self) -> list[str]:
        """Remove everything that was created, the feature store after the models that use it."""
        requests: list[tuple[Any, ...]] = [("DELETE", place) for place in reversed(self.made)]
        if self.ids:
            requests.append(("POST", "update?commit=true", {"delete": self.ids}))
        return self.remove_by(requests)


def without_module(collection: str) -> EngineError:
    """Return the error for a collection without feature stores."""
    return EngineError(
        f"The collection {collection} has no Learning to Rank module: switch the module ltr on, and add its query "
        "parser, cache and transformer to solrconfig.xml."
    )


if __name__ == "__main__":
    sys.exit(main(Solr))
