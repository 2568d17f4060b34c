"""Reading any data of a user, including text, as a judged set or as folds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.data.click_judgments import is_click_folder, judged_by_clicks
from querywise.data.collections import Collection, Document, read_collection, with_more_judged
from querywise.data.coverage import Coverage
from querywise.data.folds import Folds, make_folds, read_folds
from querywise.data.judged import Judged
from querywise.data.query_table import QueryTable, read_queries
from querywise.data.readers import FOLDER, TEXT, check_may_lack, read_features, reader_of
from querywise.data.rows import Missing
from querywise.data.vectors import read_vectors
from querywise.errors import DataError, Hint
from querywise.retrieval.adapted_vectors import Kind
from querywise.retrieval.adapting import ADAPT, Adaptation
from querywise.retrieval.approximate import require_usearch
from querywise.retrieval.embedders.named import check_name, find_embedder
from querywise.retrieval.embedding import EmbedderRecord, embedded_queries, query_embedders, with_embedded
from querywise.retrieval.features import BOTH, CANDIDATES, FOUND, JUDGED, judged_candidates
from querywise.retrieval.field_texts import with_fields
from querywise.retrieval.index import Index, build_index, language_notes
from querywise.retrieval.indexed_vectors import known_embedders, side_by_side, vectors_of, with_usearch, with_vectors
from querywise.retrieval.side_by_side import queries_of
from querywise.retrieval.stdlib import NAME, stdlib_collection
from querywise.retrieval.twins import check_group_by, grouped_by
from querywise.retrieval.words import ENGLISH, Tokeniser
from querywise.runtime.arrays import Floats
from querywise.runtime.files import PathLike, paths_of
from querywise.runtime.progress import announce, doing
from querywise.runtime.values import Json, JsonObject

VECTOR_SEARCH = ("exact", "usearch")


def read_judged(
    data: PathLike | Sequence[PathLike] | Collection,
    *,
    features: int | None = None,
    queries: PathLike | None = None,
    judgements: PathLike | None = None,
    top: int | None = None,
    vectors: PathLike | Sequence[PathLike] | None = None,
    embed: str | Sequence[str] | None = None,
    vector_top: int | None = None,
    vector_search: str = "exact",
    adapt: str = "off",
    candidates: str = FOUND,
    missing: Missing = "refused",
) -> Judged:
    r"""Read anything that the command line accepts, one path or several, as one judged set.

    LETOR files (plain, .gz, .xz), shards and Parquet logs are read as one set, with `queries.jsonl` and `features.txt`
    beside the first of them. A text collection (a folder, a corpus file, or `stdlib`, the embedded one) gives BM25's
    best candidates of every judged query, with the 25 rankers' scores.

    Args:
        data: a path, or several in a list; or a collection, as `collection_of` makes it.
        features: the number of columns, for sparse files that lack the last ones; from 1 up.
        queries, judgements: these files if they are elsewhere; judgments of a text collection only.
        top: how many documents BM25 finds for a query, from 1 up; None is 100, or 50 with vectors.
        vectors: a folder with the vectors of a collection's documents and queries; the most similar documents become
            candidates too.
        embed: instead, the name of an embedder, such as `lsa`. Vectors of several folders and embedders are
            concatenated, each with a share in the similarity that the judgments determine.
        vector_top: how many documents vectors find, from 1 up; None is 50.
        vector_search: exact, or usearch, which is approximate and for large collections.
        adapt: `auto`, `linear` or `by-query`: query vectors learn from the judgments of other queries
            (`AdaptedVectors`); `auto` only if that helps.
        candidates: of a text collection: `found`, what BM25 and vectors find; `judged`, the documents judged for a
            query.
        missing: "refused", or "allowed": features of a Parquet log may be missing, for a model with a policy.

    Returns:
        A Judged set.

    Raises:
        DataError: Data that does not exist or cannot be read, and options that do not apply to this kind of data; the
            message says where.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import read_judged
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "train.txt"
    ...     _ = file.write_text("1 qid:10 1:0.5 2:1.25\n0 qid:10 1:0.25 2:2.0\n")
    ...     print(read_judged(file))
    Judged(1 query, 2 documents, 2 features, grades 0: 1, 1: 1)
    """
    folders = () if vectors is None else tuple(paths_of(vectors))
    names = () if embed is None else (embed,) if isinstance(embed, str) else tuple(embed)
    retrieval = Retrieval(
        top, folders, names, vector_top, vector_search=vector_search, adapt=adapt, candidates=candidates
    )
    if isinstance(data, Collection):
        return judged_from_text(data, queries=queries, judgements=judgements, retrieval=retrieval).adapted()
    paths = paths_of(data)
    if len(paths) == 1 and is_collection(paths[0]):
        return judged_from_text(paths[0], queries=queries, judgements=judgements, retrieval=retrieval).adapted()
    retrieval.refuse_vectors(paths)
    folder = next((path for path in paths if reader_of(path) is FOLDER), None)
    if folder is not None:
        raise DataError(
            f"{folder}: this folder is not a set of shards, a log or a text collection. Read folds with read_folds."
        )
    if judgements is not None:
        raise DataError(f"{paths[0]}: judgments belong to a text collection; feature files have labels of their own.")
    return read_features(paths, features=features, queries=queries, missing=missing)


@dataclass(frozen=True)
class Retrieval:
    """How candidates of a text collection are found.

    Attributes:
        top: the number of documents that BM25 finds; None is 100, or 50 with vectors.
        vectors: folders with the vectors of documents and queries.
        embed: names of embedders; vectors of several folders and embedders are concatenated, those of folders first.
        vector_top: the number of documents that vectors find; None is 50.
        skip_unknown: drop judgments and vectors of documents that are not in the corpus.
        language: the language of the stemmer; None does not stem.
        vector_search: how vectors find documents, exact or approximately by usearch.
        adapt: how query vectors learn from judgments: off, auto (if that helps), linear or by-query.
        candidates: the documents found, or the judged documents of each query.
    """

    top: int | None = None
    vectors: tuple[Path, ...] = ()
    embed: tuple[str, ...] = ()
    vector_top: int | None = None
    skip_unknown: bool = False
    language: str | None = ENGLISH
    vector_search: str = "exact"
    adapt: str = "off"
    candidates: str = FOUND

    def __post_init__(self) -> None:
        Tokeniser(self.language)  # raises an error for an unknown language
        for name in self.embed:
            check_name(name)
        kinds = ["lsa" if each.partition(":")[0] == "lsa" else each for each in self.embed]
        for option, given in (("vectors", [each.resolve() for each in self.vectors]), ("embed", kinds)):
            twice = next((each for place, each in enumerate(given) if each in given[:place]), None)
            if twice is not None:
                said = f"{option}={str(twice)!r} is given twice; each embedder counts once. Name it once."
                raise DataError(said, arguments=(option,))
        if self.vector_top is not None and not self.by_vectors:
            said = f"vector_top={self.vector_top} is for documents with vectors; name them with vectors=FOLDER."
            raise DataError(said, arguments=("vector_top", "vectors"))
        self._check_search()
        if self.candidates not in CANDIDATES:
            said = f"candidates={self.candidates!r}: expected {' or '.join(CANDIDATES)}."
            raise DataError(said, arguments=("candidates",))
        if self.candidates == JUDGED and (self.top is not None or self.vector_top is not None):
            said = "candidates='judged' takes the judged documents, so there is no number to find: leave out top."
            raise DataError(said, arguments=("candidates",))
        if self.adapt not in ADAPT:
            said = f"adapt={self.adapt!r}: expected one of {', '.join(ADAPT)}."
            raise DataError(said, arguments=("adapt",))
        if self.adapt in ("linear", "by-query") and not self.by_vectors:
            said = f"adapt={self.adapt!r} is for documents with vectors; name them with vectors=FOLDER or embed=NAME."
            raise DataError(said, arguments=("adapt", "vectors", "embed"))

    def _check_search(self) -> None:
        """Raise DataError for a search method that is unknown, not installed, or has nothing to search."""
        if self.vector_search not in VECTOR_SEARCH:
            said = f"vector_search={self.vector_search!r}: expected exact or usearch."
            raise DataError(said, arguments=("vector_search",))
        if self.vector_search == "usearch":
            if not self.by_vectors:
                said = "vector_search='usearch' is for documents with vectors; name them with vectors=FOLDER."
                raise DataError(said, arguments=("vector_search", "vectors"))
            require_usearch()

    @property
    def by_vectors(self) -> bool:
        """Whether vectors find documents too."""
        return bool(self.vectors or self.embed)

    @property
    def embedders(self) -> int:
        """The number of embedders whose vectors are used."""
        return len(self.vectors) + len(self.embed)

    def refuse_vectors(self, data: Sequence[Path]) -> None:
        """Raise DataError for vectors with data other than a text collection.

        Missing data is reported by its reader.
        """
        if self.by_vectors and data and data[0].exists():
            option, named = ("vectors", str(self.vectors[0])) if self.vectors else ("embed", self.embed[0])
            said = f"{option}={named!r}: vectors belong to a text collection, and {data[0]} is not one."
            raise DataError(said, arguments=(option,))


class FromText(NamedTuple):
    """The judged candidates of a text collection, their coverage, and the notes for a model trained on them.

    `adaptation` says how query vectors are to learn, if they are; it has not been applied yet.
    """

    judged: Judged
    coverage: Coverage
    notes: JsonObject
    adaptation: Adaptation | None = None

    def adapted(self) -> Judged:
        """Return the candidates by adapted vectors, each query's by vectors that were not trained on it."""
        return self.judged if self.adaptation is None else self.adaptation.learned(self.judged).train


