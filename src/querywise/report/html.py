"""A report as one HTML file that contains figures, style, scripts and the table of every query.

Everything that comes from data is text: escaped in HTML, and in the data of scripts free of what would end them.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

import numpy as np

from querywise.display.words import counted, p_value, short
from querywise.evaluation.compare import Compared
from querywise.evaluation.findings import Findings, MethodFinding
from querywise.evaluation.rankings import (
    all_ranks,
    document_names,
    grades,
    nearest_distances,
    query_texts,
    ranked,
    relevant_documents,
    why,
)
from querywise.report.charts import round_numbers
from querywise.report.contents import Origin, duration
from querywise.report.drawings import gains_of
from querywise.report.sections import Section, rest_text
from querywise.report.tables import Table
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.values import Json, JsonObject

RANKINGS = "rankings"  # the folder of rankings that are not in the page
_SCRIPTS = ("tables.js", "queries.js")
CALLED = "querywiseRankings"  # the function that a file of rankings calls
_CUT = 140  # characters of a query's text in the table
_TITLE = 120  # characters of a document's title
_INSIDE = 600_000  # bytes of rankings in the page itself
_TOGETHER = 200  # queries per file beside it


@dataclass(frozen=True)
class Page:
    """The page of a report."""

    found: Findings
    title: str
    story: str
    origin: Origin
    sections: Sequence[Section]
    queries: QueryData

    def html(self) -> str:
        """Return the whole page, which opens with the verdict."""
        scripts = [_file(name) for name in _SCRIPTS]
        return "\n".join(
            [
                "<!doctype html>",
                '<html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                # An empty icon, so that browsers do not request one.
                '<link rel="icon" href="data:,">',
                f"<title>{html.escape(self.title)}</title>",
                f"<style>\n{_file('report.css')}</style></head>",
                '<body><a class="skip" href="#methods">Skip the summary</a>',
                self._navigation(),
                "<main>",
                *summary(self.found, self.title, self.story, self.origin),
                *self._body(),
                "<footer>Made by querywise.</footer></main>",
                f'<script type="application/json" id="queries-data">{script_json(self.queries.content)}</script>',
                *(f"<script>{text}</script>" for text in scripts),
                "</body></html>",
                "",
            ]
        )

    def _navigation(self) -> str:
        links = "".join(
            f'<li><a href="#{each.anchor}">{html.escape(each.title if number else "Summary")}</a></li>'
            for number, each in enumerate(self.sections)
        )
        return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'

    def _body(self) -> list[str]:
        body = []
        for section in self.sections[1:]:
            body.append(f'<section id="{section.anchor}"><h2>{html.escape(section.title)}</h2>')
            if section.every_query:
                body += [*_every_query(section), *_figures(section), "</section>"]
                continue
            body += [f"<p>{html.escape(section.text)}</p>"] if section.text else []
            body += [f"<pre><code>{html.escape(section.code)}</code></pre>"] if section.code else []
            first, others = section.tables[:1], section.tables[1:]
            body += ['<div class="beside">', *(_named(*each) for each in first), *_figures(section), "</div>"]
            body += [*(_named(*each) for each in others), "</section>"]
        return body


def _every_query(section: Section) -> list[str]:
    """Return the element that the script fills with every query, and without scripts those that moved most."""
    moved = "".join(_named(*each) for each in section.tables)
    return [
        f"<noscript><p>{html.escape(section.text)}</p><p>The table of every query needs scripts; the same numbers are "
        f"in queries.csv and values.csv.</p>{moved}</noscript>",
        '<div id="every-query"></div>',
    ]


def _named(name: str, table: Table) -> str:
    return table.html(f"Table: {name.replace('-', ' ')}")


def _figures(section: Section) -> list[str]:
    shown = [
        f"<figure><figcaption>{html.escape(each.said)}</figcaption>{each.chart.html()}</figure>"
        for each in section.figures
    ]
    return ['<div class="figures">', *shown, "</div>"] if shown else []


def _policy(scripts: Sequence[str]) -> str:
    """Return a policy that loads only the rankings beside the page and runs only these scripts."""
    own = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {own} 'self' file:; "
        "base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return (files("querywise.report") / "page" / name).read_text(encoding="utf-8")


def summary(found: Findings, title: str, story: str, origin: Origin) -> list[str]:
    """Return the summary as HTML."""
    return [
        f'<header class="first" id="summary"><h1>{escape(title)}</h1>',
        *([f'<p class="note">{escape(origin.note)}</p>'] if origin.note else []),
        f'<p class="verdict">{escape(found.verdict)}</p>',
        *_warning(found),
        *_taught(found),
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
    """Return a note on what leaks from training to test, if anything does."""
    leaks = found.compared.twins
    if leaks is None or not leaks.is_told:
        return []
    told = f"{leaks.text} {rest_text(found)}".strip()
    return [f'<p class="note">{escape(told)} <a href="#twins">Near-duplicates</a></p>']


def _taught(found: Findings) -> list[str]:
    """Return a note on whether training the query vectors helps, if they learn."""
    if found.vectors is None:
        return []
    return [f'<p class="note">{escape(found.vectors.said[0])} <a href="#vectors">Query vectors</a></p>']


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
    """Return gain, p and cost of the winner, or of the best other method."""
    top, base = found.top, found.baseline
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
    """Return the cheapest methods that are not significantly worse than the best one, with differences and costs."""
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
    return (
        "p after Holm",
        p_value(p),
        f"{found.tested}, {counted(found.compared_with, 'method')} against {short(found.compared.baseline)}",
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
    """Draw every method's difference from the baseline with its interval, the largest first."""
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
        f'<p class="how">{escape(_how(found))}</p></figure>'
    )


