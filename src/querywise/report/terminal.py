"""Tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain

from rich.console import Group, RenderableType
from rich.table import Table

from querywise.contracts.protocols import Ranker
from querywise.evaluation.compare import Compared
from querywise.evaluation.differences import Evaluated
from querywise.evaluation.evaluate import Evaluation
from querywise.evaluation.findings import Findings
from querywise.evaluation.learning_curves import LearningCurves
from querywise.evaluation.rankings import Example
from querywise.evaluation.significance import TEST_NAMES
from querywise.evaluation.tuning import Tuned
from querywise.explanations.explain import Explanation, Reason
from querywise.measures.order import find_flavour
from querywise.report.sections import debiasing_tables, human_tables, twins_tables, twins_text, vectors_tables
from querywise.report.tables import Table as Written
from querywise.retrieval.search import SearchResult


def evaluations_table(found: Evaluated, test: str = "t") -> Group:
    """Return every run's means, its paired tests against the first, and how many of the judged documents it has."""
    if len(found.tables) == 1 and not found.coverage:
        return means_table(found.first)
    corrected = found.corrected(test)
    names = [each for name in found.tables for each in ([name, "p"] if name in corrected else [name])]
    table = _table("measure", *names)
    for measure in found.first.measures:
        cells = []
        for name, each in found.tables.items():
            cells.append(f"{each.mean()[measure]:.4f}")
            cells += [_p(corrected[name][measure])] if name in corrected else []
        table.add_row(measure, *cells)
    if found.coverage:
        table.add_section()
        known = [found.coverage[name] for name in found.tables]
        counts = {
            "relevant found": [f"{each.found} of {each.relevant}" for each in known],
            "queries answered": [f"{each.queries - each.without_candidates} of {each.queries}" for each in known],
        }
        for label, told in counts.items():
            rows = [[text, *([""] if name in corrected else [])] for name, text in zip(found.tables, told, strict=True)]
            table.add_row(label, *chain.from_iterable(rows))
    lines = [f"{len(found.first)} queries, flavour {found.first.flavour} ({found.conventions})"]
    if corrected:
        count = len(corrected)
        many = f", Holm's correction for {count} runs" if count > 1 else ""
        lines.append(f"p: {TEST_NAMES[test]} against {next(iter(found.tables))}{many}")
    absent = max((each.without_candidates for each in found.coverage.values()), default=0)
    if absent:
        lines.append("A judged query that is not in a run counts 0.")
    if found.unjudged:
        which = "1 query of the runs has" if found.unjudged == 1 else f"{found.unjudged} queries of the runs have"
        lines.append(f"{which} no judgment, and no part in this.")
    return Group(table, *lines)


def means_table(evaluation: Evaluation) -> Group:
    """Return the means of one evaluation."""
    table = _table("measure", "mean", rows=[(name, f"{value:.4f}") for name, value in evaluation.mean().items()])
    conventions = find_flavour(evaluation.flavour).conventions
    return Group(table, f"{len(evaluation)} queries, flavour {evaluation.flavour} ({conventions})")


def comparison_table(compared: Compared, test: str = "t", only: str | None = None) -> Group:
    """Return every ranker's means, and the paired test of each measure against the baseline."""
    base = compared.baseline
    headings = [each for measure in compared.measures for each in (measure, "p") if only in (None, measure)]
    caption = (
        f"{len(compared.judged)} test queries, flavour {compared.flavour}; "
        f"p: {TEST_NAMES[test]} against {base}, parameters chosen on validation data"
    )
    table = _table("method", *headings, "training", "ms/query", "MB")
    for name in compared.names:
        cells = []
        for measure, mean in compared.evaluations[name].mean().items():
            if only not in (None, measure):
                continue
            p = "" if name == base else _p(compared.against_baseline(name, measure, test=test).p)
            cells += [f"{mean:.4f}", p]
        seconds, milliseconds = compared.fit_seconds(name), compared.predict_milliseconds(name)
        cost = ("", "", "")
        if math.isfinite(seconds):
            cost = (f"{seconds:.1f} s", f"{milliseconds:.3f}", f"{compared.megabytes(name):.2g}")
        table.add_row(name, *cells, *cost)
    told = [*compared.counted(), *(str(each) for each in compared.losses)] if only is None else []
    return Group(table, caption, *told)


def twins_table(found: Findings) -> list[RenderableType]:
    """Return the leaks from training to test, and every method's gain from them; empty if nothing leaks."""
    text = twins_text(found)
    return [*([text] if text else []), *(_shown(table) for _, table in twins_tables(found))]


