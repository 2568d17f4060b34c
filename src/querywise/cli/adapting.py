"""The command that only adapts query vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import querywise.cli.options as options
from querywise.cli.inputs import retrieval_from
from querywise.cli.options import command, print_json, say
from querywise.errors import DataError
from querywise.runtime.progress import shown
from querywise.runtime.values import JsonObject

if TYPE_CHECKING:
    from querywise.retrieval.adapted_vectors import AdaptedVectors, Kind


@command
def adapt(
    data: Annotated[
        Path, typer.Argument(help="A text collection with queries and judgements, or the folder of an adapter.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write the adapter to; with --apply, the .npy file of vectors.")
    ] = None,
    vectors: options.VectorFolder = None,
    embed: options.EmbedderName = None,
    kind: Annotated[
        str, typer.Option(help="auto chooses and moves queries only where that helps; linear or by-query always do.")
    ] = "auto",
    apply: Annotated[
        Path | None, typer.Option(help="Query vectors in a .npy file, a row each, for the adapter to move.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Folder to write transform.py to, which moves vectors with numpy alone.")
    ] = None,
    skip_unknown: options.SkipUnknown = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Move query vectors to where the answers of similar judged queries are.

    Documents keep their vectors: nothing is indexed again, and any vector engine takes the result.
    With a text collection, trains an adapter. With the folder of an adapter, --apply moves vectors.
    """
    from querywise.jobs.adapt import check_export_folder, is_adapter, learn, read_adapter
    from querywise.jobs.adapt import export as write_export
    from querywise.storage import check_model_folder, save

    if export is not None:
        check_export_folder(export)
    if is_adapter(data):
        if vectors or embed:
            raise DataError(f"{data}: this adapter has been trained; leave out --vectors and --embed.")
        adapter = read_adapter(data)
    else:
        if apply is not None:
            raise DataError(f"--apply {apply}: {data} is no adapter. Train one first, with --out.")
        if out is None and export is None:
            raise DataError("Nothing would be written: name a folder for the adapter with --out.")
        if out is not None:
            check_model_folder(out)
        how = retrieval_from(vectors, embed, skip_unknown=skip_unknown)
        with shown(quiet=quiet):
            adapter, notes = learn(data, how, _kind(kind))
        if out is not None:
            save(adapter, out, notes=notes)
    done: JsonObject = {} if out is None else {"out": str(out)}
    if apply is not None or is_adapter(data):
        done |= _applied(adapter, apply, out, exported=export is not None)
    if export is not None:
        write_export(adapter, export)
        done["export"] = str(export)
    _tell(adapter, done, as_json=as_json, quiet=quiet)


def _kind(text: str) -> Kind:
    if text == "linear":
        return "linear"
    if text == "by-query":
        return "by-query"
    if text != "auto":
        raise DataError(f"--kind {text}: expected auto, linear or by-query.")
    return "auto"


def _applied(adapter: AdaptedVectors, queries: Path | None, out: Path | None, *, exported: bool) -> JsonObject:
    """Write adapted vectors, if requested."""
    from querywise.jobs.adapt import apply

    if queries is None:
        if out is not None:
            raise DataError(f"--out {out}: this adapter has been trained. Name vectors to move with --apply.")
        return {}
    if out is None:
        raise DataError(f"--apply {queries}: name the .npy file for the adapted vectors with --out.")
    return {"vectors": apply(adapter, queries, out)}


def _tell(adapter: AdaptedVectors, done: JsonObject, *, as_json: bool, quiet: bool) -> None:
    from querywise.jobs.adapt import as_json as in_json
    from querywise.jobs.adapt import p_value

    if as_json:
        print_json({**done, **in_json(adapter)})
    elif not quiet:
        p = p_value(adapter)
        tested = "" if p is None else f" Paired t test: p {p:.2g}."
        say(f"{adapter.said()}{tested} Judged queries that teach: {adapter.teachers_:,}.")
        for name, what in (("vectors", "adapted vectors, saved"), ("out", "Saved in"), ("export", "Exported to")):
            if name in done:
                say(f"{done[name]:,} {what}" if name == "vectors" else f"{what} {done[name]}")
