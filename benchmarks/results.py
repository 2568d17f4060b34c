"""What a bench found, and where all of it is kept."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Result:
    """One line of a bench's table: a cost of ours, that of the alternative, and what was aimed for.

    floor: the least it could be on this machine, in the same unit, where that is known; these lines are also shown
    together, as how close they are to the limit.
    """

    bench: str
    what: str
    ours: float
    theirs: float | None
    unit: str
    ratio: float | None
    aim: str
    reached: bool | None
    floor: float | None = None


@dataclass(frozen=True)
class Report:
    """Everything measured, on which machine and when."""

    machine: str
    results: tuple[Result, ...]
    day: str = ""


def above(floor: float, result: Result) -> Result:
    """The result, with the least it could be."""
    return replace(result, floor=floor)


def at_most(bench: str, what: str, *, ours: float, theirs: float, unit: str, most: float | None = None) -> Result:
    """Our cost beside one that it is a multiple of; the ratio is ours / theirs."""
    ratio = ours / theirs
    if most is None:
        return Result(bench, what, ours, theirs, unit, ratio, "", None)
    return Result(bench, what, ours, theirs, unit, ratio, f"≤ {most:g}×", ratio <= most)


def compared(bench: str, what: str, *, ours: float, theirs: float, unit: str, at_least: float | None = None) -> Result:
    """Our cost beside theirs; the ratio is how many times ours theirs is."""
    ratio = theirs / ours
    if at_least is None:
        return Result(bench, what, ours, theirs, unit, ratio, "", None)
    return Result(bench, what, ours, theirs, unit, ratio, f"≥ {at_least:g}×", ratio >= at_least)


def alone(bench: str, what: str, *, ours: float, unit: str, below: float | None = None) -> Result:
    """A cost with nothing to compare it to, only perhaps a limit."""
    if below is None:
        return Result(bench, what, ours, None, unit, None, "", None)
    return Result(bench, what, ours, None, unit, None, f"< {below:g} {unit}", ours < below)


def this_machine() -> str:
    """Cores, memory and versions, in one line."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "scikit-learn", "querywise")
    )
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {gigabytes:.0f} GB of memory, "
        f"{platform.system()}, Python {platform.python_version()}, {versions}"
    )


def save(report: Report) -> None:
    """Write `report` over what was kept before."""
    RESULTS.write_text(json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load() -> Report | None:
    """What was kept last, or nothing."""
    if not RESULTS.exists():
        return None
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    return Report(kept["machine"], tuple(Result(**each) for each in kept["results"]), kept.get("day", ""))


def merged(before: Report | None, after: Report, order: Sequence[str]) -> Report:
    """`after`, with the benches it lacks taken from `before` if that was the same machine, in the given order."""
    new = {result.bench for result in after.results}
    old = before.results if before is not None and before.machine == after.machine else ()
    every = [*(result for result in old if result.bench not in new and result.bench in order), *after.results]
    return Report(after.machine, tuple(sorted(every, key=lambda result: order.index(result.bench))), after.day)
