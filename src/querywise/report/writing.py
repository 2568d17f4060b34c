"""A report on disk: HTML, Markdown, LaTeX, CSV, JSON and figures, in one folder; and its origin."""

from __future__ import annotations

import csv
import io
import platform
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from querywise.display.words import without_controls
from querywise.evaluation.compare import Compared
from querywise.evaluation.findings import Findings, as_json
from querywise.evaluation.rankings import nearest_distances, query_texts, relevant_documents, run_of, titles_needed
from querywise.evaluation.resume import file_name
from querywise.measures.score_files import unfit_for_runs, write_runs
from querywise.methods.table import METHODS
from querywise.report.contents import Origin, Titles, contents, files_of, shown_command
from querywise.report.html import RANKINGS, Page, query_data
from querywise.report.sections import Section
from querywise.report.tables import Table, plain_markdown
from querywise.retrieval.reading import collection_from, is_collection
from querywise.runtime.files import atomic_text, make_folder, refuse_link, refused_if_not_written
from querywise.runtime.values import json_text

# Tables that only some reports have.
SOMETIMES = (
    "best-queries",
    "worst-queries",
    "oracle",
    "features",
    "learning-curves",
    "pairs",
    "near-twins",
    "query-vectors",
    "query-vectors-by-cosine",
    "query-vectors-by-fold",
    "query-vectors-by-method",
    "query-vectors-by-size",
    "by-relevant-documents",
    "by-class",
    "by-distance-to-the-nearest-training-query",
    "by-number-of-candidates",
    "by-query-length",
)
# Characters that begin a heading, a list, a quotation, a table or a definition.
_LINE = re.compile(r"^(\d{0,9})((?<!\d)[#>+=|\[:~-]|(?<=\d)[.)](?=\s|$))")
_LINKED = re.compile(r"\]\(figures/([\w.-]+\.svg)\)")


def write_report(
    found: Findings,
    folder: Path,
    *,
    title: str,
    story: str = "",
    origin: Origin | None = None,
    titles: Titles | None = None,
) -> Path:
    """Write the whole report and return the HTML file's path; `titles` are document titles by id."""
    check_report_folder(folder)
    make_folder(folder / "figures")
    sections = contents(found, title, story, origin)
    queries = query_data(found, {} if titles is None else titles(titles_needed(found.compared)))
    for path in _older(folder):
        with refused_if_not_written(path):
            path.unlink(missing_ok=True)  # current data is written again
    for name, table in files_of(sections).items():
        _write(folder / f"{name}.csv", table.csv())
    main = files_of(sections)["table"]
    _write(folder / "table.md", _table(main))
    _write(folder / "table.tex", main.latex())
    for section in sections:
        for figure in section.figures:
            _write(folder / "figures" / figure.name, figure.chart.file())
    _write(folder / "values.csv", _csv(_value_rows(found.compared)))
    _write(folder / "queries.csv", _csv(_query_rows(found.compared)))
    _write_runs(found.compared, folder / "runs")
    _write(folder / "report.json", json_text(as_json(found)))
    _write(folder / "report.md", markdown_page(sections))
    if queries.files:
        make_folder(folder / RANKINGS)
    for name, script in queries.files.items():
        _write(folder / RANKINGS / name, script)
    page = Page(found, title, story, origin or Origin(), sections, queries)
    _write(folder / "report.html", page.html())
    return folder / "report.html"


def check_report_folder(folder: Path) -> None:
    """Raise DataError if a folder of the report is a link."""
    for name in ("figures", RANKINGS, "runs"):
        refuse_link(folder / name)


def _write_runs(compared: Compared, folder: Path) -> None:
    """Write every method's ranking of the test queries as a TREC run, if the format can hold the ids."""
    candidates = compared.judged.candidates
    if candidates.document_ids is not None and not unfit_for_runs((*candidates.query_ids, *candidates.document_ids)):
        write_runs((replace(run_of(compared, name), name=file_name(name)) for name in compared.names), folder)


