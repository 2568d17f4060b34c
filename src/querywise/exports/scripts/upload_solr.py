"""Upload the feature store and the models of this export to a collection of Solr.

The collection is reloaded at the end, so that Solr uses the new models.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any
from urllib.parse import quote

from querywise.exports.scripts.check_parity import EngineError, Server, read_json
from querywise.exports.scripts.check_solr import without_module
from querywise.exports.scripts.upload import HERE, Upload, listed, main, name_is_in_use, refuse_numbers

FEATURES = ""  # the name for the features among the names of models, which are not empty
COLLECTION = "the collection, or the core, to upload to"
WHERE = "where Solr is, for example http://localhost:8983/solr"
CLASS = "org.apache.solr.ltr.feature.FieldValueFeature"
NUMBER = f'A number of the document, such as a price, is {{"class": "{CLASS}", "params": {{"field": "FIELD"}}}}'


class ToSolr(Upload):
    """The features and the models of an export, and which of them the collection has."""

    who = "who may edit the schema"
    limit = (
        "Solr does not take a model of {size} MB. Fit fewer or smaller trees; or on SolrCloud, where ZooKeeper takes 1 "
        "MB, raise jute.maxbuffer or use DefaultWrapperModel."
    )

    def __init__(self, server: Server, given: argparse.Namespace) -> None:
        collection: str = given.collection
        if not re.fullmatch(r"[\w.-]+", collection):
            raise EngineError(f"--collection {collection}: expected letters, digits, _, . and -.")
        super().__init__(server)
        self.collection = collection
        self.features = read_json(HERE / "features.json")
        self.definitions = {str(each["name"]): each for each in self.features}
        self.fill_in = (
            f"In {HERE / 'features.json'}, put the field of your collection in place of each; a query of words is for "
            f"text. {NUMBER}. Then run upload.py again."
        )
        self.absent: list[Any] = []
        count = f"{len(self.models)} model{'s' if len(self.models) > 1 else ''}"
        self.there = f"The feature store {self.name} and {count} are in {collection}"
        self.gone = f"The feature store {self.name} and its models are gone from {collection}"
        self.total = len(self.models) + 1

    def missing(self) -> list[str]:
        """Return FEATURES if features are missing, and the missing models; raise EngineError if one differs."""
        own, stored = {each["name"]: each for each in self.features}, self._stored_features()
        others = [name for name in stored if name not in own]
        changed = [name for name, each in own.items() if name in stored and not _same_feature(each, stored[name])]
        if others or changed:
            what = f"features of its own ({listed(others)})" if others else f"another definition of {listed(changed)}"
            raise self._in_use(f"a feature store {self.name}", what)
        if not stored:
            searched = {name: _searched(each) for name, each in own.items()}
            refuse_numbers(searched, self._numbers, f"{NUMBER}.")
        models = self._stored_models()
        for name in (name for name in self.models if name in models):
            if not _same_model(self.models[name], models[name]):
                raise self._in_use(f"a model {name}", "other weights, trees or features")
        self.absent = [each for name, each in own.items() if name not in stored]
        return [FEATURES] * bool(self.absent) + [name for name in self.models if name not in models]

    def _stored_features(self) -> dict[str, Any]:
        path = f"{self.collection}/schema/feature-store"
        try:
            stores = self.server.ask("GET", path)
        except EngineError as error:
            if re.search("store: 404 |No REST managed resource", str(error)):
                raise self._without_module() from None
            raise self.explained(error) from None
        if self.name not in stores["featureStores"]:
            return {}
        found = self.server.ask("GET", f"{path}/{self.name}")
        return {each["name"]: each for each in found["features"]}

    def _numbers(self, fields: list[str]) -> set[str]:
        """Return the fields that are numeric; empty if Solr does not tell."""
        schema = f"{self.collection}/schema"
        try:
            of_fields = self.server.ask("GET", f"{schema}/fields?includeDynamic=true&fl={quote(','.join(fields))}")
            of_types = self.server.ask("GET", f"{schema}/fieldtypes")
        except EngineError:
            return set()
        classes = {each["name"]: each["class"] for each in of_types.get("fieldTypes", [])}
        kinds = {each["name"]: classes.get(each["type"], "") for each in of_fields.get("fields", [])}
        return {field for field in fields if re.search(r"(Int|Long|Float|Double)(Point)?Field$", kinds.get(field, ""))}

    def _without_module(self) -> EngineError:
        """Return why the collection has no stores: it does not exist, or has no module."""
        try:
            self.server.ask("GET", f"{self.collection}/select?q=*:*&rows=0&wt=json")
        except EngineError:
            return EngineError(
                f"{self.server.url} has no collection {self.collection}. Is --collection right, and does --url end in "
                "/solr?"
            )
        return without_module(self.collection)

    def _stored_models(self) -> dict[str, Any]:
        found = self.server.ask("GET", f"{self.collection}/schema/model-store")
        return {each["name"]: each for each in found["models"]}

    def _in_use(self, what: str, difference: str) -> EngineError:
        return name_is_in_use(what, difference, self.name, "--url URL --collection NAME")

    def put(self, name: str) -> None:
        """Upload the features that are missing, or a model."""
        store, body = ("feature", self.absent) if name == FEATURES else ("model", self.models[name])
        path = f"schema/{store}-store"
        self.send("PUT", f"{self.collection}/{path}", body, path)

    def finish(self) -> None:
        """Reload the collection, or the core outside SolrCloud, so that it uses its stores."""
        try:
            self.server.ask("GET", f"admin/collections?action=RELOAD&name={self.collection}")
        except EngineError as error:
            if "not running in SolrCloud mode" not in str(error):
                raise self.explained(error) from None
            self.server.ask("GET", f"admin/cores?action=RELOAD&core={self.collection}")

    def remove(self) -> None:
        """Remove the models and the feature store of this export, as far as they exist."""
        self._stored_features()  # raises an error without the module
        there = self._stored_models()
        places = [f"schema/model-store/{name}" for name in self.models if name in there]
        if self.name in self.server.ask("GET", f"{self.collection}/schema/feature-store").get("featureStores", []):
            places.append(f"schema/feature-store/{self.name}")
        for place in places:
            self.ask("DELETE", f"{self.collection}/{place}")
        self.finish()


def _same_feature(own: dict[str, Any], stored: dict[str, Any]) -> bool:
    return all(own.get(key) == stored.get(key) for key in ("class", "params"))


def _same_model(own: dict[str, Any], stored: dict[str, Any]) -> bool:
    """Whether two models are equal; Solr adds to each feature its scaling, which is none."""
    listed, there = ([each["name"] for each in model["features"]] for model in (own, stored))
    return listed == there and all(own[key] == stored[key] for key in ("class", "store", "params"))


def _searched(feature: dict[str, Any]) -> list[str]:
    """Return the fields in which a feature's query searches words."""
    found = re.findall(r"\bqf=('[^']*'|\"[^\"]*\"|[^\s}]+)", str(feature.get("params", {}).get("q", "")))
    return [field.partition("^")[0] for each in found for field in each.strip("'\"").split()]


if __name__ == "__main__":
    sys.exit(main(ToSolr, where=WHERE, features="feature store", collection=COLLECTION))
