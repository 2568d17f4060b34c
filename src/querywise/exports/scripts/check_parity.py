"""Ask the engine to score the documents of parity.jsonl by every exported model, and compare with the scores there.

Everything it puts into the engine has a name that begins with NAME-parity, or as --name says, and is removed again.
What has such a name already is left alone: the check says so and stops. Only Python's standard library is needed.

Elasticsearch, OpenSearch: an index with one number per feature, a feature set that reads them, a copy of every model;
the plugin's store is made where there is none, and stays.
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
import http.client
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOGGED_ALIKE = 0.01  # how far a feature may have drifted since it was logged


class EngineError(Exception):
    """Why the check cannot go on, in a line."""


class Server:
    """The engine, over HTTP."""

    def __init__(self, url: str, headers: dict[str, str], timeout: float = 60) -> None:
        if not re.match(r"https?://[^/]", url):
            raise EngineError(f"--url {url}: expected an address like http://localhost:9200.")
        self.url = url.rstrip("/")
        self.headers = headers
        self.timeout = timeout

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        """Send a request; the answer, read as JSON."""
        data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        try:
            request = urllib.request.Request(
                f"{self.url}/{path}", data=data, method=method, headers={"Content-Type": kind, **self.headers}
            )
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                content = answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            raise EngineError(f"{method} {path}: {error.code} {beginning(_body(error))}") from None
        except urllib.error.URLError as error:
            raise EngineError(f"{self.url} does not answer ({error.reason}).") from None
        except TimeoutError:
            raise EngineError(f"{method} {path}: no answer within {self.timeout:g} seconds; see --timeout.") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EngineError(f"{method} {path}: the connection broke off ({beginning(str(error))}).") from None
        try:
            found = json.loads(content) if content.strip() else {}
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise EngineError(
                f"{method} {path}: the answer is not that of a search engine; it begins {beginning(content, 80)!r}. "
                "Is --url right?"
            )
        return found


def _body(error: urllib.error.HTTPError) -> str:
    try:
        return error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""


def beginning(text: str, length: int = 500) -> str:
    """The beginning of a text, on one line."""
    return " ".join(text.split())[:length]


@contextlib.contextmanager
def reading(answer: dict[str, Any]) -> Iterator[None]:
    """While the parts of an answer are looked up: say what it is where they are not there."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        said = beginning(json.dumps(answer, ensure_ascii=False), 300)
        raise EngineError(f"The engine's answer has not the documents asked for: {said}") from None


def taken(what: str, how: str) -> EngineError:
    """There is something of a name that the check was to give."""
    return EngineError(
        f"There is {what} already, and this check did not make it; nothing was changed there. Where it is left over "
        f"from an earlier check, remove it ({how}); else choose another name with --name."
    )


def removed(asked: Any, requests: list[tuple[Any, ...]]) -> list[str]:
    """Ask for everything to be removed; what could not be, in sentences."""
    left = []
    for request in requests:
        try:
            asked(*request)
        except EngineError as error:
            left.append(f"Not removed: {error}")
    return left


