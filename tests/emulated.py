"""Search engines small enough for a test, written from the engines' documentation and nothing of ours.

Each answers over HTTP to the few endpoints a model needs, refuses what the engine refuses, and computes as it does:
the Learning to Rank plugins of Elasticsearch and OpenSearch in 32 bits, Vespa in 64, Elasticsearch's own
learning_to_rank with sums in 64 bits and the rest in 32. They are for what no registry has: those plugins, that part of
Elasticsearch, and a node of Vespa. Solr, PostgreSQL and Vespa's evaluator run themselves, in tests/engines.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import functools
import gzip
import json
import math
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from tests.query_languages import BadRequestError, found_by_elasticsearch, found_by_vespa

F = np.float32


class LearningToRank:
    """Elasticsearch or OpenSearch with the plugin: indexes, feature sets, models, rescoring by `sltr`."""

    def __init__(self, *, follows_missing: bool = False) -> None:
        self.follows_missing = follows_missing
        self.indexes: dict[str, dict[str, dict[str, Any]]] = {}
        self.feature_sets: dict[str, list[dict[str, Any]]] = {}
        self.models: dict[str, Any] = {}

    def answer(self, method: str, path: str, body: str) -> Any:
        parts = path.split("?")[0].strip("/").split("/")
        if parts[0] == "_ltr":
            return self._plugin(method, parts[1:], body)
        index = parts[0]
        if method == "PUT" and len(parts) == 1:
            if index in self.indexes:
                raise BadRequestError(f"resource_already_exists_exception: index [{index}] already exists")
            if index != index.lower():
                raise BadRequestError(f"invalid index {index}")
            self.indexes[index] = {}
            return {"acknowledged": True}
        if index not in self.indexes:
            raise BadRequestError("index_not_found_exception")
        if method == "DELETE":
            del self.indexes[index]
            return {"acknowledged": True}
        return self._bulk(index, body) if parts[1] == "_bulk" else self._search(index, json.loads(body))

    def _bulk(self, index: str, body: str) -> Any:
        lines = [json.loads(line) for line in body.splitlines()]
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            self.indexes[index][action["index"]["_id"]] = document
        return {"errors": False}

    def _plugin(self, method: str, parts: list[str], body: str) -> Any:
        if not parts:
            return {"acknowledged": True}
        kept: dict[str, Any] = {"_featureset": self.feature_sets, "_model": self.models}[parts[0]]
        if method == "GET":
            return {"_source": {"name": parts[1], "featureset": {"name": parts[1], "features": kept[parts[1]]}}}
        if method == "DELETE":
            del kept[parts[1]]
        elif parts[-1] == "_createmodel":
            self._create_model(self.feature_sets[parts[1]], json.loads(body))
        else:
            self._create_feature_set(parts[1], json.loads(body), may_replace=method == "POST")
        return {"result": "done"}

    def _create_feature_set(self, name: str, content: Any, *, may_replace: bool) -> None:
        features = content["featureset"]["features"]
        names = [feature["name"] for feature in features]
        if len(set(names)) != len(names):
            raise BadRequestError("feature names must be unique")
        for feature in features:
            if set(feature) - {"name", "params", "template_language", "template"}:
                raise BadRequestError(f"unknown field in {feature}")
        if name in self.feature_sets and not may_replace:
            raise BadRequestError("version_conflict_engine_exception")
        self.feature_sets[name] = features

    def _create_model(self, features: list[dict[str, Any]], content: Any) -> None:
        model = content["model"]
        if model["name"] in self.models:
            raise BadRequestError("version_conflict_engine_exception")
        read = {"model/linear": read_linear, "model/xgboost+json": read_xgboost}[model["model"]["type"]]
        names = [feature["name"] for feature in features]
        scoring = read(json.loads(model["model"]["definition"]), names, follows_missing=self.follows_missing)
        self.models[model["name"]] = (features, scoring)

    def _logged(self, index: str, asked: Any) -> Any:
        [sltr] = [each["sltr"] for each in asked["query"]["bool"]["filter"] if "sltr" in each]
        features = self.feature_sets[sltr["featureset"]]
        spec = asked["ext"]["ltr_log"]["log_specs"]
        assert spec["named_query"] == sltr["_name"]
        hits = []
        for name, document in self._found(index, asked["query"]).items():
            vector = self._vector(features, document, sltr["params"])
            log = [{"name": each["name"], "value": value} for each, value in zip(features, vector, strict=True)]
            hits.append({"_id": name, "fields": {"_ltrlog": [{spec["name"]: log}]}})
        return {"hits": {"hits": hits}}

    def _found(self, index: str, query: Any) -> dict[str, dict[str, Any]]:
        documents = {name: {"_id": name, **document} for name, document in self.indexes[index].items()}
        return {name: document for name, document in documents.items() if found_by_elasticsearch(query, document)}

    def _search(self, index: str, asked: Any) -> Any:
        if "ext" in asked:
            return self._logged(index, asked)
        rescore = asked["rescore"]["query"]
        sltr = rescore["rescore_query"]["sltr"]
        features, scoring = self.models[sltr["model"]]
        documents = self._found(index, asked["query"])
        rows = [self._vector(features, document, sltr["params"]) for document in documents.values()]
        first, weights = F(1.0), (F(rescore["query_weight"]), F(rescore["rescore_query_weight"]))
        scores = [float(weights[0] * first + weights[1] * scoring(row)) for row in np.array(rows, dtype=F)]
        best = sorted(zip(scores, documents, strict=True), key=lambda pair: -pair[0])[: asked.get("size", 10)]
        return {"hits": {"hits": [{"_id": name, "_score": score} for score, name in best]}}

    def _vector(self, features: list[dict[str, Any]], document: dict[str, Any], given: dict[str, str]) -> list[float]:
        values: dict[str, float] = {}
        for feature in features:
            if feature["template_language"] == "derived_expression":
                values[feature["name"]] = float(F(_arithmetic(feature["template"], values)))
                continue
            if "match" in feature["template"]:
                values[feature["name"]] = float(found_by_elasticsearch(_filled(feature["template"], given), document))
                continue
            score = feature["template"]["function_score"]
            value = document.get(score["field_value_factor"]["field"], score["field_value_factor"]["missing"])
            if value < 0:
                raise BadRequestError("field value function must not produce negative scores")
            values[feature["name"]] = float(F(value))
        return list(values.values())


def _filled(template: dict[str, Any], given: dict[str, str]) -> Any:
    """A mustache template with its parameters; values are escaped as JSON, in which templates are kept."""
    text = json.dumps(template)
    return json.loads(re.sub(r"\{\{(\w+)\}\}", lambda found: json.dumps(given[found[1]])[1:-1], text))


def _arithmetic(expression: str, names: dict[str, float]) -> float:
    def value(node: Any) -> float:
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            return value(node.left) - value(node.right)
        raise BadRequestError(f"cannot compute {expression}")

    return value(ast.parse(expression, mode="eval").body)


def read_linear(definition: Any, names: list[str], **_: Any) -> Any:
    """model/linear: an object from feature to weight; features left out weigh 0."""
    unknown = set(definition) - set(names)
    if unknown:
        raise BadRequestError(f"Feature {unknown} is unknown.")
    weights = [F(definition.get(name, 0.0)) for name in names]

    def score(vector: Any) -> Any:
        total = F(0)
        for weight, value in zip(weights, vector, strict=True):
            total = F(total + F(weight * value))
        return total

    return score


def read_xgboost(definition: Any, names: list[str], *, follows_missing: bool = False) -> Any:
    """model/xgboost+json: a list of trees; a split sends a value below its condition to `yes`."""
    if not isinstance(definition, list) or not definition:
        raise BadRequestError("Expected an array of trees")
    for tree in definition:
        _check_xgboost(tree, names)

    def leaf(node: Any, vector: Any) -> Any:
        while "leaf" not in node:
            value = vector[names.index(node["split"])]
            went = node["yes"] if F(node["split_condition"]) > value else node["no"]
            if follows_missing and np.isnan(value):
                went = node["missing"]
            node = node["children"][0 if went == node["yes"] else 1]
        return F(node["leaf"])

    def score(vector: Any) -> Any:
        total = F(0)
        for tree in definition:
            total = F(total + leaf(tree, vector))
        return total

    return score


def _check_xgboost(node: Any, names: list[str]) -> None:
    if "leaf" in node:
        if set(node) - {"nodeid", "leaf", "depth"}:
            raise BadRequestError(f"odd leaf {node}")
        return
    yes, no = (child["nodeid"] for child in node["children"])
    if (node["yes"], node["no"]) != (yes, no) or node["missing"] not in (yes, no):
        raise BadRequestError("branches do not point to the children")
    if node["split"] not in names or not {"nodeid", "depth", "split_condition"} <= set(node):
        raise BadRequestError(f"odd split {node}")
    for child in node["children"]:
        _check_xgboost(child, names)


class NotFoundError(Exception):
    """What the engine answers with status 404."""


class TrainedModels:
    """Elasticsearch with machine learning: indexes, trained models, rescoring by `learning_to_rank`."""

    def __init__(self, version: str = "8.15.0") -> None:
        self.version: dict[str, Any] = {"number": version, "build_flavor": "default"}
        self.indexes: dict[str, dict[str, dict[str, Any]]] = {}
        self.models: dict[str, dict[str, Any]] = {}

    def answer(self, method: str, path: str, body: str) -> Any:
        place, _, options = path.strip("/").partition("?")
        parts = place.split("/")
        if not place:
            return {"version": self.version}
        if parts[:2] == ["_ml", "trained_models"]:
            return self._trained_model(method, parts[2], body)
        index = parts[0]
        if method == "PUT":
            if index in self.indexes:
                raise BadRequestError(f"resource_already_exists_exception: index [{index}] already exists")
            self.indexes[index] = {}
        elif index not in self.indexes:
            raise NotFoundError("index_not_found_exception")
        elif method == "DELETE":
            del self.indexes[index]
        elif parts[1] == "_bulk":
            lines = [json.loads(line) for line in body.splitlines()]
            own = {action["index"]["_id"]: document for action, document in zip(lines[::2], lines[1::2], strict=True)}
            self.indexes[index] |= {name: {"_id": name, **document} for name, document in own.items()}
            return {"errors": False}
        elif parts[1:] == ["_search", "template"]:
            asked = json.loads(body)
            filled = _filled(json.loads(asked["source"]), asked["params"])
            return self._search(index, filled, named="include_named_queries_score=true" in options)
        else:
            return self._search(index, json.loads(body), named="include_named_queries_score=true" in options)
        return {"acknowledged": True}

    def _trained_model(self, method: str, name: str, body: str) -> Any:
        if method == "PUT":
            if name in self.models:
                raise BadRequestError(f"Trained machine learning model [{name}] already exists")
            if not re.fullmatch("[a-z0-9](?:[a-z0-9_.-]*[a-z0-9])?", name) or len(name) > 64:
                raise BadRequestError(f"Invalid model_id [{name}]")
            content = json.loads(body)
            check_trained_model(content)
            self.models[name] = content
            return {"model_id": name}
        if name not in self.models:
            raise NotFoundError("resource_not_found_exception")
        if method == "DELETE":
            del self.models[name]
            return {"acknowledged": True}
        shown = {key: value for key, value in self.models[name].items() if key != "compressed_definition"}
        return {"count": 1, "trained_model_configs": [{"model_id": name, **shown}]}

    def _search(self, index: str, asked: Any, *, named: bool) -> Any:
        found = [each for each in self.indexes[index].values() if found_by_elasticsearch(asked["query"], each)]
        hits: list[dict[str, Any]] = [{"_id": document["_id"], "_score": 1.0} for document in found]
        queries = _named_queries(asked["query"])
        for hit, document in zip(hits, found, strict=True):
            if asked.get("_source", True):
                hit["_source"] = {name: value for name, value in document.items() if name != "_id"}
            scores = {name: query_score(query, document) for name, query in queries.items()}
            matched = {name: score for name, score in scores.items() if score is not None}
            if matched:
                hit["matched_queries"] = matched if named else list(matched)
        if "rescore" in asked:
            rescored = asked["rescore"]["learning_to_rank"]
            model = self.models[rescored["model_id"]]
            size = asked["rescore"]["window_size"]
            for hit, document in zip(hits[:size], found, strict=False):
                hit["_score"] = trained_score(model, document, rescored["params"])
        ranked = sorted(hits, key=lambda hit: -float(hit["_score"]))
        return {"hits": {"hits": ranked[: asked.get("size", 10)]}}


def _named_queries(query: Any) -> dict[str, Any]:
    """The queries within a query that have a name."""
    if isinstance(query, list):
        return {name: own for each in query for name, own in _named_queries(each).items()}
    if not isinstance(query, dict):
        return {}
    below = {name: own for each in query.values() for name, own in _named_queries(each).items()}
    return below | ({query["bool"]["_name"]: query} if "_name" in query.get("bool", {}) else {})


def query_score(query: dict[str, Any], document: dict[str, Any]) -> float | None:
    """The score of a document by a query, in 32 bits; None where it does not match."""
    if not found_by_elasticsearch(query, document):
        return None
    [(kind, asked)] = query.items()
    if kind == "bool":
        return sum(query_score(each, document) or 0.0 for each in asked["must"])
    if kind != "function_score":
        return 1.0
    reads = asked["field_value_factor"]
    value = document.get(reads["field"], reads.get("missing"))
    if value is None or value < 0:
        raise BadRequestError(f"field value function must not produce negative scores, nor none: {value}")
    return float(F(value))


def check_trained_model(content: Any) -> None:
    """Refuse a learning_to_rank model that Elasticsearch refuses."""
    known = {"description", "metadata", "model_type", "inference_config", "compressed_definition"}
    if set(content) - known or content["model_type"] != "tree_ensemble":
        raise BadRequestError(f"[trained_model_config] unknown field among {set(content)}")
    [(kind, config)] = content["inference_config"].items()
    extractors = [each["query_extractor"] for each in config["feature_extractors"]]
    if kind != "learning_to_rank" or set(config) - {"feature_extractors", "default_params"}:
        raise BadRequestError(f"unknown inference config [{kind}]")
    if any(set(each) - {"feature_name", "query", "default_score"} for each in extractors):
        raise BadRequestError("[query_extractor] unknown field")
    if len({each["feature_name"] for each in extractors}) < len(extractors):
        raise BadRequestError("[feature_extractors] contains duplicate [feature_name] values")
    ensemble = ensemble_in(content)
    if set(ensemble) != {"feature_names", "target_type", "trained_models", "aggregate_output"}:
        raise BadRequestError("[ensemble] unknown field")
    if ensemble["aggregate_output"] != {"weighted_sum": {}} or not ensemble["trained_models"]:
        raise BadRequestError("[trained_models] must not be empty")
    for each in ensemble["trained_models"]:
        _check_trained_tree(each["tree"])


def _check_trained_tree(tree: Any) -> None:
    nodes = tree["tree_structure"]
    if tree["target_type"] != "regression" or [node["node_index"] for node in nodes] != list(range(len(nodes))):
        raise BadRequestError("[tree] is no regression, or its nodes are not in order")
    inner = {"node_index", "decision_type", "split_feature", "threshold", "left_child", "right_child", "default_left"}
    seen, waiting = set(), [0]
    while waiting:
        number = waiting.pop()
        if number in seen or not 0 <= number < len(nodes):
            raise BadRequestError(f"[tree] contains a cycle, or a missing node, at {number}")
        seen.add(number)
        if set(nodes[number]) == inner:
            waiting += [nodes[number]["left_child"], nodes[number]["right_child"]]
        elif set(nodes[number]) != {"node_index", "leaf_value"}:
            raise BadRequestError(f"odd node {nodes[number]}")


def ensemble_in(content: Any) -> Any:
    """The trees of a trained model, from its compressed definition."""
    return _decompressed(content["compressed_definition"])["trained_model"]["ensemble"]


@functools.lru_cache(8)
def _decompressed(definition: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(definition)))


def trained_score(content: Any, document: dict[str, Any], params: dict[str, str]) -> float:
    """The score of a document by a learning_to_rank model: features in 32 bits, sums in 64, the score in 32 again."""
    extractors = [
        each["query_extractor"] for each in content["inference_config"]["learning_to_rank"]["feature_extractors"]
    ]
    scores = {each["feature_name"]: query_score(_filled(each["query"], params), document) for each in extractors}
    ensemble = ensemble_in(content)
    return float(F(math.fsum(trained_leaf(each["tree"], scores) for each in ensemble["trained_models"])))


def trained_leaf(tree: Any, scores: dict[str, float | None]) -> float:
    """The value of the leaf of a tree; a feature without a score follows default_left."""
    nodes = tree["tree_structure"]
    node = nodes[0]
    while "leaf_value" not in node:
        value = scores.get(tree["feature_names"][node["split_feature"]])
        below = node["default_left"] if value is None else _ordered(value, node["threshold"])
        node = nodes[node["left_child" if below else "right_child"]]
    return float(node["leaf_value"])


def _ordered(first: float, second: float) -> bool:
    """Whether a number is at most another in Java's order of doubles, in which -0.0 is below 0.0."""
    return (first, math.copysign(1.0, first)) <= (second, math.copysign(1.0, second))


