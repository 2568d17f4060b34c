"""What was read and is left out of an evaluation, or counts only in part: how many, of how many, and an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from querywise.runtime.values import JsonObject

# Kind of loss → its sentence, up to the example.
KINDS = {
    "queries without a judgment": "Left out: {} queries without a judgment",
    "queries judged on unknown documents": "Left out: {} queries whose judged documents are not in the corpus",
    "judgments of unknown documents": "Left out: {} judgments of documents that are not in the corpus",
    "documents without text": "Never found by words: documents without a word in title and text, {}",
    "queries without a known word": "Nothing is found by words: queries without a word that is in the corpus, {}",
    "queries shortened": "Ignored: words that no document has, in {} queries",
}
_EXAMPLE = 80  # characters


class Loss(NamedTuple):
    """How many things of one kind were lost, of how many, and one of them. kind: one of KINDS."""

    kind: str
    number: int
    total: int
    example: str

    def __str__(self) -> str:
        """The loss in a sentence.

        >>> print(Loss("queries without a judgment", 25, 3244, "'q7' (jaguar speed)"))
        Left out: 25 of 3,244 queries without a judgment, such as 'q7' (jaguar speed).
        """
        told = KINDS[self.kind].format(f"{self.number:,} of {self.total:,}")
        return f"{told}, such as {self.example}."

    def as_json(self) -> JsonObject:
        """The loss as JSON can hold it, with its sentence."""
        return {**self._asdict(), "text": str(self)}


def losses(counts: Sequence[tuple[str, Sequence[str], int]]) -> tuple[Loss, ...]:
    """Those that there are, of kind, lost things and the number of all; the first lost thing is the example."""
    return tuple(Loss(kind, len(lost), total, lost[0]) for kind, lost, total in counts if lost)


def named(query_id: str, text: str | None) -> str:
    """A query by its id and the beginning of its text."""
    short = " ".join((text or "").split())
    cut = short if len(short) <= _EXAMPLE else f"{short[:_EXAMPLE].rstrip()}…"
    return f"{query_id!r} ({cut})" if cut else f"{query_id!r}"
