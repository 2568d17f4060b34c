"""Descriptions of the features of a text collection and of first-stage runs, in a sentence each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from querywise.retrieval.field_features import ALL
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
_OF_FIELD = {
    "bm25": "BM25 of the field {field}: rare words count more, repeated ones less and less.",
    "coverage": "The share of the query's words that are in the field {field}.",
    "share": "The share of the field {field} that is words of the query; of several values, of the one that has most.",
    "exact": "1 if the field {field}, or one of its values, is the query word by word.",
    "phrase": "How much of the query stands in the field {field} word after word, without a word between.",
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
