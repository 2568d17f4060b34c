"""Queries → candidates with features: BM25's best documents, the 25 rankers, field lengths, the user's columns.

If the documents of an index have vectors, candidates are the best by BM25 and the best by similarity, with features for
their similarities and their positions in both lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypedDict, TypeVar

import numpy as np

from querywise.data.collections import Collection
from querywise.data.coverage import ADDED, Coverage, coverage_of
from querywise.data.judged import Candidates, Judged, LostData, judged_by, losses, named
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import Run
from querywise.errors import DataError
from querywise.retrieval.bm25 import Hits, search
from querywise.retrieval.field_features import ALL, field_feature_names, field_features
from querywise.retrieval.field_texts import fields_of_index
from querywise.retrieval.index import Index
from querywise.retrieval.indexed_vectors import hint_at_recall, vectors_of
from querywise.retrieval.lists import (
    FEATURES,
    PLAIN,
    SIMILARITY,
    VECTORS,
    WORDS,
    OwnLists,
    list_feature_names,
    list_features,
    union,
)
from querywise.retrieval.scores import NAMES, USUAL, Smoothing, high_level, write_scores
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.stored import QueryAdapter
from querywise.runtime.threads import in_threads
from querywise.runtime.values import Json
from querywise.runtime.workers import workers

_LENGTHS = ("length.title", "length.body")
_BATCH = 32  # queries
TOP, BOTH = 100, 50  # documents found by BM25 alone, and by each of two lists
FOUND, JUDGED = CANDIDATES = ("found", "judged")  # which documents are candidates
ADAPTED = "vectors (adapted)"  # the run of adapted vectors
_Thing = TypeVar("_Thing")


class AdaptedQueries(TypedDict):
    """Vectors that replace queries' own, for `candidates_for`.

    Attributes:
        adapted: the vectors to search with; None if no query is moved.
        unmoved: the unmoved vectors, weighted by embedders' shares; None if these are the queries' own.
    """

    adapted: Floats | None
    unmoved: Floats | None


def moved_by(adapter: QueryAdapter | None, vectors: Floats | None) -> AdaptedQueries:
    """Return an adapter's vectors for some queries."""
    if adapter is None or vectors is None:
        return {"adapted": None, "unmoved": None}
    adapted = adapter.transform(vectors) if adapter.adapts else None
    return {"adapted": adapted, "unmoved": adapter.with_shares(vectors) if adapter.blocks else None}


class Depths(NamedTuple):
    """The number of documents that each list finds; None means the default."""

    top: int | None = None
    vector_top: int | None = None


def trained_depths(notes: Mapping[str, Json]) -> Depths:
    """Return the depths that a model's notes record, as far as they do."""
    known = notes.get("vectors")
    told = [known.get(name) for name in Depths._fields] if isinstance(known, dict) else [None, None]
    return Depths(*(depth if type(depth) is int and depth > 0 else None for depth in told))


def feature_names(index: Index, *, adapted: bool = False) -> tuple[str, ...]:
    """Return the column names in order; `adapted` says whether query vectors are adapted."""
    vectors = vectors_of(index)
    return (*_word_features(index), *(() if vectors is None else list_feature_names(vectors, adapted=adapted)))


def _word_features(index: Index) -> tuple[str, ...]:
    return (*NAMES, *_LENGTHS, *index.column_names, *field_feature_names(index))


def candidates_for(
    index: Index,
    queries: QueryTable,
    *,
    top: int | None = None,
    vector_top: int | None = None,
    smoothing: Smoothing | None = None,
    adapted: Floats | None = None,
    unmoved: Floats | None = None,
) -> Candidates:
    """Return BM25's best documents for every query, best first, then further ones that vectors find, with features.

    Args:
        index: the index.
        queries: the queries.
        top: the number of documents that BM25 finds; None is 100, or 50 if documents have vectors.
        vector_top: the number of documents that vectors find; None is 50.
        smoothing: the parameters of the rankers.
        adapted: vectors to search with instead of the queries' own.
        unmoved: the unmoved vectors, weighted by the shares of several embedders.
    """
    smooth, asked = smoothing or Smoothing(), _Asked.of(queries, adapted, unmoved)
    depths = _depths(index, top, vector_top)
    lists = _cut(_lists(index, queries, depths, smooth, asked.vectors), depths)
    return _assembled(index, queries, lists, [union(each) for each in lists], smooth, asked)


