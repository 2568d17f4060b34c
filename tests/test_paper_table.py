"""The table of what is where on every paper's page: what it says is in the code and on the page is there."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAPERS = ("geng2008", "lin2011", "zha2006", "hoi2008")
NAMED = re.compile(r"`([\w/]+)\.py`(?: \(((?:`\w+`(?:, )?)+)\))?")


def page(paper: str) -> Path:
    return DOCS / "reproduction" / f"{paper}.md"


def rows() -> list[list[str]]:
    """The rows of all four tables, each with its paper before it."""
    found = []
    for paper in PAPERS:
        section = page(paper).read_text().partition("\n## What of the paper is where\n")[2].partition("\n## ")[0]
        lines = [line for line in section.splitlines() if line.startswith("| ")]
        found += [[paper, *(cell.strip() for cell in line.strip("|").split("|"))] for line in lines[1:]]
    return found


def anchors(page: Path) -> set[str]:
    """What links to headings of a page end with, as Markdown viewers make it; the same heading again is numbered."""
    seen: Counter[str] = Counter()
    found = set()
    for title in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def test_every_row_has_five_cells_and_every_paper_its_rows() -> None:
    assert {len(row) for row in rows()} == {5}
    counts = Counter(row[0] for row in rows())
    assert set(counts) == set(PAPERS)
    assert min(counts.values()) >= 10


@pytest.mark.parametrize("paper", PAPERS)
def test_what_the_table_names_is_in_the_code(paper: str) -> None:
    cells = [row[2] for row in rows() if row[0] == paper]
    for cell in cells:
        found = NAMED.findall(cell)
        assert cell.count(".py`") == len(found), cell
        for path, names in found:
            dotted = path.replace("/", ".")
            module = importlib.import_module(dotted if path.startswith("reproduction/") else f"querywise.{dotted}")
            missing = [name for name in re.findall(r"\w+", names) if not hasattr(module, name)]
            assert not missing, f"{path}.py has no {', '.join(missing)}"


def test_every_section_it_links_to_is_there() -> None:
    for row in rows():
        links = re.findall(r"\]\(([\w./-]*)(?:#([^)]+))?\)", row[3])
        assert links, row
        for path, anchor in links:
            there = page(row[0]).parent / path if path else page(row[0])
            assert there.is_file(), path
            assert not anchor or anchor in anchors(there), anchor


def test_no_numbered_item_of_a_paper_is_left_out() -> None:
    """Figures, tables, algorithms, definitions and theorems, by how many of each a paper has."""
    numbered = {
        "geng2008": {"Figure": 9, "Table": 1, "Definition": 1, "Theorem": 1},
        "lin2011": {"Figure": 4, "Table": 4, "Algorithm": 3, "Equation": 2},
        "zha2006": {"Table": 7, "Theorem": 2, "Equation": 3},
        "hoi2008": {"Figure": 3, "Table": 3, "Equation": 14},
    }
    for paper, kinds in numbered.items():
        said = " ; ".join(row[1] for row in rows() if row[0] == paper)
        for kind, count in kinds.items():
            numbers: set[int] = set()
            for listed in re.findall(rf"{kind}s? ([\d–]+(?:(?:, | and )\d+)*)", said):
                for part in re.findall(r"(\d+)(?:–(\d+))?", listed):
                    numbers |= set(range(int(part[0]), int(part[1] or part[0]) + 1))
            assert numbers == set(range(1, count + 1)), f"{paper}: {kind}"
