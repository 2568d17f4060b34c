"""Several judged sets as one."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from querywise.data.gains import joined_labels
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import join_judgements
from querywise.data.losses import Loss
from querywise.data.query_table import join_tables
from querywise.data.rows import join_known
from querywise.data.run_columns import Run
from querywise.data.weighting import joined_weights
from querywise.errors import DataError


def concatenate(parts: Sequence[Judged]) -> Judged:
    """Several judged sets as one; no query may appear in two of them."""
    if not parts:
        raise DataError("There is nothing to put together: no judged set was given.")
    candidates = [part.candidates for part in parts]
    first = candidates[0]
    for each in candidates[1:]:
        if each.features.shape[1] != first.features.shape[1]:
            raise DataError(f"One set has {first.features.shape[1]} features, another {each.features.shape[1]}.")
        if each.feature_names != first.feature_names:
            raise DataError(f"One set's features are named {first.feature_names}, another's {each.feature_names}.")
    offsets = np.cumsum([0, *(len(each.features) for each in candidates)])
    tables = [each.queries for each in candidates if each.queries is not None]
    joined = Candidates(
        features=np.concatenate([each.features for each in candidates]),
        starts=np.concatenate(
            [[0], *(each.starts[1:] + offset for each, offset in zip(candidates, offsets, strict=False))]
        ),
        query_ids=tuple(query_id for each in candidates for query_id in each.query_ids),
        document_ids=join_known([each.document_ids for each in candidates]),
        comments=join_known([each.comments for each in candidates]),
        feature_names=first.feature_names,
        queries=join_tables(tables) if len(tables) == len(candidates) else None,
        missing="allowed" if any(each.missing == "allowed" for each in candidates) else "refused",
    )
    masks = [np.ones(len(part.labels), np.bool_) if part.judged is None else part.judged for part in parts]
    judged = None if all(part.judged is None for part in parts) else np.concatenate(masks)
    missed = join_judgements([part.missed for part in parts])
    labels, gains = joined_labels(parts)
    by_query = joined_weights([part.query_weights for part in parts], [len(part) for part in parts])
    by_row = joined_weights([part.document_weights for part in parts], [len(part.labels) for part in parts])
    return Judged(joined, labels, judged, missed, gains, by_query, by_row, _joined_runs(parts), _joined_losses(parts))


def _joined_runs(parts: Sequence[Judged]) -> tuple[Run, ...]:
    """The runs that all parts have, each with the lists of all of them."""
    first = parts[0].runs
    if all(part.runs is first for part in parts):  # the parts of one set
        return first
    by_name = [{run.name: run for run in part.runs} for part in parts]
    shared = [run for run in first if all(run.name in each for each in by_name)]
    return tuple(replace(run, scores=ChainMap(*(dict(each[run.name].scores) for each in by_name))) for run in shared)


def _joined_losses(parts: Sequence[Judged]) -> tuple[Loss, ...]:
    """The losses of all parts, those of one kind added up; parts of one set have the same ones."""
    distinct = {id(part.losses): part.losses for part in parts}.values()
    found: dict[str, Loss] = {}
    for each in (loss for own in distinct for loss in own):
        before = found.get(each.kind)
        found[each.kind] = (
            each
            if before is None
            else before._replace(number=before.number + each.number, total=before.total + each.total)
        )
    return tuple(found.values())
