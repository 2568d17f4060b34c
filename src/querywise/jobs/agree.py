"""The job of `querywise agree`: two files of labels, and facts about their queries and documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from querywise.data.collections import read_collection, read_topics
from querywise.data.judgements import read_grades
from querywise.data.query_table import QueryTable
from querywise.data.runs import name_of, read_runs
from querywise.errors import DataError
from querywise.evaluation.agreement import Agreement, agree
from querywise.measures.formulas import find_measure


def run(
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