class Vespa:
    """Vespa with an application deployed: document/v1 and search, rank profiles of the kinds that are written here."""

    def __init__(self, application: Path) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        schema = (application / "schemas" / "parity.sd").read_text()
        self.fields = set(re.findall(r"field (\w+) type double \{\s*indexing: attribute \| summary\s*\}", schema))
        self.profiles: dict[str, Profile] = {}
        waiting = {path.stem: path.read_text() for path in application.glob("schemas/parity/*.profile")}
        for name in sorted(waiting, key=lambda each: "inherits" in waiting[each]):
            self.profiles[name] = Profile(waiting[name], self.profiles, application / "models")
            assert self.profiles[name].name == name, "a profile's file is called as the profile"

    def answer(self, method: str, path: str, body: str) -> Any:
        if path.startswith("/document/v1/parity/parity/docid/"):
            name = path.rpartition("/")[2]
            if method == "DELETE":
                del self.documents[name]
            else:
                fields = json.loads(body)["fields"]
                if set(fields) - self.fields:
                    raise BadRequestError("No field by that name")
                self.documents[name] = fields
            return {}
        asked = json.loads(body)
        profile = self.profiles[asked["ranking"]]
        hits = [
            {
                "relevance": profile.score(document, asked.get("input.query(w)")),
                "fields": {
                    "documentid": f"id:parity:parity::{name}",
                    "matchfeatures": {each: profile.value(each, document) for each in profile.listed},
                },
            }
            for name, document in self.documents.items()
            if found_by_vespa(asked, document)
        ]
        ranked = sorted(hits, key=lambda hit: -float(hit["relevance"]))  # type: ignore[arg-type]
        return {"root": {"children": ranked[: asked["hits"]]}}


