"""Runs the benches, or only those named: `python -m benchmarks reader imports`."""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live

from benchmarks import (
    bench_adapted,
    bench_atvt,
    bench_blend,
    bench_clicks,
    bench_cluster,
    bench_clusters,
    bench_compare,
    bench_engines,
    bench_ensemble,
    bench_imports,
    bench_interleaving,
    bench_knn,
    bench_ranksvm,
    bench_reader,
    bench_scaling,
    bench_service,
    bench_soak,
    bench_text,
    bench_vectors,
    bench_web30k,
    bench_weights,
)
from benchmarks.results import RESULTS, Report, Result, load, merged, save, this_machine
from benchmarks.table import LIMIT, add_line, limit_table, markdown_page, terminal_table

_BUSY = 0.7  # programs running on average over the last minute

# The order in which they run; the docstring stands above the table.
BENCHES: dict[str, Callable[[], Iterator[Result]]] = {
    "imports": bench_imports.measure,
    "reader": bench_reader.measure,
    "ranksvm": bench_ranksvm.measure,
    "scaling": bench_scaling.measure,
    "knn": bench_knn.measure_offline,
    "online": bench_knn.measure_online,
    "clusters": bench_clusters.measure,
    "atvt": bench_atvt.measure,
    "ensemble": bench_ensemble.measure,
    "blend": bench_blend.measure,
    "text": bench_text.measure,
    "vectors": bench_vectors.measure,
    "approximate": bench_vectors.measure_approximate,
    "adapted": bench_adapted.measure,
    "weights": bench_weights.measure,
    "clicks": bench_clicks.measure,
    "compare": bench_compare.measure,
    "service": bench_service.measure,
    "interleaving": bench_interleaving.measure,
    "engines": bench_engines.measure,
    "faults": bench_soak.measure_faults,
    "memory": bench_cluster.measure_memory,
    "cluster": bench_cluster.measure_cluster,
    "growth": bench_cluster.measure_growth,
    "soak": bench_soak.measure_soak,
    "web30k": bench_web30k.measure,
}
ONLY_WHEN_NAMED = ("soak", "web30k")  # take long


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=f"The benches: {', '.join(BENCHES)}.")
    parser.add_argument(
        "benches", nargs="*", metavar="bench", help="which to run; all but the longest if none is named"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="run nothing; write the last results as a page")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.benches if name not in BENCHES]
    if unknown:
        parser.error(f"unknown bench {unknown[0]!r}. Known: {', '.join(BENCHES)}.")
    if arguments.markdown is None:
        run(arguments.benches or [name for name in BENCHES if name not in ONLY_WHEN_NAMED])
        if not arguments.benches:
            print(f"Left out, since it takes long: python -m benchmarks {' '.join(ONLY_WHEN_NAMED)}")
    elif arguments.benches:
        parser.error("--markdown runs nothing; name either benches or a file.")
    else:
        report = load()
        if report is None:
            parser.error("there are no results yet; run the benches first.")
        page = markdown_page(report, {name: _paragraphs(name) for name in BENCHES}, short=_in_short(arguments.markdown))
        arguments.markdown.write_text(page, encoding="utf-8")


def run(names: list[str]) -> None:
    """Measure, show every result as it comes, and keep them all."""
    console = Console()
    machine = this_machine()
    console.print(f"[bold]Machine[/bold]  {machine}", highlight=False)
    if os.getloadavg()[0] > _BUSY:
        console.print("[yellow]The machine has been busy; beside other programs, times come out too long.[/yellow]")
    results: list[Result] = []
    today = datetime.now(tz=UTC).date().isoformat()
    for name in names:
        results += _shown(name, console)
        save(merged(load(), Report(machine, tuple(results), today), list(BENCHES)))  # after each: an hour may be lost
    if any(result.floor is not None for result in results):
        console.print(f"\n[bold]{LIMIT}[/bold]", limit_table(results, console.width), sep="\n")
    aims = [result.reached for result in results if result.reached is not None]
    console.print(f"\n{sum(aims)} of {len(aims)} aims reached. All results: {RESULTS.parent.name}/{RESULTS.name}")


def _shown(name: str, console: Console) -> Iterator[Result]:
    """The results of one bench, each drawn when it is there."""
    title, *notes = _paragraphs(name)
    console.print(f"\n[bold]{title}[/bold]", *notes, sep="\n", highlight=False)
    if not console.is_terminal:
        for number, result in enumerate(BENCHES[name]()):
            line = terminal_table(console.width, headed=number == 0)
            add_line(line, result)
            console.print(line, end="")
            yield result
        console.print()
        return
    table = terminal_table(console.width)
    # Drawn on demand: a thread that redraws would compete with what is measured.
    with Live(Group(table, "measuring …"), console=console, auto_refresh=False) as live:
        for result in BENCHES[name]():
            add_line(table, result)
            live.refresh()
            yield result
        live.update(table)


def _in_short(page: Path) -> str:
    """What an older page says in short, by hand: to be looked through after every run."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    found = re.search(r"^## In short\n.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    return found[0] if found is not None else ""


def _paragraphs(name: str) -> list[str]:
    """What a bench says it measures: a title, and perhaps a note."""
    text = inspect.getdoc(BENCHES[name]) or name
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


if __name__ == "__main__":
    main()
