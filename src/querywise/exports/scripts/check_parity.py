"""Ask the engine to score the documents of parity.jsonl by every exported model, and compare with the scores there.

Everything it puts into the engine is called NAME-parity and removed again. Only Python's standard library is needed.

Elasticsearch, OpenSearch: an index with one number per feature, a feature set that reads them, a copy of every model.
Solr: documents in the collection named with --collection, which should be an empty one with the LTR module on and the
default dynamic fields *_d; a feature store and a copy of every model.
Vespa: documents in the application of the folder parity-app, which is to be deployed first.

With --log NAME, an index or collection that is searched today, it also has the uploaded features computed for the
documents of parity.jsonl that came with an id and the words of their query, and compares the values with those the
model was trained on. Nothing is written there. Elasticsearch, OpenSearch and Solr can do that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOGGED_ALIKE = 0.01  # how far a feature may have drifted since it was logged


class EngineError(Exception):
    """The engine's answer was an error."""


class Server:
    """The engine, over HTTP."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.url = url.rstrip("/")
        self.headers = headers

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Send a request; the answer, read as JSON."""
        data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        request = urllib.request.Request(
            f"{self.url}/{path}", data=data, method=method, headers={"Content-Type": kind, **self.headers}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            raise EngineError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:500]}") from None
        except urllib.error.URLError as error:
            raise EngineError(f"{self.url} does not answer ({error.reason}).") from None
        return json.loads(content) if content.strip() else {}


