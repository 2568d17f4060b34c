"""Routing: which of the exported models answers a query, and how many requests to the engine that takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypeAlias, TypedDict, TypeGuard, Unpack

import numpy as np

from querywise.contracts.answers import Answer
from querywise.contracts.forms import Linear
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates
from querywise.data.letor import PathLike
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.exports.models import answer_to_nobody, runnable
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.files import read_stored_text, recover_folder
from querywise.runtime.values import Json, JsonObject
from querywise.storage import load

MANIFEST = "export.json"
# A document's features, as numbers in the order of training, or by their names in the engine.
Document: TypeAlias = Mapping[str, float] | Sequence[float] | Floats


class ModelEntry(TypedDict):
    """A model in the manifest: its number among the ranker's models, −1 for the global one, and its file."""

    name: str
    number: int
    what: str
    file: str


class FeatureEntry(TypedDict):
    """The features in the manifest: their names in training and in the engine, and what else the engine computes."""

    names: list[str]
    in_engine: list[str]
    others: NotRequired[list[str]]
    unfinished: bool


class RoutingEntry(TypedDict):
    """Routing in the manifest: what it depends on, and how many requests it takes."""

    by: list[str]
    requests: int


class ExportManifest(TypedDict):
    """The content of export.json. There is at least one model; the global one is the first."""

    engine: str
    name: str
    features: FeatureEntry
    models: list[ModelEntry]
    routing: RoutingEntry | None
    checksums: NotRequired[dict[str, str]]


@dataclass(frozen=True)
class Routing:
    """What decides which model answers a query.

    by: any of text, vector, columns, class and documents, the last the engine's first answers. These take a request of
    their own; the others come with the query.
    """

    by: tuple[str, ...]

    @property
    def requests(self) -> int:
        """How many requests to the engine a query takes."""
        return 2 if "documents" in self.by else 1


def routing_of(answer: Answer) -> Routing | None:
    """The routing of a fitted ranker; None where one model answers all queries."""
    if not answer.varies or answer.place is None:
        return None
    by = answer.place.by()
    return Routing(("class", *by) if answer.place.classes else by)


def route(ranker: Ranker, candidates: Candidates) -> Ints:
    """The number of the stored model that answers each query; −1 is the global model.

    Where the ranker's view uses only the query's text or columns, the queries need no documents.
    """
    answer = ranker.answer(candidates)
    if not answer.varies or answer.stored is None or answer.scale != "raw":
        raise DataError(
            f"A {type(ranker).__name__} stores no model per kind of query; there is nothing to choose from."
        )
    return answer.chosen()


class QueryFacts(TypedDict, total=False):
    """What may be known of a query beside its text.

    query_class: its class. vector: its vector, from an embedding model. columns: numbers by name. documents: the
    features of the engine's first answers to it, as numbers in the order of training or by their names in the engine; a
    feature that is left out is 0, one that the export does not know is refused. Only models routed by documents use
    them.
    """

    query_class: str | None
    vector: Sequence[float] | None
    columns: Mapping[str, float] | None
    documents: Sequence[Document] | None


