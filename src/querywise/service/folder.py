"""The model folder that is being served: a model replaced there takes the old one's place, whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from querywise.errors import QuerywiseError
from querywise.service.loaded_model import Served

Outcome = Literal["same", "replaced", "refused"]


class ModelFolder:
    """The model of a folder as it was last read without fault; `problem` says why what is there now is not served.

    accept: raises an error for a new model that does not go with what else is being served.
    """

    def __init__(self, folder: Path, accept: Callable[[Served], None] | None = None) -> None:
        self.folder = folder
        self.accept = accept
        self._stamp = self._found()
        self.current = Served.of(folder)
        self.problem: str | None = None

    def refresh(self) -> Outcome:
        """Look at the folder; serve what is there if it is another model, and a good one."""
        stamp = self._found()
        if stamp == self._stamp:
            return "same"
        try:
            fresh = Served.of(self.folder)
            if self.accept is not None:
                self.accept(fresh)
        except (QuerywiseError, OSError, MemoryError) as error:
            self.problem = str(error)
            # A folder that is being copied is looked at again; one that stays as it is, only once.
            self._stamp = stamp
            return "refused"
        self._stamp, self.problem = stamp, None
        if fresh.version == self.current.version:
            return "same"
        self.current = fresh
        return "replaced"

    def _found(self) -> tuple[tuple[str, int, int, int], ...]:
        """What tells one state of the folder from another, without reading it."""
        try:
            entries = sorted(self.folder.iterdir())
            found = [(each.name, each.stat()) for each in entries if not each.name.endswith(".part")]
        except OSError:
            return ()
        return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in found)
