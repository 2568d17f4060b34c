"""The command that writes a model for the engine that will run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from querywise.cli.app import app
from querywise.cli.options import AsJson, Features, Queries, Quiet, guarded_command, print_json, say

if TYPE_CHECKING:
    from querywise.exports.target import Written
    from querywise.runtime.values import Json, JsonObject

_MANY = 100


@app.command()
@guarded_command
def export(
    model: Annotated[Path, typer.Argument(help="A model folder.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            help="The engine: opensearch, elasticsearch (its plugin), elasticsearch-native (its own "
            "learning_to_rank), solr or vespa; for weights of runs, as fuse writes them, opensearch-hybrid, "
            "elasticsearch-retriever, vespa or postgres.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the export to.", show_default=False)],
    data: Annotated[
        Path | None,
        typer.Option(
            help="LETOR file whose documents the engine is checked against; else made up.", show_default=False
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="What the feature set and the models are called.")] = "querywise",
    feature_set: Annotated[
        Path | None,
        typer.Option(
            help="JSON file that says how the engine computes the features, as the engine takes it; else a template.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Documents in the check.")] = 100,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Export though the data looks normalised within queries.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over an earlier export though files in it were changed since.")
    ] = False,
    features: Features = None,
    queries: Queries = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as a search engine reads it, with a check that the engine scores as querywise does.

    Query-dependent models come with a router: which model answers a query, and the request to the engine.
    """
    from querywise.contracts.missing import missing_for
    from querywise.errors import DataError
    from querywise.exports.targets import find_target
    from querywise.exports.writing import check_export_folder, export_model
    from querywise.exports.writing import read_features as features_from
    from querywise.retrieval.reading import read_judged
    from querywise.runtime.progress import shown
    from querywise.storage import load

    find_target(to)
    lonely = next((option for option, given in (("queries", queries), ("features", features)) if given), None)
    if data is None and lonely is not None:
        raise DataError(f"--{lonely} says more of the documents in --data; name that file too, or leave it out.")
    check_export_folder(out, to, force=force)
    ranker = load(model)
    given = None if feature_set is None else features_from(feature_set)
    with shown(quiet=quiet):
        missing = missing_for(ranker)
        documents = None if data is None else read_judged(data, features=features, queries=queries, missing=missing)
        done = export_model(
            ranker, to, out, name=name, data=documents, features=given, rows=rows, as_is=as_is, force=force
        )
    if as_json:
        print_json({"out": str(out), "engine": to, **_as_json(done)})
    elif not quiet:
        if done.weights:
            _say_weights(done, out)
        else:
            _say_models(done, out)


def _as_json(done: Written) -> JsonObject:
    if done.weights:
        return {"weights": dict(done.weights), "by": done.by}
    routing: Json = None if done.routing is None else {"by": done.routing.by, "requests": done.routing.requests}
    exact = None if done.exactness is None else done.exactness._asdict()
    return {
        "models": done.models,
        "routing": routing,
        "exactness": exact,
        "unfinished_features": done.unfinished,
    }


def _say_weights(done: Written, out: Path) -> None:
    said = ", ".join(f"{run} {weight:.4g}" for run, weight in done.weights.items())
    say(f"Weights of {len(done.weights)} runs for {done.engine} written to {out}: {said}")
    if done.by:
        say(f"Queries have weights of their own, by {' and '.join(done.by)}: router.py")
    say(f"Fill in what is marked EDIT_ME. Read {out / 'README.md'}")


def _say_models(done: Written, out: Path) -> None:
    from querywise.exports.model_files import exactness_sentence

    say(f"{len(done.models)} model{'s' if len(done.models) > 1 else ''} for {done.engine} written to {out}")
    if len(done.models) > _MANY:
        say("To keep them few, fit with --set models=20, or --clusters.")
    if done.unfinished:
        say("The features are a template: fill in what is marked EDIT_ME, or export again with --feature-set.")
    if done.routing is not None:
        count = "one request" if done.routing.requests == 1 else "two requests"
        less = ", one where a query comes with its class" if "class" in done.routing.by and count[:3] == "two" else ""
        by = " and ".join(done.routing.by)
        say(f"Queries are routed by {by}, with {count} to the engine each{less}: router.py")
    if done.exactness is None:
        say("Give --data, the training file: its features are then looked at, and the engine is checked with them.")
    else:
        say(exactness_sentence(done.exactness))
    say(f"Read {out / 'README.md'}")
