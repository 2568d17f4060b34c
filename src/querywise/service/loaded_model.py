"""A fitted ranker, ready to answer requests. Nothing here knows of HTTP."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from querywise.contracts.answers import Answer
from querywise.contracts.protocols import Ranker
from querywise.data.decimals import read_rows
from querywise.data.judged import Candidates, QueryTable
from querywise.errors import DataError, ModelFileError, QuerywiseError
from querywise.explanations.explain import Explanation, Reason, explain, why
from querywise.measures.order import check_scores, order
from querywise.methods import described
from querywise.runtime.arrays import Floats
from querywise.service.schema import (
    Document,
    ExplainRequest,
    ModelSetting,
    Query,
    RankedDocument,
    RankRequest,
    RankResponse,
    read_values,
    unread,
)
from querywise.storage import Manifest, load, read_manifest, version_of

_QUICK = 0.005  # seconds for a hundred documents up to which an answer is not worth a thread
_FEW = 1_000  # documents up to which it is not
_REHEARSALS = 3


class Misplaced(DataError):  # noqa: N818 - it is a place in a request
    """Something wrong in a request, and where."""

    def __init__(self, message: str, where: str) -> None:
        super().__init__(message)
        self.where = where


class Served:
    """A ranker and what its folder says of it. `quick`: answers come so fast that they need no thread of their own."""

    def __init__(self, ranker: Ranker, manifest: Manifest, version: str) -> None:
        self.ranker = ranker
        self.manifest = manifest
        self.version = version
        self.quick = self._rehearsed() < _QUICK

    @staticmethod
    def of(folder: Path) -> Served:
        """The model in a folder, whole."""
        for _ in range(5):
            version = version_of(folder)
            ranker, manifest = load(folder), read_manifest(folder)
            if version_of(folder) == version:  # else it was replaced meanwhile: take the new one
                return Served(ranker, manifest, version[:12])
        raise ModelFileError(f"{folder}: the model changes faster than it can be read.")

    def _rehearsed(self) -> float:
        """Answer a made-up query a few times, so that everything is compiled and known to work; the best time."""
        features = np.random.default_rng(0).random((100, self.manifest.feature_count)).round(6)
        documents = [Document(str(row), unread(each.tolist())) for row, each in enumerate(features)]
        candidates = self.candidates([RankRequest(Query("rehearsal", "rehearsal"), documents)])
        best = np.inf
        for _ in range(_REHEARSALS):
            begun = time.perf_counter()
            try:
                self.answer(candidates)
            except DataError:
                return (
                    np.inf
                )  # it needs columns of the query's own, which cannot be made up: who knows how long it takes
            except QuerywiseError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a damaged model does, it is not served
                raise ModelFileError(f"The model cannot rank ({type(error).__name__}: {error}).") from None
            best = min(best, time.perf_counter() - begun)
        return best

    def settings(self) -> list[ModelSetting]:
        """Every setting of the method that was fitted, with the value in force; none where no method is known."""
        method, chosen = self.manifest.notes.get("method"), self.manifest.notes.get("parameters")
        known = described(method, chosen if isinstance(chosen, Mapping) else {}) if isinstance(method, str) else []
        try:
            return msgspec.convert(known, list[ModelSetting])
        except msgspec.ValidationError:  # notes are the user's own: anything may stand there
            return []

    def is_small(self, documents: int) -> bool:
        """Whether so many documents are ranked in less time than it takes to hand them to a thread."""
        return self.quick and documents <= _FEW

    def candidates(self, requests: Sequence[RankRequest | ExplainRequest]) -> Candidates:
        """The documents of some requests, in the model's columns; several queries go by number, whatever their ids."""
        width, names = self.manifest.feature_count, self.manifest.feature_names
        documents = [request.documents or [] for request in requests]
        several = len(requests) != 1
        features = [
            _features(each, width, names, f"requests[{number}].documents" if several else "documents")
            for number, each in enumerate(documents)
        ]
        ids = tuple(map(str, range(len(requests)))) if several else (requests[0].query.id or "0",)
        return Candidates(
            features[0] if len(features) == 1 else np.concatenate([np.zeros((0, width)), *features]),
            np.cumsum([0, *map(len, documents)]),
            ids,
            document_ids=tuple(document.id for each in documents for document in each),
            feature_names=names,
            queries=query_table(ids, [request.query for request in requests]),
        )

    def answer(self, candidates: Candidates) -> tuple[Answer, Floats]:
        """How the model answers, and its scores, one per document, finite."""
        answer = self.ranker.answer(candidates)
        return answer, check_scores(answer.scores(), candidates)

    def rank(self, requests: Sequence[RankRequest]) -> tuple[list[RankResponse], Answer]:
        """What is sent back to some requests, and how the model answered them."""
        candidates = self.candidates(requests)
        answer, scores = self.answer(candidates)
        best = order(scores, candidates.starts)
        names, values = candidates.document_ids or (), scores[best].tolist()
        answers = []
        for number, request in enumerate(requests):
            rows = candidates.rows(number)
            ranked = [
                RankedDocument(names[row], value) for row, value in zip(best[rows].tolist(), values[rows], strict=True)
            ]
            answers.append(RankResponse(request.query.id, self.version, ranked[: request.top]))
        return answers, answer

    def explain(self, candidates: Candidates, request: ExplainRequest) -> Explanation | Reason:
        """What is particular to a query, or why one document is above another."""
        name = candidates.query_ids[0]
        if request.above is not None and request.below is not None:
            reason = why(self.ranker, candidates, name, request.above, request.below)
            return replace(reason, query_id=request.query.id or name)
        return replace(explain(self.ranker, candidates, name), query_id=request.query.id or name)


