"""Upload the feature set and the models of this export to Elasticsearch or OpenSearch."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from typing import Any
from urllib.parse import quote

from querywise.exports.scripts.check_parity import EngineError, Server, read_json
from querywise.exports.scripts.upload import HERE, Upload, main, name_is_in_use, refuse_numbers

WHERE = "where the engine is, for example http://localhost:9200"
NUMBER = (
    "A number of the document, such as a price, is this feature: "
    '{"function_score": {"query": {"match_all": {}}, "field_value_factor": {"field": "FIELD", "missing": 0}, '
    '"boost_mode": "replace"}}'
)
NUMBERS = {"byte", "double", "float", "half_float", "integer", "long", "scaled_float", "short", "unsigned_long"}


class ToElasticsearch(Upload):
    """The feature set and the models of an export, and which of them the engine has."""

    who = "who may write with the plugin"

    def __init__(self, server: Server, given: argparse.Namespace) -> None:
        super().__init__(server)
        self.features = read_json(HERE / "featureset.json")["featureset"]["features"]
        self.definitions = {str(each.get("name")): each for each in self.features}
        self.fill_in = (
            f"In {HERE / 'featureset.json'}, put the field of your index in place of each; a `match` is for text. "
            f"{NUMBER}. Then run upload.py again."
        )
        self.there = f"The feature set {self.name} and {len(self.models)} models are in the engine"
        self.gone = f"The feature set {self.name} and its {len(self.models)} models are gone from the engine"
        self.total = len(self.models) + 1

    def _make_store(self) -> None:
        """Create the plugin's store if there is none; raise EngineError if the engine cannot be used."""
        try:
            self.server.ask("PUT", "_ltr")
        except EngineError as error:
            if re.search("already_exists|already exists", str(error)):
                return
            if re.search("no handler found|invalid_index_name|Invalid index name", str(error)):
                raise EngineError(
                    f"{self.server.url} has no Learning to Rank plugin, or not on this node: install the release made "
                    f"for version {self._version()} on every node, and restart them."
                ) from None
            raise self.explained(error) from None

    def _version(self) -> str:
        with contextlib.suppress(EngineError, AttributeError):
            return str(self.server.ask("GET", "").get("version", {}).get("number", "?"))
        return "?"

    def missing(self) -> list[str]:
        """Return the names of a missing feature set and missing models; raise EngineError if one differs."""
        self._make_store()
        found = self._stored(f"_ltr/_featureset/{self.name}", "featureset")
        if found is not None and found["features"] != self.features:
            differs = _difference(self.features, found["features"])
            raise name_is_in_use(f"a feature set {self.name}", differs, self.name)
        absent = [] if found is not None else [f"_featureset/{self.name}"]
        if absent:
            searched = {name: matched(each.get("template")) for name, each in self.definitions.items()}
            refuse_numbers(searched, self._numbers, f"{NUMBER}.")
        for name, content in self.models.items():
            model = self._stored(f"_ltr/_model/{name}", "model")
            if model is None:
                absent.append(name)
            elif not self._is_same(model, content["model"]):
                raise name_is_in_use(f"a model {name}", "other weights, trees or features", self.name)
        return absent

    def _numbers(self, fields: list[str]) -> set[str]:
        """Return the fields that are numeric in every index that has them; empty if the engine does not tell."""
        try:
            indexes = self.server.ask("GET", f"_mapping/field/{quote(','.join(fields))}")
        except EngineError:
            return set()
        kinds: dict[str, set[bool]] = {}
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            for index in indexes.values():
                for field, found in index["mappings"].items():
                    kinds.setdefault(field, set()).update(each["type"] in NUMBERS for each in found["mapping"].values())
        return {field for field, found in kinds.items() if found == {True}}

    def _stored(self, path: str, kind: str) -> dict[str, Any] | None:
        found = self.ask("GET", path, absent=True)
        try:
            return None if found is None else found["_source"][kind]
        except (KeyError, TypeError):
            raise EngineError(f"GET {path}: the answer is not that of the Learning to Rank plugin.") from None

    def _is_same(self, stored: dict[str, Any], own: dict[str, Any]) -> bool:
        same = json.loads(stored["model"]["definition"]) == json.loads(own["model"]["definition"])
        return bool(same and stored["feature_set"]["features"] == self.features)

    def put(self, name: str) -> None:
        """Upload one of the missing things."""
        if name.startswith("_featureset/"):
            # PUT refuses a name that is taken; POST would overwrite it.
            self.send("PUT", f"_ltr/{name}", {"featureset": {"features": self.features}})
        else:
            self.send("POST", f"_ltr/_featureset/{self.name}/_createmodel", self.models[name])

    def remove(self) -> None:
        """Remove the models and the feature set of this export."""
        for path in [*(f"_ltr/_model/{name}" for name in self.models), f"_ltr/_featureset/{self.name}"]:
            self.ask("DELETE", path, absent=True)


def matched(query: Any) -> list[str]:
    """Return the fields searched by the `match` queries inside a query."""
    if isinstance(query, list):
        return [field for each in query for field in matched(each)]
    if not isinstance(query, dict):
        return []
    own = list(query["match"]) if isinstance(query.get("match"), dict) else []
    return own + [field for each in query.values() for field in matched(each)]


def _difference(own: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """Describe how two lists of features differ."""
    ours, theirs = ([str(each.get("name")) for each in features] for features in (own, found))
    if ours != theirs:
        return f"other features: {', '.join(theirs[:8])}, where this export has {', '.join(ours[:8])}"
    changed = [each["name"] for each, other in zip(own, found, strict=True) if each != other]
    return f"another definition of {', '.join(changed[:8])}"


if __name__ == "__main__":
    sys.exit(main(ToElasticsearch, where=WHERE, features="feature set"))