class Profile:
    """A rank profile: functions, an input with a default, a first phase."""

    def __init__(self, text: str, others: dict[str, Profile], models: Path) -> None:
        head = re.match(r"rank-profile (\w+)(?: inherits (\w+))? \{", text)
        assert head is not None
        self.name = head[1]
        above = others[head[2]] if head[2] else None
        own = dict(re.findall(r"function (\w+)\(\) \{\s*expression: (.*?)\n\s*\}", text, re.DOTALL))
        self.functions: dict[str, str] = {**(above.functions if above else {}), **own}
        given = re.search(r"inputs \{\s*query\(w\) tensor<double>\(feature\{\}\):(\{.*?\})\n", text)
        self.weights: dict[str, float] = read_tensor(given[1]) if given else (above.weights if above else {})
        first = re.search(r"first-phase \{\s*expression: (.*?)\n", text)
        assert first is not None
        self.first = first[1]
        features = re.search(r"match-features \{(.*?)\}", text, re.DOTALL)
        self.listed: list[str] = features[1].split() if features else (above.listed if above else [])
        trees = re.fullmatch(r'lightgbm\("(.*)"\)', self.first)
        self.trees = json.loads((models / trees[1]).read_text()) if trees else None

    def value(self, function: str, document: dict[str, float]) -> float:
        field = re.fullmatch(r"attribute\((\w+)\)", self.functions[function])
        assert field is not None
        return float(document[field[1]])

    def score(self, document: dict[str, float], given: str | None) -> float:
        if self.trees is not None:
            names = self.trees["feature_names"]
            ordered = [self.value(name, document) for name in names]
            return sum(self._leaf(tree["tree_structure"], ordered) for tree in self.trees["tree_info"])
        assert self.first == "sum(query(w) * features)"
        weights = self.weights if given is None else read_tensor(given)
        cells = re.fullmatch(r"tensor<double>\(feature\{\}\):\{(.*)\}", self.functions["features"])
        assert cells is not None
        pairs = [cell.split(":") for cell in cells[1].split(",")]
        vector = {label: self.value(name, document) for label, name in pairs}
        # A product of two mapped tensors has the labels that both have.
        return sum(weights[label] * vector[label] for label in weights if label in vector)

    @staticmethod
    def _leaf(node: Any, vector: list[float]) -> float:
        while "leaf_value" not in node:
            assert node["decision_type"] == "<="
            # As Vespa imports it: strictly below goes left.
            node = node["left_child"] if vector[node["split_feature"]] < node["threshold"] else node["right_child"]
        return float(node["leaf_value"])


def read_tensor(text: str) -> dict[str, float]:
    """The short form of a tensor with one mapped dimension."""
    assert re.fullmatch(r"\{(\w+:-?[0-9.]+(e[+-]?[0-9]+)?,?)*\}", text), text
    return {label: float(value) for label, value in (cell.split(":") for cell in text[1:-1].split(","))}


@contextlib.contextmanager
def serving(engine: Any) -> Iterator[str]:
    """The engine over HTTP; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            try:
                code, content = 200, engine.answer(self.command, self.path, body)
            except NotFoundError as error:
                code, content = 404, {"error": repr(error)}
            except (BadRequestError, KeyError) as error:
                code, content = 400, {"error": repr(error)}
            data = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
