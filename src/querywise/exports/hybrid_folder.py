"""Older names for exports of weights of runs, which are written and routed as all exports are."""

from __future__ import annotations

from querywise.contracts.protocols import Ranker
from querywise.exports.routing import Router
from querywise.exports.target import Written
from querywise.exports.writing import export_model
from querywise.runtime.files import PathLike


def export_hybrid(
    ranker: Ranker, engine: str, folder: PathLike, *, name: str = "querywise", force: bool = False
) -> Written:
    """An older name of `export_model`, for weights of runs."""
    return export_model(ranker, engine, folder, name=name, force=force)


class HybridRouter(Router):
    """An older name of Router, for exports of weights of runs.

    folder: an export of weights of runs, as `querywise export` and `export_model` write it.

    Refused: with DataError, what Router refuses.

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
