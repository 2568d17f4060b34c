"""The jobs around judgments: what to judge next, the page on which people judge, and whether labels agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from querywise.data.collections import read_collection, read_topics
from querywise.data.compressed import first_words, lines_of
from querywise.data.judgements import Grades, grades_of, read_grades, read_judgements
from querywise.data.query_table import QueryTable
from querywise.data.runs import name_of, read_runs
from querywise.errors import DataError
from querywise.evaluation.agreement import Agreement, agree
from querywise.evaluation.next_judgments import UNIFORM, Estimated, Pair, draw, estimate
from querywise.measures.formulas import find_measure
from querywise.runtime.files import atomic_text, read_text
from querywise.runtime.values import finite_number

if TYPE_CHECKING:
    from querywise.service.desk import Desk

_HEADING = ("query", "document", "share", "priority")


def choose_next(
    runs: Sequence[Path],
    out: Path,
    judged: Path | None,
    *,
    measure: str = "dcg@10",
    cheap: Path | None = None,
    uniform: float = UNIFORM,
    seed: int = 0,
) -> tuple[Estimated, list[Pair]]:
    """Estimate from the draw in a file, which is created if missing; return also the next documents."""
    systems = read_runs(runs)
    known: Grades = grades_of(read_judgements(judged)) if judged is not None and judged.exists() else {}
    if not out.exists():
        labels = None if cheap is None else read_grades(cheap)
        write_draw(out, draw(systems, known, measure=measure, cheap=labels, uniform=uniform, seed=seed))
    pairs = read_draw(out)
    found = estimate(systems, pairs, known, measure=measure)
    return found, [each for each in pairs if each.document not in known.get(each.query, {})]


def write_draw(path: Path, pairs: Sequence[Pair]) -> None:
    """Write a draw: tab-separated, in judging order."""
    with atomic_text(path) as out:
        out.write("\t".join(_HEADING) + "\n")
        for each in pairs:
            if any(letter in name for name in each[:2] for letter in "\t\n\r"):
                raise DataError(f"{each.query!r}, {each.document!r}: an id with a tab or an end of line in it.")
            out.write(f"{each.query}\t{each.document}\t{each.share!r}\t{each.priority!r}\n")


def is_draw(path: Path) -> bool:
    """Whether a file begins like a draw."""
    return tuple(first_words(path)) == _HEADING


def read_draw(path: Path) -> list[Pair]:
    """Read a draw."""
    found: list[Pair] = []
    seen: set[tuple[str, str]] = set()
    for number, line in lines_of(read_text(path)):
        words = tuple(line.split("\t"))
        if number == 1 and words == _HEADING:
            continue
        numbers = [finite_number(word) for word in words[2:]] if len(words) == len(_HEADING) else []
        share, priority = numbers if len(numbers) == 2 else (None, None)
        if (
            share is None
            or priority is None
            or not (0 <= share <= 1 and priority >= (found[-1].priority if found else 0))
        ):
            raise DataError(
                f"{path}:{number}: expected a query, a document, its share and its priority, with tabs between "
                f"them, the lowest priority first; found {line[:80]!r}."
            )
        if words[:2] in seen:
            raise DataError(f"{path}:{number}: document {words[1]!r} of query {words[0]!r} appears a second time.")
        seen.add((words[0], words[1]))
        found.append(Pair(words[0], words[1], share, priority))
    if not found:
        raise DataError(f"{path}: this file has no draw. Remove it, and run the command again to draw.")
    return found


def open_desk(
    pairs: Path,
    collection: Path,
    judge: Path,
    token: str | None,
    queries: Path | None = None,
    runs: Sequence[Path] = (),
) -> Desk:
    """Read everything that the page shows.

    Args:
        pairs: A draw of `querywise next`, without the pairs judged before it; or qrels, whose grades are
            ignored.
        collection: The text collection that has the documents, and the queries.
        judge: The qrels file beside which grades are stored.
        token: The token that requests must carry.
        queries: Texts of queries, if the collection has none.
        runs: The runs that the draw was made from; the page then compares them by DCG@10.

    Returns:
        The service behind the page.

    Raises:
        DataError: If there is no token or nothing to judge, if a text is missing, or if a file cannot be read or
            written.

    """
    from querywise.service.desk import Desk, ShownDocument
    from querywise.service.judging import JudgesFile, require_token

    require_token(judge, token)
    assert token is not None
    wanted, drawn = _pairs(pairs)
    standing = _standing(pairs, judge, runs, drawn=drawn) if runs else None
    file, found = JudgesFile(judge), read_collection(collection, queries=queries)
    table = found.queries
    texts = {} if table is None else dict(zip(table.ids, table.texts or (), strict=False))
    named = {document for _, document in wanted}
    documents = {each.id: ShownDocument(each.title, each.text) for each in found.documents() if each.id in named}
    for query, document in wanted:
        if not (texts.get(query) or "").strip():
            raise DataError(
                f"Query {query!r} of {pairs} has no text in {queries or collection}. Add it, or name another file of "
                "queries: judges need it."
            )
        if document not in documents:
            raise DataError(f"Document {document!r} of query {query!r} in {pairs} is not in {collection}.")
    known = {query: text for query, _ in wanted if (text := texts[query]) is not None}
    return Desk(file, wanted, known, documents, agreeing, drawn=drawn, token=token, standing=standing)


def _standing(pairs: Path, judge: Path, runs: Sequence[Path], *, drawn: bool) -> Callable[[], list[str]]:
    """Return a function that compares the systems by the judgments so far; it is called once as a check."""
    if not drawn:
        raise DataError(f"runs={runs[0].name!r}: {pairs} is not a draw, so systems cannot be compared by it.")
    systems, every = read_runs(runs), read_draw(pairs)

    def said() -> list[str]:
        known = grades_of(read_judgements(judge)) if judge.exists() else {}
        return estimate(systems, every, known).said()

    said()
    return said


def _pairs(path: Path) -> tuple[list[tuple[str, str]], bool]:
    """Return the pairs in the order of the file, and whether they are a draw."""
    if is_draw(path):
        drawn = [(each.query, each.document) for each in read_draw(path) if each.priority > 0]
        if not drawn:
            raise DataError(f"{path}: all of this draw was judged before it was made; nothing is left to judge.")
        return drawn, True
    try:
        found = read_grades(path)
    except DataError as error:
        raise DataError(f"{error} Expected qrels, or a draw of documents to judge next.") from None
    return [(query, document) for query, own in found.items() for document in own], False


def agreeing(first: Grades, second: Grades) -> tuple[float, tuple[float, float, float] | None]:
    """Return the share of equal grades, and weighted kappa with its interval, or None if it cannot be estimated."""
    found = agree(first, second).measures
    kappa = found["weighted kappa"]
    return found["same grade"].value, None if np.isnan(kappa.value) else (kappa.value, kappa.low, kappa.high)


def measure_agreement(
    cheap: Path,
    human: Path,
    *,
    runs: Sequence[Path] = (),
    collection: Path | None = None,
    queries: Path | None = None,
    measure: str = "ndcg@10",
    relevant_from: int = 1,
) -> Agreement:
    """Compare cheap labels with human ones."""
    name = find_measure(measure).name
    labels = read_grades(cheap), read_grades(human)
    named = [name_of(path) for path in runs]
    if len(set(named)) < len(named):
        raise DataError(f"Two runs are called {next(each for each in named if named.count(each) > 1)!r}; rename one.")
    table, lengths = None if queries is None else read_topics(queries), None
    if collection is not None:
        found = read_collection(collection, queries=queries)
        table = found.queries if table is None else table
        wanted = {document for own in labels[1].values() for document in own}
        lengths = {each.id: len(f"{each.title} {each.text}".split()) for each in found.documents() if each.id in wanted}
    classes, words = _known(table)
    return agree(
        *labels,
        runs=read_runs(runs),
        classes=classes,
        words=words,
        lengths=lengths,
        measure=name,
        relevant_from=relevant_from,
    )


def _known(table: QueryTable | None) -> tuple[dict[str, str] | None, dict[str, int] | None]:
    """Return the class of every query that has one, and the number of words of its text."""
    if table is None:
        return None, None
    classes = {query: each for query, each in zip(table.ids, table.classes or (), strict=False) if each}
    texts = {query: each for query, each in zip(table.ids, table.texts or (), strict=False) if each}
    return classes or None, {query: len(text.split()) for query, text in texts.items()} or None
