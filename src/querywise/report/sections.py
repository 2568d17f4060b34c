"""Optional sections of a report: near-duplicates, query vectors, debiasing, people, oracle gap, features, curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from querywise.display.words import counted, p_in_words
from querywise.evaluation.differences import Differences
from querywise.evaluation.findings import Findings
from querywise.evaluation.human import TEST, ByHumans, Debiasing, MeanEstimate
from querywise.evaluation.learning_curves import LearningCurves
from querywise.evaluation.query_vectors import VectorGains
from querywise.evaluation.significance import TEST_NAMES, Corrected, corrected
from querywise.evaluation.trained import Use
from querywise.report.charts import ChartRow, Mark, line_chart, row_chart
from querywise.report.drawings import Figure, gain_by_cosine, oracles
from querywise.report.tables import Cell, Column, Table, columns_of

_NOTHING = 0.00005  # a difference that four digits do not show
_UPPER_BOUND = (
    "UpperBound is what the method would reach if it used, for each query, the one of its own models with the best "
    "average precision there."
)
_RELEVANT_ONLY = "RelevantOnly: if it used the model nearest to the query's true relevant documents."
_REACHABLE = (
    "Nothing reaches that, for it needs the judgments, and where few documents are judged the best model is often best "
    "by chance. Reachable is an estimate of what remains without them: each query's documents are split into two "
    "halves, and a model is picked on one half and measured on the other. Of the gap closed: how far the method has "
    "come from the baseline to reachable. Last column: if every query used its r-th best model, the r at which MAP is "
    "down to the baseline's."
)
_ROWS = 20  # of the table
_COLUMNS = 5  # beside the feature names
_DRAWN = 14  # features in the figure
_ROOM = 0.1  # of the width, from a number below the axis to the last


@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and their tables and drawings.

    Attributes:
        anchor: The fragment of a link to it.
        code: A command to type.
        every_query: Whether the page lists every query here.

    """

    title: str
    text: str = ""
    tables: tuple[tuple[str, Table], ...] = ()  # file name without its suffix, table
    figures: tuple[Figure, ...] = ()
    anchor: str = "summary"
    code: str = ""
    every_query: bool = False


def twins_text(found: Findings) -> str:
    """Describe the leaks and what to do about them; empty if there are none and no groups were given."""
    leaks = found.compared.twins
    return "" if leaks is None else " ".join(filter(None, (leaks.text, rest_text(found), leaks.advice)))


def rest_text(found: Findings) -> str:
    """Describe the gain of the shown method on queries without a near-duplicate; empty if nothing leaks."""
    gain = found.on_twins.get(found.shown or "")
    if gain is None or gain.rest is None:
        return ""
    rest = gain.rest
    queries = rest.wins + rest.ties + rest.losses
    return (
        f"On the other {queries:,} queries {found.shown} differs from {found.compared.baseline} by "
        f"{rest.difference:+.4f} in {found.measure} ({p_in_words(rest.p)})."
    )


def twins_tables(found: Findings) -> tuple[tuple[str, Table], ...]:
    """Return every method's gain over the baseline on leaked test queries and on the rest, with the file name."""
    leaks = found.compared.twins
    if leaks is None or not found.on_twins:
        return ()
    near, change = int(leaks.found.sum()), f"Δ {found.measure}"
    kinds = {"method": "text", f"{change}, near-duplicates ({near:,})": "signed", "p, near-duplicates": "p"}
    kinds |= {f"{change}, the rest ({len(leaks.found) - near:,})": "signed", "p, the rest": "p"}
    rows: list[tuple[Cell, ...]] = []
    for name, gain in found.on_twins.items():
        sides = (gain.twins, gain.rest)
        cells = [cell for each in sides for cell in ((None, None) if each is None else (each.difference, each.p))]
        rows.append((name, *cells))
    caption = (
        f"Difference in {found.measure} from {found.compared.baseline} on test queries with a near-duplicate among "
        "those "
        f"learned from, and on the rest, number of queries in brackets; p: {TEST_NAMES[found.test]}, uncorrected."
    )
    return (("near-twins", Table(columns_of(kinds), tuple(rows), caption)),)


