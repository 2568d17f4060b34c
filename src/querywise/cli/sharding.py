"""The command that writes shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from querywise.cli.app import app
from querywise.cli.options import AsJson, Features, Queries, Quiet, guarded_command, print_json, say


@app.command()
@guarded_command
def convert(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="LETOR files (plain, .gz, .xz), feature logs (.parquet, or folders of such files), or shards.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="Folder to write to; shards that are there are replaced as a whole.", show_default=False),
    ],
    rows: Annotated[int, typer.Option(min=1, help="Rows per shard, about: no query is split.")] = 100_000,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Or so many shards of about the same number of rows; everything is then read before it is written.",
            show_default=False,
        ),
    ] = None,
    qid: Annotated[str, typer.Option(help="A log's column of query ids.")] = "qid",
    label: Annotated[str, typer.Option(help="A log's column of labels; none: nobody judged anything.")] = "label",
    docid: Annotated[str, typer.Option(help="A log's column of document ids, if it has one.")] = "docid",
    query_group: Annotated[
        str, typer.Option(help="A log's column of groups of queries, which folds keep together, if it has one.")
    ] = "query_group",
    features: Features = None,
    queries: Queries = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write feature files as shards: Parquet files of whole queries, with feature names and checksums.

    Files are read one at a time, so the data may be larger than memory. The folder can be given to the other commands
    as it is.
    """
    from querywise.data.parquet.conversion import convert as converted
    from querywise.data.parquet.logs import LogColumns
    from querywise.runtime.progress import shown

    columns = LogColumns(qid, None if label == "none" else label, docid, query_group)
    with shown(quiet=quiet):
        made = converted(data, out, rows=rows, shards=shards, columns=columns, features=features, queries=queries)
    if as_json:
        print_json(
            {
                "out": str(out),
                "shards": len(made.files),
                "rows": made.rows,
                "queries": len(made),
                "features": made.feature_count,
            }
        )
    elif not quiet:
        files = f"{len(made.files)} shard{'' if len(made.files) == 1 else 's'}"
        say(
            f"{made.rows} documents of {len(made)} queries with {made.feature_count} features written to {out}: {files}"
        )
