"""The language of a text collection, which an index and the models made of it share."""

from __future__ import annotations

from querywise.errors import DataError
from querywise.retrieval.index import Index
from querywise.runtime.values import JsonObject

_NOTE, _NONE = "language", "none"


def language_notes(index: Index) -> JsonObject:
    """What a model remembers of an index's language."""
    return {_NOTE: index.tokeniser.language or _NONE}


def require_language(index: Index, notes: JsonObject, model: str) -> None:
    """Refuse an index of another language than the model's; a model made of files does not know its language.

    notes: those of the model. model: what messages call it.
    """
    found = index.tokeniser.language or _NONE
    trained = notes.get(_NOTE, found)
    if trained != found:
        raise DataError(
            f"{model} was trained on text with the stemmer {trained}, and this index was made with the stemmer {found}"
            f". Make the index anew in the language {trained}."
        )
