"""A page of docs/engines as a script: its blocks of commands, run in their order in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "engines"
SOURCES = Path(__file__).parents[2] / "src"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d\.\d+")
CLOSE = 0.02  # another build of Java or LightGBM may split a tree elsewhere where gains are level; p moves more
_COMMANDS = ("querywise ", "python ", "curl ", "mkdir ", "for ", "done", "  curl ", "cd ", "npx ", "node ")


class Block(NamedTuple):
    """A block of a page: the language it names, and its text."""

    language: str
    text: str

    @property
    def is_commands(self) -> bool:
        """Whether it is commands for a shell."""
        return not self.language and all(line.startswith(_COMMANDS) for line in self.text.splitlines())


def blocks(page: str) -> list[Block]:
    """The blocks of a page."""
    return [Block(*found) for found in _BLOCK.findall((PAGES / f"{page}.md").read_text())]


def run(commands: str, folder: Path, **variables: str) -> str:
    """What commands print; none may fail. `python` and `querywise` are those of the tests."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(SOURCES), **variables}
    environment.pop("COLUMNS", None)
    words = ["bash", "-e", "-o", "pipefail", "-c", commands.replace("curl ", "curl -sS ")]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check_shown(found: str, shown: str) -> None:
    """What was printed has the lines that a page shows, and figures close to its own; a third one in a line is p."""
    lines = [[line.rstrip() for line in text.split("\n")] for text in (found, shown)]
    assert [NUMBER.sub("#", line) for line in lines[0]] == [NUMBER.sub("#", line) for line in lines[1]]
    for line, other in zip(*lines, strict=True):
        pairs = list(zip(NUMBER.findall(line), NUMBER.findall(other), strict=True))
        for one, two in pairs[:2]:
            assert float(one) == pytest.approx(float(two), abs=CLOSE * max(1, float(two))), line
