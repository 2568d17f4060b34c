"""How much memory there is, asked before much of it is taken."""

from __future__ import annotations

import os
from pathlib import Path

from querywise.errors import DataError
from querywise.runtime.workers import workers

_SAFE = 0.8  # of the memory there is, since the data and everything else needs some too
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def machine_memory() -> int:
    """The bytes of memory that this machine has, or that a container on it may take."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            found = min(found, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return found


def require_memory(needed: int, what: str, instead: str) -> None:
    """Refuse work that needs so many bytes where that is more than there is, or than the budget allows."""
    budget = workers().memory
    allowed = int(_SAFE * machine_memory()) if budget is None else budget
    if needed > allowed:
        whose = "of this machine's memory can be used" if budget is None else "are allowed"
        raise DataError(f"{what} {needed / 1e9:.1f} GB of memory; {allowed / 1e9:.1f} GB {whose}. {instead}")