def vectors_table(found: Findings) -> list[RenderableType]:
    """Return text and tables on whether training the query vectors helps; empty if they are not trained."""
    if found.vectors is None:
        return []
    tables = vectors_tables(found.vectors).values()
    return [" ".join(found.vectors.said), *(each for table in tables for each in (_shown(table), table.caption))]


def debiasing_table(found: Findings) -> list[RenderableType]:
    """Return the conclusion about debiasing, and the table by human judgments; empty without clicks."""
    if found.debiasing is None:
        return []
    tables = debiasing_tables(found.debiasing).values()
    return [" ".join(found.debiasing.said), *(each for table in tables for each in (_shown(table), table.caption))]


def human_table(found: Findings) -> list[RenderableType]:
    """Return every method's results by human and by cheap labels; empty without human judgments."""
    if found.human is None:
        return []
    tables = human_tables(found.human, found.measure).values()
    said = found.human.said(found.measure)
    return [*(each for table in tables for each in (_shown(table), table.caption)), " ".join(said)]


def _shown(table: Written) -> Table:
    """Convert a table of the report."""
    shown = plain_table([each.heading for each in table.columns], table.written())
    for column, written in zip(shown.columns, table.columns, strict=True):
        column.justify = "left" if written.kind == "text" else "right"
    return shown


def curves_table(curves: LearningCurves, measure: str, test: str = "t") -> Group:
    """Return every ranker's values with more and more training queries, and the conclusions."""
    said = list(curves.said(measure, test))
    if len(curves.sizes) < 2:
        return Group(*said)
    tested = curves.against_baseline(measure, test)
    others = [name for name in curves.names if name != curves.baseline]
    headings = [each for name in others for each in (name, "p")]
    table = _table("training queries", curves.baseline, *headings)
    for size in curves.sizes:
        cells = [_mean(curves.mean(size, curves.baseline, measure))]
        for name in others:
            found = tested.get((size, name))
            cells += [_mean(curves.mean(size, name, measure)), "" if found is None else _p(found.p_holm)]
        table.add_row(f"{size:,}", *cells)
    return Group(table, f"{measure}; {curves.how(test)}".rstrip("; "), *said)


def classes_table(compared: Compared, measure: str) -> Group:
    """Return every ranker's mean of one measure by class of query, with its paired test against the baseline."""
    classes = compared.classes
    headings = [each for name, chosen in classes.items() for each in (f"{name} ({int(chosen.sum())})", "p")]
    table = _table("method", *headings)
    for name in compared.names:
        cells = []
        for chosen in classes.values():
            mean = float(compared.evaluations[name][measure][chosen].mean())
            p = "" if name == compared.baseline else _p(compared.against_baseline(name, measure, chosen).p)
            cells += [f"{mean:.4f}", p]
        table.add_row(name, *cells)
    return Group(table, f"{measure} by class of query, flavour {compared.flavour}; p: paired t-test as above")


def answers_table(answers: Sequence[SearchResult], by: str, grades: Mapping[str, int] | None = None) -> Group:
    """Return retrieved documents, best first; with judgments the grade of each, blank if it is not judged."""
    table = _table("", "score", "BM25 rank", *([] if grades is None else ["grade"]), "document")
    table.add_column("title and text", justify="left", overflow="fold")
    for rank, each in enumerate(answers, start=1):
        words = " · ".join(part for part in (each.title, each.snippet) if part)
        grade = [] if grades is None else [str(grades.get(each.document, ""))]
        place = "" if each.bm25_rank is None else str(each.bm25_rank)  # found by vectors alone
        table.add_row(str(rank), f"{each.score:.3f}", place, *grade, each.document, words)
    return Group(table, f"ranked by {by}")


def examples_table(example: Example) -> Group:
    """Return the top documents of one query under two rankers, each with its grade."""
    table = _table("", *(f"{name}: {value:.3f}" for name, value in zip(example.names, example.values, strict=True)))
    for column in table.columns:
        column.justify = "left"
    for rank, pair in enumerate(zip(*example.tops, strict=True), start=1):
        table.add_row(str(rank), *(f"{'★' * grade:2} {document}" for document, grade in pair))
    kind = "" if example.kind is None else f", {example.kind}"
    return Group(f"{example.title} in {example.measure}{kind}: {example.query}", table)


def trials_table(tuned: Tuned[Ranker]) -> Table:
    """Return the settings tried, with the chosen one marked."""
    names = [name for name in tuned.parameters if len({str(trial.parameters[name]) for trial in tuned.tried}) > 1]
    where = "on valid" if tuned.folds is None else "by cross-validation"
    rows = [
        (
            "→" if trial.parameters == tuned.parameters else "",
            *(str(trial.parameters[name]) for name in names),
            f"{trial.value:.4f}",
        )
        for trial in tuned.tried
    ]
    return _table("", *names, f"{tuned.measure} {where}", rows=rows)