def folds_of(
    data: Path,
    queries: Path | None,
    *,
    seed: int = 0,
    judgements: Path | None = None,
    retrieval: Retrieval | None = None,
    missing: Missing = "refused",
    group_by: str = "group",
    by_time: str | None = None,
) -> Folds:
    """Return the folds of a folder, or split a file or a text collection into five.

    Args:
        data: the folder or the file.
        queries: the file of queries, if it is elsewhere.
        seed: determines the split.
        judgements, retrieval: of a text collection.
        missing: whether features of a Parquet log may be missing.
        group_by: what folds keep together: `group`, existing groups of queries; `near`, also near-duplicates; `query`,
            nothing.
        by_time: a column of the query data in whose order they are split; None is at random.
    """
    check_group_by(group_by)
    if is_collection(data):
        how = retrieval or Retrieval()
        folds, adaptation = folds_from_text(
            data, how, queries, seed=seed, judgements=judgements, group_by=group_by, by_time=by_time
        )
        return folds if adaptation is None else folds.learning(adaptation.fold)
    if retrieval is not None:
        retrieval.refuse_vectors([data])
    check_may_lack(data, missing)
    if reader_of(data) is not FOLDER:
        found = grouped_by(read_features(data, queries=queries, missing=missing), group_by)
        return make_folds(found, seed=seed, by_time=by_time)
    for name, value in (("group_by", group_by if group_by == "near" else None), ("by_time", by_time)):
        if value is not None:
            raise DataError(
                f"{data}: these folds already exist and are used as they are; {name}={value!r} is for one file or "
                "collection that is split into folds.",
                arguments=(name,),
            )
    folds = read_folds(data)
    return folds if queries is None else folds.with_queries(read_queries(queries))


