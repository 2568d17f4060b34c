"""The models of a fitted ranker that an engine can run, with names, and which of their features it can compute.

Features of a text collection are those that `querywise features` writes. An engine's text query is BM25, so it computes
`H1.bm25`, of a field that holds title and body; lengths and the user's own columns are numbers that a field can hold.
It has none of the other 24 rankers, and a model that sees one document at a time has neither a similarity of vectors
nor a rank in a list.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from querywise.contracts.answers import Answer, Model, Models, PretrainedModels
from querywise.contracts.asking import nobody
from querywise.contracts.forms import Linear, Refusal, Runnable, Split, name_in_engine, nodes
from querywise.contracts.protocols import Ranker
from querywise.data.candidates import Candidates
from querywise.errors import DataError, NotFittedError
from querywise.retrieval.field_features import ALL, OF_ALL, OF_FIELD, OF_NUMBER
from querywise.retrieval.scores import BM25, NAMES
from querywise.runtime.arrays import Bools, Floats

_EVERYONE = "the global model, for queries without one of their own"
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True, eq=False)
class NamedModel:
    """One model for the engine.

    Attributes:
        number: The number of the model in routing, −1 for the global model.
        what: The queries it scores, in words.
        own: The fitted ranker's scores of a table of features by this model, to compare the engine's scores with.

    """

    name: str
    number: int
    what: str
    form: Runnable
    own: Callable[[Floats], Floats]


@dataclass(frozen=True)
class Exported:
    """The names of a ranker's features, and its models, the global one first.

    Attributes:
        trained_on_arrival: Whether a model is trained for every query when it arrives; then only the global one is
            here.
        numbers: Features that depend only on the document, as far as the data shows.

    """

    features: tuple[str, ...]
    models: tuple[NamedModel, ...]
    trained_on_arrival: bool = False
    numbers: frozenset[str] = frozenset()

    @property
    def is_linear(self) -> bool:
        """Whether all models are weighted sums."""
        return all(isinstance(model.form, Linear) for model in self.models)


def exported(ranker: Ranker, name: str) -> Exported:
    """Return the models of a fitted ranker, with names that begin with `name`."""
    if not _NAME.fullmatch(name):
        raise DataError(f"{name!r}: engines take names of lowercase letters, digits, - and _ that begin with a letter.")
    answer = answer_to_nobody(ranker)
    if (refused := answer.facts().refused) is not None:
        raise DataError(refused.reason)
    names = exported_names(ranker)
    if not answer.varies:
        return Exported(names, (_one(answer.everyone, name, "all queries"),))
    everyone = _one(answer.everyone, name_in_engine(name, -1, 0), _EVERYONE)
    if answer.local.stored is None:
        return Exported(names, (everyone,), trained_on_arrival=True)
    return Exported(names, (everyone, *_several(answer.local.models(), answer.local.stored, name)))


def exported_names(ranker: Ranker) -> tuple[str, ...]:
    """Return the names of a fitted ranker's features in an engine; f1, f2, … if it was trained without names."""
    return ranker.feature_names_ or tuple(f"f{column + 1}" for column in range(ranker.feature_count_))


def answer_to_nobody(ranker: Ranker) -> Answer:
    """Return a fitted ranker's answer to no queries: its facts that do not depend on the query."""
    if not hasattr(ranker, "feature_count_"):
        raise NotFittedError(ranker)
    return ranker.answer(nobody(ranker.feature_count_, ranker.feature_names_))


def _several(models: Models, stored: PretrainedModels, name: str) -> list[NamedModel]:
    count = len(models)
    return [
        _one(models[number], name_in_engine(name, number, count), stored.whom(number), number)
        for number in np.flatnonzero(stored.usable).tolist()
    ]


def _one(model: Model, name: str, what: str, number: int = -1) -> NamedModel:
    def own(features: Floats) -> Floats:
        return model.predict(Candidates(features, np.array([0, len(features)]), ("sample",)))

    return NamedModel(name, number, what, runnable(model), own)


def runnable(model: Model) -> Runnable:
    """Return a fitted model as weights or trees; raise DataError with the reason if an engine cannot run it."""
    form = model.form()
    if isinstance(form, Refusal):
        raise DataError(form.reason)
    return form


def largest_number(form: Runnable) -> float:
    """Return the largest absolute value of a weight, or of a threshold or leaf."""
    if isinstance(form, Linear):
        return float(np.abs(form.weights).max(initial=0.0))
    numbers = (node.threshold if isinstance(node, Split) else node.value for node in nodes(form))
    return max(map(abs, numbers), default=0.0)


BM25_FACTOR = 2.2  # k1 + 1, a factor of our BM25 but not of Lucene's
BM25_FIELD = "title_and_body"
_OF_LISTS = ("similarity", "found_by")
_PARTS = {*OF_FIELD, *OF_ALL, *OF_NUMBER}


class Source(Enum):
    """How an engine computes a feature. WORDS: by a query, as for any feature known only by its name."""

    WORDS = "a query of the text"
    BM25 = "BM25 of title and body"
    NUMBER = "a number in a field"
    NONE = "not at all"


def sources(exported: Exported) -> list[tuple[str, Source]]:
    """Return every feature, and how an engine computes it; without a text collection WORDS, unless it is a number."""
    if set(NAMES) <= set(exported.features):
        fielded = f"{ALL}.hit" in exported.features
        return [(name, _source(name, fielded=fielded)) for name in exported.features]
    return [(name, Source.NUMBER if name in exported.numbers else Source.WORDS) for name in exported.features]


def numbers_in(candidates: Candidates, features: tuple[str, ...]) -> frozenset[str]:
    """Return features that depend only on the document: the same in every query, different between documents.

    This takes documents shared by several queries; without them, or without document ids, nothing is known.
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


def _source(feature: str, *, fielded: bool) -> Source:
    """Return how an engine computes a feature; `fielded` documents have features named FIELD.PART."""
    if feature == BM25:
        return Source.BM25
    if fielded and "." in feature and feature.rpartition(".")[2] in _PARTS:
        return Source.WORDS if feature.endswith(".bm25") else Source.NONE
    without = feature in NAMES or feature in _OF_LISTS or feature.startswith(("similarity.", "run."))
    return Source.NONE if without else Source.NUMBER


def check_text_features(exported: Exported, engine: str, *, by_documents: bool) -> None:
    """Raise DataError if a model uses features that the engine cannot compute, listing them.

    `by_documents` tells whether queries are routed by their documents, which uses every feature.
    """
    pairs = sources(exported)
    used = np.ones(len(pairs), np.bool_) if by_documents else _used(exported)
    lacking = [name for (name, source), counts in zip(pairs, used, strict=True) if counts and source is Source.NONE]
    if not lacking:
        return
    computed = ", ".join(name for name, source in pairs if source is not Source.NONE)
    raise DataError(
        f"{engine} does not compute {len(lacking)} of the features that the model uses: {', '.join(lacking)}. It "
        f"computes {computed}. Train on features that the engine logs (`querywise log`); give a feature set that says "
        "how the engine computes each of them; or let the engine find the candidates and querywise order them."
    )


def _used(exported: Exported) -> Bools:
    """Return which features have a weight, or a split, in any of the models."""
    used = np.zeros(len(exported.features), np.bool_)
    for form in (model.form for model in exported.models):
        if isinstance(form, Linear):
            used |= form.weights != 0
        used[[node.column for node in nodes(form) if isinstance(node, Split)]] = True
    return used
