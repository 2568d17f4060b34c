"""The command line itself, options shared by several commands, and how a command fails and prints."""

from __future__ import annotations

import functools
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

from querywise.errors import QuerywiseError
from querywise.runtime.progress import Terminated, never_swallowed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from querywise.runtime.values import Json

app = typer.Typer(
    help="Learning to rank, query by query.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_OPTIONS = {"address": "cluster"}  # arguments of functions that have another name here
_NAMED = r"""\b{}=(?:True\b|'([^']*)'|"([^"]*)"|([^\s,;:)]*[^\s,;:).]))"""  # as errors write it, with its value

DataFiles = Annotated[
    list[Path], typer.Argument(help="LETOR files (plain, .gz, .xz), shards or Parquet logs, read as one set.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only results, without progress and comments.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Measures = Annotated[
    str, typer.Option(help="Measures, separated by commas: map, mrr, p@10, ndcg@10, mean_ndcg, dcg@5, err.")
]
VerdictMeasures = Annotated[
    str,
    typer.Option(
        help="Measures, separated by commas: map, mrr, p@10, ndcg@10, mean_ndcg, dcg@5, err. Parameters are chosen and "
        "the verdict is given by the first."
    ),
]
FormerMeasure = Annotated[str | None, typer.Option("--measure", hidden=True)]
FlavourName = Annotated[
    str, typer.Option(help="The conventions of measures: standard, letor4, mslr, trec or lightgbm.")
]
Features = Annotated[
    int | None, typer.Option(min=1, help="Number of columns, for sparse files that leave out the last ones.")
]
Queries = Annotated[
    Path | None,
    typer.Option(
        help="queries.jsonl with the text, class or columns of each query; by default the one beside the data, if any."
    ),
]
Neighbours = Annotated[
    str | None,
    typer.Option(
        help="Nearest training queries to learn from: a number, a share like 0.2, or auto, chosen on validation data."
    ),
]
Clusters = Annotated[
    str | None,
    typer.Option(
        help="Clusters of naive, select-ranker and transform: a number, a share, or auto, chosen on validation data."
    ),
]
ViewName = Annotated[
    str | None,
    typer.Option(
        help="The view by which queries are compared: top-mean, text, columns, two-models, divergence, vector, "
        "signals, several joined by +, learned:VIEW or gradient:VIEW."
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        help="The feature that picks the top documents, by its name or its number in the file; by default the single "
        "model picks them. For select-ranker and transform the base model; by default the best feature."
    ),
]
Judgements = Annotated[
    Path | None, typer.Option("--qrels", help="Judgments of a text collection, if they are elsewhere.")
]
SkipUnknown = Annotated[
    bool,
    typer.Option("--skip-unknown", help="Leave out judgments and vectors of documents that are not in the corpus."),
]
Top = Annotated[
    int | None, typer.Option(min=1, help="Documents per query that BM25 retrieves: 100, or 50 beside vectors.")
]
Language = Annotated[
    str, typer.Option(help="The language of the stemmer for text: english, german, …; none does not stem.")
]
VectorFolder = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="<path>",
        help="Vectors of a text collection: a folder with documents.npy, queries.npy and the ids in .json, or with "
        ".safetensors or .parquet. The documents that they find are candidates too, and similarity is a feature. May "
        "be repeated: the vectors of several embedders are concatenated, each with a share that is chosen by the "
        "judgments.",
    ),
]
EmbedderName = Annotated[
    list[str] | None,
    typer.Option(
        metavar="<str>",
        help="The embedder of a text collection: lsa (lsa:N in N dimensions), static, "
        "sentence-transformers:NAME_OR_FOLDER, or an address like http://localhost:8080/v1/embeddings#MODEL. May be "
        "repeated, and given beside --vectors.",
    ),
]
EngineFeatures = Annotated[
    Path | None,
    typer.Option(
        help="JSON with a query for every feature, as `querywise fields --engine` writes it: the features are their "
        "scores, as scores of named queries. OpenSearch and Elasticsearch, no plugin needed."
    ),
]
EngineStore = Annotated[
    str | None,
    typer.Option(help="Or the feature set (sltr) or Solr's feature store in the engine that computes the features."),
]
EngineHeaders = Annotated[
    list[str] | None,
    typer.Option("--header", help="A header to send, as in 'Authorization: ApiKey …'; may be repeated."),
]
QueryEmbedder = Annotated[
    list[str] | None,
    typer.Option(
        metavar="<str>",
        help="The embedder of queries, if the index has vectors; an address that only the index names is not called. "
        "If there are several embedders, name all, in the order of the index, or those that it does not know.",
    ),
]
VectorTop = Annotated[int | None, typer.Option(min=1, help="Documents per query that vectors retrieve; by default 50.")]
VectorSearch = Annotated[
    str,
    typer.Option(
        help="How vectors find documents: exact, or usearch, which is approximate and for large collections (needs "
        "the extra usearch). Its recall is printed."
    ),
]
Adapt = Annotated[
    str,
    typer.Option(
        help="Whether query vectors learn from the judgments of other queries: auto, if that gains something; off; "
        "linear, one map for all queries; by-query."
    ),
]
CandidatesFrom = Annotated[
    str,
    typer.Option(
        "--candidates",
        help="Which documents of a text collection are ranked: found, those that BM25 and vectors find; judged, those "
        "judged for a query, as in feature logs.",
    ),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Run the work on a Ray cluster: auto starts one here, ray://host:port is one that is already running.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(help="The memory to use at most, as in 4GB, when training on shards; the rest stays on disk."),
]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        sys.stdout.write(f"querywise {installed('querywise')}\n")
        raise typer.Exit


