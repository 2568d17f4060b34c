"""A fitted ranker or an adapter of query vectors ↔ one folder: `manifest.json` and one file of arrays.

Loading executes no code from the folder.

The manifest holds the class, its parameters and its learned values, and names the arrays file by a hash of its content.
Replacing the manifest replaces the model in one step: a reader of the folder gets either the old model or the new one,
never a mixture. `promote` replaces a model by that of another folder, and `put_back` undoes it.
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
    refuse_link,
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
LOCK = ".lock"  # held while writing
PREVIOUS = ".previous"  # suffix of the folder that keeps the model that `promote` replaced

_LONGEST_MANIFEST = 256_000_000  # bytes
# Of JSON: objects and lists, and names in objects. Python takes a second to parse a million names, and blocks
# meanwhile.
_MOST_OBJECTS, _MOST_NAMES = 1_000_000, 1_000_000
_LONGEST_HEADER = 100_000_000  # bytes; the limit of safetensors
_SIZES = {1: ("BOOL", "U8", "I8"), 2: ("U16", "I16", "F16"), 4: ("U32", "I32", "F32"), 8: ("U64", "I64", "F64")}
_BYTES = {kind: size for size, kinds in _SIZES.items() for kind in kinds}  # of one number of each type
AGAIN = "Copy the folder again, or fit the model again."

_LIBRARIES = ("numpy", "scipy", "lightgbm")
_SAFE_SECONDS = 3600.0  # without file locks, another process may be about to reference a file younger than this


class FeatureManifest(TypedDict):
    """The features in a manifest."""

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
    """Return the folder's metadata without loading the model."""
    body = read_body(Path(folder))
    features = body["features"]
    names = None if features["names"] is None else tuple(features["names"])
    return Manifest(features["count"], names, body["missing"], body["versions"], body["notes"])


def version_of(folder: PathLike) -> str:
    """Return the digest of the model in a folder; different models have different digests."""
    return digest_of(read_body(Path(folder)))  # type: ignore[arg-type]


def is_leftover(name: str) -> bool:
    """Return whether a file of this name, in a folder without a manifest, was left by a save that was killed."""
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
    """A model in its stored form: its manifest, and the content of its arrays file."""

    body: JsonObject
    arrays: bytes


def _entry(content: bytes) -> JsonObject:
    """Return a manifest's entry for its arrays file."""
    digest = hashlib.sha256(content).hexdigest()
    return {"file": f"arrays-{digest[:16]}.safetensors", "sha256": digest}


def _arrays_of(path: Path, entry: ArraysFile) -> bytes:
    """Return the content of the arrays file that a manifest names, after verifying its checksum."""
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
    """Return the arrays in the file that a manifest names."""
    from safetensors.numpy import load as unpack

    content = _arrays_of(path, entry)
    try:
        return dict(unpack(content))
    except Exception as error:  # noqa: BLE001 - a file written to do harm could raise anything
        raise ModelFileError(f"{path / entry['file']}: not a file of arrays ({error}). {AGAIN}") from None


def read_body(path: Path) -> Body:
    """Return the content of the manifest, after verifying its checksum."""
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
            f"{FORMAT_VERSION}. Use the querywise version that wrote it, or fit the model again."
        )
    if not is_sealed(found):
        raise ModelFileError(f"{manifest}: damaged or edited by hand (its checksum does not fit). Fit the model again.")
    del found["sha256"]
    body: Body = found  # type: ignore[assignment]  # as it was signed
    wrong = _what_is_wrong(body)
    if wrong is not None:
        raise ModelFileError(f"{manifest}: not the manifest of a querywise model: {wrong}. Fit the model again.")
    return body


def _what_is_wrong(body: Mapping[str, Any]) -> str | None:
    """Return which entry of a manifest is wrong, or None if all are valid."""
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
    """Return the content of a JSON file. Raise ModelFileError if an object has the same name twice."""
    try:
        found: Json = _parsed(read_regular_file(path, folder, _LONGEST_MANIFEST))
    except DataError as error:
        raise ModelFileError(f"{error} {AGAIN}") from None
    except (ValueError, RecursionError, OSError, MemoryError) as error:
        raise ModelFileError(f"{path}: damaged: {error}. {AGAIN}") from None
    return found


def _parsed(content: bytes) -> Any:
    """Parse JSON. Raise ValueError before parsing if it holds more objects or names than any model has."""
    if content.count(b"[") + content.count(b"{") > _MOST_OBJECTS:
        raise ValueError(f"more than {_MOST_OBJECTS} objects and lists")
    if content.count(b":") > _MOST_NAMES < sum(1 for _ in re.finditer(rb'"\s*:', content)):
        raise ValueError(f"more than {_MOST_NAMES} names in objects")
    return json.loads(content, object_pairs_hook=_object)


