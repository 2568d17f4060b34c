"""Kinds of feature files: how each is recognized and read. To add a kind, add a line to `READERS`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from querywise.data.click_files import is_click_log
from querywise.data.click_judgments import FEATURES, WEIGHTS, is_click_folder, judged_by_clicks, weighed_by_clicks
from querywise.data.judged import Judged
from querywise.data.letor import letor_width, read_letor, with_side_judgements, with_side_names, with_side_queries
from querywise.data.parquet.shards import is_sharded, open_shards
from querywise.data.parquet.tables import log_files, read_parquet
from querywise.data.reader import Files, Options, Reader, one_by_one
from querywise.data.records import CORPUS, corpus_in
from querywise.data.rows import Missing
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.runtime.files import PathLike, paths_of


def _read_letor(paths: Sequence[Path], options: Options) -> Judged:
    read = with_side_judgements(read_letor(paths, features=options.features), paths)
    return with_side_names(read, options.names or folder_of(paths[0]))


def _read_shards(folder: Path, _: Options) -> Judged:
    return open_shards(folder).whole()


def _read_logs(paths: Sequence[Path], options: Options) -> Judged:
    return read_parquet(paths, **asdict(options.columns), missing=options.missing)


def _log_files(path: Path, options: Options) -> Files:
    return [(file, partial(read_parquet, file, **asdict(options.columns))) for file in log_files(path)]


def _read_click_folder(folder: Path, options: Options) -> Judged:
    if not (folder / FEATURES).is_file():
        raise DataError(
            f"{folder}: these are judgments from clicks without documents, so there is nothing to learn from. Make "
            "them again by `querywise clicks` with the text collection or the feature log that was searched."
        )
    pairs = (folder / WEIGHTS).is_file()
    log = read_parquet(folder / FEATURES, label="label" if pairs else None, missing=options.missing)
    return weighed_by_clicks(log, folder) if pairs else judged_by_clicks(log, folder)


def _refuse_click_log(path: Path, _: Options) -> Judged:
    raise DataError(
        f"{path}: this is a click log, which has no features and no grades. `querywise clicks {path}`, given the text "
        "collection or feature log that was searched, writes a folder of judgments, which is read here."
    )


def _is_text(path: Path) -> bool:
    return path.suffix == ".jsonl" or path.name in CORPUS or (path.is_dir() and corpus_in(path) is not None)


def _is_log(path: Path) -> bool:
    return any(each.suffix == ".parquet" for each in (path.iterdir() if path.is_dir() else [path]))


LETOR = Reader("LETOR text", lambda path: not path.is_dir(), _read_letor, width=letor_width)
TEXT = replace(LETOR, name="a text collection", sniff=_is_text, may_lack=True)  # read by `retrieval/reading.py`
FOLDER = replace(LETOR, name="a folder", sniff=Path.is_dir)  # a folder of folds, or something else
READERS = (  # the first that recognizes a path reads it
    Reader(
        "shards", is_sharded, one_by_one(_read_shards), lambda path, _: open_shards(path).pieces(), own_queries=True
    ),
    TEXT,
    Reader("judgments from clicks", is_click_folder, one_by_one(_read_click_folder), may_lack=True),
    Reader("a click log", is_click_log, one_by_one(_refuse_click_log)),
    Reader("a Parquet log", _is_log, _read_logs, _log_files, may_lack=True),
    LETOR,  # any other file
    FOLDER,  # any other folder
)


def reader_of(path: Path) -> Reader:
    """Return the reader of a path; a missing path counts as LETOR text, whose reader reports it."""
    return next(reader for reader in READERS if reader.sniff(path))


def folder_of(path: Path) -> Path:
    """Return the folder of a path's side files."""
    return path if path.is_dir() else path.parent


def read_features(
    data: PathLike | Sequence[PathLike],
    *,
    features: int | None = None,
    queries: PathLike | None = None,
    missing: Missing = "refused",
) -> Judged:
    """Read feature files of one kind as one judged set, with the side files of the first.

    `missing` says whether features of a log may be missing; in LETOR files and shards they cannot be.
    """
    paths = paths_of(data)
    if not paths:
        raise DataError("No file to read was given.")
    reader = reader_of(paths[0])
    odd = next((path for path in paths if reader_of(path) is not reader), None)
    if odd is not None:
        raise DataError(
            f"{paths[0]} is {reader.name}, {odd} is {reader_of(odd).name}: `querywise convert` makes one set of them."
        )
    judged = reader.read_together(paths, Options(features, missing))
    if reader.own_queries and queries is None:
        return judged
    return with_side_queries(judged, folder_of(paths[0]), queries=None if queries is None else Path(queries))


def open_features(
    data: PathLike | Sequence[PathLike],
    *,
    features: int | None = None,
    queries: PathLike | None = None,
    missing: Missing = "refused",
) -> Training:
    """Return a single set of shards unread, to be loaded part by part; read anything else as one judged set."""
    paths = paths_of(data)
    as_it_is = len(paths) == 1 and is_sharded(paths[0]) and features is None and queries is None
    if as_it_is:
        return open_shards(paths[0])
    return read_features(paths, features=features, queries=queries, missing=missing)


def check_may_lack(data: PathLike | Sequence[PathLike], missing: Missing) -> None:
    """Raise DataError if a model has a policy for missing values but the data cannot have any; skip missing files."""
    for path in paths_of(data) if missing == "allowed" else []:
        reader = reader_of(path)
        if not reader.may_lack and path.exists():
            found = "LETOR files" if reader is FOLDER else reader.name
            raise DataError(
                f"{path}: the settings missing=mean and missing=native are for data with missing values, which {found} "
                "cannot have: a feature that is left out is 0. Leave the setting out; or train on a Parquet log, or "
                "in Python on arrays or tables, where values are missing as null or NaN."
            )
