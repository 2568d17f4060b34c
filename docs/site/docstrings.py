"""Docstrings as Markdown: parameters as a list, examples as code, citations as plain keys; names and terms as links.

A term is a heading of the glossary. Its first use in a docstring leads there, unless it is also a parameter's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import griffe

from querywise import _HOMES

_CITATION = re.compile(r"\[(\w+)\]_")
_ITEM = re.compile(r"^ {4}(\w+(?:, \w+)*): ")
_GLOSSARY = Path(__file__).parent.parent / "glossary.md"
_TERM = re.compile(r"^### (.+)$", re.MULTILINE)
# In nearly every sentence, or often in another sense.
_NEVER_LINKED = {"query", "document", "feature", "gain", "grid", "power", "precision", "prior", "reference", "run"}
_SHORTEST = 3  # letters of a term: `k` and `p` are also names of other things
_NO_PROSE = re.compile(r"((?s:```.*?```)|^    .*$|`[^`]*`|\[[^]]*\]\[[^]]*\])", re.MULTILINE)  # code and links
_CLASS = re.compile(r"\b((?=\w*[a-z])[A-Z]\w*[A-Z]\w*)\b")  # with a second capital, unlike the first word of a sentence
_NAME = re.compile(r"(?<!`)`([A-Z]\w+|\w+_\w+)`(?!`)")  # of a class or of several words: others are parameters, too


class AsMarkdown(griffe.Extension):
    """Rewrite every docstring once the package is read: only then are inherited parameters known."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Rewrite the docstrings of a package, all modules, classes and functions."""
        _rewrite(pkg)


def _rewrite(obj: griffe.Object) -> None:
    if obj.docstring is not None:
        names = _names(obj)
        obj.docstring.value = with_terms(with_names(as_markdown(obj.docstring.value), obj.name), terms(), names)
    for member in obj.members.values():
        if isinstance(member, griffe.Object):  # and not another name of something elsewhere
            _rewrite(member)


def as_markdown(text: str) -> str:
    """Convert a Google-style docstring: arguments become list items, and `>>>` a block of code."""
    return "\n\n".join(map(_paragraph, text.split("\n\n")))


def _paragraph(text: str) -> str:
    before, prompt, example = text.partition(">>> ")
    if prompt:
        return f"{before}\n```pycon\n>>> {example}\n```"
    first, *lines = _NAME.sub(_linked, _CITATION.sub(r"\\[\1\\]", text)).splitlines() or [""]
    if first == "Args:" or first == "Attributes:":
        return "\n".join(map(_item, lines))
    if first == "Returns:" or first == "Raises:":
        return "\n".join([f"**{first[:-1]}**: {lines[0].strip()}", *(line.strip() for line in lines[1:])])
    return "\n".join([first, *lines])


def _item(line: str) -> str:
    begins = _ITEM.match(line)
    if not begins:
        return f"  {line.strip()}"
    shown = ", ".join(f"`{name}`" for name in begins[1].split(", "))
    return f"- **{shown}**: {line[begins.end() :]}"


def with_names(markdown: str, own: str) -> str:
    """The same with links where names of classes stand between words, such as DataError; but not to itself."""
    parts = _NO_PROSE.split(markdown)
    return "".join(
        part if odd % 2 else _CLASS.sub(lambda name: name[0] if name[0] == own else _linked(name), part)
        for odd, part in enumerate(parts)
    )


def _linked(name: re.Match[str]) -> str:
    """A public name, with a link to its place in the reference."""
    return f"[{name[0]}][{_HOMES[name[1]]}.{name[1]}]" if name[1] in _HOMES else name[0]


@cache
def terms() -> dict[str, str]:
    """Every term of the glossary, in lower case, and its anchor; none where there is no glossary."""
    text = _GLOSSARY.read_text() if _GLOSSARY.is_file() else ""
    found = {}
    for heading in _TERM.findall(text):
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for term in [] if "," in heading else heading.split(" and "):
            if len(term) >= _SHORTEST and term not in _HOMES:
                found.setdefault(term.lower(), anchor)
    return {term: anchor for term, anchor in found.items() if term not in _NEVER_LINKED}


def with_terms(markdown: str, anchors: Mapping[str, str], parameters: set[str]) -> str:
    """The same with a link to the glossary where a term is used for the first time."""
    known = {term: anchor for term, anchor in anchors.items() if term not in parameters}
    if not known:
        return markdown
    every = "|".join(re.escape(term) for term in sorted(known, key=len, reverse=True))
    used: set[str] = set()

    def linked(word: re.Match[str]) -> str:
        anchor = known[word[1].lower()]
        if anchor in used:
            return word[0]
        used.add(anchor)
        return f"[{word[0]}](../glossary.md#{anchor})"

    parts = _NO_PROSE.split(markdown)
    prose = re.compile(rf"(?<![\w@/-])({every})s?(?![\w@/-])", re.IGNORECASE)
    return "".join(part if odd % 2 else prose.sub(linked, part) for odd, part in enumerate(parts))


def _names(obj: griffe.Object) -> set[str]:
    """What a function, or a class and its methods, are called with, and its attributes: what may be explained."""
    if isinstance(obj, griffe.Function):
        return {parameter.name for parameter in obj.parameters}
    if isinstance(obj, griffe.Class):
        methods = [each for each in obj.members.values() if isinstance(each, griffe.Function)]
        return set(obj.members) | {parameter.name for each in (obj, *methods) for parameter in each.parameters}
    return set()
