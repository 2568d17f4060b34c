"""The folder of judgments: written as a whole, and read by every command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.clicks.impressions import Codes, Impressions, normalized
from querywise.clicks.judgments import ClickPreferences, Judgments, preferred
from querywise.data.click_judgments import FEATURES, GAINS, HEADING, MANIFEST, WEIGHTS
from querywise.data.collections import Collection, read_collection
from querywise.data.coverage import whole_grades
from querywise.data.fields import FILE
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import Grades
from querywise.data.query_table import QueryTable, write_queries
from querywise.data.readers import read_features
from querywise.data.records import corpus_in
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.files import OutputFolder, atomic_folder, atomic_text
from querywise.runtime.values import JsonObject, json_text

TABLE, PAGES = "judgments.parquet", "pages.parquet"
PEOPLE = "people.json"  # human judgments: query → document → grade
OUTPUT = OutputFolder(
    a_file="this is a file; judgments are written to a folder.",
    other="this folder holds something else; name a new one, or one of judgments from clicks.",
    manifest=MANIFEST,
)


class Beside(NamedTuple):
    """The documents that were shown: a text collection or feature log, and the names of its queries.

    Attributes:
        names: Normalized text or id → the id.
        documents: The ids of its documents; None accepts whatever the log has.
        grades: Human grades.

    """

    collection: Path | None
    candidates: Candidates | None
    names: Mapping[str, str]
    texts: Mapping[str, str]
    documents: frozenset[str] | None
    grades: Grades = {}  # noqa: RUF012  never changed


def documents_beside(collection: Path | None, features: Path | None) -> Beside:
    """Read the data that judgments are joined with: none, a text collection, or a feature log with document ids."""
    if collection is not None:
        found: Collection = read_collection(collection)
        known = frozenset(each.id for each in found.documents())
        return Beside(collection, None, *names_of(found.queries), known, found.grades())
    if features is not None:
        read = read_features([features])
        data = read.candidates
        if data.document_ids is None:
            raise DataError(f"{features}: these features have no document ids, so clicks cannot be joined with them.")
        table = data.queries if data.queries is not None else QueryTable(data.query_ids)
        graded = dict(zip(data.query_ids, whole_grades(read), strict=True)) if read.labels.any() else {}
        return Beside(None, data, *names_of(table), frozenset(data.document_ids), graded)
    return Beside(None, None, {}, {}, None)


def names_of(table: QueryTable | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return queries' ids by their normalized texts and ids, and their texts by id."""
    if table is None:
        return {}, {}
    texts = {query: text for query, text in zip(table.ids, table.texts or (), strict=False) if text}
    names = {normalized(query): query for query in reversed(table.ids)}
    names |= {normalized(text): query for query, text in reversed(texts.items())}
    return names, texts


class JudgmentCounts(NamedTuple):
    """The number of judgments written, and of those dropped because their document or query is unknown."""

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
    pairs: ClickPreferences | None = None,
) -> JudgmentCounts:
    """Write judgments and everything that belongs to them; `page` is the report, `pairs` replace gains in training."""
    ids = _ids(log.queries, beside.names)
    known = _known(log, found, beside, ids)
    with atomic_folder(out) as folder:
        _write_gains(folder, log, found, ids, known)
        _write_table(folder / TABLE, log, found, ids, known)
        _write_pages(folder / PAGES, log)
        used = sorted({ids[query] for query in found.query[known].tolist()})
        own = dict(zip(ids, log.queries, strict=True))
        table = QueryTable(tuple(used), texts=tuple(beside.texts.get(query, own[query]) for query in used))
        if beside.grades:
            (folder / PEOPLE).write_text(json_text(beside.grades), encoding="utf-8")
        if beside.collection is not None:
            _copy_documents(beside.collection, folder)
        if beside.candidates is not None and pairs is None:
            chosen = [place for place, query in enumerate(beside.candidates.query_ids) if query in set(used)]
            _write_features(folder / FEATURES, beside.candidates.select(chosen))
        elif beside.candidates is not None and pairs is not None:
            table = _write_pairs(folder, preferred(pairs, log, beside.candidates, beside.names))
        write_queries(folder / "queries.jsonl", table)
        if page is not None:
            (folder / "report.html").write_text(page, encoding="utf-8")
        (folder / MANIFEST).write_text(json_text(notes), encoding="utf-8")
    return JudgmentCounts(int(known.sum()), len(used), int((~known).sum()))


