"""Write an export as a folder: files of its models or request, the ranker if queries are routed, scripts, manifest."""

from __future__ import annotations

import ast
import io
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files as resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.contracts.answers import Answer, adapter_of
from querywise.contracts.asking import missing_for, policy_of
from querywise.contracts.forms import Linear
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError
from querywise.exports.arithmetic import (
    Scaled,
    exactness,
    generated,
    parity_lines,
    sampled,
    scaled_within_queries,
)
from querywise.exports.manifest import FORMAT_VERSION, MANIFEST, models_readme, read_raw_manifest, weights_readme
from querywise.exports.models import (
    Exported,
    answer_to_nobody,
    check_text_features,
    exported,
    exported_names,
    largest_number,
    numbers_in,
)
from querywise.exports.routing import routing_of
from querywise.exports.target import UNFINISHED, Content, StoredModels, Written, as_text, identifier
from querywise.exports.targets import FUSE_RUNS, TARGETS, find_target
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.runtime.files import OutputFolder, PathLike, atomic_folder, parse_json, read_bytes, read_text
from querywise.runtime.values import Json, JsonObject
from querywise.storage import save

_PARTS = "querywise.exports.scripts"  # the package of the parts; a joined file does not import from it
_RUNTIME = "querywise.runtime"  # the package of the HTTP client, used by the library and by scripts


def scripts_of(engine: str, *, routed: bool) -> dict[str, str]:
    """Return the texts of an engine's scripts by name, for every script with an engine part in `scripts/`.

    check_parity.py: the HTTP client, the shared part, then the engine's part, which uses it. upload.py uses the check
    beside it. router.py, if queries are routed: first the engine's part, which users edit, then the shared part.
    """
    found: dict[str, str] = {}
    if _exists(f"check_{engine}.py"):
        client, shared, own = _read("http_client.py", _RUNTIME), _read("check_parity.py"), _read(f"check_{engine}.py")
        found["check_parity.py"] = _joined(_docstring(shared, own), client, shared, own)
    if _exists(f"upload_{engine}.py"):
        shared, own = _read("upload.py", beside_check=True), _read(f"upload_{engine}.py", beside_check=True)
        found["upload.py"] = _joined(_docstring(shared, own), shared, own)
    if routed and _exists(f"route_{engine}.py"):
        shared, own = _read("router.py"), _read(f"route_{engine}.py")
        found["router.py"] = _joined(_docstring(shared, own), own, shared)
    return found


def request_script() -> str:
    """Return the text of router.py for weights of runs, the same for every engine."""
    part = _read("route_weights.py")
    return _joined(part.docstring, part)


def _exists(name: str) -> bool:
    return resources(_PARTS).joinpath(name).is_file()


class _Part(NamedTuple):
    docstring: str
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    code: str


def _read(name: str, package: str = _PARTS, *, beside_check: bool = False) -> _Part:
    """Return a part's docstring, its imports from other packages, and its code without surrounding blank lines.

    `beside_check` tells whether the part imports from the check_parity.py beside it.
    """
    text = resources(package).joinpath(name).read_text(encoding="utf-8")
    lines, nodes = text.splitlines(), ast.parse(text).body
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        if beside_check and isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{_PARTS}.check_"):
            node.module = "check_parity"
    return _Part(
        "\n".join(lines[: _last_line(nodes[0])]).strip('"').strip("\n"),
        tuple(node for node in imports if not _imports_a_part(node)),
        "\n".join(lines[_last_line(imports[-1]) :]).strip("\n"),
    )


