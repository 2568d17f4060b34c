"""Commands that fit a ranker, use it, and look at what it does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from querywise.cli.app import app
from querywise.cli.inputs import local_settings, read_training, retrieval_from
from querywise.cli.options import (
    AsJson,
    Clusters,
    DataFiles,
    EmbedderName,
    Features,
    FlavourName,
    Language,
    Measures,
    Neighbours,
    Queries,
    Quiet,
    Reference,
    SkipUnknown,
    Top,
    VectorFolder,
    VectorSearch,
    VectorTop,
    ViewName,
    guarded_command,
    print_json,
    say,
    say_renamed,
)
from querywise.cli.workers import ClusterAddress, Memory, require_parts, working

if TYPE_CHECKING:
    from querywise.jobs.fit import Fitted
    from querywise.methods import Method
    from querywise.methods.settings import Value


@app.command()
@guarded_command
def fit(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="Training files or shards, one folder of folds (with --fold), or a text collection.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the model to.", show_default=False)],
    method: Annotated[str, typer.Option(help="What to fit; `querywise methods` lists them.")] = "ranksvm",
    valid: Annotated[
        list[Path] | None, typer.Option(help="Validation file; parameters are chosen on it.", show_default=False)
    ] = None,
    fold: Annotated[int | None, typer.Option(min=1, help="Which fold of the folder.", show_default=False)] = None,
    k: Neighbours = None,
    clusters: Clusters = None,
    view: ViewName = None,
    reference: Reference = None,
    base: Annotated[
        str | None,
        typer.Option(
            help="What local models, or aTVT, are made of: ranksvm or lambdamart; trees or kernel.", show_default=False
        ),
    ] = None,
    penalty: Annotated[
        str | None, typer.Option(help="How aTVT holds its queries together: l2 or l1.", show_default=False)
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            help="How much a query's own documents count in sser: a number, or auto, chosen on validation data.",
            show_default=False,
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Without validation data: choose parameters by cross-validation over so many parts of the training "
            "queries, then train on all of them.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Fix a parameter, as in --set l2=0.3, instead of choosing it.", show_default=False),
    ] = None,
    measure: Annotated[str, typer.Option(help="What parameters are chosen by.")] = "map",
    flavour: FlavourName = "standard",
    features: Features = None,
    queries: Queries = None,
    top: Top = None,
    vectors: VectorFolder = None,
    embed: EmbedderName = None,
    vector_top: VectorTop = None,
    vector_search: VectorSearch = "exact",
    skip_unknown: SkipUnknown = False,
    language: Language = "english",
    cluster: ClusterAddress = None,
    memory: Memory = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a ranker and save it.

    With validation data every parameter in the method's grid is tried and the best kept; without, the defaults hold.
    Of a text collection all judged queries are trained on, and parameters are chosen by cross-validation over them.
    """
    from querywise.data.missing import reading_for
    from querywise.evaluation.edges import without_hints
    from querywise.jobs.first_use import compiled_beside
    from querywise.jobs.fit import Asked, run
    from querywise.measures.flavours import find_flavour
    from querywise.measures.formulas import find_measures
    from querywise.methods import find_method, parse_settings
    from querywise.runtime.progress import shown
    from querywise.storage import check_model_folder

    find_measures(measure)
    find_flavour(flavour)
    chosen = find_method(method)
    say_renamed([method], quiet=quiet)
    fixed: dict[str, Any] = {**local_settings(k, clusters, view, reference)}
    fixed |= parse_settings(chosen, settings or [], flag="--set ")
    fixed |= _read_options(chosen, {"base": base, "penalty": penalty, "gamma": None if gamma == "auto" else gamma})
    _refuse_folds(folds, validated=bool(valid) or fold is not None)
    _refuse_unknown(chosen, fixed)
    check_model_folder(out)
    how = retrieval_from(
        vectors, embed, top, vector_top, language, skip_unknown=skip_unknown, vector_search=vector_search
    )
    with shown(quiet=quiet), without_hints(quiet=quiet), working(cluster, memory), compiled_beside(chosen) as compiled:
        missing = reading_for(fixed.get("missing"))
        read = read_training(
            data, valid or [], fold=fold, features=features, queries=queries, retrieval=how, missing=missing
        )
        require_parts(read.train, memory)
        asked = Asked(chosen, fixed, measure, flavour, folds or (5 if read.whole else None), read.notes)
        compiled()
        fitted = run(asked, read.train, read.valid, out, cluster=cluster is not None)
    if as_json:
        print_json({"model": str(out), **fitted.notes})
    elif not quiet:
        _say_fitted(fitted)
        say(f"{chosen.name} trained on {len(read.train)} queries, saved in {out}")


def _say_fitted(fitted: Fitted) -> None:
    from querywise.report.terminal import trials_table

    if fitted.tuned.tried:
        say(trials_table(fitted.tuned))
    if "classifier_f1" in fitted.notes:
        say(f"The classifier's macro F1, over five folds of the training queries: {fitted.notes['classifier_f1']}")
    sizes = fitted.sizes
    if sizes is not None:
        say(
            f"{sizes.groups} clusters; {sizes.of_one_query} have one query to learn from and {sizes.empty} none: "
            "those are given the global model."
        )


