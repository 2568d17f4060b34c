"""The queries that golden models are fitted on and asked, and what they answer: one text for every kind of answer."""

from __future__ import annotations

import platform
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from querywise.contracts.asking import missing_for
from querywise.data.judged import Judged
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.errors import QuerywiseError
from querywise.evaluation.oracle import oracle_gap
from querywise.explanations.explain import as_dict, explain, why
from querywise.rankers.weights.fusion import Fusion
from querywise.rankers.wrappers import OnRuns
from tests.worlds import as_runs, ragged, with_gaps

_LIBRARIES = ("numpy", "scipy", "numba", "lightgbm", "scikit-learn")
_NAMES = ("bm25", "age", "clicks", "length")
_WORDS = ("how to", "red", "blue", "jaguar", "python", "the")
EXPLAINED = ("q0", "q4", "q9", "q12", "q14")


def training(ranker: Any = None) -> Judged:
    """Queries of two kinds, with texts, classes, columns and vectors; as first-stage runs for a ranker of those."""
    return _for(ranker, _described(make_judged(32, 8, 4, kinds=2, seed=11)))


def asked(ranker: Any = None) -> Judged:
    """Queries of several lengths, the last with one document, without a relevant one, and with all alike."""
    return _for(ranker, _asked())


def _for(ranker: Any, data: Judged) -> Judged:
    if ranker is not None and missing_for(ranker) == "allowed":
        return with_gaps(data)
    return as_runs(data) if isinstance(ranker, Fusion | OnRuns) else data


def _asked() -> Judged:
    data = ragged(5)
    classes = tuple("kind 1" if size > 5 else "kind 2" for size in data.candidates.sizes)
    return _described(data.with_queries(QueryTable(data.candidates.query_ids, classes=classes)))


def _described(data: Judged) -> Judged:
    table = data.candidates.queries
    assert table is not None
    texts = [" ".join(_WORDS[(row * step) % len(_WORDS)] for step in range(1 + row % 4)) for row in range(len(table))]
    columns = np.column_stack([np.arange(len(table)) % 5, np.arange(len(table)) % 3]).astype(np.float64)
    turns = np.arange(len(table), dtype=np.float64)
    vectors = np.column_stack([np.cos(turns), np.sin(turns), turns % 3 - 1])
    vectors[1] = 0
    known = replace(
        table, texts=("", None, *texts[2:]), columns=columns, column_names=("hour", "device"), vectors=vectors
    )
    return replace(data, candidates=replace(data.candidates, feature_names=_NAMES, queries=known))


def machine() -> dict[str, str]:
    """What has to be the same for sums to have the same last bits."""
    blas = sorted({str(each.get("architecture", "")) for each in threadpool_info() if each["user_api"] == "blas"})
    return {"processor": platform.machine(), "blas": " ".join(blas), **{name: version(name) for name in _LIBRARIES}}


def answers(ranker: Any) -> dict[str, Any]:
    """What a fitted ranker says of the asked queries beside their scores, as JSON can hold it."""
    data = asked(ranker)
    gap = oracle_gap(ranker, data)
    return {
        "explained": {name: _said(lambda name=name: explain(ranker, data.candidates, name)) for name in EXPLAINED},
        "why": {name: _said(lambda name=name: why(ranker, data.candidates, name, "1", "3")) for name in EXPLAINED[:3]},
        "oracle": None
        if gap is None
        else {
            "best": gap.best.tolist(),
            "by_rank": gap.by_rank.tolist(),
            "relevant_only": None if gap.relevant_only is None else gap.relevant_only.tolist(),
        },
    }


def _said(ask: Any) -> Any:
    try:
        return _plain(as_dict(ask()))
    except QuerywiseError as error:
        return str(error)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value
