"""The first screen of the page: the verdict, the winner or none, three numbers, one picture, what it was made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from querywise.display.words import counted, short
from querywise.evaluation.findings import Findings, MethodFinding
from querywise.evaluation.significance import TEST_NAMES
from querywise.report.charts import round_numbers
from querywise.report.origin import Origin, duration
from querywise.report.twins import rest_text


def summary(found: Findings, title: str, story: str, origin: Origin) -> list[str]:
    """All of it, as HTML."""
    return [
        f'<header class="first" id="summary"><h1>{escape(title)}</h1>',
        *([f'<p class="note">{escape(origin.note)}</p>'] if origin.note else []),
        f'<p class="verdict">{escape(found.verdict)}</p>',
        *_warning(found),
        '<div class="glance"><div class="answer">',
        _winner(found),
        _numbers(found),
        _cheapest(found),
        "</div>",
        differences(found),
        "</div>",
        _made_of(found, story, origin),
        "</header>",
    ]


def _warning(found: Findings) -> list[str]:
    """What leaks from training to test, where something does."""
    leaks = found.compared.twins
    if leaks is None or not leaks.is_told:
        return []
    told = f"{leaks.text} {rest_text(found)}".strip()
    return [f'<p class="note">{escape(told)} <a href="#twins">Near twins</a></p>']


def _winner(found: Findings) -> str:
    base, name = found.compared.baseline, found.winner
    if name is not None:
        why = f"significantly better than {base}"
    elif found.others:
        why = f"no method is significantly better than {base}"
    else:
        why = f"{base} was compared with nothing"
    named = "none" if name is None else name
    return (
        f'<p class="winner{"" if name else " none"}"><span>Winner</span> <strong>{escape(named)}</strong> '
        f"<small>{escape(why)}</small></p>"
    )


def _numbers(found: Findings) -> str:
    """Gain, p and cost of the winner, or of the best of the others."""
    top = next((each for each in found.others if each.name == found.shown), None)
    base = found.baseline
    if top is None:
        told = [(found.measure, f"{base.means[found.measure]:.4f}", base.name), _cost(base, None)]
    else:
        told = [_gain(found, top), _luck(found, top), _cost(top, base)]
    tiles = "".join(
        f"<div><dt>{escape(what)}</dt><dd>{escape(number)}<small>{escape(more)}</small></dd></div>"
        for what, number, more in told
    )
    whose = (
        "" if top is None or found.winner else f'<p class="whose">Of the best of the others, {escape(top.name)}:</p>'
    )
    return f'{whose}<dl class="numbers">{tiles}</dl>'


def _cheapest(found: Findings) -> str:
    """The cheapest methods that are not significantly worse than the best one, each with its difference and costs."""
    known = found.cheapest
    if known is None or not known.text:
        return ""
    if not known.others:
        return f'<p class="cheapest">{escape(known.text.replace(known.best, short(known.best)))}</p>'
    ways = {known.training: "to train: ", known.ranking: "to rank by: "} if known.training != known.ranking else {}
    told = "".join(
        f" <b><strong>{escape(name)}</strong> <small>{escape(ways.get(name, '') + known.told(name))}</small></b>"
        for name in known.others
    )
    than = escape(short(known.best))
    return f'<p class="cheapest"><span>Cheapest, not significantly worse than {than}</span>{told}</p>'


def _gain(found: Findings, top: MethodFinding) -> tuple[str, str, str]:
    before = found.baseline.means[found.measure]
    share = f"{100 * top.difference / before:+.1f} %; " if before else ""
    low, high = top.interval
    return f"gain in {found.measure}", f"{top.difference:+.4f}", f"{share}95 % interval {low:+.4f} to {high:+.4f}"


def _luck(found: Findings, top: MethodFinding) -> tuple[str, str, str]:
    p = 1.0 if top.corrected is None else top.corrected
    written = "< 0.0001" if p < 1e-4 else f"{p:.4f}"
    return (
        "p after Holm",
        written,
        f"{TEST_NAMES[found.test]}, {counted(found.compared_with, 'method')} against {short(found.compared.baseline)}",
    )


def _cost(top: MethodFinding, base: MethodFinding | None) -> tuple[str, str, str]:
    known = math.isfinite(top.predict_milliseconds)
    what, without = "ranking time per query", "retrieval not included"
    trained = f"trained in {duration(top.fit_seconds)}" if math.isfinite(top.fit_seconds) else "trained before"
    number = f"{top.predict_milliseconds:.2g} ms" if known else "not known"
    if not known:
        return what, number, "its scores were computed elsewhere"
    if base is None or not math.isfinite(base.predict_milliseconds):
        return what, number, f"{without}; {trained}"
    return what, number, f"{without}; {short(base.name)}: {base.predict_milliseconds:.2g} ms; {trained}"


def differences(found: Findings) -> str:
    """Every method's difference from the baseline with its interval, the largest first."""
    others = sorted(found.others, key=lambda each: -each.difference)
    base = found.baseline
    said = f"Difference in {found.measure} from {base.name} ({base.means[found.measure]:.4f})"
    if not others:
        return ""
    reach = [number for each in others for number in (*each.interval, each.difference)]
    low, high = min(0.0, *reach), max(0.0, *reach)
    air = 0.04 * (high - low) or 1.0
    low, high = low - air, high + air

    def place(value: float) -> float:
        return 100 * (value - low) / (high - low)

    rows = "".join(
        _row(found, each, place(each.interval[0]), place(each.interval[1]), place(each.difference), place(0))
        for each in others
    )
    marks = [(place(value), text) for value, text in round_numbers(low, high, 4) if 3 <= place(value) <= 97]
    axis = "".join(f'<span style="left:{at:.2f}%">{text}</span>' for at, text in marks)
    return (
        f'<figure class="differences"><figcaption>{escape(said)}</figcaption><ul>{rows}</ul>'
        f'<div class="ticks" aria-hidden="true"><div>{axis}</div></div>'
        f'<p class="how">{escape(_how(others))}</p></figure>'
    )