_VECTORS = (
    "An adapted query vector was moved by the judged training queries of its fold; documents keep their vectors. Both "
    "lists hold what vectors alone find. In the figure each point is a test query."
)


_BOTH = {"plain": "value", "adapted": "value", "Δ": "signed"}


def vectors_tables(gains: VectorGains) -> dict[str, Table]:
    """Return tables that compare both lists by cosine to the nearest training query, fold, method and training size."""
    against = f"p: {TEST_NAMES[gains.test]} against plain vectors"
    plain, adapted = (each.mean() for each in gains.lists)
    lists = {each: (plain[each], adapted[each], test) for each, test in gains.lists.tested(gains.test).items()}
    methods = {name: (mean, mean + test.found.difference, test) for name, (mean, test) in gains.by_method.items()}
    sizes = corrected({size: own.tested(gains.test)[gains.measure].found for size, own in gains.by_size.items()})
    means = {size: tuple(float(each[gains.measure].mean()) for each in own) for size, own in gains.by_size.items()}
    every = {
        "query-vectors": _both("measure", lists, f"Ranked by vectors alone; {against}; Holm: for all measures."),
        "query-vectors-by-cosine": _by_cosine(gains, f"{against}, uncorrected."),
        "query-vectors-by-fold": _by_fold(gains),
        "query-vectors-by-method": _both(
            "method",
            methods,
            f"{gains.measure} of methods trained with plain and with adapted query vectors; {against}; Holm: for all "
            "methods.",
        ),
        "query-vectors-by-size": _both(
            "training queries",
            {f"{size:,}": (means[size][0], means[size][1], test) for size, test in sizes.items()},
            f"{gains.measure} by vectors alone, retrained on fewer training queries of each fold; {against}; Holm: "
            "for all sizes.",
        ),
    }
    return {name: table for name, table in every.items() if table.rows}


def _both(what: str, rows: Mapping[str, tuple[float, float, Corrected]], caption: str) -> Table:
    """Return the values with plain and with adapted vectors, and the test between them."""
    told = [(name, plain, adapted, test.found.difference, test.p_holm) for name, (plain, adapted, test) in rows.items()]
    return Table(columns_of({what: "text", **_BOTH, "p, Holm": "p"}), tuple(told), caption)


def _by_cosine(gains: VectorGains, tested: str) -> Table:
    rows = [
        (each.cosines, each.queries, each.plain, each.adapted, each.gain.difference, each.gain.p)
        for each in gains.groups
    ]
    kinds = {"cosine to the nearest training query": "text", "queries": "count", **_BOTH, "p": "p"}
    return Table(columns_of(kinds), tuple(rows), f"{gains.measure} in quarters of the test queries; {tested}")


def _by_fold(gains: VectorGains) -> Table:
    adapters = [each.adapter for each in gains.taught]
    rows = [
        (number, each.teachers_, each.how(), each.gain_, each.gain_error_)
        for number, each in enumerate(adapters, start=1)
    ]
    kinds = {
        "fold": "count",
        "training queries": "count",
        "query vectors are": "text",
        "gain": "signed",
        "error": "value",
    }
    caption = (
        "What was chosen, and the gain in NDCG@10 with its standard error, by cross-validation over the training "
        "queries of each fold."
    )
    return Table(columns_of(kinds), tuple(rows), caption)


def vectors_section(found: Findings, gains: VectorGains) -> Section:
    """Return the section on whether training the query vectors helps, by how much and for which queries."""
    text = " ".join([*gains.said, _VECTORS])
    return Section("Query vectors", text, tuple(vectors_tables(gains).items()), gain_by_cosine(found, gains), "vectors")


def debiasing_tables(found: Debiasing) -> dict[str, Table]:
    """Return all methods by human judgments, if any; clicks have the main table."""
    return {} if found.people is None else {"by-people": judged_by(found, found.people)}


