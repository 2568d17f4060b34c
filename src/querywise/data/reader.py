"""What a reader of feature files is. Those that there are stand in `readers.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from querywise.data.judged import Judged, concatenate
from querywise.data.parquet.tables import LogColumns
from querywise.data.rows import Missing
from querywise.errors import DataError

Files = list[tuple[Path, Callable[[], Judged]]]  # each with a way to read it


@dataclass(frozen=True)
class Options:
    """How files are read.

    features: their number, where files leave out the last ones. missing: whether values may be missing. columns: of a
    Parquet log. names: the folder with the names of the features; None is that of the first file.
    """

    features: int | None = None
    missing: Missing = "refused"
    columns: LogColumns = field(default_factory=LogColumns)
    names: Path | None = None


@dataclass(frozen=True)
class Reader:
    """A kind of feature files.

    name: what messages call it.
    sniff: whether a path is of this kind; the first reader that says so reads it.
    read: paths of this kind as one judged set, without the query data beside them; `one_by_one` makes it of a function
    that reads one path.
    files: the files of a path, which `querywise convert` reads one at a time; None where a path is one file.
    may_lack: whether the values of a feature can be missing.
    own_queries: whether it holds query data itself, so that none is looked for beside it.
    width: the number of features of a file, where files of one set can have different ones.
    """

    name: str
    sniff: Callable[[Path], bool]
    read: Callable[[Sequence[Path], Options], Judged]
    files: Callable[[Path, Options], Files] | None = None
    may_lack: bool = False
    own_queries: bool = False
    width: Callable[[Path], int] | None = None

    def read_together(self, paths: Sequence[Path], options: Options) -> Judged:
        """Paths of this kind as one judged set with as many features as the options say."""
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
        """The files of a path, to be read one at a time."""
        if self.files is not None:
            return self.files(path, options)
        return [(path, partial(self.read_together, [path], options))]


def one_by_one(read: Callable[[Path, Options], Judged]) -> Callable[[Sequence[Path], Options], Judged]:
    """What reads several paths, of what reads one."""

    def read_all(paths: Sequence[Path], options: Options) -> Judged:
        sets = [read(path, options) for path in paths]
        return sets[0] if len(sets) == 1 else concatenate(sets)

    return read_all
