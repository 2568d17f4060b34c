"""The commands that create judgments and assess them."""

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
            help="The TREC run of a system; with two or more, tests whether the labels may choose between them. May "
            "be repeated."
        ),
    ] = None,
    collection: Annotated[
        Path | None,
        typer.Option(help="The text collection, to show agreement by kind of query and length of document."),
    ] = None,
    queries: options.Queries = None,
    measure: Annotated[str, typer.Option(help="The measure by which the systems are compared.")] = "ndcg@10",
    relevant_from: Annotated[int, typer.Option(min=1, help="The lowest grade that is relevant.")] = 1,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure how far cheap labels agree with human ones, and whether they may decide between systems.

    Agreement by grade, kind of query, length of document, rank and system, with 95 % intervals by a
    bootstrap over queries.
    """
    from querywise.jobs.judging import measure_agreement

    with shown(quiet=quiet):
        found = measure_agreement(
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


@command
def judge(
    collection: Annotated[Path, typer.Argument(help="The text collection: its documents, and the queries' texts.")],
    model: Annotated[
        str,
        typer.Option(
            metavar="<str>",
            help="The judge: an address that answers as OpenAI's /v1/chat/completions, and the model's name, as in "
            "http://localhost:8080/v1/chat/completions#MODEL. Its key is read from QUERYWISE_JUDGE_KEY.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Qrels to write; the answers are kept in a file beside it.")],
    run: Annotated[
        list[Path] | None,
        typer.Option(
            help="A TREC run whose first documents are judged; may be repeated. By default those of text rankers."
        ),
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Documents of each run, from the top.")] = 10,
    queries: options.Queries = None,
    prompt: Annotated[
        Path | None,
        typer.Option(
            help="A file with your own prompt; if it does not exist, the default prompt is written to it, to be "
            "edited.",
        ),
    ] = None,
    highest: Annotated[int, typer.Option(min=1, max=9, help="The highest grade.")] = 3,
    votes: Annotated[int, typer.Option(min=1, max=99, help="How often each pair is judged; the median counts.")] = 1,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, max=2.0, help="By default 0, or 1 with several votes.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=50, help="Documents of a query in one request.")] = 1,
    words: Annotated[int, typer.Option(min=1, help="Words of a document that are sent, from its beginning.")] = 400,
    answer_tokens: Annotated[
        int, typer.Option(min=0, help="Tokens that an answer may have beside its grades, for reasoning.")
    ] = 0,
    at_once: Annotated[int, typer.Option(min=1, max=64, help="Requests in flight at a time.")] = 4,
    most_tokens: Annotated[int | None, typer.Option(min=1, help="Do not begin if more tokens are needed.")] = None,
    most_money: Annotated[float | None, typer.Option(min=0.0, help="Do not begin if it costs more than this.")] = None,
    price_in: Annotated[float, typer.Option(min=0.0, help="Price of a million input tokens.")] = 0.0,
    price_out: Annotated[float, typer.Option(min=0.0, help="Price of a million output tokens.")] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")] = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Let a language model grade documents for queries, as cheap labels; data is sent only to the address you name.

    Shows the tokens and money needed before it begins. Answers are kept: the same command continues
    from there.
    """
    from querywise.errors import DataError
    from querywise.jobs import judge as job

    if most_money is not None and not price_in + price_out > 0:
        raise DataError(f"--most-money {most_money:g}: give prices too, with --price-in and --price-out.")
    if prompt is not None and not prompt.exists():
        job.write_prompt(prompt)
        say(
            f"{prompt} did not exist, so the default prompt was written to it; nothing was sent. Edit it, and run the "
            "same command again."
        )
        return
    text = job.PROMPT if prompt is None else job.read_prompt(prompt)
    warmth = temperature if temperature is not None else float(votes > 1)
    asked = job.Judge(model, text, highest, votes, batch, words, warmth, answer_tokens)
    budget = job.Budget(most_tokens, most_money, price_in, price_out)
    with shown(quiet=quiet):
        pool = job.pooled(collection, queries, run or (), depth)
        planned = job.plan(collection, pool, asked, out, budget, queries)
        if not quiet:
            typer.echo(planned.said(), err=not dry_run)
        if dry_run:
            return
        done = job.run(planned, out, at_once)
    if as_json:
        print_json(done.as_json())
    elif not quiet:
        say(*done.said())


@command
def next(
    run: Annotated[list[Path], typer.Option(help="The TREC run of a system; name two or more.")],
    out: Annotated[
        Path, typer.Option(help="The draw: what to judge, in order. It is made if it does not exist, else read.")
    ],
    judged: Annotated[Path | None, typer.Option(help="Qrels with the judgments so far; add new ones to it.")] = None,
    cheap: Annotated[Path | None, typer.Option(help="Cheap labels, to predict grades for a new draw.")] = None,
    measure: Annotated[str, typer.Option(help="dcg@k or p@k.")] = "dcg@10",
    uniform: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="The share of a draw that is spread equally over all documents.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="The seed of the draw; another one draws other documents.")] = 0,
    show: Annotated[int, typer.Option(min=0, help="How many of the next pairs to print.")] = 10,
    as_json: options.AsJson = False,
) -> None:
    """Choose the documents to judge next to decide between systems, and compare the systems so far.

    Documents on which the rankings differ come first, sampled with known probabilities, by which the
    estimated differences are corrected. Run it again after judging; the file of the draw does not
    change.
    """
    from querywise.jobs.judging import choose_next

    found, coming = choose_next(run, out, judged, measure=measure, cheap=cheap, uniform=uniform, seed=seed)
    if as_json:
        print_json({**found.as_json(), "next": [list(each[:2]) for each in coming[:show]]})
        return
    say(*found.said())
    if coming and show:
        from querywise.report.terminal import plain_table

        say(plain_table(("judge next", "document"), [each[:2] for each in coming[:show]]))
