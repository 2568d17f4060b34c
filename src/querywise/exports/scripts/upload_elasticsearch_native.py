"""Upload the models of this export to Elasticsearch, for its own learning_to_rank."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any

from querywise.exports.scripts.check_elasticsearch_native import require_version, with_licence
from querywise.exports.scripts.check_parity import EngineError, Server, read_json
from querywise.exports.scripts.upload import HERE, main, name_is_in_use, with_rights

WHERE = "where Elasticsearch is, for example http://localhost:9200"
WHO = "who may write models (the cluster privilege manage_ml)"


class ToElasticsearchNative:
    """The models of an export, and what the engine has of them."""

    def __init__(self, server: Server, given: argparse.Namespace) -> None:
        self.server = server
        self.export = read_json(HERE / "export.json")
        self.models = {model["name"]: read_json(HERE / model["file"]) for model in self.export["models"]}
        config = next(iter(self.models.values()))["inference_config"]["learning_to_rank"]["feature_extractors"]
        self.definitions = {each["query_extractor"]["feature_name"]: each for each in config}
        self.fill_in = (
            f"Put your index's fields into a copy of {HERE / 'feature_extractors.json'}, and export again: querywise "
            "export … --feature-set COPY. A `match` is for text; a number of the document, such as a price, is a "
            "`function_score` with `field_value_factor`."
        )
        count = f"{len(self.models)} model{'s' if len(self.models) > 1 else ''}"
        self.there = f"{count} of {self.export['name']} {'are' if len(self.models) > 1 else 'is'} in the engine"
        self.gone = f"{count} of {self.export['name']} {'are' if len(self.models) > 1 else 'is'} gone from the engine"
        self.total = len(self.models)

    def missing(self) -> list[str]:
        """The names of the models that the engine lacks; an error where it has another of such a name."""
        try:
            require_version(self.server)
        except EngineError as error:
            raise _explained(error) from None
        absent = []
        for name, content in self.models.items():
            found = self._stored(name)
            if found is None:
                absent.append(name)
            elif found != content["metadata"]["querywise"]["sha256"]:
                raise name_is_in_use(f"a model {name}", "other trees or features", self.export["name"])
        return absent

    def _stored(self, name: str) -> str | None:
        """The checksum of a model in the engine, empty where it is not of an export; None where there is none."""
        path = f"_ml/trained_models/{name}"
        try:
            found = self.server.ask("GET", path)
        except EngineError as error:
            if f"{path}: 404 " in str(error):
                return None
            raise _explained(error) from None
        metadata = found["trained_model_configs"][0].get("metadata") or {}
        return str(metadata.get("querywise", {}).get("sha256", ""))

    def put(self, name: str) -> None:
        """Upload a model. The engine refuses a name that is taken."""
        body: Any = self.models[name]
        try:
            self.server.ask("PUT", f"_ml/trained_models/{name}", body)
        except EngineError as error:
            size = len(json.dumps(body)) / 1e6
            # An engine that finds a body too large may close the connection while it is still being sent.
            if ": 413 " in str(error) or (size > 1 and re.search("broke off|Broken pipe|reset by peer", str(error))):
                raise EngineError(
                    f"PUT {name}: the engine does not take {size:.1f} MB at once. Fit fewer or smaller trees, or raise "
                    "http.max_content_length on the nodes."
                ) from None
            raise _explained(error) from None

    def finish(self) -> None:
        """The engine needs nothing more."""

    def remove(self) -> None:
        """Remove the models of this export."""
        for name in self.models:
            path = f"_ml/trained_models/{name}"
            try:
                self.server.ask("DELETE", path)
            except EngineError as error:
                if f"{path}: 404 " not in str(error):
                    raise _explained(error) from None


def _explained(error: EngineError) -> EngineError:
    """The error, with what to do where the engine lacks a licence, or the user rights."""
    explained = with_licence(error)
    return explained if explained is not error else with_rights(error, WHO)


if __name__ == "__main__":
    sys.exit(main(ToElasticsearchNative, where=WHERE, features="queries of the features"))
