"""Text collections: documents, queries and judgements, in the BEIR layout or with TREC topics and qrels.

A folder holds `corpus.jsonl` (`_id`, `title`, `text`, and `columns` of the user's own), `queries.jsonl` and
`qrels.tsv`. Documents are read one at a time, on every iteration; errors name file and
line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from querywise.data.judgements import Judgement, grades_of, read_judgements
from querywise.data.query_table import QueryTable, is_finite_number, json_line, read_queries, read_record, write_queries
from querywise.display.words import counted
from querywise.errors import DataError, Hint
from querywise.runtime.files import PathLike, atomic_text, make_folder, read_text
from querywise.runtime.values import Json, JsonObject

TEXTS_BESIDE = ".queries.jsonl"  # ends the name of the file with the texts of queries judged elsewhere
_QRELS = ("qrels.tsv", "qrels/test.tsv", "qrels.txt", "qrels")
_TOPICS = ("queries.jsonl", "topics.txt", "topics", "queries.tsv")


class Document(NamedTuple):
    """One document: its id, its two fields, and the user's own columns."""

    id: str
    title: str
    text: str
    columns: Mapping[str, float] = {}


@dataclass(frozen=True)
class Collection:
    """Documents, queries and relevance judgements."""

    name: str
    documents: Callable[[], Iterable[Document]]
    queries: QueryTable | None = None
    judgements: tuple[Judgement, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        queries = counted(0 if self.queries is None else len(self.queries), "query")
        return f"Collection({self.name!r}, {queries}, {counted(len(self.judgements), 'judgement')})"

    def grades(self) -> dict[str, dict[str, int]]:
        """Query → document → grade."""
        return grades_of(self.judgements)


def read_collection(
    folder: PathLike, *, queries: PathLike | None = None, judgements: PathLike | None = None
) -> Collection:
    r"""A collection of documents, queries and judgements, from its folder.

    Queries are `queries.jsonl`, TREC topics or `id <tab> text` lines; judgements are `query <tab> document <tab> grade`
    lines or TREC qrels. A collection without them can be indexed and searched.

    folder: one with `corpus.jsonl` in it, one document a line; or such a file.
    queries: the file of queries, where it is elsewhere.
    judgements: the file of judgements, where it is elsewhere.

    Returns: a Collection, its documents read when they are asked for.

    Refused: with DataError, a folder without `corpus.jsonl`, a line that cannot be read, and a judged query without
    text.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import read_collection
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "corpus.jsonl").write_text('{"_id": "D7", "title": "jaguar", "text": "a large cat"}\n')
    ...     print([document.id for document in read_collection(folder).documents()])
    ['D7']
    """
    root = Path(folder)
    corpus = root / "corpus.jsonl" if root.is_dir() else root
    if not corpus.is_file():
        raise DataError(
            f"{root}: there is no corpus.jsonl here. Expected one document a line, like "
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
    return Collection(root.absolute().name, lambda: _some(read_documents(corpus), corpus), table, found)


def with_more_judged(collection: Collection, judgements: PathLike) -> Collection:
    """The same collection with the judgements of a file beside its own; of one pair the grade of the file counts.

    Queries that the collection does not have are added, with the texts in the file of the same name that ends in
    `.queries.jsonl`, as judging on the page of a service writes it.
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
    said = f"{counted(len(found), 'judgement')} of {counted(len({each.query for each in found}), 'query')}"
    told = f"{path}: {said} added to those of {collection.name} (new queries: {len(new)}, grades replaced: {changed})."
    warnings.warn(told, Hint, stacklevel=2)
    return replace(collection, queries=_with_texts(table, texts.select(new)), judgements=tuple(own.values()))


def _with_texts(table: QueryTable, more: QueryTable) -> QueryTable:
    """The table with further queries: their texts, and their classes where the table has classes."""
    longer, unknown = table.with_unknown(more.ids), (None,) * len(more)
    texts = (*(table.texts or (None,) * len(table)), *(more.texts or unknown))
    classes = None if table.classes is None else (*table.classes, *(more.classes or unknown))
    return replace(longer, texts=texts, classes=classes)


def write_collection(collection: Collection, folder: PathLike) -> None:
    """Write a collection in the layout `read_collection` reads."""
    root = Path(folder)
    make_folder(root)
    with atomic_text(root / "corpus.jsonl") as out:
        for document in collection.documents():
            record: JsonObject = {"_id": document.id, "title": document.title, "text": document.text}
            if document.columns:
                record["columns"] = dict(document.columns)
            out.write(json_line(record))
    if collection.queries is not None:
        write_queries(root / "queries.jsonl", collection.queries)
    if collection.judgements:
        with atomic_text(root / "qrels.tsv") as out:
            out.write("query-id\tcorpus-id\tscore\n")
            out.writelines(f"{each.query}\t{each.document}\t{each.grade}\n" for each in collection.judgements)


def read_documents(path: Path) -> Iterator[Document]:
    """The documents of a `corpus.jsonl`, one at a time."""
    lines: dict[str, int] = {}
    names: tuple[str, ...] | None = None
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.strip():
                    document = _document(raw, f"{path}:{number}")
                    if document.id in lines:
                        raise DataError(
                            f"{path}:{number}: document {document.id!r} already stands on line {lines[document.id]}; "
                            "every document needs an id of its own."
                        )
                    names = tuple(document.columns) if names is None else names
                    if set(document.columns) != set(names):
                        raise DataError(
                            f"{path}:{number}: the columns are {sorted(document.columns)}; the first document has "
                            f"{sorted(names)}. All need the same ones."
                        )
                    lines[document.id] = number
                    yield document
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def _some(documents: Iterable[Document], path: Path) -> Iterator[Document]:
    empty = True
    for document in documents:
        empty = False
        yield document
    if empty:
        raise DataError(f"{path}: there is no document in it: the collection is empty.")


def read_topics(path: Path) -> QueryTable:
    """Queries from `queries.jsonl`, from TREC topics (`<top> <num> <title>`), or from `id <tab> text` lines."""
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


def _document(raw: bytes, where: str) -> Document:
    try:
        line = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: byte {error.start} of the line is not UTF-8 text. Convert the file.") from None
    record = read_record(line, where, example='{"_id": "D7", "title": "jaguar", "text": "a large cat"}')
    title, text = (_text(record, name, where) for name in ("title", "text"))
    columns = {} if record.get("columns") is None else record["columns"]
    if not isinstance(columns, dict):
        raise DataError(f'{where}: "columns" must map names to numbers; found {columns!r:.60}.')
    for name, value in columns.items():
        if not is_finite_number(value):
            raise DataError(f"{where}: column {name!r} is {value!r:.60}, not a finite number.")
    return Document(str(record["_id"]), title, text, {name: float(value) for name, value in columns.items()})


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
    """The words between every such tag and the next tag, without their heading; in time linear in the length."""
    for part in topic.split(f"<{tag}>")[1:]:
        yield part.partition("<")[0].strip().removeprefix(heading).split()


def _tabbed_topics(path: Path, text: str) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            query_id, tab, words = line.rstrip("\r").partition("\t")
            if not tab or not query_id.strip():
                raise DataError(f"{path}:{number}: expected an id, a tab and the query's text; found {line[:80]!r}.")
            yield f"{path}:{number}", query_id.strip(), words.strip()
