"""The manifest of an export, export.json, and its README. Format 1 had two manifests, and is read too."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from querywise.data.rows import MEAN
from querywise.errors import DataError
from querywise.exports.arithmetic import Exactness
from querywise.exports.models import Exported
from querywise.exports.target import UNFINISHED, StoredModels, Written
from querywise.runtime.files import parse_json, read_stored_text, recover_folder
from querywise.runtime.values import Json, JsonObject, has_type

MANIFEST = "export.json"
FORMAT_VERSION = 2


class ModelEntry(TypedDict):
    """A model in the manifest: its number among the ranker's models, −1 for the global one, and its file."""

    name: str
    number: int
    what: str
    file: str


class FeatureEntry(TypedDict):
    """The features in the manifest: their names in training and in the engine, and others that the engine computes."""

    names: list[str]
    in_engine: list[str]
    others: list[str]
    unfinished: bool


class RoutingEntry(TypedDict):
    """Routing in the manifest: what it depends on, and how many requests it takes."""

    by: list[str]
    requests: int


class RequestEntry(TypedDict):
    """The request in the manifest: its file, the normalization of scores, and the weights of runs for all queries."""

    file: str
    normalise: str
    weights: dict[str, float]


class AdapterEntry(TypedDict):
    """The adapter of query vectors in the manifest: its tables, and the script that applies them."""

    tables: str
    script: str


class ExportManifest(TypedDict):
    """The content of export.json: features and models, the global one first, or a request with weights of runs.

    `adapter` adapts a query's vector before it is put into the request, if the model has one.
    """

    engine: str
    name: str
    features: FeatureEntry | None
    models: list[ModelEntry]
    routing: RoutingEntry | None
    request: RequestEntry | None
    adapter: AdapterEntry | None


def read_raw_manifest(folder: Path) -> JsonObject:
    """Read the unchanged manifest of an export, in any supported format."""
    recover_folder(folder)
    path = folder / MANIFEST
    found = parse_json(read_stored_text(path), path)
    if not isinstance(found, dict) or found.get("format") != "querywise export":
        raise DataError(f"{path}: not the manifest of a querywise export.")
    if found.get("format_version") not in range(1, FORMAT_VERSION + 1):
        raise DataError(
            f"{path}: format version {found.get('format_version')!r:.80}; this querywise reads versions up to "
            f"{FORMAT_VERSION}. Update querywise, or export the model again."
        )
    return found


def read_manifest(folder: Path) -> ExportManifest:
    """Read the manifest of an export in the current format; raise DataError if an entry is missing or invalid."""
    found = {**dict.fromkeys(ExportManifest.__annotations__), **read_raw_manifest(folder)}
    if found["format_version"] == 1:
        found = _from_format_1(found)
    request = found.get("request")
    outside = isinstance(request, dict) and Path(str(request.get("file"))).name != request.get("file")
    empty = request is None and not (found.get("models") and found.get("features"))
    if outside or empty or not has_type(found, ExportManifest):
        raise DataError(f"{folder / MANIFEST}: damaged. Export the model again.")
    manifest: ExportManifest = found  # type: ignore[assignment]  # as it was checked
    return manifest


def _from_format_1(found: JsonObject) -> JsonObject:
    """Convert a manifest of format 1, of models or of weights of runs, to the current format."""
    features = found.get("features")
    if isinstance(features, dict):
        return {**found, "features": {"others": [], **features}, "request": None}
    by, request = found.get("by"), {name: found.get(name) for name in ("normalise", "weights")}
    routing: Json = {"by": by, "requests": 1} if by else None
    return {**found, "models": [], "routing": routing, "request": {"file": found.get("request"), **request}}


def models_readme(
    title: str, kind: StoredModels, done: Written, found: Exported, name: str, policy: str, scripts: Collection[str]
) -> str:
    """Return the README of an export of models; `policy` is that for missing values, `scripts` are file names."""
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
        said = f"It routes on the query's {by}: one request to the engine answers a query."
        asked = 'python router.py "jaguar"'
    else:
        also = ", as does a query that comes with its class (`--class`)" if "class" in done.routing.by else ""
        said = f"""It routes on the query's {by}: a first request fetches the engine's best documents with their
features, a second ranks them. A model routed by text (`--view text`) needs one{also}."""
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
    """Describe in a sentence how the engine's arithmetic ranks the data."""
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


_ADAPTED = """
## The query's vector

The model learned by vectors that its judged queries had moved, while documents keep theirs. `router.py` and `Router`
take the query's own vector and put the moved one into the request. Without querywise, `transform.py` moves vectors by
`adapter.npz`, with numpy alone: `python transform.py queries.npy moved.npy`. Moved vectors have length 1, and documents
are compared with them by cosine: the field needs that (in OpenSearch `cosinesimil`, in Elasticsearch `cosine`, in Vespa
`angular`), or documents' vectors of length 1.
"""


def weights_readme(title: str, done: Written, request: str, about: str, *, adapted: bool = False) -> str:
    """Return the README of an export of run weights.

    `request` is the request's file, `about` explains its weights, and `adapted` says whether query vectors are adapted.
    """
    rows = "\n".join(f"| {run} | {weight!r} |" for run, weight in done.weights.items())
    depends = (
        f"Weights are of each query its own, by its {' and '.join(done.by)}"
        if done.by
        else "All queries have the same weights"
    )
    return f"""\
# Weights of runs for {title}

`{request}` is the request, with `$text`, `$vector` and `$weight:RUN` (in SQL: parameters) for what a query brings. Fill
in what is marked EDIT_ME: the fields, or tables, that each run searches. The runs are in the order of training.

| run | weight for all queries |
|---|---|
{rows}

{depends}. `python router.py 'the words of a query' vector.json` prints the request with them in it; from Python:

```python
from querywise import Router

router = Router(".")
router.weights("the words of a query")
router.request("the words of a query", vector=[0.1, 0.2])
```

{about}
{_ADAPTED if adapted else ""}"""