class _Asked(NamedTuple):
    """The vectors to search with, and the unmoved ones, or None if they are not moved."""

    vectors: Floats | None
    plain: Floats | None

    @staticmethod
    def of(queries: QueryTable, adapted: Floats | None, unmoved: Floats | None) -> _Asked:
        own = queries.vectors if unmoved is None else unmoved
        return _Asked(own, None) if adapted is None else _Asked(adapted, own)


def judged_candidates(
    collection: Collection,
    index: Index,
    *,
    top: int | None = None,
    vector_top: int | None = None,
    add_judged: bool = False,
    skip_unknown: bool = False,
    smoothing: Smoothing | None = None,
    adapted: Floats | None = None,
    unmoved: Floats | None = None,
    candidates: str = FOUND,
) -> tuple[Judged, Coverage]:
    """Return the candidates of every judged query with their grades, and retrieval's coverage of the judgments.

    An unjudged document has grade 0 and is marked in `Judged.judged`.

    Args:
        collection: documents, queries with texts, and judgments.
        index: the index of the same documents.
        top: how many documents BM25 finds for a query, from 1 up; None is 100, or 50 if documents have vectors.
        vector_top: how many documents their vectors find, from 1 up; None is 50.
        add_judged: also add judged documents that retrieval did not find, marked `added = 1` in their comment; useful
            for training, but it inflates test results.
        skip_unknown: leave out judgments of documents that are not in the index instead of refusing them.
        smoothing: the parameters of BM25 and of the language models; None: k1 1.2, b 0.75, dirichlet 2000,
            jelinek_mercer 0.1, absolute_discount 0.7.
        adapted: vectors of the collection's queries, a row each, to search by instead of their own, as
            AdaptedVectors makes them; those of training queries by an adapter that was not trained on them.
        unmoved: the same vectors before they were moved, with the shares of several embedders
            (`AdaptedVectors.with_shares`); None if there is only one embedder.
        candidates: `found`; or `judged`: the documents judged for a query are its candidates, as in feature logs.

    Returns:
        A Judged set with the 25 rankers' scores, lengths and the documents' columns as features; and its Coverage.

    Raises:
        DataError: A collection without queries or judgments, and judgments of documents it does not have.

    >>> from querywise import QueryTable, build_index, judged_candidates
    >>> from querywise.data.collections import Collection, Document
    >>> from querywise.data.judgements import Judgement
    >>> documents = [Document("D1", "jaguar", "a large cat"), Document("D2", "python", "a large snake")]
    >>> queries = QueryTable(("q1",), texts=("large cat",))
    >>> collection = Collection("animals", lambda: documents, queries, (Judgement("q1", "D1", 1, "line 1"),))
    >>> data, coverage = judged_candidates(collection, build_index(documents))
    >>> data, coverage.recall
    (Judged(1 query, 2 documents, 27 features, grades 1: 1, 1 unjudged), 1.0)
    """
    if collection.queries is None or collection.queries.texts is None:
        raise DataError(f"{collection.name}: the collection has no queries with a text; features are made for queries.")
    if not collection.judgements:
        raise DataError(f"{collection.name}: the collection has no judgments, so there is nothing to learn from.")
    grades = known_grades(collection, index, skip_unknown=skip_unknown)
    asked = [query_id for query_id in collection.queries.ids if query_id in grades]
    table = collection.queries.select(asked)
    place = {query_id: row for row, query_id in enumerate(collection.queries.ids)}
    rows = [place[query_id] for query_id in asked]
    by = _Asked.of(table, *(None if each is None else each[rows] for each in (adapted, unmoved)))
    smooth = smoothing or Smoothing()
    if candidates == JUDGED:
        judged = _of_judged(index, table, grades, smooth, by)
        judged = replace(judged, losses=_losses(collection, index, table))
        return judged, replace(coverage_of(judged), unjudged=len(collection.queries) - len(asked))
    # A system's own list has the same depth whatever other systems find.
    own = (TOP if top is None else top), (TOP if vector_top is None else vector_top)
    whole, depths = _lists(index, table, own, smooth, by.vectors), _depths(index, top, vector_top)
    # Approximate search depends on the depth, so search again with the depth that a service would use.
    lists = _cut(_lists(index, table, depths, smooth, by.vectors) if _is_approximate(index) else whole, depths)
    _hint_at_recall(index, table, vector_top)
    found = [union(each) for each in lists]
    others = [
        np.setdiff1d([index.place_of(document) for document in grades[query]], each) if add_judged else each[:0]
        for query, each in zip(asked, found, strict=True)
    ]
    documents = [np.concatenate([each, more]) for each, more in zip(found, others, strict=True)]
    added = [len(more) for more in others]
    made = _assembled(index, table, lists, documents, smooth, by, added=added)
    judged = judged_by(made, {query: grades[query] for query in asked})
    runs = [_run(name, index, asked, own, FEATURES[name]) for name, own in whole.items()]
    if by.plain is not None:
        runs[1:] = [
            _run(VECTORS, index, asked, _similar(index, by.plain, own[1]), PLAIN),
            _run(ADAPTED, index, asked, whole[VECTORS], SIMILARITY),
        ]
    judged = replace(judged, runs=tuple(runs), losses=_losses(collection, index, table))
    return judged, replace(coverage_of(judged), unjudged=len(collection.queries) - len(asked))