class Elasticsearch:
    """Numbers in an index, read by function scores; these cannot be negative, so there is a field for each sign."""

    def __init__(self, server: Server, export: dict[str, Any], name: str, collection: str | None) -> None:
        self.server = server
        self.features = export["features"]["in_engine"]
        self.feature_set = export["name"]
        self.name = name
        self.made: list[str] = []

    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """The documents, a feature set that reads their numbers, and the models."""
        width = range(len(self.features))
        self.size = len(documents)
        fields = {f"{sign}{i}": {"type": "double"} for i in width for sign in ("plus", "minus")}
        shaped = {"settings": {"number_of_shards": 1}, "mappings": {"properties": fields}}
        self._make("PUT", self.name, shaped, self.name, "an index")
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
        path = f"_ltr/_featureset/{self.name}"
        # PUT refuses a name that is taken; POST would write over it.
        self._make("PUT", path, {"featureset": {"features": features}}, path, "a feature set")
        for model, file in models.items():
            copied = {**read_json(file)["model"], "name": f"{self.name}-{model}"}
            place = f"_ltr/_model/{self.name}-{model}"
            self._make("POST", f"{path}/_createmodel", {"model": copied}, place, "a model")

    def _make(self, method: str, path: str, body: Any, place: str, what: str) -> None:
        """Make something and note it, so that it is removed again; not what is there already."""
        try:
            self.server.ask(method, path, body)
        except EngineError as error:
            if re.search("already_exists|already exists|version_conflict", str(error)):
                name = place.rpartition("/")[2]
                raise taken(f"{what} called {name}", f'curl -X DELETE "$URL/{place}"') from None
            raise
        self.made.append(place)

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
        by_model = {"sltr": {"model": f"{self.name}-{model}", "params": {}}}
        weights = {"query_weight": 0, "rescore_query_weight": 1}
        ranked = {
            "size": self.size,
            "query": {"match_all": {}},
            "rescore": {"window_size": self.size, "query": {**weights, "rescore_query": by_model}},
        }
        found = self.server.ask("POST", f"{self.name}/_search", ranked)
        with reading(found):
            return {hit["_id"]: float(hit["_score"]) for hit in found["hits"]["hits"]}

    def logged(self, index: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """The values of the uploaded features for some documents of an index."""
        features = {"sltr": {"_name": "features", "featureset": self.feature_set, "params": {"keywords": keywords}}}
        asked = {
            "size": len(ids),
            "query": {"bool": {"filter": [{"terms": {"_id": ids}}, features]}},
            "ext": {"ltr_log": {"log_specs": {"name": "features", "named_query": "features"}}},
        }
        found = self.server.ask("POST", f"{index}/_search", asked)
        with reading(found):
            logs = {hit["_id"]: hit["fields"]["_ltrlog"][0]["features"] for hit in found["hits"]["hits"]}
            return {name: {each["name"]: float(each.get("value", 0)) for each in log} for name, log in logs.items()}

    def remove(self) -> list[str]:
        """Everything that was made, last things first; what could not be removed."""
        return removed(self.server.ask, [("DELETE", place) for place in reversed(self.made)])


class Solr:
    """Documents with a number per feature, read by FieldValueFeature."""

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
        """The documents, the features and the models; the collection is reloaded, so that it goes by them."""
        self._check_free()
        self.ids = [f"{self.name}-{document['id']}" for document in documents]  # none of them was there
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
        self.made.append(f"schema/feature-store/{self.name}")  # nor this
        self._ask("PUT", "schema/feature-store", features)
        for model, path in models.items():
            name = f"{self.name}-{model}"
            self._make_model({**read_json(path), "name": name, "store": self.name}, f"schema/model-store/{name}")
        try:
            self.server.ask("GET", f"admin/collections?action=RELOAD&name={self.collection}")
        except EngineError:  # not SolrCloud
            self.server.ask("GET", f"admin/cores?action=RELOAD&core={self.collection}")

    def _check_free(self) -> None:
        """Stop where there are documents or a feature store of the name: Solr would write over them without a word."""
        asked = {"defType": "lucene", "q": f"{{!prefix f=id}}{self.name}-", "fl": "id", "rows": "1", "wt": "json"}
        form = urllib.parse.urlencode(asked)
        found = self._ask("POST", "select", form, "application/x-www-form-urlencoded")
        with reading(found):
            if found["response"]["docs"]:
                query = f"{{!prefix f=id}}{self.name}-"
                how = f"delete the query {query} in {self.collection}"
                raise taken(f"a document whose id begins with {self.name}-", how)
        stores = self._ask("GET", "schema/feature-store")
        with reading(stores):
            if self.name in stores["featureStores"]:
                how = f'curl -X DELETE "$URL/{self.collection}/schema/feature-store/{self.name}", after its models'
                raise taken(f"a feature store called {self.name}", how)

    def _make_model(self, content: dict[str, Any], place: str) -> None:
        try:
            self._ask("PUT", "schema/model-store", content)
        except EngineError as error:
            if re.search("already exists|already been", str(error)):
                how = f'curl -X DELETE "$URL/{self.collection}/{place}"'
                raise taken(f"a model called {content['name']}", how) from None
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
        with reading(found):
            scores = {each["id"]: float(each["score"]) for each in found["response"]["docs"]}
        return {name.removeprefix(f"{self.name}-"): score for name, score in scores.items()}

    def logged(self, collection: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
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
        found = self.server.ask("POST", f"{collection}/select", form, "application/x-www-form-urlencoded")
        values: dict[str, dict[str, float]] = {}
        with reading(found):
            for document in found["response"]["docs"]:
                pairs = [each.rpartition("=") for each in document["[features]"].split(",")]
                values[document["id"]] = {name: float(value) for name, _, value in pairs}
        return values

    def remove(self) -> list[str]:
        """Everything that was made, the feature store after the models that use it; what could not be removed."""
        requests: list[tuple[Any, ...]] = [("DELETE", place) for place in reversed(self.made)]
        if self.ids:
            requests.append(("POST", "update?commit=true", {"delete": self.ids}))
        return removed(self._ask, requests)

    def _ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        return self.server.ask(method, f"{self.collection}/{path}", body, kind)


class Vespa:
    """Documents in the application parity-app, with a number per feature."""

    def __init__(self, server: Server, export: dict[str, Any], name: str, collection: str | None) -> None:
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
            asked |= {"ranking": self.profile, "input.query(w)": read_text(path).strip()}
        else:
            asked |= {"ranking": path.stem}
        found = self.server.ask("POST", "search/", asked)
        with reading(found):
            hits = found["root"]["children"]
            return {hit["fields"]["documentid"].rpartition(":")[2]: float(hit["relevance"]) for hit in hits}

    def logged(self, collection: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """Nothing: the rank profile's match-features show the values of a query's own answers."""
        raise EngineError("--log is for Elasticsearch, OpenSearch and Solr; Vespa's answers carry matchfeatures.")

    def remove(self) -> list[str]:
        """The documents again; what could not be removed."""
        return removed(self.server.ask, [("DELETE", self._place(name)) for name in self.ids])

    @staticmethod
    def _place(name: str) -> str:
        return f"document/v1/parity/parity/docid/{name}"


ENGINES: dict[str, Any] = {
    "elasticsearch": Elasticsearch,
    "opensearch": Elasticsearch,
    "solr": Solr,
    "vespa": Vespa,
}


def read_text(path: Path) -> str:
    """A file of the export."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise EngineError(f"{path}: cannot be read ({error}). Export again.") from None


def read_json(path: Path) -> Any:
    """A file of JSON."""
    return as_json(read_text(path), path)


def as_json(text: str, path: Path) -> Any:
    """The JSON in a text of a file."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise EngineError(f"{path}: this is not JSON ({error}).") from None


def read_headers(given: list[str]) -> dict[str, str]:
    """Headers as HTTP takes them."""
    found = {}
    for each in given:
        name, colon, value = (part.strip() for part in each.partition(":"))
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise EngineError(f"--header {each!r}: expected 'Name: value'.")
        if not all(" " <= letter <= "~" or "\xa0" <= letter <= "\xff" or letter == "\t" for letter in value):
            raise EngineError(f"--header {name}: its value has a letter that HTTP headers cannot hold.")
        found[name] = value
    return found


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
    parser.add_argument("--name", help="what everything put into the engine is called; else NAME-parity")
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for an answer (60)")
    given = parser.parse_args()
    try:
        return check(given)
    except EngineError as stopped:
        sys.stderr.write(f"{stopped}\n")
        return 2


def check(given: argparse.Namespace) -> int:
    """Put everything there, compare, and take it away again, whatever happens."""
    export = read_json(HERE / "export.json")
    path = HERE / "parity.jsonl"
    documents = [as_json(line, path) for line in read_text(path).split("\n") if line]
    models = {model["name"]: HERE / model["file"] for model in export["models"]}
    name = given.name or f"{export['name']}-parity"
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise EngineError(f"--name {name}: expected small letters, digits, - and _, a letter first.")
    if not given.timeout > 0:
        raise EngineError(f"--timeout {given.timeout:g}: expected a number of seconds above 0.")
    server = Server(given.url, read_headers(given.header), given.timeout)
    asked = ENGINES[export["engine"]](server, export, name, given.collection)
    left: list[str] = []
    try:
        asked.put(documents, models)
        compared = [difference(asked.scores(model), model, documents) for model in models]
    finally:
        left = asked.remove()
        sys.stderr.write("".join(f"{each}\n" for each in left))
    logs = [] if given.log is None else features_otherwise(asked, given.log, documents)
    count = f"{len(models)} model{'s' if len(models) > 1 else ''}"
    found = [each for each in compared if each is not None]
    scored = found or [f"{len(documents)} documents are scored alike by {count}."]
    sys.stdout.write("\n".join([*scored, *logs]) + "\n")
    if found or (logs and not logs[0].startswith("The features of")):
        return 1
    return 2 if left else 0


if __name__ == "__main__":
    sys.exit(main())
