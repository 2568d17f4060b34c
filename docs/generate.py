"""Write the generated pages anew: the command line's reference, and the tables that commands have made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent / "cli.md"
REPRODUCTION = Path(__file__).parent / "reproduction.md"
COMMANDS = (
    "demo", "features", "index", "search", "fit", "rank", "evaluate", "compare", "fuse", "explain", "export",
    "reproduce", "methods",
)  # fmt: skip


def help_of(*words: str) -> str:
    """What `querywise … --help` prints, without colour, at a width that suits a page."""
    command = Path(sys.executable).with_name("querywise")
    surroundings = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    shown = subprocess.run([command, *words, "--help"], capture_output=True, text=True, check=True, env=surroundings)
    return "\n".join(line.rstrip() for line in shown.stdout.strip("\n").splitlines())


def command_line_page() -> str:
    """The whole page."""
    parts = ["# Command line", "Written by `make docs` from the commands themselves.", f"```\n{help_of()}\n```"]
    for command in COMMANDS:
        parts += [f"## querywise {command}", f"```\n{help_of(command)}\n```"]
    return "\n\n".join(parts) + "\n"


def with_tables(page: str) -> str:
    """A page with the tables that commands have written, each between the two comments that name its file."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n\n{(REPRODUCTION.parent / found[1]).read_text().strip()}\n\n<!-- end -->"

    return re.sub(r"<!-- (figures/\S+\.md) -->.*?<!-- end -->", table, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(command_line_page())
    REPRODUCTION.write_text(with_tables(REPRODUCTION.read_text()))
