"""The features of a text collection, as `querywise features` writes them: which of them an engine computes, and how.

An engine's text query is BM25, so it computes `H1.bm25`, of a field that holds title and body; lengths and the user's
own columns are numbers that a field can hold. It has none of the other 24 rankers, and a model that sees one document
at a time has neither a similarity of vectors nor a place in a list.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from querywise.contracts.forms import Linear, Split, nodes
from querywise.data.candidates import Candidates
from querywise.errors import DataError
from querywise.exports.models import Exported
from querywise.retrieval.scores import BM25, NAMES
from querywise.runtime.arrays import Bools

BM25_FACTOR = 2.2  # k1 + 1, which BM25 here has as a factor and Lucene's has not
BM25_FIELD = "title_and_body"
_OF_LISTS = ("similarity", "similarity.title", "found_by")


class Source(Enum):
    """How an engine computes a feature. WORDS: by a query, as for any feature that is known by its name alone."""

    WORDS = "a query of the text"
    BM25 = "BM25 of title and body"
    NUMBER = "a number in a field"
    NONE = "not at all"


def sources(exported: Exported) -> tuple[Source, ...]:
    """How an engine computes each feature; those of other origin than a text collection are WORDS unless numbers."""
    if not set(NAMES) <= set(exported.features):
        return tuple(Source.NUMBER if name in exported.numbers else Source.WORDS for name in exported.features)
    return tuple(map(_source, exported.features))


def numbers_in(candidates: Candidates, features: tuple[str, ...]) -> frozenset[str]:
    """The features that are a number of the document: the same in every query, and different between documents.

    Documents that several queries have show it; without them, and without document ids, nothing is known.
    """
    if candidates.document_ids is None:
        return frozenset()
    _, first, document, often = np.unique(
        np.array(candidates.document_ids), return_index=True, return_inverse=True, return_counts=True
    )
    rows = candidates.features[often[document] > 1]
    same = (rows == candidates.features[first[document[often[document] > 1]]]).all(axis=0)
    differ = (rows != rows[:1]).any(axis=0)
    return frozenset(name for name, fixed in zip(features, same & differ, strict=True) if fixed)


def _source(feature: str) -> Source:
    if feature == BM25:
        return Source.BM25
    without = feature in NAMES or feature in _OF_LISTS or feature.startswith("run.")
    return Source.NONE if without else Source.NUMBER


def check_text_features(exported: Exported, engine: str, *, by_documents: bool) -> None:
    """Refuse a model that uses features which the engine does not compute, with the list of them.

    by_documents: whether queries are routed by their documents, which looks at every feature.
    """
    found = sources(exported)
    used = np.ones(len(found), np.bool_) if by_documents else _used(exported)
    pairs = list(zip(exported.features, found, strict=True))
    lacking = [name for (name, source), counts in zip(pairs, used, strict=True) if counts and source is Source.NONE]
    if not lacking:
        return
    computed = ", ".join(name for name, source in pairs if source is not Source.NONE)
    raise DataError(
        f"{engine} does not compute {len(lacking)} of the features that the model uses: {', '.join(lacking)}. It "
        f"computes {computed}. Train on features that the engine logs, as docs/engines says; give a feature set that "
        "says how the engine computes each of them; or let the engine find the candidates and querywise order them."
    )


def _used(exported: Exported) -> Bools:
    """Which features have a weight, or a split, in any of the models."""
    used = np.zeros(len(exported.features), np.bool_)
    for form in (model.form for model in exported.models):
        if isinstance(form, Linear):
            used |= form.weights != 0
        used[[node.column for node in nodes(form) if isinstance(node, Split)]] = True
    return used
