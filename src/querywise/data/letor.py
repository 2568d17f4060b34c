"""LETOR / SVMlight text, read and written: `label qid:id column:value … # comment`; and the files beside it.

Columns are numbered from 1 in the file and from 0 in Python. A column missing from a line is 0. Comments are kept;
`docid = …` in them (or a comment of one word) becomes the document's id.

Side files are `queries.jsonl`, query data, `features.txt`, a feature name per line, and judgments: the file `S1.qrels`
beside `S1.txt` holds all judgments of its queries, in TREC form; without it only the labels of the candidates are
known. `bm25.trec`, beside features of words and vectors, is the whole BM25 run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from querywise.data.compressed import unpacked
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import grades_of, read_judgements
from querywise.data.labels import refuse_unwritable
from querywise.data.query_table import read_queries, write_queries
from querywise.data.rows import first_repeated
from querywise.data.run_columns import Run, run_columns
from querywise.data.runs import read_run, write_list
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.files import PathLike, atomic_text, paths_of, read_bytes, read_text
from querywise.runtime.progress import track
from querywise.runtime.threads import in_threads
from querywise.runtime.workers import machine_memory

_CHUNK_BYTES = 8_000_000
_HARD_NUMBERS = 65_536
_SMALL_TABLE = 100_000_000  # bytes that any table may have
_SPARSEST = 400  # bytes of a table per byte of text, if at least one value in a hundred is given
_DOCUMENT_ID = re.compile(r"docid\s*=\s*(\S+)|^\s*([^\s=]+)\s*$")

QUERIES = "queries.jsonl"
FEATURES = "features.txt"
QRELS = ".qrels"
RUN = ".trec"
_WIDER = 10  # times the size of the input: a sparse file may lack some of its last columns
RUN_FILES = (f"bm25{RUN}", f"vectors{RUN}")  # of the systems that find candidates in a text collection


@dataclass(frozen=True)
class _Parsed:
    """The table of one file, before the files of a set are joined."""

    path: Path
    text: bytes
    features: Floats
    labels: Ints
    spans: Ints
    begins: Bools

    def line(self, row: int) -> int:
        return self.text.count(b"\n", 0, int(self.spans[row, 0])) + 1

    def strings(self, first: int, rows: Iterable[int]) -> list[str]:
        """Return the query ids (first = 0) or comments (first = 2) of some rows."""
        found = []
        for row in rows:
            begin, end = self.spans[row, first : first + 2]
            try:
                found.append(self.text[begin:end].decode().strip())
            except UnicodeDecodeError:
                raise DataError(
                    f"{self.path}:{self.line(row)}: the text here is not UTF-8. Convert the file, "
                    "for example with iconv -f LATIN1 -t UTF-8."
                ) from None
        return found


def read_letor(paths: PathLike | Sequence[PathLike], *, features: int | None = None) -> Judged:
    r"""Read one or several LETOR files (plain, .gz or .xz) as one judged set.

    Args:
        paths: one or several paths; a line is `2 qid:10 1:0.5 7:1.25 #docid = D3`.
        features: the number of columns where a sparse file may leave out the last ones, from 1 up; otherwise it is the
            largest column number found.

    Returns:
        A Judged set, its rows in the order of the files.

    Raises:
        DataError: A line that is not LETOR, and rows of a query that are not contiguous; the message names file and
            line.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import read_letor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "train.txt"
    ...     _ = file.write_text("2 qid:10 1:0.5 2:1.25 #docid = D3\n0 qid:10 1:0.25 #docid = D7\n")
    ...     print(read_letor(file))
    Judged(1 query, 2 documents, 2 features, grades 0: 1, 2: 1)
    """
    names = paths_of(paths)
    if not names:
        raise DataError("No file to read was given.")
    if features is not None and features < 1:
        raise DataError(f"features={features}: the number of columns must be 1 or more.")
    parsed = [_parse_file(name, features) for name in track(names, "Reading")]
    width = max(part.features.shape[1] for part in parsed) if features is None else features
    rows = [len(part.labels) for part in parsed]
    if len(parsed) > 1:
        length = sum(len(part.text) for part in parsed) if features is None else None
        _refuse_gigantic(f"{names[0]} and the files after it", sum(rows), width, length)
    table = _stack([part.features for part in parsed], width)
    query_ids, starts = _queries(parsed)
    comments = None
    if any(part.spans[:, 3].any() for part in parsed):
        comments = tuple(each for part in parsed for each in part.strings(2, range(len(part.labels))))
    candidates = Candidates(
        features=table,
        starts=np.array([*starts, sum(rows)], dtype=np.int64),
        query_ids=tuple(query_ids),
        document_ids=None if comments is None else _document_ids(comments),
        comments=comments,
    )
    return Judged(candidates, np.concatenate([part.labels for part in parsed]))


def place_of_row(paths: Sequence[Path], row: int) -> str:
    """Return the file and line of a row of several files read as one, for messages."""
    for path in paths:
        lines = _bytes_of(path).split(b"\n")
        numbers = [
            number for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith(b"#")
        ]
        if row < len(numbers):
            return f"{path}:{numbers[row]}"
        row -= len(numbers)
    return str(paths[-1])


def letor_width(path: PathLike) -> int:
    """Return the largest column number in a file, without reading its values."""
    text = _bytes_of(Path(path))
    rows, columns = _sizes(text, _chunks(text))
    _refuse_gigantic(f"{path}", sum(rows), columns, len(text))
    return columns


def write_letor(path: PathLike, data: Judged) -> None:
    """Write a judged set so that `read_letor` restores features, labels, query ids and comments exactly."""
    refuse_unwritable(data, "A LETOR file")
    candidates = data.candidates
    if np.isnan(candidates.features).any():
        raise DataError(
            f"{path}: a LETOR file cannot hold missing values: what a line leaves out is 0. Fill them, or write a "
            "Parquet file."
        )
    prefixes = [f"{column + 1}:" for column in range(candidates.features.shape[1])]
    _refuse_unwritable("Query", candidates.query_ids, r"[\s#]", "a space or '#'")
    _refuse_unwritable("Document", candidates.document_ids or (), r"\s", "a space")
    with atomic_text(Path(path)) as out:
        for query in track(range(len(candidates)), "Writing"):
            for row in range(candidates.starts[query], candidates.starts[query + 1]):
                values = " ".join(
                    map("".join, zip(prefixes, map(repr, candidates.features[row].tolist()), strict=True))
                )
                end = _comment_to_write(candidates, row)
                out.write(f"{data.labels[row]} qid:{candidates.query_ids[query]} {values}{end}\n")


def _refuse_unwritable(what: str, ids: Sequence[str], forbidden: str, named: str) -> None:
    for each in ids:
        if not each or re.search(forbidden, each):
            raise DataError(f"{what} id {each!r} cannot be written to a LETOR file: it is empty or has {named} in it.")


def _comment_to_write(candidates: Candidates, row: int) -> str:
    if candidates.comments is not None:
        text = candidates.comments[row]
    elif candidates.document_ids is not None:
        text = f"docid = {candidates.document_ids[row]}"
    else:
        return ""
    return f" #{text}".replace("\n", " ").replace("\r", " ")


def _parse_file(path: Path, width: int | None) -> _Parsed:
    text = _bytes_of(path)
    buffer, chunks = np.frombuffer(text, dtype=np.uint8), _chunks(text)
    counts, widest = _sizes(text, chunks)
    total, columns = sum(counts), widest if width is None else width
    if total == 0:
        raise DataError(f"{path}: the file holds no judged document. Expected lines like '2 qid:7 1:0.5 2:0.1'.")
    _refuse_gigantic(f"{path}", total, columns, len(text) if width is None else None)
    features = np.zeros((total, columns))
    labels = np.zeros(total, dtype=np.int64)
    spans = np.zeros((total, 4), dtype=np.int64)
    firsts = np.cumsum([0, *counts[:-1]]).tolist()
    parsed = _Parsed(path, text, features, labels, spans, np.zeros(total, dtype=np.bool_))
    pieces = in_threads(
        lambda each: _parse_chunk(parsed, buffer, each[0], each[1]), list(zip(chunks, firsts, strict=True))
    )
    for row in (row for piece in pieces for row in piece if 0 < row < total):
        parsed.begins[row] = text[slice(*spans[row, :2])] != text[slice(*spans[row - 1, :2])]
    return parsed


def _sizes(text: bytes, chunks: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Return the number of rows in each chunk of a text, and the largest column number."""
    from querywise.data import svmlight  # importing numba takes half a second

    buffer = np.frombuffer(text, dtype=np.uint8)
    found = in_threads(lambda chunk: svmlight.survey(buffer, *chunk), chunks)
    return [rows for rows, _ in found], max(columns for _, columns in found)