def explanation_tables(explanation: Explanation, show: int) -> Group:
    """Return the neighbors or models that score a query, and how its weights differ from the global model's."""
    found = explanation
    remarks = [f"About query {found.query_id}: {found.remark}."] if found.remark else []
    if found.is_global:
        usual = "no local model has a weight" if found.models else "it is far from every training query"
        why = found.note or usual
        return Group(f"Query {found.query_id} is answered by the global model: {why}.", *remarks)
    parts = _shares_of_models(found, show) if found.models else []
    parts += _neighbours(found, show) if found.neighbours or not found.models else []
    if found.departures:
        rows = [
            (each.feature, f"{each.everyone:+.4f}", f"{each.here:+.4f}", f"{each.effect:+.4f}")
            for each in found.departures[:show]
        ]
        weights = _table("feature", "global weight", "this query's", "effect here", rows=rows)
        parts += ["Weights that differ most; effect: the difference times the feature's spread here:", weights]
    return Group(*remarks, *parts)


def reason_tables(found: Reason, show: int) -> Group:
    """Explain why one document is above another: the contribution of each feature to the score difference."""
    where = "above" if found.difference > 0 else "below" if found.difference < 0 else "level with"
    parts: list[RenderableType] = [
        f"Query {found.query_id}: {found.above} is {where} {found.below} by {abs(found.difference):.4f}. "
        f"The global model alone says {found.everyone:+.4f}; what is particular to this query adds {found.local:+.4f}."
    ]
    if found.models:
        models = [
            (each.name or str(each.model), f"{each.weight:.4f}", f"{each.here:+.4f}") for each in found.models[:show]
        ]
        parts += [_table("model", "weight", "adds", rows=models)]
    terms = _table("feature", found.above, found.below, "adds", "in the global model")
    for term in found.terms[:show]:
        terms.add_row(
            term.feature,
            *("missing" if math.isnan(value) else f"{value:.4f}" for value in (term.above, term.below)),
            *(f"{value:+.4f}" for value in (term.here, term.everyone)),
        )
    rest = found.terms[show:]
    if rest:
        sums = (sum(each.here for each in rest), sum(each.everyone for each in rest))
        terms.add_row(f"{len(rest)} more", "", "", *(f"{value:+.4f}" for value in sums))
    terms.add_section()
    terms.add_row("all", "", "", f"{found.difference:+.4f}", f"{found.everyone:+.4f}")
    parts.append(terms)
    if any(each.pull for each in found.neighbours):
        hardest = sorted(found.neighbours, key=lambda each: -abs(each.pull))[:show]
        rows = [(each.query_id, f"{each.distance:.3f}", f"{each.weight:.4f}", f"{each.pull:+.1%}") for each in hardest]
        pulls = _table("training query", "distance", "weight", "pull", rows=rows)
        parts += ["Training queries that pulled this query's model hardest away from the global one:", pulls]
    return Group(*parts)


def _neighbours(found: Explanation, show: int) -> list[RenderableType]:
    rows = [
        (each.query_id, f"{each.distance:.3f}", f"{each.weight:.4f}", str(each.pairs))
        for each in found.neighbours[:show]
    ]
    count = len(found.neighbours)
    return [
        f"Query {found.query_id}: its model was trained on {count} queries, the nearest {min(show, count)}:",
        _table("training query", "distance", "weight", "pairs", rows=rows),
    ]


def _shares_of_models(found: Explanation, show: int) -> list[RenderableType]:
    if found.models[0].name:
        rankers = _table("ranker", "weight", rows=[(each.name, f"{each.weight:.4f}") for each in found.models])
        return [f"Query {found.query_id} is answered by {len(found.models)} rankers, blended:", rankers]
    rows = [(str(each.model + 1), f"{each.weight:.4f}", str(each.queries)) for each in found.models[:show]]
    used = sum(each.weight > 0 for each in found.models)
    count = min(show, len(found.models))
    return [
        f"Query {found.query_id}: {used} of {len(found.models)} local models answer it, the heaviest {count}:",
        _table("local model", "weight", "training queries", rows=rows),
    ]


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of strings."""
    table = _table(*headings, rows=rows)
    for column in table.columns:
        column.justify = "left"
    return table


def _table(first: str, *others: str, rows: Sequence[Sequence[str]] = ()) -> Table:
    """Return a table whose first column is aligned left and the others right."""
    from rich.box import SIMPLE_HEAD

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _mean(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _p(value: float) -> str:
    return "<0.0001" if value < 1e-4 else f"{value:.4f}"
