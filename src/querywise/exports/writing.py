"""An export as a folder: the files of its content, the model where queries are routed, and a manifest."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.exports.manifest import FORMAT_VERSION, MANIFEST, read_raw_manifest
from querywise.exports.model_files import model_content
from querywise.exports.models import answer_to_nobody
from querywise.exports.target import Content, Written, as_text
from querywise.exports.targets import find_target
from querywise.exports.weight_files import weight_content
from querywise.runtime.files import OutputFolder, PathLike, atomic_folder, parse_json, read_bytes, read_text
from querywise.runtime.values import Json, JsonObject
from querywise.storage import save

_MODEL = "model"  # the folder of the stored ranker in the export
_FOLDER = OutputFolder(
    other="the folder holds something that is not an export. Name an empty or new one.", manifest=MANIFEST
)


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

    ranker: a fitted ranker whose models are weighted sums or trees: one for all queries, or picked by query; or one
    that weighs first-stage runs, which is written as a request with the weights in it.
    engine: opensearch or elasticsearch, for their Learning to Rank plugins; elasticsearch-native, for Elasticsearch's
    own learning_to_rank; solr or vespa. For weights of runs: opensearch-hybrid, elasticsearch-retriever, vespa or
    postgres; these need no data, features, rows and as_is.
    folder: where to; new, empty, or an earlier export for the same engine.
    name: what the feature set and the models are called.
    data: documents to check the engine's scores with; None generates some.
    features: how the engine computes each feature, in the engine's own format; None writes a template to fill in.
    rows: the number of documents in the check, from 1 up.
    as_is: export even where the data looks as if its features were normalised within queries, which engines do not do.
    force: write over an earlier export even where files in it were changed or added since.

    Returns: Written: the names of the models, what decides between them, and whether features are left to fill in; or
    the weights of runs.

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
    target, path = find_target(engine), Path(folder)
    if rows < 1:
        raise DataError(f"rows={rows}: the check needs at least one document.")
    check_export_folder(path, engine, force=force)
    answer = answer_to_nobody(ranker)
    if answer.runs or target.models is None:
        content = weight_content(ranker, answer, engine, name)
    else:
        candidates = data.candidates if isinstance(data, Judged) else data
        content = model_content(
            ranker, answer, engine, name, candidates=candidates, features=features, rows=rows, as_is=as_is
        )
    with atomic_folder(path) as made:
        for place, text in content.texts.items():
            (made / place).parent.mkdir(parents=True, exist_ok=True)
            (made / place).write_text(text, encoding="utf-8")
        if content.done.routing is not None or content.request is not None:
            save(ranker, made / _MODEL)
        manifest = {**_manifest(content, name, ranker), "checksums": _checksums(made)}
        (made / MANIFEST).write_text(as_text(manifest), encoding="utf-8")
    return content.done


def _manifest(content: Content, name: str, ranker: Ranker) -> JsonObject:
    """What `manifest.Manifest` lists, and what people may want to know of an export."""
    done = content.done
    return {
        "format": "querywise export",
        "format_version": FORMAT_VERSION,
        "querywise": version("querywise"),
        "engine": done.engine,
        "name": name,
        "ranker": type(ranker).__name__,
        "missing": "zero",
        "features": content.features,
        "models": content.models,
        "routing": None if done.routing is None else {**asdict(done.routing), "requests": done.routing.requests},
        "request": content.request,
        "exactness": None if done.exactness is None else done.exactness._asdict(),
    }


def check_export_folder(path: Path, engine: str, *, force: bool = False) -> None:
    """Refuse a folder that holds anything but an unchanged earlier export for the same engine."""
    _FOLDER.check(path)
    if not path.is_dir() or not any(path.iterdir()):
        return
    earlier = read_raw_manifest(path)
    if earlier.get("engine") != engine:
        raise DataError(
            f"{path}: the folder holds an export for {earlier.get('engine')}, and this one is for {engine}. Name an "
            "empty or new one."
        )
    checksums = earlier.get("checksums")
    written = checksums if isinstance(checksums, dict) else {}
    found = {} if force else _checksums(path)
    changed = [place for place, checksum in found.items() if written.get(place) != checksum]
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


def read_features(path: Path) -> Json:
    """How the engine computes the features, from a user's JSON file."""
    return parse_json(read_text(path), path)
