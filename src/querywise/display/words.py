"""Short texts for `repr`: counts with nouns, the first of many names, shortened names; and printable texts."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

_LONGEST = 36  # characters of a name in a figure
_HARMLESS = "\n\t\xad\u200c\u200d"  # unprintable characters that texts need: ends of lines, tabs, hyphens, joiners
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")  # XML 1.0 forbids most of them


def printable(text: str) -> str:
    r"""Return a text that is safe to print on a terminal: control and bidirectional characters are escaped.

    >>> print(printable("red: \x1b[31m"))
    red: \x1b[31m
    """
    if text.isprintable():
        return text
    harmless = {each for each in set(text) if each.isprintable() or unicodedata.category(each) == "Zs"} | set(_HARMLESS)
    return "".join(each if each in harmless else repr(each)[1:-1] for each in text)


def without_controls(text: str) -> str:
    r"""Return a text for a file: control characters, and others that XML does not allow, become U+FFFD.

    >>> without_controls("a\x1bb") == "a\ufffdb"
    True
    """
    return _CONTROLS.sub("\ufffd", text)


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun.

    >>> counted(1, "query"), counted(1200, "document"), counted(2, "class", "classes")
    ('1 query', '1,200 documents', '2 classes')
    """
    return f"{count:,} {one if count == 1 else many or plural(one)}"


def plural(noun: str) -> str:
    """Return the plural of a noun."""
    return "queries" if noun == "query" else f"{noun}s"


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first of several names, and the number of the others.

    >>> some(["bm25", "tf", "idf", "length"], most=2)
    'bm25, tf and 2 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def short(name: str, longest: int = _LONGEST) -> str:
    """Shorten a long name by leaving out its middle.

    >>> short("a-method-with-a-name-of-many-words-that-goes-on")
    'a-method-with-a-name-o…-that-goes-on'
    """
    end = longest // 3 + 1
    return name if len(name) <= longest else f"{name[: longest - end - 1]}…{name[-end:]}"


def p_value(p: float) -> str:
    """Format a p-value; return an empty text if there is none."""
    return "" if math.isnan(p) else "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def p_in_words(p: float) -> str:
    """Format a p-value for a sentence.

    >>> p_in_words(0.012), p_in_words(1e-9)
    ('p = 0.0120', 'p < 0.0001')
    """
    return f"p {'' if p < 1e-4 else '= '}{p_value(p)}"


def in_columns(lines: Sequence[Sequence[str]], *, first_to_the_right: bool = False) -> list[str]:
    """Format rows of cells as lines of text with aligned columns: names to the left, the others to the right.

    >>> in_columns([["method", "map"], ["svm", "0.5"]])
    ['method  map', 'svm     0.5']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place or first_to_the_right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
