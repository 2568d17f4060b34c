"""Elasticsearch and OpenSearch with their Learning to Rank plugins: a feature set, and a document per model.

Both plugins store features, weights, thresholds and sums in 32 bits. A tree's split sends a value below the threshold
to the child `yes`; a feature whose query does not match a document is 0, or, in newer plugins, follows `missing`.
"""

from __future__ import annotations

import json

import numpy as np

from querywise.contracts.forms import Leaf, Linear, Split
from querywise.exports import field_queries
from querywise.exports.arithmetic import Arithmetic, above32, floor32
from querywise.exports.models import BM25_FACTOR, BM25_FIELD, Exported, NamedModel, Source, sources
from querywise.exports.target import UNFINISHED, Files, StoredModels, Target, as_text, check_feature_names, defined
from querywise.runtime.values import Json, JsonObject

_EXPECTED = 'The feature set must be a list of features, {"features": […]} or {"featureset": {"features": […]}}.'


def write(exported: Exported, name: str, features: Json) -> Files:
    """Return the feature set and a document per model."""
    given = _template(exported) if features is None else _checked(exported, features)
    texts = {"featureset.json": as_text({"featureset": {"features": given}})}
    places = {model.name: f"models/{model.name}.json" for model in exported.models}
    for model in exported.models:
        texts[places[model.name]] = as_text(model_document(model, exported.features))
    return Files(texts, exported.features, places, tuple(str(each["name"]) for each in given))


def model_document(model: NamedModel, features: tuple[str, ...]) -> JsonObject:
    """Return the JSON to post to `_createmodel`."""
    content: Json
    if isinstance(model.form, Linear):
        kind, content = "model/linear", dict(zip(features, model.form.weights.tolist(), strict=True))
    else:
        kind, content = "model/xgboost+json", [_numbered(tree, features) for tree in model.form.trees]
    definition = json.dumps(content, ensure_ascii=False)
    return {"model": {"name": model.name, "model": {"type": kind, "definition": definition}}}


def _numbered(tree: Split | Leaf, features: tuple[str, ...]) -> JsonObject:
    """Return a tree in XGBoost's JSON format, its nodes numbered in depth-first order from the root."""
    count = 0

    def written(node: Split | Leaf, depth: int) -> JsonObject:
        nonlocal count
        number, count = count, count + 1
        if isinstance(node, Leaf):
            return {"nodeid": number, "leaf": node.value}
        yes, no = written(node.low, depth + 1), written(node.high, depth + 1)
        below = above32(node.threshold)
        return {
            "nodeid": number,
            "depth": depth,
            "split": features[node.column],
            "split_condition": below,
            "yes": yes["nodeid"],
            "no": no["nodeid"],
            "missing": yes["nodeid"] if below > 0 else no["nodeid"],  # an absent feature counts as 0
            "children": [yes, no],
        }

    return written(tree, 0)


def _template(exported: Exported) -> list[JsonObject]:
    how: JsonObject = {"params": ["keywords"], "template_language": "mustache"}
    return [{"name": name, **how, "template": computed(name, source)} for name, source in sources(exported)]


def computed(feature: str, source: Source) -> JsonObject:
    """Return the query whose score is the feature, with placeholders for the user."""
    field = f"{UNFINISHED}_{feature}"
    if source is Source.BM25:
        return {"match": {f"{UNFINISHED}_{BM25_FIELD}": {"query": "{{keywords}}", "boost": BM25_FACTOR}}}
    if source is Source.NUMBER:
        value: JsonObject = {"field": field, "missing": 0}
        return {"function_score": {"query": {"match_all": {}}, "field_value_factor": value, "boost_mode": "replace"}}
    return {"match_none": {}} if source is Source.NONE else {"match": {field: "{{keywords}}"}}  # NONE: no model uses it


def _checked(exported: Exported, content: Json) -> list[JsonObject]:
    given = defined(content, _EXPECTED, ("featureset", "features"))
    check_feature_names(exported.features, [each.get("name") for each in given], "The feature set")
    return given


def _steps(exported: Exported, name: str) -> str:
    return f"{_upload_steps(name)}\n{_ranking_steps(exported.models[0].name)}"


def _upload_steps(name: str) -> str:
    return f"""\
```
python upload.py --url URL
```

uploads the feature set and every model. It changes nothing that is there: what is there already and the same is left,
and an upload that broke off goes on when it is run again. By hand, with the plugin's store made once per cluster:

```
curl -X PUT  "$URL/_ltr"
curl -X POST "$URL/_ltr/_featureset/{name}" -H 'Content-Type: application/json' -d @featureset.json
for model in models/*.json; do
  curl -X POST "$URL/_ltr/_featureset/{name}/_createmodel" -H 'Content-Type: application/json' -d @$model
done
```

A model keeps the feature set it was made with, and cannot be changed. To replace models, export under another name
(`--name {name}-2`), upload, and ask by the new names: by the router of the new folder. Until then, and to go back, ask
by the old. `python upload.py --url URL --remove` removes the feature set and the models of its folder.
"""


def _ranking_steps(model: str) -> str:
    return f"""\
The engine's best answers are ranked anew:

```
POST INDEX/_search
{{
 "query": {{"multi_match": {{"query": "jaguar", "fields": ["title", "body"]}}}},
 "rescore": {{
  "window_size": 100,
  "query": {{
   "query_weight": 0,
   "rescore_query_weight": 1,
   "rescore_query": {{"sltr": {{"model": "{model}", "params": {{"keywords": "jaguar"}}}}}}
  }}
 }}
}}
```

Ask for no more documents than `window_size`: scores may be negative, and a document beyond the window keeps its first
score, so that it could come before those ranked anew. Trees: newer plugins follow `missing`, which points to where 0
goes; plugins that take an absent feature for "not below" rank it otherwise, so let every feature match every document
(a `function_score` over `match_all`, a `constant_score` beside the match).
"""


_MODELS = StoredModels(Arithmetic(np.float32, floor32), write, _steps, "elasticsearch")
TARGET = Target("Elasticsearch", _MODELS, fields=field_queries.ELASTICSEARCH)
OPENSEARCH = Target("OpenSearch", _MODELS, fields=field_queries.OPENSEARCH)
