"""What a view looks at to place a query, and whether documents have a place in it too."""

from __future__ import annotations

from querywise.contracts.protocols import LooksAt, PlacesDocuments, QueryView
from querywise.data.judged import Judged
from querywise.runtime.arrays import Floats


def looked_at(*views: QueryView) -> tuple[str, ...]:
    """What has to be known of a query to place it in fitted views: any of text, columns and documents."""
    every = [view.looks_at if isinstance(view, LooksAt) else ("documents",) for view in views]
    return tuple(dict.fromkeys(each for part in every for each in part))


def relevant_points(view: QueryView, data: Judged) -> Floats | None:
    """Where each query's relevant documents lie; None in a view that does not place documents."""
    return view.relevant_points(data) if isinstance(view, PlacesDocuments) else None
