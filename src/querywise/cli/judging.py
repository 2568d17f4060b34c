"""The commands that make judgments, and say what they are worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import querywise.cli.options as options
from querywise.cli.options import command, print_json, say
from querywise.runtime.progress import shown

if TYPE_CHECKING:
    from querywise.evaluation.agreement import Agreement


@command
def agree(
    cheap: Annotated[Path, typer.Argument(help="Cheap labels, of a language model, clicks or a ranker: qrels.")],
    human: Annotated[Path, typer.Argument(help="People's labels of some of the queries: qrels.")],
    run: Annotated[
        list[Path] | None,
        typer.Option(
            help="The TREC run of a system; with two or more, whether the labels may choose. May be repeated."
        ),
    ] = None,
    collection: Annotated[
        Path | None, typer.Option(help="The text collection: agreement by kind of query and length of document.")
    ] = None,
    queries: options.Queries = None,
    measure: Annotated[str, typer.Option(help="What the systems are compared by.")] = "ndcg@10",
    relevant_from: Annotated[int, typer.Option(min=1, help="The lowest grade that is relevant.")] = 1,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Say how far cheap labels agree with people's, and whether they may choose between systems.

    Agreement by grade, kind of query, length of document, rank and system, with 95 % intervals by a bootstrap over
    queries.
    """
    from querywise.jobs import agree as job

    with shown(quiet=quiet):
        found = job.run(
            cheap,
            human,
            runs=run or (),
            collection=collection,
            queries=queries,
            measure=measure,
            relevant_from=relevant_from,
        )
    if as_json:
        print_json(found.as_json())
    else:
        _say_agreement(found)


def _say_agreement(found: Agreement) -> None:
    from querywise.report.terminal import plain_table

    say(
        f"{found.pairs:,} pairs of {found.queries:,} queries have both labels; {found.cheap_alone:,} pairs have cheap "
        f"labels alone, {found.human_alone:,} human ones alone."
    )
    say(plain_table(("agreement", "95 %"), [(name, each.text) for name, each in found.measures.items()]))
    heads = ("human grade", *(f"cheap {grade}" for grade in found.grades), "same grade")
    rows = [
        (str(grade), *(f"{count:,}" for count in counts), right.text)
        for grade, counts, right in zip(found.grades, found.confusion.tolist(), found.right, strict=True)
    ]
    say(plain_table(heads, rows))
    for kind in dict.fromkeys(each.kind for each in found.slices):
        own = [each for each in found.slices if each.kind == kind]
        rows = [
            (each.name, f"{each.pairs:,}", f"{each.queries:,}", f"{each.human:.2f}", each.bias.text, each.leaning.text)
            for each in own
        ]
        heads = (kind, "pairs", "queries", "human mean", "bias", "leaning, at equal human grade")
        say(plain_table(heads, rows))
    say(*found.said())
