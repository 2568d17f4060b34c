"""Vespa: a rank profile that takes the weights with the request, or, for forests, a profile per model.

Weights of runs come with the request too: another profile normalizes, weights and sums their scores.

Vespa computes in 64 bits. LightGBM sends a value ≤ threshold left; Vespa, importing LightGBM's trees, sends a value
< threshold left. So thresholds are written as the next larger 64-bit number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from querywise.contracts.forms import Forest, Leaf, Linear, Runnable, Split
from querywise.errors import DataError
from querywise.exports import field_queries
from querywise.exports.arithmetic import Arithmetic
from querywise.exports.models import BM25_FIELD, Exported, Source, sources
from querywise.exports.target import (
    DEPTH,
    TEXT,
    UNFINISHED,
    VECTOR,
    Files,
    Request,
    StoredModels,
    Target,
    as_text,
    by_vectors,
    check_feature_names,
    identifier,
    weight_of,
)
from querywise.runtime.values import Json, JsonObject

_OF_VESPA = """
    features f in if true false switch
    abs acos asin atan atan2 bit ceil cos cosh cube elu erf exp fabs floor fmod hamming isNan ldexp log log10 max min
    mod pow relu round sigmoid sign sin sinh sqrt square tan tanh
    argmax argmin avg cell_cast concat cosine_similarity count diag euclidean_distance expand join l1_normalize
    l2_normalize map map_subspaces matmul median merge prod random range reduce rename softmax sum tensor unpack_bits
    xw_plus_b
    age attribute bm25 closeness constant distance distanceToPath dotProduct elementCompleteness elementSimilarity
    fieldLength fieldMatch fieldTermMatch file firstPhase firstPhaseRank foreach freshness globalPhase itemRawScore
    lightgbm matchCount match matches nativeAttributeMatch nativeFieldMatch nativeProximity nativeRank normalize_linear
    now onnx onnxModel query queryTermCount randomNormal rankingExpression rawScore reciprocal_rank
    reciprocal_rank_fusion secondPhase tensorFromLabels tensorFromWeightedSet term textSimilarity tokenInputIds value
    xgboost
"""  # keywords and functions of rank expressions and rank features, which a function of the same name would hide
_BOTH_KINDS = "Vespa takes either weights or forests, and this ranker has both kinds of models."
_RESERVED = frozenset(_OF_VESPA.split())


def write(exported: Exported, name: str, features: Json) -> Files:
    """Return the rank profile, the forests, and a small application to check them in."""
    labels = identifiers(exported.features)
    given = _template(exported, labels) if features is None else _checked(exported, features)
    computed = {label: given[feature] for feature, label in zip(exported.features, labels, strict=True)}
    sampled = {label: f"attribute(value{place})" for place, label in enumerate(labels)}
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    profile = profile_name(name)
    for folder, expressions, above in (("", computed, "schemas/SCHEMA/"), ("parity-app/", sampled, "schemas/parity/")):
        texts[f"{folder}{above}{profile}.profile"] = _profile(exported, profile, expressions)
        for model in () if exported.is_linear else exported.models:
            own = profile_name(model.name)
            places[model.name] = f"models/{own}.json"
            texts[f"{folder}models/{own}.json"] = as_text(_forest(model.form, labels))
            if own != profile:
                texts[f"{folder}{above}{own}.profile"] = _inheriting(own, profile)
    if exported.is_linear:
        for model in exported.models:
            places[model.name] = f"weights/{profile_name(model.name)}.txt"
            texts[places[model.name]] = literal(_weights(model.form, labels)) + "\n"
    texts["parity-app/schemas/parity.sd"] = _schema(len(labels))
    texts["parity-app/services.xml"] = _SERVICES
    return Files(texts, labels, places)


def _template(exported: Exported, labels: tuple[str, ...]) -> dict[str, str]:
    """Return how each feature is computed, with placeholders for the user; no model uses those Vespa cannot compute."""
    own = {Source.BM25: f"bm25({UNFINISHED}_{BM25_FIELD})", Source.NONE: "0"}
    pairs = zip(sources(exported), labels, strict=True)
    return {feature: own.get(source, f"attribute({UNFINISHED}_{label})") for (feature, source), label in pairs}


def identifiers(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names made valid for Vespa: letters, digits and underscores, unique, and not reserved.

    >>> identifiers(("bm25.title", "bm25 title", "7", "bm25"))
    ('bm25_title', 'bm25_title_2', 'f7', 'f_bm25')
    """
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        plain = plain if re.match(r"[A-Za-z_]", plain) else f"f{plain}"
        plain = f"f_{plain}" if plain in _RESERVED else plain
        tried, count = plain, 1
        while tried in found:
            count += 1
            tried = f"{plain}_{count}"
        found.append(tried)
    return tuple(found)


