"""The side files of LETOR files: `queries.jsonl`, query data, `features.txt`, a feature name per line, and judgements.

Beside `S1.txt` the file `S1.qrels` holds all that was judged of its queries, in TREC form; without it only the labels
of the candidates are known. `bm25.trec`, beside features of words and vectors, is the whole list of BM25.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from querywise.data.judged import Judged
from querywise.data.judgements import grades_of, read_judgements
from querywise.data.letor import place_of_row
from querywise.data.queries import read_queries, write_queries
from querywise.data.rows import first_repeated
from querywise.data.run_columns import Run, run_columns
from querywise.data.runs import read_run, write_list
from querywise.errors import DataError
from querywise.runtime.files import atomic_text, read_text

QUERIES = "queries.jsonl"
FEATURES = "features.txt"
QRELS = ".qrels"
RUN = ".trec"
_SMALL_TABLE = 100_000_000  # bytes that a table may have whatever was read
_WIDER = 10  # times as large as what was read: a sparse file leaves out some of its last columns
RUN_FILES = (f"bm25{RUN}", f"vectors{RUN}")  # of the systems that find candidates in a text collection


def with_side_files(data: Judged, folder: Path, *, queries: Path | None = None) -> Judged:
    """The same judged set with the data of its side files; `queries` names another file than the one there."""
    return with_side_queries(with_side_names(data, folder), folder, queries=queries)


def with_side_names(data: Judged, folder: Path) -> Judged:
    """The same judged set with the feature names in the folder, if any."""
    names = folder / FEATURES
    return _named(data, names) if names.is_file() else data


def with_side_queries(data: Judged, folder: Path, *, queries: Path | None = None) -> Judged:
    """The same judged set with its query data: from the folder, or from the file `queries`."""
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
    """The same judged set with all that was judged, where a file of judgements is beside every file it is from."""
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
        f"{said}. Both must say the same; mend one of them."
    )


def side_judgements(files: Sequence[Path]) -> list[Path]:
    """The judgements beside LETOR files, plain or packed: beside every one of them, or beside none."""
    found = [_judgements_beside(file) for file in files]
    there = [path for path in found if path.is_file()]
    if 0 < len(there) < len(files):
        lacking = next(path for path in found if not path.is_file())
        raise DataError(
            f"{there[0]} says what was judged beyond the candidates, but there is no {lacking}. Give such a file "
            "beside every file, or beside none."
        )
    return there


def _judgements_beside(file: Path) -> Path:
    plain = (file.with_suffix("") if file.suffix in (".gz", ".xz") else file).with_suffix(QRELS)
    packed = [plain.with_name(plain.name + ending) for ending in (".gz", ".xz")]
    return next((path for path in (plain, *packed) if path.is_file()), plain)


def side_runs(folder: Path, names: Sequence[str]) -> tuple[Run, ...]:
    """The whole lists of the systems that these features tell of, where they are in the folder."""
    paths = [folder / f"{run.name}{RUN}" for run in run_columns(names)]
    return tuple(read_run(path) for path in paths if path.is_file())


def check_names(data: Judged) -> None:
    """Refuse feature names that `features.txt` cannot give back."""
    names = data.candidates.feature_names or ()
    repeated = first_repeated(names)
    if repeated is not None:
        raise DataError(
            f"Two features are called {repeated!r}; a column of your own needs a name no other feature has."
        )
    for name in names:
        if not name or name != name.strip() or "\n" in name:
            raise DataError(f"The feature name {name!r} is empty, or has a line end or spaces around it. Rename it.")


def write_side_files(data: Judged, folder: Path) -> None:
    """Write what LETOR files of this set cannot hold."""
    names = data.candidates.feature_names
    if names is not None:
        with atomic_text(folder / FEATURES) as out:
            out.writelines(f"{name}\n" for name in names)
    for run in data.runs if run_columns(names) else ():
        write_list(folder / f"{run.name}{RUN}", run)
    if data.candidates.queries is not None:
        write_queries(folder / QUERIES, data.candidates.queries)


def _named(data: Judged, path: Path) -> Judged:
    names = _names(path)
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
    wide = data.widened(len(names))  # a sparse file may leave out its last columns
    return replace(wide, candidates=replace(wide.candidates, feature_names=names))


def _names(path: Path) -> tuple[str, ...]:
    names: Sequence[str] = [line.strip() for line in read_text(path).split("\n") if line.strip()]
    repeated = first_repeated(names)
    if repeated is not None:
        raise DataError(f"{path}: the name {repeated!r} stands there twice; every feature needs a name of its own.")
    return tuple(names)
