"""Routing: which exported model scores a query, or which weights of runs it has, and the requests that this takes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypedDict, Unpack

import numpy as np

from querywise.contracts.answers import Answer, adapter_of
from querywise.contracts.forms import Linear
from querywise.contracts.protocols import Ranker
from querywise.contracts.run_weights import Lists, weights_of_query
from querywise.data.judged import Candidates
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.exports.manifest import MANIFEST, FeatureEntry, read_manifest
from querywise.exports.models import answer_to_nobody, runnable
from querywise.exports.target import TEXT, VECTOR, Routing, identifier, weight_of
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.files import PathLike, parse_json, read_stored_text
from querywise.runtime.values import Json
from querywise.storage import load_ranker

# A document's features, as numbers in the order of training, or by their names in the engine.
Document: TypeAlias = Mapping[str, float] | Sequence[float] | Floats


def routing_of(answer: Answer) -> Routing | None:
    """Return the routing of a fitted ranker; None if one model scores all queries."""
    if not answer.varies or answer.place is None:
        return None
    by = answer.place.by()
    return Routing(("class", *by) if answer.place.classes else by)


def route(ranker: Ranker, candidates: Candidates) -> Ints:
    """Return the number of the stored model that scores each query; −1 is the global model.

    If the ranker's view uses only the query's text or columns, the queries need no documents.
    """
    answer = ranker.answer(candidates)
    if not answer.varies or answer.local.stored is None or answer.local.scale != "raw":
        raise DataError(
            f"A {type(ranker).__name__} stores no model per kind of query; there is nothing to choose from."
        )
    return answer.chosen()


class QueryFacts(TypedDict, total=False):
    """Facts about a query beside its text.

    Attributes:
        query_class: Its class.
        vector: Its vector, from an embedding model.
        columns: Numbers by name.
        documents: The features of the engine's first results for it, as numbers in the order of training or by their
            names in the engine; a missing feature is 0, an unknown one raises an error. Only models routed by documents
            use them.
        runs: The runs' scores, by run and document, if run weights depend on them; without them such a query gets the
            global weights.

    """

    query_class: str | None
    vector: Sequence[float] | None
    columns: Mapping[str, float] | None
    documents: Sequence[Document] | None
    runs: Lists | None


class Router:
    """The client side of an export: find the model that scores a query, or its run weights and the request with them.

    Args:
        folder: an export of a ranker with several models, or of run weights.

    `model`, `weights` and `request` take facts about a query:

    text: its text.
    facts: `query_class`, `vector`, `columns`, `documents` and `runs`, by keyword (see QueryFacts). Like the text, each
    may be omitted if routing does not depend on it.

    Raises:
        DataError: If the export has only one model, the folder is not an export, a fact that routing needs is missing,
            or the export has no models, or no request, to return.

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
        path = Path(folder)
        self.manifest = read_manifest(path)
        request = self.manifest["request"]
        if request is None and self.manifest["routing"] is None:
            only = self.manifest["models"][0]["name"]
            raise DataError(f"{folder}: one model answers all queries, {only}; nothing is routed.")
        self._request = None if request is None else path / request["file"]
        self.ranker = load_ranker(path / "model")
        answer = answer_to_nobody(self.ranker)
        self._by = () if (routing := routing_of(answer)) is None else routing.by
        self._classes = () if answer.place is None else answer.place.classes
        self._names = {model["number"]: model["name"] for model in self.manifest["models"]}
        self._features = self.manifest["features"] or FeatureEntry(names=[], in_engine=[], others=[], unfinished=False)
        widths = {len(self._features[each]) for each in ("names", "in_engine")} | {len({*self._features["in_engine"]})}
        if request is None and widths != {self.ranker.feature_count_}:
            raise DataError(f"{path / MANIFEST}: its features are not those of the model. Export it again.")

    @property
    def requests(self) -> int:
        """The number of requests to the engine that a query takes."""
        return Routing(self._by).requests

    def model(self, text: str | None = None, **facts: Unpack[QueryFacts]) -> str:
        """Return the name of the model that scores a query, from its `text` and other `facts`."""
        if self._request is not None:
            raise DataError("This export has weights of runs, and no models: use `weights` or `request`.")
        number = int(self._answer(text, facts).chosen()[0])
        if number not in self._names:
            raise DataError(f"{MANIFEST} has no name for model {number} of the export. Export the model again.")
        return self._names[number]

    def weights(self, text: str | None = None, **facts: Unpack[QueryFacts]) -> dict[str, float]:
        """Return a query's weights, from its `text` and other `facts`: of every run, or of its model's features.

        Runs have their names, features those in the engine. Weights of runs sum to 1.
        """
        if self._request is not None:
            return weights_of_query(self.ranker, _query(text, facts), _scores(facts.get("runs")))
        form = runnable(self._answer(text, facts).answering(0))
        if not isinstance(form, Linear):
            raise DataError("The models of this export are forests, not weighted sums: there are no weights.")
        return dict(zip(self._features["in_engine"], form.weights.tolist(), strict=True))

    def request(self, text: str | None = None, **facts: Unpack[QueryFacts]) -> Json:
        """Return the request with its weights of runs, from `text` and `facts`; for SQL {"sql": …, "parameters": …}.

        Its vector is the query's own, adapted if the model has an adapter.
        """
        if self._request is None:
            raise DataError("This export has models, and no weights of runs: its router.py makes the requests.")
        vector, adapter = facts.get("vector"), adapter_of(self.ranker)
        own = _one_vector(vector)
        if own is not None and adapter is not None:
            vector = adapter.transform(own)[0].tolist()
        return request_for(self._request, text, vector, self.weights(text, **facts))

    def about_class(self, query_class: str) -> str | None:
        """Explain in a sentence why routing ignores a query's class; None if it uses it."""
        if "class" not in self._by:
            return (
                f"The class {query_class!r} is ignored: this model routes on the query's "
                f"{' and '.join(self._by)}. To use the class given with a query, fit "
                "query-classes with known=true."
            )
        if query_class not in self._classes:
            known = ", ".join(self._classes)
            return f"The class {query_class!r} is ignored: the model was trained on the classes {known}."
        return None

    def _answer(self, text: str | None, facts: QueryFacts) -> Answer:
        query = _query(text, facts)
        self._check_given(text, facts)
        rows, names = self._rows(facts.get("documents") or ()), self.ranker.feature_names_
        return self.ranker.answer(
            Candidates(rows, np.array([0, len(rows)]), ("query",), queries=query, feature_names=names)
        )

    def _check_given(self, text: str | None, facts: QueryFacts) -> None:
        """Raise DataError if a query lacks something that routing depends on; a known class is sufficient."""
        by, query_class = self._by, facts.get("query_class")
        given = {"text": text, **{name: facts.get(name) for name in ("vector", "columns", "documents")}}
        lacking = [each for each in by if each != "class" and given[each] is None]
        if lacking and query_class not in self._classes:
            unknown = None if query_class is None else self.about_class(query_class)
            raise DataError(
                f"This model routes on the query's {' and '.join(by)}; its {lacking[0]} "
                f"{'was' if lacking[0] in ('text', 'vector') else 'were'} not given.{_HOW_TO_GIVE[lacking[0]]}"
                + ("" if unknown is None else f" {unknown}")
            )

    def _rows(self, documents: Sequence[Document]) -> Floats:
        rows = np.zeros((len(documents), len(self._features["names"])))
        for row, document in zip(rows, documents, strict=True):
            if isinstance(document, Mapping):
                values = self._known(document)
                row[:] = [values.get(name, 0.0) for name in self._features["in_engine"]]
            else:
                row[:] = _as_row(document, len(row))
        return rows

    def _known(self, document: Mapping[str, float]) -> dict[str, float]:
        """Return a document's features; raise DataError if one is unknown, or none is the model's."""
        names, others = self._features["in_engine"], self._features["others"]
        unknown = next((name for name in document if name not in names and name not in others), None)
        if unknown is not None or not any(name in document for name in names):
            found = f"the feature {unknown!r}" if unknown is not None else "none of the model's features"
            raise DataError(
                f"A document has {found}; the model knows {', '.join(names[:8])}{' …' if len(names) > 8 else ''}. "
                "Fetch the documents with the features of this export."
            )
        return _numbers(document, "A document's features")