def _parse_chunk(
    into: _Parsed, buffer: np.ndarray[tuple[int], np.dtype[np.uint8]], chunk: tuple[int, int], row: int
) -> list[int]:
    """Read a chunk of lines into a table from `row` on.

    Returns the rows at which the caller must check whether a query begins.
    """
    from querywise.data import svmlight

    features, width = into.features, into.features.shape[1]
    seen, hard = np.zeros(width, np.int64), np.zeros((_HARD_NUMBERS + width, 3), dtype=np.int64)
    position, state, firsts = chunk[0], svmlight.LIST_FULL, []
    while state == svmlight.LIST_FULL:
        firsts.append(row)
        state, position, row, count = svmlight.parse(
            buffer, position, chunk[1], row, features, into.labels, into.spans, into.begins, seen, hard
        )
        for hard_row, column, place in hard[:count]:
            value = float(_token(into.text, int(place)))
            if not np.isfinite(value):
                state, position = svmlight.BAD_VALUE, int(place)
                break
            features[hard_row, column] = value
    if state != svmlight.DONE:
        raise DataError(_complaint(into.path, into.text, state, position, width))
    return firsts


def _complaint(path: Path, text: bytes, state: int, position: int, width: int) -> str:
    from querywise.data import svmlight

    token = _token(text, position)[:60].decode(errors="replace")
    words = {
        svmlight.BAD_LABEL: f"label {token!r} is not a whole number from 0 (not relevant) up",
        svmlight.NO_QID: "the label is not followed by a query id like qid:7",
        svmlight.BAD_COLUMN: f"{token!r} does not begin with a column number from 1 to {max(width, 1)} and a colon",
        svmlight.REPEATED_COLUMN: f"column {token.split(':')[0]} is given twice on one line",
        svmlight.BAD_VALUE: f"the value in {token!r} is not a finite number",
    }
    line = text.count(b"\n", 0, position) + 1
    return f"{path}:{line}: {words[state]}. Expected a line like '2 qid:7 1:0.5 2:0.1 #docid = D7'."


