"""An export as a folder: the engine's files, sample documents with scores, a check, a router and a README."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import numpy as np

from querywise.contracts.forms import Linear
from querywise.contracts.missing import missing_for, policy_of
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.letor import PathLike
from querywise.data.missing import MEAN
from querywise.errors import DataError
from querywise.exports.arithmetic import Exactness, exactness
from querywise.exports.engine import UNFINISHED, Engine, Files, as_text
from querywise.exports.engines import find_engine
from querywise.exports.joining import check_script, router_script, upload_script
from querywise.exports.models import Exported, answer_to_nobody, exported, exported_names, largest_number
from querywise.exports.parity import Scaled, generated, parity_lines, sampled, scaled_within_queries
from querywise.exports.routing import MANIFEST, Routing, read_manifest, routing_of
from querywise.exports.text_features import check_text_features, numbers_in
from querywise.runtime.files import OutputFolder, atomic_folder, read_bytes, read_text
from querywise.runtime.values import Json, JsonObject
from querywise.storage import save

_MODEL = "model"  # the folder of the stored ranker in the export
_FOLDER = OutputFolder(
    other="the folder holds something that is not an export. Name an empty or new one.", manifest=MANIFEST
)


@dataclass(frozen=True)
class Written:
    """What an export holds.

    models: their names. routing: what decides which model answers a query; None where there is one model. unfinished:
    whether the features are a template to fill in. exactness: how the engine's arithmetic ranks the data; None where
    none was given.
    """

    engine: str
    models: tuple[str, ...]
    routing: Routing | None
    unfinished: bool
    exactness: Exactness | None


def export_model(
    ranker: Ranker,
    engine: str,
    folder: PathLike,
    *,
    name: str = "querywise",
    data: Candidates | Judged | None = None,
    features: Json = None,
    rows: int = 100,
    as_is: bool = False,
    force: bool = False,
) -> Written:
    """Write a fitted ranker to a folder as an engine reads it.

    ranker: a fitted ranker whose models are weighted sums or trees: one for all queries, or picked by query.
    engine: opensearch or elasticsearch, for their Learning to Rank plugins; elasticsearch-native, for Elasticsearch's
    own learning_to_rank; solr or vespa.
    folder: where to; new, empty, or an earlier export for the same engine.
    name: what the feature set and the models are called.
    data: documents to check the engine's scores with; None generates some.
    features: how the engine computes each feature, in the engine's own format; None writes a template to fill in.
    rows: the number of documents in the check, from 1 up.
    as_is: export even where the data looks as if its features were normalised within queries, which engines do not do.
    force: write over an earlier export even where files in it were changed or added since.

    Returns: Written: the names of the models, what decides between them, and whether features are left to fill in.

    Refused: with DataError, an unknown engine, a ranker or a size that the engine does not run, and a folder of other
    files.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import RankSVM, export_model, make_judged
    >>> data = make_judged(20, 10, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = export_model(RankSVM().fit(data), "opensearch", Path(folder) / "export", data=data)
    >>> written.engine, written.models, written.unfinished
    ('opensearch', ('querywise',), True)
    """
    kind = find_engine(engine)
    if rows < 1:
        raise DataError(f"rows={rows}: the check needs at least one document.")
    path = Path(folder)
    check_export_folder(path, engine, force=force)
    found = exported(ranker, name)
    _check_models(found, ranker, engine)
    candidates = data.candidates if isinstance(data, Judged) else data
    if candidates is not None:
        _check_data(candidates, ranker, as_is)
        _refuse_low(candidates, kind, found.features)
        found = replace(found, numbers=numbers_in(candidates, found.features))
    _refuse_large(found, candidates, kind)
    routing = routing_of(answer_to_nobody(ranker))
    if features is None:
        check_text_features(found, kind.title, by_documents=routing is not None and "documents" in routing.by)
    sample = generated(found, rows, kind.arithmetic, kind.least) if candidates is None else sampled(candidates, rows)
    files = kind.write(found, name, features)
    done = Written(
        engine,
        tuple(model.name for model in found.models),
        routing,
        features is None,
        None if candidates is None else exactness(found, candidates, kind.arithmetic),
    )
    with atomic_folder(path) as made:
        _put(made, files.texts)
        _put(made, {"parity.jsonl": parity_lines(found, sample, kind.arithmetic, files.in_engine)})
        _put(made, {"check_parity.py": check_script(kind.scripts)})
        upload = upload_script(kind.scripts)
        _put(made, {} if upload is None else {"upload.py": upload})
        if done.routing is not None:
            _put(made, {"router.py": router_script(kind.scripts)})
            save(ranker, made / _MODEL)
        _put(made, {"README.md": _readme(kind, done, found, name, policy_of(ranker))})
        _put(made, {MANIFEST: as_text({**_manifest(done, found, files, name, ranker), "checksums": _checksums(made)})})
    return done


def check_export_folder(path: Path, engine: str, *, force: bool = False) -> None:
    """Refuse a folder that holds anything but an unchanged earlier export for the same engine."""
    _FOLDER.check(path)
    if not path.is_dir() or not any(path.iterdir()):
        return
    earlier = read_manifest(path)
    if earlier.get("engine") != engine:
        raise DataError(
            f"{path}: the folder holds an export for {earlier.get('engine')}, and this one is for {engine}. Name an "
            "empty or new one."
        )
    changed = [] if force else _changed(path, earlier.get("checksums"))
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise DataError(
            f"{path}: {changed[0]}{more} changed or came here since the export was written, and would be lost. Name "
            "another folder, or write over it: force=True.",
            arguments=("force",),
        )


def _checksums(folder: Path) -> dict[str, str]:
    """A checksum of every file that a user may change: all but the manifest and the model folder."""
    own = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    places = {path.relative_to(folder).as_posix(): path for path in own}
    return {
        place: sha256(read_bytes(path)).hexdigest()
        for place, path in places.items()
        if place != MANIFEST and not place.startswith(f"{_MODEL}/")
    }


def _changed(path: Path, written: Json) -> list[str]:
    """The files that were changed or added since the export was written."""
    kept = written if isinstance(written, dict) else {}
    return [place for place, checksum in _checksums(path).items() if kept.get(place) != checksum]


def read_features(path: Path) -> Json:
    """How the engine computes the features, from a user's JSON file."""
    try:
        found: Json = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: this is not JSON ({error}).") from None
    return found


def _check_models(found: Exported, ranker: Ranker, engine: str) -> None:
    """Refuse a ranker that stores no models, unless the engine takes weights with a request and it has weights."""
    if found.trained_on_arrival and not find_engine(engine).takes_weights:
        raise DataError(
            f"A {type(ranker).__name__} trains a model for every query as it arrives and stores none, and {engine} "
            "runs stored models. Fit knn-offline-2, with models=20 to keep them few; vespa takes weights with "
            "every request."
        )
    if found.trained_on_arrival and not found.is_linear:
        raise DataError("Only weighted sums can be sent with a request, and these local models are forests.")
    summing = next((model for model in found.models if isinstance(model.form, Linear)), None)
    without = find_engine(engine).no_sums
    if summing is not None and without is not None:
        raise DataError(f"The model {summing.name} is a weighted sum of features: {without}")


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


def _refuse_large(found: Exported, candidates: Candidates | None, kind: Engine) -> None:
    """Refuse features, weights and thresholds beyond the range of the engine's numbers."""
    limit = float(np.finfo(kind.arithmetic.real).max)
    largest = 0.0 if candidates is None else float(np.abs(candidates.features).max())
    for model in found.models:
        largest = max(largest, largest_number(model.form))
    if largest >= limit:
        raise DataError(
            f"A feature, weight or threshold is as large as {largest:.3g}; {kind.title} computes with numbers up to "
            f"{limit:.3g}. Bring the features to a smaller scale and fit again."
        )


def _refuse_low(candidates: Candidates, kind: Engine, names: tuple[str, ...]) -> None:
    """Refuse features below what the engine can compute."""
    low = candidates.features.min(axis=0)
    column = int(np.argmin(low))
    if low[column] < kind.least:
        raise DataError(
            f"In this data {int(np.sum(low < kind.least))} of {len(names)} features have values below {kind.least:g}; "
            f"{names[column]} is as low as {low[column]:.4g}. {kind.title} takes a feature from the score of a query, "
            "which is never below it. Train on features as the engine logs them, with a constant added where they are "
            "lower."
        )


def _put(folder: Path, texts: Mapping[str, str]) -> None:
    for place, text in texts.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8")


def _manifest(done: Written, found: Exported, files: Files, name: str, ranker: Ranker) -> JsonObject:
    routing = done.routing
    return {
        "format": "querywise export",
        "format_version": 1,
        "querywise": version("querywise"),
        "engine": done.engine,
        "name": name,
        "ranker": type(ranker).__name__,
        "missing": "zero",
        "features": {
            "names": found.features,
            "in_engine": files.in_engine,
            "others": files.others,
            "unfinished": done.unfinished,
        },
        "models": [
            {"name": model.name, "number": model.number, "what": model.what, "file": files.places.get(model.name)}
            for model in found.models
        ],
        "routing": None if routing is None else {**asdict(routing), "requests": routing.requests},
        "exactness": None if done.exactness is None else done.exactness._asdict(),
    }


def _readme(kind: Engine, done: Written, found: Exported, name: str, policy: str) -> str:
    differs = " In querywise it is the mean of training, so such a document is scored otherwise there."
    parts = [
        f"# {name} for {kind.title}\n",
        f"{len(done.models)} model{'s' if len(done.models) > 1 else ''} over {len(found.features)} features, exported "
        f"by querywise {version('querywise')}. A feature that a document does not have counts as 0."
        f"{differs if policy == MEAN else ''}\n",
        _about_features(done),
        "## Bring it to the engine\n",
        kind.steps(found, name),
        _about_routing(done),
        "## Check it\n",
        f"""`parity.jsonl` holds sample documents, their features and our scores by every model.

```
python check_parity.py {kind.check}
```

puts them into the engine for a moment, asks it for its scores, and compares; `--log NAME` also compares the features
that the engine computes with those of training (`--help` says what it touches).

{exactness_sentence(done.exactness)}
""",
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
