"""What a report was made of: data, command, versions, date and time taken. Told by whoever made it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

# What stands before the @ of an address, and values of parameters that are called like a secret.
_SECRETS = re.compile(
    r"(?<=://)[^/@\s]+(?=@)|(?<=[?&;])((?:[\w-]*(?:key|token|secret|password|passwd|auth)[\w-]*)=)[^&#\s]+",
    re.IGNORECASE,
)
# Ids of documents → the titles of those that have one.
Titles = Callable[[Collection[str]], Mapping[str, str]]


@dataclass(frozen=True)
class Origin:
    """Where a report comes from. What is empty or None is not known, and is not shown.

    seconds: how long the run took, which may have used parts that an earlier one had finished. methods: what a method
    is, in a few words, by its name.
    """

    data: str = ""
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    date: datetime | None = None
    seconds: float | None = None
    note: str = ""
    methods: Mapping[str, str] = field(default_factory=dict)


def shown_command(arguments: Sequence[str]) -> str:
    """A command as it can be typed again, without passwords and keys of addresses.

    >>> shown_command(["querywise", "compare", "my data", "--embed", "https://me:secret@host/v1?api_key=abc#m"])
    "querywise compare 'my data' --embed 'https://…@host/v1?api_key=…#m'"
    """
    return shlex.join(_SECRETS.sub(lambda found: f"{found[1] or ''}…", each) for each in arguments)


def duration(seconds: float) -> str:
    """A time taken, in words.

    >>> duration(7.2), duration(125), duration(7260)
    ('7.2 s', '2 min 5 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
