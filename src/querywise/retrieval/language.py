"""The language of a text collection, which an index shares with the models trained on it."""

from __future__ import annotations

from querywise.errors import DataError
from querywise.retrieval.index import Index
from querywise.runtime.values import JsonObject

_NOTE, _NONE = "language", "none"


def language_notes(index: Index) -> JsonObject:
    """Return a model's note on an index's language."""
    return {_NOTE: index.tokeniser.language or _NONE}


def require_language(index: Index, notes: JsonObject, model: str) -> None:
    """Raise DataError if an index's language is not the model's; a model trained on files has no language.

    `notes` are the model's; `model` is its name in messages.
    """
    found = index.tokeniser.language or _NONE
    trained = notes.get(_NOTE, found)
    if trained != found:
        raise DataError(
            f"{model} was trained on text with the stemmer {trained}, and this index was made with the stemmer {found}"
            f". Make the index anew in the language {trained}."
        )
