"""What the documents say is true: their code runs and prints what they show, their links lead somewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sklearn

from querywise.methods import METHODS

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n```\n(.*?)```)?", re.DOTALL)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/guide.md",
        "docs/python.md",
        "docs/text.md",
        pytest.param("docs/lightgbm.md", marks=pytest.mark.slow),
    ],
)
def test_code_on_the_page_prints_what_the_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    names: dict[str, object] = {}
    with sklearn.config_context():  # what a page sets holds for that page
        for code, shown in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, page, "exec"), names)
            assert printed.getvalue() == shown


def test_the_first_screen_of_the_readme_is_a_sentence_two_commands_and_words_with_vectors() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert (
        lines.index("make demo    # sets itself up, then searches and ranks the documentation of your own Python") < 10
    )
    shown = [line for line in lines[:40] if not line.startswith("<!--")]
    assert any(line.startswith("querywise compare FOLDER --vectors vectors/") for line in shown)
    assert any(line.startswith("querywise fuse bm25.trec vectors.trec") for line in shown)
    assert any(line.startswith("| Cranfield |") for line in shown), "what it gains"


def test_the_readme_lists_every_method() -> None:
    text = (ROOT / "README.md").read_text()
    for method in METHODS.values():
        row = f"| `{method.name}` | `{type(method.build()).__name__}` | {method.description} |"
        assert row in text


def test_pages_show_the_tables_that_were_made() -> None:
    pages = [path.read_text() for path in (*generator().REPRODUCTIONS, generator().README)]
    for page in pages:
        assert page == generator().with_tables(page), "run `make docs`"
    made = [str(table.relative_to(ROOT / "docs")) for table in (ROOT / "docs" / "figures").glob("*/table.md")]
    assert sorted(made) == sorted(re.findall(r"<!-- (?:docs/)?(figures/\S+\.md) -->", "".join(pages)))


def test_the_table_of_claims_has_what_every_reproduction_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = generator().FIGURES
    claims = {path.parent.name for path in figures.glob("*-*/numbers.json") if "claims" in json.loads(path.read_text())}
    assert claims == {f"{paper}-{name}" for paper, names in generator().CLAIMS.items() for name in names}
    for name in claims:
        (tmp_path / name).symlink_to(figures / name)
    monkeypatch.setattr(generator(), "FIGURES", tmp_path)
    generator().write_summary_of_claims()
    for file in ("table.md", "numbers.json"):
        made = (tmp_path / "claims" / file).read_text()
        assert made == (figures / "claims" / file).read_text(), "run `make docs`"


def test_links_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())]
    assert links
    lost = [(page, link) for page, link in links if not link.startswith("http") and not (page.parent / link).exists()]
    assert not lost, "\n".join(f"{page.relative_to(ROOT)}: {link}" for page, link in lost)


def test_papers_are_cited_by_a_key_that_exists() -> None:
    known = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text(), re.MULTILINE))
    pages = sorted(ROOT.glob("src/**/*.py"))
    cited = [(page, key) for page in pages for key in re.findall(r"\[(\w+)\]_", page.read_text())]
    assert cited
    unknown = [f"{page.relative_to(ROOT)}: {key}" for page, key in cited if key not in known]
    assert not unknown, "\n".join(unknown)


def test_the_generated_pages_are_current() -> None:
    assert generator().PAGE.read_text() == generator().command_line_page(), "run `make docs`"
    assert generator().HTTP.read_text() == generator().http_page(), "run `make docs`"
    assert generator().SETTINGS.read_text() == generator().methods_page(), "run `make docs`"


@cache
def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
