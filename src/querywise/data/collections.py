"""Text collections: documents, queries and judgments, in the BEIR layout or with TREC topics and qrels.

A folder holds `corpus.jsonl` (`_id`, `title`, `text`, and `columns` of the user's own; or any fields), `queries.jsonl`
and `qrels.tsv`. Documents are read one at a time, on every iteration; errors name file and line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from querywise.data.fields import FILE, Fields, Values, read_fields, write_fields, written_values
from querywise.data.judgements import Columns, Grades, Judgement, grades_from, grades_of, read_judgements
from querywise.data.query_table import QueryTable, json_line, read_queries, write_queries
from querywise.data.records import Rows, corpus_in, fields_of, fields_of_records, given_records, records_of
from querywise.display.words import counted
from querywise.errors import DataError, Hint
from querywise.runtime.files import PathLike, atomic_text, make_folder, read_text
from querywise.runtime.values import Json, JsonObject, is_finite_number

TEXTS_BESIDE = ".queries.jsonl"  # suffix of the file with the texts of queries that were judged elsewhere
_QRELS = ("qrels.tsv", "qrels/test.tsv", "qrels.txt", "qrels")
_TOPICS = ("queries.jsonl", "topics.txt", "topics", "queries.tsv")


class Document(NamedTuple):
    """A document: its id, title and text, the user's own columns, and the values of its fields.

    If documents have fields, `title` is one of them and `text` holds all other words.
    """

    id: str
    title: str
    text: str
    columns: Mapping[str, float] = {}
    values: Values = {}  # noqa: RUF012  never changed


@dataclass(frozen=True)
class Collection:
    """Documents, queries and relevance judgments; `fields` are those of documents besides title, text and columns."""

    name: str
    documents: Callable[[], Iterable[Document]]
    queries: QueryTable | None = None
    judgements: tuple[Judgement, ...] = field(default=(), repr=False)
    fields: Fields | None = None

    def __repr__(self) -> str:
        queries = counted(0 if self.queries is None else len(self.queries), "query")
        return f"Collection({self.name!r}, {queries}, {counted(len(self.judgements), 'judgment')})"

    def grades(self) -> dict[str, dict[str, int]]:
        """Return grades by query and document."""
        return grades_of(self.judgements)


def read_collection(
    folder: PathLike, *, queries: PathLike | None = None, judgements: PathLike | None = None
) -> Collection:
    r"""Read a collection of documents, queries and judgments from its folder.

    Queries are `queries.jsonl`, TREC topics or `id <tab> text` lines; judgments are `query <tab> document <tab> grade`
    lines or TREC qrels. A collection without them can be indexed and searched.

    Documents may have any fields; `fields.toml` gives the kind of each, or else it is inferred from the values.

    Args:
        folder: a folder with `corpus.jsonl`, one document per line, or `corpus.csv`, `.tsv` or `.parquet`; or such a
            file itself.
        queries: the file of queries, if it is elsewhere.
        judgements: the file of judgments, if it is elsewhere.

    Returns:
        A Collection, whose documents are read on demand.

    Raises:
        DataError: A folder without `corpus.jsonl`, a line that cannot be read, and a judged query without text.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import read_collection
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "corpus.jsonl").write_text('{"_id": "D7", "title": "jaguar", "text": "a large cat"}\n')
    ...     print([document.id for document in read_collection(folder).documents()])
    ['D7']
    """
    root = Path(folder)
    corpus = corpus_in(root)
    if corpus is None:
        raise DataError(
            f"{root}: there is no corpus.jsonl here. Expected one document per line, like "
            '{"_id": "D7", "title": "jaguar", "text": "a large cat"}.'
        )
    asked = Path(queries) if queries is not None else _first(root, _TOPICS)
    judged = Path(judgements) if judgements is not None else _first(root, _QRELS)
    table = None if asked is None else read_topics(asked)
    found = () if judged is None else tuple(read_judgements(judged))
    if table is not None:
        known = set(table.ids)
        stray = next((each for each in found if each.query not in known), None)
        if stray is not None:
            raise DataError(f"{stray.where}: query {stray.query!r} is judged here but is not in {asked}.")
    fields = fields_of(corpus)
    return Collection(root.absolute().name, lambda: _some(read_documents(corpus, fields), corpus), table, found, fields)


def collection_of(
    documents: Rows,
    queries: Rows | Mapping[str, str] | QueryTable | None = None,
    judgments: Grades | Columns | Sequence[tuple[str, str, int]] | None = None,
    *,
    fields: Fields | PathLike | None = None,
) -> Collection:
    """Return a collection made from data frames, lists of dictionaries or mappings, without any files.

    Args:
        documents: a frame (pandas, polars, Arrow) or a list of dictionaries with a row for each document: an `id`, and
            any fields: texts, lists of texts, numbers, dates, booleans.
        queries: rows of the same kind with `id` and `text`, and optionally `class` and `group`; or texts by id.
        judgments: grades by query and document, a table with such columns, or tuples of query, document and grade.
        fields: the kinds of the fields: the path of a `fields.toml`, or Fields; None infers them from the values.

    Returns:
        A Collection, which `read_judged` and `build_index` take.

    Raises:
        DataError: A row without an id, a number that is not finite, and values that do not fit their field.

    >>> from querywise import collection_of, read_judged
    >>> films = [
    ...     {"id": "D1", "title": "Jaguar", "actors": ["Ann Lee"], "votes": 7},
    ...     {"id": "D2", "title": "Snake", "actors": ["Joe Fox"], "votes": 900},
    ... ]
    >>> films = collection_of(films, {"q1": "ann lee jaguar"}, [("q1", "D1", 1), ("q1", "D2", 0)])
    >>> print(films.fields.told())
    Fields of the documents: text: title; texts: actors; number: votes (title: title).
    >>> read_judged(films, candidates="judged").labels.tolist()
    [1, 0]
    """
    records = given_records(documents)
    known = fields if isinstance(fields, Fields) else None if fields is None else read_fields(Path(fields))
    known = fields_of_records(records) if known is None else known
    made = list(_some(_unique(documents_of(records, known)), Path("documents")))
    judged = _judgements_from(judgments)
    return Collection("documents", lambda: made, _queries_from(queries), judged, known)


def _queries_from(queries: Rows | Mapping[str, str] | QueryTable | None) -> QueryTable | None:
    if queries is None or isinstance(queries, QueryTable):
        return queries
    if isinstance(queries, Mapping):
        stray = next((name for name, text in queries.items() if not isinstance(text, str)), None)
        if stray is not None:
            raise DataError(f"queries: query {stray!r:.60} must have a text.", arguments=("queries",))
        return QueryTable(tuple(map(str, queries)), texts=tuple(queries.values()))
    records = [record for _, record in given_records(queries)]
    return read_queries("queries", text="".join(map(json_line, records)))


def _judgements_from(judgments: Grades | Columns | Sequence[tuple[str, str, int]] | None) -> tuple[Judgement, ...]:
    if judgments is None:
        return ()
    if isinstance(judgments, Sequence):
        if not all(isinstance(each, (list, tuple)) and len(each) == 3 for each in judgments):
            raise DataError("judgments: expected tuples of query, document and grade.", arguments=("judgments",))
        names = "query", "document", "grade"
        table: Columns = {name: [each[place] for each in judgments] for place, name in enumerate(names)}
    found = grades_from(table if isinstance(judgments, Sequence) else judgments)
    return tuple(
        Judgement(str(query), str(document), grade, "judgments")
        for query, own in found.items()
        for document, grade in own.items()
    )


def with_more_judged(collection: Collection, judgements: PathLike) -> Collection:
    """Return the collection with the judgments of a file added; they override existing grades of the same pairs.

    Queries that the collection lacks are added, with their texts from the file of the same name that ends in
    `.queries.jsonl`, as written by the judging page of a service.
    """
    path = Path(judgements)
    beside = path.with_name(path.name + TEXTS_BESIDE)
    found, texts = tuple(read_judgements(path)), read_queries(beside) if beside.is_file() else QueryTable(())
    table = collection.queries or QueryTable((), texts=())
    new = tuple(dict.fromkeys(each.query for each in found if each.query not in set(table.ids)))
    lacking = next((each for each in found if each.query in new and each.query not in texts.ids), None)
    if lacking is not None:
        raise DataError(
            f"{lacking.where}: query {lacking.query!r} is judged here, and its text is neither in {collection.name} "
            f"nor in {beside}."
        )
    own, newer = ({(each.query, each.document): each for each in known} for known in (collection.judgements, found))
    changed = sum(pair in own and own[pair].grade != each.grade for pair, each in newer.items())
    own |= newer
    said = f"{counted(len(found), 'judgment')} of {counted(len({each.query for each in found}), 'query')}"
    told = f"{path}: {said} added to those of {collection.name} (new queries: {len(new)}, grades replaced: {changed})."
    warnings.warn(told, Hint, stacklevel=2)
    return replace(collection, queries=_with_texts(table, texts.select(new)), judgements=tuple(own.values()))


def _with_texts(table: QueryTable, more: QueryTable) -> QueryTable:
    """Return the table with further queries: their texts, and their classes if the table has classes."""
    longer, unknown = table.with_unknown(more.ids), (None,) * len(more)
    texts = (*(table.texts or (None,) * len(table)), *(more.texts or unknown))
    classes = None if table.classes is None else (*table.classes, *(more.classes or unknown))
    return replace(longer, texts=texts, classes=classes)


def write_collection(collection: Collection, folder: PathLike) -> None:
    """Write a collection in the layout that `read_collection` reads."""
    root = Path(folder)
    make_folder(root)
    with atomic_text(root / "corpus.jsonl") as out:
        for document in collection.documents():
            record: JsonObject = {"_id": document.id, "title": document.title, "text": document.text}
            if collection.fields is not None:
                record = {"_id": document.id, **written_values(document.values)}
            if document.columns:
                record["columns"] = dict(document.columns)
            out.write(json_line(record))
    if collection.fields is not None:
        write_fields(root / FILE, collection.fields, {})
    if collection.queries is not None:
        write_queries(root / "queries.jsonl", collection.queries)
    if collection.judgements:
        with atomic_text(root / "qrels.tsv") as out:
            out.write("query-id\tcorpus-id\tscore\n")
            out.writelines(f"{each.query}\t{each.document}\t{each.grade}\n" for each in collection.judgements)


def read_documents(path: Path, fields: Fields | None = None) -> Iterator[Document]:
    """Yield the documents of a file, one at a time."""
    return _unique(documents_of(records_of(path), fields))


def documents_of(records: Iterable[tuple[str, JsonObject]], fields: Fields | None) -> Iterator[tuple[str, Document]]:
    """Yield records as documents, each with its location."""
    for where, record in records:
        if fields is None:
            yield where, _document(record, where)
        else:
            values = fields.read(record, where)
            texts = fields.title_of(values), fields.body_of(values)
            yield where, Document(str(record["_id"]), *texts, _columns(record, where), values)


def _unique(documents: Iterable[tuple[str, Document]]) -> Iterator[Document]:
    """Yield documents, checking that their ids are distinct and their columns the same."""
    places: dict[str, str] = {}
    names: tuple[str, ...] | None = None
    for where, document in documents:
        if document.id in places:
            first = places[document.id].rpartition(":")[2]
            raise DataError(
                f"{where}: document {document.id!r} is already on line {first}; every document needs a unique id."
            )
        names = tuple(document.columns) if names is None else names
        if set(document.columns) != set(names):
            raise DataError(
                f"{where}: the columns are {sorted(document.columns)}; the first document has {sorted(names)}. All "
                "documents need the same columns."
            )
        places[document.id] = where
        yield document


def _some(documents: Iterable[Document], path: Path) -> Iterator[Document]:
    empty = True
    for document in documents:
        empty = False
        yield document
    if empty:
        raise DataError(f"{path}: there is no document in it: the collection is empty.")


def read_topics(path: Path) -> QueryTable:
    """Read queries from `queries.jsonl`, from TREC topics (`<top> <num> <title>`), or from `id <tab> text` lines."""
    if path.suffix == ".jsonl":
        return read_queries(path)
    text = read_text(path)
    pairs = _trec_topics(path, text) if "<top>" in text else _tabbed_topics(path, text)
    seen: dict[str, str] = {}
    for where, query_id, words in pairs:
        if query_id in seen:
            raise DataError(f"{where}: query {query_id!r} appears a second time.")
        seen[query_id] = words
    if not seen:
        raise DataError(f"{path}: the file holds no query. Expected TREC topics, or lines of an id, a tab and a text.")
    return QueryTable(tuple(seen), texts=tuple(seen.values()))


def _first(root: Path, names: tuple[str, ...]) -> Path | None:
    return next((root / name for name in names if root.is_dir() and (root / name).is_file()), None)


def _document(record: JsonObject, where: str) -> Document:
    title, text = (_text(record, name, where) for name in ("title", "text"))
    return Document(str(record["_id"]), title, text, _columns(record, where))


def _columns(record: JsonObject, where: str) -> dict[str, float]:
    columns = {} if record.get("columns") is None else record["columns"]
    if not isinstance(columns, dict):
        raise DataError(f'{where}: "columns" must map names to numbers; found {columns!r:.60}.')
    for name, value in columns.items():
        if not is_finite_number(value):
            raise DataError(f"{where}: column {name!r} is {value!r:.60}, not a finite number.")
    return {name: float(value) for name, value in columns.items()}


def _text(record: Mapping[str, Json], name: str, where: str) -> str:
    value = record.get(name)
    if not isinstance(value, (str, type(None))):
        raise DataError(f'{where}: "{name}" must be text; found {value!r:.60}.')
    return value or ""


def _trec_topics(path: Path, text: str) -> Iterator[tuple[str, str, str]]:
    before, *topics = text.split("<top>")
    line = 1 + before.count("\n")
    for topic in topics:
        numbers = (words[0] for words in _tagged(topic, "num", "Number:") if words)
        number = next((each for each in numbers if not each.startswith("Number:")), None)
        title = next(_tagged(topic, "title", "Topic:"), None)
        if number is None or title is None:
            raise DataError(f"{path}:{line}: a topic needs a <num> and a <title>.")
        yield f"{path}:{line}", number, " ".join(title)
        line += topic.count("\n")


def _tagged(topic: str, tag: str, heading: str) -> Iterator[list[str]]:
    """Yield the words between each such tag and the next tag, without the heading, in linear time."""
    for part in topic.split(f"<{tag}>")[1:]:
        yield part.partition("<")[0].strip().removeprefix(heading).split()


def _tabbed_topics(path: Path, text: str) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            query_id, tab, words = line.rstrip("\r").partition("\t")
            if not tab or not query_id.strip():
                raise DataError(f"{path}:{number}: expected an id, a tab and the query's text; found {line[:80]!r}.")
            yield f"{path}:{number}", query_id.strip(), words.strip()
