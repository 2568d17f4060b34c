"""A fitted ranker ↔ one folder: `manifest.json` and one file of arrays. Loading executes nothing.

The manifest says which class, with which parameters, learned which values, and names its arrays file by content.
The new model replaces the old one in one step, with the manifest: a reader of the folder gets the old model or the new
one, whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.protocols import Ranker
from querywise.data.letor import PathLike
from querywise.errors import DataError, ModelFileError, NotFittedError
from querywise.methods import METHODS
from querywise.runtime.files import OutputFolder, atomic_text, write_bytes
from querywise.runtime.parameters import parameter_names, parameters_of
from querywise.runtime.values import JsonObject, Settings

FORMAT = "querywise model"
FORMAT_VERSION = 1
_MANIFEST = "manifest.json"
_LONG_TEXT = 1_000
_LIBRARIES = ("numpy", "scipy", "lightgbm")

# The only classes a model folder can name: the rankers of the table of methods, and what rankers are made of.
_PARTS = {
    "Borda": "querywise.rankers.voting",
    "Clusters": "querywise.locality.groupings",
    "Columns": "querywise.locality.views.columns",
    "CombMNZ": "querywise.rankers.voting",
    "CombSUM": "querywise.rankers.voting",
    "Divergence": "querywise.locality.views.divergence",
    "Everyone": "querywise.locality.neighborhoods",
    "FittedModels": "querywise.learners.local_models",
    "GradientView": "querywise.locality.views.gradients",
    "GroupModels": "querywise.rankers.clusters",
    "KernelRidge": "querywise.learners.regression.kernel",
    "LearnedMetric": "querywise.locality.views.metric",
    "LinearModels": "querywise.learners.linear",
    "Locality": "querywise.rankers.neighbors",
    "NGrams": "querywise.locality.views.text",
    "NearbyBlend": "querywise.rankers.nearby",
    "Nearest": "querywise.locality.neighborhoods",
    "OfflineModels": "querywise.rankers.knn",
    "PreparedRankSVM": "querywise.learners.ranksvm.local_models",
    "PreparedRows": "querywise.learners.local_models",
    "QueryContext": "querywise.learners.trees.context",
    "QueryNormalised": "querywise.rankers.normalised",
    "Radius": "querywise.locality.neighborhoods",
    "ReciprocalRank": "querywise.rankers.voting",
    "RelevantClusters": "querywise.locality.groupings",
    "Scaling": "querywise.runtime.scaling",
    "SideBySide": "querywise.locality.views.columns",
    "SimilarQueries": "querywise.locality.combinations",
    "TextView": "querywise.locality.views.text",
    "TopMean": "querywise.locality.views.topmean",
    "TreeRegression": "querywise.learners.trees.boosting",
    "TwoModels": "querywise.locality.views.twomodels",
}
_SAVABLE = _PARTS | {name: module for module, name in (method.home.split(":") for method in METHODS.values())}
# Other names under which earlier versions wrote a class, or something a class has learned (Class.name_).
_ALIASES: dict[str, str] = {}
# The value of a parameter that folders of earlier versions lack.
_BEFORE: dict[str, dict[str, bool | int | float | str | None]] = {}
# Kinds that are no longer there, and why.
_REMOVED = {
    "Routed": "it was no better than the blend it was made of. Fit the method blend instead.",
    **dict.fromkeys(("LinearGains", "NearbyGains"), "it was a part of Routed, which was no better than its blend."),
}


@dataclass(frozen=True)
class Manifest:
    """The metadata of a model folder."""

    feature_count: int
    feature_names: tuple[str, ...] | None
    missing: str
    versions: dict[str, str]
    notes: JsonObject


def save(ranker: Ranker, folder: PathLike, *, notes: Settings | None = None) -> None:
    """Write a fitted ranker to a folder, replacing the model that is there, if any, in one step.

    `notes` is anything JSON can hold that should travel with the model, such as how its parameters were chosen.
    """
    path = Path(folder)
    check_model_folder(path)
    _check_savable(ranker, "the ranker")
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    writer = _Writer()
    encoded = writer.encode(ranker, "ranker")
    try:
        created = not path.exists()
        path.mkdir(exist_ok=True)
        try:
            file, digest = _write_arrays(path, writer.arrays)
            body = {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "versions": {name: version(name) for name in ("querywise", *_LIBRARIES)},
                "features": {"count": ranker.feature_count_, "names": getattr(ranker, "feature_names_", None)},
                "missing": "zero",
                "arrays": {"file": file, "sha256": digest},
                "ranker": encoded,
                "notes": dict(notes or {}),
            }
            with atomic_text(path / _MANIFEST) as out:
                json.dump({**body, "sha256": _digest_of(body)}, out, indent=1)
                out.write("\n")
        finally:
            if created and not (path / _MANIFEST).exists():
                _remove(path)
    except OSError as error:
        raise DataError(f"{path}: the model cannot be written ({error.strerror}).") from None
    for old in path.glob("arrays-*.safetensors"):
        if old.name != file:
            old.unlink(missing_ok=True)


def load(folder: PathLike) -> Ranker:
    """The fitted ranker in a folder. Nothing in the folder is executed; anything odd about it is refused."""
    path = Path(folder)
    for attempt in range(5):
        body = _read_body(path)
        try:
            arrays = _read_arrays(path, body["arrays"])
        except FileNotFoundError:
            if attempt < 4:
                continue  # the model was replaced between the two reads: take the new one
            raise ModelFileError(f"{path}: the arrays file {body['arrays']['file']} is missing.") from None
        try:
            found = _Reader(arrays).decode(body["ranker"])
            if not hasattr(found, "predict") or not hasattr(found, "feature_count_"):
                raise ModelFileError(f"{path}: the manifest describes something that is not a fitted ranker.")
            fitted: Ranker = found
            return fitted
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"{path}: the manifest does not describe a model ({error!r}).") from None
    raise AssertionError("unreachable")


def read_manifest(folder: PathLike) -> Manifest:
    """The folder's metadata, without loading the model."""
    body = _read_body(Path(folder))
    features = body["features"]
    names = None if features["names"] is None else tuple(features["names"])
    return Manifest(features["count"], names, body["missing"], body["versions"], body["notes"])


