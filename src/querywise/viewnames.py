"""Views by the names people type: one, several joined, or one that is learned of another."""

from __future__ import annotations

from typing import Any

from querywise.errors import DataError

VIEWS = ("top-mean", "text", "columns", "two-models", "divergence")
_LEARNED = ("learned", "gradient")  # of what stands behind the colon; of top-mean where nothing does


def view_named(name: str | None, reference: int | str | None, top: int) -> Any:
    """A view by name, None the method's own; `reference` is a column by name or from 0, None the single model."""
    if name is None:
        return None
    from querywise.rankers.column import OneFeature
    from querywise.rankers.gradients import GradientView
    from querywise.rankers.metric import LearnedMetric
    from querywise.views.columns import Columns, SideBySide
    from querywise.views.divergence import Divergence
    from querywise.views.text import TextView
    from querywise.views.topmean import TopMean
    from querywise.views.twomodels import TwoModels

    how, colon, rest = name.partition(":")
    if how in _LEARNED:
        view = view_named(rest if colon else VIEWS[0], reference, top)
        return LearnedMetric(view) if how == "learned" else GradientView(view)
    parts = name.split("+")
    unknown = [part for part in parts if part not in VIEWS]
    if unknown:
        raise DataError(
            f"Unknown view {unknown[0]!r}. Known: {', '.join(VIEWS)}, several joined by +, and learned or gradient, "
            "or either of a view as in gradient:text."
        )
    views: dict[str, Any] = {
        "top-mean": TopMean(reference, top),
        "text": TextView(),
        "columns": Columns(),
        "two-models": TwoModels(OneFeature() if reference is None else reference, None, top),
        "divergence": Divergence(reference),
    }
    made = [views[part] for part in parts]
    return made[0] if len(made) == 1 else SideBySide(made)
