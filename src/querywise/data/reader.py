"""The interface of readers of feature files. The readers themselves are in `readers.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from querywise.data.judged import Judged, concatenate
from querywise.data.parquet.tables import LogColumns
from querywise.data.rows import Missing
from querywise.errors import DataError

Files = list[tuple[Path, Callable[[], Judged]]]  # each with a function that reads it


@dataclass(frozen=True)
class Options:
    """Options for reading files.

    Attributes:
        features: the number of features, if files lack the last ones.
        missing: whether values may be missing.
        columns: the columns of a Parquet log.
        names: the folder with the names of the features; None means that of the first file.
    """

    features: int | None = None
    missing: Missing = "refused"
    columns: LogColumns = field(default_factory=LogColumns)
    names: Path | None = None


@dataclass(frozen=True)
class Reader:
    """A kind of feature files.

    Attributes:
        name: its name in messages.
        sniff: returns whether a path is of this kind; the first reader that recognizes a path reads it.
        read: reads paths of this kind as one judged set, without the query data beside them; `one_by_one` makes it from
            a function that reads one path.
        files: returns the files of a path, which `querywise convert` reads one at a time; None if a path is one file.
        may_lack: whether feature values can be missing.
        own_queries: whether it includes query data, so that side files are ignored.
        width: returns the number of features of a file, if files of one set can differ.
    """

    name: str
    sniff: Callable[[Path], bool]
    read: Callable[[Sequence[Path], Options], Judged]
    files: Callable[[Path, Options], Files] | None = None
    may_lack: bool = False
    own_queries: bool = False
    width: Callable[[Path], int] | None = None

    def read_together(self, paths: Sequence[Path], options: Options) -> Judged:
        """Read paths of this kind as one judged set with as many features as the options say."""
        judged = self.read(paths, options)
        if options.features is None:
            return judged
        if judged.feature_count > options.features:
            raise DataError(
                f"{paths[0]}: there are {judged.feature_count} features; features={options.features} is too few.",
                arguments=("features",),
            )
        return judged.widened(options.features)

    def parts(self, path: Path, options: Options) -> Files:
        """Return the files of a path, to be read one at a time."""
        if self.files is not None:
            return self.files(path, options)
        return [(path, partial(self.read_together, [path], options))]


def one_by_one(read: Callable[[Path, Options], Judged]) -> Callable[[Sequence[Path], Options], Judged]:
    """Return a function that reads several paths, given one that reads a single path."""

    def read_all(paths: Sequence[Path], options: Options) -> Judged:
        sets = [read(path, options) for path in paths]
        return sets[0] if len(sets) == 1 else concatenate(sets)

    return read_all