def version_of(folder: PathLike) -> str:
    """The digest of the model in a folder: another model, another version."""
    return _digest_of(_read_body(Path(folder)))


_FOLDER = OutputFolder(
    a_file="this is a file; a model is a folder. Name another place.",
    other="the folder holds something that is not a querywise model. Name an empty or new one.",
    manifest=_MANIFEST,
    makes_parents=False,
    in_place=True,
)
check_model_folder = _FOLDER.check


class _Writer:
    """Values as JSON; arrays and long texts become their key, an object seen before its number."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._numbers: dict[int, int] = {}

    def encode(self, value: Any, key: str) -> Any:
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": str(value)}
        if isinstance(value, np.generic):
            return self.encode(value.item(), key)
        if isinstance(value, str):
            if len(value) < _LONG_TEXT:
                return value
            # Half a surrogate pair, which JSON may have let into a query, is no reason not to save a model.
            return self._kept("$text", key, np.frombuffer(value.encode(errors="surrogatepass"), np.uint8))
        if isinstance(value, np.ndarray):
            return self._kept("$array", key, np.ascontiguousarray(value))
        if isinstance(value, csr_array):
            parts = (value.data, value.indices, value.indptr, np.array(value.shape))
            return {"$csr": [self.encode(part, f"{key}.{i}") for i, part in enumerate(parts)]}
        if isinstance(value, (tuple, list)):
            kind = type(value).__name__
            return {"$" + kind: [self.encode(item, f"{key}.{i}") for i, item in enumerate(value)]}
        return self._object(value, key)

    def _kept(self, mark: str, key: str, array: np.ndarray[Any, Any]) -> dict[str, str]:
        self.arrays[key] = array
        return {mark: key}

    def _object(self, value: Any, key: str) -> Any:
        name = type(value).__name__
        _check_savable(value, key)
        if id(value) in self._numbers:
            return {"$same": self._numbers[id(value)]}
        number = self._numbers[id(value)] = len(self._numbers)
        learned = {each: item for each, item in vars(value).items() if _is_learned(each)}
        return {
            "$class": name,
            "number": number,
            "parameters": {each: self.encode(item, f"{key}.{each}") for each, item in parameters_of(value).items()},
            "learned": {each: self.encode(item, f"{key}.{each}") for each, item in learned.items()},
        }


class _Reader:
    """The inverse of `_Writer`. Only classes in the table above are made, only learned names are set."""

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._arrays = arrays
        self._made: dict[int, Any] = {}
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "$array": lambda key: self._arrays[key],
            "$text": lambda key: self._arrays[key].tobytes().decode(errors="surrogatepass"),
            "$float": float,
            "$tuple": lambda items: tuple(self.decode(item) for item in items),
            "$list": lambda items: [self.decode(item) for item in items],
            "$csr": self._sparse,
            "$same": lambda number: self._made[number],
        }

    def decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        mark = next((mark for mark in self._kinds if mark in value), None)
        return self._object(value) if mark is None else self._kinds[mark](value[mark])

    def _sparse(self, parts: Any) -> Any:
        data, indices, pointers, shape = (self.decode(part) for part in parts)
        return csr_array((data, indices, pointers), shape=tuple(shape.tolist()))

    def _object(self, value: dict[str, Any]) -> Any:
        name = _ALIASES.get(value["$class"], value["$class"])
        if name in _REMOVED:
            raise ModelFileError(f"The model is a {name}, which is no longer there: {_REMOVED[name]}")
        if name not in _SAVABLE:
            raise ModelFileError(
                f"The model is a {name!r}, which this version does not know. Known: {', '.join(_SAVABLE)}."
            )
        kind = getattr(importlib.import_module(_SAVABLE[name]), name)
        given = {**_BEFORE.get(name, {}), **value["parameters"]}
        learned = {_ALIASES.get(f"{name}.{each}", each): item for each, item in value["learned"].items()}
        if set(given) != set(parameter_names(kind)) or not all(map(_is_learned, learned)):
            raise ModelFileError(f"The manifest's {name} has other parameters than this version's.")
        made = kind(**{each: self.decode(item) for each, item in given.items()})
        self._made[value["number"]] = made
        for each, item in learned.items():
            setattr(made, each, self.decode(item))
        return made


def _check_savable(value: object, where: str) -> None:
    name = type(value).__name__
    if _SAVABLE.get(name) != type(value).__module__:
        raise DataError(
            f"A {name} cannot be saved ({where} is one): a model folder names classes of querywise alone, so that "
            "loading one executes nothing of anybody else's."
        )


def _is_learned(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _write_arrays(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> tuple[str, str]:
    from safetensors.numpy import save as pack

    content = pack(arrays)
    digest = hashlib.sha256(content).hexdigest()
    file = f"arrays-{digest[:16]}.safetensors"
    write_bytes(path / file, content)
    return file, digest


def _read_arrays(path: Path, entry: Mapping[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpack

    if Path(entry["file"]).name != entry["file"]:
        raise ModelFileError(f"{path}: the manifest names a file outside the model folder.")
    content = (path / entry["file"]).read_bytes()
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise ModelFileError(
            f"{path / entry['file']}: damaged or cut short (its checksum is not the manifest's). "
            "Copy the folder again, or fit the model anew."
        )
    try:
        return dict(unpack(content))
    except SafetensorError as error:
        raise ModelFileError(f"{path / entry['file']}: not a file of arrays ({error}).") from None


def _read_body(path: Path) -> dict[str, Any]:
    manifest = path / _MANIFEST
    if not path.is_dir() or not manifest.is_file():
        what = "there is no such folder" if not path.exists() else f"there is no {_MANIFEST} in it"
        raise ModelFileError(f"{path}: not a model folder: {what}. `querywise fit` and save(ranker, folder) make one.")
    try:
        body = json.loads(manifest.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise ModelFileError(f"{manifest}: damaged: {error}. Copy the folder again, or fit the model anew.") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise ModelFileError(f"{manifest}: not the manifest of a querywise model.")
    if body.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{manifest}: format version {body.get('format_version')!r}; this querywise reads version "
            f"{FORMAT_VERSION}. Use the querywise that wrote it, or fit the model anew."
        )
    digest = body.pop("sha256", None)
    if digest != _digest_of(body):
        raise ModelFileError(f"{manifest}: damaged or edited by hand (its checksum does not fit). Fit the model anew.")
    return body


def _digest_of(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        for file in path.iterdir():
            file.unlink(missing_ok=True)
        path.rmdir()
