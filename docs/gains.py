"""Draw docs/figures/vectors.svg, what adapted vectors gain: `python docs/gains.py`.

The figures are those of `python -m reproduction vectors`, in docs/figures/vectors-NAME/numbers.json. The picture has
its own background, light or dark as the reader's system is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FIGURES = Path(__file__).parent / "figures"
PICTURE = FIGURES / "vectors.svg"
PANELS = {"cranfield": "Cranfield", "stdlib": "Python’s documentation"}
ROWS = {"vectors, auto": "vectors alone", "rrf": "reciprocal ranks", "weights": "one weight", "blend": "blend"}
MEASURE, ALPHA = "ndcg@10", 0.05
WIDTH, LEFT, STEP, TOP = 680, 158, 44, 82  # of the picture, its first column, a row, and what is above the rows
STYLE = """
  .back { fill: #ffffff } .ink { fill: #1b1f24 } .faint { fill: #57606a }
  .grid { stroke: #d0d7de } .plain { fill: #8a94a3; stroke: #8a94a3 }
  .gain { fill: #0b62c4; stroke: #0b62c4 } .luck { fill: #ffffff; stroke: #0b62c4 }
  @media (prefers-color-scheme: dark) {
    .back { fill: #161b22 } .ink { fill: #e6edf3 } .faint { fill: #aab4c0 }
    .grid { stroke: #3d444d } .plain { fill: #6e7a88; stroke: #6e7a88 }
    .gain { fill: #6cb0ff; stroke: #6cb0ff } .luck { fill: #161b22; stroke: #6cb0ff }
  }
  text { font: 17px system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif }
  text { stroke: none !important } .head { font-weight: 600 } .small { font-size: 14px }
  line { stroke-width: 3 } .grid { stroke-width: 1 }
"""


class Gain(NamedTuple):
    """One ranking by vectors as they are and by adapted ones, and the p of the test between them."""

    plain: float
    adapted: float
    p: float


def gains(name: str) -> list[Gain]:
    """Those of one collection, in the order of the rows."""
    rows: dict[str, Any] = json.loads((FIGURES / f"vectors-{name}" / "numbers.json").read_text())["rows"]
    found = [rows[each][MEASURE] for each in ROWS]
    return [Gain(each["plain"], each["adapted"], each["p_holm"]) for each in found]


def panel(name: str, x: float, width: float) -> list[str]:
    """A collection, on a scale of its own: a line for each ranking from what it was to what it is."""
    every = [value for each in gains(name) for value in (each.plain, each.adapted)]
    room = 0.4 * (max(every) - min(every))  # for the numbers
    low, high = min(every) - room, max(every) + room

    def at(value: float) -> float:
        return x + width * (value - low) / (high - low)

    drawn = [f'<text class="ink head" x="{x:.0f}" y="{TOP - 30}">{PANELS[name]}</text>']
    for place, (plain, adapted, p) in enumerate(gains(name)):
        y = TOP + STEP * place
        look = "gain" if p < ALPHA else "luck"
        drawn += [
            f'<line class="grid" x1="{x:.0f}" y1="{y}" x2="{x + width:.0f}" y2="{y}"/>',
            f'<line class="gain" x1="{at(plain):.1f}" y1="{y}" x2="{at(adapted):.1f}" y2="{y}"/>',
            f'<circle class="plain" cx="{at(plain):.1f}" cy="{y}" r="6"/>',
            f'<circle class="{look}" cx="{at(adapted):.1f}" cy="{y}" r="7" stroke-width="2.5"/>',
            f'<text class="faint small" text-anchor="end" x="{at(plain) - 4:.1f}" y="{y - 11}">{plain:.4f}</text>',
            f'<text class="ink small" x="{at(adapted) + 4:.1f}" y="{y - 11}">{adapted:.4f}</text>',
        ]
    return drawn


def picture() -> str:
    """The whole picture."""
    width = (WIDTH - LEFT - 20 * len(PANELS)) / len(PANELS)
    height = TOP + STEP * len(ROWS) + 16
    drawn = [f'<rect class="back" width="{WIDTH}" height="{height}" rx="10"/>']
    drawn.append(
        f'<text class="faint small" x="14" y="26">NDCG@10 by vectors as they are → adapted; filled: p &lt; {ALPHA} '
        "after Holm’s correction</text>"
    )
    for place, label in enumerate(ROWS.values()):
        drawn.append(f'<text class="ink" x="14" y="{TOP + STEP * place + 6}">{label}</text>')
    for place, name in enumerate(PANELS):
        drawn += panel(name, LEFT + place * (width + 20), width)
    said = "; ".join(
        f"{PANELS[name]}, {label}: {each.plain:.4f} to {each.adapted:.4f}"
        for name in PANELS
        for label, each in zip(ROWS.values(), gains(name), strict=True)
    )
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
    return "\n".join([f'{opened} aria-label="NDCG@10. {said}">', f"<style>{STYLE}</style>", *drawn, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture())
