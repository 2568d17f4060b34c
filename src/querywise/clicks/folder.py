"""The folder of judgments: written whole, for every command to read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.clicks.impressions import Impressions, normalized
from querywise.clicks.judgments import Judgments
from querywise.clicks.pairs import Preferences
from querywise.data.click_judgments import FEATURES, GAINS, HEADING, MANIFEST, WEIGHTS
from querywise.data.collections import Collection, read_collection
from querywise.data.judged import Candidates
from querywise.data.judgements import Grades
from querywise.data.query_table import QueryTable, write_queries
from querywise.data.readers import read_features
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Ints
from querywise.runtime.files import OutputFolder, atomic_folder, atomic_text
from querywise.runtime.values import JsonObject, json_text

TABLE = "judgments.parquet"
OUTPUT = OutputFolder(
    a_file="this is a file; judgments are written to a folder.",
    other="this folder holds something else; name a new one, or one of judgments from clicks.",
    manifest=MANIFEST,
)


class Beside(NamedTuple):
    """The documents that were shown: a text collection or feature log, and how its queries are called.

    names: normalized text or id → the id. documents: its ids; None: whatever the log has. grades: those that people
    gave.
    """

    collection: Path | None
    candidates: Candidates | None
    names: Mapping[str, str]
    texts: Mapping[str, str]
    documents: frozenset[str] | None
    grades: Grades = {}  # noqa: RUF012  never changed


def documents_beside(collection: Path | None, features: Path | None) -> Beside:
    """Read what judgments are joined with: neither, a text collection, or a feature log with document ids."""
    if collection is not None:
        found: Collection = read_collection(collection)
        known = frozenset(each.id for each in found.documents())
        return Beside(collection, None, *_names(found.queries), known, found.grades())
    if features is not None:
        data = read_features([features]).candidates
        if data.document_ids is None:
            raise DataError(f"{features}: these features have no document ids, so clicks cannot be joined with them.")
        table = data.queries if data.queries is not None else QueryTable(data.query_ids)
        return Beside(None, data, *_names(table), frozenset(data.document_ids))
    return Beside(None, None, {}, {}, None)


def _names(table: QueryTable | None) -> tuple[dict[str, str], dict[str, str]]:
    if table is None:
        return {}, {}
    texts = {query: text for query, text in zip(table.ids, table.texts or (), strict=False) if text}
    names = {normalized(query): query for query in reversed(table.ids)}
    names |= {normalized(text): query for query, text in reversed(texts.items())}
    return names, texts


class Written(NamedTuple):
    """How many judgments were written, and how many were left out because their document or query is not there."""

    judgments: int
    queries: int
    unknown: int


def write_folder(
    out: Path,
    log: Impressions,
    found: Judgments,
    beside: Beside,
    notes: JsonObject,
    page: str | None,
    pairs: Preferences | None = None,
) -> Written:
    """Write judgments and what they belong to. page: that of the report. pairs: to learn from in place of gains."""
    ids = [beside.names.get(text, text) for text in log.queries]
    known = _known(log, found, beside, ids)
    with atomic_folder(out) as folder:
        _write_gains(folder, log, found, ids, known)
        _write_table(folder / TABLE, log, found, ids, known)
        used = sorted({ids[query] for query in found.query[known].tolist()})
        own = dict(zip(ids, log.queries, strict=True))
        texts = tuple(beside.texts.get(query, own[query]) for query in used)
        write_queries(folder / "queries.jsonl", QueryTable(tuple(used), texts=texts))
        if beside.collection is not None:
            source = beside.collection / "corpus.jsonl" if beside.collection.is_dir() else beside.collection
            _copied(source, folder / "corpus.jsonl")
        if beside.candidates is not None:
            if pairs is None:
                _write_features(folder / FEATURES, beside.candidates, set(used))
            else:
                made = _write_pairs(folder, log, pairs, beside.candidates, ids)
                told = tuple(beside.texts.get(query, own[query]) for query in made.values())
                write_queries(
                    folder / "queries.jsonl", QueryTable(tuple(made), texts=told, groups=tuple(made.values()))
                )
        if page is not None:
            (folder / "report.html").write_text(page, encoding="utf-8")
        (folder / MANIFEST).write_text(json_text(notes), encoding="utf-8")
    return Written(int(known.sum()), len(used), int((~known).sum()))


def human_grades(log: Impressions, found: Judgments, beside: Beside) -> Ints:
    """The grade that people gave every pair; −1 where they gave none."""
    own = [beside.grades.get(beside.names.get(text, text), {}) for text in log.queries]
    pairs = zip(found.query.tolist(), found.document.tolist(), strict=True)
    return np.array([own[query].get(log.documents[document], -1) for query, document in pairs], np.int64)


def _known(log: Impressions, found: Judgments, beside: Beside, ids: list[str]) -> Bools:
    known = np.ones(len(found.query), np.bool_)
    if beside.documents is not None:
        there = np.array([each in beside.documents for each in log.documents], np.bool_)
        known &= there[found.document]
    if beside.candidates is not None:
        queries = set(beside.candidates.query_ids)
        known &= np.array([each in queries for each in ids], np.bool_)[found.query]
    if not known.any():
        raise DataError(
            f"None of the {len(log.documents)} documents of the log is in the collection or the features: the log's "
            f"first is {log.documents[0]!r}. Are their ids the same?"
        )
    return known


def _write_gains(folder: Path, log: Impressions, found: Judgments, ids: list[str], known: Bools) -> None:
    labels, grades = found.values(), found.grades()
    with atomic_text(folder / GAINS) as gains, atomic_text(folder / "qrels.tsv") as qrels:
        gains.write("\t".join(HEADING) + "\n")
        qrels.write("query-id\tcorpus-id\tscore\n")
        for row in np.flatnonzero(known).tolist():
            pair = f"{ids[found.query[row]]}\t{log.documents[found.document[row]]}"
            gains.write(f"{pair}\t{found.gain[row]:.6g}\t{found.error[row]:.6g}\t{labels[row]:g}\n")
            qrels.write(f"{pair}\t{grades[row]}\n")


def _write_table(path: Path, log: Impressions, found: Judgments, ids: list[str], known: Bools) -> None:
    """All columns as Parquet, where Arrow is installed."""
    from querywise.data.parquet.arrow import arrow, write_table

    try:
        pa, _ = arrow()
    except DataError:
        return
    chosen = np.flatnonzero(known)
    texts = [("query", pa.string()), ("document", pa.string())]
    counts = [(name, pa.int64()) for name in ("impressions", "clicks", "grade")]
    numbers = [(name, pa.float64()) for name in ("gain", "error", "naive", "pessimistic")]
    values = [found.impressions, found.clicks, found.grades(), found.gain, found.error, found.naive, found.pessimistic]

    def columns(rows: slice) -> list[object]:
        part: Ints = chosen[rows]
        queries = [ids[query] for query in found.query[part].tolist()]
        documents = [log.documents[document] for document in found.document[part].tolist()]
        return [queries, documents, *(each[part] for each in values)]

    write_table(path, pa.schema([*texts, *counts, *numbers]), len(chosen), columns)


def _write_features(path: Path, candidates: Candidates, queries: set[str]) -> None:
    """The features of the judged queries as a Parquet log without labels: these are the gains."""
    from querywise.data.parquet.arrow import arrow, write_table

    pa, _ = arrow()
    chosen = candidates.select([place for place, query in enumerate(candidates.query_ids) if query in queries])
    names = chosen.feature_names or tuple(f"f{place + 1}" for place in range(chosen.features.shape[1]))
    fields = [("qid", pa.string()), ("docid", pa.string()), *((name, pa.float64()) for name in names)]
    owners = chosen.query_of_row

    def columns(rows: slice) -> list[object]:
        ids = [chosen.query_ids[query] for query in owners[rows].tolist()]
        assert chosen.document_ids is not None
        return [ids, list(chosen.document_ids[rows]), *chosen.features[rows].T]

    write_table(path, pa.schema(fields), len(chosen.features), columns)


def _write_pairs(
    folder: Path, log: Impressions, pairs: Preferences, candidates: Candidates, ids: list[str]
) -> dict[str, str]:
    """The features of every preference's documents as a query, and the weights; returns what query each is of."""
    from querywise.data.parquet.arrow import arrow, write_table

    assert candidates.document_ids is not None
    owners = [candidates.query_ids[query] for query in candidates.query_of_row.tolist()]
    place = {pair: row for row, pair in enumerate(zip(owners, candidates.document_ids, strict=True))}
    qids: list[str] = []
    groups: dict[str, str] = {}
    rows: list[int] = []
    labels: list[int] = []
    with atomic_text(folder / WEIGHTS) as out:
        for number, query in enumerate(pairs.query.tolist()):
            documents = pairs.document[pairs.starts[number] : pairs.starts[number + 1]].tolist()
            own = [place.get((ids[query], log.documents[each]), -1) for each in documents]
            known = [row for row in own if row >= 0]
            if own[0] >= 0 and len(known) > 1:
                qids += [f"{ids[query]} #{number + 1}"] * len(known)
                groups[qids[-1]] = ids[query]
                labels += [1] + [0] * (len(known) - 1)
                rows += known
                out.write(f"{qids[-1]}\t{pairs.weight[number]:.6g}\n")
    if not rows:
        raise DataError("No clicked document is in the features together with another of its page.")
    pa, _ = arrow()
    names = candidates.feature_names or tuple(f"f{each + 1}" for each in range(candidates.features.shape[1]))
    texts = [("qid", pa.string()), ("docid", pa.string())]
    schema = pa.schema([*texts, ("label", pa.int64()), *((name, pa.float64()) for name in names)])

    def columns(part: slice) -> list[object]:
        assert candidates.document_ids is not None
        chosen = rows[part]
        documents = [candidates.document_ids[row] for row in chosen]
        return [qids[part], documents, labels[part], *candidates.features[chosen].T]

    write_table(folder / FEATURES, schema, len(rows), columns)
    return groups


def _copied(source: Path, target: Path) -> None:
    """A file at a second place: a hard link where the file system can, which takes no room."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