def judged_by(found: Debiasing, every: Differences) -> Table:
    """Return every method against the baseline, by one kind of judgments."""
    kinds = {"method": "text", found.measure: "value", f"Δ {found.measure}": "signed"}
    kinds |= {"from": "signed", "to": "signed", "p": "p", "p, Holm": "p"}
    tested = {each.name: each for each in every.with_intervals(found.measure, found.test)}
    rows: list[tuple[Cell, ...]] = []
    for name, each in every.evaluations.items():
        test = tested.get(name)
        told = (None,) * 5 if test is None else (test.difference, *test.interval, test.p, test.p_holm)
        rows.append((name, float(each[found.measure].mean()), *told))
    caption = (
        f"{len(every.base)} queries, judged by people; p: {TEST_NAMES[found.test]} against {every.baseline}; from, to: "
        "bootstrap interval of the difference, 95 %."
    )
    return Table(columns_of(kinds), tuple(rows), caption)


def debiasing_section(found: Debiasing) -> Section:
    """Return the section on whether debiasing matters, by later clicks and by people."""
    return Section("Debiasing", " ".join(found.said), tuple(debiasing_tables(found).items()), anchor="debiasing")


def human_tables(human: ByHumans, measure: str) -> dict[str, Table]:
    """Return every method's mean and difference from the baseline: by cheap labels, by people, and by both."""
    names, base = list(human.human), human.baseline
    means = {name: human.mean(name, measure) for name in names}
    differences = {name: human.difference(name, base, measure) for name in names if name != base}
    ps = corrected({name: human.test(name, base, measure) for name in differences})
    labels = {"cheap": "value", "human": "value", "both": "value", "from": "value", "to": "value", "λ": "value"}
    signed = dict.fromkeys(("cheap", "human", "both", "from", "to"), "signed") | {
        "λ": "value",
        "p": "p",
        "p, Holm": "p",
    }
    how = (
        f"{measure}; {human.queries}. cheap: by the labels of all queries; human: by people alone; both: the "
        "prediction-powered estimate, with its 95 % interval (from, to); λ: how much the cheap labels count, 0 to 1."
    )
    rows = tuple((name, *_estimated(each)) for name, each in means.items())
    found = {"human-means": Table(columns_of({"method": "text", **labels}), rows, how)}
    if differences:
        tested = tuple((name, *_estimated(each), each.p, ps[name].p_holm) for name, each in differences.items())
        caption = f"Differences from {base}, by the same; p: {TEST}; Holm: for {counted(len(tested), 'method')}."
        found["human-differences"] = Table(columns_of({"method": "text", **signed}), tested, caption)
    return found


def _estimated(each: MeanEstimate) -> tuple[Cell, ...]:
    return each.cheap, each.human, each.value, *each.interval, each.weight


_BY_CHEAP = "What follows on single queries and groups of queries is by the cheap labels alone."


def human_section(found: Findings, human: ByHumans) -> Section:
    """Return the section on every method by a few human judgments and many cheap ones."""
    text = " ".join([*human.said(found.measure), _BY_CHEAP])
    return Section("Human judgments", text, tuple(human_tables(human, found.measure).items()), anchor="human")


def gap_lines(found: Findings) -> list[str]:
    """Return what picking the best of its own models could reach, and each method's share of that gain."""
    base = found.compared.baseline
    lines = []
    for each in found.oracles:
        picking = f"Picking the best of {each.name}'s {each.models} models for each query"
        if each.reachable is None:
            could = f"{picking} by its judgments would reach MAP {each.upper_bound:.4f}."
        else:
            could = f"{picking}, without seeing its judgments, could reach MAP {each.reachable:.4f}."
        reached = f"{each.name} ({each.reached:.4f})"
        if each.reachable is not None and each.reached >= max(each.reachable - _NOTHING, each.baseline):
            lines.append(f"{picking}, without seeing its judgments, would not raise MAP above that of {reached}.")
        elif each.closed is not None:
            lines.append(f"{could} {reached} has {each.closed:.0%} of that gain over {base} ({each.baseline:.4f}).")
        elif each.reached < each.baseline:
            lines.append(f"{could} {reached} is below {base} ({each.baseline:.4f}).")
    return lines