def _of_judged(
    index: Index,
    queries: QueryTable,
    grades: Mapping[str, Mapping[str, int]],
    smoothing: Smoothing,
    by: _Asked,
) -> Judged:
    """Return each query's judged documents as its candidates, in index order; the lists contain only these."""
    places = [[index.place_of(document) for document in grades[query]] for query in queries.ids]
    documents = [np.sort(np.array(each, np.int64)) for each in places]
    lists: list[list[Hits]] = [[] for _ in documents]
    vectors = vectors_of(index)
    if vectors is not None and by.vectors is not None:
        texts = queries.texts or (None,) * len(queries)
        for each, text, vector, judged in zip(lists, texts, by.vectors, documents, strict=True):
            words = high_level(index.fields["both"], index.numbers_of(text or ""), judged, smoothing)[:, 0]
            each += [_in_order(judged, words), _in_order(judged, vectors.similarities(vector, judged))]
    return judged_by(_assembled(index, queries, lists, documents, smoothing, by), grades)


def _in_order(documents: Ints, scores: Floats) -> Hits:
    """Return the documents with a positive score, best first."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > 0]
    return Hits(documents[order], scores[order])


def _losses(collection: Collection, index: Index, asked: QueryTable) -> tuple[LostData, ...]:
    """Return what an evaluation of these queries of a collection leaves out, wholly or in part."""
    every = collection.queries or QueryTable(())
    texts = dict(zip(every.ids, every.texts or (), strict=False))
    judged, evaluated = {each.query for each in collection.judgements}, set(asked.ids)
    terms = {query: index.numbers_of(texts.get(query) or "") for query in asked.ids}
    unknown = [each for each in collection.judgements if index.place_of(each.document) is None]
    silent = np.flatnonzero(index.fields["both"].lengths == 0).tolist()

    def queries(some: Iterable[str]) -> list[str]:
        return [named(query, texts.get(query)) for query in some]

    lacking = [query for query, own in terms.items() if -1 in own and max(own) >= 0]
    return losses(
        [
            ("queries without a judgment", queries(each for each in every.ids if each not in judged), len(every)),
            (
                "queries judged on unknown documents",
                queries(each for each in every.ids if each in judged - evaluated),
                len(every),
            ),
            (
                "judgments of unknown documents",
                [f"{each.document!r} of query {each.query!r}" for each in unknown],
                len(collection.judgements),
            ),
            ("documents without text", [repr(index.document_ids[document]) for document in silent], len(index)),
            (
                "queries without a known word",
                queries(query for query, own in terms.items() if max(own, default=-1) < 0),
                len(asked),
            ),
            ("queries shortened", queries(lacking), len(asked)),
        ]
    )


def _hint_at_recall(index: Index, queries: QueryTable, vector_top: int | None) -> None:
    """Report the recall of approximate search for these queries."""
    vectors = vectors_of(index)
    if vectors is not None and _is_approximate(index) and queries.vectors is not None:
        hint_at_recall(
            vectors.recall(queries.vectors, top=BOTH if vector_top is None else vector_top), "of the queries"
        )


def _is_approximate(index: Index) -> bool:
    vectors = vectors_of(index)
    return vectors is not None and vectors.graph is not None


def known_grades(collection: Collection, index: Index, *, skip_unknown: bool) -> dict[str, dict[str, int]]:
    """Return query → document → grade, for documents in the index."""
    grades: dict[str, dict[str, int]] = {}
    for each in collection.judgements:
        place = index.place_of(each.document)
        if place is None and not skip_unknown:
            raise DataError(
                f"{each.where}: document {each.document!r} of query {each.query!r} is not in the corpus. Correct the "
                "judgments, or leave such lines out with skip_unknown=True.",
                arguments=("skip_unknown",),
            )
        if place is not None:
            grades.setdefault(each.query, {})[each.document] = each.grade
    if not grades:
        raise DataError(
            f"{collection.name}: none of the judged documents is in the corpus. Do the ids belong together?"
        )
    return grades


def _lists(
    index: Index,
    queries: QueryTable,
    depths: tuple[int, int],
    smoothing: Smoothing,
    vectors: Floats | None,
) -> dict[str, list[Hits]]:
    """Return every query's list by each system: by BM25, and by vectors if documents have them."""
    texts = queries.texts or (None,) * len(queries)
    batches = _batches([text or "" for text in texts])
    words = workers().each(_best, batches, shared=(index, depths[0], smoothing), label="Candidates")
    found = {WORDS: [each for batch in words for each in batch]}
    if vectors_of(index) is not None:
        found[VECTORS] = _similar(index, vectors, depths[1])
    return found


