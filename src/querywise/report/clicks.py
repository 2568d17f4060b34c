"""The page on a click log: positions, models, judgments, and what the log can identify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

import numpy as np

from querywise.clicks.identifiable import Knowledge
from querywise.clicks.impressions import Impressions
from querywise.clicks.judgments import Judgments
from querywise.clicks.models import Quality
from querywise.report.charts import ChartRow, Mark, row_chart
from querywise.runtime.arrays import Ints

_SHOWN = 10  # judgments of each kind
_POSITIONS = 30  # in a picture
_NAMES = ("query", "document", "model", "positions")  # columns of text


def page_of(
    log: Impressions,
    qualities: Mapping[str, Quality],
    known: Knowledge,
    found: Judgments,
    told: Sequence[str],
    source: str,
    human: Ints,
) -> str:
    """Return the whole page, as HTML without scripts; `human` has the human grade of every pair, −1 without one."""
    style = (files("querywise.report") / "page" / "report.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>Clicks: {escape(source)}</title><style>{style}</style></head><body><main>",
        f"<h1>Judgments from clicks: {escape(source)}</h1>",
        *(f"<p>{escape(each)}</p>" for each in told[:1]),
        f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in told[1:])}</ul>" if told[1:] else "",
        f"<h2>What the log can tell</h2><p>{escape(known.reason)}</p>",
        *_positions(log, known),
        *_models(qualities),
        *_judgments(log, found),
        *_disagreements(log, found, human),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _positions(log: Impressions, known: Knowledge) -> list[str]:
    if not len(known.positions):
        return []
    seen = known.positions[:_POSITIONS].tolist()
    more = f" (the first {_POSITIONS})" if len(known.positions) > _POSITIONS else ""
    found = [_curve(_click_rates(log, seen), "click rate", f"Click rate by position{more}, with 95 % intervals")]
    if known.known and len(seen) > 1:
        theta, spread = known.theta[seen], np.exp(1.96 * known.error[:_POSITIONS])
        rows = dict(zip(seen, zip(theta, theta / spread, theta * spread, strict=True), strict=True))
        said = f"Examination by position{more}, relative to position {known.anchor}, with 95 % intervals"
        found.append(_curve(rows, "examination", said))
    elif known.plan:
        total = sum(each.pages for each in known.plan)
        plan = [(f"{each.position} and {each.position + 1}", f"{each.pages:,}") for each in known.plan]
        said = (
            f"Exchanging two neighboring positions at random in {total:,} pages of queries that come ten times or more "
            "would determine the position curve to about 10 %:"
        )
        found.append(f"<div><p>{said}</p>{_table('Pages to exchange', ('positions', 'pages'), plan)}</div>")
    return ['<div class="figures">', *found, "</div>"]


_Interval = tuple[float, float, float]  # a value, and the ends of its interval


def _click_rates(log: Impressions, seen: Sequence[int]) -> dict[int, _Interval]:
    """Return the click rate of every position, with Wilson's interval."""
    shown, z = np.bincount(log.position), 1.96
    clicks, found = np.bincount(log.position[log.clicked], minlength=len(shown)), {}
    for place in seen:
        count, rate = int(shown[place]), float(clicks[place] / shown[place])
        center = (rate + z * z / (2 * count)) / (1 + z * z / count)
        half = z * np.sqrt(rate * (1 - rate) / count + z * z / (4 * count**2)) / (1 + z * z / count)
        found[place] = rate, center - half, center + half
    return found


def _curve(values: Mapping[int, _Interval], label: str, said: str) -> str:
    rows = []
    for place, (value, low, high) in values.items():
        told = f"position {place}: {value:.3f}, 95 % interval {low:.3f} to {high:.3f}"
        rows.append(ChartRow(f"{place}", [Mark(float(value), 0, told)], (float(low), float(high))))
    return f"<figure>{row_chart(rows, label=label, said=said).html()}<figcaption>{escape(said)}</figcaption></figure>"


def _models(qualities: Mapping[str, Quality]) -> list[str]:
    if not qualities:
        return []
    last = max(len(each.by_position) for each in qualities.values())
    heads = ["model", "log-likelihood of a page", "perplexity", "given clicks above"]
    heads += [f"at {place}" for place in range(1, min(last, 10) + 1)]
    rows = []
    for name, each in sorted(qualities.items(), key=lambda one: -one[1].likelihood):
        cells = [name, f"{each.likelihood:.4f}", f"{each.perplexity:.4f}", f"{each.conditional:.4f}"]
        rows.append([*cells, *(f"{one:.3f}" for one in each.by_position[:10])])
    return ["<h2>Click models on the last fifth of the pages</h2>", _table("Click models", heads, rows)]


def _judgments(log: Impressions, found: Judgments) -> list[str]:
    seen = np.flatnonzero(found.impressions > 0)
    certain = seen[np.argsort(found.error[seen], kind="stable")]
    title = f"Judgments by {found.model}" + (", debiased" if found.debiased else ", not debiased")
    return [
        f"<h2>{escape(title)}</h2><h3>Most certain</h3>",
        _rows("Most certain", log, found, certain[:_SHOWN]),
        "<h3>Least certain</h3>",
        _rows("Least certain", log, found, certain[::-1][:_SHOWN]),
    ]


def _disagreements(log: Impressions, found: Judgments, human: Ints) -> list[str]:
    """List the pairs whose gain is farthest, in standard errors, from the mean gain of their human grade."""
    judged = np.flatnonzero(human >= 0)
    if len(np.unique(human[judged])) < 2:
        return []
    _, kind = np.unique(human[judged], return_inverse=True)
    mean = np.bincount(kind, found.gain[judged]) / np.bincount(kind)
    gap = np.abs(found.gain[judged] - mean[kind]) / np.maximum(found.error[judged], 1e-9)
    farthest = judged[np.argsort(-gap, kind="stable")[:_SHOWN]]
    text = f"{len(judged):,} pairs have human grades. Farthest from the mean gain of their grade by standard errors:"
    title = "Where clicks and human grades disagree"
    return [f"<h3>{title}</h3>", f"<p>{text}</p>", _rows(title, log, found, farthest, human)]


def _rows(name: str, log: Impressions, found: Judgments, chosen: Ints, human: Ints | None = None) -> str:
    heads = ["query", "document", "shown", "clicked", "gain", "standard error", "naive", "pessimistic"]
    heads += [] if human is None else ["human grade"]
    rows = []
    for row in chosen.tolist():
        numbers = (found.gain[row], found.error[row], found.naive[row], found.pessimistic[row])
        counts = (f"{found.impressions[row]:,}", f"{found.clicks[row]:,}")
        names = log.queries[found.query[row]], log.documents[found.document[row]]
        graded = [] if human is None else [f"{human[row]}"]
        rows.append([*names, *counts, *(f"{each:.3f}" for each in numbers), *graded])
    return _table(name, heads, rows)


def _table(name: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table with numeric columns aligned right."""
    kinds = [' class="number"' if each not in _NAMES else "" for each in heads]
    head = "".join(f'<th scope="col"{kind}>{escape(each)}</th>' for kind, each in zip(kinds, heads, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{escape(each)}</td>' for kind, each in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
        f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
