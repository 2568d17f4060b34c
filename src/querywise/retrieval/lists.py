"""The union of one query's lists of documents, and features that tell which list found a document, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from querywise.data.run_columns import run_feature_names
from querywise.retrieval.bm25 import Hits
from querywise.retrieval.scores import BM25
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.arrays import Floats, Ints

SIMILARITY = "similarity"
PLAIN = "similarity.plain"  # of a query's own vector, if an adapted one finds and ranks documents
RUNS = WORDS, VECTORS = "bm25", "vectors"
FEATURES = {WORDS: BM25, VECTORS: SIMILARITY}  # the column that holds a run's scores
_RANKS = tuple(f"run.{name}.rank" for name in RUNS)
_FOUND_BY = "found_by"


@dataclass(frozen=True, eq=False)
class OwnLists(Mapping[str, Mapping[str, float]]):
    """The scores of a run: query → document → score, best first; built from a query's list on access."""

    document_ids: Sequence[str]
    lists: Mapping[str, Hits]

    def __getitem__(self, query: str) -> Mapping[str, float]:
        own = self.lists[query]
        ids = [self.document_ids[document] for document in own.documents.tolist()]
        return dict(zip(ids, own.scores.tolist(), strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(self.lists)

    def __len__(self) -> int:
        return len(self.lists)


def list_feature_names(vectors: VectorIndex, *, adapted: bool = False) -> tuple[str, ...]:
    """Return the additional columns of documents with vectors; `adapted` says whether query vectors are adapted."""
    titles = () if vectors.titles is None else ("similarity.title",)
    plain = (PLAIN,) if adapted else ()
    own = tuple(f"{SIMILARITY}.{number}" for number in range(1, len(vectors.blocks) + 1))
    return (SIMILARITY, *plain, *own, *titles, *run_feature_names(RUNS), *_RANKS, _FOUND_BY)


def union(lists: Sequence[Hits]) -> Ints:
    """Return the distinct documents of some lists, in the order in which they first appear, list after list.

    >>> union([Hits(np.array([4, 2]), np.ones(2)), Hits(np.array([2, 9]), np.ones(2))]).tolist()
    [4, 2, 9]
    """
    every = np.concatenate([np.zeros(0, np.int64), *(each.documents for each in lists)])
    _, first = np.unique(every, return_index=True)
    return every[np.sort(first)]


def list_features(
    vectors: VectorIndex,
    query: Floats,
    lists: Sequence[Hits],
    documents: Ints,
    own: Floats,
    plain: Floats | None = None,
) -> Floats:
    """Return the columns of `list_feature_names` for some documents of one query, given its two lists.

    Similarities are cosines. If a list lacks the document, score and reciprocal rank are 0, and the rank is one more
    than the length of the list. `found_by` counts the lists that contain it. `own` is the query's own vector; `plain`
    is the unmoved vector if `query` is the adapted one.
    """
    similar = [vectors.similarities(each, documents) for each in (query, plain) if each is not None]
    similar += [each.similarities(own[columns], documents) for columns, each in vectors.by_embedder]
    if vectors.titles is not None:
        similar.append(vectors.titles.similarities(query, documents))
    scores, ranks, reciprocal = (np.zeros((len(documents), len(lists))) for _ in range(3))
    for column, found in enumerate(lists):
        places = {document: place for place, document in enumerate(found.documents.tolist())}
        place = np.array([places.get(document, -1) for document in documents.tolist()], dtype=np.int64)
        there = place >= 0
        scores[there, column] = found.scores[place[there]]
        reciprocal[there, column] = 1.0 / (place[there] + 1)
        ranks[:, column] = np.where(there, place, len(found.documents)) + 1
    runs = [each[:, column] for column in range(len(lists)) for each in (scores, reciprocal)]
    return np.column_stack([*similar, *runs, ranks, np.sum(reciprocal > 0, axis=1)])