class Router:
    """The client's side of an export: the name, or the weights, of the model that answers a query.

    folder: an export of a ranker with several models.

    `model` and `weights` take what is known of a query:

    text: its text.
    facts: by keyword, `query_class`, `vector`, `columns` and `documents` (see QueryFacts); each, as the text, may be
    left out where routing does not depend on it.

    Refused: with DataError, an export of one model, a folder that is no export, and a query without what routing needs.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import Naive, RankSVM, Router, export_model, make_judged
    >>> ranker = Naive(RankSVM(), clusters=2).fit(make_judged(30, 10, 3, kinds=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     names = export_model(ranker, "opensearch", Path(folder) / "export").models
    ...     router = Router(Path(folder) / "export")
    >>> router.requests, router.model(documents=[[0.5, 1.0, -0.25]]) in names
    (2, True)
    """

    def __init__(self, folder: PathLike) -> None:
        self.manifest = _checked(read_manifest(Path(folder)), Path(folder))
        routing = self.manifest["routing"]
        if routing is None:
            only = self.manifest["models"][0]["name"]
            raise DataError(f"{folder}: one model answers all queries, {only}; nothing is routed.")
        self._routing = routing
        self.ranker = load(Path(folder) / "model")
        place = answer_to_nobody(self.ranker).place
        self._classes = () if place is None else place.classes
        self._names = {model["number"]: model["name"] for model in self.manifest["models"]}
        features = self.manifest["features"]
        if not len(features["names"]) == len(features["in_engine"]) == self.ranker.feature_count_:
            raise DataError(f"{Path(folder) / MANIFEST}: its features are not those of the model. Export it again.")

    @property
    def requests(self) -> int:
        """How many requests to the engine a query takes."""
        return int(self._routing["requests"])

    def model(self, text: str | None = None, **facts: Unpack[QueryFacts]) -> str:
        """The name of the model that answers a query, by its `text` and other `facts`."""
        number = int(self._answer(text, facts).chosen()[0])
        if number not in self._names:
            raise DataError(f"{MANIFEST} has no name for model {number} of the export. Export the model again.")
        return self._names[number]

    def weights(self, text: str | None = None, **facts: Unpack[QueryFacts]) -> dict[str, float]:
        """The weight of every feature, by its name in the engine, in the model that `text` and `facts` lead to."""
        form = runnable(self._answer(text, facts).answering(0))
        if not isinstance(form, Linear):
            raise DataError("The models of this export are forests, not weighted sums: there are no weights.")
        return dict(zip(self.manifest["features"]["in_engine"], form.weights.tolist(), strict=True))

    def about_class(self, query_class: str) -> str | None:
        """A sentence on why routing ignores a query's class; None where it uses it."""
        if "class" not in self._routing["by"]:
            return (
                f"The class {query_class!r} is not gone by: this model goes by the query's "
                f"{' and '.join(self._routing['by'])}. To go by the class that a query comes with, fit "
                "query-classes with known=true."
            )
        if query_class not in self._classes:
            known = ", ".join(self._classes)
            return f"The class {query_class!r} is not gone by: the model was trained on the classes {known}."
        return None

    def _answer(self, text: str | None, facts: QueryFacts) -> Answer:
        known = QueryFacts.__annotations__
        unknown = next((name for name in facts if name not in known), None)
        if unknown is not None:
            raise TypeError(f"Unexpected keyword argument {unknown!r}; known are {', '.join(known)}.")
        self._check_given(text, facts)
        return self.ranker.answer(self._candidates(text, facts))

    def _check_given(self, text: str | None, facts: QueryFacts) -> None:
        """Refuse a query without something that routing depends on; one of a known class needs nothing else."""
        by, query_class = self._routing["by"], facts.get("query_class")
        given = {"text": text, **{name: facts.get(name) for name in ("vector", "columns", "documents")}}
        lacking = [each for each in by if each != "class" and given[each] is None]
        if lacking and query_class not in self._classes:
            unknown = None if query_class is None else self.about_class(query_class)
            raise DataError(
                f"This model goes by the query's {' and '.join(by)}; its {lacking[0]} "
                f"{'was' if lacking[0] in ('text', 'vector') else 'were'} not given.{_HOW_TO_GIVE[lacking[0]]}"
                + ("" if unknown is None else f" {unknown}")
            )

    def _candidates(self, text: str | None, facts: QueryFacts) -> Candidates:
        """The query as the ranker takes it, with its documents where they are given."""
        query_class = facts.get("query_class")
        values = _numbers(facts.get("columns") or {}, "The query's columns")
        table = QueryTable(
            ("query",),
            texts=None if text is None else (text,),
            classes=None if query_class is None else (query_class,),
            columns=np.array([list(values.values())], dtype=np.float64) if values else None,
            column_names=tuple(values),
            vectors=one_vector(facts.get("vector")),
        )
        rows = self._rows(facts.get("documents") or ())
        names = self.ranker.feature_names_
        return Candidates(rows, np.array([0, len(rows)]), ("query",), queries=table, feature_names=names)

    def _rows(self, documents: Sequence[Document]) -> Floats:
        features = self.manifest["features"]
        rows = np.zeros((len(documents), len(features["names"])))
        for row, document in zip(rows, documents, strict=True):
            if isinstance(document, Mapping):
                values = self._known(document)
                row[:] = [values.get(name, 0.0) for name in features["in_engine"]]
            elif len(document) == len(row):
                row[:] = document
            else:
                raise DataError(f"A document has {len(document)} features; the model was trained on {len(row)}.")
        return rows

    def _known(self, document: Mapping[str, float]) -> dict[str, float]:
        """A document's features; refused where one is not of this export, or none is the model's."""
        names = self.manifest["features"]["in_engine"]
        others = self.manifest["features"].get("others", ())
        unknown = next((name for name in document if name not in names and name not in others), None)
        if unknown is not None or not any(name in document for name in names):
            found = f"the feature {unknown!r}" if unknown is not None else "none of the model's features"
            raise DataError(
                f"A document has {found}; the model knows {', '.join(names[:8])}{' …' if len(names) > 8 else ''}. "
                "Fetch the documents with the features of this export."
            )
        return _numbers(document, "A document's features")