@app.command()
@guarded_command
def rank(
    model: Annotated[Path, typer.Argument(help="A model folder.", show_default=False)],
    data: DataFiles,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; without it, scores go to standard output.", show_default=False)
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="trec, parquet or scores; by default by the ending of --out.", show_default=False
        ),
    ] = None,
    features: Features = None,
    queries: Queries = None,
    cluster: ClusterAddress = None,
    quiet: Quiet = False,
) -> None:
    """Score documents with a saved model.

    An output that ends in .trec or .run becomes a TREC run, one that ends in .parquet a folder with a Parquet file for
    each part of the data; any other holds one score per line, in the order of the rows. Shards are ranked one by one:
    but for a TREC run, there may be more of them than memory holds. Into Parquet, a run that was cut short goes on
    where it stopped.
    """
    from querywise.contracts.missing import missing_for
    from querywise.data.sources import open_features
    from querywise.errors import DataError
    from querywise.jobs.rank import check_scores_folder, in_rows, scores_of, write_scored
    from querywise.measures.score_files import write_run, write_scores
    from querywise.runtime.files import check_writable
    from querywise.runtime.progress import shown
    from querywise.storage import load, version_of

    endings = {".trec": "trec", ".run": "trec", ".parquet": "parquet"}
    kind = form or (endings.get(out.suffix, "scores") if out is not None else "scores")
    if kind not in ("trec", "parquet", "scores"):
        raise DataError(f"Unknown format {kind!r}. Known: trec, parquet, scores.")
    if kind != "scores" and out is None:
        raise DataError("A TREC run and Parquet need a place to be written to; name one with --out.")
    if out is not None:
        (check_scores_folder if kind == "parquet" else check_writable)(out)
    ranker = load(model)
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


@app.command()
@guarded_command
def evaluate(
    data: Annotated[
        Path,
        typer.Argument(
            help="What was judged: TREC or BEIR qrels, a text collection, a LETOR file, shards or a log.",
            show_default=False,
        ),
    ],
    scores: Annotated[
        list[Path],
        typer.Argument(
            help="TREC runs; of documents with features also one score per line, or a folder of Parquet parts.",
            show_default=False,
        ),
    ],
    measures: Measures = "map,ndcg@10,mean_ndcg",
    flavour: FlavourName = "standard",
    max_grade: Annotated[
        int | None, typer.Option(min=1, help="The grade ERR calls perfect; else the largest label.", show_default=False)
    ] = None,
    per_query: Annotated[
        Path | None, typer.Option(help="Write every query's values to this .csv or .json.", show_default=False)
    ] = None,
    test: Annotated[str, typer.Option(help="The paired test: t, wilcoxon or randomisation.")] = "t",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure how good scores are; of several, whether each differs from the first.

    Runs are measured against all judgements, as trec_eval -c does: a judged query that is not in a run counts 0. Take
    --flavour trec for its very numbers.
    """
    from querywise.evaluation.significance import find_test
    from querywise.jobs.evaluate import run
    from querywise.measures.flavours import find_flavour
    from querywise.measures.formulas import find_measures
    from querywise.runtime.files import check_writable
    from querywise.runtime.progress import shown

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


@app.command()
@guarded_command
def explain(
    model: Annotated[Path, typer.Argument(help="A folder with a model.", show_default=False)],
    data: DataFiles,
    qid: Annotated[str, typer.Option(help="The query to explain.", show_default=False)],
    above: Annotated[
        str | None,
        typer.Option(
            help="With --below: why this document is above that one. Documents without ids go by their place in the "
            "query, from 1.",
            show_default=False,
        ),
    ] = None,
    below: Annotated[str | None, typer.Option(help="See --above.", show_default=False)] = None,
    show: Annotated[int, typer.Option(min=1, help="How many neighbours, or models, and features to show.")] = 10,
    features: Features = None,
    queries: Queries = None,
    as_json: AsJson = False,
) -> None:
    """Show which training queries or local models answer a query, or why one document is above another."""
    from querywise.contracts.missing import missing_for
    from querywise.errors import DataError
    from querywise.explanations.explain import as_dict, why
    from querywise.explanations.explain import explain as explained
    from querywise.retrieval.reading import read_judged
    from querywise.storage import load

    if (above is None) != (below is None):
        raise DataError("--above and --below go together: why is the one document above the other?")
    ranker = load(model)
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


@app.command()
@guarded_command
def methods(
    name: Annotated[str | None, typer.Argument(help="One method, to list its settings.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """What can be fitted or compared with, one line each; of one method, everything that can be set."""
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


def _read_options(method: Method, texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Options that are settings of their own; refusals speak of the option."""
    given = {name: text for name, text in texts.items() if text is not None}
    _refuse_unknown(method, given)
    return {name: method.settings[name].read(text, f"--{name} {text}") for name, text in given.items()}


def _refuse_folds(folds: int | None, *, validated: bool) -> None:
    from querywise.errors import DataError

    if folds is not None and validated:
        raise DataError("--folds is for training data without a validation part; leave out --valid and --fold.")


def _refuse_unknown(method: Method, given: Mapping[str, object]) -> None:
    from querywise.errors import DataError

    stray = next((name for name in given if name not in method.settings), None)
    if stray is not None:
        raise DataError(f"--{stray} is not a setting of {method.name}. Its settings: {', '.join(method.settings)}.")
