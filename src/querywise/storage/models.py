"""A fitted ranker or an adapter of query vectors ↔ one folder: `manifest.json` and one file of arrays.

Loading executes nothing.

The manifest says which class, with which parameters, learned which values, and names its arrays file by content.
The new model replaces the old one in one step, with the manifest: a reader of the folder gets the old model or the new
one, whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypedDict, cast

from querywise.contracts.asking import policy_of
from querywise.contracts.protocols import QueryAdapter, Ranker
from querywise.errors import DataError, ModelFileError, NotFittedError, QuerywiseError
from querywise.runtime.arrays import Arrays
from querywise.runtime.files import (
    OutputFolder,
    PathLike,
    atomic_text,
    digest_of,
    is_sealed,
    read_regular_file,
    read_steadily,
    regular_file,
    sealed,
    write_bytes,
)
from querywise.runtime.locks import locked
from querywise.runtime.stored import WrongValueError
from querywise.runtime.values import Json, JsonObject, Settings
from querywise.storage.objects import checked_name, decode, encode, ranks, stands_alone

FORMAT = "querywise model"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
LOCK = ".lock"  # held by whoever writes

_LONGEST_MANIFEST = 256_000_000  # bytes
# Of JSON: objects and lists, and names in objects. Python takes a second for a million names, and nothing else runs.
_MOST_OBJECTS, _MOST_NAMES = 1_000_000, 1_000_000
_LONGEST_HEADER = 100_000_000  # bytes, what safetensors allows
_SIZES = {1: ("BOOL", "U8", "I8"), 2: ("U16", "I16", "F16"), 4: ("U32", "I32", "F32"), 8: ("U64", "I64", "F64")}
_BYTES = {kind: size for size, kinds in _SIZES.items() for kind in kinds}  # of a number of each type
AGAIN = "Copy the folder again, or fit the model anew."

_LIBRARIES = ("numpy", "scipy", "lightgbm")
_SAFE_SECONDS = 3600.0  # where nothing can be locked, another process may be about to name a file younger than this


class FeatureManifest(TypedDict):
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
    features: FeatureManifest
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
    return digest_of(read_body(Path(folder)))  # type: ignore[arg-type]


def is_leftover(name: str) -> bool:
    """Whether a file of this name, in a folder without a manifest, is what a save that was killed has left."""
    return name == LOCK or name.endswith(".part") or (name.startswith("arrays-") and name.endswith(".safetensors"))


_FOLDER = OutputFolder(
    a_file="this is a file; a model is a folder. Name another place.",
    other="the folder holds something that is not a querywise model. Name an empty or new one.",
    manifest=MANIFEST,
    makes_parents=False,
    in_place=True,
    unfinished=is_leftover,
)


check_model_folder = _FOLDER.check


class StoredModel(NamedTuple):
    """A model as it is stored: its manifest, and the content of its arrays file."""

    body: JsonObject
    arrays: bytes


def _entry(content: bytes) -> JsonObject:
    """What a manifest says of its arrays file."""
    digest = hashlib.sha256(content).hexdigest()
    return {"file": f"arrays-{digest[:16]}.safetensors", "sha256": digest}


def _arrays_of(path: Path, entry: ArraysFile) -> bytes:
    """The content of the arrays file that a manifest names, whose checksum is right."""
    try:
        content = read_array_file(path, entry["file"])
    except FileNotFoundError:
        raise ModelFileError(f"{path}: the arrays file {entry['file']} is missing.") from None
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise ModelFileError(
            f"{path / entry['file']}: damaged or cut short (its checksum is not the manifest's). {AGAIN}"
        )
    return content


def read_arrays(path: Path, entry: ArraysFile) -> Arrays:
    """The arrays of the file that a manifest names."""
    from safetensors.numpy import load as unpack

    content = _arrays_of(path, entry)
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
    if not is_sealed(found):
        raise ModelFileError(f"{manifest}: damaged or edited by hand (its checksum does not fit). Fit the model anew.")
    del found["sha256"]
    body: Body = found  # type: ignore[assignment]  # as it was signed
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


def read_json(path: Path, folder: Path) -> Json:
    """What a file of JSON holds; an object that has a name twice is refused."""
    try:
        found: Json = _parsed(read_regular_file(path, folder, _LONGEST_MANIFEST))
    except DataError as error:
        raise ModelFileError(f"{error} {AGAIN}") from None
    except (ValueError, RecursionError, OSError, MemoryError) as error:
        raise ModelFileError(f"{path}: damaged: {error}. {AGAIN}") from None
    return found


def _parsed(content: bytes) -> Any:
    """What JSON holds; a ValueError if it holds more than a model has, before any of it is made."""
    if content.count(b"[") + content.count(b"{") > _MOST_OBJECTS:
        raise ValueError(f"more than {_MOST_OBJECTS} objects and lists")
    if content.count(b":") > _MOST_NAMES < sum(1 for _ in re.finditer(rb'"\s*:', content)):
        raise ValueError(f"more than {_MOST_NAMES} names in objects")
    return json.loads(content, object_pairs_hook=_object)


def read_array_file(folder: Path, file: str) -> bytes:
    """The content of the arrays file that a manifest names; a FileNotFoundError where there is none."""
    path = folder / file
    # The name of a file, and no way to another folder.
    if file in ("", ".", "..") or Path(file).name != file or not file.isprintable():
        raise ModelFileError(f"{folder}: the manifest names a file outside the model folder.")
    try:
        with regular_file(path, folder) as opened:
            return _checked_content(path, opened)
    except FileNotFoundError:
        raise
    except DataError as error:
        raise ModelFileError(f"{error} {AGAIN}") from None
    except (OSError, MemoryError) as error:
        raise ModelFileError(f"{path}: cannot be read ({error or 'there is not enough memory'}).") from None


def _checked_content(path: Path, file: BinaryIO) -> bytes:
    """The content of a file of arrays, whose header says how long it is."""
    size = os.fstat(file.fileno()).st_size
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf
    if size > most:
        raise ModelFileError(f"{path}: {size} bytes, more than the memory of this machine.")
    begin = file.read(8)
    length = int.from_bytes(begin, "little")
    if len(begin) < 8 or length > min(size - 8, _LONGEST_HEADER):
        raise ModelFileError(f"{path}: damaged or cut short (its header is longer than the file). {AGAIN}")
    header = file.read(length)
    expected = 8 + length + _length_of_arrays(path, header)
    if expected != size:
        raise ModelFileError(f"{path}: damaged or cut short ({size} bytes; expected {expected}). {AGAIN}")
    return begin + header + file.read(size - 8 - length)


def _length_of_arrays(path: Path, header: bytes) -> int:
    """How many bytes the arrays of a header take together; types that no model has are refused."""
    total = 0
    try:
        for name, entry in _parsed(header).items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in _BYTES:
                raise ModelFileError(
                    f"{path}: the array {name[:60]!r} is of type {entry['dtype']!r}, which no model has."
                )
            total += _BYTES[entry["dtype"]] * math.prod(map(_count, entry["shape"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{path}: damaged or cut short (its header cannot be read: {error}). {AGAIN}") from None
    return total


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r:.60} is not a size")
    return value


def _object(pairs: list[tuple[str, Json]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice in one object")
    return found


def save(ranker: Ranker | QueryAdapter, folder: PathLike, *, notes: Settings | None = None) -> None:
    """Write a fitted ranker to a folder, replacing the model that is there, if any, in one step.

    Args:
        ranker: a fitted ranker of this library, or AdaptedVectors that have been fitted.
        folder: where to; made if it is not there, in a folder that is.
        notes: anything JSON can hold that should travel with the model, such as how its parameters were chosen.

    Raises:
        DataError: A folder with other files in it, and one that cannot be written; with NotFittedError, a ranker that
            is not fitted.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import RankSVM, load, make_judged, save
    >>> data = make_judged(20, 10, 4)
    >>> ranker = RankSVM().fit(data)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(ranker, Path(folder) / "model")
    ...     print(bool((load(Path(folder) / "model").predict(data) == ranker.predict(data)).all()))
    True
    """
    from safetensors.numpy import save as pack

    path = Path(folder)
    check_model_folder(path)
    kind = type(ranker)
    checked_name(kind, "the ranker")
    if not stands_alone(kind):
        raise DataError(f"A {kind.__name__} is a part of rankers and has no folder of its own; save the ranker.")
    if not hasattr(ranker, "feature_count_" if ranks(kind) else "queries_"):
        raise NotFittedError(ranker)
    encoded, arrays = encode(ranker)
    features, policy = _features(ranker), policy_of(ranker)
    content: bytes = pack(arrays)
    body: JsonObject = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": {name: version(name) for name in ("querywise", *_LIBRARIES)},
        "features": {"count": features[0], "names": features[1]},
        "missing": policy,
        "arrays": _entry(content),
        "ranker": encoded,
        "notes": dict(notes or {}),
    }
    put_stored(path, StoredModel(body, content))


def put_stored(path: Path, stored: StoredModel) -> None:
    """Write a model to a folder, in the place of the one that is there, if any, in one step."""
    created, entry = not path.exists(), cast("ArraysFile", stored.body["arrays"])
    try:
        path.mkdir(exist_ok=True)
        try:
            with locked(path / LOCK) as alone, _cleared(path, 0.0 if alone else _SAFE_SECONDS):
                write_bytes(path / entry["file"], stored.arrays)
                with atomic_text(path / MANIFEST) as out:
                    json.dump(sealed(stored.body), out, indent=1)
                    out.write("\n")
        finally:
            if created:
                with contextlib.suppress(OSError):  # there is a model in it
                    path.rmdir()
    except OSError as error:
        raise DataError(f"{path}: the model cannot be written ({error.strerror}).") from None


def read_stored(path: Path) -> StoredModel:
    """A model as it is stored, to be put elsewhere."""

    def read() -> StoredModel:
        body = read_body(path)
        return StoredModel(cast("JsonObject", body), _arrays_of(path, body["arrays"]))

    return read_steadily(path, MANIFEST, read)


def load(folder: PathLike) -> Ranker:
    """The fitted ranker in a folder. Nothing in the folder is executed; anything odd about it is refused.

    Args:
        folder: one that `save`, `querywise fit` or `querywise adapt` wrote.

    Returns:
        The ranker, whose scores are the same bits as before; or AdaptedVectors, if such were saved.

    Raises:
        ModelFileError: A folder without a model, one that is damaged, and one of another format.

    >>> from querywise import ModelFileError, load
    >>> try:
    ...     load("no-such-model")
    ... except ModelFileError as error:
    ...     print(error)
    no-such-model: not a model folder: there is no such folder. `querywise fit` and save(ranker, folder) make one.
    """
    path = Path(folder)
    found: Any = read_steadily(path, MANIFEST, lambda: _read(path))  # an adapter, to whoever saved one
    ranker: Ranker = found
    return ranker


def load_ranker(folder: PathLike) -> Ranker:
    """What `load` returns, if it ranks."""
    found = load(folder)
    if not ranks(type(found)):
        raise ModelFileError(
            f"{folder}: this is an adapter of query vectors, which ranks nothing. Expected a ranker, as `querywise "
            "fit` saves it; `querywise adapt` uses an adapter."
        )
    return found


def _features(model: Ranker | QueryAdapter) -> tuple[int, tuple[str, ...] | None]:
    """How many features it takes and their names; an adapter takes none."""
    return getattr(model, "feature_count_", 0), getattr(model, "feature_names_", None)


def _read(path: Path) -> Any:
    body = read_body(path)
    arrays = read_arrays(path, body["arrays"])
    ranker, features = decoded(body["ranker"], arrays, path), body["features"]
    names = None if features["names"] is None else tuple(features["names"])
    if _features(ranker) != (features["count"], names):
        raise ModelFileError(f"{path}: the model has other features than its manifest says. Fit the model anew.")
    if policy_of(ranker) != body["missing"]:
        raise ModelFileError(
            f"{path}: the manifest says that missing values are treated as {body['missing']!r}, the model "
            f"{policy_of(ranker)!r}. Fit the model anew."
        )
    return ranker


def decoded(value: Json, arrays: Arrays, path: Path) -> Ranker | QueryAdapter:
    """The ranker or the adapter that a manifest and its arrays describe."""
    try:
        return decode(value, arrays)
    except ModelFileError:
        raise
    except Exception as error:  # noqa: BLE001 - a manifest written to do harm could raise anything
        said = error if isinstance(error, WrongValueError) else repr(error)
        raise ModelFileError(f"{path}: the manifest does not describe a model: {said}. Fit the model anew.") from None


@contextlib.contextmanager
def _cleared(path: Path, age: float) -> Iterator[None]:
    """After the block, remove what the manifest does not name: older arrays, and what a killed process has left.

    Nothing younger than `age` seconds: another process may be about to name it.
    """
    try:
        yield
    finally:
        # What is not understood, such as an old manifest that is damaged, stays until a model is saved.
        with contextlib.suppress(QuerywiseError, OSError, LookupError, TypeError):
            named = read_body(path)["arrays"]["file"] if (path / MANIFEST).exists() else None
            leftovers = [each for each in path.iterdir() if each.name not in (named, LOCK) and is_leftover(each.name)]
            for each in leftovers:
                if time.time() - each.lstat().st_mtime >= age:
                    each.unlink()