def oracle_section(found: Findings) -> Section:
    """Return conclusions, then the table's columns explained, with a row per method that stores models."""
    base, only = found.compared.baseline, any(each.relevant_only is not None for each in found.oracles)
    text = " ".join([*gap_lines(found), _UPPER_BOUND, *([_RELEVANT_ONLY] if only else []), _REACHABLE])
    kinds = {"method": "text", "models": "count", "MAP reached": "value", f"MAP of {base}": "value"}
    kinds |= {"UpperBound": "value", "reachable": "value", "of the gap closed": "share"}
    kinds |= {"RelevantOnly": "value"} if only else {}
    kinds |= {f"rank at which {base} is reached": "count"}
    rows = tuple(
        (
            *(each.name, each.models, each.reached, each.baseline, each.upper_bound, each.reachable, each.closed),
            *((each.relevant_only,) if only else ()),
            each.baseline_rank,
        )
        for each in found.oracles
    )
    return Section("The oracle gap", text, (("oracle", Table(columns_of(kinds), rows)),), oracles(found), "oracle")


def is_local(features: tuple[Use, ...]) -> bool:
    """Whether a method has separate models for some queries."""
    return any(each.moved > 0 for each in features)


def looked_at(found: Findings) -> str | None:
    """Return the method to show beside the baseline: the best one, preferably with models by query."""
    known = [each for each in found.others if each.name in found.uses]
    best = max(
        known,
        key=lambda each: (is_local(found.uses[each.name]), each.name == found.shown, each.means[found.measure]),
        default=None,
    )
    return None if best is None else best.name


def features_section(found: Findings) -> Section:
    """Return the section that explains the numbers, the methods without any, and the main features."""
    text = (
        "The share of a feature is its part of what tells the candidates of a query apart: the spread of what it adds "
        "to their scores, divided by the sum of these spreads over all features; the mean over test queries. “Moved” "
        "is by how much the share under a query's own model differs from that under the same method's global model, up "
        "or down. All features under all methods are in report.json."
    )
    others = "".join(f" Not explained: {name}. {reason}" for name, reason in found.unexplained.items())
    tables = (("features", _features_table(found)),)
    return Section("What the models use", text + others, tables, _features_figure(found), "features")


def _features_table(found: Findings) -> Table:
    """Return the main features: their shares as in the figure, how much these move, and shares under the best other."""
    name, sides = looked_at(found), _sides(found)
    columns = {each.told: each.shares for each in sides}
    if name is not None and is_local(found.uses[name]):
        columns[f"moved, {name}"] = {each.feature: each.moved for each in found.uses[name]}
    means = {each.name: each.means[found.measure] for each in found.methods}
    rest = sorted(set(found.uses) - {name, found.compared.baseline}, key=lambda each: -means[each])
    for other in rest[: _COLUMNS - len(columns)]:
        columns[other] = {each.feature: each.here for each in found.uses[other]}
    features = _largest_first(sides, *columns.values())
    rows = tuple((each, *(known.get(each) or None for known in columns.values())) for each in features[:_ROWS])
    left = len(features) - len(rows)
    caption = f"{left:,} further features count less." if left > 0 else ""
    return Table((Column("feature"), *(Column(each, "share") for each in columns)), rows, caption)


def _features_figure(found: Findings) -> tuple[Figure, ...]:
    """Draw the main features under the baseline, and under another method's global model and models by query."""
    sides = _sides(found)
    rows = []
    for feature in _largest_first(sides)[:_DRAWN]:
        marks = [
            Mark(100 * each.shares[feature], 0, f"{feature}, {each.told}: {each.shares[feature]:.1%}", *each.look)
            for each in sides
            if feature in each.shares
        ]
        ends = [mark.across for mark in marks]
        rows.append(ChartRow(feature, marks, (min(ends), max(ends)), "c7"))
    if not rows:
        return ()
    said = "Share of the main features in the rankings"
    named = {each.told: each.look for each in sides}
    return (Figure("features.svg", said, row_chart(rows, label="share, %", named=named, said=said)),)


class _Side(NamedTuple):
    """Some models, their color and mark, and the share of each feature under them."""

    told: str
    look: tuple[str, str]
    shares: dict[str, float]