class HybridRouter(Router):
    """An older name of Router, for exports of weights of runs.

    Args:
        folder: an export of weights of runs, as `querywise export` and `export_model` write it.

    Raises:
        DataError: In the same cases as Router.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import HybridRouter, export_model
    >>> from querywise.data.judged import judged_by
    >>> from querywise.data.runs import Run, tabulate_runs
    >>> from querywise.rankers.weights.fusion import Weights
    >>> bm25, vectors = Run("bm25", {"q": {"D1": 9.0, "D2": 5.0}}), Run("vectors", {"q": {"D2": 0.9, "D1": 0.1}})
    >>> ranker = Weights().fit(judged_by(tabulate_runs([bm25, vectors]), {"q": {"D1": 1}}))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = export_model(ranker, "opensearch-hybrid", Path(folder) / "export")
    ...     print(sorted(HybridRouter(Path(folder) / "export").weights("jaguar speed")))
    ['bm25', 'vectors']
    """


_HOW_TO_GIVE = {
    "text": "",
    "vector": " With router.py: --vector '[0.1, 0.2]'.",
    "columns": " With router.py: --columns '{\"name\": 3}'.",
    "documents": " With router.py: --first writes the request that fetches them, --answer FILE reads what the engine "
    "answers to it.",
}


def _query(text: str | None, facts: QueryFacts) -> QueryTable:
    """Return a table of the one query."""
    known = QueryFacts.__annotations__
    unknown = next((name for name in facts if name not in known), None)
    if unknown is not None:
        raise TypeError(f"Unexpected keyword argument {unknown!r}; known are {', '.join(known)}.")
    query_class = facts.get("query_class")
    values = _numbers(facts.get("columns") or {}, "The query's columns")
    return QueryTable(
        ("query",),
        texts=None if text is None else (text,),
        classes=None if query_class is None else (query_class,),
        columns=np.array([list(values.values())], dtype=np.float64) if values else None,
        column_names=tuple(values),
        vectors=_one_vector(facts.get("vector")),
    )


