"""Interrupted work is resumed: finished parts are kept in a folder, with a record of what exactly is being done.

Finished parts are used again only if the record is the very same: settings, data, version. Else the work starts anew.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from querywise.errors import DataError
from querywise.runtime.files import atomic_text, make_folder, make_own_folder, read_stored_text
from querywise.runtime.locks import locked
from querywise.runtime.stopping import keeping
from querywise.runtime.values import Json, JsonObject, Settings

RECORD = "record.json"


@dataclass(frozen=True)
class Record:
    """A JSON file with the settings that the files beside it were made with.

    settings: everything that the result depends on.
    """

    path: Path
    settings: Json

    def read(self) -> JsonObject | None:
        """What was written with the same settings; None if they are others, or there is no whole record."""
        if not self.path.is_file():
            return None
        try:
            content: JsonObject = json.loads(read_stored_text(self.path))
            same = _as_text(content.pop("settings")) == _as_text(self.settings)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, DataError):
            return None
        return content if same else None

    def write(self, content: Settings | None = None) -> None:
        """Write the settings and, with them, what else is to be known of the result."""
        with atomic_text(self.path) as out:
            json.dump({"settings": self.settings, **(content or {})}, out, indent=1)


@contextlib.contextmanager
def resume_folder(folder: Path, settings: Json) -> Iterator[None]:
    """Keep a folder for finished parts while the block runs; parts that were made with other settings are removed.

    Parts are written under a name that begins with a dot and renamed, so that each is there whole or not at all. The
    folder is removed when the block ends well, or badly with no part finished. Only one run at a time may use it.
    """
    make_folder(folder.parent)
    with locked(folder.with_name(f"{folder.name}.lock"), busy=f"{folder}: another run keeps its finished parts here"):
        make_own_folder(folder)
        record = Record(folder / RECORD, settings)
        if record.read() is None or any(each.is_symlink() for each in folder.rglob("*")):  # no run leaves links
            shutil.rmtree(folder, ignore_errors=True)
            make_own_folder(folder)
            record.write()
        over = False
        try:
            with keeping(lambda: f"what is finished is kept in {folder}" if _has_parts(folder) else ""):
                yield
            over = True
        finally:
            if over or not _has_parts(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _has_parts(folder: Path) -> bool:
    return folder.is_dir() and any(each.name != RECORD and not each.name.startswith(".") for each in folder.iterdir())


def _as_text(settings: Json) -> str:
    return json.dumps(settings, sort_keys=True)
