"""Scripts of an export as single files: the part that all engines share, joined with the part of one engine."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from importlib.resources import files as resources
from typing import NamedTuple

_PARTS = "querywise.exports.scripts"  # the package of the parts; a joined file does not import from it
_RUNTIME = "querywise.runtime"  # the package of the HTTP client, used by the library and by scripts


def scripts_of(engine: str, *, routed: bool) -> dict[str, str]:
    """Return the texts of an engine's scripts by name, for every script with an engine part in `scripts/`.

    check_parity.py: the HTTP client, the shared part, then the engine's part, which uses it. upload.py uses the check
    beside it. router.py, if queries are routed: first the engine's part, which users edit, then the shared part.
    """
    found: dict[str, str] = {}
    if _exists(f"check_{engine}.py"):
        client, shared, own = _read("http_client.py", _RUNTIME), _read("check_parity.py"), _read(f"check_{engine}.py")
        found["check_parity.py"] = _joined(_docstring(shared, own), client, shared, own)
    if _exists(f"upload_{engine}.py"):
        shared, own = _read("upload.py", beside_check=True), _read(f"upload_{engine}.py", beside_check=True)
        found["upload.py"] = _joined(_docstring(shared, own), shared, own)
    if routed and _exists(f"route_{engine}.py"):
        shared, own = _read("router.py"), _read(f"route_{engine}.py")
        found["router.py"] = _joined(_docstring(shared, own), own, shared)
    return found


def request_script() -> str:
    """Return the text of router.py for weights of runs, the same for every engine."""
    part = _read("route_weights.py")
    return _joined(part.docstring, part)


def _exists(name: str) -> bool:
    return resources(_PARTS).joinpath(name).is_file()


class _Part(NamedTuple):
    docstring: str
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    code: str


def _read(name: str, package: str = _PARTS, *, beside_check: bool = False) -> _Part:
    """Return a part's docstring, its imports from other packages, and its code without surrounding blank lines.

    `beside_check` tells whether the part imports from the check_parity.py beside it.
    """
    text = resources(package).joinpath(name).read_text(encoding="utf-8")
    lines, nodes = text.splitlines(), ast.parse(text).body
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        if beside_check and isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{_PARTS}.check_"):
            node.module = "check_parity"
    return _Part(
        "\n".join(lines[: _last_line(nodes[0])]).strip('"').strip("\n"),
        tuple(node for node in imports if not _imports_a_part(node)),
        "\n".join(lines[_last_line(imports[-1]) :]).strip("\n"),
    )


def _imports_a_part(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and str(node.module).startswith((_PARTS, _RUNTIME))


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _docstring(shared: _Part, own: _Part) -> str:
    """Return the shared docstring with its first line replaced by the engine's docstring."""
    return f"{own.docstring}\n{shared.docstring.partition(chr(10))[2]}"


def _joined(docstring: str, *parts: _Part) -> str:
    """Join parts to one file. Each may use names of those before it."""
    imports = _import_lines([node for part in parts for node in part.imports])
    code = "\n\n\n".join(part.code for part in parts)
    return f'"""{docstring}\n"""\n\n{imports}\n\n{code}\n'


def _import_lines(nodes: Iterable[ast.Import | ast.ImportFrom]) -> str:
    """Return the import lines, unique and sorted: the future, the standard library, other packages."""
    modules: set[str] = set()
    names: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names.setdefault(str(node.module), set()).update(each.name for each in node.names)
        else:
            modules.update(each.name for each in node.names)
    lines = [(name, f"import {name}") for name in sorted(modules)]
    lines += [(name, f"from {name} import {', '.join(sorted(names[name]))}") for name in sorted(names)]
    groups: dict[int, list[str]] = {}
    for name, line in lines:
        groups.setdefault(_group(name), []).append(line)
    return "\n\n".join("\n".join(groups[group]) for group in sorted(groups))


def _group(module: str) -> int:
    if module == "__future__":
        return 0
    return 1 if module.partition(".")[0] in sys.stdlib_module_names else 2
