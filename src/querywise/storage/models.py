"""A fitted ranker ↔ one folder: `manifest.json` and one file of arrays. Loading executes nothing.

The manifest says which class, with which parameters, learned which values, and names its arrays file by content.
The new model replaces the old one in one step, with the manifest: a reader of the folder gets the old model or the new
one, whole.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from querywise.contracts.missing import policy_of
from querywise.contracts.protocols import Ranker
from querywise.errors import DataError, ModelFileError, NotFittedError, QuerywiseError
from querywise.runtime.arrays import Arrays
from querywise.runtime.files import PathLike, atomic_text, read_steadily
from querywise.runtime.locks import locked
from querywise.runtime.stored import WrongValueError
from querywise.runtime.values import Json, Settings
from querywise.storage.decoding import decode
from querywise.storage.encoding import check_savable, encode
from querywise.storage.folder import (
    FORMAT,
    FORMAT_VERSION,
    LOCK,
    MANIFEST,
    Body,
    check_model_folder,
    digest_of,
    is_leftover,
    read_arrays,
    read_body,
    write_arrays,
)

_LIBRARIES = ("numpy", "scipy", "lightgbm")
_SAFE_SECONDS = 3600.0  # where nothing can be locked, another process may be about to name a file younger than this


def save(ranker: Ranker, folder: PathLike, *, notes: Settings | None = None) -> None:
    """Write a fitted ranker to a folder, replacing the model that is there, if any, in one step.

    ranker: a fitted ranker of this library.
    folder: where to; made if it is not there, in a folder that is.
    notes: anything JSON can hold that should travel with the model, such as how its parameters were chosen.

    Refused: with DataError, a folder with other files in it, and one that cannot be written; with NotFittedError, a
    ranker that is not fitted.

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
    path = Path(folder)
    check_model_folder(path)
    check_savable(ranker)
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    encoded, arrays = encode(ranker)
    created = not path.exists()
    try:
        path.mkdir(exist_ok=True)
        try:
            with locked(path / LOCK) as alone, _cleared(path, 0.0 if alone else _SAFE_SECONDS):
                file, digest = write_arrays(path, arrays)
                body: Body = {
                    "format": FORMAT,
                    "format_version": FORMAT_VERSION,
                    "versions": {name: version(name) for name in ("querywise", *_LIBRARIES)},
                    "features": {"count": ranker.feature_count_, "names": getattr(ranker, "feature_names_", None)},
                    "missing": policy_of(ranker),
                    "arrays": {"file": file, "sha256": digest},
                    "ranker": encoded,
                    "notes": dict(notes or {}),
                }
                with atomic_text(path / MANIFEST) as out:
                    json.dump({**body, "sha256": digest_of(body)}, out, indent=1)
                    out.write("\n")
        finally:
            if created:
                with contextlib.suppress(OSError):  # there is a model in it
                    path.rmdir()
    except OSError as error:
        raise DataError(f"{path}: the model cannot be written ({error.strerror}).") from None


def load(folder: PathLike) -> Ranker:
    """The fitted ranker in a folder. Nothing in the folder is executed; anything odd about it is refused.

    folder: one that `save` or `querywise fit` wrote.

    Returns: the ranker; its scores are the same bits as before.

    Refused: with ModelFileError, a folder without a model, one that is damaged, and one of another format.

    >>> from querywise import ModelFileError, load
    >>> try:
    ...     load("no-such-model")
    ... except ModelFileError as error:
    ...     print(error)
    no-such-model: not a model folder: there is no such folder. `querywise fit` and save(ranker, folder) make one.
    """
    path = Path(folder)
    return read_steadily(path, MANIFEST, lambda: _read(path))


def _read(path: Path) -> Ranker:
    body = read_body(path)
    try:
        arrays = read_arrays(path, body["arrays"])
    except FileNotFoundError:
        raise ModelFileError(f"{path}: the arrays file {body['arrays']['file']} is missing.") from None
    ranker, features = decoded(body["ranker"], arrays, path), body["features"]
    names = None if features["names"] is None else tuple(features["names"])
    if (ranker.feature_count_, ranker.feature_names_) != (features["count"], names):
        raise ModelFileError(f"{path}: the model has other features than its manifest says. Fit the model anew.")
    if policy_of(ranker) != body["missing"]:
        raise ModelFileError(
            f"{path}: the manifest says that missing values are treated as {body['missing']!r}, the model "
            f"{policy_of(ranker)!r}. Fit the model anew."
        )
    return ranker


def decoded(value: Json, arrays: Arrays, path: Path) -> Ranker:
    """The ranker that a manifest and its arrays describe."""
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
