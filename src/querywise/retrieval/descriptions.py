"""What the features of a text collection and of first-stage runs mean, in a sentence each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from querywise.retrieval.scores import NAMES

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
_OF_RUN = {
    "score": "The score that the first-stage run {run} gave the document; 0 if it did not find it.",
    "reciprocal_rank": "1 divided by the document's rank in the first-stage run {run}; 0 if it did not find it.",
    "rank": "The document's rank in the first-stage run {run}; if it did not find it, one beyond its last.",
}


def descriptions(features: Sequence[str]) -> dict[str, str]:
    """What these features mean, as far as it is known; a column of the user's own is not.

    Columns of runs are known by their names. The others are where all 25 rankers are there too, for then
    `querywise features` has made them, and not somebody who calls a column of his own the same.

    >>> descriptions(["run.bm25.score", "similarity"])
    {'run.bm25.score': 'The score that the first-stage run bm25 gave the document; 0 if it did not find it.'}
    """
    known = _KNOWN if set(NAMES) <= set(features) else {}
    found = {name: _of_run(name) or known.get(name) for name in features}
    return {name: said for name, said in found.items() if said is not None}


def _of_run(feature: str) -> str | None:
    run = re.fullmatch(r"run\.(.+)\.(\w+)", feature)
    return None if run is None or run[2] not in _OF_RUN else _OF_RUN[run[2]].format(run=run[1])