def _older(folder: Path) -> list[Path]:
    """Return files of an older report in the same folder that this one may lack: some tables, and linked figures."""
    page = folder / "report.md"
    linked = _LINKED.findall(page.read_text(encoding="utf-8", errors="replace")) if page.is_file() else []
    return [
        *(folder / f"{name}.csv" for name in SOMETIMES),
        *(folder / "figures" / name for name in linked),
        *(path for path in (folder / RANKINGS).glob("*.js") if path.stem.isdecimal()),
    ]


def markdown_page(sections: Iterable[Section]) -> str:
    """Format the report as Markdown with linked figures."""
    parts = []
    for number, section in enumerate(sections):
        parts.append(f"{'#' if number == 0 else '##'} {plain_markdown(' '.join(section.title.split()))}\n")
        if section.text:
            parts.append(_paragraphs(section.text) + "\n")
        if section.code:
            parts.append("    " + section.code.replace("\n", "\n    ") + "\n")
        parts += [_table(table) for _, table in section.tables]
        parts += [f"![{plain_markdown(text, in_brackets=True)}](figures/{name})\n" for name, text, _ in section.figures]
    return "\n".join(parts)


def _paragraphs(text: str) -> str:
    """Format text of one or more lines so that none begins a heading, a list, a quotation, a table or code."""
    return "\n".join(_LINE.sub(r"\1\\\2", plain_markdown(line.strip())) for line in text.split("\n"))


def _table(table: Table) -> str:
    return replace(table, caption=_paragraphs(table.caption)).markdown()


def _value_rows(compared: Compared) -> Iterable[list[str]]:
    """Yield every measure of every test query under every method."""
    yield ["method", "query", *compared.measures]
    for name in compared.names:
        table = compared.evaluations[name]
        for query_id, row in zip(table.query_ids, table.values.tolist(), strict=True):
            yield [name, query_id, *map(repr, row)]


def _query_rows(compared: Compared) -> Iterable[list[str]]:
    """Yield what is known of every test query."""
    test = compared.judged
    nearest = nearest_distances(compared)
    relevant = relevant_documents(compared).tolist()
    yield ["query", "fold", "class", "candidates", "relevant", "distance", "text"]
    texts = query_texts(compared)
    for query, query_id in enumerate(test.candidates.query_ids):
        yield [
            query_id,
            str(int(compared.fold_of[query]) + 1),
            test.classes[query] or "",
            str(int(test.candidates.sizes[query])),
            str(relevant[query]),
            "" if nearest is None else repr(float(nearest[1][query])),
            texts[query] or "",
        ]


def _csv(rows: Iterable[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _write(path: Path, text: str) -> None:
    with atomic_text(path) as out:
        out.write(without_controls(text))


_PACKAGES = ("querywise", "numpy", "scipy", "lightgbm")


def begun(command: str, data: str, note: str = "") -> Origin:
    """Return the origin of a report whose run begins now, for the running `command`, such as `compare`."""
    typed = shown_command(["querywise", *sys.argv[1:]]) if sys.argv[1:2] == [command] else ""
    methods = {name: each.description for name, each in METHODS.items()}
    return Origin(data, typed, _versions(), datetime.now(UTC), note=note, methods=methods)


def ended(origin: Origin | None) -> Origin | None:
    """Return the origin with the duration of its run, which has ended."""
    if origin is None or origin.date is None:
        return origin
    return replace(origin, seconds=(datetime.now(UTC) - origin.date).total_seconds())


def titles_of(data: Path) -> Titles | None:
    """Return a function that looks up titles of documents in a text collection; None for other data."""
    if not is_collection(data):
        return None

    def titles(ids: Collection[str]) -> Mapping[str, str]:
        documents = collection_from(data).documents()
        return {each.id: each.title for each in documents if each.id in ids and each.title}

    return titles


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**found, "Python": platform.python_version()}