def _how(others: Sequence[MethodFinding]) -> str:
    """What bars and dots mean."""
    text = "Bars are 95 % bootstrap intervals; a full dot means p < 0.05 after Holm, a hollow one that it is not"
    untested = [short(each.name) for each in others if each.corrected is None]
    if not untested:
        return f"{text}."
    named = " and ".join(untested) if len(untested) < 3 else f"{len(untested)} methods"
    return f"{text}, or that nothing was tested: {named}, shown for comparison alone."


def _row(found: Findings, each: MethodFinding, low: float, high: float, middle: float, zero: float) -> str:
    p = "" if each.corrected is None else f"; p after Holm {each.corrected:.4f}"
    told = f"{each.name}: {each.difference:+.4f}, 95 % interval {each.interval[0]:+.4f} to {each.interval[1]:+.4f}{p}"
    won = each.name == found.winner
    track = (
        f'<span class="zero" style="left:{zero:.2f}%"></span>'
        f'<span class="bar" style="left:{low:.2f}%;width:{max(high - low, 0.3):.2f}%"></span>'
        f'<span class="dot{" full" if each.is_significant else ""}" style="left:{middle:.2f}%"></span>'
    )
    badge = ' <span class="badge">winner</span>' if won else ""
    return (
        f'<li{" class=won" if won else ""} title="{escape(told)}">'
        f'<span class="name">{escape(short(each.name))}{badge}</span>'
        f'<span class="track" aria-hidden="true">{track}</span><span class="by">{each.difference:+.4f}</span></li>'
    )


def _made_of(found: Findings, story: str, origin: Origin) -> str:
    rows = [(name, text) for name, text in facts(found, origin) if text]
    told = "".join(
        f'<div class="{name.split()[0]}"><dt>{escape(name)}</dt><dd>{_fact(name, text)}</dd></div>'
        for name, text in rows
    )
    about = f'<p class="story">{escape(story)}</p>' if story else ""
    return f'<section class="made" aria-label="What it was made of"><dl>{told}</dl>{about}</section>'


def _fact(name: str, text: str) -> str:
    return f"<code>{escape(text)}</code>" if name == "command" else escape(text)


def facts(found: Findings, origin: Origin) -> Sequence[tuple[str, str]]:
    """What the report was made of, as far as it is known."""
    compared, coverage = found.compared, found.compared.coverage
    folds = int(compared.fold_of.max(initial=-1)) + 1
    known = (
        ""
        if coverage is None
        else f"{coverage.found:,} of {coverage.relevant:,} relevant documents are candidates; mean recall of a query "
        f"{coverage.recall:.4f}"
    )
    spent = [each.fit_seconds for each in found.methods if math.isfinite(each.fit_seconds)]
    took = [] if origin.seconds is None else [duration(origin.seconds)]
    took += [f"training {duration(sum(spent))}"] if spent and took else []
    return [
        ("data", origin.data),
        ("queries", f"{len(compared.judged):,}"),
        ("folds", str(folds)),
        ("coverage", known),
        ("left out", " ".join(map(str, compared.losses))),
        ("date", "" if origin.date is None else f"{origin.date:%Y-%m-%d %H:%M %Z}".strip()),
        ("duration", "; ".join(took)),
        ("versions", ", ".join(f"{name} {number}" for name, number in origin.versions.items())),
        ("command", origin.command),
    ]
