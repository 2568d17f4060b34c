"""Commands that compare methods."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import querywise.cli.options as options
from querywise.cli.inputs import local_settings, retrieval_from, working
from querywise.cli.options import app, command, guarded_command, measures_from, print_json, say, say_renamed
from querywise.errors import DataError
from querywise.runtime.progress import shown

if TYPE_CHECKING:
    from querywise.evaluation.findings import Findings
    from querywise.retrieval.reading import Retrieval

FoldsData = Annotated[
    Path,
    typer.Argument(
        help="A folder with Fold1..5, S1..S5.txt or train, vali and test.txt, one LETOR file or set of shards to cut "
        "up, a text collection, or stdlib."
    ),
]


@command
def compare(
    data: FoldsData,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods, separated by commas; the first is the baseline. xgboost and catboost too, if they are "
            "installed. none: compare only --scores."
        ),
    ] = "single,lambdamart,knn-online,knn-offline-1,knn-offline-2",
    scores: Annotated[
        list[str] | None,
        typer.Option(
            help="Another system's scores, as NAME=FILE: a TREC run, or one score per line in the order of the data."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a report; an interrupted run resumes from it.")] = None,
    title: Annotated[str | None, typer.Option(help="The report's title; by default the name of the data.")] = None,
    note: Annotated[
        str, typer.Option(help="A sentence below the report's title, as in --note 'after the new index'.")
    ] = "",
    measures: options.VerdictMeasures = "map,ndcg@10,mean_ndcg",
    flavour: options.FlavourName = "standard",
    measure: options.FormerMeasure = None,
    test: Annotated[str, typer.Option(help="The paired test: t, wilcoxon or randomisation.")] = "t",
    baseline: Annotated[
        str | None, typer.Option(help="What the others are compared with; by default the first.")
    ] = None,
    k: options.Neighbours = None,
    clusters: options.Clusters = None,
    view: options.ViewName = None,
    reference: options.Reference = None,
    bag: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Forests, each with its own seed, that a tree method averages; by default as many for all methods as "
            "for the one that has most: 5 beside blend.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Fix a parameter of every method that has it, as in --set back_off=none, instead of choosing it.",
        ),
    ] = None,
    curves: Annotated[
        bool,
        typer.Option(
            "--curves",
            help="Also train every method on 30, 60, 120, … of the training queries, to see whether more judged "
            "queries would help. Takes one to two times as long again.",
        ),
    ] = False,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="If query vectors are adapted: also train every method with unadapted vectors, to report by how much "
            "adapting changes each. Takes as long again.",
        ),
    ] = False,
    queries: options.Queries = None,
    judgements: options.Judgements = None,
    human: Annotated[
        Path | None,
        typer.Option(
            metavar="<path>",
            help="Judgments by people, of a random sample of the queries: they decide which method is better, and all "
            "other labels are treated as cheap ones that reduce the error.",
        ),
    ] = None,
    top: options.Top = None,
    vectors: options.VectorFolder = None,
    embed: options.EmbedderName = None,
    vector_top: options.VectorTop = None,
    vector_search: options.VectorSearch = "exact",
    candidates: options.CandidatesFrom = "found",
    adapt: options.Adapt = "auto",
    language: options.Language = "english",
    skip_unknown: options.SkipUnknown = False,
    seed: Annotated[int, typer.Option(help="How one file or collection is cut into five folds.")] = 0,
    group_by: Annotated[
        str,
        typer.Option(
            help="Queries that folds keep together: group, those of a group in queries.jsonl, if any; near, also "
            "near-duplicates (the same words, one edit apart, similar vectors or relevant documents); query, none."
        ),
    ] = "group",
    by_time: Annotated[
        str | None,
        typer.Option(
            metavar="<column>",
            help="Train on earlier queries and test on later ones: a column of queries.jsonl, such as a date as a "
            "number, in whose order one file or collection is cut into folds.",
        ),
    ] = None,
    cluster: options.ClusterAddress = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Train several methods on the same folds and say which is better, on which queries, and whether that is luck."""
    from querywise.clicks.held_out import held_out
    from querywise.data.rows import reading_for
    from querywise.evaluation.tuning import without_hints
    from querywise.jobs.compare import CompareOptions, run
    from querywise.measures.order import find_flavour
    from querywise.methods import find_method, settings_of_several
    from querywise.report.writing import begun, titles_of
    from querywise.retrieval.reading import folds_of

    origin = begun("compare", data.absolute().name, note)
    measures = measures_from(measures, measure, quiet=quiet)
    find_flavour(flavour)
    names = () if methods == "none" else tuple(name.strip() for name in methods.split(","))
    say_renamed([*names, baseline], quiet=quiet)
    fixed = local_settings(k, clusters, view, reference) | ({} if bag is None else {"bag": bag})
    fixed |= settings_of_several([find_method(name, peers=True) for name in names], settings or [], flag="--set ")
    asked = CompareOptions(
        methods=names,
        scores=tuple(scores or ()),
        measures=measures,
        flavour=flavour,
        test=test,
        baseline=baseline,
        fixed=fixed,
        curves=curves,
        plain=plain,
        human=human,
    )
    how = retrieval_from(vectors, embed, top, vector_top, language, skip_unknown, vector_search, adapt, candidates)
    _check_plain(how, plain=plain)
    with shown(quiet=quiet), without_hints(quiet=quiet), working(cluster):
        missing = reading_for(fixed.get("missing"))
        folds = folds_of(
            data,
            queries,
            seed=seed,
            judgements=judgements,
            retrieval=how,
            missing=missing,
            group_by=group_by,
            by_time=by_time,
        )
        clicks = held_out(data) if judgements is None else None
        title = title or f"Methods compared on {data.absolute().name}"
        found, page = run(asked, folds, out, title=title, origin=origin, titles=titles_of(data), clicks=clicks)
    _say_found(found, test, None if quiet else page, as_json=as_json)


