"""A report as one HTML file that needs nothing else: figures, style and sorting are inside."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib.resources import files

from querywise.report.contents import Section


def html_page(sections: Sequence[Section], verdict: str) -> str:
    """The whole page; it opens with the verdict."""
    first, *others = sections
    story = first.text.removeprefix(verdict).strip()
    body = [
        f"<h1>{html.escape(first.title)}</h1>",
        f'<p class="verdict">{html.escape(verdict)}</p>',
        *([f"<p>{html.escape(story)}</p>"] if story else []),
        *_inside(first),
    ]
    for section in others:
        body.append(f"<section><h2>{html.escape(section.title)}</h2>")
        body += [f"<p>{html.escape(section.text)}</p>"] if section.text else []
        body += [*_inside(section), "</section>"]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # No icon of its own, so that no browser asks for one.
            '<link rel="icon" href="data:,">',
            f"<title>{html.escape(first.title)}</title>",
            f"<style>\n{_file('report.css')}</style></head>",
            "<body><main>",
            *body,
            "<footer>Made by querywise. The numbers here can be computed anew from the files beside this page: scores "
            "in runs/, values of every query in values.csv.</footer></main>",
            f"<script>\n{_file('report.js')}</script></body></html>",
            "",
        ]
    )


def _inside(section: Section) -> list[str]:
    return [*(table.html() for _, table in section.tables[:1]), *map(_figure, section.figures)] + [
        table.html() for _, table in section.tables[1:]
    ]


def _figure(figure: tuple[str, str, str]) -> str:
    _, text, svg = figure
    content = base64.b64encode(svg.encode()).decode()
    shown = html.escape(text)
    image = f'<img alt="{shown}" src="data:image/svg+xml;base64,{content}">'
    return f"<figure>{image}<figcaption>{shown}</figcaption></figure>"


def _file(name: str) -> str:
    return (files("querywise.report") / "page" / name).read_text(encoding="utf-8")
