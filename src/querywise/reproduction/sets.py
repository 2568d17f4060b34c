"""Several sets in one table: each in a folder of its own, which is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from querywise.data.folds import Folds
from querywise.runtime.progress import track

Sets = Mapping[str, Callable[[], Folds]]  # by name, what reads one


def each_in_a_folder(sets: Sets, out: Path, reproduce: Callable[[Folds, Path], Path], kept: str) -> dict[str, Path]:
    """Make what is asked of each set, and return the folders by name.

    kept: a file that is written last. A set whose folder has it already is not made again, so that hours of work go on
    where they were interrupted.
    """
    folders = {name: out / name.replace(" ", "-") for name in sets}
    for name, folds in track(list(sets.items()), "Sets"):
        if not (folders[name] / kept).exists():
            reproduce(folds(), folders[name])
    return folders
