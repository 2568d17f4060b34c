"""A fitted ranker ↔ one folder: `manifest.json` and one file of arrays. Loading executes nothing.

The manifest says which class, with which parameters, learned which values, and names its arrays file by content.
The new model replaces the old one in one step, with the manifest: a reader of the folder gets the old model or the new
one, whole.
"""

from __future__ import annotations

import contextlib
import json
from importlib.metadata import version
from pathlib import Path

from querywise.contracts.protocols import Ranker
from querywise.data.letor import PathLike
from querywise.errors import DataError, ModelFileError, NotFittedError
from querywise.runtime.files import atomic_text
from querywise.runtime.values import Settings
from querywise.storage.encoding import check_savable, decode, encode
from querywise.storage.folder import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    Body,
    check_model_folder,
    digest_of,
    read_arrays,
    read_body,
    write_arrays,
)

_LIBRARIES = ("numpy", "scipy", "lightgbm")


def save(ranker: Ranker, folder: PathLike, *, notes: Settings | None = None) -> None:
    """Write a fitted ranker to a folder, replacing the model that is there, if any, in one step.

    `notes` is anything JSON can hold that should travel with the model, such as how its parameters were chosen.
    """
    path = Path(folder)
    check_model_folder(path)
    check_savable(ranker)
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    encoded, arrays = encode(ranker)
    try:
        created = not path.exists()
        path.mkdir(exist_ok=True)
        try:
            file, digest = write_arrays(path, arrays)
            body: Body = {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "versions": {name: version(name) for name in ("querywise", *_LIBRARIES)},
                "features": {"count": ranker.feature_count_, "names": getattr(ranker, "feature_names_", None)},
                "missing": "zero",
                "arrays": {"file": file, "sha256": digest},
                "ranker": encoded,
                "notes": dict(notes or {}),
            }
            with atomic_text(path / MANIFEST) as out:
                json.dump({**body, "sha256": digest_of(body)}, out, indent=1)
                out.write("\n")
        finally:
            if created and not (path / MANIFEST).exists():
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
        body = read_body(path)
        try:
            arrays = read_arrays(path, body["arrays"])
        except FileNotFoundError:
            if attempt < 4:
                continue  # the model was replaced between the two reads: take the new one
            raise ModelFileError(f"{path}: the arrays file {body['arrays']['file']} is missing.") from None
        try:
            return decode(body["ranker"], arrays)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"{path}: the manifest does not describe a model ({error!r}).") from None
    raise AssertionError("unreachable")


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        for file in path.iterdir():
            file.unlink(missing_ok=True)
        path.rmdir()
