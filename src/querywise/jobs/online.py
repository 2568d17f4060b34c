"""The job of `querywise online`: the verdict of an experiment in words, tables, JSON and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.display.words import counted
from querywise.errors import DataError
from querywise.online.off_policy import PolicyEstimate, estimates
from querywise.online.outcomes import Noted, logged_pages, read_draws
from querywise.online.verdict import ALPHA, Contest, Verdict, verdict_of, win_rates
from querywise.report.charts import Chart, line_chart
from querywise.runtime.files import parse_json, read_text
from querywise.runtime.values import Json, JsonObject, has_type

_POINTS = 300  # of the picture


def examine(
    log: Path, *, actions: Sequence[str] = ("click",), alpha: float = ALPHA, arms: str | None = None
) -> tuple[Verdict, Noted, list[str]]:
    """Return the verdict on the rankings drawn last, or on those named, as `A~B`; and the names of all in the log."""
    found, noted = read_draws(log, actions)
    names = ["~".join(each.arms) for each in found]
    if not found:
        raise DataError(f"{log}: nothing was interleaved yet.")
    if arms is not None and arms not in names:
        raise DataError(f"arms={arms!r}: not in this log, which has {', '.join(names)}.", arguments=("arms",))
    return verdict_of(found[-1 if arms is None else names.index(arms)], alpha), noted, names


def sentences(verdict: Verdict, noted: Noted) -> list[str]:
    """Summarize the verdict in sentences."""
    draws, found = verdict.draws, []
    found.append(
        f"{' and '.join(draws.arms)}: {counted(draws.impressions, 'impression')} of {counted(len(draws), 'draw')} "
        f"whose click windows have closed ({noted.open:,} are open)."
    )
    for name, count in (
        ("clicks on documents that were not shown are left out", noted.outside),
        ("clicks after the window are left out", noted.late),
        ("clicks belong to no impression in the log and are left out", noted.unknown),
        ("impressions were not signed with this folder's key and are left out", noted.unsigned),
    ):
        found += [f"{count:,} {name}."] if count else []
    return found + [_verdict(verdict, each) for each in verdict.contests]


def _verdict(verdict: Verdict, each: Contest) -> str:
    base = verdict.draws.arms[0]
    seen = f"{each.name} won {each.wins:,} of {counted(each.wins + each.losses, 'draw')} with a winner"
    if not each.wins + each.losses:
        return f"Not decided: no draw of {each.name} against {base} has a winner."
    level = f"{100 * (1 - each.alpha):.4g} %"
    seen += (
        f" ({100 * each.rate:.1f} %; confidence sequence at {level}: {100 * each.low:.1f} to {100 * each.high:.1f} %)"
    )
    course = each.course
    if course.decided is not None:
        best = each.name if course.is_better else base
        when = datetime.fromtimestamp(verdict.draws.closed[each.places[course.decided]], UTC)
        after = f"since {when:%Y-%m-%d %H:%M} UTC, after {counted(course.decided + 1, 'draw')} with a winner"
        return f"Decided: users prefer {best}. {seen}; decided {after}."
    if each.more_draws is None:
        return f"Not decided: {seen}, e = {each.e_value:.3g} of {1 / each.alpha:.4g} needed."
    more = f"about {each.more_draws:,} more draws with a winner"
    if each is verdict.contests[-1] and verdict.more_impressions is not None:
        more += f", {verdict.more_impressions:,} more impressions,"
    return (
        f"Not decided: {seen}, e = {each.e_value:.3g} of {1 / each.alpha:.4g} needed. If this is the true win rate, "
        f"{more} would decide with probability 80 %."
    )


def told(log: str) -> JsonObject:
    """Return the verdict on a log as JSON, or the problem with it."""
    try:
        return {"verdict": as_json(*examine(Path(log))), "problem": None}
    except DataError as error:
        return {"verdict": None, "problem": str(error)}


def as_json(verdict: Verdict, noted: Noted, names: Sequence[str]) -> JsonObject:
    """Return the verdict as JSON."""
    return {
        "arms": list(verdict.draws.arms),
        "in_log": list(names),
        "impressions": verdict.draws.impressions,
        "draws": len(verdict.draws),
        "contests": [_as_json(verdict, each) for each in verdict.contests],
        "kinds": [_as_json(verdict, each) for each in verdict.kinds],
        "lost": [{"query": query, "wins": wins, "losses": losses} for query, wins, losses in verdict.lost],
        "more_impressions": verdict.more_impressions,
        "left_out": {name: getattr(noted, name) for name in ("outside", "late", "unknown", "unsigned", "open")},
        "curve": [each._asdict() for each in curve(verdict.contests[-1])],
        "notes": sentences(verdict, noted),
    }


def _as_json(verdict: Verdict, each: Contest) -> JsonObject:
    decided = each.course.decided
    when: Json = None if decided is None else float(verdict.draws.closed[each.places[decided]])
    return {
        "name": each.name,
        "draws": each.draws,
        "wins": each.wins,
        "losses": each.losses,
        "win_rate": None if math.isnan(each.rate) else each.rate,
        "interval": [each.low, each.high],
        "alpha": each.alpha,
        "e_value": each.e_value,
        "better": each.course.is_better,
        "decided_after": None if decided is None else decided + 1,
        "decided_at": when,
        "more_draws": each.more_draws,
    }


def estimated(log: Path, orders: Path, actions: Sequence[str] = ("click",)) -> tuple[PolicyEstimate, ...]:
    """Estimate the clicks per page of another ranker, from its rankings of logged queries, one line of JSON each."""
    known: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(orders).splitlines(), start=1):
        each = parse_json(line, orders) if line.strip() else None
        if each is None:
            continue
        query, listed = (each.get("query"), each.get("documents")) if isinstance(each, dict) else (None, None)
        if not isinstance(query, str) or not has_type(listed, list[str]):
            expected = '{"query": "its text", "documents": ["best id", …]}'
            raise DataError(f"{orders}:{number}: expected {expected}, found {line[:60]!r}.")
        known[query] = list(listed)  # type: ignore[arg-type]  # it is one
    return estimates(*logged_pages(log, known, actions))


class Point(NamedTuple):
    """The win rate after some draws with a winner, with the ends of its confidence sequence."""

    draws: int
    rate: float
    low: float
    high: float


def curve(each: Contest) -> list[Point]:
    """Return the course of the win rate, in some hundred points up to the last draw."""
    count = len(each.course.wins)
    if not count:
        return []
    places = np.unique(np.geomspace(1, count, _POINTS).round().astype(np.int64)) - 1
    wins, losses = each.course.wins[places], each.course.losses[places]
    low, high = win_rates(wins, losses, each.alpha)
    columns = (places + 1, wins / (wins + losses), low, high)
    return list(map(Point, *(column.tolist() for column in columns)))


def picture(verdict: Verdict) -> Chart:
    """Draw the win rate of the last ranking with its confidence sequence, after every draw with a winner."""
    main = verdict.contests[-1]
    points = curve(main)
    if not points:
        raise DataError("There is nothing to plot yet: no draw has a winner.")
    names = {"rate": "win rate", "low": "lower end", "high": "upper end"}
    lines = {said: [(each.draws, getattr(each, name)) for each in points] for name, said in names.items()}
    return line_chart(
        lines,
        names=("no preference", *lines),
        labels=("draws with a winner", f"win rate of {main.name}"),
        level=("no preference", 0.5),
        log=len(main.course.wins) > 10,
        said=f"Win rate of {main.name} after every draw with a winner, now {main.rate:.3f}, with its bounds.",
    )