def fail(message: str, code: int = 2) -> NoReturn:
    """End the command with a message."""
    console = _console(stderr=True)
    console.print("error:", style="bold red", end=" ")
    console.print(message, highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def say_renamed(names: Iterable[str | None], *, quiet: bool) -> None:
    """Print one sentence to standard error for methods given by a former name."""
    from querywise.methods import current_name

    now = {name: current_name(name) for name in names if name is not None and current_name(name) != name}
    if now and not quiet:
        told = " and ".join(f"{old} is called {new}" for old, new in now.items())
        sys.stderr.write(f"The method {told} now; the old name goes on working.\n")


def measures_from(measures: str, former: str | None, *, quiet: bool) -> str:
    """Return the checked names of measures; put the one of the former option --measure first, with a notice."""
    from querywise.measures.formulas import find_measure, find_measures

    names = [each.name for each in find_measures(measures)]
    if former is not None:
        names = list(dict.fromkeys([find_measure(former).name, *names]))
        if not quiet:
            sys.stderr.write(f"--measure is now the first of --measures: --measures {','.join(names)}\n")
    return ",".join(names)


def guarded_command(command: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """End on bad input with exit code 2 and one message, on an interrupt with 130 (SIGTERM: 143); no tracebacks."""

    @functools.wraps(command)
    def guarded(*arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        try:
            with never_swallowed():
                result = command(*arguments, **options)
            sys.stdout.flush()  # here, so that a full disk is noticed
            return result
        except QuerywiseError as error:
            fail(_worded(error, inspect.signature(command).parameters))
        except KeyboardInterrupt as stop:
            fail(_interrupted(stop), 143 if isinstance(stop, Terminated) else 130)
        except BrokenPipeError:
            # The reader closed the pipe, as `| head` does.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except OSError as error:
            fail(f"the result could not be written ({error.strerror or error}).")
        except MemoryError:
            fail("this machine has too little memory for this data.")

    return guarded


def command(work: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Register a function as a guarded command of its name; its help is its docstring, a line per paragraph."""
    paragraphs = (inspect.getdoc(work) or "").split("\n\n")
    return app.command(help="\n\n".join(" ".join(each.split()) for each in paragraphs))(guarded_command(work))


def _interrupted(stop: KeyboardInterrupt) -> str:
    """Say what is kept of interrupted work, and which command continues it."""
    kept = getattr(stop, "__notes__", [])
    if not kept:
        return "interrupted; what was being written has not been changed."
    program = Path(sys.argv[0])
    typed = ["python", "-m", program.parent.name] if program.name == "__main__.py" else ["querywise"]
    again = shlex.join([*typed, *sys.argv[1:]])
    return f"interrupted; {'; '.join(kept)}. The same command goes on from there: {again}"


def _worded(error: QuerywiseError, options: Container[str]) -> str:
    """Return an error's message with a command's options instead of arguments: `scores='a'` becomes `--scores a`.

    An option for an argument that the message does not name is appended.
    """
    message, unsaid = str(error), []
    for argument in error.arguments:
        option = _OPTIONS.get(argument, argument)
        flag = f"--{option.replace('_', '-')}"
        if option in options:
            message, found = re.subn(_NAMED.format(argument), functools.partial(_said, flag), message)
            unsaid += [] if found else [flag]
    return f"{message} On the command line: {', '.join(unsaid)}." if unsaid else message


def _said(flag: str, argument: re.Match[str]) -> str:
    return " ".join([flag, *filter(None, argument.groups())])


def print_json(content: Json) -> None:
    """Print as JSON."""
    from querywise.runtime.values import json_text

    sys.stdout.write(json_text(content))


def say(*things: RenderableType) -> None:
    """Print texts and tables."""
    console = _console(highlight=False, width=None if sys.stdout.isatty() else 160)
    for thing in things:
        console.print(thing, soft_wrap=isinstance(thing, str) and not sys.stdout.isatty())  # commands stay on one line


def _console(**how: Any) -> Console:
    """Return a console that prints texts literally, with unprintable characters escaped: they may be anybody's data."""
    from rich.console import Console
    from rich.text import Text

    from querywise.display.words import printable

    class Escaping(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    return Escaping(markup=False, emoji=False, **how)
