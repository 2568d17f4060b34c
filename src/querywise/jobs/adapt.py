"""The job of `querywise adapt`: train an adapter of query vectors, and nothing else."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr

from querywise.data.vectors import as_vectors, read_npy
from querywise.errors import DataError
from querywise.exports.writing import SCRIPT, TABLES, transform_files
from querywise.retrieval.adapted_vectors import AdaptedVectors, Kind
from querywise.retrieval.indexed_vectors import vectors_of
from querywise.retrieval.reading import Retrieval, indexed_text, retrieval_notes
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.arrays import Floats
from querywise.runtime.files import OutputFolder, atomic_folder, write_bytes
from querywise.runtime.values import JsonObject
from querywise.storage import load
from querywise.storage.models import MANIFEST

_FOLDER = OutputFolder(
    a_file="this is a file; an adapter is exported into a folder. Name another place.",
    belongs=lambda name: name in (SCRIPT, TABLES),
    stray="is in this folder; an adapter is exported into an empty or a new one.",
)
check_export_folder = _FOLDER.check


class LearnedAdapter(NamedTuple):
    """An adapter, and what its folder must record about the collection."""

    adapter: AdaptedVectors
    notes: JsonObject


def learn(folder: Path, how: Retrieval, kind: Kind) -> LearnedAdapter:
    """Train an adapter on all judged queries of a text collection."""
    if not how.by_vectors:
        said = "Query vectors can only be adapted where documents have vectors; name them with vectors=FOLDER."
        raise DataError(said, arguments=("vectors", "embed"))
    collection, index = indexed_text(folder, how)
    documents, table = vectors_of(index), collection.queries
    if documents is None or table is None or table.vectors is None:
        raise DataError(f"{folder}: the queries have no vectors to adapt.")
    ids = list(index.document_ids)
    known, asked = set(ids), set(table.ids)
    judgments = {
        query: {each: float(grade) for each, grade in own.items() if grade > 0 and _is_known(each, known, how)}
        for query, own in collection.grades().items()
        if query in asked
    }
    places = VectorIndex(documents.of(slice(None)), documents.lengths, blocks=documents.blocks)
    gains = {query: {str(index.place_of(each)): gain for each, gain in own.items()} for query, own in judgments.items()}
    adapter = AdaptedVectors(kind, gate=kind == "auto", blocks=documents.blocks or None).fit(
        as_vectors(table.ids, table.vectors, what="query"), places, gains, groups=_groups(table.groups, len(table.ids))
    )
    return LearnedAdapter(adapter, {**retrieval_notes(index, how), "queries": adapter.teachers_})


def _is_known(document: str, known: set[str], how: Retrieval) -> bool:
    if document not in known and not how.skip_unknown:
        raise DataError(
            f"The judged document {document!r:.60} is not in the corpus. Remove its judgments, or leave them out with "
            "skip_unknown=True.",
            arguments=("skip_unknown",),
        )
    return document in known


def _groups(groups: tuple[str | None, ...] | None, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number per query, the same for queries of one group."""
    names = [(None, row) if groups is None or groups[row] is None else (groups[row], -1) for row in range(count)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)


def is_adapter(path: Path) -> bool:
    """Whether a path is a model folder rather than a collection."""
    return (path / MANIFEST).is_file()


def read_adapter(folder: Path) -> AdaptedVectors:
    """Read the adapter in a folder."""
    found: object = load(folder)
    if not isinstance(found, AdaptedVectors):
        raise DataError(f"{folder}: the model is a {type(found).__name__}; expected an adapter of query vectors.")
    return found


def apply(adapter: AdaptedVectors, queries: Path, out: Path) -> int:
    """Write the adapted vectors of a `.npy` file, in its type; return their number."""
    if not queries.is_file():
        raise DataError(f"{queries}: there is no such file. Expected query vectors, a row each, in a .npy file.")
    table = read_npy(queries)[1]
    if table.ndim != 2 or table.dtype.kind != "f":
        raise DataError(f"{queries}: {table.dtype} of the shape {table.shape}; expected a table of floats, a row each.")
    _write_npy(out, adapter.transform(np.asarray(table, dtype=np.float64)).astype(table.dtype))
    return len(table)


def _write_npy(out: Path, table: Floats) -> None:
    content = io.BytesIO()
    np.save(content, table)
    write_bytes(out, content.getvalue())


def export(adapter: AdaptedVectors, folder: Path) -> None:
    """Write the adapter's tables, and a script that applies them with numpy alone."""
    check_export_folder(folder)
    with atomic_folder(folder) as made:
        for name, content in transform_files(adapter).items():
            write_bytes(made / name, content)


def p_value(adapter: AdaptedVectors) -> float | None:
    """Return the p of a paired t-test over the cross-validated gains; None without cross-validation."""
    if adapter.gain_ is None or not adapter.gain_error_:
        return None
    return float(2 * stdtr(max(adapter.teachers_ - 1, 1), -abs(adapter.gain_ / adapter.gain_error_)))


def as_json(adapter: AdaptedVectors) -> JsonObject:
    """Return the result as JSON."""
    return {
        "adapts": adapter.adapts,
        "queries": adapter.teachers_,
        "dimension": int(sum(adapter.blocks or (adapter.queries_.shape[1],))),
        "shares": list(adapter.shares_),
        "linear": adapter.linear_,
        "gamma": adapter.gamma_,
        "l2": adapter.l2_,
        "gain": adapter.gain_,
        "gain_error": adapter.gain_error_,
        "p": p_value(adapter),
    }
