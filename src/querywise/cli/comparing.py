"""Commands that compare methods."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from querywise.cli.app import app
from querywise.cli.inputs import feature_from, folds_of, local_settings
from querywise.cli.options import (
    AsJson,
    FlavourName,
    Measures,
    Neighbours,
    Queries,
    Quiet,
    Reference,
    ViewName,
    guarded_command,
    print_json,
    say,
)


@app.command()
@guarded_command
def compare(
    data: Annotated[
        Path,
        typer.Argument(
            help="A folder with Fold1..5 or S1..S5.txt, one LETOR file to cut up, a text collection, or stdlib.",
            show_default=False,
        ),
    ],
    methods: Annotated[str, typer.Option(help="Methods, separated by commas; the first is the baseline.")] = (
        "ranksvm,lambdamart"
    ),
    measures: Measures = "map,ndcg@10,mean_ndcg",
    flavour: FlavourName = "standard",
    measure: Annotated[str, typer.Option(help="What parameters are chosen by.")] = "map",
    k: Neighbours = None,
    view: ViewName = None,
    reference: Reference = None,
    queries: Queries = None,
    seed: Annotated[int, typer.Option(help="How one file is cut into five folds.")] = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train several methods on the same folds and say which is better, and whether that is luck."""
    from querywise.evaluation.compare import compare as compared_on
    from querywise.measures import find_flavour, find_measures
    from querywise.methods import find_method
    from querywise.progress import shown, track
    from querywise.tuning import tune_or_fit

    find_measures([*measures.split(","), measure])
    find_flavour(flavour)
    chosen = [find_method(name.strip()) for name in methods.split(",")]

    asked = local_settings(k, view, reference)

    def fitting(method: Any) -> Any:
        fixed = {name: value for name, value in asked.items() if name in method.parameters}
        return lambda train, valid: (
            tune_or_fit(
                method.build, method.grid, fixed=fixed, train=train, valid=valid, measure=measure, flavour=flavour
            ).ranker
        )

    with shown(quiet=quiet):
        folds = folds_of(data, queries, seed=seed)
        result = compared_on(
            {method.name: fitting(method) for method in chosen},
            track(folds, "Folds"),
            measures=measures,
            flavour=flavour,
        )
    if as_json:
        print_json(result.as_json())
    else:
        from querywise.report.terminal import comparison_table

        say(comparison_table(result))


@app.command()
@guarded_command
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="geng2008: k nearest neighbours; from-text: a text collection, several views.", show_default=False
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="A folder with Fold1..5 or S1..S5.txt, one LETOR file to cut up, a text collection, or stdlib.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and numbers.", show_default=False)],
    reference: Reference = None,
    queries: Queries = None,
    quiet: Quiet = False,
) -> None:
    """Make a paper's tables and figures anew on the data you have."""
    from querywise.errors import DataError
    from querywise.progress import shown
    from querywise.reproduction import fromtext, geng2008

    if what not in ("geng2008", "from-text"):
        raise DataError(f"Unknown paper {what!r}. Known: geng2008, from-text.")
    with shown(quiet=quiet):
        folds = folds_of(data, queries)
        if what == "from-text":
            written = fromtext.reproduce(folds, out)
        else:
            written = geng2008.reproduce(folds, out, reference=None if reference is None else feature_from(reference))
    if not quiet:
        sys.stdout.write(written.read_text())


@app.command()
@guarded_command
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the collection, its index and the fitted model.")] = Path(
        "querywise-demo"
    ),
    folds: Annotated[int, typer.Option(min=1, max=5, help="How many of the five folds to run.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Search the documentation of your own Python: build a collection of it, train on it, compare, show."""
    from querywise.demo import run
    from querywise.progress import shown

    with shown(quiet=quiet):
        things = run(out, folds=folds)
    say(*things)
