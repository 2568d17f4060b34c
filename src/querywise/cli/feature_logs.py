"""The command that logs an engine's features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import querywise.cli.options as options
from querywise.cli.inputs import retrieval_from
from querywise.cli.options import command, print_json, say
from querywise.runtime.progress import shown


@command
def log(
    engine: Annotated[str, typer.Argument(help="opensearch, elasticsearch or solr.")],
    queries: Annotated[
        Path,
        typer.Option(help="Judged queries: a folder with queries.jsonl and qrels.tsv, or the file of queries."),
    ],
    url: Annotated[str, typer.Option(help="Where the engine is, as in http://localhost:9200.")],
    index: Annotated[str, typer.Option(help="The index or collection whose documents are judged.")],
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")],
    features: options.EngineFeatures = None,
    store: options.EngineStore = None,
    judgements: options.Judgements = None,
    header: options.EngineHeaders = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds of silence to wait.")] = 60.0,
    compare: Annotated[
        Path | None,
        typer.Option(help="A text collection of the same documents: which features differ from ours, by how much."),
    ] = None,
    language: options.Language = "english",
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Log the features that an engine computes for judged queries, in a Parquet file to train on.

    The engine is only queried; nothing is written there. A model that is trained on the file is exported with the same
    features, so it sees the same numbers when it is used.
    """
    from querywise.errors import DataError
    from querywise.exports.scripts.check_parity import EngineError, read_headers
    from querywise.exports.writing import read_features
    from querywise.jobs.log import EngineIndex, differences, judged_queries, log_features, told, write
    from querywise.report.terminal import plain_table
    from querywise.runtime.files import check_writable

    try:
        sent = read_headers(header or [])
    except EngineError as error:
        raise DataError(str(error)) from None
    asked = EngineIndex(engine, url, index, store, None if features is None else read_features(features), sent, timeout)
    check_writable(out)
    with shown(quiet=quiet):
        logged = log_features(asked, *judged_queries(queries, judgements))
        write(logged, out)
        how = retrieval_from(None, None, language=language)
        found = [] if compare is None else differences(logged.judged, compare, how)
    rows, columns = logged.judged.candidates.features.shape
    if as_json:
        differ = [each._asdict() for each in found]
        print_json(
            {"out": str(out), "documents": rows, "features": columns, "absent": logged.absent, "compared": differ}
        )
    elif not quiet:
        say(f"{rows} documents of {len(logged.judged)} queries with {columns} features written to {out}")
        if logged.absent:
            say(f"{logged.absent} judged documents are not in {index}, and were left out.")
        if found:
            say(plain_table(("feature", "values that differ", "theirs / ours", "farthest: theirs, ours"), told(found)))
