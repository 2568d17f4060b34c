"""Docstrings as Markdown: parameters as a list, examples as code, public names as links, citations as plain keys."""

from __future__ import annotations

import re
from typing import Any

import griffe

from querywise import _HOMES

_PARAMETER = re.compile(r"^(\w+(?:, \w+)*): ")
_CITATION = re.compile(r"\[(\w+)\]_")
_NAME = re.compile(r"(?<!`)`([A-Z]\w+|\w+_\w+)`(?!`)")  # of a class or of several words: others are parameters, too


class AsMarkdown(griffe.Extension):
    """Rewrite every docstring once the package is read: only then are inherited parameters known."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Rewrite the docstrings of a package, all modules, classes and functions."""
        _rewrite(pkg)


def _rewrite(obj: griffe.Object) -> None:
    if obj.docstring is not None:
        obj.docstring.value = as_markdown(obj.docstring.value, _names(obj))
    for member in obj.members.values():
        if isinstance(member, griffe.Object):  # and not another name of something elsewhere
            _rewrite(member)


def as_markdown(text: str, parameters: set[str]) -> str:
    """Paragraph by paragraph: lines `name: …` of these parameters become list items, `>>>` a block of code."""
    return "\n\n".join(_paragraph(part, parameters) for part in text.split("\n\n"))


def _paragraph(text: str, parameters: set[str]) -> str:
    before, prompt, example = text.partition(">>> ")
    if prompt:
        return f"{before}\n```pycon\n>>> {example}\n```"
    lines = []
    listed = False
    for line in _NAME.sub(_linked, _CITATION.sub(r"\\[\1\\]", text)).splitlines():
        begins = _PARAMETER.match(line)
        names = begins[1].split(", ") if begins else []
        if begins and set(names) <= parameters:
            shown = ", ".join(f"`{name}`" for name in names)
            lines += ([] if listed else [""]) + [f"- **{shown}**: {line[begins.end() :]}"]
            listed = True
        else:
            lines.append(f"  {line}" if listed else line)
    return "\n".join(lines)


def _linked(name: re.Match[str]) -> str:
    """A public name, with a link to its place in the reference."""
    return f"[{name[0]}][{_HOMES[name[1]]}.{name[1]}]" if name[1] in _HOMES else name[0]


def _names(obj: griffe.Object) -> set[str]:
    """What a class or function is called with, and a class's attributes: what its docstring may explain."""
    if isinstance(obj, griffe.Function):
        return {parameter.name for parameter in obj.parameters}
    if isinstance(obj, griffe.Class):
        return set(obj.members) | {parameter.name for parameter in obj.parameters}
    return set()
