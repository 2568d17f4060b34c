"""The two files of a model folder, and their checksums."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from querywise.errors import ModelFileError
from querywise.runtime.arrays import Arrays
from querywise.runtime.files import OutputFolder, PathLike, write_bytes
from querywise.runtime.values import Json, JsonObject
from querywise.storage.reading import AGAIN, read_array_file, read_json

FORMAT = "querywise model"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
LOCK = ".lock"  # held by whoever writes


class Features(TypedDict):
    """What a manifest says of the features."""

    count: int
    names: Sequence[str] | None


class ArraysFile(TypedDict):
    """The arrays file that a manifest names."""

    file: str
    sha256: str


class Body(TypedDict):
    """The content of `manifest.json`, without its own checksum."""

    format: str
    format_version: int
    versions: dict[str, str]
    features: Features
    missing: str
    arrays: ArraysFile
    ranker: Json
    notes: JsonObject


@dataclass(frozen=True)
class Manifest:
    """The metadata of a model folder."""

    feature_count: int
    feature_names: tuple[str, ...] | None
    missing: str
    versions: dict[str, str]
    notes: JsonObject


def read_manifest(folder: PathLike) -> Manifest:
    """The folder's metadata, without loading the model."""
    body = read_body(Path(folder))
    features = body["features"]
    names = None if features["names"] is None else tuple(features["names"])
    return Manifest(features["count"], names, body["missing"], body["versions"], body["notes"])


def version_of(folder: PathLike) -> str:
    """The digest of the model in a folder: another model, another version."""
    return digest_of(read_body(Path(folder)))


def is_leftover(name: str) -> bool:
    """Whether a file of this name, in a folder without a manifest, is what a save that was killed has left."""
    return name == LOCK or name.endswith(".part") or is_arrays_file(name)


def is_arrays_file(name: str) -> bool:
    """Whether a file of this name holds arrays of a model."""
    return name.startswith("arrays-") and name.endswith(".safetensors")


_FOLDER = OutputFolder(
    a_file="this is a file; a model is a folder. Name another place.",
    other="the folder holds something that is not a querywise model. Name an empty or new one.",
    manifest=MANIFEST,
    makes_parents=False,
    in_place=True,
    unfinished=is_leftover,
)
check_model_folder = _FOLDER.check


def write_arrays(path: Path, arrays: Arrays) -> tuple[str, str]:
    """Write the arrays file; its name and its checksum."""
    from safetensors.numpy import save as pack

    content = pack(arrays)
    digest = hashlib.sha256(content).hexdigest()
    file = f"arrays-{digest[:16]}.safetensors"
    write_bytes(path / file, content)
    return file, digest


def read_arrays(path: Path, entry: ArraysFile) -> Arrays:
    """The arrays of the file that a manifest names."""
    from safetensors.numpy import load as unpack

    content = read_array_file(path, entry["file"])
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise ModelFileError(
            f"{path / entry['file']}: damaged or cut short (its checksum is not the manifest's). {AGAIN}"
        )
    try:
        return dict(unpack(content))
    except Exception as error:  # noqa: BLE001 - a file written to do harm could raise anything
        raise ModelFileError(f"{path / entry['file']}: not a file of arrays ({error}). {AGAIN}") from None


def read_body(path: Path) -> Body:
    """The content of the manifest, whose checksum is right."""
    manifest = path / MANIFEST
    if not path.is_dir() or not os.path.lexists(manifest):
        what = "there is no such folder" if not path.exists() else f"there is no {MANIFEST} in it"
        raise ModelFileError(f"{path}: not a model folder: {what}. `querywise fit` and save(ranker, folder) make one.")
    found = read_json(manifest, path)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ModelFileError(f"{manifest}: not the manifest of a querywise model.")
    if found.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{manifest}: format version {found.get('format_version')!r}; this querywise reads version "
            f"{FORMAT_VERSION}. Use the querywise that wrote it, or fit the model anew."
        )
    digest = found.pop("sha256", None)
    body: Body = found  # type: ignore[assignment]  # as it was signed
    if digest != digest_of(body):
        raise ModelFileError(f"{manifest}: damaged or edited by hand (its checksum does not fit). Fit the model anew.")
    wrong = _what_is_wrong(body)
    if wrong is not None:
        raise ModelFileError(f"{manifest}: not the manifest of a querywise model: {wrong}. Fit the model anew.")
    return body


def _what_is_wrong(body: Mapping[str, Any]) -> str | None:
    """Which entry of a manifest is not what a model needs; None where all are."""
    kinds = {"versions": dict, "features": dict, "missing": str, "arrays": dict, "notes": dict}
    for name, kind in kinds.items():
        if not isinstance(body.get(name), kind):
            return f"{name!r} is missing, or not {'a text' if kind is str else 'an object'}"
    if "ranker" not in body:
        return "'ranker' is missing"
    if not all(isinstance(body["arrays"].get(name), str) for name in ("file", "sha256")):
        return "'arrays' names no file, or no checksum"
    if not all(isinstance(each, str) for each in body["versions"].values()):
        return "'versions' holds something that is no text"
    count, names = body["features"].get("count"), body["features"].get("names", 0)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        return "'features' has no count"
    listed = isinstance(names, list) and len(names) == count and all(isinstance(each, str) for each in names)
    return None if names is None or listed else "'features' has not as many names as its count says"


def digest_of(body: Body | Mapping[str, Json]) -> str:
    """The checksum of a manifest without its checksum."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
