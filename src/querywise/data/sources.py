"""What kind of file a path is, and feature files of any kind as one judged set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from querywise.data.joining import concatenate
from querywise.data.judged import Judged
from querywise.data.letor import PathLike, read_letor
from querywise.data.missing import Missing
from querywise.data.parquet.logs import read_parquet
from querywise.data.parquet.shards import is_sharded, open_shards
from querywise.data.sidefiles import with_side_files, with_side_judgements, with_side_queries
from querywise.data.training import Training
from querywise.errors import DataError


class Kind(Enum):
    """What a path holds; the value is what messages call it."""

    LETOR = "LETOR text"
    SHARDS = "shards"
    LOG = "a Parquet log"
    COLLECTION = "a text collection"
    FOLDER = "a folder"  # of folds, or of something else


def kind_of(path: Path) -> Kind:
    """The kind of a path; a missing one counts as LETOR text, whose reader reports it."""
    if is_sharded(path):
        return Kind.SHARDS
    if path.suffix == ".jsonl" or (path / "corpus.jsonl").is_file():
        return Kind.COLLECTION
    if not path.is_dir():
        return Kind.LOG if path.suffix == ".parquet" else Kind.LETOR
    return Kind.LOG if any(each.suffix == ".parquet" for each in path.iterdir()) else Kind.FOLDER


def paths_of(data: PathLike | Sequence[PathLike]) -> list[Path]:
    """One path or several, as a list."""
    return [Path(data)] if isinstance(data, (str, os.PathLike)) else [Path(each) for each in data]


def read_features(
    data: PathLike | Sequence[PathLike],
    *,
    features: int | None = None,
    queries: PathLike | None = None,
    missing: Missing = "refused",
) -> Judged:
    """LETOR files, shards or Parquet logs as one judged set, with the side files of the first.

    missing: whether features of a log may be missing; LETOR files and shards hold numbers alone.
    """
    paths = paths_of(data)
    if not paths:
        raise DataError("No file to read was given.")
    kind, folder = kind_of(paths[0]), paths[0] if paths[0].is_dir() else paths[0].parent
    odd = next((path for path in paths if kind_of(path) != kind), None)
    if odd is not None:
        raise DataError(
            f"{paths[0]} is {kind.value}, {odd} is {kind_of(odd).value}: `querywise convert` makes one set of them."
        )
    table = None if queries is None else Path(queries)
    if kind not in (Kind.SHARDS, Kind.LOG):
        read = with_side_judgements(read_letor(paths, features=features), paths)
        return with_side_files(read, folder, queries=table)
    judged = _whole(paths) if kind is Kind.SHARDS else read_parquet(paths, missing=missing)
    found = judged.candidates.features.shape[1]
    if features is not None and found > features:
        said = f"{paths[0]}: there are {found} features; features={features} is too few."
        raise DataError(said, arguments=("features",))
    if queries is not None or kind is Kind.LOG:
        judged = with_side_queries(judged, folder, queries=table)
    return judged if features is None else judged.widened(features)


def open_features(
    data: PathLike | Sequence[PathLike],
    *,
    features: int | None = None,
    queries: PathLike | None = None,
    missing: Missing = "refused",
) -> Training:
    """One set of shards as it is, to be read part by part; anything else as one judged set in memory."""
    paths = paths_of(data)
    as_it_is = len(paths) == 1 and is_sharded(paths[0]) and features is None and queries is None
    if as_it_is:
        return open_shards(paths[0])
    return read_features(paths, features=features, queries=queries, missing=missing)


def check_may_lack(data: PathLike | Sequence[PathLike], missing: Missing) -> None:
    """Refuse a model's policy for missing values on training data that cannot have them; a missing file is not ours."""
    for path in paths_of(data) if missing == "allowed" else []:
        kind = kind_of(path)
        if kind in (Kind.LETOR, Kind.SHARDS, Kind.FOLDER) and path.exists():
            found = "LETOR files" if kind is Kind.FOLDER else kind.value
            raise DataError(
                f"{path}: the settings missing=mean and missing=native are for data that can lack values, and {found} "
                "cannot: a feature that is left out is 0 there. Leave the setting out; or train on a Parquet log, or "
                "in Python on arrays or tables, where values are missing as null or NaN."
            )


def _whole(folders: Sequence[Path]) -> Judged:
    """Sets of shards in memory, as one."""
    sets = [open_shards(folder).whole() for folder in folders]
    return sets[0] if len(sets) == 1 else concatenate(sets)