class Elasticsearch:
    """Numbers in an index, read by function scores; these cannot be negative, so there is a field for each sign."""

    def __init__(self, server: Server, export: dict[str, Any], collection: str | None) -> None:
        self.server = server
        self.features = export["features"]["in_engine"]
        self.name = f"{export['name']}-parity"
        self.models: list[str] = []

    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """The documents, a feature set that reads their numbers, and the models."""
        width = range(len(self.features))
        self.size = len(documents)
        fields = {f"{sign}{i}": {"type": "double"} for i in width for sign in ("plus", "minus")}
        self.server.ask("PUT", self.name, {"settings": {"number_of_shards": 1}, "mappings": {"properties": fields}})
        lines = []
        for document in documents:
            values = [document["features"][feature] for feature in self.features]
            parts = {f"plus{i}": max(value, 0.0) for i, value in enumerate(values)}
            parts |= {f"minus{i}": max(-value, 0.0) for i, value in enumerate(values)}
            lines += [json.dumps({"index": {"_id": document["id"]}}), json.dumps(parts)]
        bulk = "\n".join(lines) + "\n"
        done = self.server.ask("POST", f"{self.name}/_bulk?refresh=true", bulk, "application/x-ndjson")
        if done.get("errors"):
            raise EngineError(f"Some documents were not taken: {json.dumps(done)[:500]}")
        features = [self._number(f"{sign}{i}") for i in width for sign in ("plus", "minus")]
        features += [self._difference(feature, i) for i, feature in enumerate(self.features)]
        with contextlib.suppress(EngineError):
            self.server.ask("PUT", "_ltr")  # is there already, or is made
        self.server.ask("POST", f"_ltr/_featureset/{self.name}", {"featureset": {"features": features}})
        for model, path in models.items():
            copied = {**read_json(path)["model"], "name": f"{model}-parity"}
            self.server.ask("POST", f"_ltr/_featureset/{self.name}/_createmodel", {"model": copied})
            self.models.append(f"{model}-parity")

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
        """The engine's scores by one model."""
        by_model = {"sltr": {"model": f"{model}-parity", "params": {}}}
        weights = {"query_weight": 0, "rescore_query_weight": 1}
        ranked = {
            "size": self.size,
            "query": {"match_all": {}},
            "rescore": {"window_size": self.size, "query": {**weights, "rescore_query": by_model}},
        }
        found = self.server.ask("POST", f"{self.name}/_search", ranked)
        return {hit["_id"]: hit["_score"] for hit in found["hits"]["hits"]}

    def logged(self, index: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """The values of the uploaded features for some documents of an index."""
        feature_set = self.name.removesuffix("-parity")
        features = {"sltr": {"_name": "features", "featureset": feature_set, "params": {"keywords": keywords}}}
        asked = {
            "size": len(ids),
            "query": {"bool": {"filter": [{"terms": {"_id": ids}}, features]}},
            "ext": {"ltr_log": {"log_specs": {"name": "features", "named_query": "features"}}},
        }
        hits = self.server.ask("POST", f"{index}/_search", asked)["hits"]["hits"]
        logs = {hit["_id"]: hit["fields"]["_ltrlog"][0]["features"] for hit in hits}
        return {name: {each["name"]: each.get("value", 0.0) for each in log} for name, log in logs.items()}

    def remove(self) -> None:
        """Everything again."""
        models = [f"_ltr/_model/{model}" for model in self.models]
        for path in (*models, f"_ltr/_featureset/{self.name}", self.name):
            with contextlib.suppress(EngineError):
                self.server.ask("DELETE", path)


class Solr:
    """Documents with a number per feature, read by FieldValueFeature."""

    def __init__(self, server: Server, export: dict[str, Any], collection: str | None) -> None:
        if collection is None:
            raise EngineError("Solr needs a collection to put the documents into: --collection NAME.")
        self.server = server
        self.collection = collection
        self.features = export["features"]["in_engine"]
        self.name = f"{export['name']}-parity"
        self.ids: list[str] = []
        self.models: list[str] = []

    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """The documents, the features and the models; the collection is reloaded, so that it goes by them."""
        self.ids = [f"{self.name}-{document['id']}" for document in documents]
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
        self._ask("PUT", "schema/feature-store", features)
        for model, path in models.items():
            copied = {**read_json(path), "name": f"{model}-parity", "store": self.name}
            self._ask("PUT", "schema/model-store", copied)
            self.models.append(f"{model}-parity")
        try:
            self.server.ask("GET", f"admin/collections?action=RELOAD&name={self.collection}")
        except EngineError:  # not SolrCloud
            self.server.ask("GET", f"admin/cores?action=RELOAD&core={self.collection}")

    def scores(self, model: str) -> dict[str, float]:
        """The engine's scores by one model."""
        asked = {
            "q": f"{{!prefix f=id}}{self.name}-",
            "rq": f"{{!ltr model={model}-parity reRankDocs={len(self.ids)}}}",
            "fl": "id,score",
            "rows": str(len(self.ids)),
            "wt": "json",
        }
        form = urllib.parse.urlencode(asked)
        found = self._ask("POST", "select", form, "application/x-www-form-urlencoded")
        return {each["id"].removeprefix(f"{self.name}-"): each["score"] for each in found["response"]["docs"]}

    def logged(self, collection: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """The values of the uploaded features for some documents of a collection."""
        quoted = keywords.replace("\\", "\\\\").replace("'", "\\'")
        store = self.name.removesuffix("-parity")
        asked = {
            "q": f"{{!terms f=id}}{','.join(ids)}",
            "fl": f"id,[features store={store} format=dense efi.keywords='{quoted}']",
            "rows": str(len(ids)),
            "wt": "json",
        }
        form = urllib.parse.urlencode(asked)
        found = self.server.ask("POST", f"{collection}/select", form, "application/x-www-form-urlencoded")
        values: dict[str, dict[str, float]] = {}
        for document in found["response"]["docs"]:
            pairs = [each.rpartition("=") for each in document["[features]"].split(",")]
            values[document["id"]] = {name: float(value) for name, _, value in pairs}
        return values

    def remove(self) -> None:
        """Everything again; a feature store goes only after the models that use it."""
        models = [f"schema/model-store/{model}" for model in self.models]
        for path in (*models, f"schema/feature-store/{self.name}"):
            with contextlib.suppress(EngineError):
                self._ask("DELETE", path)
        if self.ids:
            self._ask("POST", "update?commit=true", {"delete": self.ids})

    def _ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        return self.server.ask(method, f"{self.collection}/{path}", body, kind)


class Vespa:
    """Documents in the application parity-app, with a number per feature."""

    def __init__(self, server: Server, export: dict[str, Any], collection: str | None) -> None:
        self.server = server
        self.features = export["features"]["in_engine"]
        self.profile = export["name"].replace("-", "_")
        self.ids: list[str] = []
        self.models: dict[str, Path] = {}

    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """The documents; the models came with the application."""
        self.models = models
        for document in documents:
            fields = {f"value{i}": document["features"][each] for i, each in enumerate(self.features)}
            self.server.ask("POST", self._place(document["id"]), {"fields": fields})
            self.ids.append(document["id"])

    def scores(self, model: str) -> dict[str, float]:
        """The engine's scores by one model: weights sent along, or a profile of its own."""
        path = self.models[model]
        asked: dict[str, Any] = {"yql": "select * from parity where true", "hits": len(self.ids)}
        if path.suffix == ".txt":
            asked |= {"ranking": self.profile, "input.query(w)": path.read_text(encoding="utf-8").strip()}
        else:
            asked |= {"ranking": path.stem}
        found = self.server.ask("POST", "search/", asked)
        hits = found["root"].get("children", [])
        return {hit["fields"]["documentid"].rpartition(":")[2]: hit["relevance"] for hit in hits}

    def logged(self, collection: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """Nothing: the rank profile's match-features show the values of a query's own answers."""
        raise EngineError("--log is for Elasticsearch, OpenSearch and Solr; Vespa's answers carry matchfeatures.")

    def remove(self) -> None:
        """The documents again."""
        for name in self.ids:
            with contextlib.suppress(EngineError):
                self.server.ask("DELETE", self._place(name))

    @staticmethod
    def _place(name: str) -> str:
        return f"document/v1/parity/parity/docid/{name}"


ENGINES: dict[str, Any] = {
    "elasticsearch": Elasticsearch,
    "opensearch": Elasticsearch,
    "solr": Solr,
    "vespa": Vespa,
}


def read_json(path: Path) -> Any:
    """A file of JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def difference(found: dict[str, float], model: str, documents: list[dict[str, Any]]) -> str | None:
    """What the engine scores otherwise by a model, in a sentence."""
    absent = [each["id"] for each in documents if each["id"] not in found]
    if absent:
        return f"{model}: the engine did not return {len(absent)} of {len(documents)} documents."
    gaps = [abs(found[each["id"]] - each["scores"][model]) for each in documents]
    off = [i for i, each in enumerate(documents) if not gaps[i] <= each["tolerance"][model]]
    if not off:
        return None
    worst = max(off, key=lambda i: gaps[i])
    here = documents[worst]
    return (
        f"{model}: {len(off)} of {len(documents)} documents are scored otherwise; document {here['id']} is "
        f"{found[here['id']]!r} in the engine and {here['scores'][model]!r} here, {gaps[worst]:.3g} apart, where "
        f"rounding explains {here['tolerance'][model]:.3g}."
    )


def features_otherwise(asked: Any, where: str, documents: list[dict[str, Any]]) -> list[str]:
    """A sentence for every feature whose values in the engine are not those of training."""
    known = [each for each in documents if "document" in each]
    if not known:
        raise EngineError(
            "parity.jsonl has no documents of the engine's own. Export with --data FILE whose lines end in "
            "'#docid = …', and with queries.jsonl beside it."
        )
    pairs: dict[str, list[tuple[float, float, dict[str, Any]]]] = {}
    absent = 0
    for keywords in dict.fromkeys(each["keywords"] for each in known):
        here = [each for each in known if each["keywords"] == keywords]
        found = asked.logged(where, keywords, [each["document"] for each in here])
        absent += sum(each["document"] not in found for each in here)
        for each in (each for each in here if each["document"] in found):
            for name, value in each["features"].items():
                pairs.setdefault(name, []).append((found[each["document"]].get(name, 0.0), value, each))
    said = [f"{where} does not have {absent} of {len(known)} documents."] if absent else []
    for name, values in pairs.items():
        off = [each for each in values if abs(each[0] - each[1]) > LOGGED_ALIKE * max(abs(each[0]), abs(each[1]))]
        if off:
            theirs, ours, document = max(off, key=lambda each: abs(each[0] - each[1]))
            said.append(
                f"{name}: {len(off)} of {len(values)} values differ by more than {LOGGED_ALIKE:.0%}; document "
                f"{document['document']} for {document['keywords']!r} has {theirs!r} in the engine, {ours!r} in "
                "training."
            )
    return said or [f"The features of {len(known)} documents are computed as in training."]


def main() -> int:
    """Check, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="where the engine is, for example http://localhost:9200")
    parser.add_argument("--header", action="append", default=[], help="sent along, as in --header 'Authorization: …'")
    parser.add_argument("--collection", help="Solr: the collection to put the documents into")
    parser.add_argument("--log", metavar="NAME", help="also compare the features computed there with those of training")
    given = parser.parse_args()
    export = read_json(HERE / "export.json")
    lines = (HERE / "parity.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line) for line in lines]
    models = {model["name"]: HERE / model["file"] for model in export["models"]}
    headers = {name.strip(): value.strip() for name, _, value in (each.partition(":") for each in given.header)}
    try:
        asked = ENGINES[export["engine"]](Server(given.url, headers), export, given.collection)
        try:
            asked.put(documents, models)
            compared = [difference(asked.scores(model), model, documents) for model in models]
        finally:
            asked.remove()
        logs = [] if given.log is None else features_otherwise(asked, given.log, documents)
    except EngineError as refused:
        sys.stderr.write(f"{refused}\n")
        return 2
    count = f"{len(models)} model{'s' if len(models) > 1 else ''}"
    found = [each for each in compared if each is not None]
    scored = found or [f"{len(documents)} documents are scored alike by {count}."]
    sys.stdout.write("\n".join([*scored, *logs]) + "\n")
    return 1 if found or (logs and not logs[0].startswith("The features of")) else 0


if __name__ == "__main__":
    sys.exit(main())
