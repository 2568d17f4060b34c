"""Serving a model over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import querywise.cli.options as options
from querywise.cli.options import command, print_json, say
from querywise.errors import DataError
from querywise.runtime.progress import shown

if TYPE_CHECKING:
    from querywise.exports.target import Written
    from querywise.runtime.values import Json, JsonObject
    from querywise.service.api import Api
    from querywise.service.limits import Hosting
    from querywise.service.lookup import Lookup

Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all of them.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(help="A host name that requests may use, beside the address listened on; may be repeated."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="A file with the token that requests must carry; by default $QUERYWISE_TOKEN, if set."),
]
Against = Annotated[
    Path | None,
    typer.Option(help="A second model, to compare with: their rankings are interleaved. Needs --log."),
]
Log = Annotated[
    Path | None,
    typer.Option(help="A folder for the log of interleaved rankings and clicks; `querywise online` reads it."),
]
Share = Annotated[float, typer.Option(min=0, max=1, help="With --against: the share of queries that are interleaved.")]


@command
def serve(
    model: Annotated[Path | None, typer.Argument(help="A folder with a model.")] = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    allowed_host: AllowedHost = None,
    index: Annotated[
        Path | None, typer.Option(help="An index folder, to search in on the page and at /v1/search.")
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option(help="A LETOR file whose queries can be chosen on the page.")
    ] = None,
    queries: options.Queries = None,
    embed: options.QueryEmbedder = None,
    demo: Annotated[bool, typer.Option("--demo", help="Serve the embedded collection, searchable.")] = False,
    token_file: TokenFile = None,
    judge: Annotated[
        Path | None,
        typer.Option(help="A file for the grades given to results on the page, as TREC qrels; needs a token."),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="Serve the judging page, without a model: the file of `querywise next`, or qrels whose pairs are "
            "graded again. Needs --collection and --judge."
        ),
    ] = None,
    collection: Annotated[
        Path | None, typer.Option(help="With --pairs: the text collection with the documents and queries.")
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(help="With --pairs: a run that the draw was made from, to compare the systems by DCG@10."),
    ] = None,
    against: Against = None,
    log: Log = None,
    share: Share = 1.0,
    max_body: Annotated[float, typer.Option(min=0.001, help="Longest request, in megabytes.")] = 16.0,
    max_documents: Annotated[int, typer.Option(min=1, help="Most documents in a request.")] = 20_000,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds an answer may take.")] = 10.0,
    quiet: options.Quiet = False,
) -> None:
    """Serve ranking requests over HTTP, with a page at / to inspect the model; a model replaced on disk is reloaded.

    With --pairs the page is for judging instead, by people with names: see docs/judging.md.
    """
    if pairs is not None or collection is not None or run:
        unused = (model, index, data, embed, against, log, demo or None)
        if pairs is None or collection is None or judge is None or any(each is not None for each in unused):
            raise DataError(
                "The judging page takes --pairs, --collection and --judge, and neither a model nor an index."
            )
        token = _prepared(token_file, None, None, quiet=quiet)
        from querywise.jobs.judging import open_desk
        from querywise.service.desk import desk_api

        with shown(quiet=quiet):
            desk = open_desk(pairs, collection, judge, token, queries, run or ())
        _run(desk, host, port, allowed_host, desk_api(desk))
        return
    if (model is None) != demo:
        raise DataError(
            "Name a model folder or pass --demo for the embedded collection, not both. For judging only, pass --pairs."
        )
    if demo and (index or data or queries or embed):
        raise DataError("--demo has an index and queries of its own; leave out --index, --data, --queries and --embed.")
    token = _prepared(token_file, against, log, quiet=quiet)
    import tempfile

    from querywise.service.judging import JudgementFile
    from querywise.service.limits import Limits
    from querywise.service.loaded_model import ModelFolder
    from querywise.service.online import Online
    from querywise.service.service import Service

    if judge is not None:
        JudgementFile.opened(judge, token)  # report problems with it before anything is loaded
    limits = Limits(int(max_body * 1e6), max_documents, seconds=timeout)
    with tempfile.TemporaryDirectory() as place:
        with shown(quiet=quiet):
            if model is None:
                folder, lookup = _demo(Path(place) / "model")
            else:
                folder, lookup = model, _lookup(model, index, data, queries, embed)
            retrain = None if judge is None else _retraining(folder, lookup, judge)
            models = ModelFolder(folder)
            online = None if log is None else Online.opened(log, against, share)
            service = Service(models, lookup, limits=limits, token=token, judge=judge, retrain=retrain, online=online)
        _run(service, host, port, allowed_host)


@command
def gateway(
    engine: Annotated[str, typer.Argument(help="opensearch, elasticsearch or solr.")],
    model: Annotated[Path, typer.Argument(help="A folder with a model, fitted on features that the engine computes.")],
    url: Annotated[str, typer.Option(help="The engine's address, as in http://localhost:9200.")],
    index: Annotated[str, typer.Option(help="The index or collection to search in.")],
    first_stage: Annotated[
        Path,
        typer.Option(
            help="JSON with the search that finds candidates: the body of a search with {{keywords}} for the user's "
            "words, or Solr's parameters with $keywords."
        ),
    ],
    features: options.EngineFeatures = None,
    store: options.EngineStore = None,
    candidates: Annotated[int, typer.Option(min=1, max=1000, help="How many of the first documents to rank.")] = 100,
    header: options.EngineHeaders = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    allowed_host: AllowedHost = None,
    token_file: TokenFile = None,
    against: Against = None,
    log: Log = None,
    share: Share = 1.0,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds that the engine's answer may take, and then the model's.")
    ] = 10.0,
    quiet: options.Quiet = False,
) -> None:
    """Answer searches over HTTP: the engine finds documents and computes features, and the model orders them.

    For models that no engine can run, and to compare two models by users' clicks in front of any of
    the three engines. If the model fails on a query, its documents come in the engine's order.
    """
    from querywise.exports.scripts.check_parity import EngineError, read_headers
    from querywise.exports.writing import read_features

    token = _prepared(token_file, against, log, quiet=quiet)
    from querywise.jobs.gateway import open_gateway
    from querywise.jobs.log import EngineIndex
    from querywise.service.limits import Limits
    from querywise.service.loaded_model import ModelFolder
    from querywise.service.online import Online
    from querywise.service.service import Service

    try:
        sent = read_headers(header or [])
    except EngineError as error:
        raise DataError(str(error)) from None
    asked = EngineIndex(engine, url, index, store, None if features is None else read_features(features), sent, timeout)
    limits = Limits(seconds=timeout)
    with shown(quiet=quiet):
        models = ModelFolder(model)
        opened = open_gateway(asked, read_features(first_stage), candidates, limits)
        online = None if log is None else Online.opened(log, against, share)
        service = Service(models, limits=limits, token=token, online=online, gateway=opened)
    _run(service, host, port, allowed_host)


def _prepared(token_file: Path | None, against: Path | None, log: Path | None, *, quiet: bool) -> str | None:
    """Return the token of a service about to start; its log goes to standard error."""
    import logging

    if against is not None and log is None:
        raise DataError("--against compares two models by clicks; name a folder to log them to: --log FOLDER.")
    token = _token(token_file)
    _check_installed()
    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return token


def _run(service: Hosting, host: str, port: int, allowed_host: list[str] | None, api: Api | None = None) -> None:
    import logging

    from querywise.service.server import run

    if service.token is None and host not in ("127.0.0.1", "localhost", "::1"):
        logging.getLogger("querywise.service").warning("anyone who reaches %s can ask: there is no token", host)
    run(service, host, port, api, allowed_host=allowed_host or ())


def _check_installed() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("fastapi", "uvicorn", "httptools", "msgspec") if find_spec(name) is None]
    if missing:
        raise DataError(f"Serving needs {', '.join(missing)}. Install it with: pip install 'querywise[serve]'")


def _token(file: Path | None) -> str | None:
    import os

    from querywise.runtime.files import read_text

    token = os.environ.get("QUERYWISE_TOKEN") if file is None else read_text(file).strip()
    if token is not None and (not token or not token.isascii() or any(each.isspace() for each in token)):
        where = "QUERYWISE_TOKEN" if file is None else str(file)
        raise DataError(f"{where}: a token is one word of ASCII letters, digits and signs.")
    return token


def _lookup(
    model: Path, index: Path | None, data: list[Path] | None, queries: Path | None, embed: list[str] | None
) -> Lookup:
    from querywise.data.query_table import read_queries
    from querywise.data.rows import reading_for
    from querywise.retrieval.index import load_index
    from querywise.retrieval.reading import read_judged
    from querywise.service.lookup import Lookup
    from querywise.storage import read_manifest

    judged = None
    if data:
        judged = read_judged(data, queries=queries, missing=reading_for(read_manifest(model).missing))
    return Lookup(
        None if index is None else load_index(index),
        judged,
        None if queries is None else read_queries(queries),
        embed=tuple(embed or ()),
    )


def _retraining(model: Path, lookup: Lookup, judge: Path) -> str | None:
    """Return the command that retrains the model, on the new judgments beside its original data.

    Words in capitals stand for unknown values.
    """
    import shlex

    from querywise.retrieval.features import BOTH
    from querywise.retrieval.indexed_vectors import has_vectors, known_embedders
    from querywise.retrieval.words import ENGLISH
    from querywise.storage import read_manifest

    index, notes = lookup.index, read_manifest(model).notes
    if index is None:
        return None
    words: list[object] = ["querywise", "fit", "FOLDER", "--also-judged", judge, *_method_words(notes)]
    if index.tokeniser.language != ENGLISH:
        words += ["--language", index.tokeniser.language or "none"]
    if has_vectors(index):
        made, known = known_embedders(index.notes), notes.get("vectors")
        names = (
            lookup.embed
            if len(lookup.embed) == len(made)
            else [None if each is None else each["name"] for each in made]
        )
        for name in names:
            words += ["--vectors", "VECTORS"] if name is None else ["--embed", name]
        for name in ("top", "vector_top"):
            depth = known.get(name, BOTH) if isinstance(known, dict) else BOTH
            words += [] if depth == BOTH else [f"--{name.replace('_', '-')}", depth]
    return shlex.join(map(str, [*words, "--out", model]))


def _method_words(notes: JsonObject) -> list[object]:
    """Return the options for the fitted method, and for the settings that were not tuned."""
    from querywise.methods import METHODS, described

    method, chosen, tried = notes.get("method"), notes.get("parameters"), notes.get("tried")
    if method not in METHODS or not isinstance(method, str):
        return ["--method", "METHOD"]
    fixed = dict(chosen) if isinstance(chosen, dict) else {}
    for trial in tried if isinstance(tried, list) else []:
        own = trial.get("parameters") if isinstance(trial, dict) else None
        fixed = {name: value for name, value in fixed.items() if isinstance(own, dict) and own.get(name) == value}
    words: list[object] = ["--method", method]
    for each in described(method, fixed):
        if each["name"] in fixed and each["value"] not in (None, each["default"]):
            value = each["value"]
            words += ["--set", f"{each['name']}={str(value).lower() if isinstance(value, bool) else value}"]
    return words


def _demo(folder: Path) -> tuple[Path, Lookup]:
    from querywise.jobs.demo import fitted
    from querywise.service.lookup import Lookup

    found = fitted(folder)
    return folder, Lookup(found.pages, found.judged, found.known, found.copied)


_MANY = 100


@command
def export(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    to: Annotated[
        str,
        typer.Option(
            help="The engine: opensearch, elasticsearch (its plugin), elasticsearch-native (its own "
            "learning_to_rank), solr or vespa; for weights of runs, as fuse writes them, opensearch-hybrid, "
            "elasticsearch-retriever, vespa or postgres."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the export to.")],
    data: Annotated[
        Path | None,
        typer.Option(help="LETOR file whose documents the engine is checked with; by default they are made up."),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the feature set and of the models.")] = "querywise",
    feature_set: Annotated[
        Path | None,
        typer.Option(
            help="JSON file that says how the engine computes the features, in its own format; by default a template."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Documents in the check.")] = 100,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Export even if the data looks normalized within queries.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an earlier export even if files in it were changed since.")
    ] = False,
    features: options.Features = None,
    queries: options.Queries = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a model in a search engine's format, with a check that the engine scores as querywise does.

    Query-dependent models come with a router that picks a query's model and builds the request to the
    engine.
    """
    from querywise.contracts.asking import missing_for
    from querywise.exports.targets import find_target
    from querywise.exports.writing import check_export_folder, export_model
    from querywise.exports.writing import read_features as features_from
    from querywise.retrieval.reading import read_judged
    from querywise.storage import load_ranker

    find_target(to)
    lonely = next((option for option, given in (("queries", queries), ("features", features)) if given), None)
    if data is None and lonely is not None:
        raise DataError(f"--{lonely} describes the documents in --data; pass --data too, or leave it out.")
    check_export_folder(out, to, force=force)
    ranker = load_ranker(model)
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
    return {"models": done.models, "routing": routing, "exactness": exact, "unfinished_features": done.unfinished}


