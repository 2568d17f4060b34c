"""The job of `querywise doctor`: the packages of this installation, and whether each of them works.

`python -m querywise.jobs.doctor` prints the same even if the command line's own packages are broken.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata, util
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from querywise.display.words import counted
from querywise.jobs.trials import Outcome, tried
from querywise.runtime.threads import available_cores
from querywise.runtime.values import Json, JsonObject
from querywise.runtime.workers import machine_memory

WORKS, BROKEN, OLD, MISSING = "works", "broken", "too old", "not installed"
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^\]]*\])?\s*\(?([^;)]*)")
_UNKNOWN = "unknown"


class CheckedPackage(NamedTuple):
    """A package: the module to import, and the names under which it may be installed, the usual one first."""

    module: str
    names: tuple[str, ...]


def _package(module: str, *names: str) -> CheckedPackage:
    return CheckedPackage(module, names or (module,))


class OptionalPart(NamedTuple):
    """An optional part: its purpose, its packages, and the command that installs it."""

    purpose: str
    packages: tuple[CheckedPackage, ...]
    install: str


REQUIRED = (
    _package("numpy"),
    _package("scipy"),
    _package("numba"),
    _package("sklearn", "scikit-learn"),
    _package("lightgbm"),
    _package("narwhals"),
    _package("safetensors"),
    _package("Stemmer", "PyStemmer"),
    _package("threadpoolctl"),
    _package("rich"),
    _package("typer"),
)
_ARROW = _package("pyarrow")
_USEARCH = _package("usearch")
_SERVED = ("fastapi", "httptools", "msgspec", "uvicorn", "uvloop")
PARTS: dict[str, OptionalPart] = {
    "serve": OptionalPart("a model behind HTTP", tuple(map(_package, _SERVED)), "pip install 'querywise[serve]'"),
    "parquet": OptionalPart("Parquet files and shards", (_ARROW,), "pip install 'querywise[parquet]'"),
    "cluster": OptionalPart("Ray clusters", (_ARROW, _package("ray")), "pip install 'querywise[cluster]'"),
    "static": OptionalPart(
        "vectors of texts by a table of tokens",
        (_package("tokenizers"), _package("wordllama")),
        "pip install 'querywise[static]'",
    ),
    "figures": OptionalPart(
        "figures of papers, plots in notebooks", (_package("matplotlib"),), "pip install 'querywise[figures]'"
    ),
    "usearch": OptionalPart("approximate search by vectors", (_USEARCH,), "pip install 'querywise[usearch]'"),
    "peers": OptionalPart(
        "libraries to compare with",
        (
            _USEARCH,
            _package("faiss", "faiss-cpu", "faiss-gpu", "faiss"),
            _package("catboost"),
            _package("xgboost", "xgboost-cpu", "xgboost"),
        ),
        "pip install 'querywise[peers]'",
    ),
    "sentence-transformers": OptionalPart(
        "vectors of texts by a model of that library",
        (_package("sentence_transformers", "sentence-transformers"),),
        "pip install sentence-transformers",
    ),
    "pandas": OptionalPart("tables of pandas", (_package("pandas"),), "pip install pandas"),
    "polars": OptionalPart("tables of polars", (_package("polars"),), "pip install polars"),
}


class Checked(NamedTuple):
    """The state of a package: its name and version, WORKS, BROKEN, OLD or MISSING, and the reason in a line."""

    name: str
    version: str | None
    state: str
    reason: str = ""
    detail: str = ""
    wanted: str = ""


class Examined(NamedTuple):
    """The state of all packages."""

    required: list[Checked]
    parts: dict[str, list[Checked]]
    compiled: str  # the folder; empty if there is none

    @property
    def works(self) -> bool:
        """Whether all required packages work."""
        return all(each.state == WORKS for each in self.required)

    @property
    def writable(self) -> bool:
        """Whether compiled code can be stored, so that later processes start quickly."""
        return bool(self.compiled) and os.access(self.compiled, os.W_OK)


def run() -> Examined:
    """Try every installed package: the required ones in one process, each optional package in its own.

    Some optional packages conflict: libraries for comparison are seldom loaded together.
    """
    optional = {each.module for part in PARTS.values() for each in part.packages}
    groups = [[each.module for each in REQUIRED], *([module] for module in sorted(optional))]
    with ThreadPoolExecutor(available_cores()) as several:
        outcomes = dict(chain.from_iterable(each.items() for each in several.map(_tried, groups)))
    wanted = _wanted()
    required = [_judged(each, outcomes.get(each.module), wanted) for each in REQUIRED]
    parts = {
        name: [_judged(each, outcomes.get(each.module), wanted) for each in part.packages]
        for name, part in PARTS.items()
    }
    return Examined(required, parts, next(each.detail for each in required if each.name == "numba"))


def state_of(packages: Sequence[Checked]) -> str:
    """Return the state of a part: that of its packages, the worst if they differ."""
    found = {each.state for each in packages}
    return next(state for state in (BROKEN, OLD, MISSING, WORKS) if state in found)


def lines(found: Examined) -> Iterator[str]:
    """Yield the results as lines of text."""
    about = _about()
    yield f"querywise {about['querywise']}, in {about['folder']}"
    kind = ", ".join(about[each] for each in ("implementation", "system", "machine"))
    yield f"Python {about['python']} ({kind}), {about['executable']}"
    yield f"{counted(available_cores(), 'core')} to work with, {machine_memory() / 1e9:.1f} GB of memory"
    yield from _compiled_lines(found)
    yield ""
    yield "Required"
    for each in found.required:
        yield _line(each)
        if each.state != WORKS:
            yield f"    {_install(each)}"
    for name, packages in found.parts.items():
        part, state = PARTS[name], state_of(packages)
        yield ""
        yield f"Optional: {name}, {part.purpose}: {state}"
        yield from map(_line, packages)
        if state != WORKS:
            yield f"    {_removal(packages)}{part.install}{' -U' if state == OLD else ''}"
    yield ""
    broken = [each.name for each in found.required if each.state != WORKS]
    yield f"What is required does not work: {', '.join(broken)}." if broken else "All that is required works."


def as_json(found: Examined) -> JsonObject:
    """Return the results as JSON."""
    parts: dict[str, Json] = {
        name: {
            "for": PARTS[name].purpose,
            "state": state_of(packages),
            "install": PARTS[name].install,
            "packages": [_package_json(each) for each in packages],
        }
        for name, packages in found.parts.items()
    }
    return {
        "works": found.works,
        **_about(),
        "cores": available_cores(),
        "memory": machine_memory(),
        "compiled_code": {"folder": found.compiled or None, "writable": found.writable},
        "required": [{**_package_json(each), "install": _install(each)} for each in found.required],
        "optional": parts,
    }


def _package_json(each: Checked) -> JsonObject:
    return {"name": each.name, "version": each.version, "state": each.state, "reason": each.reason or None}


def _about() -> dict[str, str]:
    return {
        "querywise": _version(("querywise",)) or _UNKNOWN,
        "folder": str(Path(__file__).resolve().parent.parent),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "executable": sys.executable,
    }


def _compiled_lines(found: Examined) -> Iterator[str]:
    if not found.compiled:
        yield "Compiled code is not cached, so every process compiles again: set NUMBA_CACHE_DIR to a folder of yours"
    elif found.writable:
        yield f"Compiled code is kept in folders like {found.compiled}: writable"
    else:
        advice = "Set NUMBA_CACHE_DIR to a folder of yours"
        yield f"Compiled code is kept in folders like {found.compiled}: not writable. {advice}"


def _line(each: Checked) -> str:
    reason = f": {each.reason}" if each.reason else ""
    return f"  {each.name:<22} {each.version or '-':<12} {each.state}{reason}"


def _install(each: Checked) -> str:
    return _removal([each]) + f"pip install '{each.name}{each.wanted}'"


def _removal(packages: Sequence[Checked]) -> str:
    """Return the command that removes broken packages, so that installing replaces them."""
    broken = " ".join(each.name for each in packages if each.state == BROKEN)
    return f"pip uninstall -y {broken} && " if broken else ""


def _tried(modules: Sequence[str]) -> dict[str, Outcome]:
    """Try the modules that are installed, and return the outcome of each."""
    return tried([module for module in modules if _is_there(module)])


def _judged(package: CheckedPackage, outcome: Outcome | None, wanted: Mapping[str, str]) -> Checked:
    name, version = package.names[0], _version(package.names)
    asked = next((wanted[_plain(each)] for each in package.names if _plain(each) in wanted), "")
    oldest = re.search(r">=\s*([\d.]+)", asked)
    if outcome is None:
        return Checked(name, None, MISSING, wanted=asked)
    if outcome.error:
        return Checked(name, version or _UNKNOWN, BROKEN, outcome.error, wanted=asked)
    if oldest and version and _numbers(version) < _numbers(oldest[1]):
        return Checked(name, version, OLD, f"{oldest[1]} or later is needed", outcome.detail, asked)
    return Checked(name, version or _UNKNOWN, WORKS, detail=outcome.detail, wanted=asked)


def _is_there(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _version(names: Sequence[str]) -> str | None:
    for name in names:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if found:  # damaged metadata has none
            return str(found)
    return None


def _wanted() -> dict[str, str]:
    """Return the versions that querywise requires, by package name; empty without its own metadata."""
    try:
        asked = metadata.requires("querywise") or []
    except metadata.PackageNotFoundError:
        return {}
    found = [matched for each in asked if (matched := _REQUIREMENT.match(each)) and matched[2].strip()]
    return {_plain(matched[1]): matched[2].replace(" ", "") for matched in found}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _numbers(version: str) -> list[int]:
    """Return the leading numbers of a version, without trailing zeros."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    parts = [int(each) for each in found[0].split(".")] if found else []
    while parts and parts[-1] == 0:
        parts.pop()
    return parts


if __name__ == "__main__":
    examined = run()
    sys.stdout.write("\n".join(lines(examined)) + "\n")
    sys.exit(0 if examined.works else 1)