def profile_name(name: str) -> str:
    """Return the rank profile's name for a model's name."""
    return name.replace("-", "_")


def literal(weights: dict[str, float]) -> str:
    """Format weights as the literal of a Vespa tensor with one mapped dimension.

    >>> literal({"title": 0.5, "clicks": -2.0})
    '{title:0.5,clicks:-2.0}'
    """
    return "{" + ",".join(f"{label}:{value!r}" for label, value in weights.items()) + "}"


def decimal(value: float) -> str:
    """Format a number without an exponent, which schemas do not accept; requests accept both.

    >>> decimal(-7.5e-06), decimal(1e22)
    ('-0.0000075', '10000000000000000000000.0')
    """
    return np.format_float_positional(value, trim="0")


def _profile(exported: Exported, name: str, expressions: dict[str, str]) -> str:
    functions = "\n".join(
        f"    function {label}() {{\n        expression: {expression}\n    }}"
        for label, expression in expressions.items()
    )
    listed = "\n".join(f"        {label}" for label in expressions)
    inputs = tensor = ""
    first = f'lightgbm("{profile_name(exported.models[0].name)}.json")'
    if exported.is_linear:
        weights = _weights(exported.models[0].form, tuple(expressions)).items()
        everyone = ",".join(f"{label}:{decimal(value)}" for label, value in weights)
        inputs = f"    inputs {{\n        query(w) tensor<double>(feature{{}}):{{{everyone}}}\n    }}\n"
        cells = ",".join(f"{label}:{label}" for label in expressions)
        tensor = f"    function features() {{\n        expression: tensor<double>(feature{{}}):{{{cells}}}\n    }}\n"
        first = "sum(query(w) * features)"
    return f"""\
rank-profile {name} {{
{inputs}{functions}
{tensor}    first-phase {{
        expression: {first}
    }}
    match-features {{
{listed}
    }}
}}
"""


def _inheriting(own: str, profile: str) -> str:
    return f"""\
rank-profile {own} inherits {profile} {{
    first-phase {{
        expression: lightgbm("{own}.json")
    }}
}}
"""


def _weights(form: Runnable, labels: tuple[str, ...]) -> dict[str, float]:
    if not isinstance(form, Linear):
        raise DataError(_BOTH_KINDS)
    return dict(zip(labels, form.weights.tolist(), strict=True))


def _forest(form: Runnable, labels: tuple[str, ...]) -> JsonObject:
    if not isinstance(form, Forest):
        raise DataError(_BOTH_KINDS)
    return {
        "name": "tree",
        "version": "v4",
        "num_class": 1,
        "num_tree_per_iteration": 1,
        "label_index": 0,
        "max_feature_idx": len(labels) - 1,
        "objective": "regression",
        "average_output": False,
        "feature_names": labels,
        "monotone_constraints": [],
        "feature_infos": {},
        "tree_info": [
            {"tree_index": number, "num_cat": 0, "shrinkage": 1, "tree_structure": _node(tree)}
            for number, tree in enumerate(form.trees)
        ],
        "pandas_categorical": [],
    }


def _node(node: Split | Leaf) -> JsonObject:
    if isinstance(node, Leaf):
        return {"leaf_value": node.value}
    return {
        "split_feature": node.column,
        "threshold": float(np.nextafter(node.threshold, np.inf)),
        "decision_type": "<=",
        "default_left": node.threshold >= 0,  # an absent feature counts as 0
        "missing_type": "None",
        "left_child": _node(node.low),
        "right_child": _node(node.high),
    }


def _checked(exported: Exported, content: Json) -> dict[str, str]:
    given = {name: each for name, each in content.items() if isinstance(each, str)} if isinstance(content, dict) else {}
    if not isinstance(content, dict) or len(given) < len(content):
        raise DataError('The features must map names to rank expressions, as in {"title": "bm25(title)"}.')
    check_feature_names(exported.features, list(given), "The features")
    return given


