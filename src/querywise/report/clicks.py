"""The page on a click log: positions, models, judgments, and what the log can know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

import numpy as np

from querywise.clicks.identifiable import Knowledge
from querywise.clicks.impressions import Impressions
from querywise.clicks.judgments import Judgments
from querywise.clicks.models import position_rates
from querywise.clicks.quality import Quality
from querywise.report.charts import Chart, Mark, Row, line_chart, row_chart
from querywise.runtime.arrays import Ints

_SHOWN = 10  # judgments of each kind


def page_of(
    log: Impressions,
    qualities: Mapping[str, Quality],
    known: Knowledge,
    found: Judgments,
    told: Sequence[str],
    source: str,
    human: Ints,
) -> str:
    """The whole page, as HTML without scripts. human: the grade that people gave every pair, −1 where there is none."""
    style = (files("querywise.report") / "page" / "report.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>Clicks: {escape(source)}</title><style>{style}</style></head><body><main>",
        f"<h1>Judgments from clicks: {escape(source)}</h1>",
        *(f"<p>{escape(each)}</p>" for each in told),
        f"<h2>What the log can tell</h2><p>{escape(known.reason)}</p>",
        *_positions(log, known),
        *_models(qualities),
        *_judgments(log, found),
        *_disagreements(log, found, human),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _figure(chart: Chart, said: str) -> str:
    return f"<figure>{chart.html()}<figcaption>{escape(said)}</figcaption></figure>"


def _positions(log: Impressions, known: Knowledge) -> list[str]:
    if not len(known.positions):
        return []
    rates = position_rates(log)
    seen = known.positions.tolist()
    clicks = {"click rate": [(each, float(rates[each])) for each in seen]}
    said = "Click rate by position"
    found = [_figure(line_chart(clicks, names=["click rate"], labels=("position", "click rate"), said=said), said)]
    if known.known and len(seen) > 1:
        rows = []
        for place, error in zip(seen, known.error.tolist(), strict=True):
            theta = float(known.theta[place])
            low, high = theta * np.exp(-1.96 * error), theta * np.exp(1.96 * error)
            told = f"position {place}: {theta:.3f}, 95 % interval {low:.3f} to {high:.3f}"
            rows.append(Row(f"{place}", [Mark(theta, 0, told)], (float(low), float(high))))
        said = f"Examination by position, relative to position {known.anchor}, with 95 % intervals"
        found.append(_figure(row_chart(rows, label="examination", said=said), said))
    elif known.plan:
        total = sum(each.pages for each in known.plan)
        found.append(
            f"<p>Exchanging two neighboring positions at random in {total:,} pages of queries that come ten times or "
            "more would tell the position curve to about 10 %:</p>"
        )
        plan = [(f"{each.position} and {each.position + 1}", f"{each.pages:,}") for each in known.plan]
        found.append(_table(("positions", "pages"), plan))
    return ['<div class="figures">', *found, "</div>"]


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
    return ["<h2>Click models on the last fifth of the pages</h2>", _table(heads, rows)]


def _judgments(log: Impressions, found: Judgments) -> list[str]:
    seen = np.flatnonzero(found.impressions > 0)
    certain = seen[np.argsort(found.error[seen], kind="stable")]
    title = f"Judgments by {found.model}" + (", debiased" if found.debiased else ", not debiased")
    return [
        f"<h2>{escape(title)}</h2><h3>Most certain</h3>",
        _rows(log, found, certain[:_SHOWN]),
        "<h3>Least certain</h3>",
        _rows(log, found, certain[::-1][:_SHOWN]),
    ]


def _disagreements(log: Impressions, found: Judgments, human: Ints) -> list[str]:
    """Pairs whose gain is farthest, in standard errors, from the mean gain of their human grade."""
    judged = np.flatnonzero(human >= 0)
    if len(np.unique(human[judged])) < 2:
        return []
    _, kind = np.unique(human[judged], return_inverse=True)
    mean = np.bincount(kind, found.gain[judged]) / np.bincount(kind)
    gap = np.abs(found.gain[judged] - mean[kind]) / np.maximum(found.error[judged], 1e-9)
    farthest = judged[np.argsort(-gap, kind="stable")[:_SHOWN]]
    text = f"{len(judged):,} pairs have human grades. Farthest from the mean gain of their grade by standard errors:"
    return ["<h3>Where clicks and human grades disagree</h3>", f"<p>{text}</p>", _rows(log, found, farthest, human)]


def _rows(log: Impressions, found: Judgments, chosen: Ints, human: Ints | None = None) -> str:
    heads = ["query", "document", "shown", "clicked", "gain", "standard error", "naive", "pessimistic"]
    heads += [] if human is None else ["human grade"]
    rows = []
    for row in chosen.tolist():
        numbers = (found.gain[row], found.error[row], found.naive[row], found.pessimistic[row])
        counts = (f"{found.impressions[row]:,}", f"{found.clicks[row]:,}")
        names = log.queries[found.query[row]], log.documents[found.document[row]]
        graded = [] if human is None else [f"{human[row]}"]
        rows.append([*names, *counts, *(f"{each:.3f}" for each in numbers), *graded])
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
