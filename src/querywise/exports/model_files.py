"""The export of models: the engine's files, sample documents with scores, a check, an upload, a router and a README."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from importlib.metadata import version

import numpy as np

from querywise.contracts.answers import Answer
from querywise.contracts.forms import Linear
from querywise.contracts.missing import missing_for, policy_of
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates
from querywise.data.missing import MEAN
from querywise.errors import DataError
from querywise.exports.arithmetic import Exactness, exactness
from querywise.exports.joining import scripts_of
from querywise.exports.models import Exported, exported, exported_names, largest_number
from querywise.exports.parity import Scaled, generated, parity_lines, sampled, scaled_within_queries
from querywise.exports.routing import routing_of
from querywise.exports.target import UNFINISHED, Content, StoredModels, Written
from querywise.exports.targets import TARGETS
from querywise.exports.text_features import check_text_features, numbers_in
from querywise.runtime.values import Json


def model_content(
    ranker: Ranker,
    answer: Answer,
    engine: str,
    name: str,
    *,
    candidates: Candidates | None,
    features: Json,
    rows: int,
    as_is: bool,
) -> Content:
    """What is written for the models of a ranker; answer: the ranker's to no queries."""
    title, kind = TARGETS[engine].title, TARGETS[engine].models
    assert kind is not None, "other targets take weights of runs"
    found = exported(ranker, name)
    _check_models(found, ranker, engine, kind)
    if candidates is not None:
        _check_data(candidates, ranker, as_is)
        _refuse_low(candidates, title, kind.least, found.features)
        found = replace(found, numbers=numbers_in(candidates, found.features))
    _refuse_large(found, candidates, title, kind)
    routing = routing_of(answer)
    if features is None:
        check_text_features(found, title, by_documents=routing is not None and "documents" in routing.by)
    sample = generated(found, rows, kind.arithmetic, kind.least) if candidates is None else sampled(candidates, rows)
    files = kind.write(found, name, features)
    exact = None if candidates is None else exactness(found, candidates, kind.arithmetic)
    done = Written(engine, tuple(model.name for model in found.models), routing, features is None, exact)
    scripts = scripts_of(kind.scripts, routed=routing is not None)
    texts = {
        **files.texts,
        "parity.jsonl": parity_lines(found, sample, kind.arithmetic, files.in_engine),
        **scripts,
        "README.md": _readme(title, kind, done, found, name, policy_of(ranker), scripts),
    }
    return Content(
        done,
        texts,
        {
            "names": found.features,
            "in_engine": files.in_engine,
            "others": [feature for feature in files.computed if feature not in found.features],
            "unfinished": done.unfinished,
        },
        tuple(
            {"name": model.name, "number": model.number, "what": model.what, "file": files.places.get(model.name)}
            for model in found.models
        ),
    )


def _check_models(found: Exported, ranker: Ranker, engine: str, kind: StoredModels) -> None:
    """Refuse a ranker that stores no models, unless the engine takes weights with a request and it has weights."""
    if found.trained_on_arrival and not kind.takes_weights:
        raise DataError(
            f"A {type(ranker).__name__} trains a model for every query as it arrives and stores none, and {engine} "
            "runs stored models. Fit knn-offline-2, with models=20 to keep them few; vespa takes weights with "
            "every request."
        )
    if found.trained_on_arrival and not found.is_linear:
        raise DataError("Only weighted sums can be sent with a request, and these local models are forests.")
    summing = next((model for model in found.models if isinstance(model.form, Linear)), None)
    if summing is not None and kind.no_sums is not None:
        raise DataError(f"The model {summing.name} is a weighted sum of features: {kind.no_sums}")


def _check_data(candidates: Candidates, ranker: Ranker, as_is: bool) -> None:
    """Refuse data without documents, with other features, or, unless as_is, normalised within queries."""
    if missing_for(ranker) == "allowed" and np.isnan(candidates.features).any():
        raise DataError(
            "This data has missing values. An engine gets 0 for a feature that a document does not have, so its scores "
            "are compared on documents that have all features: leave the others out."
        )
    candidates.require_features(ranker.feature_count_, ranker.feature_names_)
    if not len(candidates.features):
        raise DataError("There is no document in this data to check the engine with.")
    scaled = scaled_within_queries(candidates)
    if not as_is and scaled.is_normalised:
        raise DataError(
            f"{_scaled_sentence(scaled, exported_names(ranker))} So it looks normalised query by query, as "
            "LETOR's files are. A model trained on it sees the scale of the whole list, which an engine's model does "
            "not know, so it would rank otherwise there. Train on features as the engine logs them; or, where the "
            "engine does bring them to that scale, say so: as_is=True.",
            arguments=("as_is",),
        )