def _similar(index: Index, queries: Floats | None, top: int) -> list[Hits]:
    """Return the documents found by query vectors."""
    vectors = vectors_of(index)
    if vectors is None or queries is None:
        raise DataError("The documents of this index have vectors, so the queries need vectors too; they have none.")
    return vectors.search(queries, top=top)


def _depths(index: Index, top: int | None, vector_top: int | None) -> tuple[int, int]:
    """Return how many candidates each system finds: by default 100 for BM25 alone, else 50 each."""
    words = TOP if vectors_of(index) is None else BOTH
    return (words if top is None else top), (BOTH if vector_top is None else vector_top)


def _cut(lists: Mapping[str, Sequence[Hits]], depths: tuple[int, int]) -> list[list[Hits]]:
    """Return the first documents of each system's list, query by query."""
    return [
        [Hits(each.documents[:depth], each.scores[:depth]) for each, depth in zip(own, depths, strict=False)]
        for own in zip(*lists.values(), strict=True)
    ]


def _run(name: str, index: Index, query_ids: Sequence[str], lists: Sequence[Hits], feature: str) -> Run:
    lists_by_query = dict(zip(query_ids, lists, strict=True))
    return Run(name, OwnLists(index.document_ids, lists_by_query), feature)


def _best(texts: Sequence[str], index: Index, top: int, smoothing: Smoothing) -> list[Hits]:
    return [search(index, text, top=top, smoothing=smoothing) for text in texts]


def _batches(things: Sequence[_Thing]) -> list[Sequence[_Thing]]:
    """Return batches that are large enough to be distributed cheaply."""
    return [things[first : first + _BATCH] for first in range(0, len(things), _BATCH)]


