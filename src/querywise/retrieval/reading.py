"""Anything a user has, text included, as a judged set or as folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from querywise.data.collections import Collection, read_collection
from querywise.data.coverage import Coverage
from querywise.data.folds import Folds, make_folds, read_folds
from querywise.data.judged import Judged
from querywise.data.letor import PathLike
from querywise.data.queries import read_queries
from querywise.data.query_table import QueryTable
from querywise.data.sources import Kind, kind_of, paths_of, read_features
from querywise.data.vectors import Vectors, read_vectors
from querywise.errors import DataError
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import Index, build_index
from querywise.retrieval.indexed_vectors import with_vectors
from querywise.retrieval.stdlib import NAME, stdlib_collection
from querywise.runtime.arrays import Floats
from querywise.runtime.progress import doing


def read_judged(
    data: PathLike | Sequence[PathLike],
    *,
    features: int | None = None,
    queries: PathLike | None = None,
    judgements: PathLike | None = None,
    top: int | None = None,
    vectors: PathLike | None = None,
    vector_top: int | None = None,
) -> Judged:
    """One judged set of whatever the command line takes: one path or several.

    LETOR files (plain, .gz, .xz), shards and Parquet logs are read as one set, with `queries.jsonl` and `features.txt`
    beside the first of them; features: their number, for sparse files that leave out the last columns. Of a text
    collection (a folder, a corpus file, or `stdlib`, the embedded one) it is BM25's `top` candidates of every judged
    query (100, or 50 beside vectors) with the 25 rankers' scores. queries, judgements: these files where they are
    elsewhere. vectors: a folder with the vectors of its documents and queries, whose best `vector_top` (50) are
    candidates too.
    """
    paths, retrieval = paths_of(data), Retrieval(top=top, vectors=vectors, vector_top=vector_top)
    if len(paths) == 1 and is_collection(paths[0]):
        return judged_from_text(paths[0], queries=queries, judgements=judgements, retrieval=retrieval)[0]
    retrieval.refuse_vectors(paths)
    folder = next((path for path in paths if kind_of(path) is Kind.FOLDER), None)
    if folder is not None:
        raise DataError(
            f"{folder}: this is a folder, and no set of shards, log or text collection. read_folds reads folds."
        )
    if judgements is not None:
        raise DataError(f"{paths[0]}: judgements belong to a text collection; feature files have labels of their own.")
    return read_features(paths, features=features, queries=queries)


@dataclass(frozen=True)
class Retrieval:
    """How candidates of a text collection are found.

    top: documents that BM25 finds; None is 100, or 50 beside vectors. vectors: a folder with the vectors of documents
    and queries. vector_top: documents that vectors find; None is 50. skip_unknown: leave out judgements and vectors of
    documents that are not in the corpus.
    """

    top: int | None = None
    vectors: PathLike | None = None
    vector_top: int | None = None
    skip_unknown: bool = False

    def __post_init__(self) -> None:
        if self.vector_top is not None and self.vectors is None:
            said = f"vector_top={self.vector_top} is for documents with vectors; name them with vectors=FOLDER."
            raise DataError(said, arguments=("vector_top", "vectors"))

    def refuse_vectors(self, data: Sequence[Path]) -> None:
        """Refuse vectors beside data that is no text collection."""
        if self.vectors is not None and data:
            said = f"vectors={str(self.vectors)!r}: vectors belong to a text collection, and {data[0]} is none."
            raise DataError(said, arguments=("vectors",))


def folds_of(
    data: Path,
    queries: Path | None,
    *,
    seed: int = 0,
    judgements: Path | None = None,
    retrieval: Retrieval | None = None,
) -> Folds:
    """The folds of a folder, or one file or text collection cut into five; what follows `seed` is for text alone."""
    if is_collection(data):
        found = judged_from_text(data, queries=queries, judgements=judgements, retrieval=retrieval)
        return make_folds(found[0], seed=seed)
    if retrieval is not None:
        retrieval.refuse_vectors([data])
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
    retrieval: Retrieval | None = None,
    add_judged: bool = False,
) -> tuple[Judged, Coverage]:
    """The judged candidates of a text collection, and what they cover."""
    how = retrieval or Retrieval()
    collection, index = _with_vectors(collection_from(data, queries=queries, judgements=judgements), how)
    return judged_candidates(
        collection,
        index,
        top=how.top,
        vector_top=how.vector_top,
        add_judged=add_judged,
        skip_unknown=how.skip_unknown,
    )


def _with_vectors(collection: Collection, how: Retrieval) -> tuple[Collection, Index]:
    """A collection and its index, with the vectors of queries and documents where there are some."""
    given = None if how.vectors is None else read_vectors(how.vectors)  # first: it may be wrong
    with doing("Indexing"):
        index = build_index(collection.documents())
    if given is None:
        return collection, index
    table = collection.queries
    if given.queries is None:
        raise DataError(f"{how.vectors}: there are no vectors of queries here. Expected queries.npy and queries.json.")
    if table is not None:
        table = replace(table, vectors=_query_vectors(given.queries, table, collection))
    return replace(collection, queries=table), with_vectors(index, given, skip_unknown=how.skip_unknown)


def _query_vectors(given: Vectors, table: QueryTable, collection: Collection) -> Floats:
    """The vectors of a collection's queries; every judged one needs one, the others have zeros."""
    judged = {each.query for each in collection.judgements}
    places = [place for place, query in enumerate(table.ids) if query in judged]
    found = np.zeros((len(table), given.dimension))
    found[places] = given.of([table.ids[place] for place in places], f"the judgements of {collection.name}")
    return found


def _is_embedded(data: Path) -> bool:
    return str(data) == NAME and not data.exists()
