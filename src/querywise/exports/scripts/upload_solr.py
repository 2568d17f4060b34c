"""Upload the feature store and the models of this export to a collection of Solr.

Nothing that is there is changed: what is there already and the same is left, and where something else has a name that
this export needs, nothing is uploaded. So models in service stay in service, and an upload that broke off goes on when
it is run again. The collection is reloaded at the end, without which Solr does not go by what is new. To replace
models, export under another name; see the README. Only Python's standard library is needed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from querywise.exports.scripts.check_parity import EngineError, Server, read_headers, read_json, reading

HERE = Path(__file__).resolve().parent


class Upload:
    """The features and the models of an export, and what the collection has of them."""

    def __init__(self, server: Server, collection: str) -> None:
        if not re.fullmatch(r"[\w.-]+", collection):
            raise EngineError(f"--collection {collection}: expected letters, digits, _, . and -.")
        self.server, self.collection = server, collection
        self.export = read_json(HERE / "export.json")
        self.name = self.export["name"]
        self.features = read_json(HERE / "features.json")
        self.models = {model["name"]: read_json(HERE / model["file"]) for model in self.export["models"]}

    def missing(self) -> tuple[list[str], list[str]]:
        """The names of the features and of the models that the collection lacks; an error where one is another."""
        own, stored = {each["name"]: each for each in self.features}, self._stored_features()
        others = [name for name in stored if name not in own]
        changed = [name for name, each in own.items() if name in stored and not _same_feature(each, stored[name])]
        if others or changed:
            what = f"features of its own ({_listed(others)})" if others else f"another definition of {_listed(changed)}"
            raise self._taken(f"a feature store {self.name}", what)
        models = self._stored_models()
        for name in (name for name in self.models if name in models):
            if not _same_model(self.models[name], models[name]):
                raise self._taken(f"a model {name}", "other weights, trees or features")
        return [name for name in own if name not in stored], [name for name in self.models if name not in models]

    def _stored_features(self) -> dict[str, Any]:
        path = f"{self.collection}/schema/feature-store"
        try:
            stores = self.server.ask("GET", path)
        except EngineError as error:
            if re.search("store: 404 |No REST managed resource", str(error)):
                raise self._without_module() from None
            raise _with_rights(error) from None
        with reading(stores):
            if self.name not in stores["featureStores"]:
                return {}
        found = self.server.ask("GET", f"{path}/{self.name}")
        with reading(found):
            return {each["name"]: each for each in found["features"]}

    def _without_module(self) -> EngineError:
        """Why the collection has no stores: it is not there, or has no module."""
        try:
            self.server.ask("GET", f"{self.collection}/select?q=*:*&rows=0&wt=json")
        except EngineError:
            return EngineError(
                f"{self.server.url} has no collection {self.collection}. Is --collection right, and does --url end in "
                "/solr?"
            )
        return EngineError(
            f"The collection {self.collection} has no Learning to Rank module: switch the module ltr on, and add its "
            "query parser, cache and transformer to solrconfig.xml."
        )

    def _stored_models(self) -> dict[str, Any]:
        found = self.server.ask("GET", f"{self.collection}/schema/model-store")
        with reading(found):
            return {each["name"]: each for each in found["models"]}

    def _taken(self, what: str, difference: str) -> EngineError:
        return EngineError(
            f"There is {what} already, with {difference}. It may be in service, so nothing was uploaded. Export under "
            f"another name (querywise export … --name {self.name}-2); or, where nothing uses it, remove it first: "
            "python upload.py --url URL --collection NAME --remove, from the folder that it was uploaded from."
        )

    def put_features(self, names: list[str]) -> None:
        """Upload the missing features."""
        self._send("schema/feature-store", [each for each in self.features if each["name"] in names])

    def put_model(self, name: str) -> None:
        """Upload one model."""
        self._send("schema/model-store", self.models[name])

    def _send(self, path: str, body: Any) -> None:
        try:
            self.server.ask("PUT", f"{self.collection}/{path}", body)
        except EngineError as error:
            size = len(json.dumps(body)) / 1e6
            if size > 1 and re.search(r": 413 |connection broke off|too large|ConnectionLoss", str(error)):
                raise EngineError(
                    f"PUT {path}: Solr does not take a model of {size:.1f} MB. Fit fewer or smaller trees; or on "
                    "SolrCloud, where ZooKeeper takes 1 MB, raise jute.maxbuffer or use DefaultWrapperModel."
                ) from None
            raise _with_rights(error) from None

    def reload(self) -> None:
        """Have the collection, or the core where Solr is no cloud, go by its stores."""
        try:
            self.server.ask("GET", f"admin/collections?action=RELOAD&name={self.collection}")
        except EngineError as error:
            if "not running in SolrCloud mode" not in str(error):
                raise _with_rights(error) from None
            self.server.ask("GET", f"admin/cores?action=RELOAD&core={self.collection}")

    def remove(self) -> None:
        """Remove the models and the feature store of this export, as far as they are there."""
        self._stored_features()  # an error where there is no module
        there = self._stored_models()
        places = [f"schema/model-store/{name}" for name in self.models if name in there]
        if self.name in self.server.ask("GET", f"{self.collection}/schema/feature-store").get("featureStores", []):
            places.append(f"schema/feature-store/{self.name}")
        for place in places:
            try:
                self.server.ask("DELETE", f"{self.collection}/{place}")
            except EngineError as error:
                raise _with_rights(error) from None
        self.reload()


def _same_feature(own: dict[str, Any], stored: dict[str, Any]) -> bool:
    return all(own.get(key) == stored.get(key) for key in ("class", "params"))


def _same_model(own: dict[str, Any], stored: dict[str, Any]) -> bool:
    """Whether two models are one; Solr adds to each feature how it is scaled, which is not at all."""
    listed, there = ([each["name"] for each in model["features"]] for model in (own, stored))
    return listed == there and all(own[key] == stored[key] for key in ("class", "store", "params"))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _with_rights(error: EngineError) -> EngineError:
    """The error, with what to do where rights are missing."""
    if not re.search(r": 40[13] ", str(error)):
        return error
    return EngineError(f"{error} Upload as a user who may edit the schema; --header passes credentials.")


def upload(work: Upload) -> str:
    """Upload what is missing; a sentence on what is there now."""
    features, models = work.missing()
    done, total = 0, bool(features) + len(models)
    try:
        if features:
            work.put_features(features)
            done += 1
        for name in models:
            work.put_model(name)
            done += 1
        work.reload()
    except EngineError as error:
        raise EngineError(
            f"{error}\n{done} of {total} things to upload are there now. Models in service were not touched, and the "
            "new ones are not in service before the router of this folder is: run upload.py again to go on."
        ) from None
    kept = len(work.models) + 1 - total
    before = f" ({kept} of them were there before)" if kept else ""
    count = f"{len(work.models)} model{'s' if len(work.models) > 1 else ''}"
    return f"The feature store {work.name} and {count} are in {work.collection}{before}."


def main() -> int:
    """Read the options, upload or remove, and print what is there now; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="where Solr is, for example http://localhost:8983/solr")
    parser.add_argument("--collection", required=True, help="the collection, or the core, to upload to")
    parser.add_argument("--header", action="append", default=[], help="sent along, as in --header 'Authorization: …'")
    parser.add_argument("--remove", action="store_true", help="remove the feature store and the models of this export")
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for an answer (60)")
    given = parser.parse_args()
    try:
        if not given.timeout > 0:
            raise EngineError(f"--timeout {given.timeout:g}: expected a number of seconds above 0.")
        work = Upload(Server(given.url, read_headers(given.header), given.timeout), given.collection)
        if given.remove:
            work.remove()
            said = f"The feature store {work.name} and its models are gone from {work.collection}."
        else:
            said = upload(work)
    except EngineError as stopped:
        sys.stderr.write(f"{stopped}\n")
        return 2
    sys.stdout.write(f"{said}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
