"""Rooms, files and functions of a size that a reader can take in."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "querywise"
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> set[int]:
    """The lines that have code on them, and not a comment alone."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {line for token in tokens if token.type not in LAYOUT for line in range(token.start[0], token.end[0] + 1)}


def functions(text: str, longer_than: int = 0) -> Iterator[tuple[str, int]]:
    """Every function that takes more lines, and how many have code, without signature and docstring."""
    found: list[tuple[str, range]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body:
                assert node.end_lineno is not None
                found.append((node.name, range(body[0].lineno, node.end_lineno + 1)))
    lines = code_lines(text) if any(len(each) > longer_than for _, each in found) else set()
    yield from ((name, len(lines & set(each))) for name, each in found if len(each) > longer_than)


def test_there_are_about_twenty_rooms() -> None:
    rooms = [path for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    assert 15 <= len([room for room in rooms if room.name != "__init__.py"]) <= 24


def test_no_file_is_long() -> None:
    files = [path for kind in ("*.py", "*.js", "*.css", "*.html") for path in ROOT.rglob(kind)]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > 600} == {}


def test_no_function_is_long() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}": length
        for path in ROOT.rglob("*.py")
        for name, length in functions(path.read_text(), longer_than=40)
        if length > 40
    }
    assert found == {}


def test_signature_docstring_and_comments_are_not_counted() -> None:
    text = 'def f(\n    a,\n):\n    """Words.\n\n    More.\n    """\n    # a remark\n    c = (\n        a\n    )\n\n'
    assert list(functions(text + "    return c\n")) == [("f", 4)]
