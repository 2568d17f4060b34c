"""Commands that apply a ranker, and inspect it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import querywise.cli.options as options
from querywise.cli.inputs import working
from querywise.cli.options import command, print_json, say, say_renamed
from querywise.errors import DataError
from querywise.runtime.progress import shown

if TYPE_CHECKING:
    from querywise.methods import Method
    from querywise.methods.method import Value


@command
def rank(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    data: options.DataFiles,
    out: Annotated[Path | None, typer.Option(help="Where to write; without it, scores go to standard output.")] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="trec, parquet or scores; by default by the ending of --out.")
    ] = None,
    features: options.Features = None,
    queries: options.Queries = None,
    cluster: options.ClusterAddress = None,
    quiet: options.Quiet = False,
) -> None:
    """Score documents with a saved model.

    An output that ends in .trec or .run becomes a TREC run, one that ends in .parquet a folder with a
    Parquet file for each part of the data; any other holds one score per line, in the order of the
    rows. Shards are ranked one by one, so they may be larger than memory, except for a TREC run. With
    Parquet output, an interrupted run continues where it stopped.
    """
    from querywise.contracts.asking import missing_for
    from querywise.data.readers import open_features
    from querywise.jobs.evaluate import check_scores_folder, in_rows, scores_of, write_scored
    from querywise.measures.score_files import write_run, write_scores
    from querywise.runtime.files import check_writable
    from querywise.storage import load_ranker, version_of

    endings = {".trec": "trec", ".run": "trec", ".parquet": "parquet"}
    kind = form or (endings.get(out.suffix, "scores") if out is not None else "scores")
    if kind not in ("trec", "parquet", "scores"):
        raise DataError(f"Unknown format {kind!r}. Known: trec, parquet, scores.")
    if kind != "scores" and out is None:
        raise DataError("A TREC run and Parquet are written to a file; name it with --out.")
    if out is not None:
        (check_scores_folder if kind == "parquet" else check_writable)(out)
    ranker = load_ranker(model)
    with shown(quiet=quiet), working(cluster):
        missing = missing_for(ranker)
        parts = open_features(data, features=features, queries=queries, missing=missing)
        if out is not None and kind == "parquet":
            count = write_scored(ranker, version_of(model), parts, out)
        else:
            scores = scores_of(ranker, parts)
            count = len(scores)
            if out is None:
                sys.stdout.writelines(f"{score!r}\n" for score in in_rows(scores, parts).tolist())
            elif kind == "trec":
                write_run(out, parts.load().candidates, scores)
            else:
                write_scores(out, in_rows(scores, parts))
    if out is not None and not quiet:
        say(f"{count} documents of {len(parts)} queries ranked, written to {out}")


@command
def evaluate(
    data: Annotated[
        Path,
        typer.Argument(help="What was judged: TREC or BEIR qrels, a text collection, a LETOR file, shards or a log."),
    ],
    scores: Annotated[
        list[Path],
        typer.Argument(
            help="TREC runs; for documents with features also one score per line, or a folder of Parquet parts."
        ),
    ],
    measures: options.Measures = "map,ndcg@10,mean_ndcg",
    flavour: options.FlavourName = "standard",
    max_grade: Annotated[
        int | None, typer.Option(min=1, help="The grade that is perfect for ERR; by default the largest label.")
    ] = None,
    per_query: Annotated[Path | None, typer.Option(help="Write every query's values to this .csv or .json.")] = None,
    test: Annotated[str, typer.Option(help="The paired test: t, wilcoxon or randomisation.")] = "t",
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate scores; of several sets, test whether each differs from the first.

    Runs are evaluated against all judgments, as trec_eval -c does: a judged query that is not in a
    run counts 0. Use --flavour trec to get its exact numbers.
    """
    from querywise.evaluation.significance import find_test
    from querywise.jobs.evaluate import run
    from querywise.measures.formulas import find_measures
    from querywise.measures.order import find_flavour
    from querywise.runtime.files import check_writable

    find_measures(measures)
    find_flavour(flavour)
    find_test(test)
    if per_query is not None:
        check_writable(per_query)
    with shown(quiet=quiet):
        found = run(data, scores, measures=measures, flavour=flavour, max_grade=max_grade)
    if per_query is not None:
        found.write(per_query)
    if as_json:
        print_json(found.as_json(test))
    else:
        from querywise.report.terminal import evaluations_table

        say(evaluations_table(found, test))


@command
def explain(
    model: Annotated[Path, typer.Argument(help="A folder with a model.")],
    data: options.DataFiles,
    qid: Annotated[str, typer.Option(help="The query to explain.")],
    above: Annotated[
        str | None,
        typer.Option(
            help="With --below: why this document is above that one. Documents without ids are named by their "
            "position in the query, from 1."
        ),
    ] = None,
    below: Annotated[str | None, typer.Option(help="See --above.")] = None,
    show: Annotated[int, typer.Option(min=1, help="How many neighbors, or models, and features to show.")] = 10,
    features: options.Features = None,
    queries: options.Queries = None,
    as_json: options.AsJson = False,
) -> None:
    """Show which training queries or local models score a query, or why one document is above another."""
    from querywise.contracts.asking import missing_for
    from querywise.explanations.explain import as_dict, why
    from querywise.explanations.explain import explain as explained
    from querywise.retrieval.reading import read_judged
    from querywise.storage import load_ranker

    if (above is None) != (below is None):
        raise DataError("Give --above and --below together: they explain why one document is above another.")
    ranker = load_ranker(model)
    missing = missing_for(ranker)
    candidates = read_judged(data, features=features, queries=queries, missing=missing).candidates
    found: Any
    if above is not None and below is not None:
        found = why(ranker, candidates, qid, above, below)
    else:
        found = explained(ranker, candidates, qid)
    if as_json:
        print_json(as_dict(found))
    else:
        from querywise.report.terminal import explanation_tables, reason_tables

        say(explanation_tables(found, show) if above is None else reason_tables(found, show))


@command
def methods(
    name: Annotated[str | None, typer.Argument(help="One method, to list its settings.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the methods that can be fitted or compared, one per line; for one method, list its settings."""
    from querywise.methods import METHODS, PEERS, find_method
    from querywise.report.terminal import plain_table

    if name is not None:
        method = find_method(name, peers=True)
        say_renamed([name], quiet=False)
        _show_settings(method, as_json=as_json)
    elif as_json:
        print_json([each.as_json() for each in (METHODS | PEERS).values()])
    else:
        rows = [(each.name, each.description, _grid_words(each.grid)) for each in (METHODS | PEERS).values()]
        say(plain_table(("method", "what it is", "tried on validation data"), rows))


def _show_settings(method: Method, *, as_json: bool) -> None:
    from querywise.methods import typed
    from querywise.report.terminal import plain_table

    if as_json:
        settings = [each.as_json() for each in method.settings.values()]
        print_json({**method.as_json(), "grids": method.grids, "settings": settings})
        return
    rows = [
        (each.name, each.type, typed(each.default), ", ".join(each.choices), each.help)
        for each in method.settings.values()
    ]
    headings = ("setting", "type", "default", "choices", "what it is")
    say(f"{method.name}: {method.description}", plain_table(headings, rows))
    tried = {"": method.grid, **{f" with base={base}": grid for base, grid in method.grids.items()}}
    say(*(f"Tried on validation data{where}: {_grid_words(grid)}" for where, grid in tried.items() if grid))


def _grid_words(grid: Mapping[str, Sequence[Value]]) -> str:
    from querywise.methods import typed

    return "; ".join(f"{name} {', '.join(map(typed, values))}" for name, values in grid.items())