def _say_weights(done: Written, out: Path) -> None:
    said = ", ".join(f"{run} {weight:.4g}" for run, weight in done.weights.items())
    say(f"Weights of {len(done.weights)} runs for {done.engine} written to {out}: {said}")
    if done.by:
        say(f"Queries have weights of their own, by {' and '.join(done.by)}: router.py")
    say(f"Fill in what is marked EDIT_ME. Read {out / 'README.md'}")


def _say_models(done: Written, out: Path) -> None:
    from querywise.exports.manifest import exactness_sentence

    say(f"{len(done.models)} model{'s' if len(done.models) > 1 else ''} for {done.engine} written to {out}")
    if len(done.models) > _MANY:
        say("For fewer models, fit with --set models=20, or --clusters.")
    if done.unfinished:
        say("The features are a template: fill in what is marked EDIT_ME, or export again with --feature-set.")
    if done.routing is not None:
        count = "one request" if done.routing.requests == 1 else "two requests"
        less = ", one where a query comes with its class" if "class" in done.routing.by and count[:3] == "two" else ""
        by = " and ".join(done.routing.by)
        say(f"Queries are routed by {by}, with {count} to the engine each{less}: router.py")
    if done.exactness is None:
        say(
            "Give --data, the training file: its features are then checked, and the engine's scores are tested on them."
        )
    else:
        say(exactness_sentence(done.exactness))
    say(f"Read {out / 'README.md'}")
