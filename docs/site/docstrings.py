"""Docstrings as Markdown: parameters as a list, examples as code, citations as plain keys."""

from __future__ import annotations

import re
from typing import Any

import griffe

_PARAMETER = re.compile(r"^(\w+(?:, \w+)*): ")
_CITATION = re.compile(r"\[(\w+)\]_")


class AsMarkdown(griffe.Extension):
    """Rewrite the docstring of every object once it is read."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring, if there is one."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value, _names(obj))


def as_markdown(text: str, parameters: set[str]) -> str:
    """Lines `name: …` of these parameters become list items, lines after `>>>` a block of code."""
    lines: list[str] = []
    state = ""
    for line in text.splitlines():
        begins = _PARAMETER.match(line)
        if state == "code" and not line.strip():
            lines.append("```")
            state = ""
        if state != "code" and line.startswith(">>> "):
            lines += ["", "```pycon"]
            state = "code"
        elif state != "code" and begins and set(begins[1].split(", ")) <= parameters:
            names = ", ".join(f"`{name}`" for name in begins[1].split(", "))
            lines += [] if state == "list" else [""]
            line = f"- **{names}**: {line[begins.end() :]}"
            state = "list"
        elif state == "list":
            state = "list" if line.strip() else ""
            line = f"  {line}" if line.strip() else ""
        lines.append(line if state == "code" else _CITATION.sub(r"\\[\1\\]", line))
    return "\n".join([*lines, *(["```"] if state == "code" else [])])


def _names(obj: griffe.Object) -> set[str]:
    """What a class or function is called with, and a class's attributes: what its docstring may explain."""
    if isinstance(obj, griffe.Function):
        return {parameter.name for parameter in obj.parameters}
    if isinstance(obj, griffe.Class):
        begin = obj.members.get("__init__")
        return set(obj.members) | (_names(begin) if isinstance(begin, griffe.Function) else set())
    return set()
