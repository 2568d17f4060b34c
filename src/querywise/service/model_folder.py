"""The model folder that is served, and reloading the model when the folder changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from querywise.errors import QuerywiseError
from querywise.service.loaded_model import LoadedModel

Outcome = Literal["same", "replaced", "refused"]


class ModelFolder:
    """The last model of a folder that was loaded without an error; `problem` says why the present one was not loaded.

    accept: raises an error for a new model that does not fit the index or the judged queries that are served.
    """

    def __init__(self, folder: Path, accept: Callable[[LoadedModel], None] | None = None) -> None:
        self.folder = folder
        self.accept = accept
        self._state = self._read_state()
        self.current = LoadedModel.from_folder(folder)
        self.problem: str | None = None

    def refresh(self) -> Outcome:
        """Load the model again if the files have changed; the old one stays if the new one cannot be used."""
        state = self._read_state()
        if state == self._state:
            return "same"
        try:
            loaded = LoadedModel.from_folder(self.folder)
            if self.accept is not None:
                self.accept(loaded)
        except Exception as error:  # noqa: BLE001 - whatever is put into the folder, the service goes on
            self.problem = str(error) if isinstance(error, QuerywiseError) else f"{type(error).__name__}: {error}"
            # The same files are not tried again; a folder that is still being copied changes, and is.
            self._state = state
            return "refused"
        self._state, self.problem = state, None
        if loaded.version == self.current.version:
            return "same"
        self.current = loaded
        return "replaced"

    def _read_state(self) -> tuple[tuple[str, int, int, int], ...]:
        """Name, time, size and inode of every file that is no writer's own: what changes when a file does, unread."""
        try:
            entries = sorted(self.folder.iterdir())
            found = [(each.name, _stat(each)) for each in entries if not each.name.startswith(".")]
        except OSError:
            return ()
        return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in found)


def _stat(path: Path) -> os.stat_result:
    """Of a file, or, where a link leads nowhere, of the link."""
    try:
        return path.stat()
    except OSError:
        return path.lstat()
