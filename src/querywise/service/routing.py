"""Which of the models in an engine answers a query: what the router of an export says, for those without Python."""

from __future__ import annotations

from querywise.contracts.answers import Answer, nobody
from querywise.contracts.forms import name_in_engine
from querywise.errors import DataError
from querywise.runtime.arrays import Floats
from querywise.service.errors import RequestDataError
from querywise.service.loaded_model import LoadedModel
from querywise.service.schema import RouteRequest, RouteResponse


def routed(model: LoadedModel, request: RouteRequest, features: Floats | None = None) -> RouteResponse:
    """The name of the model in the engine, as an export of that name calls it.

    features: those of the documents, where they are read already.
    """
    ranker = model.ranker
    itself = ranker.answer(nobody(ranker.feature_count_, ranker.feature_names_))
    if itself.refused is not None:
        raise DataError(itself.refused.reason)
    if not itself.varies:
        return RouteResponse(name_in_engine(request.name, -1, None), model.version)
    if itself.stored is None:
        raise DataError(
            f"A {type(ranker).__name__} stores no model per kind of query; there is nothing to choose from."
        )
    _check_given(itself, request)
    number = int(ranker.answer(model.candidates([request], features)).chosen()[0])
    return RouteResponse(name_in_engine(request.name, number, len(itself.stored.models)), model.version)


def _check_given(itself: Answer, request: RouteRequest) -> None:
    """Refuse a query without something that routing depends on; one of a known class needs nothing else."""
    if itself.place is None:
        return
    by, query = itself.place.by(), request.query
    given = {"text": query.text, "vector": query.vector, "columns": query.columns, "documents": request.documents}
    lacking = next((each for each in by if given[each] is None), None)
    if lacking is not None and query.class_ not in itself.place.classes:
        raise RequestDataError(
            f"This model goes by the query's {' and '.join(by)}; its {lacking} "
            f"{'was' if lacking in ('text', 'vector') else 'were'} not given.",
            "documents" if lacking == "documents" else f"query.{lacking}",
        )