def _scaled_sentence(scaled: Scaled, names: tuple[str, ...]) -> str:
    listed = ", ".join(names[column] for column in scaled.columns[:8])
    more = f" and {len(scaled.columns) - 8} more" if len(scaled.columns) > 8 else ""
    return (
        f"In this data {scaled.share:.0%} of the features' ranges within queries ({scaled.from_0_to_1} of "
        f"{scaled.pairs}) go exactly from 0 to 1, most often those of {listed}{more}."
    )


def _refuse_large(found: Exported, candidates: Candidates | None, title: str, kind: StoredModels) -> None:
    """Refuse features, weights and thresholds beyond the range of the engine's numbers."""
    limit = float(np.finfo(kind.arithmetic.real).max)
    largest = 0.0 if candidates is None else float(np.abs(candidates.features).max())
    for model in found.models:
        largest = max(largest, largest_number(model.form))
    if largest >= limit:
        raise DataError(
            f"A feature, weight or threshold is as large as {largest:.3g}; {title} computes with numbers up to "
            f"{limit:.3g}. Bring the features to a smaller scale and fit again."
        )


def _refuse_low(candidates: Candidates, title: str, least: float, names: tuple[str, ...]) -> None:
    """Refuse features below what the engine can compute."""
    low = candidates.features.min(axis=0)
    column = int(np.argmin(low))
    if low[column] < least:
        raise DataError(
            f"In this data {int(np.sum(low < least))} of {len(names)} features have values below {least:g}; "
            f"{names[column]} is as low as {low[column]:.4g}. {title} takes a feature from the score of a query, "
            "which is never below it. Train on features as the engine logs them, with a constant added where they are "
            "lower."
        )


def _readme(
    title: str, kind: StoredModels, done: Written, found: Exported, name: str, policy: str, scripts: Collection[str]
) -> str:
    differs = " In querywise it is the mean of training, so such a document is scored otherwise there."
    parts = [
        f"# {name} for {title}\n",
        f"{len(done.models)} model{'s' if len(done.models) > 1 else ''} over {len(found.features)} features, exported "
        f"by querywise {version('querywise')}. A feature that a document does not have counts as 0."
        f"{differs if policy == MEAN else ''}\n",
        _about_features(done),
        "## Bring it to the engine\n",
        kind.steps(found, name),
        _about_routing(done) if "router.py" in scripts else "",
        _about_check(done, kind.check) if "check_parity.py" in scripts else "",
    ]
    return "\n".join(part for part in parts if part)


def _about_features(done: Written) -> str:
    if not done.unfinished:
        return ""
    return f"""## First: say how the engine computes the features

querywise knows the features by name only. Every place marked `{UNFINISHED}` is to be filled in with the query or
expression whose values the model was trained on; export again with `--feature-set FILE` to have yours written here.
"""


def _about_routing(done: Written) -> str:
    if done.routing is None:
        return ""
    by = " and ".join(done.routing.by)
    if done.routing.requests == 1:
        said = f"It goes by the query's {by}: one request to the engine answers a query."
        asked = 'python router.py "jaguar"'
    else:
        also = ", as does a query that comes with its class (`--class`)" if "class" in done.routing.by else ""
        said = f"""It goes by the query's {by}: a first request fetches the engine's best documents with their features,
a second ranks them. A model routed by text (`--view text`) needs one{also}."""
        asked = """python router.py "jaguar" --first                 # the first request
python router.py "jaguar" --answer answer.json    # the second, given the engine's answer"""
    return f"""## Route queries

`router.py` says which model answers a query, and writes the request.
{said}

```
{asked}
```
"""


def _about_check(done: Written, options: str) -> str:
    return f"""## Check it

`parity.jsonl` holds sample documents, their features and our scores by every model.

```
python check_parity.py {options}
```

puts them into the engine for a moment, asks it for its scores, and compares; `--log NAME` also compares the features
that the engine computes with those of training (`--help` says what it touches).

{exactness_sentence(done.exactness)}
"""


def exactness_sentence(found: Exactness | None) -> str:
    """How the engine's arithmetic ranks the data, as a sentence for users."""
    if found is None:
        return "No data was given with the export, so its documents are made up."
    where = f"On {found.documents} scores of the data given, under {found.models} of the models"
    if found.is_exact:
        return f"{where}, the engine's arithmetic ranks every query as we do."
    return (
        f"{where}, the engine's arithmetic takes {found.astray} another way through a tree and makes "
        f"{found.swapped} of {found.pairs} neighbours in our order change places: its numbers are coarser than "
        "the data's."
    )