def _how(found: Findings) -> str:
    """Explain the bars and dots."""
    kind = "bootstrap" if found.human is None else "prediction-powered"
    text = f"Bars are 95 % {kind} intervals; a full dot means p < 0.05 after Holm, a hollow one that it is not"
    untested = [short(each.name) for each in found.others if each.corrected is None]
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
    """Return known facts about how the report was made."""
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


@dataclass(frozen=True)
class QueryData:
    """The data of the table: `content` is in the page, `files` (name → script) hold the other rankings."""

    content: JsonObject
    files: Mapping[str, str]


def query_data(found: Findings, titles: Mapping[str, str]) -> QueryData:
    """Return the data of the table of queries; `titles` has the known document titles by id."""
    compared = found.compared
    features = list(dict.fromkeys(each.feature for told in found.uses.values() for each in told))
    rankings = _rankings(compared, titles, features)
    largest = np.argsort(-_moved(found), kind="stable").tolist()
    inside, size = set[int](), 0
    for query in largest:
        size += len(rankings[query].encode())
        if size > _INSIDE:
            break
        inside.add(query)
    outside = [query for query in range(len(rankings)) if query not in inside]
    files: dict[str, str] = {}
    place = [0] * len(rankings)  # the index of the file, 0 for the page
    for number, first in enumerate(range(0, len(outside), _TOGETHER), start=1):
        some = outside[first : first + _TOGETHER]
        told = ",".join(f'"{query}":{rankings[query]}' for query in some)
        files[f"{number}.js"] = f"{CALLED}({{{told}}});\n"
        for query in some:
            place[query] = number
    content: JsonObject = {
        **_known(found),
        "features": features or None,
        "unexplained": [found.unexplained.get(name) for name in compared.names],
        "file": place,
        "rankings": {str(query): json.loads(rankings[query]) for query in sorted(inside)},
    }
    return QueryData(content, files)


def script_json(content: Json) -> str:
    """Format JSON for an element <script>, so that nothing in it ends the element or is anything but text."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda mark: f"\\u{ord(mark[0]):04x}", text)


def _known(found: Findings) -> JsonObject:
    """Return what is known of every query, column by column."""
    compared, test = found.compared, found.compared.judged
    texts, nearest = query_texts(compared), nearest_distances(compared)
    shown = [text or name for text, name in zip(texts, test.query_ids, strict=True)]
    return {
        "measure": found.measure,
        "baseline": compared.baseline,
        "shown": found.shown,
        "methods": list(compared.names),
        "ids": list(test.query_ids),
        "texts": [None if text is None else _cut(text) for text in texts],
        "long": [int(len(text) > _CUT) for text in shown],
        "classes": list(test.classes) if any(test.classes) else None,
        "relevant": relevant_documents(compared).tolist(),
        "candidates": test.candidates.sizes.tolist(),
        "distances": None if nearest is None else [_round(each) for each in nearest[1].tolist()],
        "values": [
            [_round(each) for each in compared.evaluations[name][found.measure].tolist()] for name in compared.names
        ],
    }


def _rankings(compared: Compared, titles: Mapping[str, str], features: Sequence[str]) -> list[str]:
    """Return every query's rankings as JSON that is safe in a script."""
    numbers = {name: number for number, name in enumerate(features)}
    ranks, texts = all_ranks(compared), query_texts(compared)
    made = []
    for query in range(len(compared.judged)):
        some = ranked(compared, ranks, query)
        names = document_names(compared, query, some.rows)
        text = texts[query]
        made.append(
            script_json(
                {
                    **({} if text is None or len(text) <= _CUT else {"text": text}),
                    "documents": list(names),
                    "titles": [_title(titles.get(name, "")) for name in names] if titles else None,
                    "grades": list(grades(compared, some.rows)),
                    "ranks": some.ranks.T.tolist(),
                    **({"why": _why(compared, query, some.rows, numbers)} if features else {}),
                }
            )
        )
    return made


def _why(compared: Compared, query: int, rows: Ints, numbers: Mapping[str, int]) -> list[Json]:
    """Return, by ranker, for each document feature numbers, each followed by its contribution; 0 for nothing."""
    made: list[Json] = []
    for told in why(compared, query, rows).values():
        flat = [[part for name, value in each for part in (numbers[name], value)] or 0 for each in told or ()]
        made.append(flat or None)
    return made


def _moved(found: Findings) -> Floats:
    """Return by how much the value of each query differs between the two rankings shown first."""
    gains = gains_of(found)
    return np.zeros(len(found.compared.judged)) if gains is None else np.abs(gains)


def _cut(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _CUT else plain[:_CUT].rstrip() + "…"


def _title(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _TITLE else plain[: _TITLE - 1].rstrip() + "…"


def _round(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None
