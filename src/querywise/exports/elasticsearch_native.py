"""Elasticsearch's own `learning_to_rank` rescorer: an ensemble of trees per model, with a query for every feature.

A model is a trained machine-learning model, in the form that Elastic's Python client uploads. A feature is the score of
a query, a 32-bit number that is never negative. A split `lte` sends a value up to the threshold left, and a feature
whose query does not match to the side of `default_left`. Thresholds, leaves and sums have 64 bits; the score has 32.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from hashlib import sha256

import numpy as np

from querywise.contracts.forms import Forest, Leaf, Linear, Split
from querywise.errors import DataError
from querywise.exports import field_queries
from querywise.exports.arithmetic import Arithmetic, floor32
from querywise.exports.elasticsearch import computed
from querywise.exports.models import Exported, NamedModel, sources
from querywise.exports.target import Files, StoredModels, Target, as_text, check_feature_names, defined
from querywise.runtime.values import Json, JsonObject

_TITLE = "Elasticsearch's own learning_to_rank"
_LONGEST = 50  # of an export's name: model ids have up to 64 letters, and numbers and "-parity" are added
_INSIDE = ("learning_to_rank", "feature_extractors")
_EXPECTED = (
    'The features must be a list of {"query_extractor": {"feature_name": …, "query": {…}}}, in {"learning_to_rank": '
    '{"feature_extractors": […]}} or alone.'
)
_NO_SUMS = (
    "Elasticsearch's own learning_to_rank runs trees alone. For its Learning to Rank plugin export to elasticsearch; "
    "without the plugin, let Elasticsearch find the candidates and querywise order them (docs/engines/gateway.md), or "
    "fit trees (lambdamart)."
)


def write(exported: Exported, name: str, features: Json) -> Files:
    """Return the feature extractors and a file per model."""
    if len(name) > _LONGEST or not name[-1].isalnum():
        raise DataError(
            f"{name!r}: Elasticsearch's ids of models end in a letter or digit, and are short: give a name of at most "
            f"{_LONGEST} letters."
        )
    extractors = _template(exported) if features is None else _checked(exported.features, features)
    config: JsonObject = {"learning_to_rank": {"feature_extractors": [*extractors]}}
    texts = {"feature_extractors.json": as_text(config)}
    places = {model.name: f"models/{model.name}.json" for model in exported.models}
    for model in exported.models:
        texts[places[model.name]] = as_text(model_content(model, exported.features, config))
    return Files(texts, exported.features, places)


def model_content(model: NamedModel, features: tuple[str, ...], config: JsonObject) -> JsonObject:
    """Return the JSON to put to `_ml/trained_models`; the checksum tells whether a model in the engine is this one."""
    assert not isinstance(model.form, Linear)  # linear models were refused before
    definition = json.dumps(_definition(model.form, features), ensure_ascii=False, separators=(",", ":"))
    whole = definition + json.dumps(config, ensure_ascii=False, sort_keys=True)
    return {
        "description": f"querywise: {model.what}",
        "metadata": {"querywise": {"sha256": sha256(whole.encode()).hexdigest()}},
        "model_type": "tree_ensemble",
        "inference_config": config,
        "compressed_definition": b64encode(gzip.compress(definition.encode(), mtime=0)).decode(),
    }


def _definition(form: Forest, features: tuple[str, ...]) -> JsonObject:
    trees = form.trees or (Leaf(0.0),)  # an ensemble must not be empty
    shared: JsonObject = {"feature_names": features, "target_type": "regression"}
    ensemble: JsonObject = {
        **shared,
        "trained_models": [{"tree": {**shared, "tree_structure": [*_nodes(tree)]}} for tree in trees],
        "aggregate_output": {"weighted_sum": {}},
    }
    return {"trained_model": {"ensemble": ensemble}}


def _nodes(tree: Split | Leaf) -> list[JsonObject]:
    """Return the nodes of a tree in depth-first order from the root; a node's index in the list is its number."""
    made: list[JsonObject] = []

    def add(node: Split | Leaf) -> int:
        number = len(made)
        made.append({"node_index": number})
        if isinstance(node, Leaf):
            made[number]["leaf_value"] = node.value
            return number
        left, right = add(node.low), add(node.high)
        made[number] |= {
            "decision_type": "lte",
            "split_feature": node.column,
            "threshold": node.threshold + 0.0,  # never -0.0, which Java orders below 0.0
            "left_child": left,
            "right_child": right,
            "default_left": node.threshold >= 0,  # an absent feature counts as 0
        }
        return number

    add(tree)
    return made


def _template(exported: Exported) -> list[JsonObject]:
    return [
        {"query_extractor": {"feature_name": name, "query": computed(name, source)}}
        for name, source in sources(exported)
    ]


def _checked(wanted: tuple[str, ...], content: Json) -> list[JsonObject]:
    """Return the user's extractors of the model's features, in the model's order, without unused ones."""
    given = [each.get("query_extractor") for each in defined(content, _EXPECTED, _INSIDE)]
    own = [each for each in given if isinstance(each, dict) and isinstance(each.get("query"), dict)]
    if len(own) < len(given):
        raise DataError(_EXPECTED)
    names = [each.get("feature_name") for each in own]
    check_feature_names(wanted, names, "The feature extractors")
    return [{"query_extractor": own[names.index(feature)]} for feature in wanted]


def _steps(exported: Exported, name: str) -> str:
    model = exported.models[0].name
    return f"""\
Elasticsearch 8.15 or later, with a licence for learning to rank (Enterprise, or a trial). It needs no plugin.

```
python upload.py --url URL
```

uploads every model, with the queries of its features. It changes nothing that is there: what is there already and the
same is left, and an upload that broke off goes on when it is run again. By hand:

```
for model in {" ".join(each.name for each in exported.models[:3])}{" …" if len(exported.models) > 3 else ""}; do
  curl -X PUT "$URL/_ml/trained_models/$model" -H 'Content-Type: application/json' -d @models/$model.json
done
```

A model cannot be changed. To replace models, export under another name (`--name {name}-2`), upload, and ask by the new
names: by the router of the new folder. Until then, and to go back, ask by the old. `python upload.py --url URL
--remove` removes the models of its folder.

The engine's best answers are ranked anew:

```
POST INDEX/_search
{{
 "query": {{"multi_match": {{"query": "jaguar", "fields": ["title", "body"]}}}},
 "rescore": {{
  "window_size": 100,
  "learning_to_rank": {{"model_id": "{model}", "params": {{"keywords": "jaguar"}}}}
 }}
}}
```

Ask for no more documents than `window_size`: only these are ranked by the model, on every shard. Where queries are
routed by their documents, the first of the two requests goes to
`INDEX/_search/template?include_named_queries_score=true`.
"""


TARGET = Target(
    _TITLE,
    StoredModels(
        Arithmetic(np.float32, floor32, np.float64), write, _steps, "elasticsearch_native", no_sums=_NO_SUMS, least=0.0
    ),
    fields=field_queries.ELASTICSEARCH_NATIVE,
)