def query_table(ids: Sequence[str], queries: Sequence[Query]) -> QueryTable | None:
    """What the asker says of the queries; None where that is nothing."""
    texts, classes = tuple(query.text for query in queries), tuple(query.class_ for query in queries)
    columns = [query.columns for query in queries]
    if not any(columns) and not any(each is not None for each in (*texts, *classes)):
        return None
    names = tuple(columns[0] or ())
    for query, own in zip(queries, columns, strict=True):
        if set(own or ()) != set(names):
            raise DataError(
                f"Query {query.id!r} has the columns {sorted(own or ())}; the first has {sorted(names)}. All need the "
                "same ones."
            )
    values = np.array([[(own or {})[name] for name in names] for own in columns]) if names else None
    return QueryTable(tuple(ids), texts, classes, values, names)


def _features(documents: Sequence[Document], width: int, names: tuple[str, ...] | None, where: str) -> Floats:
    """The features of one query's documents."""
    if len({document.id for document in documents}) != len(documents):
        raise _repeated(documents, where)
    table = np.empty((len(documents), width))
    text = b"".join([document.features for document in documents])
    if not read_rows(np.frombuffer(text, np.uint8), table):  # by name, with something missing, hard to read, or wrong
        for place, document in enumerate(documents):
            table[place] = _row(document, width, names, f"{where}[{place}]")
    return table


def _row(document: Document, width: int, names: tuple[str, ...] | None, where: str) -> list[float]:
    """The features of one document, what is missing 0, as the models are trained to expect."""
    given = _values(document, where)
    if isinstance(given, dict):
        known = names if names is not None else tuple(str(number + 1) for number in range(width))
        unknown = [name for name in given if name not in known]
        if unknown:
            raise Misplaced(
                f"Document {document.id!r} has a feature {unknown[0]!r}, which the model does not know. It knows "
                f"{', '.join(known[:8])}{' …' if len(known) > 8 else ''}.",
                f"{where}.features",
            )
        return [given.get(name) or 0.0 for name in known]
    if len(given) != width:
        raise Misplaced(
            f"Document {document.id!r} has {len(given)} features; the model was trained on {width}. Give them all, "
            "null for one that is missing, or give them by name.",
            f"{where}.features",
        )
    return [value or 0.0 for value in given]


def _values(document: Document, where: str) -> Any:
    try:
        return read_values(document.features)
    except ValueError as error:
        message, _, place = str(error).partition(" - at ")
        inside = place.strip("`").removeprefix("$")
        raise Misplaced(f"{message}.", f"{where}.features{inside}") from None


def _repeated(documents: Sequence[Document], where: str) -> Misplaced:
    seen: dict[str, int] = {}
    for place, document in enumerate(documents):
        if document.id in seen:
            break
        seen[document.id] = place
    return Misplaced(
        f"Id {document.id!r} is also that of {where}[{seen[document.id]}]; every document needs an id of its own.",
        f"{where}[{place}].id",
    )