def human_grades(log: Impressions, found: Judgments, beside: Beside) -> Ints:
    """Return the human grade of every pair; −1 if it has none."""
    own = [beside.grades.get(each, {}) for each in _ids(log.queries, beside.names)]
    pairs = zip(found.query.tolist(), found.document.tolist(), strict=True)
    return np.array([own[query].get(log.documents[document], -1) for query, document in pairs], np.int64)


def _ids(queries: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return unique ids of queries: a query whose id would equal another's gets a star."""
    found: dict[str, None] = {}
    for text in queries:
        name = names.get(text, "".join(each if each.isprintable() else repr(each)[1:-1] for each in text))
        while name in found:
            name += " *"
        found[name] = None
    return list(found)


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
    """Write all columns as Parquet, if Arrow is installed."""
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


def _write_pairs(folder: Path, made: Judged) -> QueryTable:
    """Write preferences with their features and weights; return their queries."""
    assert made.query_weights is not None
    assert made.candidates.queries is not None
    _write_features(folder / FEATURES, made.candidates, made.labels)
    with atomic_text(folder / WEIGHTS) as out:
        rows = zip(made.query_ids, made.query_weights.tolist(), strict=True)
        out.writelines(f"{query}\t{weight:.6g}\n" for query, weight in rows)
    return made.candidates.queries


def _write_features(path: Path, data: Candidates, labels: Ints | None = None) -> None:
    """Write features as a Parquet log, without labels if these are the gains."""
    from querywise.data.parquet.arrow import arrow, write_table

    pa, _ = arrow()
    names = data.feature_names or tuple(f"f{place + 1}" for place in range(data.features.shape[1]))
    fields = [("qid", pa.string()), ("docid", pa.string()), *([] if labels is None else [("label", pa.int64())])]
    schema = pa.schema([*fields, *((name, pa.float64()) for name in names)])
    owners = data.query_of_row

    def columns(rows: slice) -> list[object]:
        ids = [data.query_ids[query] for query in owners[rows].tolist()]
        assert data.document_ids is not None
        told = [] if labels is None else [labels[rows]]
        return [ids, list(data.document_ids[rows]), *told, *data.features[rows].T]

    write_table(path, schema, len(data.features), columns)


def _write_pages(path: Path, log: Impressions) -> None:
    """Write the pages as a click log in Parquet, without session names; skip it without Arrow."""
    from querywise.data.parquet.arrow import arrow, write_table

    try:
        pa, _ = arrow()
    except DataError:
        return
    page = log.page_of_row
    kinds = {"query": pa.string(), "document": pa.string(), "clicked": pa.int8()}
    known: dict[str, tuple[object, Floats | Ints | Codes]] = {}
    if log.has_positions:
        known["position"] = pa.int32(), log.position.astype(np.int32)
    if log.notes.has_pages:
        known["session"] = pa.int32(), page
    if log.has_times:
        known["time"] = pa.float64(), log.time[page]
    if log.propensity is not None:
        known["propensity"] = pa.float64(), log.propensity

    def columns(rows: slice) -> list[object]:
        queries = [log.queries[each] for each in log.query[page[rows]].tolist()]
        documents = [log.documents[each] for each in log.document[rows].tolist()]
        return [queries, documents, log.clicked[rows].astype(np.int8), *(each[rows] for _, each in known.values())]

    schema = pa.schema([*kinds.items(), *((name, kind) for name, (kind, _) in known.items())])
    write_table(path, schema, len(log.document), columns)


def _copy_documents(collection: Path, folder: Path) -> None:
    """Copy the documents of a collection and its field definitions, as a hard link where possible."""
    corpus = corpus_in(collection)
    assert corpus is not None  # it has been read
    kind = corpus.suffix if corpus.suffix in (".parquet", ".csv", ".tsv") else ".jsonl"
    _copied(corpus, folder / f"corpus{kind}")
    fields = corpus.with_name(FILE)
    if fields.is_file():
        shutil.copyfile(fields, folder / FILE)  # not a link: people edit it


def _copied(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
