"""What querywise's dependencies take: `python -m benchmarks.dependencies` writes docs/dependencies.md.

It measures what is installed beside it: the size of files without bytecode, and the processor time of an import in a
new process that has numpy already, the lesser of two. What is not installed is left out.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from querywise.jobs.doctor import PARTS, REQUIRED, CheckedPackage

PAGE = Path(__file__).parent.parent / "docs" / "dependencies.md"
_OF = {  # what needs it, and when it is imported
    "numpy": "everything",
    "scipy": "sparse tables, optimization, the distributions of tests",
    "numba": "compiled kernels",
    "scikit-learn": "classifiers, K-means, trees that search; where one is used",
    "lightgbm": "boosted trees, in `blend` too; where trees are grown",
    "narwhals": "data frames; where one is given (LightGBM and scikit-learn need it too)",
    "safetensors": "model folders",
    "PyStemmer": "words of texts; where a text is read",
    "threadpoolctl": "threads of BLAS",
    "rich": "tables in a terminal",
    "typer": "the command line",
}
_CODE = """
import numpy, time
began = time.process_time()
try:
    import {module}
except Exception:
    raise SystemExit(1)
print(time.process_time() - began)
"""


def main() -> None:
    """Measure and write the page."""
    direct = {each.names[0]: each for each in REQUIRED}
    needed = {name: _closure(name) for name in direct}
    rows = [_row(name, package, needed, _OF[name]) for name, package in direct.items()]
    every: dict[str, Distribution] = {}
    for each in needed.values():
        every |= each
    rows.append(f"| all of these | {sum(map(_megabytes, every.values())):.0f} | | | |")
    extras = []
    for extra, part in PARTS.items():
        if not part.install.startswith("pip install 'querywise"):
            continue
        for package in part.packages:
            name = next(filter(_is_installed, package.names), None)
            if name is not None:
                known = needed | {name: _closure(name)}
                extras.append(_row(name, package, known, f"`{extra}`: {part.purpose}"))
    head = "| package | MB | brings, MB | import, s | for |\n|---|---|---|---|---|\n"
    tables = {"Required": rows, "Extras": sorted(set(extras), key=lambda row: row.rsplit("|", 2)[1])}
    page = _INTRODUCTION + "".join(f"\n## {title}\n\n{head}" + "\n".join(own) + "\n" for title, own in tables.items())
    PAGE.write_text(page)
    sys.stdout.write(page)


_INTRODUCTION = """# What the dependencies take

`python -m benchmarks.dependencies` writes this page, in an environment with all extras. MB are those of installed files
without bytecode; *brings* are packages that come along and that nothing else in the first table needs. Seconds are
processor time of an import in a new process that has numpy already; lightgbm imports scikit-learn and pandas, too,
where they are there. [CONTRIBUTING](../CONTRIBUTING.md#dependencies-and-why-these) says why these.
"""


def _row(name: str, package: CheckedPackage, needed: dict[str, dict[str, Distribution]], use: str) -> str:
    own = needed[name]
    others = {each for other, closure in needed.items() if other != name for each in closure} | {*map(_plain, needed)}
    brought = {each: found for each, found in own.items() if each not in others and each != _plain(name)}
    told = ", ".join(brought) + f", {sum(map(_megabytes, brought.values())):.1f}" if brought else ""
    return f"| {name} | {_megabytes(distribution(name)):.1f} | {told} | {_seconds(package.module)} | {use} |"


def _closure(name: str) -> dict[str, Distribution]:
    """A package that is installed and all that it needs, by name."""
    found: dict[str, Distribution] = {}
    left = [name]
    while left:
        this = left.pop()
        if _plain(this) in found or not _is_installed(this):
            continue
        found[_plain(this)] = distribution(this)
        asked = map(Requirement, found[_plain(this)].requires or [])
        left += [each.name for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _megabytes(found: Distribution) -> float:
    files = (Path(str(each.locate())) for each in found.files or [] if each.suffix != ".pyc")
    return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


def _seconds(module: str) -> str:
    command = [sys.executable, "-c", _CODE.format(module=module)]
    took = [subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() for _ in range(2)]
    return f"{min(map(float, took)):.2f}" if all(took) else "fails"


if __name__ == "__main__":
    main()
