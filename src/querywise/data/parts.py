"""A training set in parts: one in memory, several on disk or over a cluster, all of them whole queries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from querywise.arrays import Floats, Ints
from querywise.crew import ITSELF, WORKING, crew
from querywise.data.groups import Judged
from querywise.errors import DataError
from querywise.scaling import Moments
from querywise.sharing import once

if TYPE_CHECKING:
    from querywise.data.shards import Shards

Training: TypeAlias = "Judged | Shards"


class Survey(NamedTuple):
    """What has to be known of every part before anything is learned."""

    query_ids: tuple[str, ...]
    pairs: Ints
    moments: Moments


def sources_of(data: Training) -> list[Any]:
    """The parts, each a judged set or something that loads one, ready to be handed to the crew."""
    if not isinstance(data, Judged):
        _require_room(max(file.rows for file in data.files) * data.feature_count * 8, data)
        return list(data.files)
    hands = crew()
    return [data] if hands.parts == 1 else once("parts", hands.parts, data, lambda: hands.keep(_itself, cut(data)))


def cut(data: Judged) -> list[Judged]:
    """Runs of whole queries with about the same number of rows, as many as the crew asks for, or as there are queries.

    Their number does not depend on how many workers there are, so neither does any sum over them.
    """
    starts, count = data.candidates.starts, min(crew().parts, max(len(data), 1))
    cuts = np.searchsorted(starts, np.linspace(0, starts[-1], count + 1)).clip(0, len(data))
    cuts[0], cuts[-1] = 0, len(data)
    return [data.select(np.arange(first, last)) for first, last in pairwise(cuts) if last > first]


def taken(source: Any) -> Judged:
    """A part in memory."""
    judged: Judged = source if isinstance(source, Judged) else source.load()
    return judged


def surveys(data: Training) -> list[Survey]:
    """What is to be known of every part."""
    if not isinstance(data, Judged):
        return data.surveyed
    found: list[Survey] = crew().each(_survey, sources_of(data))
    return found


def look_through(files: Sequence[Any]) -> list[Survey]:
    """The same for files, each read once."""
    found: list[Survey] = crew().each(_survey, files, label="Looking through the shards")
    return found


def by_query(data: Training, work: Callable[..., Floats], *shared: Any) -> Floats:
    """Rows, one for each query: what `work` gives for the candidates of every part."""
    if isinstance(data, Judged):
        return work(data.candidates, *shared)
    return np.concatenate(crew().each(_of_candidates, sources_of(data), shared=(work, *shared)))


def fingerprint(data: Training) -> list[str]:
    """What tells one training set from another: a checksum of every part, and of what is known of the queries."""
    if not isinstance(data, Judged):
        return [*(file.checksum for file in data.files), data.known]
    rows, table = data.candidates, data.candidates.queries
    known = () if table is None else (table.texts, table.classes, table.column_names)
    found = hashlib.sha256(repr((rows.query_ids, rows.document_ids, rows.feature_names, known)).encode())
    columns = None if table is None else table.columns
    for array in (rows.features, rows.starts, data.labels, data.judged, columns):
        if array is not None:
            found.update(np.ascontiguousarray(array).data)
    return [found.hexdigest()]


def whole(data: Training) -> Judged:
    """All of it in memory."""
    if isinstance(data, Judged):
        return data
    memory, size = crew().memory, 8 * data.rows * data.feature_count
    if memory is not None and 2 * size + ITSELF > memory:
        raise DataError(
            f"{data.folder}: what is asked for needs all {data.rows} documents in memory at once, {size / 1e9:.1f} GB; "
            f"{memory / 1e9:.1f} GB are allowed. ranksvm, single and the knn-offline methods go shard by shard."
        )
    return once("whole", None, data, data.whole)


def _require_room(shard: int, data: Shards) -> None:
    memory, needed = crew().memory, ITSELF + (WORKING + 1) * shard
    if memory is not None and memory <= ITSELF:
        raise DataError(
            f"{memory / 1e6:.0f} MB are allowed; Python and its libraries alone take {ITSELF / 1e6:.0f} MB. Allow more."
        )
    if memory is not None and needed > memory:
        raise DataError(
            f"{data.folder}: its largest shard takes {shard / 1e6:.0f} MB, and working on it {needed / 1e6:.0f} MB in "
            f"all; {memory / 1e6:.0f} MB are allowed. Allow more, or convert the data with fewer --rows to a shard."
        )


def takes_parts(ranker: Any) -> bool:
    """Whether a ranker can be fitted on shards as they are, without having all of them in memory."""
    return bool(ranker.takes_parts()) if hasattr(ranker, "takes_parts") else False


def as_taken(ranker: Any, data: Training) -> Training:
    """A training set as a ranker takes it: as it is, or all of it in memory."""
    return data if takes_parts(ranker) else whole(data)


def has_texts(data: Training) -> bool:
    """Whether queries have a text."""
    first = data if isinstance(data, Judged) else data.files[0].load()
    table = first.candidates.queries
    return table is not None and table.texts is not None and any(table.texts)


def _itself(part: Judged) -> Judged:
    return part


def _survey(source: Any) -> Survey:
    part = taken(source)
    return Survey(part.query_ids, part.pairs, Moments.of(part.candidates.features))


def _of_candidates(source: Any, work: Callable[..., Floats], *shared: Any) -> Floats:
    return work(taken(source).candidates, *shared)