def folds_from_text(
    data: Path,
    how: Retrieval,
    queries: Path | None = None,
    *,
    seed: int = 0,
    judgements: Path | None = None,
    group_by: str = "group",
    by_time: str | None = None,
) -> tuple[Folds, Adaptation | None]:
    """Split a text collection into five by plain vectors; also return how its query vectors are to learn, or None."""
    collection, index = indexed_text(data, how, queries=queries, judgements=judgements)
    found = _plain_candidates(collection, index, how)[0]
    clicks = _clicks_in(data, judgements)
    found = found if clicks is None else judged_by_clicks(found, clicks)
    folds = make_folds(grouped_by(found, group_by), seed=seed, by_time=by_time)
    return folds, _adaptation(collection, index, how, clicks)


def is_collection(data: Path) -> bool:
    """Return whether a path is a text collection: a folder with a corpus, or the embedded one."""
    return reader_of(data) is TEXT or _is_embedded(data)


def collection_from(
    data: Path | Collection, *, queries: PathLike | None = None, judgements: PathLike | None = None
) -> Collection:
    """Return a text collection: unchanged, or read from a folder, a corpus file, or `stdlib`, the embedded one."""
    if isinstance(data, Collection):
        if queries is not None or judgements is not None:
            raise DataError("A collection has queries and judgments of its own; do not give files for them.")
        return data
    if not _is_embedded(data):
        return read_collection(data, queries=queries, judgements=judgements)
    if queries is not None or judgements is not None:
        raise DataError(f"{NAME} has queries and judgments of its own; no others can be given.")
    return stdlib_collection()


