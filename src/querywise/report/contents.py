"""The contents of a report, in order: headings, sentences, tables and figures, in no particular format."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from querywise.display.words import counted
from querywise.evaluation.findings import Findings
from querywise.evaluation.rankings import Breakdown, Example
from querywise.evaluation.significance import TEST_NAMES
from querywise.report import drawings
from querywise.report.sections import (
    Section,
    curves_section,
    debiasing_section,
    features_section,
    human_section,
    oracle_section,
    twins_tables,
    twins_text,
    vectors_section,
)
from querywise.report.tables import Cell, Column, Table, Tested, columns_of, values_and_p

# The user part of an address, and values of parameters named like a secret.
_SECRETS = re.compile(
    r"(?<=://)[^/@\s]+(?=@)|(?<=[?&;])((?:[\w-]*(?:key|token|secret|password|passwd|auth)[\w-]*)=)[^&#\s]+",
    re.IGNORECASE,
)
# Document ids → the titles of those that have one.
Titles = Callable[[Collection[str]], Mapping[str, str]]


@dataclass(frozen=True)
class Origin:
    """The origin of a report. Empty or None values are unknown, and not shown.

    Attributes:
        seconds: How long the run took, which may have reused finished parts of an earlier one.
        methods: A short description of each method, by name.

    """

    data: str = ""
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    date: datetime | None = None
    seconds: float | None = None
    note: str = ""
    methods: Mapping[str, str] = field(default_factory=dict)


def shown_command(arguments: Sequence[str]) -> str:
    """Format a command so that it can be typed again, without passwords and keys in addresses.

    >>> shown_command(["querywise", "compare", "my data", "--embed", "https://me:secret@host/v1?api_key=abc#m"])
    "querywise compare 'my data' --embed 'https://…@host/v1?api_key=…#m'"
    """
    return shlex.join(_SECRETS.sub(lambda found: f"{found[1] or ''}…", each) for each in arguments)


def duration(seconds: float) -> str:
    """Format a duration in words.

    >>> duration(7.2), duration(125), duration(7260)
    ('7.2 s', '2 min 5 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def contents(found: Findings, title: str, story: str, origin: Origin | None = None) -> list[Section]:
    """Return the sections of a report, in the order of a reader's questions."""
    summary = " ".join(filter(None, (found.verdict, found.advice, story, *map(str, found.compared.losses))))
    every = [
        Section(title, summary, (), drawings.differences(found)),
        Section("All methods", "", _methods(found, origin or Origin()), drawings.ndcg_curves(found), "methods"),
        Section("Near-duplicates", twins_text(found), twins_tables(found), anchor="twins"),
        *([vectors_section(found, found.vectors)] if found.vectors is not None else []),
        *([debiasing_section(found.debiasing)] if found.debiasing is not None else []),
        *([human_section(found, found.human)] if found.human is not None else []),
        _cost(found),
        _queries(found),
        _where(found),
        *([oracle_section(found)] if found.oracles else []),
        *([features_section(found)] if found.uses else []),
        *([curves_section(found, found.curves)] if found.curves is not None else []),
        Section(
            "What was tried",
            _how_chosen(found),
            (("chosen", chosen_table(found)),),
            drawings.quality_against_k(found),
            "tried",
        ),
        Section(
            "The statistics in full",
            _how_tested(found),
            (("tests", tests_table(found)), *((("pairs", pairs_table(found)),) if len(found.methods) > 2 else ())),
            anchor="statistics",
        ),
        _repeat(origin or Origin()),
    ]
    return [each for each in every if each.text or each.tables or each.figures]


def _how_tested(found: Findings) -> str:
    effect = "effect is the mean difference in standard deviations"
    if found.human is not None:
        return f"Differences and intervals (from, to) are prediction-powered estimates; {effect}, by people alone."
    return (
        "The same difference by three tests, and the chosen one after Holm's correction; the interval (from, to) "
        f"holds 95 % of 10,000 bootstrap means; {effect}."
    )


def _judged_by(found: Findings) -> str:
    return "queries" if found.human is None else f"queries, {len(found.human):,} of them judged by people"


def _methods(found: Findings, origin: Origin) -> tuple[tuple[str, Table], ...]:
    """Return the main table, and descriptions of the methods, if known."""
    rows = tuple((name, origin.methods[name]) for name in found.compared.names if name in origin.methods)
    described = Table((Column("method"), Column("what it is")), rows)
    return (("table", main_table(found)), *((("methods", described),) if rows else ()))


def main_table(found: Findings) -> Table:
    """Return every method's means, and the paired test of each measure against the baseline."""
    compared = found.compared
    columns = [Column("method")]
    for measure in compared.measures:
        columns += [Column(measure, "value"), Column(f"p ({measure})", "p")]
    columns += [Column(f"Δ {found.measure}", "signed"), Column("p, Holm", "p"), Column("wins / ties / losses")]
    rows = []
    for each in found.methods:
        base = each.name == compared.baseline
        cells: list[str | float | None] = [each.name]
        for measure in compared.measures:
            cells += [each.means[measure], None if base else each.p_by_measure[measure]]
        counts = None if base else f"{each.wins} / {each.ties} / {each.losses}"
        rows.append((*cells, *((None, None) if base else (each.difference, each.corrected)), counts))
    names = [each.name for each in found.methods]
    return Table(
        tuple(columns),
        tuple(rows),
        f"{len(compared.judged)} test {_judged_by(found)}, flavour {compared.flavour}; p: {found.tested} against "
        f"{compared.baseline}; Holm: corrected for {counted(found.compared_with, 'method')}; parameters "
        + " ".join(["chosen on validation data.", *compared.counted()]),
        names.index(found.winner) if found.winner is not None else None,
    )


def tests_table(found: Findings) -> Table:
    """Return the main measure's difference under every test."""
    kinds = {"method": "text", f"Δ {found.measure}": "signed", "from": "signed", "to": "signed"}
    known = tuple(found.baseline.p)  # by people: one test only
    kinds |= {f"p, {TEST_NAMES[name] if found.human is None else found.tested}": "p" for name in known}
    kinds |= {f"p, {found.tested}, Holm": "p", "effect": "signed"}
    rows: list[tuple[Cell, ...]] = [
        (
            each.name,
            each.difference,
            *each.interval,
            *(each.p[name] for name in known),
            each.corrected,
            each.effect,
        )
        for each in found.others
    ]
    return Table(columns_of(kinds), tuple(rows), f"{found.measure}, against {found.compared.baseline}.")


def pairs_table(found: Findings) -> Table:
    """Return every method against every other one, the highest mean first."""
    names = [each.name for each in sorted(found.methods, key=lambda each: -each.means[found.measure])]
    cells: dict[tuple[str, str], Tested] = {}
    for each in found.pairs:
        cells[each.first, each.second] = Tested(each.difference, each.p_holm, each.is_significant)
        cells[each.second, each.first] = Tested(0.0 - each.difference, each.p_holm, each.is_significant)
    rows = tuple((name, *(cells.get((name, other)) for other in names)) for name in names)
    caption = (
        f"Any two methods: {found.measure} of the row less that of the column, and p of the {found.tested} "
        f"after Holm's correction for all {len(found.pairs)} pairs. Colored: p < 0.05. The summary tests fewer pairs, "
        "each method against the baseline or against the best one, so its p are smaller."
    )
    return Table((Column("method"), *(Column(f"− {name}", "tested") for name in names)), rows, caption)


def breakdown_table(found: Findings, breakdown: Breakdown) -> Table:
    """Return one measure of every method by group of queries."""
    base = found.compared.baseline
    headings = {f"{group.label} ({group.queries})": f"p ({group.label})" for group in breakdown.groups}
    rows = {
        name: [(group.means[name], None if name == base else group.p[name]) for group in breakdown.groups]
        for name in found.compared.names
    }
    caption = f"{found.measure} by {breakdown.title}, number of queries in brackets; p: paired t-test against {base}."
    return values_and_p("method", headings, rows, caption)


def examples_table(examples: tuple[Example, ...]) -> Table:
    """Return queries with their top documents under both rankers; a star for each grade."""
    first = examples[0]
    columns = (
        Column("query"),
        Column(first.names[0], "value"),
        Column(first.names[1], "value"),
        Column(f"top under {first.names[0]}"),
        Column(f"top under {first.names[1]}"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            each.query if each.kind is None else f"{each.query} ({each.kind})",
            *each.values,
            *(_documents(top) for top in each.tops),
        )
        for each in examples
    ]
    return Table(columns, tuple(rows), f"{first.measure}; one star per grade of relevance.")


def timings_table(found: Findings) -> Table:
    """Return the costs of every method."""
    rows = tuple((each.name, each.fit_seconds, each.predict_milliseconds, each.megabytes) for each in found.methods)
    kinds = {"method": "text", "training, s": "time", "ranking, ms per query": "time", "model, MB": "time"}
    return Table(columns_of(kinds), rows)


def chosen_table(found: Findings) -> Table:
    """Return the setting chosen in every fold."""
    rows = []
    for name, folds in found.compared.trained.items():
        for number, each in enumerate(folds, start=1):
            setting = ", ".join(f"{key} {value}" for key, value in each.parameters.items())
            tried = len(each.tried)
            text = ", ".join(str(part) for part in (each.method, setting) if part)
            rows.append((name, number, tried, text, each.valid_value))
    kinds = {"method": "text", "fold": "count", "tried": "count", "chosen": "text", "on validation": "value"}
    return Table(columns_of(kinds), tuple(rows))


def _how_chosen(found: Findings) -> str:
    """Explain how parameters were chosen, and which of them are at the edge of their grid."""
    how = "Every setting was fitted on the training part and measured on the validation part of each fold."
    if not found.compared.edges:
        return how
    edges = "; ".join(f"{each.text}, try {each.beyond:g}" for each in found.compared.edges)
    return f"{how} Better values may lie beyond the edge of the grid: {edges}."


def _queries(found: Findings) -> Section:
    """Return the section on queries: all of them on the page, elsewhere those that moved most."""
    tables = [("best-queries", found.best), ("worst-queries", found.worst)]
    base, top, text = found.compared.baseline, found.top, ""
    if top is not None:
        wins = counted(top.wins, "query")
        text = f"Against {base}, {top.name} wins {wins}, ties {top.ties} and loses {top.losses}."
    if found.best or found.worst:
        text += (
            f" The queries that moved most: first those that {found.shown} gains most on {base}, "
            "then those it loses most."
        )
    return Section(
        "Which queries",
        text or f"{base} was compared with nothing.",
        tuple((name, examples_table(examples)) for name, examples in tables if examples),
        drawings.gain_per_query(found),
        "queries",
        every_query=True,
    )


def _where(found: Findings) -> Section:
    return Section(
        "Where the gain comes from",
        "The same measure for groups of queries: by relevant documents, class, distance from the training queries, "
        "length and number of candidates, as far as these are known and differ. A p of a group is not corrected for "
        "the number of groups.",
        tuple(
            ("-".join(["by", *each.title.split(" (")[0].split()]), breakdown_table(found, each))
            for each in found.breakdowns
        ),
        (
            *drawings.quality_by_difficulty(found),
            *drawings.relevant_per_query(found),
            *drawings.queries_in_the_plane(found),
            *drawings.transforms_by_gain(found),
        ),
        "gain",
    )


def _cost(found: Findings) -> Section:
    return Section(
        "Cost",
        "Training: all folds together, with the choice of parameters; work that several methods share is counted for "
        "the first of them. Ranking: scoring candidates, many queries at once; finding candidates, embedding queries "
        "and computing features are not included. Timings vary from run to run.",
        (("timings", timings_table(found)),),
        drawings.quality_against_time(found),
        "cost",
    )


def _repeat(origin: Origin) -> Section:
    text = (
        "Everything here can be recomputed from the files beside this page: scores in runs/, values of every query "
        "in values.csv, what is known of each query in queries.csv. The same command on the same data gives the same "
        "numbers, timings aside; with the same folder it uses what is finished there."
    )
    return Section("How to repeat it", text, anchor="repeat", code=origin.command)


def _documents(top: tuple[tuple[str, int], ...]) -> str:
    return "; ".join(f"{document}{chr(160) + '★' * grade if grade else ''}" for document, grade in top)


def files_of(sections: list[Section]) -> Mapping[str, Table]:
    """Return every table by its file name."""
    return {name: table for section in sections for name, table in section.tables}