def read_array_file(folder: Path, file: str) -> bytes:
    """Return the content of the arrays file that a manifest names. Raise FileNotFoundError if it does not exist."""
    path = folder / file
    # It must be a bare file name, not a path to another folder.
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
    """Return the content of an arrays file, after checking its length against its header."""
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
    """Return the total size in bytes of the arrays in a header. Raise ModelFileError for types that no model has."""
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
    """Write a fitted ranker to a folder, replacing any model there in one step.

    Args:
        ranker: a fitted ranker of this library, or fitted AdaptedVectors.
        folder: the destination; created if its parent folder exists.
        notes: any JSON data to store with the model, such as how its parameters were chosen.

    Raises:
        DataError: The folder contains other files or cannot be written.
        NotFittedError: The ranker is not fitted.

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
    """Write a model to a folder, replacing any model there in one step."""
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
                with contextlib.suppress(OSError):  # fails if the folder holds a model
                    path.rmdir()
    except OSError as error:
        raise DataError(f"{path}: the model cannot be written ({error.strerror}).") from None


def read_stored(path: Path) -> StoredModel:
    """Return a model in its stored form, to be written to another folder."""

    def read() -> StoredModel:
        body = read_body(path)
        return StoredModel(cast("JsonObject", body), _arrays_of(path, body["arrays"]))

    return read_steadily(path, MANIFEST, read)


def load(folder: PathLike) -> Ranker:
    """Return the fitted ranker in a folder, without executing code from it. Anything invalid raises ModelFileError.

    Args:
        folder: a folder written by `save`, `querywise fit` or `querywise adapt`.

    Returns:
        The ranker, whose scores are bit-identical to those before saving; or AdaptedVectors, if the folder holds those.

    Raises:
        ModelFileError: The folder has no model, is damaged, or is in another format.

    >>> from querywise import ModelFileError, load
    >>> try:
    ...     load("no-such-model")
    ... except ModelFileError as error:
    ...     print(error)
    no-such-model: not a model folder: there is no such folder. `querywise fit` and save(ranker, folder) make one.
    """
    path = Path(folder)
    found: Any = read_steadily(path, MANIFEST, lambda: _read(path))  # an adapter if one was saved
    ranker: Ranker = found
    return ranker


def load_ranker(folder: PathLike) -> Ranker:
    """Return the ranker in a folder. Raise ModelFileError if the folder holds an adapter."""
    found = load(folder)
    if not ranks(type(found)):
        raise ModelFileError(
            f"{folder}: this is an adapter of query vectors, which ranks nothing. Expected a ranker, as `querywise "
            "fit` saves it; `querywise adapt` uses an adapter."
        )
    return found


def _features(model: Ranker | QueryAdapter) -> tuple[int, tuple[str, ...] | None]:
    """Return the number of features and their names; an adapter has none."""
    return getattr(model, "feature_count_", 0), getattr(model, "feature_names_", None)


def _read(path: Path) -> Any:
    body = read_body(path)
    arrays = read_arrays(path, body["arrays"])
    ranker, features = decoded(body["ranker"], arrays, path), body["features"]
    names = None if features["names"] is None else tuple(features["names"])
    if _features(ranker) != (features["count"], names):
        raise ModelFileError(f"{path}: the model's features are not those of its manifest. Fit the model again.")
    if policy_of(ranker) != body["missing"]:
        raise ModelFileError(
            f"{path}: the manifest says that missing values are treated as {body['missing']!r}, the model "
            f"{policy_of(ranker)!r}. Fit the model again."
        )
    return ranker


def decoded(value: Json, arrays: Arrays, path: Path) -> Ranker | QueryAdapter:
    """Return the ranker or the adapter that a manifest and its arrays describe."""
    try:
        return decode(value, arrays)
    except ModelFileError:
        raise
    except Exception as error:  # noqa: BLE001 - a manifest written to do harm could raise anything
        said = error if isinstance(error, WrongValueError) else repr(error)
        raise ModelFileError(f"{path}: the manifest does not describe a model: {said}. Fit the model again.") from None


@contextlib.contextmanager
def _cleared(path: Path, age: float) -> Iterator[None]:
    """Remove, after the block, files that the manifest does not name: older arrays, and leftovers of killed processes.

    Files younger than `age` seconds stay: another process may be about to reference them.
    """
    try:
        yield
    finally:
        # If the folder cannot be understood, for example because of a damaged manifest, its files stay until a model is
        # saved.
        with contextlib.suppress(QuerywiseError, OSError, LookupError, TypeError):
            named = read_body(path)["arrays"]["file"] if (path / MANIFEST).exists() else None
            leftovers = [each for each in path.iterdir() if each.name not in (named, LOCK) and is_leftover(each.name)]
            for each in leftovers:
                if time.time() - each.lstat().st_mtime >= age:
                    each.unlink()


def promote(model: Path, over: Path) -> str:
    """Replace a model by another, keeping the previous one in a folder beside it; return the version now in place.

    A service that has the folder open picks up the change. If interrupted, either the old or the new model is in place,
    whole.
    """
    if model.resolve() == over.resolve():
        raise DataError(f"{model}: this model is already in place.", arguments=("over",))
    load_ranker(model)  # raises an error if it is damaged
    check_model_folder(over)
    refuse_link(before(over))
    if (over / MANIFEST).exists():
        put_stored(before(over), read_stored(over))
    put_stored(over, read_stored(model))
    return version_of(over)


def put_back(over: Path) -> str:
    """Swap the model and the previous one; return the version now in place."""
    other = before(over)
    refuse_link(other)
    if not (other / MANIFEST).exists():
        raise ModelFileError(f"{other}: there is no previous model. `querywise promote` keeps the one it replaces.")
    load_ranker(other)
    present = read_stored(over)
    put_stored(over, read_stored(other))
    put_stored(other, present)
    return version_of(over)


def before(over: Path) -> Path:
    """Return the folder of the previous model."""
    folder = over.resolve()
    return folder.with_name(folder.name + PREVIOUS)