def judged_from_text(
    data: Path | Collection,
    *,
    queries: PathLike | None = None,
    judgements: PathLike | None = None,
    retrieval: Retrieval | None = None,
    add_judged: bool = False,
    also_judged: Sequence[PathLike] = (),
) -> FromText:
    """Return the judged candidates of a text collection; `also_judged` are files of additional judgments."""
    how = retrieval or Retrieval()
    collection, index = indexed_text(data, how, queries=queries, judgements=judgements, also_judged=also_judged)
    judged, coverage = _plain_candidates(collection, index, how, add_judged=add_judged)
    clicks = _clicks_in(data, judgements)
    judged = judged if clicks is None else judged_by_clicks(judged, clicks)
    return FromText(judged, coverage, retrieval_notes(index, how), _adaptation(collection, index, how, clicks))


def _clicks_in(data: Path | Collection, judgements: PathLike | None) -> Path | None:
    """Return the folder if its judgments from clicks are to be used."""
    return data if isinstance(data, Path) and judgements is None and is_click_folder(data) else None


def _plain_candidates(
    collection: Collection, index: Index, how: Retrieval, *, add_judged: bool = False
) -> tuple[Judged, Coverage]:
    return judged_candidates(
        collection,
        index,
        top=how.top,
        vector_top=how.vector_top,
        add_judged=add_judged,
        skip_unknown=how.skip_unknown,
        candidates=how.candidates,
    )


def _adaptation(collection: Collection, index: Index, how: Retrieval, clicks: Path | None) -> Adaptation | None:
    """Return how query vectors are to learn, or None."""
    if not how.by_vectors or (how.adapt == "off" and how.embedders == 1):
        return None
    kinds: dict[str, Kind] = {"off": "off", "auto": "auto", "linear": "linear", "by-query": "by-query"}
    kind = kinds[how.adapt]
    return Adaptation(collection, index, kind, how.top, how.vector_top, how.skip_unknown, how.candidates, clicks)


def indexed_text(
    data: Path | Collection,
    how: Retrieval,
    *,
    queries: PathLike | None = None,
    judgements: PathLike | None = None,
    also_judged: Sequence[PathLike] = (),
) -> tuple[Collection, Index]:
    """Return a text collection and its index, with vectors of documents and queries if requested."""
    collection = collection_from(data, queries=queries, judgements=judgements)
    for more in also_judged:
        collection = with_more_judged(collection, more)
    index = index_of(collection, how)
    return _with_query_vectors(collection, index, how), index


