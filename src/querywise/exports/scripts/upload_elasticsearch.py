"""Upload the feature set and the models of this export to Elasticsearch or OpenSearch.

Nothing that is there is changed: what is there already and the same is left, and where something else has a name that
this export needs, nothing is uploaded. So models in service stay in service, and an upload that broke off goes on when
it is run again. To replace models, export under another name; see the README. Only Python's standard library is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from querywise.exports.scripts.check_parity import EngineError, Server, read_headers, read_json

HERE = Path(__file__).resolve().parent


class Upload:
    """The feature set and the models of an export, and what the engine has of them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.export = read_json(HERE / "export.json")
        self.name = self.export["name"]
        self.features = read_json(HERE / "featureset.json")["featureset"]["features"]
        self.models = {model["name"]: read_json(HERE / model["file"]) for model in self.export["models"]}

    def start(self) -> None:
        """Make the plugin's store where there is none; an error where the engine cannot be used."""
        try:
            self.server.ask("PUT", "_ltr")
        except EngineError as error:
            if re.search("already_exists|already exists", str(error)):
                return
            if re.search("no handler found|invalid_index_name|Invalid index name", str(error)):
                raise EngineError(
                    f"{self.server.url} has no Learning to Rank plugin, or not on this node: install the release made "
                    f"for version {self._version()} on every node, and start them anew."
                ) from None
            raise _with_rights(error) from None

    def _version(self) -> str:
        with contextlib.suppress(EngineError, AttributeError):
            return str(self.server.ask("GET", "").get("version", {}).get("number", "?"))
        return "?"

    def missing(self) -> list[str]:
        """What the engine lacks: the feature set's name, where it does, and models'; an error where one is another."""
        found = self._stored(f"_ltr/_featureset/{self.name}", "featureset")
        if found is not None and found["features"] != self.features:
            raise self._taken(f"a feature set {self.name}", _difference(self.features, found["features"]))
        absent = [] if found is not None else [f"_featureset/{self.name}"]
        for name, content in self.models.items():
            model = self._stored(f"_ltr/_model/{name}", "model")
            if model is None:
                absent.append(name)
            elif not self._is_same(model, content["model"]):
                raise self._taken(f"a model {name}", "other weights, trees or features")
        return absent

    def _stored(self, path: str, kind: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.server.ask("GET", path)["_source"][kind]
        except EngineError as error:
            if f"{path}: 404 " in str(error):
                return None
            raise _with_rights(error) from None
        except (KeyError, TypeError):
            raise EngineError(f"GET {path}: the answer is not that of the Learning to Rank plugin.") from None
        return found

    def _is_same(self, stored: dict[str, Any], own: dict[str, Any]) -> bool:
        same = json.loads(stored["model"]["definition"]) == json.loads(own["model"]["definition"])
        return bool(same and stored["feature_set"]["features"] == self.features)

    def _taken(self, what: str, difference: str) -> EngineError:
        return EngineError(
            f"There is {what} already, with {difference}. It may be in service, so nothing was uploaded. Export under "
            f"another name (querywise export … --name {self.name}-2); or, where nothing uses it, remove it first: "
            "python upload.py --url URL --remove, from the folder that it was uploaded from."
        )

    def put(self, name: str) -> None:
        """Upload one of the missing things."""
        if name.startswith("_featureset/"):
            # PUT refuses a name that is taken; POST would write over it.
            self._send("PUT", f"_ltr/{name}", {"featureset": {"features": self.features}})
        else:
            self._send("POST", f"_ltr/_featureset/{self.name}/_createmodel", self.models[name])

    def _send(self, method: str, path: str, body: Any) -> None:
        try:
            self.server.ask(method, path, body)
        except EngineError as error:
            size = len(json.dumps(body)) / 1e6
            # An engine that finds a body too large may close the connection while it is still being sent.
            if ": 413 " in str(error) or (size > 1 and re.search("broke off|Broken pipe|reset by peer", str(error))):
                raise EngineError(
                    f"{method} {path}: the engine does not take {size:.1f} MB at once. Fit fewer or smaller trees, or "
                    "raise http.max_content_length on the nodes."
                ) from None
            raise _with_rights(error) from None

    def remove(self) -> None:
        """Remove the models and the feature set of this export."""
        for path in [*(f"_ltr/_model/{name}" for name in self.models), f"_ltr/_featureset/{self.name}"]:
            try:
                self.server.ask("DELETE", path)
            except EngineError as error:
                if f"{path}: 404 " not in str(error):
                    raise _with_rights(error) from None


def _with_rights(error: EngineError) -> EngineError:
    """The error, with what to do where rights are missing."""
    if not re.search(r": 40[13] ", str(error)):
        return error
    return EngineError(f"{error} Upload as a user who may write with the plugin; --header passes credentials.")


def _difference(own: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """How two lists of features differ."""
    ours, theirs = ([str(each.get("name")) for each in features] for features in (own, found))
    if ours != theirs:
        return f"other features: {', '.join(theirs[:8])}, where this export has {', '.join(ours[:8])}"
    changed = [each["name"] for each, other in zip(own, found, strict=True) if each != other]
    return f"another definition of {', '.join(changed[:8])}"


def upload(work: Upload) -> str:
    """Upload what is missing; a sentence on what is there now."""
    work.start()
    absent = work.missing()
    for done, name in enumerate(absent):
        try:
            work.put(name)
        except EngineError as error:
            raise EngineError(
                f"{error}\n{done} of {len(absent)} things to upload are there now. Models in service were not touched, "
                "and the new ones are not in service before the router of this folder is: run upload.py again to go on."
            ) from None
    kept = len(work.models) + 1 - len(absent)
    before = f" ({kept} of them were there before)" if kept else ""
    return f"The feature set {work.name} and {len(work.models)} models are in the engine{before}."


def main() -> int:
    """Read the options, upload or remove, and print what is there now; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="where the engine is, for example http://localhost:9200")
    parser.add_argument("--header", action="append", default=[], help="sent along, as in --header 'Authorization: …'")
    parser.add_argument("--remove", action="store_true", help="remove the feature set and the models of this export")
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for an answer (60)")
    given = parser.parse_args()
    try:
        if not given.timeout > 0:
            raise EngineError(f"--timeout {given.timeout:g}: expected a number of seconds above 0.")
        work = Upload(Server(given.url, read_headers(given.header), given.timeout))
        if given.remove:
            work.remove()
            said = f"The feature set {work.name} and its {len(work.models)} models are gone from the engine."
        else:
            said = upload(work)
    except EngineError as stopped:
        sys.stderr.write(f"{stopped}\n")
        return 2
    sys.stdout.write(f"{said}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