def _assembled(
    index: Index,
    queries: QueryTable,
    lists: Sequence[Sequence[Hits]],
    documents: Sequence[Ints],
    smoothing: Smoothing,
    by: _Asked,
    *,
    added: Sequence[int] | None = None,
) -> Candidates:
    """Return the documents of every query with their features; the last `added` of a query are marked."""
    texts = queries.texts or (None,) * len(queries)
    asked = _batches([(text or "", each) for text, each in zip(texts, documents, strict=True)])
    rows = workers().each(_features, asked, shared=(index, smoothing), label="Features")
    features = np.concatenate([np.zeros((0, len(_word_features(index)))), *rows])
    ids = [[index.document_ids[int(document)] for document in each] for each in documents]
    first_added = [len(each) - more for each, more in zip(documents, added or [0] * len(documents), strict=True)]
    comments = (
        f"docid = {document}" + (f" {ADDED}" if place >= first else "")
        for each, first in zip(ids, first_added, strict=True)
        for place, document in enumerate(each)
    )
    return Candidates(
        features=np.hstack([features, *_beside(index, queries, lists, documents, by)]),
        starts=np.cumsum([0, *map(len, documents)]),
        query_ids=queries.ids,
        document_ids=tuple(document for each in ids for document in each),
        comments=tuple(comments),
        feature_names=feature_names(index, adapted=by.plain is not None),
        queries=queries,
    )


def _beside(
    index: Index,
    queries: QueryTable,
    lists: Sequence[Sequence[Hits]],
    documents: Sequence[Ints],
    by: _Asked,
) -> list[Floats]:
    """Return the features of vectors and lists in one table; empty if documents have no vectors."""
    vectors = vectors_of(index)
    if vectors is None or queries.vectors is None or by.vectors is None:
        return []
    count = len(list_feature_names(vectors, adapted=by.plain is not None))
    plain = [None] * len(queries) if by.plain is None else list(by.plain)
    asked = list(zip(by.vectors, lists, documents, queries.vectors, plain, strict=True))
    rows = in_threads(lambda each: list_features(vectors, *each), asked)
    return [np.concatenate([np.zeros((0, count)), *rows])]


def _features(asked: Sequence[tuple[str, Ints]], index: Index, smoothing: Smoothing) -> Floats:
    rows = [features_of(index, text, documents, smoothing) for text, documents in asked]
    return np.concatenate(rows)


def features_of(index: Index, text: str, documents: Ints, smoothing: Smoothing | None = None) -> Floats:
    """Return the raw features of some documents for one query that come from words and columns.

    If documents have fields, numbers are also given relative to the other documents.
    """
    words = len(NAMES) + len(_LENGTHS)
    table = np.empty((len(documents), words + len(index.column_names)))
    write_scores(index.fields, index.numbers_of(text), documents, smoothing or USUAL, table)
    table[:, words - 2] = index.fields["title"].lengths[documents]
    table[:, words - 1] = index.fields["body"].lengths[documents]
    if index.column_names:
        table[:, words:] = index.columns[documents]
    if fields_of_index(index) is None:
        return table
    return np.hstack([table, field_features(index, text, documents, smoothing or USUAL)])


