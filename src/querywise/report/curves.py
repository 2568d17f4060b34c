"""The section on learning curves: what every method reaches with more and more training queries."""

from __future__ import annotations

import math

from querywise.evaluation.curves import LearningCurves
from querywise.evaluation.findings import Findings
from querywise.report.charts import line_chart
from querywise.report.drawings import Figure
from querywise.report.tables import Cell, Column, Table

_ROOM = 0.1  # of the width, from a number below the axis to the last


def curves_text(found: Findings, curves: LearningCurves) -> str:
    """What the curves say, and how they were made."""
    said = " ".join(curves.said(found.measure, found.test))
    if len(curves.sizes) < 2:
        return said
    fewer = [f"{size:,}" for size in curves.sizes[:-1]]
    numbers = " and ".join(filter(None, (", ".join(fewer[:-1]), fewer[-1])))
    return (
        f"{said} Every method was trained again on {numbers} of the training queries of each fold, drawn at random, "
        "the smaller parts within the larger ones, with as small a share of the validation queries, 10 or more; its "
        "parameters were chosen anew on these. With all training queries it is the comparison above. All are measured "
        "on the whole test part. There is one draw of each size: a p counts the luck of the test queries, not that of "
        "the draw."
    )


def curves_table(found: Findings, curves: LearningCurves) -> Table:
    """A row per size: every method's value, and its paired test against the baseline at that size."""
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


def curves_figure(found: Findings, curves: LearningCurves) -> tuple[Figure, ...]:
    """The main measure against the number of training queries, as far to twice as many wherever one begins."""
    if len(curves.sizes) < 2:
        return ()
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
