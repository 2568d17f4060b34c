"""Compare the scores of Solr with those in parity.jsonl, for every exported model.

What it puts into the engine: documents in the collection named with --collection, a feature store and a copy of every
model. The collection should be empty, with the LTR module on and the default dynamic fields *_d.
"""

from __future__ import annotations

import re
import sys
import urllib.parse
from pathlib import Path
from typing import Any

from querywise.exports.scripts.check_parity import (
    EngineError,
    Server,
    main,
    name_is_taken,
    read_json,
    remove_all,
)


class Solr:
    """Documents with a field per feature, read by FieldValueFeature."""

    def __init__(self, server: Server, export: dict[str, Any], name: str, collection: str | None) -> None:
        if collection is None:
            raise EngineError("Solr needs a collection to put the documents into: --collection NAME.")
        self.server = server
        self.collection = collection
        self.features = export["features"]["in_engine"]
        self.feature_store = export["name"]
        self.name = name
        self.ids: list[str] = []
        self.made: list[str] = []

    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """Add the documents, the feature store and the models; the collection is reloaded, so that it uses them."""
        self._check_free()
        self.ids = [f"{self.name}-{document['id']}" for document in documents]  # none of these existed before
        content = [
            {"id": name, **{f"value{i}_d": document["features"][each] for i, each in enumerate(self.features)}}
            for name, document in zip(self.ids, documents, strict=True)
        ]
        self._ask("POST", "update?commit=true", content)
        reads = "org.apache.solr.ltr.feature.FieldValueFeature"
        features = [
            {"store": self.name, "name": each, "class": reads, "params": {"field": f"value{i}_d"}}
            for i, each in enumerate(self.features)
        ]
        self.made.append(f"schema/feature-store/{self.name}")  # did not exist before either
        self._ask("PUT", "schema/feature-store", features)
        for model, path in models.items():
            name = f"{self.name}-{model}"
            self._make_model({**read_json(path), "name": name, "store": self.name}, f"schema/model-store/{name}")
        try:
            self.server.ask("GET", f"admin/collections?action=RELOAD&name={self.collection}")
        except EngineError:  # not SolrCloud
            self.server.ask("GET", f"admin/cores?action=RELOAD&core={self.collection}")

    def _check_free(self) -> None:
        """Stop where there are documents or a feature store of the name: Solr would overwrite them silently."""
        asked = {"defType": "lucene", "q": f"{{!prefix f=id}}{self.name}-", "fl": "id", "rows": "1", "wt": "json"}
        form = urllib.parse.urlencode(asked)
        found = self._ask("POST", "select", form, "application/x-www-form-urlencoded")
        if found["response"]["docs"]:
            query = f"{{!prefix f=id}}{self.name}-"
            how = f"delete the query {query} in {self.collection}"
            raise name_is_taken(f"a document whose id begins with {self.name}-", how)
        stores = self._stores()
        if self.name in stores["featureStores"]:
            how = f'curl -X DELETE "$URL/{self.collection}/schema/feature-store/{self.name}", after its models'
            raise name_is_taken(f"a feature store called {self.name}", how)

    def _stores(self) -> dict[str, Any]:
        try:
            return self._ask("GET", "schema/feature-store")
        except EngineError as error:
            if "No REST managed resource" not in str(error):
                raise
            raise EngineError(
                f"The collection {self.collection} has no Learning to Rank module: switch the module ltr on, and add "
                "its query parser, cache and transformer to solrconfig.xml."
            ) from None

    def _make_model(self, content: dict[str, Any], place: str) -> None:
        try:
            self._ask("PUT", "schema/model-store", content)
        except EngineError as error:
            if re.search("already exists|already been", str(error)):
                how = f'curl -X DELETE "$URL/{self.collection}/{place}"'
                raise name_is_taken(f"a model called {content['name']}", how) from None
            raise
        self.made.append(place)

    def scores(self, model: str) -> dict[str, float]:
        """The engine's scores by one model."""
        asked = {
            "defType": "lucene",  # whatever the handler's own is
            "q": f"{{!prefix f=id}}{self.name}-",
            "rq": f"{{!ltr model={self.name}-{model} reRankDocs={len(self.ids)}}}",
            "fl": "id,score",
            "rows": str(len(self.ids)),
            "wt": "json",
        }
        form = urllib.parse.urlencode(asked)
        found = self._ask("POST", "select", form, "application/x-www-form-urlencoded")
        scores = {each["id"]: float(each["score"]) for each in found["response"]["docs"]}
        return {name.removeprefix(f"{self.name}-"): score for name, score in scores.items()}

    def logged(self, where: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """The values of the uploaded features for some documents of a collection."""
        asked = {
            "defType": "lucene",
            "q": "{!terms f=id v=$documents}",
            "documents": ",".join(ids),
            "keywords": keywords.replace("${", "$ {"),  # Solr would expand ${…} wherever it stands
            "fl": f"id,[features store={self.feature_store} format=dense efi.keywords=$keywords]",
            "rows": str(len(ids)),
            "wt": "json",
        }
        form = urllib.parse.urlencode(asked)
        found = self.server.ask("POST", f"{where}/select", form, "application/x-www-form-urlencoded")
        values: dict[str, dict[str, float]] = {}
        for document in found["response"]["docs"]:
            pairs = [each.rpartition("=") for each in document["[features]"].split(",")]
            values[document["id"]] = {name: float(value) for name, _, value in pairs}
        return values

    def remove(self) -> list[str]:
        """Remove everything that was created, the feature store after the models that use it."""
        requests: list[tuple[Any, ...]] = [("DELETE", place) for place in reversed(self.made)]
        if self.ids:
            requests.append(("POST", "update?commit=true", {"delete": self.ids}))
        return remove_all(self._ask, requests)

    def _ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        return self.server.ask(method, f"{self.collection}/{path}", body, kind)


if __name__ == "__main__":
    sys.exit(main(Solr))
