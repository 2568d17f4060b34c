"""One model put in the place of another in one step, and back again."""

from __future__ import annotations

from pathlib import Path

from querywise.errors import DataError, ModelFileError
from querywise.runtime.files import refuse_link
from querywise.storage.models import MANIFEST, check_model_folder, load_ranker, put_stored, read_stored, version_of

PREVIOUS = ".previous"  # what the folder of the model before is called after the folder


def promote(model: Path, over: Path) -> str:
    """Put a model in the place of another, which stays in the folder beside; the version that is in place then.

    A service that has the folder open takes it up. Interrupted, the one or the other is there whole.
    """
    if model.resolve() == over.resolve():
        raise DataError(f"{model}: this model is in place already.", arguments=("over",))
    load_ranker(model)  # refused if it is damaged
    check_model_folder(over)
    refuse_link(before(over))
    if (over / MANIFEST).exists():
        put_stored(before(over), read_stored(over))
    put_stored(over, read_stored(model))
    return version_of(over)


def put_back(over: Path) -> str:
    """Let the model and the one before change places; the version that is in place then."""
    other = before(over)
    refuse_link(other)
    if not (other / MANIFEST).exists():
        raise ModelFileError(f"{other}: there is no model from before. `querywise promote` keeps the one it replaces.")
    load_ranker(other)
    present = read_stored(over)
    put_stored(over, read_stored(other))
    put_stored(other, present)
    return version_of(over)


def before(over: Path) -> Path:
    """The folder of the model before."""
    folder = over.resolve()
    return folder.with_name(folder.name + PREVIOUS)