def _sides(found: Findings) -> list[_Side]:
    """Return the baseline, and beside it the shown method: its global model, if it has others, and those that score."""
    name, base = looked_at(found), found.compared.baseline
    sides = []
    if base in found.uses:
        sides.append(_Side(base, ("c0", "X"), {each.feature: each.here for each in found.uses[base]}))
    if name is not None:
        told, features = name, found.uses[name]
        if is_local(features):
            everyone = {each.feature: each.everyone for each in features}
            sides.append(_Side(f"{name}, global model", ("c5", "s"), everyone))
            told = f"{name}, by query"
        sides.append(_Side(told, ("c1", "o"), {each.feature: each.here for each in features}))
    return sides


def _largest_first(sides: Sequence[_Side], *others: dict[str, float]) -> list[str]:
    """Return every feature with a share: by its largest share under these models, then under others, then by name."""

    def size(feature: str) -> tuple[float, float, str]:
        here = max((each.shares.get(feature, 0.0) for each in sides), default=0.0)
        return -here, -max((each.get(feature, 0.0) for each in others), default=0.0), feature

    every = [*(each.shares for each in sides), *others]
    return sorted({feature for known in every for feature, share in known.items() if share > 0}, key=size)


def curves_section(found: Findings, curves: LearningCurves) -> Section:
    """Return the section on learning curves, with a table and a figure if there are any."""
    title, anchor = "Learning curves", "curves"
    said = " ".join(curves.said(found.measure, found.test))
    if len(curves.sizes) < 2:
        return Section(title, said, anchor=anchor)
    fewer = [f"{size:,}" for size in curves.sizes[:-1]]
    numbers = " and ".join(filter(None, (", ".join(fewer[:-1]), fewer[-1])))
    text = (
        f"{said} Every method was trained again on {numbers} of the training queries of each fold, drawn at random, "
        "the smaller parts within the larger ones, with as small a share of the validation queries, 10 or more; its "
        "parameters were chosen again on these. With all training queries it is the comparison above. All are measured "
        "on the whole test part. There is one draw of each size: a p counts the luck of the test queries, not that of "
        "the draw."
    )
    return Section(
        title, text, (("learning-curves", _curves_table(found, curves)),), _curves_figure(found, curves), anchor
    )


def _curves_table(found: Findings, curves: LearningCurves) -> Table:
    """Return a row per size: every method's value, and its paired test against the baseline at that size."""
    tested = curves.against_baseline(found.measure, found.test)
    columns = [Column("training queries", "count")]
    for name in curves.names:
        columns += [Column(name, "value"), *([] if name == curves.baseline else [Column(f"p ({name})", "p")])]
    rows: list[tuple[Cell, ...]] = []
    for size in curves.sizes:
        cells: list[Cell] = [size]
        for name in curves.names:
            test = tested.get((size, name))
            cells.append(curves.mean(size, name, found.measure))
            cells += [] if name == curves.baseline else [None if test is None else test.p_holm]
        rows.append(tuple(cells))
    how = curves.how(found.test)
    told = f"{found.measure} on {curves.queries:,} test queries, flavour {curves.flavour}; {how}".rstrip("; ")
    same = f" The same at every size, as they are not trained here: {', '.join(curves.given)}." if curves.given else ""
    uneven = f" The last row is with {curves.all_queries()}." if len(set(curves.counts)) > 1 else ""
    return Table(tuple(columns), tuple(rows), f"{told}.{uneven}{same}")


def _curves_figure(found: Findings, curves: LearningCurves) -> tuple[Figure, ...]:
    """Draw the main measure against the number of training queries, on a log scale."""
    first, last = curves.sizes[0], curves.sizes[-1]
    room = _ROOM * math.log(last / first)
    said = f"{found.measure} with more and more training queries"
    chart = line_chart(
        curves.lines(found.measure),
        names=found.compared.names,
        labels=("training queries", found.measure),
        at=[size for size in curves.sizes if size == last or math.log(last / size) > room],
        log=True,
        said=said,
    )
    return (Figure("learning-curves.svg", said, chart),)
