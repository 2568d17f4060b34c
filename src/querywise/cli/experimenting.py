"""The commands that read an experiment with users, and promote the better model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import querywise.cli.options as options
from querywise.cli.options import command, print_json, say
from querywise.errors import DataError
from querywise.runtime.progress import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from querywise.online.off_policy import PolicyEstimate
    from querywise.online.outcomes import Noted
    from querywise.online.verdict import Contest, Verdict


@command
def online(
    log: Annotated[Path, typer.Argument(help="The folder that a service logs to.")],
    arms: Annotated[
        str | None, typer.Option(help="The rankings to compare, as A~B; by default those that were interleaved last.")
    ] = None,
    action: Annotated[
        list[str] | None, typer.Option(help="An action that counts as a click; may be repeated. By default click.")
    ] = None,
    alpha: Annotated[
        float, typer.Option(min=1e-6, max=0.5, help="The rate of false alarms allowed, however often you look.")
    ] = 0.05,
    picture: Annotated[Path | None, typer.Option(help="Draw the win rate over time to this file, as SVG.")] = None,
    estimate: Annotated[
        Path | None,
        typer.Option(
            help='A ranker that was not shown: for each query, a line with its text ("query") and document ids, best '
            'first ("documents"), as JSON. Its clicks per page are estimated from the log.'
        ),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Say which of two interleaved models users prefer, as often as you like.

    With equal models it errs in at most 5 % of experiments, however often and whenever you look.
    """
    from querywise.jobs import online as job
    from querywise.runtime.files import atomic_text, check_writable

    if picture is not None:
        check_writable(picture)
    with shown(quiet=quiet):
        verdict, noted, names = job.examine(log, actions=tuple(action or ("click",)), alpha=alpha, arms=arms)
        found = () if estimate is None else job.estimated(log, estimate, tuple(action or ("click",)))
    if picture is not None:
        with atomic_text(picture) as out:
            out.write(job.picture(verdict).file())
    if as_json:
        more = {} if estimate is None else {"estimates": [each._asdict() for each in found]}
        print_json({**job.as_json(verdict, noted, names), **more})
    elif not quiet:
        _say(verdict, noted, names)
        if found:
            _say_estimates(found)


def _say(verdict: Verdict, noted: Noted, names: list[str]) -> None:
    from querywise.jobs.online import sentences
    from querywise.report.terminal import plain_table

    say(*sentences(verdict, noted))
    rows = [
        (
            each.name,
            f"{each.draws:,}",
            f"{each.wins:,}",
            f"{each.losses:,}",
            f"{each.low:.3f} to {each.high:.3f}",
            f"{each.e_value:.3g}",
            _outcome(each),
        )
        for each in verdict.kinds
    ]
    heads = (
        "queries",
        "draws",
        "won",
        "lost",
        "win rate between",
        "e-value",
        f"decided at {1 / verdict.kinds[0].alpha:.0f}",
    )
    say(plain_table(heads, rows))
    if verdict.lost:
        lost = [(query, f"{wins:,}", f"{losses:,}") for query, wins, losses in verdict.lost]
        say(plain_table((f"queries that {verdict.draws.arms[-1]} loses most", "won", "lost"), lost))
    others = [each for each in names if each != "~".join(verdict.draws.arms)]
    if others:
        say(f"The log also has {', '.join(others)}; choose with --arms.")


def _say_estimates(found: Sequence[PolicyEstimate]) -> None:
    from querywise.report.terminal import plain_table

    rows = [
        (each.name, f"{each.value:.4f}", f"{each.low:.4f} to {each.high:.4f}", f"{each.clicks:.1f}", each.warning)
        for each in found
    ]
    say(plain_table(("the other ranker, estimated", "clicks a page", "95 %", "clicks in effect", "warning"), rows))


def _outcome(each: Contest) -> str:
    better = each.course.is_better
    return "" if better is None else "better" if better else "worse"


@command
def promote(
    over: Annotated[Path, typer.Option(help="The folder of the model that is served, to be replaced.")],
    model: Annotated[Path | None, typer.Argument(help="The better model.")] = None,
    back: Annotated[bool, typer.Option("--back", help="Restore the previous model.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Replace a model by another in one step, or undo that; a running service reloads it.

    The replaced model is kept beside it, in a folder whose name ends in .previous.
    """
    from querywise.storage.models import before, put_back
    from querywise.storage.models import promote as put

    if (model is None) != back:
        raise DataError("Name the model to promote or pass --back, not both.")
    version = put_back(over) if model is None else put(model, over)
    if not quiet:
        say(f"{over} now has model {version[:12]}. The previous model is in {before(over)}.")