def _token(text: bytes, position: int) -> bytes:
    found = re.compile(rb"[^\s#]*").match(text, position)
    return b"" if found is None else found.group()


def _bytes_of(path: Path) -> bytes:
    raw = unpacked(path, read_bytes(path))
    if b"\x00" in raw[:4096]:
        raise DataError(f"{path}: this is a binary file. Expected LETOR text, plain, .gz or .xz.")
    text = raw.removeprefix(b"\xef\xbb\xbf")
    return text if text.endswith(b"\n") else text + b"\n"


def _chunks(text: bytes) -> list[tuple[int, int]]:
    cuts = [0]
    while len(text) - cuts[-1] > 2 * _CHUNK_BYTES:
        newline = text.find(b"\n", cuts[-1] + _CHUNK_BYTES)
        if newline < 0:
            break
        cuts.append(newline + 1)
    return list(zip(cuts, [*cuts[1:], len(text)], strict=True))


def _refuse_gigantic(where: str, rows: int, columns: int, length: int | None) -> None:
    """Raise DataError for a table beyond this machine's memory, or much larger than its text of `length` bytes."""
    memory, size = machine_memory(), 8 * rows * columns
    if size > memory:
        raise DataError(
            f"{where}: {rows} rows with a column numbered {columns} make a table of {size / 1e9:.0f} GB, "
            f"more than this machine's {memory / 1e9:.0f} GB. Is that column number right?"
        )
    if length is not None and size > max(_SMALL_TABLE, _SPARSEST * length):
        raise DataError(
            f"{where}: {rows} rows with a column numbered {columns} make a table of {size / 1e9:.2g} GB "
            f"of {length} bytes of text. Is that column number right? If it is, say so: features={columns}.",
            arguments=("features",),
        )


def _stack(tables: Sequence[Floats], width: int) -> Floats:
    if len(tables) == 1 and tables[0].shape[1] == width:
        return tables[0]
    stacked = np.zeros((sum(len(table) for table in tables), width))
    row = 0
    for table in tables:
        stacked[row : row + len(table), : table.shape[1]] = table
        row += len(table)
    return stacked


def _queries(parsed: Sequence[_Parsed]) -> tuple[list[str], list[int]]:
    """Return the ids of all queries and their first rows.

    Raise DataError, naming both lines, if a query begins twice.
    """
    query_ids: list[str] = []
    starts: list[int] = []
    began: dict[str, tuple[_Parsed, int]] = {}
    offset = 0
    for part in parsed:
        firsts = np.flatnonzero(part.begins)
        for row, query_id in zip(firsts.tolist(), part.strings(0, firsts), strict=True):
            if query_id in began:
                before, earlier = began[query_id]
                raise DataError(
                    f"{part.path}:{part.line(row)}: query {query_id!r} already began at "
                    f"{before.path}:{before.line(earlier)}. All lines of a query must be consecutive; "
                    "sort the file by qid."
                )
            began[query_id] = (part, row)
            query_ids.append(query_id)
            starts.append(offset + row)
        offset += len(part.labels)
    return query_ids, starts


def _document_ids(comments: Sequence[str]) -> tuple[str, ...] | None:
    found = [_DOCUMENT_ID.search(comment) for comment in comments]
    if any(match is None for match in found):
        return None
    return tuple(match.group(1) or match.group(2) for match in found if match is not None)


def with_side_files(data: Judged, folder: Path) -> Judged:
    """Return the judged set with the data of its side files."""
    return with_side_queries(with_side_names(data, folder), folder)


