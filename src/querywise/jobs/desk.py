"""Open the judging page: the pairs to judge, their texts, and how judges' agreement is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from querywise.data.collections import read_collection
from querywise.data.judge_log import Pair
from querywise.data.judgements import Grades, grades_of, read_grades, read_judgements
from querywise.data.runs import read_runs
from querywise.errors import DataError
from querywise.evaluation.agreement import agree
from querywise.evaluation.next_judgments import estimate
from querywise.jobs.next import is_draw, read_draw
from querywise.service.desk import Desk, ShownDocument
from querywise.service.judging import JudgesFile, require_token


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


def _pairs(path: Path) -> tuple[list[Pair], bool]:
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
