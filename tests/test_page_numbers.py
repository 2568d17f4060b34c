"""Numbers on pages: each is in a file that a command has written, named in its section."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from querywise.runtime.values import Json

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
PAGES = [
    *(ROOT / name for name in ("README.md", "docs/start.md", "docs/choosing.md", "docs/reproduction.md")),
    *sorted((ROOT / "docs" / "reproduction").glob("*.md")),
]
PUBLISHED = FIGURES / "published"  # what others have printed, and where
_LONG = 60  # lists beyond it are of queries, in which any number can be found
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d+\.\d{2,}(?!\w|\.\d)")


def sections(page: Path) -> Iterator[tuple[str, str]]:
    """The parts of a page under its larger headings."""
    for part in re.split(r"(?m)^(?=## )", page.read_text()):
        yield part.partition("\n")[0].strip("# "), part


def sources(section: str) -> list[Path]:
    """The files that a section names: beside its tables, or in a comment; `x.md` is a page that a command writes."""
    named = [f"figures/{name}/numbers.json" for name in re.findall(r"figures/([\w/-]+)/table.md", section)]
    for comment in re.findall(r"<!-- numbers: (.*?) -->", section):
        named += [name if name.endswith(".md") else f"figures/{name}/numbers.json" for name in comment.split()]
    return [ROOT / "docs" / name for name in dict.fromkeys([*named, "figures/published/numbers.json"])]


def numbers(content: Json) -> Iterator[float]:
    """Every number in a file, those within words included."""
    if isinstance(content, str):
        yield from map(float, _NUMBER.findall(content))
    elif isinstance(content, int | float):
        yield abs(float(content))
    elif isinstance(content, dict):
        for value in content.values():
            yield from numbers(value)
    elif isinstance(content, list) and len(content) <= _LONG:
        for value in content:
            yield from numbers(value)


def strangers(section: str) -> list[str]:
    """The numbers of two decimals and more that no file has, as they are printed."""
    known: set[float] = set()
    for path in sources(section):
        text = path.read_text()
        known.update(numbers(text if path.suffix == ".md" else json.loads(text)))
    rounded = {f"{each:.{places}f}" for each in known for places in range(2, 7)}
    rounded |= {f"{100 * each:.{places}f}" for each in known for places in (2, 4)}  # as percent
    return [each for each in _NUMBER.findall(_CODE.sub("", section)) if each not in rounded]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_number_of_a_page_is_in_the_file_of_its_section(page: Path) -> None:
    unknown = {title: missing for title, part in sections(page) if (missing := strangers(part))}
    assert unknown == {}


def test_a_number_that_no_command_has_made_is_found(tmp_path: Path) -> None:
    section = "## A title\n\n<!-- numbers: one-model-MQ2008 -->\n\nMAP is {} on it, `0.9999` aside."
    assert strangers(section.format("0.4770")) == []
    assert strangers(section.format("0.4771")) == ["0.4771"]


def test_what_others_have_printed_says_where() -> None:
    content = json.loads((PUBLISHED / "numbers.json").read_text())
    assert content
    for each in content:
        assert each["source"]
        assert each["figures"]
