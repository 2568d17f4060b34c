"""Upload the models of this export to Elasticsearch, for its own learning_to_rank."""

from __future__ import annotations

import argparse
import sys

from querywise.exports.scripts.check_elasticsearch_native import require_version, with_licence
from querywise.exports.scripts.check_parity import EngineError, Server
from querywise.exports.scripts.upload import HERE, Upload, main, name_is_in_use

WHERE = "where Elasticsearch is, for example http://localhost:9200"


class ToElasticsearchNative(Upload):
    """The models of an export, and which of them the engine has."""

    who = "who may write models (the cluster privilege manage_ml)"

    def __init__(self, server: Server, given: argparse.Namespace) -> None:
        super().__init__(server)
        config = next(iter(self.models.values()))["inference_config"]["learning_to_rank"]["feature_extractors"]
        self.definitions = {each["query_extractor"]["feature_name"]: each for each in config}
        self.fill_in = (
            f"Put your index's fields into a copy of {HERE / 'feature_extractors.json'}, and export again: querywise "
            "export … --feature-set COPY. A `match` is for text; a number of the document, such as a price, is a "
            "`function_score` with `field_value_factor`."
        )
        count = f"{len(self.models)} model{'s' if len(self.models) > 1 else ''}"
        self.there = f"{count} of {self.name} {'are' if len(self.models) > 1 else 'is'} in the engine"
        self.gone = f"{count} of {self.name} {'are' if len(self.models) > 1 else 'is'} gone from the engine"
        self.total = len(self.models)

    def missing(self) -> list[str]:
        """Return the names of the models that the engine lacks; raise EngineError if one differs."""
        try:
            require_version(self.server)
        except EngineError as error:
            raise self.explained(error) from None
        absent = []
        for name, content in self.models.items():
            found = self._stored(name)
            if found is None:
                absent.append(name)
            elif found != content["metadata"]["querywise"]["sha256"]:
                raise name_is_in_use(f"a model {name}", "other trees or features", self.name)
        return absent

    def _stored(self, name: str) -> str | None:
        """Return the checksum of a model in the engine, empty if it is not of an export; None if it does not exist."""
        found = self.ask("GET", f"_ml/trained_models/{name}", absent=True)
        metadata = {} if found is None else found["trained_model_configs"][0].get("metadata") or {}
        return None if found is None else str(metadata.get("querywise", {}).get("sha256", ""))

    def put(self, name: str) -> None:
        """Upload a model. The engine refuses a name that is taken."""
        self.send("PUT", f"_ml/trained_models/{name}", self.models[name], name)

    def remove(self) -> None:
        """Remove the models of this export."""
        for name in self.models:
            self.ask("DELETE", f"_ml/trained_models/{name}", absent=True)

    def explained(self, error: EngineError) -> EngineError:
        """Return the error, with advice if the engine lacks a license, or the user rights."""
        explained = with_licence(error)
        return explained if explained is not error else super().explained(error)


if __name__ == "__main__":
    sys.exit(main(ToElasticsearchNative, where=WHERE, features="queries of the features"))
