"""Which of the exported models answers a query, and how many requests to the engine it takes to know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from querywise.arrays import Floats, Ints
from querywise.data.groups import Candidates, QueryTable
from querywise.data.letor import PathLike
from querywise.errors import DataError
from querywise.exports.models import Linear, form_of
from querywise.files import read_text
from querywise.learners.linear import LinearModels
from querywise.rankers.classes import QueryClasses
from querywise.rankers.clusters import Naive
from querywise.rankers.gradients import GradientView
from querywise.rankers.knn import KnnOffline2, KnnOnline, locality_of, models_of
from querywise.rankers.metric import LearnedMetric
from querywise.storage import load
from querywise.views.columns import Columns, SideBySide
from querywise.views.text import TextView

MANIFEST = "export.json"


@dataclass(frozen=True)
class Routing:
    """What routing goes by: any of text, columns, class and documents, the latter the engine's first answers.

    One request to the engine where the query itself says enough, two where its documents are looked at first.
    """

    by: tuple[str, ...]

    @property
    def requests(self) -> int:
        """How many requests a query takes."""
        return 2 if "documents" in self.by else 1


def routing_of(ranker: Any) -> Routing | None:
    """What a fitted ranker's routing goes by; None where one model answers all queries."""
    if isinstance(ranker, QueryClasses):
        seen = _seen_by(ranker.view_)
        return Routing(("class", *seen)) if ranker.known else Routing(seen)
    if isinstance(ranker, Naive):
        return Routing(_seen_by(ranker.groups_.view_))
    if isinstance(ranker, (KnnOffline2, KnnOnline)):
        return Routing(_seen_by(locality_of(ranker).view_))
    return None


def _seen_by(view: Any) -> tuple[str, ...]:
    """What a fitted view looks at."""
    if isinstance(view, TextView):
        return ("text",)
    if isinstance(view, Columns):
        return ("columns",)
    if isinstance(view, SideBySide):
        return tuple(dict.fromkeys(each for part in view.views_ for each in _seen_by(part)))
    if isinstance(view, (GradientView, LearnedMetric)):
        return _seen_by(view.view_)
    return ("documents",)


def route(ranker: Any, candidates: Candidates) -> Ints:
    """The number of the stored model that answers each query; −1 is the global model.

    A view of the query's text or columns looks at no document: candidates without any are enough.
    """
    if isinstance(ranker, QueryClasses):
        chosen = ranker.chosen(candidates)
        return np.where(ranker.usable_[chosen], chosen, -1)
    if isinstance(ranker, (KnnOffline2, Naive)):
        return ranker.chosen(candidates)
    raise DataError(f"A {type(ranker).__name__} stores no model per kind of query; there is nothing to choose from.")


def stored_models(ranker: Any) -> tuple[Any, Any]:
    """The models that a fitted ranker stores, and the global one."""
    if isinstance(ranker, KnnOffline2):
        return ranker.offline_.models_, ranker.offline_.everyone_
    if isinstance(ranker, Naive):
        return ranker.groups_.models_, ranker.groups_.everyone_
    return ranker.models_, ranker.everyone_


def _weights(models: Any, number: int, everyone: Any) -> Floats:
    if number >= 0 and isinstance(models, LinearModels):
        found: Floats = models.weights[number]
        return found
    form = form_of(everyone if number < 0 else models.rankers[number])
    if not isinstance(form, Linear):
        raise DataError("The models of this export are forests, not weighted sums: there are no weights.")
    return form.weights


