"""Solr with its LTR module: a feature store, and a LinearModel or MultipleAdditiveTreesModel per model.

The module stores features, weights, thresholds and sums in 32 bits. A split sends a value up to the threshold left, but
Solr adds 1e-6 to every threshold it reads. Thresholds are written so that the sum is right.
"""

from __future__ import annotations

import re

import numpy as np

from querywise.contracts.forms import Leaf, Linear, Split
from querywise.errors import DataError
from querywise.exports import field_queries
from querywise.exports.arithmetic import Arithmetic, floor32
from querywise.exports.models import BM25_FACTOR, BM25_FIELD, Exported, NamedModel, Source, sources
from querywise.exports.target import UNFINISHED, Files, StoredModels, Target, as_text, check_feature_names, defined
from querywise.runtime.values import Json, JsonObject

_CLASSES = "org.apache.solr.ltr"
_EXPECTED = 'The features must be a list like [{"name": …, "class": …, "params": …}], as Solr takes it.'
_SLACK = np.float32(1e-6)


def write(exported: Exported, name: str, features: Json) -> Files:
    """Return the feature store and a file per model."""
    comma = next((feature for feature in exported.features if "," in feature), None)
    if comma is not None:
        raise DataError(
            f"The feature {comma!r} has a comma in its name, and Solr lists a document's features with commas between "
            "them, so that it could not be read back. Rename it in features.txt and fit again."
        )
    given = _template(exported) if features is None else _checked(exported, features)
    stored = [{"store": name, **{key: value for key, value in each.items() if key != "store"}} for each in given]
    texts = {"features.json": as_text(stored)}
    places = {model.name: f"models/{model.name}.json" for model in exported.models}
    for model in exported.models:
        texts[places[model.name]] = as_text(model_content(model, exported.features, name))
    return Files(texts, exported.features, places, tuple(str(each["name"]) for each in given))


def model_content(model: NamedModel, features: tuple[str, ...], store: str) -> JsonObject:
    """Return the JSON to upload to the model store."""
    if isinstance(model.form, Linear):
        kind: str = "LinearModel"
        params: JsonObject = {"weights": dict(zip(features, model.form.weights.tolist(), strict=True))}
    else:
        kind = "MultipleAdditiveTreesModel"
        params = {"trees": [{"weight": "1", "root": _node(tree, features)} for tree in model.form.trees]}
    return {
        "store": store,
        "name": model.name,
        "class": f"{_CLASSES}.model.{kind}",
        "features": [{"name": feature} for feature in features],
        "params": params,
    }


def _node(node: Split | Leaf, features: tuple[str, ...]) -> JsonObject:
    if isinstance(node, Leaf):
        return {"value": repr(node.value)}
    return {
        "feature": features[node.column],
        "threshold": repr(written_threshold(node.threshold)),
        "left": _node(node.low, features),
        "right": _node(node.high, features),
    }


def written_threshold(threshold: float) -> float:
    """Return the 32-bit number that becomes the largest 32-bit number up to the threshold once Solr adds 1e-6.

    For small thresholds no number has exactly that sum; then the sum is the nearest one below.
    """
    wanted = np.float32(floor32(threshold))
    near = np.float32(wanted - _SLACK)
    steps = np.arange(-2, 3, dtype=np.float32)
    tried = np.concatenate([near + steps * np.spacing(np.abs(each)) for each in (near, wanted)])
    good = tried[tried + _SLACK <= wanted]
    return float(good[np.argmax(good + _SLACK)])


def _highest_low(threshold: float) -> float:
    return float(np.float32(written_threshold(threshold)) + _SLACK)


def _template(exported: Exported) -> list[JsonObject]:
    return [_computed(name, source) for name, source in sources(exported)]


def _computed(feature: str, source: Source) -> JsonObject:
    """Return how a feature is computed, with placeholders for the user.

    The parser `simple` without operators takes any words, one by one; `field` would look for them as a phrase.
    """
    field, kind = f"{UNFINISHED}_{_as_field(feature)}", "SolrFeature"
    params: JsonObject = {"q": f"{{!simple q.operators='' qf={field}}}${{keywords}}"}
    if source is Source.BM25:
        field = f"{UNFINISHED}_{BM25_FIELD}^{BM25_FACTOR}"
        params = {"q": f"{{!simple q.operators='' qf={field}}}${{keywords}}"}
    elif source is Source.NUMBER:
        kind, params = "FieldValueFeature", {"field": field}
    elif source is Source.NONE:  # no model uses it
        kind, params = "ValueFeature", {"value": 0}
    return {"name": feature, "class": f"{_CLASSES}.feature.{kind}", "params": params}


def _as_field(feature: str) -> str:
    """Return a feature's name without the characters that end Solr's local parameters: spaces, quotes, braces."""
    return re.sub(r"[^\w.-]", "_", feature)


def _checked(exported: Exported, content: Json) -> list[JsonObject]:
    given = defined(content, _EXPECTED)
    check_feature_names(exported.features, [each.get("name") for each in given], "The features")
    return given


def _steps(exported: Exported, name: str) -> str:
    model = exported.models[0].name
    return f"""\
The collection's configuration must have the LTR module's query parser, cache and transformer. Then

```
python upload.py --url $URL --collection $COLLECTION
```

(`URL` as in http://localhost:8983/solr) brings the features and every model, reloads the collection, without which Solr
does not go by them, and changes nothing that is there. The same by hand, where `cores?action=RELOAD&core=` is for a
Solr that is no cloud:

```
curl -X PUT "$URL/$COLLECTION/schema/feature-store" -H 'Content-Type: application/json' -d @features.json
for model in models/*.json; do
  curl -X PUT "$URL/$COLLECTION/schema/model-store" -H 'Content-Type: application/json' -d @$model
done
curl "$URL/admin/collections?action=RELOAD&name=$COLLECTION"
```

A model of the same name is not replaced: export newer ones under another `--name`, upload them beside these, and take
their router into service; `python upload.py … --remove` takes away what no request names any more. On SolrCloud a
forest may be larger than ZooKeeper takes; Solr's `DefaultWrapperModel` reads it from a file.

The engine's best answers are ranked anew:

```
curl "$URL/$COLLECTION/query" --data-urlencode 'keywords=jaguar' \\
  --data-urlencode 'defType=lucene' --data-urlencode 'q={{!simple q.operators="" v=$keywords}}' \\
  --data-urlencode 'rq={{!ltr model={model} reRankDocs=100 efi.keywords=$keywords}}' --data-urlencode 'fl=id,score'
```

`q` and `rq` refer to the words as `$keywords`, and the parser `simple` without operators has no syntax: pasted into
`q`, a user's words could be a syntax error or search another field. A handler without `qf` or `df` needs `qf` here.
"""


TARGET = Target(
    "Solr",
    StoredModels(Arithmetic(np.float32, _highest_low), write, _steps, "solr", "--url URL --collection SCRATCH"),
    fields=field_queries.SOLR,
)
