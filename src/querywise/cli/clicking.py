"""The command that derives judgments from a click log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import querywise.cli.options as options
from querywise.cli.inputs import working
from querywise.cli.options import command, print_json, say
from querywise.errors import DataError
from querywise.runtime.progress import shown

if TYPE_CHECKING:
    from querywise.clicks.folder import JudgmentCounts
    from querywise.jobs.clicks import LogFindings
    from querywise.runtime.values import JsonObject


@command
def clicks(
    log: Annotated[
        str,
        typer.Argument(
            help="A click log: CSV, TSV or Parquet with a row for every document shown, a file with one page per line, "
            "OpenSearch's UBI as NDJSON, or the address of an engine with UBI's indices."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the judgments to.")],
    collection: Annotated[
        Path | None,
        typer.Option(help="The text collection that was searched; OUT is then a collection with judgments."),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="A feature log of what was shown, with document ids; OUT then has its features.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="The click model: pbm, ubm, dbn, sdbn, dcm, cascade, coec or document-ctr. By default pbm or ubm, "
            "whichever predicts later clicks better, or document-ctr if the log cannot tell position bias."
        ),
    ] = None,
    action: Annotated[
        list[str] | None, typer.Option(help="An action of UBI's events that counts as a click; may be repeated.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Read only the rows of this device, by the log's device column.")
    ] = None,
    without_bots: Annotated[
        bool, typer.Option("--without-bots", help="Leave out sessions that are unlikely to be people's.")
    ] = False,
    weights: Annotated[
        bool, typer.Option("--weights/--no-weights", help="Weight queries by how certain their judgments are.")
    ] = False,
    borrow: Annotated[
        str, typer.Option(help="Whether rare queries borrow from similar ones: auto (if that helps), on or off.")
    ] = "auto",
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="With --features: OUT has pairs weighted by inverse propensity to learn from, a query for every "
            "clicked document, instead of gains.",
        ),
    ] = False,
    report: Annotated[bool, typer.Option("--report", help="Write report.html beside the judgments.")] = False,
    memory: Annotated[
        str | None, typer.Option(help="Reject a log if reading it takes more memory than this, as in 2GB.")
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Derive judgments from a click log, with standard errors.

    Compares click models on later pages, and says whether the log can tell position bias from
    relevance. If it can, judgments are freed of the bias; if not, they are clicks over impressions,
    and it says what would help.
    """
    from querywise.clicks.folder import OUTPUT
    from querywise.clicks.readers import CLICKS
    from querywise.jobs.clicks import ClickOptions, learn, write

    if borrow not in ("auto", "on", "off"):
        raise DataError(f"--borrow {borrow}: expected auto, on or off.")
    if collection is not None and features is not None:
        raise DataError("--collection and --features: judgments are joined with one of them. Name one.")
    OUTPUT.check(out)
    asked = ClickOptions(model, tuple(action or CLICKS), without_bots, weights, borrow, pairs, device)
    with shown(quiet=quiet), working(None, memory):
        found = learn(log, asked)
        written = write(out, found, asked, collection=collection, features=features, report=report, source=log)
    if as_json:
        print_json(_as_json(found, written, out))
    elif not quiet:
        _say(found, written, out)


def _say(found: LogFindings, written: JudgmentCounts, out: Path) -> None:
    from querywise.report.terminal import plain_table

    say(*found.told)
    if found.qualities:
        ordered = sorted(found.qualities.items(), key=lambda each: -each[1].likelihood)
        rows = [
            (name, f"{each.likelihood:.4f}", f"{each.perplexity:.4f}", f"{each.conditional:.4f}")
            for name, each in ordered
        ]
        heads = ("click model, on the last fifth of the pages", "log-likelihood", "perplexity", "given clicks above")
        say(plain_table(heads, rows))
    say(found.known.reason)
    if not found.known.known and found.known.plan:
        total = sum(each.pages for each in found.known.plan)
        say(
            f"Exchanging two neighboring positions at random in {total:,} pages of queries that come ten times or more "
            "would determine the position curve to about 10 %; the report has how many for which positions."
        )
    if found.borrowing is not None:
        _say_borrowing(found)
    how = "debiased" if found.judgments.debiased else "not debiased"
    say(
        f"{written.judgments:,} judgments of {written.queries:,} queries by {found.judgments.model} ({how}), written "
        f"to {out}."
    )
    if written.unknown:
        say(f"{written.unknown:,} judgments are left out: their query or document is not in the data that was named.")


def _say_borrowing(found: LogFindings) -> None:
    from querywise.display.words import p_value
    from querywise.report.terminal import plain_table

    each = found.borrowing
    assert each is not None
    if not each.share:
        say(
            "Rare queries use only their own clicks: on earlier pages, borrowing from similar queries predicted "
            "clicks no better."
        )
        return
    rows = [(band.name, f"{band.queries:,}", f"{band.gain:+.4f}", p_value(band.p)) for band in each.bands]
    say(plain_table(("earlier pages of a query", "queries", "gain in log-likelihood", "p"), rows))
    verdict = "borrow" if each.helps else "do not borrow"
    say(
        f"Rare queries {verdict}: with clicks under queries similar by {each.kind} (share {each.share:g}), the "
        f"log-likelihood of a later click or skip changes by {each.gain:+.4f} per query ({p_value(each.p)})."
    )


def _as_json(found: LogFindings, written: JudgmentCounts, out: Path) -> JsonObject:
    known = found.known
    return {
        "out": str(out),
        "model": found.judgments.model,
        "debiased": found.judgments.debiased,
        "identifiable": known.known,
        "reason": known.reason,
        "notes": list(found.told),
        "judgments": written.judgments,
        "queries": written.queries,
        "left_out": written.unknown,
        "models": {
            name: {
                "log_likelihood": each.likelihood,
                "perplexity": each.perplexity,
                "conditional_perplexity": each.conditional,
                "by_position": each.by_position.tolist(),
            }
            for name, each in found.qualities.items()
        },
        "traffic_plan": [each._asdict() for each in known.plan],
    }