class Router:
    """The client's half of an export: which model answers a query, by name, or its weights.

    folder: an export. documents: for each of the engine's first answers its features, as numbers in the order of
    training or by their names in the engine; a feature that is left out is 0, one that the export does not know is
    refused. Only models routed by documents look at them.
    """

    def __init__(self, folder: PathLike) -> None:
        self.manifest = read_manifest(Path(folder))
        if self.manifest["routing"] is None:
            only = self.manifest["models"][0]["name"]
            raise DataError(f"{folder}: one model answers all queries, {only}; nothing is routed.")
        self.ranker = load(Path(folder) / "model")
        self._names = {model["number"]: model["name"] for model in self.manifest["models"]}

    @property
    def requests(self) -> int:
        """How many requests to the engine a query takes."""
        return int(self.manifest["routing"]["requests"])

    def model(
        self,
        text: str | None = None,
        *,
        query_class: str | None = None,
        columns: Mapping[str, float] | None = None,
        documents: Sequence[Any] | None = None,
    ) -> str:
        """The name of the model that answers a query."""
        return str(self._names[self._number(text, query_class, columns, documents)])

    def weights(
        self,
        text: str | None = None,
        *,
        query_class: str | None = None,
        columns: Mapping[str, float] | None = None,
        documents: Sequence[Any] | None = None,
    ) -> dict[str, float]:
        """The weight of every feature, by its name in the engine, in the model that answers a query."""
        if isinstance(self.ranker, KnnOnline):
            models, index, everyone = models_of(self.ranker, self._asked(text, query_class, columns, documents))
            number = int(index[0])
        else:
            models, everyone = stored_models(self.ranker)
            number = self._number(text, query_class, columns, documents)
        found = _weights(models, number, everyone)
        return dict(zip(self.manifest["features"]["in_engine"], found.tolist(), strict=True))

    def about_class(self, query_class: str) -> str | None:
        """Why a query's class is not gone by, in a sentence; None where it is."""
        if "class" not in self.manifest["routing"]["by"]:
            return (
                f"The class {query_class!r} is not gone by: this model goes by the query's "
                f"{' and '.join(self.manifest['routing']['by'])}. To go by the class that a query comes with, fit "
                "query-classes with --set known=true."
            )
        if query_class not in self.ranker.classes_:
            known = ", ".join(self.ranker.classes_)
            return f"The class {query_class!r} is not gone by: the model was trained on the classes {known}."
        return None

    def _number(
        self,
        text: str | None,
        query_class: str | None,
        columns: Mapping[str, float] | None,
        documents: Sequence[Any] | None,
    ) -> int:
        ranker = self.ranker
        if isinstance(ranker, QueryClasses) and ranker.known and query_class in ranker.classes_:
            number = ranker.classes_.index(query_class)
            return number if ranker.usable_[number] else -1
        return int(route(ranker, self._asked(text, query_class, columns, documents))[0])

    def _asked(
        self,
        text: str | None,
        query_class: str | None,
        columns: Mapping[str, float] | None,
        documents: Sequence[Any] | None,
    ) -> Candidates:
        given = {"text": text, "class": query_class, "columns": columns, "documents": documents}
        by = self.manifest["routing"]["by"]
        lacking = [each for each in by if given[each] is None and each != "class"]
        if lacking:
            unknown = None if query_class is None else self.about_class(query_class)
            raise DataError(
                f"This model goes by the query's {' and '.join(by)}; its {lacking[0]} "
                f"{'was' if lacking[0] == 'text' else 'were'} not given.{_HOW_TO_GIVE[lacking[0]]}"
                + ("" if unknown is None else f" {unknown}")
            )
        values = _numbers(columns or {}, "The query's columns")
        table = QueryTable(
            ("query",),
            texts=None if text is None else (text,),
            classes=None if query_class is None else (query_class,),
            columns=np.array([list(values.values())], dtype=np.float64) if values else None,
            column_names=tuple(values),
        )
        rows = self._rows(documents or ())
        return Candidates(rows, np.array([0, len(rows)]), ("query",), queries=table)

    def _rows(self, documents: Sequence[Any]) -> Floats:
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

    def _known(self, document: Mapping[str, Any]) -> dict[str, float]:
        """A document's features, all of which the engine was told to compute, and one of them by the model at least."""
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
    "columns": " With router.py: --columns '{\"name\": 3}'.",
    "documents": " With router.py: --first writes the request that fetches them, --answer FILE reads what the engine "
    "answers to it.",
}


def _numbers(values: Any, what: str) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in values.items()}
    except (AttributeError, TypeError, ValueError):
        raise DataError(f"{what} must be numbers by name, as in {{'clicks': 3}}; found {values!r:.80}.") from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """What an export says of itself."""
    try:
        found = json.loads(read_text(folder / MANIFEST))
    except ValueError as error:
        raise DataError(f"{folder / MANIFEST}: this is not JSON ({error}).") from None
    if not isinstance(found, dict) or found.get("format") != "querywise export":
        raise DataError(f"{folder / MANIFEST}: not the manifest of a querywise export.")
    return found