def with_side_names(data: Judged, folder: Path) -> Judged:
    """Return the judged set with the feature names in the folder, if any."""
    names = folder / FEATURES
    return _named(data, names) if names.is_file() else data


def with_side_queries(data: Judged, folder: Path, *, queries: Path | None = None) -> Judged:
    """Return the judged set with its query data, from the folder or from the file `queries`."""
    asked = queries if queries is not None else folder / QUERIES
    if queries is not None or asked.is_file():
        try:
            data = data.with_queries(read_queries(asked))
        except DataError as error:
            if queries is not None or str(error).startswith(str(asked)):
                raise
            said = f"{asked}, found beside the data: {error} Or name another file with queries=PATH."
            raise DataError(said, arguments=("queries",)) from None
    return data


def with_side_judgements(data: Judged, files: Sequence[Path]) -> Judged:
    """Return the judged set with all judgments, if a file of judgments is beside every one of its files."""
    beside = side_judgements(files)
    if not beside:
        return data
    judgements = [each for path in beside for each in read_judgements(path)]
    grades = grades_of(judgements)
    row = data.contradiction(grades)
    if row is None:
        return data.with_judgements(grades)
    query, document = data.query_ids[int(data.candidates.query_of_row[row])], data.candidates.document_label(row)
    other = next((each for each in judgements if (each.query, each.document) == (query, document)), None)
    said = f"{beside[0]} does not judge it" if other is None else f"grade {other.grade} at {other.where}"
    raise DataError(
        f"{place_of_row(files, row)}: document {document!r} of query {query!r} has label {data.labels[row]} here and "
        f"{said}. Both must agree; correct one of them."
    )


def side_judgements(files: Sequence[Path]) -> list[Path]:
    """Return the judgments beside LETOR files, plain or compressed.

    Raise DataError if some files have them and others not.
    """
    found = [_judgements_beside(file) for file in files]
    there = [path for path in found if path.is_file()]
    if 0 < len(there) < len(files):
        lacking = next(path for path in found if not path.is_file())
        raise DataError(
            f"{there[0]} lists judgments beyond the candidates, but there is no {lacking}. Give such a file "
            "beside every file, or beside none."
        )
    return there


def _judgements_beside(file: Path) -> Path:
    plain = (file.with_suffix("") if file.suffix in (".gz", ".xz") else file).with_suffix(QRELS)
    packed = [plain.with_name(plain.name + ending) for ending in (".gz", ".xz")]
    return next((path for path in (plain, *packed) if path.is_file()), plain)


def side_runs(folder: Path, names: Sequence[str]) -> tuple[Run, ...]:
    """Return the whole runs that the features come from, if they are in the folder."""
    paths = [folder / f"{run.name}{RUN}" for run in run_columns(names)]
    return tuple(read_run(path) for path in paths if path.is_file())


def check_names(data: Judged) -> None:
    """Raise DataError for feature names that `features.txt` cannot hold."""
    names = data.candidates.feature_names or ()
    repeated = first_repeated(names)
    if repeated is not None:
        raise DataError(f"Two features are called {repeated!r}; a column that you add needs a unique name.")
    for name in names:
        if not name or name != name.strip() or "\n" in name:
            raise DataError(f"The feature name {name!r} is empty, or has a line end or spaces around it. Rename it.")


def write_side_files(data: Judged, folder: Path) -> None:
    """Write the data of this set that LETOR files cannot hold."""
    names = data.candidates.feature_names
    if names is not None:
        with atomic_text(folder / FEATURES) as out:
            out.writelines(f"{name}\n" for name in names)
    for run in data.runs if run_columns(names) else ():
        write_list(folder / f"{run.name}{RUN}", run)
    if data.candidates.queries is not None:
        write_queries(folder / QUERIES, data.candidates.queries)


def _named(data: Judged, path: Path) -> Judged:
    names = tuple(line.strip() for line in read_text(path).split("\n") if line.strip())
    if (repeated := first_repeated(names)) is not None:
        raise DataError(f"{path}: the name {repeated!r} appears twice; every feature needs a unique name.")
    count = data.candidates.features.shape[1]
    if len(names) < count:
        raise DataError(f"{path}: {len(names)} names for {count} features; one line per column of the LETOR files.")
    before, after = (8 * len(data.labels) * each for each in (count, len(names)))
    if after > max(_SMALL_TABLE, _WIDER * before):
        raise DataError(
            f"{path}: {len(names)} names for {count} features would make a table of {after / 1e9:.2g} GB of one of "
            f"{before / 1e9:.2g} GB. Are these the names of its columns? If they are, say so: features={len(names)}.",
            arguments=("features",),
        )
    wide = data.widened(len(names))  # a sparse file may lack its last columns
    return replace(wide, candidates=replace(wide.candidates, feature_names=names))