_HOW_TO_GIVE = {
    "text": "",
    "vector": " With router.py: --vector '[0.1, 0.2]'.",
    "columns": " With router.py: --columns '{\"name\": 3}'.",
    "documents": " With router.py: --first writes the request that fetches them, --answer FILE reads what the engine "
    "answers to it.",
}


def one_vector(values: Sequence[float] | None) -> Floats | None:
    """The vector of one query as a table; anything but a list of finite numbers is an error."""
    if values is None:
        return None
    try:
        found = np.array([values], dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise DataError(f"The query's vector must be a list of finite numbers; found {values!r:.80}.")
    return found


def _numbers(values: Mapping[str, float], what: str) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in values.items()}
    except (AttributeError, TypeError, ValueError):
        raise DataError(f"{what} must be numbers by name, as in {{'clicks': 3}}; found {values!r:.80}.") from None


def read_manifest(folder: Path) -> JsonObject:
    """The manifest of an export."""
    recover_folder(folder)
    try:
        found: Json = json.loads(read_stored_text(folder / MANIFEST))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{folder / MANIFEST}: this is not JSON ({error}).") from None
    if not isinstance(found, dict) or found.get("format") != "querywise export":
        raise DataError(f"{folder / MANIFEST}: not the manifest of a querywise export.")
    return found


def _checked(found: JsonObject, folder: Path) -> ExportManifest:
    """The manifest of an export of models; refused where an entry is missing or of another kind."""
    features, models, routing = (found.get(name) for name in ("features", "models", "routing"))
    known = features if isinstance(features, dict) else {}
    listed = [each for each in models if isinstance(each, dict)] if isinstance(models, list) else []
    by: JsonObject = routing if isinstance(routing, dict) else {"by": [], "requests": 1}
    sound = (
        isinstance(found.get("name"), str)
        and all(_are_texts(known.get(name, [] if name == "others" else None)) for name in _FEATURES)
        and listed == models != []
        and all(isinstance(each.get("name"), str) and type(each.get("number")) is int for each in listed)
        and "routing" in found
        and (routing is None or isinstance(routing, dict))
        and _are_texts(depends := by.get("by"))
        and set(depends) <= {"class", *_HOW_TO_GIVE}
        and by.get("requests") in (1, 2)
    )
    if not sound:
        raise DataError(f"{folder / MANIFEST}: damaged, or not of an export of models. Export the model again.")
    manifest: ExportManifest = found  # type: ignore[assignment]  # as it was checked
    return manifest


def _are_texts(value: Json) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_FEATURES = ("names", "in_engine", "others")