def _check_plain(how: Retrieval, *, plain: bool) -> None:
    """Raise DataError for a comparison with plain vectors if none learn."""
    if plain and (how.adapt == "off" or not how.by_vectors):
        raise DataError(
            f"--plain: query vectors are not adapted here ({'--adapt off' if how.by_vectors else 'there are none'})."
        )


def _say_found(found: Findings, test: str, page: Path | None, *, as_json: bool) -> None:
    from querywise.report.sections import gap_lines
    from querywise.report.terminal import (
        comparison_table,
        curves_table,
        debiasing_table,
        human_table,
        twins_table,
        vectors_table,
    )

    if as_json:
        learned = {} if found.curves is None else {"learning_curves": found.curves.as_json(test)}
        print_json(found.compared.as_json(test) | found.decided() | learned)
        return
    decided = filter(None, (found.verdict, found.advice))
    more = (*twins_table(found), *vectors_table(found), *debiasing_table(found))
    say(comparison_table(found.compared, test), *gap_lines(found), *human_table(found), *decided, *more)
    if found.curves is not None:
        say(curves_table(found.curves, found.measure, test))
    if page is not None:
        say(f"The report is {page}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@guarded_command
def reproduce(context: typer.Context) -> None:
    """Moved: `python -m reproduction`, in a clone of the repository, makes papers' tables."""
    again = shlex.join(["python", "-m", "reproduction", *(context.args or ["--help"])])
    raise DataError(f"The papers' tables are made in a clone of querywise's repository now. Type there: {again}")


@command
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the collection, its index and the fitted model.")] = Path(
        "querywise-demo"
    ),
    folds: Annotated[int, typer.Option(min=1, max=5, help="How many of the five folds to run.")] = 1,
    everything: Annotated[
        bool, typer.Option("--all", help="Compare all methods, such as a model for each query, and print every table.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Search the documentation of your own Python: build a collection of it, train on it, compare, show."""
    from querywise.evaluation.tuning import without_hints
    from querywise.jobs.demo import run
    from querywise.report.writing import begun

    parts = run(out, folds=folds, everything=everything, origin=begun("demo", "stdlib"))
    while True:  # print each part once no progress is drawn
        with shown(quiet=quiet), without_hints():
            things = next(parts, None)
        if things is None:
            return
        say(*things)
