"""Views by the names people type: one, several joined, or one that is learned of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from querywise.errors import DataError

if TYPE_CHECKING:
    from querywise.contracts.protocols import QueryView
    from querywise.locality.views.topmean import TopMean

TOP_MEAN = "top-mean"
VIEWS = (TOP_MEAN, "text", "columns", "two-models", "divergence", "vector", "signals")
_LEARNED = ("learned", "gradient")  # of the view after the colon; of top-mean without one


def view_named(
    top_mean: Annotated[type[TopMean], "querywise.locality.views.topmean:TopMean", "reference", "top"],
    view: str | None = TOP_MEAN,
) -> QueryView | None:
    """A view by name, its reference and number of documents those of `top_mean`.

    view: how similarity of queries is measured: top-mean, text, columns, two-models, divergence, vector or signals,
    several joined by +, and learned or gradient of one, as in gradient:text. None is the method's own.
    """
    if view is None:
        return None
    from querywise.locality.views.columns import Columns, SideBySide
    from querywise.locality.views.divergence import Divergence
    from querywise.locality.views.gradients import GradientView
    from querywise.locality.views.metric import LearnedMetric
    from querywise.locality.views.signals import SignalView
    from querywise.locality.views.text import TextView
    from querywise.locality.views.twomodels import TwoModels
    from querywise.locality.views.vector import VectorView
    from querywise.rankers.column import OneFeature

    how, colon, rest = view.partition(":")
    if how in _LEARNED:
        inside = view_named(top_mean, rest if colon else TOP_MEAN)
        return LearnedMetric(inside) if how == "learned" else GradientView(inside)
    parts = view.split("+")
    unknown = [part for part in parts if part not in VIEWS]
    if unknown:
        raise DataError(
            f"Unknown view {unknown[0]!r}. Known: {', '.join(VIEWS)}, several joined by +, and learned or gradient, "
            "or either of a view as in gradient:text."
        )
    mean = top_mean()
    reference, top = mean.reference, mean.top
    views: dict[str, QueryView] = {
        TOP_MEAN: mean,
        "text": TextView(),
        "vector": VectorView(),
        "columns": Columns(),
        "signals": SignalView(),
        "two-models": TwoModels(OneFeature() if reference is None else reference, None, top),
        "divergence": Divergence(reference),
    }
    made = [views[part] for part in parts]
    return made[0] if len(made) == 1 else SideBySide(made)
