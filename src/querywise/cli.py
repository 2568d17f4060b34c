"""The command line: parse, call, print. Nothing of querywise is imported before a command needs it."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

app = typer.Typer(
    help="Learning to rank, query by query.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

DataFiles = Annotated[
    list[Path], typer.Argument(help="LETOR files (plain, .gz, .xz), read as one set.", show_default=False)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no words, only results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Measures = Annotated[
    str, typer.Option(help="Measures, separated by commas: map, mrr, p@10, ndcg@10, mean_ndcg, dcg@5, err.")
]
FlavourName = Annotated[str, typer.Option(help="Whose conventions: standard, letor4, mslr, trec or lightgbm.")]
Features = Annotated[
    int | None,
    typer.Option(min=1, help="Number of columns, for sparse files that leave out the last ones.", show_default=False),
]
Queries = Annotated[
    Path | None, typer.Option(help="queries.jsonl with the text, class or columns of each query.", show_default=False)
]
Neighbours = Annotated[
    str | None,
    typer.Option(
        help="Training queries that count: a number, a share like 0.2, or auto, chosen on validation data.",
        show_default=False,
    ),
]
ViewName = Annotated[
    str | None,
    typer.Option(
        help="What makes queries alike: top-mean, learned, columns, or several joined by +.", show_default=False
    ),
]
Reference = Annotated[
    int | None,
    typer.Option(
        min=1, help="Column of the file that picks the top documents; else the single model.", show_default=False
    ),
]


def _fail(message: str, code: int = 2) -> NoReturn:
    from rich.console import Console

    console = Console(stderr=True)
    console.print("[bold red]error:[/] ", end="")
    console.print(message, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def _guarded(command: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Bad input ends with exit code 2 and one message, an interrupt with 130; neither with a traceback."""

    @functools.wraps(command)
    def guarded(*arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        from querywise.errors import QuerywiseError

        try:
            result = command(*arguments, **options)
            sys.stdout.flush()  # here, so that a full disk is noticed
            return result
        except QuerywiseError as error:
            _fail(str(error))
        except KeyboardInterrupt:
            _fail("interrupted; what was being written has not been changed.", 130)
        except BrokenPipeError:
            # Whoever was reading has seen enough, as `| head` does.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except OSError as error:
            _fail(f"the result could not be written ({error.strerror}).")
        except MemoryError:
            _fail("this machine has too little memory for this data.")

    return guarded


def _print_json(content: Any) -> None:
    sys.stdout.write(json.dumps(content, indent=1) + "\n")


def _print(*things: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)
    for thing in things:
        console.print(thing)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        sys.stdout.write(f"querywise {installed('querywise')}\n")
        raise typer.Exit


@app.command()
@_guarded
def fit(
    data: Annotated[
        list[Path], typer.Argument(help="Training files, or one folder of folds (with --fold).", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the model to.", show_default=False)],
    method: Annotated[str, typer.Option(help="What to fit; `querywise methods` lists them.")] = "ranksvm",
    valid: Annotated[
        list[Path] | None, typer.Option(help="Validation file; parameters are chosen on it.", show_default=False)
    ] = None,
    fold: Annotated[int | None, typer.Option(min=1, help="Which fold of the folder.", show_default=False)] = None,
    k: Neighbours = None,
    view: ViewName = None,
    reference: Reference = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Fix a parameter, as in --set l2=0.3, instead of choosing it.", show_default=False),
    ] = None,
    measure: Annotated[str, typer.Option(help="What parameters are chosen by.")] = "map",
    flavour: FlavourName = "standard",
    features: Features = None,
    queries: Queries = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a ranker and save it.

    With validation data every parameter in the method's grid is tried and the best kept; without, the defaults hold.
    """
    from querywise.errors import DataError
    from querywise.measures import find_flavour, find_measures
    from querywise.methods import find_method, parse_settings
    from querywise.progress import shown
    from querywise.storage import check_model_folder, save
    from querywise.tuning import tune_or_fit

    find_measures(measure)
    find_flavour(flavour)
    chosen = find_method(method)
    fixed = {**_local_settings(k, view, reference), **parse_settings(chosen, settings or [])}
    stray = next((name for name in fixed if name not in chosen.parameters), None)
    if stray is not None:
        raise DataError(f"--{stray} says nothing to {method}. Its settings: {', '.join(chosen.parameters)}.")
    check_model_folder(out)
    with shown(quiet=quiet):
        train, held_out = _read_training(data, valid or [], fold=fold, features=features, queries=queries)
        tuned = tune_or_fit(
            chosen.build, chosen.grid, fixed=fixed, train=train, valid=held_out, measure=measure, flavour=flavour
        )
        notes = {"method": method, **tuned.as_notes()}
        f1 = getattr(tuned.ranker, "f1_", None)
        if f1 is not None:
            notes["classifier_f1"] = round(f1, 4)
        save(tuned.ranker, out, notes=notes)
    if as_json:
        _print_json({"model": str(out), **notes})
    elif not quiet:
        from querywise.report.terminal import trials_table

        if tuned.tried:
            _print(trials_table(tuned))
        if "classifier_f1" in notes:
            _print(f"The classifier's macro F1, over five folds of the training queries: {notes['classifier_f1']}")
        _print(f"{method} trained on {len(train)} queries, saved in {out}")


@app.command()
@_guarded
def rank(
    model: Annotated[Path, typer.Argument(help="A model folder.", show_default=False)],
    data: DataFiles,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; without it, scores go to standard output.", show_default=False)
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="trec or scores; by default what --out's ending says.", show_default=False),
    ] = None,
    features: Features = None,
    queries: Queries = None,
    quiet: Quiet = False,
) -> None:
    """Score documents with a saved model.

    An output that ends in .trec or .run becomes a TREC run; any other holds one score per line, in the order of the
    rows.
    """
    from querywise.errors import DataError
    from querywise.files import check_writable
    from querywise.progress import shown
    from querywise.ranking import write_run, write_scores
    from querywise.storage import load

    kind = form or ("trec" if out is not None and out.suffix in (".trec", ".run") else "scores")
    if kind not in ("trec", "scores"):
        raise DataError(f"Unknown format {kind!r}. Known: trec, scores.")
    if kind == "trec" and out is None:
        raise DataError("A TREC run needs a file; name one with --out.")
    if out is not None:
        check_writable(out)
    ranker = load(model)
    with shown(quiet=quiet):
        judged = _read(data, features=features, queries=queries)
        scores = ranker.predict(judged.candidates)
        if out is None:
            sys.stdout.writelines(f"{score!r}\n" for score in scores.tolist())
        elif kind == "trec":
            write_run(out, judged.candidates, scores)
        else:
            write_scores(out, scores)
    if out is not None and not quiet:
        _print(f"{len(scores)} documents of {len(judged)} queries ranked, written to {out}")


@app.command()
@_guarded
def evaluate(
    data: Annotated[Path, typer.Argument(help="The judged documents, a LETOR file.", show_default=False)],
    scores: Annotated[
        Path, typer.Argument(help="One score per line, or a TREC run, matched by ids.", show_default=False)
    ],
    measures: Measures = "map,ndcg@10,mean_ndcg",
    flavour: FlavourName = "standard",
    max_grade: Annotated[
        int | None, typer.Option(min=1, help="The grade ERR calls perfect; else the largest label.", show_default=False)
    ] = None,
    per_query: Annotated[
        Path | None, typer.Option(help="Write every query's values to this .csv or .json.", show_default=False)
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure how good scores are."""
    from querywise.evaluation.evaluate import evaluate as measured
    from querywise.files import check_writable
    from querywise.measures import find_flavour, find_measures
    from querywise.progress import shown
    from querywise.ranking import read_scores

    find_measures(measures)
    find_flavour(flavour)
    if per_query is not None:
        check_writable(per_query)
    with shown(quiet=quiet):
        judged = _read([data])
        values = read_scores(scores, judged.candidates)
        table = measured(values, judged, measures=measures, flavour=flavour, max_grade=max_grade)
    if per_query is not None:
        (table.write_json if per_query.suffix == ".json" else table.write_csv)(per_query)
    if as_json:
        _print_json({"queries": len(table), "flavour": table.flavour, "mean": table.mean()})
    else:
        from querywise.report.terminal import means_table

        _print(means_table(table))


@app.command()
@_guarded
def compare(
    data: Annotated[
        Path,
        typer.Argument(help="A folder with Fold1..5 or S1..S5.txt, or one LETOR file to cut up.", show_default=False),
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

    asked = _local_settings(k, view, reference)

    def fitting(method: Any) -> Any:
        fixed = {name: value for name, value in asked.items() if name in method.parameters}
        return lambda train, valid: (
            tune_or_fit(
                method.build, method.grid, fixed=fixed, train=train, valid=valid, measure=measure, flavour=flavour
            ).ranker
        )

    with shown(quiet=quiet):
        folds = _folds(data, queries, seed=seed)
        result = compared_on(
            {method.name: fitting(method) for method in chosen},
            track(folds, "Folds"),
            measures=measures,
            flavour=flavour,
        )
    if as_json:
        _print_json(result.as_json())
    else:
        from querywise.report.terminal import comparison_table

        _print(comparison_table(result))


@app.command()
@_guarded
def explain(
    model: Annotated[Path, typer.Argument(help="A folder with a nearest-neighbour model.", show_default=False)],
    data: DataFiles,
    qid: Annotated[str, typer.Option(help="The query to explain.", show_default=False)],
    show: Annotated[int, typer.Option(min=1, help="How many neighbours and features to show.")] = 10,
    features: Features = None,
    queries: Queries = None,
    as_json: AsJson = False,
) -> None:
    """Show which training queries shaped a query's model, and how it departs from the global one."""
    from dataclasses import asdict

    from querywise.explanations import explain as explained
    from querywise.storage import load

    found = explained(load(model), _read(data, features=features, queries=queries).candidates, qid)
    if as_json:
        departures = [{**asdict(each), "effect": each.effect} for each in found.departures]
        _print_json({**asdict(found), "departures": departures})
    else:
        from querywise.report.terminal import explanation_tables

        _print(explanation_tables(found, show))


@app.command()
@_guarded
def reproduce(
    paper: Annotated[str, typer.Argument(help="geng2008: k nearest neighbours.", show_default=False)],
    data: Annotated[
        Path,
        typer.Argument(help="A folder with Fold1..5 or S1..S5.txt, or one LETOR file to cut up.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and numbers.", show_default=False)],
    reference: Reference = None,
    queries: Queries = None,
    quiet: Quiet = False,
) -> None:
    """Make a paper's tables and figures anew on the data you have."""
    from querywise.errors import DataError
    from querywise.progress import shown
    from querywise.reproduction import geng2008

    if paper != "geng2008":
        raise DataError(f"Unknown paper {paper!r}. Known: geng2008.")
    with shown(quiet=quiet):
        written = geng2008.reproduce(_folds(data, queries), out, reference=None if reference is None else reference - 1)
    if not quiet:
        sys.stdout.write(written.read_text())


@app.command()
@_guarded
def methods(as_json: AsJson = False) -> None:
    """What can be fitted, one line each."""
    from querywise.methods import METHODS

    if as_json:
        _print_json(
            [
                {"name": each.name, "description": each.description, "grid": {k: list(v) for k, v in each.grid.items()}}
                for each in METHODS.values()
            ]
        )
        return
    from querywise.report.terminal import plain_table

    rows = [
        (each.name, each.description, "; ".join(f"{k} {', '.join(map(str, v))}" for k, v in each.grid.items()))
        for each in METHODS.values()
    ]
    _print(plain_table(("method", "what it is", "tried on validation data"), rows))


@app.command()
@_guarded
def demo(quiet: Quiet = False) -> None:
    """Train on data made from a seed, and print what came out."""
    from querywise.demo import run
    from querywise.progress import shown

    with shown(quiet=quiet):
        things = run()
    _print(*things)


def _local_settings(k: str | None, view: str | None, reference: int | None) -> dict[str, Any]:
    """The options of query-dependent methods, as the methods take them: columns counted from 0."""
    from querywise.errors import DataError

    fixed: dict[str, Any] = {}
    if k is not None and k != "auto":
        try:
            fixed["k"] = int(k) if k.isdigit() else float(k)
        except ValueError:
            raise DataError(f"--k {k}: expected a number of queries, a share like 0.2, or auto.") from None
    if view is not None:
        fixed["view"] = view
    if reference is not None:
        fixed["reference"] = reference - 1
    return fixed


def _read(paths: list[Path], *, features: int | None = None, queries: Path | None = None) -> Any:
    from querywise.data.letor import read_letor
    from querywise.data.queries import read_queries

    judged = read_letor(paths, features=features)
    return judged if queries is None else judged.with_queries(read_queries(queries))


def _folds(data: Path, queries: Path | None, *, seed: int = 0) -> Any:
    """The folds of a folder, or one file cut into five."""
    from querywise.data.folds import make_folds, read_folds
    from querywise.data.queries import read_queries

    if not data.is_dir():
        return make_folds(_read([data], queries=queries), seed=seed)
    folds = read_folds(data)
    return folds if queries is None else folds.with_queries(read_queries(queries))


def _read_training(
    data: list[Path], valid: list[Path], *, fold: int | None, features: int | None, queries: Path | None
) -> tuple[Any, Any]:
    from querywise.errors import DataError

    if fold is None:
        folder = next((path for path in data if path.is_dir()), None)
        if folder is not None:
            raise DataError(f"{folder}: this is a folder; say which of its folds to train on with --fold.")
        train = _read(data, features=features, queries=queries)
        return train, _read(valid, features=features, queries=queries) if valid else None
    if len(data) != 1 or valid:
        raise DataError("--fold takes one folder, and its validation part; leave out other files and --valid.")
    if not data[0].is_dir():
        raise DataError(f"{data[0]}: --fold takes a folder of folds, with Fold1..Fold5 or S1.txt..S5.txt in it.")
    folds = _folds(data[0], queries)
    if fold > len(folds):
        raise DataError(f"--fold {fold}: {data[0]} has {len(folds)} folds.")
    parts = folds[fold - 1]
    return parts.train, parts.valid


def main() -> None:
    """Run the command line."""
    app()
