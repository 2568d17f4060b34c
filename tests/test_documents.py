"""What the documents say is true: their code runs and prints what they show, their links lead somewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sklearn

from querywise.methods import METHODS
from tests.optional import require_pyterrier
from tests.support.pages import BLOCK, printed_by

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NUMBER = re.compile(r"[+-]?\d+\.\d{2,}")
NEAR = 0.03  # how far a number may be from the one shown where trees were grown: other processors round otherwise


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("README.md", marks=pytest.mark.slow),
        "docs/start.md",
        "docs/guide.md",
        "docs/python.md",
        "docs/text.md",
        "docs/boosts.md",
        "docs/online.md",
        "docs/fields.md",
        pytest.param("docs/judging.md", marks=pytest.mark.slow),
        pytest.param("docs/lightgbm.md", marks=pytest.mark.slow),
        pytest.param(
            "docs/pyterrier.md",  # PyTerrier itself calls what pandas will drop
            marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")],
        ),
        pytest.param("docs/tuning.md", marks=pytest.mark.slow),
    ],
)
def test_code_on_the_page_prints_what_the_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page == "docs/pyterrier.md":
        require_pyterrier()
    monkeypatch.chdir(tmp_path)
    for name in ("docs", "examples"):  # what pages read of the repository
        (tmp_path / name).symlink_to(ROOT / name)
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    names: dict[str, object] = {}
    with sklearn.config_context():  # what a page sets holds for that page
        for language, code, shown in blocks:
            printed = printed_by_shell(code) if language == "sh" else printed_by(code, page, names)
            assert_shown(printed, shown, within=NEAR if "recommended(" in code else 0.0)


def printed_by_shell(code: str) -> str:
    """What a block of commands prints, without the spaces at the ends of lines; `querywise` is this Python's."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return "\n".join(line.rstrip() for line in done.stdout.split("\n"))


def assert_shown(printed: str, shown: str, *, within: float) -> None:
    """What was printed is what a page shows: the same words, and numbers that are no further from those shown."""
    if within == 0.0:
        assert printed == shown
        return
    printed, shown = (re.sub(r"< (?=\d)", "", text) for text in (printed, shown))  # < 0.0001 is a number too
    assert NUMBER.sub("0", printed).split() == NUMBER.sub("0", shown).split()
    assert list(map(float, NUMBER.findall(printed))) == pytest.approx(
        list(map(float, NUMBER.findall(shown))), rel=0, abs=within
    )


def test_numbers_may_differ_a_little_where_trees_were_grown_and_words_may_not() -> None:
    assert_shown("blend 0.5511 +0.0197", "blend  0.5412 +0.0251", within=NEAR)
    for other in ("blend 0.6511 +0.0197", "trees 0.5511 +0.0197", "blend 0.5511"):
        with pytest.raises(AssertionError):
            assert_shown(other, "blend 0.5511 +0.0197", within=NEAR)
    with pytest.raises(AssertionError):
        assert_shown("blend 0.5511", "blend 0.5512", within=0.0)


def test_the_first_screen_of_the_readme_says_what_it_is_how_to_get_it_and_when_not_to() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert next(place for place, line in enumerate(lines) if line.startswith("## ")) <= 40
    first = "\n".join(lines[:10])
    assert "\npip install . " in first
    assert "make dist && pip install dist/*.whl" in first
    assert "make demo    # sets itself up, then searches and ranks your Python's documentation" in first
    screen = "\n".join(lines[:40])
    ((_, _, shown),) = BLOCK.findall(screen)
    assert "p (Holm)" in shown, "the paired test"
    assert "**When it does not help:**" in screen
    assert "**For** " in screen
    assert "Python `3.11` to `3.14`" in screen
    assert "Apache License 2.0" in screen
    assert len(lines) <= 135


def test_the_page_of_methods_lists_every_one_first() -> None:
    text = generator().SETTINGS.read_text().partition("\n## ")[0]
    for method in METHODS.values():
        row = f"| [`{method.name}`](#{method.name}) | `{type(method.build()).__name__}` | {method.description} |"
        assert row in text


@pytest.mark.parametrize("name", ["idea", "gains"])
def test_a_picture_is_what_its_script_draws(name: str) -> None:
    drawing = script(name)
    assert drawing.PICTURE.read_text() == drawing.picture()


def test_pages_show_the_tables_that_were_made() -> None:
    pages = [path.read_text() for path in (*generator().REPRODUCTIONS, generator().CHOOSING)]
    for page in pages:
        assert page == generator().with_tables(page), "run `make docs`"
    made = [str(table.relative_to(ROOT / "docs")) for table in (ROOT / "docs" / "figures").glob("*/table.md")]
    shown = re.findall(r"<!-- (?:docs/)?(figures/\S+\.md) -->", "".join(pages))
    assert len(shown) == len(set(shown))
    assert set(made) <= set(shown)


def test_the_table_of_claims_has_what_every_reproduction_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = generator().FIGURES
    claims = {path.parent.name for path in figures.glob("*-*/numbers.json") if "claims" in json.loads(path.read_text())}
    assert claims == {f"{paper}-{name}" for paper, names in generator().CLAIMS.items() for name in names}
    for name in claims:
        (tmp_path / name).symlink_to(figures / name)
    monkeypatch.setattr(generator(), "FIGURES", tmp_path)
    generator().write_summary_of_claims()
    names = sorted(path.name for path in (figures / "claims").iterdir())
    assert names == sorted(["table.md", "numbers.json", *(f"{paper}.md" for paper in generator().CLAIMS)])
    for file in names:
        made = (tmp_path / "claims" / file).read_text()
        assert made == (figures / "claims" / file).read_text(), "run `make docs`"


def test_links_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())]
    assert links
    lost = [(page, link) for page, link in links if not link.startswith("http") and not (page.parent / link).exists()]
    assert not lost, "\n".join(f"{page.relative_to(ROOT)}: {link}" for page, link in lost)


def test_papers_are_cited_by_a_key_that_exists() -> None:
    known = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text(), re.MULTILINE))
    pages = [*ROOT.glob("src/**/*.py"), *ROOT.glob("reproduction/*.py")]
    cited = [(page, key) for page in pages for key in re.findall(r"\[(\w+)\]_", page.read_text())]
    assert cited
    unknown = [f"{page.relative_to(ROOT)}: {key}" for page, key in cited if key not in known]
    assert not unknown, "\n".join(unknown)


def test_the_generated_pages_are_current() -> None:
    assert generator().PAGE.read_text() == generator().command_line_page(), "run `make docs`"
    assert generator().HTTP.read_text() == generator().http_page(), "run `make docs`"
    assert generator().SETTINGS.read_text() == generator().methods_page(), "run `make docs`"


def generator() -> Any:
    return script("generate")


@cache
def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
