"""router.py as a user gets it: what is one engine's own, and what all engines share, in one file."""

from __future__ import annotations

import ast
from typing import NamedTuple

_PARTS = "querywise.exports.scripts"  # where the parts lie; the joined file imports nothing from there


def joined(shared: str, own: str) -> str:
    """The texts of two files as one: docstring, imports, the engine's own part, the shared rest.

    The docstring begins with that of the own part, a line, in place of the first line of the shared one. The imports
    are those of the shared part, so the own part may use no others.
    """
    above, below = _cut(shared), _cut(own)
    first_line = below.docstring.removesuffix('"""')
    usage = above.docstring.partition("\n")[2]
    return f"{first_line}\n{usage}\n\n{above.imports}\n\n{below.rest}\n\n\n{above.rest}\n"


class _Pieces(NamedTuple):
    docstring: str
    imports: str
    rest: str


def _cut(text: str) -> _Pieces:
    """A file's docstring, its imports but those of other parts, and the rest, without blank lines around them."""
    lines, nodes = text.splitlines(), ast.parse(text).body
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    below_docstring, below_imports = _last_line(nodes[0]), _last_line(imports[-1])
    dropped = {
        line
        for node in imports
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(_PARTS)
        for line in range(node.lineno, _last_line(node) + 1)
    }
    kept = [line for line in range(below_docstring + 1, below_imports + 1) if line not in dropped]
    return _Pieces(
        "\n".join(lines[:below_docstring]),
        "\n".join(lines[line - 1] for line in kept).strip("\n"),
        "\n".join(lines[below_imports:]).strip("\n"),
    )


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
