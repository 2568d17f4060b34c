"""A report as one HTML file: figures, style, scripts and the table of every query are inside.

Everything that comes from data is text: escaped in HTML, and in the data of scripts free of what would end them.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from querywise.evaluation.findings import Findings
from querywise.report.contents import Section
from querywise.report.drawings import Figure
from querywise.report.origin import Origin
from querywise.report.queries import QueryData, script_json
from querywise.report.summary import summary
from querywise.report.tables import Table

RANKINGS = "rankings"  # the folder of rankings that are not in the page
_SCRIPTS = ("tables.js", "queries.js")


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
        """The whole page; it opens with the verdict."""
        scripts = [_file(name) for name in _SCRIPTS]
        return "\n".join(
            [
                "<!doctype html>",
                '<html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                # No icon of its own, so that no browser asks for one.
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
    """What the script fills with every query; where scripts are forbidden, those that moved most."""
    moved = "".join(_named(*each) for each in section.tables)
    return [
        f"<noscript><p>{html.escape(section.text)}</p><p>The table of every query needs scripts; the same numbers are "
        f"in queries.csv and values.csv.</p>{moved}</noscript>",
        '<div id="every-query"></div>',
    ]


def _named(name: str, table: Table) -> str:
    return table.html(f"Table: {name.replace('-', ' ')}")


def _figures(section: Section) -> list[str]:
    shown = [_figure(each) for each in section.figures]
    return ['<div class="figures">', *shown, "</div>"] if shown else []


def _figure(figure: Figure) -> str:
    return f"<figure><figcaption>{html.escape(figure.said)}</figcaption>{figure.chart.html()}</figure>"


def _policy(scripts: Sequence[str]) -> str:
    """Nothing is loaded but the rankings beside the page, and no script runs but these."""
    own = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {own} 'self' file:; "
        "base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return (files("querywise.report") / "page" / name).read_text(encoding="utf-8")
