"""What the arguments of a command stand for: data, folds, collections, settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from querywise.data.collections import Collection
    from querywise.data.folds import Folds
    from querywise.data.judged import Judged
    from querywise.data.training import Training
    from querywise.retrieval.features import Coverage
    from querywise.runtime.values import JsonObject


def local_settings(k: str | None, clusters: str | None, view: str | None, reference: str | None) -> JsonObject:
    """The options of query-dependent methods, as the methods take them: columns counted from 0."""
    from querywise.errors import DataError

    fixed: JsonObject = {}
    for name, text, what in (("k", k, "queries"), ("clusters", clusters, "clusters")):
        if text is not None and text != "auto":
            try:
                fixed[name] = int(text) if text.isdigit() else float(text)
            except ValueError:
                raise DataError(f"--{name} {text}: expected a number of {what}, a share like 0.2, or auto.") from None
    if view is not None:
        fixed["view"] = view
    if reference is not None:
        fixed["reference"] = feature_from(reference)
    return fixed


def feature_from(text: str) -> int | str:
    """A feature by name, or by its number in the file, counted from 1."""
    from querywise.errors import DataError

    if text.lstrip("+-").isdigit():
        if int(text) < 1:
            raise DataError(f"--reference {text}: columns are numbered from 1.")
        return int(text) - 1
    return text


def read_data(paths: list[Path], *, features: int | None = None, queries: Path | None = None) -> Judged:
    """LETOR files, shards or Parquet logs as one judged set, with what stands beside the first of them."""
    from querywise.data.letor import read_letor
    from querywise.data.parquet.conversion import kind_of
    from querywise.data.parquet.logs import read_parquet
    from querywise.data.sidefiles import with_side_files, with_side_queries
    from querywise.errors import DataError

    kind, folder = kind_of(paths[0]), paths[0] if paths[0].is_dir() else paths[0].parent
    odd = next((path for path in paths if kind_of(path) != kind), None)
    if odd is not None:
        raise DataError(f"{paths[0]} is {kind}, {odd} is {kind_of(odd)}: `querywise convert` makes one set of them.")
    if kind == "LETOR text":
        return with_side_files(read_letor(paths, features=features), folder, queries=queries)
    data = whole_of(paths) if kind == "shards" else read_parquet(paths)
    found = data.candidates.features.shape[1]
    if features is not None and found > features:
        raise DataError(f"{paths[0]}: there are {found} features, --features says {features}.")
    if queries is not None or kind != "shards":
        data = with_side_queries(data, folder, queries=queries)
    return data if features is None else data.widened(features)


def read_parts(paths: list[Path], *, features: int | None = None, queries: Path | None = None) -> Training:
    """One set of shards as it is, to be gone through part by part; anything else as one judged set in memory."""
    from querywise.data.parquet.shards import is_sharded, open_shards

    as_it_is = len(paths) == 1 and is_sharded(paths[0]) and features is None and queries is None
    return open_shards(paths[0]) if as_it_is else read_data(paths, features=features, queries=queries)


def whole_of(folders: list[Path]) -> Judged:
    """Sets of shards in memory, as one."""
    from querywise.data.judged import concatenate
    from querywise.data.parquet.shards import open_shards

    sets = [open_shards(folder).whole() for folder in folders]
    return sets[0] if len(sets) == 1 else concatenate(sets)


def is_parquet(path: Path) -> bool:
    """Whether a path is shards or a feature log, and not a LETOR file or a folder of folds."""
    from querywise.data.parquet.conversion import kind_of

    return kind_of(path) != "LETOR text"


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
    from querywise.data.folds import make_folds, read_folds
    from querywise.data.queries import read_queries

    if is_collection(data):
        found = judged_from_text(data, queries=queries, judgements=judgements, top=top, skip_unknown=skip_unknown)
        return make_folds(found[0], seed=seed)
    if not data.is_dir() or is_parquet(data):
        return make_folds(read_data([data], queries=queries), seed=seed)
    folds = read_folds(data)
    return folds if queries is None else folds.with_queries(read_queries(queries))


def is_collection(data: Path) -> bool:
    """Whether a path is a text collection rather than feature files: a folder with a corpus, or the embedded one."""
    from querywise.retrieval.stdlib import NAME

    return (data / "corpus.jsonl").is_file() or data.suffix == ".jsonl" or (str(data) == NAME and not data.exists())


def collection_from(data: Path, *, queries: Path | None = None, judgements: Path | None = None) -> Collection:
    """A text collection: a folder, a corpus file, or `stdlib`, the embedded one."""
    from querywise.data.collections import read_collection
    from querywise.errors import DataError
    from querywise.retrieval.stdlib import NAME, stdlib_collection

    if str(data) == NAME and not data.exists():
        if queries is not None or judgements is not None:
            raise DataError(f"{NAME} has queries and judgements of its own; leave out --queries and --qrels.")
        return stdlib_collection()
    return read_collection(data, queries=queries, judgements=judgements)


def judged_from_text(
    data: Path,
    *,
    queries: Path | None = None,
    judgements: Path | None = None,
    top: int = 100,
    add_judged: bool = False,
    skip_unknown: bool = False,
) -> tuple[Judged, Coverage]:
    """The judged candidates of a text collection, and what they cover."""
    from querywise.retrieval.features import judged_candidates
    from querywise.retrieval.index import build_index
    from querywise.runtime.progress import doing

    collection = collection_from(data, queries=queries, judgements=judgements)
    with doing("Indexing"):
        index = build_index(collection.documents())
    return judged_candidates(collection, index, top=top, add_judged=add_judged, skip_unknown=skip_unknown)


def read_training(
    data: list[Path], valid: list[Path], *, fold: int | None, features: int | None, queries: Path | None
) -> tuple[Training, Judged | None]:
    """The training part and, where there is one, the validation part."""
    from querywise.errors import DataError

    if fold is None:
        folder = next((path for path in data if path.is_dir() and not is_parquet(path)), None)
        if folder is not None:
            raise DataError(f"{folder}: this is a folder; say which of its folds to train on with --fold.")
        train = read_parts(data, features=features, queries=queries)
        return train, read_data(valid, features=features, queries=queries) if valid else None
    if len(data) != 1 or valid:
        raise DataError("--fold takes one folder, and its validation part; leave out other files and --valid.")
    if not data[0].is_dir() and not is_collection(data[0]):
        raise DataError(f"{data[0]}: --fold takes a folder of folds, with Fold1..Fold5 or S1.txt..S5.txt in it.")
    folds = folds_of(data[0], queries)
    if fold > len(folds):
        raise DataError(f"--fold {fold}: {data[0]} has {len(folds)} folds.")
    parts = folds[fold - 1]
    return parts.train, parts.valid