def _as_row(document: Sequence[float] | Floats, width: int) -> Floats:
    """Return a document's features in the order of training."""
    try:
        found = np.asarray(document, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.zeros(())
    if found.ndim != 1:
        raise DataError(f"A document must be a list of numbers, or numbers by name; found {document!r:.80}.")
    if len(found) != width:
        raise DataError(f"A document has {len(found)} features; the model was trained on {width}.")
    return found


def _one_vector(values: Sequence[float] | None) -> Floats | None:
    """Return the vector of one query as a table; raise DataError unless it is a list of finite numbers."""
    if values is None:
        return None
    try:
        found = np.array([values], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.zeros(0)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise DataError(f"The query's vector must be a list of finite numbers; found {values!r:.80}.")
    return found


def _numbers(values: Mapping[str, float], what: str) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in values.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise DataError(f"{what} must be numbers by name, as in {{'clicks': 3}}; found {values!r:.80}.") from None


def _scores(runs: Lists | None) -> dict[str, dict[str, float]]:
    """Return the scores of runs; raise DataError unless they are finite numbers by run and document."""
    try:
        lists = {} if runs is None else runs
        found = {str(run): {str(each): float(score) for each, score in own.items()} for run, own in lists.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        found = {"": {"": math.nan}}
    if not all(math.isfinite(score) for own in found.values() for score in own.values()):
        raise DataError(
            "The runs' scores must be finite numbers by run and document, as in {'bm25': {'D1': 12.5}}; found "
            f"{runs!r:.80}."
        )
    return found


def request_for(path: Path, text: str | None, vector: Sequence[float] | None, weights: Mapping[str, float]) -> Json:
    """Fill the form in a file with a query's values; for SQL return {"sql": …, "parameters": …}."""
    form, numbers = read_stored_text(path), None if vector is None else [float(each) for each in vector]
    if path.suffix == ".sql":
        given: dict[str, Json] = {"text": text, "vector": None if numbers is None else json.dumps(numbers)}
        lacking = next((name for name, each in given.items() if f"%({name})s" in form and each is None), None)
        if lacking is not None:
            raise DataError(f"The query has the parameter {lacking!r}, which was not given.")
        known = {name: each for name, each in given.items() if each is not None}
        return {"sql": form, "parameters": known | {f"weight_{identifier(run)}": weights[run] for run in weights}}
    values: dict[str, Json] = {TEXT: text, VECTOR: numbers, **{weight_of(run): weights[run] for run in weights}}
    try:
        return filled(parse_json(form, path), values)
    except RecursionError:
        raise DataError(f"{path}: its values are nested too deep. Export the model again.") from None


def filled(form: Json, values: Mapping[str, Json]) -> Json:
    """Return a form with its placeholders replaced: each is a whole string."""
    if isinstance(form, dict):
        return {name: filled(each, values) for name, each in form.items()}
    if isinstance(form, list):
        return [filled(each, values) for each in form]
    if isinstance(form, str) and form.startswith("$"):
        if form not in values:
            raise DataError(f"The request has {form!r}, which is unknown. Known: {', '.join(values)}.")
        found = values[form]
        if found is None:
            raise DataError(f"The request has {form!r}, which was not given.")
        return found
    inside = next((name for name in values if isinstance(form, str) and name in form), None)
    if inside is not None:
        raise DataError(f"The request has {inside!r} within the text {form!r:.100}. A placeholder is a whole value.")
    return form
