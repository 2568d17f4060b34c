"""Replacing a model by another in one step, and undoing it."""

from __future__ import annotations

from pathlib import Path

from querywise.errors import DataError, ModelFileError
from querywise.runtime.files import refuse_link
from querywise.storage.models import MANIFEST, check_model_folder, load_ranker, put_stored, read_stored, version_of

PREVIOUS = ".previous"  # suffix of the folder that keeps the previous model


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
