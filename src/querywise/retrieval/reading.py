"""Anything a user has, text included, as a judged set or as folds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from querywise.data.collections import Collection, read_collection
from querywise.data.coverage import Coverage
from querywise.data.folds import Folds, make_folds, read_folds
from querywise.data.judged import Judged
from querywise.data.letor import PathLike
from querywise.data.queries import read_queries
from querywise.data.sources import Kind, kind_of, paths_of, read_features
from querywise.errors import DataError
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import build_index
from querywise.retrieval.stdlib import NAME, stdlib_collection
from querywise.runtime.progress import doing


def read_judged(
    data: PathLike | Sequence[PathLike],
    *,
    features: int | None = None,
    queries: PathLike | None = None,
    judgements: PathLike | None = None,
    top: int = 100,
) -> Judged:
    """One judged set of whatever the command line takes: one path or several.

    LETOR files (plain, .gz, .xz), shards and Parquet logs are read as one set, with `queries.jsonl` and `features.txt`
    beside the first of them; features: their number, for sparse files that leave out the last columns. Of a text
    collection (a folder, a corpus file, or `stdlib`, the embedded one) it is BM25's `top` candidates of every judged
    query with the 25 rankers' scores. queries, judgements: these files where they are elsewhere.
    """
    paths = paths_of(data)
    if len(paths) == 1 and is_collection(paths[0]):
        return judged_from_text(paths[0], queries=queries, judgements=judgements, top=top)[0]
    folder = next((path for path in paths if kind_of(path) is Kind.FOLDER), None)
    if folder is not None:
        raise DataError(
            f"{folder}: this is a folder, and no set of shards, log or text collection. read_folds reads folds."
        )
    if judgements is not None:
        raise DataError(f"{paths[0]}: judgements belong to a text collection; feature files have labels of their own.")
    return read_features(paths, features=features, queries=queries)


def folds_of(
    data: Path,
    queries: Path | None,
    *,
    seed: int = 0,
    judgements: Path | None = None,
    top: int = 100,
    skip_unknown: bool = False,
) -> Folds:
    """The folds of a folder, or one file or text collection cut into five; what follows `seed` is for text alone."""
    if is_collection(data):
        found = judged_from_text(data, queries=queries, judgements=judgements, top=top, skip_unknown=skip_unknown)
        return make_folds(found[0], seed=seed)
    if kind_of(data) is not Kind.FOLDER:
        return make_folds(read_features(data, queries=queries), seed=seed)
    folds = read_folds(data)
    return folds if queries is None else folds.with_queries(read_queries(queries))


def is_collection(data: Path) -> bool:
    """Whether a path is a text collection rather than feature files: a folder with a corpus, or the embedded one."""
    return kind_of(data) is Kind.COLLECTION or _is_embedded(data)


def collection_from(data: Path, *, queries: PathLike | None = None, judgements: PathLike | None = None) -> Collection:
    """A text collection: a folder, a corpus file, or `stdlib`, the embedded one."""
    if not _is_embedded(data):
        return read_collection(data, queries=queries, judgements=judgements)
    if queries is not None or judgements is not None:
        raise DataError(f"{NAME} has queries and judgements of its own; no others can be given beside them.")
    return stdlib_collection()


def judged_from_text(
    data: Path,
    *,
    queries: PathLike | None = None,
    judgements: PathLike | None = None,
    top: int = 100,
    add_judged: bool = False,
    skip_unknown: bool = False,
) -> tuple[Judged, Coverage]:
    """The judged candidates of a text collection, and what they cover."""
    collection = collection_from(data, queries=queries, judgements=judgements)
    with doing("Indexing"):
        index = build_index(collection.documents())
    return judged_candidates(collection, index, top=top, add_judged=add_judged, skip_unknown=skip_unknown)


def _is_embedded(data: Path) -> bool:
    return str(data) == NAME and not data.exists()