_FIELDS = {"title": "the title", "body": "the text"}
_LOW_LEVEL = {
    "L1": "How often the query's words occur in {field}, added up.",
    "L2": "How often the query's words occur in {field}; each further time of the same word counts less.",
    "L3": "The share of {field} that is the query's words.",
    "L4": "The share of {field} that each of the query's words has, as a logarithm, added up.",
    "L5": "How rare the query's words in {field} are: few documents have them (inverse document frequency).",
    "L6": "How rare the query's words in {field} are, as a logarithm twice: very rare ones count less.",
    "L7": "How rarely the query's words in {field} occur in the whole collection.",
    "L8": "The share of {field} that is the query's words, rare ones counting more.",
    "L9": "How often the query's words occur in {field}, rare ones counting more (tf-idf).",
    "L10": "The share of {field} that is the query's words, beside their share in the whole collection.",
}
_MODEL = "How probable the query is for a language model of title and text, smoothed "
_KNOWN = {
    "H1.bm25": "BM25 of title and text together: rare words count more, repeated ones less and less.",
    "H2.log_bm25": "The logarithm of 1 + BM25 of title and text together.",
    "H3.dirichlet": f"{_MODEL}by Dirichlet's prior: short documents more than long ones.",
    "H4.jelinek_mercer": f"{_MODEL}by Jelinek and Mercer: all documents alike.",
    "H5.absolute_discount": f"{_MODEL}by taking a little from every count.",
    "length.title": "How many words the title has.",
    "length.body": "How many words the text has.",
    "similarity": "How similar the vectors of query and document are: the cosine between them.",
    "similarity.plain": "The cosine between the document's vector and the query's own, before it was adapted.",
    "similarity.title": "How similar the vectors of query and title are: the cosine between them.",
    "found_by": "How many of the first-stage runs found the document.",
} | {f"{name}.{key}": said.format(field=field) for name, said in _LOW_LEVEL.items() for key, field in _FIELDS.items()}
_OF_FIELD = {
    "bm25": "BM25 of the field {field}: rare words count more, repeated ones less and less.",
    "coverage": "The share of the query's words that are in the field {field}.",
    "share": "The share of the field {field} that is words of the query; of several values, of the one that has most.",
    "exact": "1 if the field {field}, or one of its values, is the query word by word.",
    "phrase": "The share of the query that occurs in the field {field} as consecutive words.",
    "ordered": "How much of the query stands in the field {field} in the same order, with or without words between.",
    "named": "How many values of the field {field} the query says in full.",
    "length": "How many words the field {field} has, stop words left out.",
}
_OF_ALL = {
    "bm25f": "BM25 of all fields as one, the words of each weighted: BM25F.",
    "sum": "The BM25 of all fields, each times its weight, added up (most_fields).",
    "best": "The largest BM25 of a field, each times its weight (best_fields).",
    "coverage": "The share of the query's words that are in some field (cross_fields).",
    "rarity": "The share of the query's words that are in some field, rare ones counting more.",
    "all": "1 if every word of the query is in some field.",
    "most": "1 if three in four of the query's words are in some field (minimum_should_match).",
    "hit": "How many fields have a word of the query.",
    "named": "How much of the query is values of fields that it says in full.",
}
_OF_NUMBER = {
    "log": "The logarithm of 1 + {field}.",
    "age": "How many years {field} is before the date of reference.",
    "named": "1 if the query says the year of {field}.",
    "z": "How far {field} is above the mean of the query's documents, in standard deviations.",
    "rank": "The share of the query's other documents whose {field} is lower.",
    "missing": "1 if the document has no {field}; the median is taken then.",
}
_OF_RUN = {
    "score": "The score that the first-stage run {run} gave the document; 0 if it did not find it.",
    "reciprocal_rank": "1 divided by the document's rank in the first-stage run {run}; 0 if it did not find it.",
    "rank": "The document's rank in the first-stage run {run}; if it did not find it, one beyond its last.",
}


def descriptions(features: Sequence[str]) -> dict[str, str]:
    """Return descriptions of these features, if known; the user's own columns have none.

    Columns of runs are recognized by name. The others are described only if all 25 rankers are present, so that they
    come from `querywise features` and not from a user's column of the same name.

    >>> descriptions(["run.bm25.score", "similarity"])
    {'run.bm25.score': 'The score that the first-stage run bm25 gave the document; 0 if it did not find it.'}
    """
    known = _KNOWN if set(NAMES) <= set(features) else {}
    own = _of_fields(features) if known else {}
    found = {name: _of_run(name) or own.get(name) or known.get(name) for name in features}
    return {name: said for name, said in found.items() if said is not None}


def _of_fields(features: Sequence[str]) -> dict[str, str]:
    """Return descriptions of features from fields: those with a BM25 have words, those with a rank are numbers."""
    found = {f"{ALL}.{name}": said for name, said in _OF_ALL.items()} if f"{ALL}.bm25f" in features else {}
    for name in features:
        field, _, part = name.rpartition(".")
        if f"{field}.bm25" in features and part in _OF_FIELD:
            found[name] = _OF_FIELD[part].format(field=field)
        elif part in _OF_NUMBER and (field in features):
            found[name] = _OF_NUMBER[part].format(field=field)
            found.setdefault(field, f"The document's {field}.")
    return found


def _of_run(feature: str) -> str | None:
    run = re.fullmatch(r"run\.(.+)\.(\w+)", feature)
    return None if run is None or run[2] not in _OF_RUN else _OF_RUN[run[2]].format(run=run[1])
