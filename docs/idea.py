"""Draw docs/figures/idea.svg, the picture of the idea: `python docs/idea.py`.

Queries are points. On the left one model has the same weights for all of them; on the right each query has weights of
its own, from the queries nearest to it. Points and weights are made up; neighbours are computed. The picture has
its own background, light or dark as the reader's system is, and letters that can be read on a phone.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

PICTURE = Path(__file__).parent / "figures" / "idea.svg"
FEATURES = ("words", "vectors", "clicks")
FOR_ALL = (0.55, 0.5, 0.45)
NEIGHBOURS = 7
WIDTH, HEIGHT, PLOT = 680, 500, 300  # the whole picture; the width of a panel's plot


class Asked(NamedTuple):
    """A query that is shown with its neighbours: its place, its text and where that begins, its weights."""

    x: float
    y: float
    text: str
    text_x: float
    text_y: float
    weights: tuple[float, float, float]


ASKED = (
    Asked(70, 100, "error 0x8007", 4, 20, (0.95, 0.2, 0.15)),
    Asked(226, 112, "why is it slow?", 156, 20, (0.3, 0.95, 0.25)),
    Asked(136, 236, "soccer", 204, 290, (0.35, 0.25, 0.95)),
)
STYLE = """
  .back { fill: #ffffff } .ink { fill: #1b1f24 } .dot { fill: #8a94a3 } .rest { fill: #e4e8ee }
  .q0 { fill: #b35900; stroke: #b35900 } .q1 { fill: #0b62c4; stroke: #0b62c4 } .q2 { fill: #1a7f37; stroke: #1a7f37 }
  .all { fill: #57606a } .edge { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    .back { fill: #161b22 } .ink { fill: #e6edf3 } .dot { fill: #6e7a88 } .rest { fill: #2b323b }
    .q0 { fill: #f0a04b; stroke: #f0a04b } .q1 { fill: #6cb0ff; stroke: #6cb0ff } .q2 { fill: #56d364; stroke: #56d364 }
    .all { fill: #aab4c0 } .edge { stroke: #3d444d }
  }
  text { font: 20px system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif }
  text, rect { stroke: none !important }
  .head { font-weight: 600; font-size: 22px } .near { fill-opacity: .14; stroke-width: 1.5 } line { stroke-width: 1.5 }
"""


def queries() -> np.ndarray:
    """Training queries as points of a panel, around those that are shown."""
    rng = np.random.default_rng(11)
    spread = [rng.normal((each.x, each.y), 34, size=(15, 2)) for each in ASKED]
    return np.clip(np.concatenate(spread), (8, 36), PLOT - 8)


def bars(x: float, y: float, width: float, weights: tuple[float, ...], colour: str) -> str:
    """Weights as bars, one below the other."""
    rows = []
    for place, weight in enumerate(weights):
        top = y + place * 30
        rows.append(f'<rect class="rest" x="{x:.0f}" y="{top:.0f}" width="{width:.0f}" height="16" rx="3"/>')
        rows.append(
            f'<rect class="{colour}" x="{x:.0f}" y="{top:.0f}" width="{width * weight:.0f}" height="16" rx="3"/>'
        )
    return "\n".join(rows)


def dots(points: np.ndarray, colour: str) -> str:
    """Queries that are not shown by name."""
    return "\n".join(f'<circle class="{colour}" cx="{x:.0f}" cy="{y:.0f}" r="4.5"/>' for x, y in points)


def nearby(points: np.ndarray, asked: Asked, colour: str) -> str:
    """A query, a circle around its neighbours, and a line to each of them."""
    away = np.hypot(*(points - (asked.x, asked.y)).T)
    nearest = points[np.argsort(away)[:NEIGHBOURS]]
    around = np.sort(away)[NEIGHBOURS - 1 : NEIGHBOURS + 1].mean()  # between the last neighbour and the next query
    lines = [f'<line class="{colour}" x1="{asked.x}" y1="{asked.y}" x2="{x:.0f}" y2="{y:.0f}"/>' for x, y in nearest]
    return "\n".join(
        [
            f'<circle class="{colour} near" cx="{asked.x}" cy="{asked.y}" r="{around:.0f}"/>',
            *lines,
            dots(nearest, colour),
            f'<circle class="{colour}" cx="{asked.x}" cy="{asked.y}" r="8"/>',
            f'<text class="{colour}" x="{asked.text_x}" y="{asked.text_y}">{asked.text}</text>',
        ]
    )


def picture() -> str:
    """The whole picture as SVG."""
    points = queries()
    asked = np.array([(each.x, each.y) for each in ASKED])
    left = [dots(points, "dot"), *(f'<circle class="all" cx="{x}" cy="{y}" r="8"/>' for x, y in asked)]
    right = [dots(points, "dot"), *(nearby(points, each, f"q{place}") for place, each in enumerate(ASKED))]
    labels = [f'<text class="ink" x="20" y="{415 + place * 30}">{each}</text>' for place, each in enumerate(FEATURES)]
    own = [bars(368 + 102 * place, 401, 88, each.weights, f"q{place}") for place, each in enumerate(ASKED)]
    said = (
        "Queries as points. Left: one model has the same weights of words, vectors and clicks for all queries. "
        "Right: three queries, each with its nearest training queries and weights of its own."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">',
            f"<style>{STYLE}</style>",
            f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>',
            '<text class="ink head" x="20" y="38">One model for all queries</text>',
            '<text class="ink head" x="366" y="38">A model for each query</text>',
            f'<line class="edge" x1="343" y1="20" x2="343" y2="{HEIGHT - 20}"/>',
            f'<g transform="translate(20 58)">{"".join(left)}</g>',
            f'<g transform="translate(366 58)">{"".join(right)}</g>',
            *labels,
            bars(110, 401, 210, FOR_ALL, "all"),
            *own,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture())