def _imports_a_part(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and str(node.module).startswith((_PARTS, _RUNTIME))


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _docstring(shared: _Part, own: _Part) -> str:
    """Return the shared docstring with its first line replaced by the engine's docstring."""
    return f"{own.docstring}\n{shared.docstring.partition(chr(10))[2]}"


def _joined(docstring: str, *parts: _Part) -> str:
    """Join parts to one file. Each may use names of those before it."""
    imports = _import_lines([node for part in parts for node in part.imports])
    code = "\n\n\n".join(part.code for part in parts)
    return f'"""{docstring}\n"""\n\n{imports}\n\n{code}\n'


def _import_lines(nodes: Iterable[ast.Import | ast.ImportFrom]) -> str:
    """Return the import lines, unique and sorted: the future, the standard library, other packages."""
    modules: set[str] = set()
    names: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names.setdefault(str(node.module), set()).update(each.name for each in node.names)
        else:
            modules.update(each.name for each in node.names)
    lines = [(name, f"import {name}") for name in sorted(modules)]
    lines += [(name, f"from {name} import {', '.join(sorted(names[name]))}") for name in sorted(names)]
    groups: dict[int, list[str]] = {}
    for name, line in lines:
        groups.setdefault(_group(name), []).append(line)
    return "\n\n".join("\n".join(groups[group]) for group in sorted(groups))


def _group(module: str) -> int:
    if module == "__future__":
        return 0
    return 1 if module.partition(".")[0] in sys.stdlib_module_names else 2


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
    """Write a fitted ranker to a folder in an engine's format.

    Args:
        ranker: a fitted ranker whose models are weighted sums or trees: one for all queries, or picked by query; or one
            that weights first-stage runs, which is written as a request that contains the weights.
        engine: opensearch or elasticsearch, for their Learning to Rank plugins; elasticsearch-native, for
            Elasticsearch's own learning_to_rank; solr or vespa. For weights of runs: opensearch-hybrid,
            elasticsearch-retriever, vespa or postgres; these need no data, features, rows and as_is.
        folder: the folder to write: new, empty, or an earlier export for the same engine.
        name: the name of the feature set and the models.
        data: documents to check the engine's scores with; None generates documents.
        features: the definitions of the features in the engine's own format; None writes a template to fill in.
        rows: the number of documents in the check, from 1 up.
        as_is: export even if the data looks as if its features were normalized within queries, which engines do not do.
        force: overwrite an earlier export even if files in it were changed or added since.

    Returns:
        Written: the names of the models, how queries are routed to them, and whether features are left to fill in; or
            the weights of runs.

    Raises:
        DataError: An unknown engine, a ranker or a size that the engine cannot run, or a folder of other files.

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
        for place, table in ({} if content.adapter is None else transform_files(content.adapter)).items():
            (made / place).write_bytes(table)
        if content.done.routing is not None or content.request is not None:
            save(ranker, made / _MODEL)
        manifest = {**_manifest(content, name, ranker), "checksums": _checksums(made)}
        (made / MANIFEST).write_text(as_text(manifest), encoding="utf-8")
    return content.done


def export_hybrid(
    ranker: Ranker, engine: str, folder: PathLike, *, name: str = "querywise", force: bool = False
) -> Written:
    """Call `export_model`: an older name of it, for weights of runs."""
    return export_model(ranker, engine, folder, name=name, force=force)


def _manifest(content: Content, name: str, ranker: Ranker) -> JsonObject:
    """Return the content of `manifest.ExportManifest`, and what else users may want to know of an export."""
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
        "adapter": None if content.adapter is None else {"tables": TABLES, "script": SCRIPT},
        "exactness": None if done.exactness is None else done.exactness._asdict(),
    }


def check_export_folder(path: Path, engine: str, *, force: bool = False) -> None:
    """Raise DataError if a folder holds anything but an unchanged earlier export for the same engine."""
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
            f"{path}: {changed[0]}{more} changed or was added since the export was written, and would be lost. Name "
            "another folder, or write over it: force=True.",
            arguments=("force",),
        )


def _checksums(folder: Path) -> dict[str, str]:
    """Return a checksum of every file that a user may change: all but the manifest and the model folder."""
    own = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    places = {path.relative_to(folder).as_posix(): path for path in own}
    return {
        place: sha256(read_bytes(path)).hexdigest()
        for place, path in places.items()
        if place != MANIFEST and not place.startswith(f"{_MODEL}/")
    }


def read_features(path: Path) -> Json:
    """Read from a user's JSON file how the engine computes the features."""
    return parse_json(read_text(path), path)


def weight_content(ranker: Ranker, answer: Answer, engine: str, name: str) -> Content:
    """Return the content of an export of weights of runs; `answer` is the ranker's to no queries."""
    target, normalise = TARGETS[engine], str(getattr(ranker, "normalise", ""))
    if target.request is None:
        known = ", ".join(FUSE_RUNS)
        raise DataError(f"This model is weights of runs, and {engine!r} cannot fuse runs. Known: {known}.")
    title = f"{target.title} ({target.request.form})"
    if answer.runs is None:
        raise DataError(
            f"{title} takes weights of first-stage runs, and a {type(ranker).__name__} has none. The "
            "methods weights and weights-by-query have: fit one of them, or fuse the runs by one."
        )
    weights = dict(zip(answer.runs.names, answer.runs.common.tolist(), strict=True))
    if len(set(map(identifier, weights))) < len(weights):
        raise DataError(
            f"The runs {', '.join(weights)} have the same name without their special characters. Rename them."
        )
    if len(weights) > target.request.most:
        raise DataError(f"{title} fuses up to {target.request.most} runs; the model weighs {len(weights)}.")
    if normalise not in target.request.normalisations:
        known = ", ".join(target.request.normalisations)
        raise DataError(
            f"{title} has no normalisation {normalise!r}, which the model was fitted with. It has: {known}. Fit "
            "again with one of these as normalise."
        )
    texts = target.request.write(weights, target.request.normalisations[normalise], name)
    done = Written(engine, (), routing_of(answer), True, None, weights)
    file = next(iter(texts))
    about = f"Scores are normalised as `{normalise}`. {target.request.meaning}"
    kept = adapter_of(ranker)
    adapter = kept if isinstance(kept, AdaptedVectors) and (kept.adapts or kept.blocks) else None
    readme = weights_readme(title, done, file, about, adapted=adapter is not None)
    return Content(
        done,
        {**texts, "router.py": request_script(), "README.md": readme},
        request={"file": file, "normalise": normalise, "weights": weights},
        adapter=adapter,
    )


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
    """Return the content of an export of a ranker's models; `answer` is the ranker's to no queries."""
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
    unfinished = features is None and any(UNFINISHED in text for text in files.texts.values())
    done = Written(engine, tuple(model.name for model in found.models), routing, unfinished, exact)
    scripts = scripts_of(kind.scripts, routed=routing is not None)
    texts = {
        **files.texts,
        "parity.jsonl": parity_lines(found, sample, kind.arithmetic, files.in_engine),
        **scripts,
        "README.md": models_readme(title, kind, done, found, name, policy_of(ranker), scripts),
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
    """Raise DataError if a ranker stores no models, unless it has weights that the engine takes with a request."""
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
    """Raise DataError for data without documents, with other features, or, unless as_is, normalized within queries."""
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
            "not know, so it would rank differently there. Train on features as the engine logs them; or, where the "
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
    """Raise DataError for features, weights and thresholds beyond the range of the engine's numbers."""
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
    """Raise DataError for features below what the engine can compute."""
    low = candidates.features.min(axis=0)
    column = int(np.argmin(low))
    if low[column] < least:
        raise DataError(
            f"In this data {int(np.sum(low < least))} of {len(names)} features have values below {least:g}; "
            f"{names[column]} is as low as {low[column]:.4g}. {title} takes a feature from the score of a query, "
            "which is never below it. Train on features as the engine logs them, with a constant added where they are "
            "lower."
        )


SCRIPT, TABLES = "transform.py", "adapter.npz"


def transform_files(adapter: AdaptedVectors) -> dict[str, bytes]:
    """Return the files' contents by their names."""
    content = io.BytesIO()
    np.savez(
        content,
        gamma=np.float64(0.0 if adapter.gamma_ is None else adapter.gamma_),
        landmarks=adapter.queries_[adapter.landmarks_],
        responses=adapter.responses_,
        map=adapter.map_,
        blocks=np.array(adapter.blocks or (), dtype=np.int64),
        shares=np.array(adapter.shares_ if adapter.blocks else (), dtype=np.float64),
    )
    script = resources("querywise.exports.scripts").joinpath(SCRIPT).read_bytes()
    return {TABLES: content.getvalue(), SCRIPT: script}
