"""A fitted ranker ↔ one folder: `manifest.json` and one file of arrays. Loading executes nothing.

The manifest says which class, with which parameters, learned which values, and names its arrays file by content.
Replacing the manifest is the one moment a new model takes the old one's place: whoever reads the folder meanwhile
gets the old model or the new one, whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from querywise.contracts import Ranker
from querywise.data.letor import PathLike
from querywise.errors import DataError, ModelFileError, NotFittedError
from querywise.files import atomic_text, put_in_place

FORMAT = "querywise model"
FORMAT_VERSION = 1
_MANIFEST = "manifest.json"
_LONG_TEXT = 1_000
_LIBRARIES = ("numpy", "scipy", "lightgbm")

# The only classes a model folder can name.
_SAVABLE = {
    "RankSVM": "querywise.learners.ranksvm",
    "LambdaMART": "querywise.learners.trees",
}


@dataclass(frozen=True)
class Manifest:
    """What a model folder says of itself, beside the model."""

    feature_count: int
    feature_names: tuple[str, ...] | None
    missing: str
    versions: dict[str, str]
    notes: dict[str, Any]


def save(ranker: Ranker, folder: PathLike, *, notes: Mapping[str, Any] | None = None) -> None:
    """Write a fitted ranker to a folder, replacing the model that is there, if any, in one step.

    `notes` is anything JSON can hold that should travel with the model, such as how its parameters were chosen.
    """
    path = Path(folder)
    check_model_folder(path)
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    encoded = _encode(ranker, "ranker", arrays)
    try:
        created = not path.exists()
        path.mkdir(exist_ok=True)
        try:
            file, digest = _write_arrays(path, arrays)
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


def load(folder: PathLike) -> Any:
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
            return _decode(body["ranker"], arrays)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ModelFileError(f"{path}: the manifest does not describe a model ({error!r}).") from None
    raise AssertionError("unreachable")


def read_manifest(folder: PathLike) -> Manifest:
    """What the folder says of its model, without loading it."""
    body = _read_body(Path(folder))
    features = body["features"]
    names = None if features["names"] is None else tuple(features["names"])
    return Manifest(features["count"], names, body["missing"], body["versions"], body["notes"])


def check_model_folder(path: Path) -> None:
    """Refuse a place where no model can be written, before any long work is done for it."""
    if path.exists() and not path.is_dir():
        raise DataError(f"{path}: this is a file; a model is a folder. Name another place.")
    if path.is_dir() and any(path.iterdir()) and not (path / _MANIFEST).exists():
        raise DataError(f"{path}: the folder holds something that is not a querywise model. Name an empty or new one.")
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path}: the folder {path.absolute().parent} does not exist; make it first.")
    if not os.access(path if path.is_dir() else path.absolute().parent, os.W_OK):
        raise DataError(f"{path}: no permission to write there.")


def _encode(value: Any, key: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """A value as JSON; arrays and long texts go to `arrays` and leave their key behind."""
    name = type(value).__name__
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        if len(value) < _LONG_TEXT:
            return value
        arrays[key] = np.frombuffer(value.encode(), dtype=np.uint8)
        return {"$text": key}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        arrays[key] = np.ascontiguousarray(value)
        return {"$array": key}
    if isinstance(value, (tuple, list)):
        return {"$" + name: [_encode(item, f"{key}.{i}", arrays) for i, item in enumerate(value)]}
    if name in _SAVABLE and type(value).__module__ == _SAVABLE[name]:
        parameters = {each: getattr(value, each) for each in _parameter_names(type(value))}
        learned = {each: item for each, item in vars(value).items() if _is_learned(each)}
        return {
            "$class": name,
            "parameters": {each: _encode(item, f"{key}.{each}", arrays) for each, item in parameters.items()},
            "learned": {each: _encode(item, f"{key}.{each}", arrays) for each, item in learned.items()},
        }
    raise DataError(f"A {name} cannot be saved; {key} holds one.")


def _decode(value: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return arrays[value["$array"]]
    if "$text" in value:
        return arrays[value["$text"]].tobytes().decode()
    if "$tuple" in value:
        return tuple(_decode(item, arrays) for item in value["$tuple"])
    if "$list" in value:
        return [_decode(item, arrays) for item in value["$list"]]
    name = value["$class"]
    if name not in _SAVABLE:
        raise ModelFileError(
            f"The model is a {name!r}, which this version does not know. Known: {', '.join(_SAVABLE)}."
        )
    kind = getattr(importlib.import_module(_SAVABLE[name]), name)
    if set(value["parameters"]) != set(_parameter_names(kind)) or not all(map(_is_learned, value["learned"])):
        raise ModelFileError(f"The manifest's {name} has other parameters than this version's.")
    made = kind(**{each: _decode(item, arrays) for each, item in value["parameters"].items()})
    for each, item in value["learned"].items():
        setattr(made, each, _decode(item, arrays))
    return made


def _parameter_names(kind: type) -> list[str]:
    return [name for name in inspect.signature(kind).parameters if name != "self"]


def _is_learned(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _write_arrays(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> tuple[str, str]:
    from safetensors.numpy import save as pack

    content = pack(arrays)
    digest = hashlib.sha256(content).hexdigest()
    file = f"arrays-{digest[:16]}.safetensors"
    handle, name = tempfile.mkstemp(suffix=".part", dir=path)
    try:
        with open(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        put_in_place(Path(name), path / file)
    finally:
        Path(name).unlink(missing_ok=True)
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
        raise ModelFileError(f"{path}: not a model folder: {what}. `querywise fit … --out FOLDER` makes one.")
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