def retrieval_notes(index: Index, how: Retrieval) -> JsonObject:
    """Return a model's notes on the text it was trained on: the language, and the vectors."""
    vectors, spoken = vectors_of(index), language_notes(index)
    if vectors is None:
        return spoken
    depths: JsonObject = {"top": BOTH if how.top is None else how.top}
    depths |= {"vector_top": BOTH if how.vector_top is None else how.vector_top}
    made: list[Json] = [*known_embedders(index.notes)]
    by: JsonObject = {"embedder": made[0]} if len(made) == 1 else {"embedders": made, "blocks": [*vectors.blocks]}
    known: JsonObject = {**depths, "dimension": vectors.dimension, **by}
    return {**spoken, "vectors": known if vectors.graph is None else {**known, "search": how.vector_search}}


def index_of(collection: Collection, how: Retrieval, tokeniser: Tokeniser | None = None) -> Index:
    """Return the index of a collection's documents, with their vectors if any."""
    given = [read_vectors(each) for each in how.vectors]  # first, since it may fail
    with doing("Indexing"):
        index = build_index(collection.documents(), tokeniser or Tokeniser(how.language))
        if collection.fields is not None:
            index = with_fields(index, collection.documents(), collection.fields)
            announce(collection.fields.told())
    parts = [with_vectors(index, each, skip_unknown=how.skip_unknown) for each in given]
    parts += [with_embedded(index, _embedded(collection), each, how.embed) for each in how.embed]
    if parts:
        index = parts[0] if len(parts) == 1 else side_by_side(index, parts)
    made = vectors_of(index)
    if made is not None:
        _hint_at_zeros(made.lengths, "documents")
    return with_usearch(index) if how.vector_search == "usearch" else index


def _embedded(collection: Collection) -> Iterator[Document]:
    """Yield the documents for embedding: by the fields named for it, or by all words."""
    for document in collection.documents():
        if collection.fields is None:
            yield document
        else:
            title, text = collection.fields.embedded(document.values)
            yield document._replace(title=title, text=text)


def _hint_at_zeros(lengths: Floats, what: str) -> None:
    """Report how many vectors are similar to nothing."""
    zeros = int(np.sum(lengths == 0))
    if zeros:
        said = f"{zeros} of {len(lengths)} {what} have a vector of zeros, which is similar to nothing."
        warnings.warn(said, Hint, stacklevel=2)


def _with_query_vectors(collection: Collection, index: Index, how: Retrieval) -> Collection:
    """Return the collection with vectors of its queries if documents have vectors."""
    table = collection.queries
    if table is None or not how.by_vectors:
        return collection
    if not how.vectors:
        return with_query_vectors(collection, index, how.embed)
    found = [_query_vectors(folder, table, collection) for folder in how.vectors]
    texts, known = table.texts or (None,) * len(table), known_embedders(index.notes)
    for name, made in zip(how.embed, known[len(found) :], strict=True):
        record = EmbedderRecord.from_json(made, "The index")
        found.append(embedded_queries([(find_embedder(name, index, how.embed), record)], texts))
    return replace(collection, queries=replace(table, vectors=found[0] if len(found) == 1 else queries_of(found)))


def with_query_vectors(collection: Collection, index: Index, embed: Sequence[str] = ()) -> Collection:
    """Return the collection with its queries embedded by the embedders of its index, or those named by `embed`."""
    table = collection.queries
    if table is None:
        return collection
    vectors = embedded_queries(query_embedders(index, embed), table.texts or (None,) * len(table))
    return replace(collection, queries=replace(table, vectors=vectors))


def _query_vectors(folder: Path, table: QueryTable, collection: Collection) -> Floats:
    """Return the vectors of a collection's queries in a folder; judged queries need one, the others get zeros."""
    given = read_vectors(folder).queries
    if given is None:
        raise DataError(f"{folder}: there are no vectors of queries here. Expected queries.npy and queries.json.")
    judged = {each.query for each in collection.judgements}
    places = [place for place, query in enumerate(table.ids) if query in judged]
    found = np.zeros((len(table), given.dimension))
    found[places] = given.of([table.ids[place] for place in places], f"the judgments of {collection.name}")
    _hint_at_zeros(np.abs(found[places]).max(axis=1, initial=0.0), "queries")
    return found


def _is_embedded(data: Path) -> bool:
    return str(data) == NAME and not data.exists()