def _schema(width: int) -> str:
    fields = "\n".join(
        f"        field value{place} type double {{\n            indexing: attribute | summary\n        }}"
        for place in range(width)
    )
    return f"schema parity {{\n    document parity {{\n{fields}\n    }}\n}}\n"


_SERVICES = """\
<?xml version="1.0" encoding="utf-8" ?>
<services version="1.0">
    <container id="default" version="1.0">
        <search />
        <document-api />
    </container>
    <content id="parity" version="1.0">
        <min-redundancy>1</min-redundancy>
        <documents>
            <document type="parity" mode="index" />
        </documents>
    </content>
</services>
"""


def _steps(exported: Exported, name: str) -> str:
    profile = profile_name(name)
    asked = f"""\
vespa query 'select * from SCHEMA where ({{grammar: "tokenize"}}userInput(@keywords))' 'keywords=jaguar' \\
  'ranking={profile}'"""
    if exported.is_linear:
        asked += f' "input.query(w)=$(cat weights/{profile_name(exported.models[0].name)}.txt)"'
        said = (
            "One profile serves every query: it takes the weights with the request, and without any those of the "
            "global model. The weights of every stored model are in `weights/`."
        )
    else:
        said = "Every model is a profile of its own, over its trees in `models/`."
    return f"""\
Put the profile{"" if exported.is_linear else "s"} of `schemas/SCHEMA/` into the folder of your schema
(`schemas/<schema>/` beside `<schema>.sd`){"" if exported.is_linear else ", the trees of `models/` into `models/`"} and
deploy:

```
vespa deploy --wait 300 APPLICATION
```

{said}

```
{asked}
```

The grammar `tokenize` has no syntax: in others, and in userQuery(), a user's words could leave documents out or search
another field.

The check has an application of its own, `parity-app`: deploy it to a Vespa that is free for it, then run the check.
"""


def _fusing(weights: Mapping[str, float], technique: str, name: str) -> dict[str, str]:
    """Return the request with the weights of runs as inputs, and the rank profile that takes them."""
    profile, by_vector = identifier(name), any(map(by_vectors, weights))
    found = [
        f"({{targetHits: {DEPTH}}}nearestNeighbor({UNFINISHED}_vector_field, q))"
        if by_vectors(run)
        else f'({{targetHits: {DEPTH}, grammar: "tokenize", allowEmpty: true}}userInput(@text))'
        for run in weights
    ]
    request: JsonObject = {
        "yql": f"select * from sources * where {' or '.join(found)}",
        "text": TEXT,
        "ranking": profile,
        "hits": 10,
        **({"input.query(q)": VECTOR} if by_vector else {}),
        **{f"input.query(w_{identifier(run)})": weight_of(run) for run in weights},
    }
    inputs = [f"        query(w_{identifier(run)}): {decimal(weight)}" for run, weight in weights.items()]
    if by_vector:
        inputs.append(f"        query(q) tensor<float>(x[{UNFINISHED}_dimension])")
    functions = [
        f"    function run_{identifier(run)}() {{\n        expression: "
        + (f"closeness(field, {UNFINISHED}_vector_field)" if by_vectors(run) else f"bm25({UNFINISHED}_text_field)")
        + "\n    }"
        for run in weights
    ]
    total = " + ".join(f"query(w_{each}) * {technique.format(f'run_{each}')}" for each in map(identifier, weights))
    first = " + ".join(f"run_{identifier(run)}" for run in weights)
    lines = [
        f"rank-profile {profile} {{",
        "    inputs {",
        *inputs,
        "    }",
        *functions,
        f"    first-phase {{\n        expression: {first}\n    }}",
        f"    global-phase {{\n        rerank-count: {2 * DEPTH}\n        expression: {total}\n    }}",
        "}",
    ]
    return {"request.json": as_text(request), f"{profile}.profile": "\n".join(lines) + "\n"}


TARGET = Target(
    "Vespa",
    StoredModels(Arithmetic(np.float64, float), write, _steps, "vespa", takes_weights=True),
    Request(
        "query inputs",
        {"opensearch-min-max": "normalize_linear({})", "rank": "reciprocal_rank({}, 60)"},
        _fusing,
        "Vespa normalises over all documents that reach the global phase, and computes every run's score for each of "
        "them. The model was trained on each run's own list, with 0 for what it did not find: scores differ, most for "
        "documents that one run alone found.",
    ),
    field_queries.VESPA,
)
