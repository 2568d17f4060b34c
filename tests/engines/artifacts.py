"""What the tests of engines fetch: pinned versions by Maven and npm, kept outside the tree, each checked by a digest.

A set is fetched into a folder beside its place, checked, and renamed: a set that is there is whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

SECONDS = 900  # for one run of mvn or npm


class UnavailableError(Exception):
    """What a test needs is not on this machine and cannot be fetched; says what is missing and what to do."""


def cache() -> Path:
    """The folder that fetched sets are kept in."""
    given = os.environ.get("QUERYWISE_ENGINES")
    return Path(given) if given else Path.home() / ".cache" / "querywise" / "engines"


@dataclass(frozen=True)
class MavenSet:
    """Artifacts of Maven Central as `group:artifact:version` or `group:artifact:version:type`, in one folder.

    transitive: with everything they depend on at run time. digest: of the folder, as `digest_of` gives it.
    excluded: `group:artifact` patterns that are left out of what they depend on.
    """

    name: str
    artifacts: tuple[str, ...]
    digest: str
    transitive: bool = False
    excluded: tuple[str, ...] = ()

    def fetch(self) -> Path:
        """The folder with the files, fetched if it is not there."""
        return _fetched(self.name, self.digest, self._fill)

    def _fill(self, folder: Path) -> None:
        mvn = tool("mvn", "Maven (Debian: apt-get install maven)")
        with tempfile.TemporaryDirectory(prefix="querywise-maven-") as place:
            pom = Path(place) / "pom.xml"
            pom.write_text(_pom(self.artifacts, self.excluded))
            goal = [
                f"-DoutputDirectory={folder}",
                "-DincludeScope=runtime",
                f"-DexcludeTransitive={str(not self.transitive).lower()}",
            ]
            _run([mvn, "-B", "-q", "-U", "-f", str(pom), "dependency:copy-dependencies", *goal], Path(place))


@dataclass(frozen=True)
class NpmSet:
    """Packages of npm as `name@version`, installed with what they depend on into `node_modules` of one folder."""

    name: str
    packages: tuple[str, ...]
    digest: str

    def fetch(self) -> Path:
        """The folder with `node_modules`, fetched if it is not there."""
        return _fetched(self.name, self.digest, self._fill)

    def _fill(self, folder: Path) -> None:
        npm = tool("npm", "Node (Debian: apt-get install nodejs npm)")
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--no-save", "--loglevel=error"]
        _run([npm, "install", f"--prefix={folder}", *quiet, *self.packages], folder)
        (folder / "node_modules" / ".package-lock.json").unlink(missing_ok=True)  # names the registry that was asked


def tool(name: str, what: str) -> str:
    """The path of a command; `what` says what brings it."""
    found = shutil.which(name)
    if found is None:
        raise UnavailableError(f"`{name}` is not on this machine: install {what}.")
    return found


def java(minimum: int = 17) -> Path:
    """The home of a Java of at least this version: JAVA_HOME, the one on the path, or one below /usr/lib/jvm."""
    found = shutil.which("java")
    places = [os.environ.get("JAVA_HOME"), str(Path(found).resolve().parent.parent) if found else None]
    homes = [Path(place) for place in places if place] + sorted(Path("/usr/lib/jvm").glob("*"))
    for home in homes:
        version = _java_version(home)
        if version is not None and version >= minimum:
            return home
    raise UnavailableError(f"No Java {minimum} or later: install a JDK (Debian: apt-get install default-jdk-headless).")


def _java_version(home: Path) -> int | None:
    try:
        lines = (home / "release").read_text().splitlines()
    except OSError:
        return None
    given = [line.split("=", 1)[1].strip('"') for line in lines if line.startswith("JAVA_VERSION=")]
    if not given or not (home / "bin" / "java").exists():
        return None
    parts = given[0].split(".")
    return int(parts[1] if parts[0] == "1" else parts[0].split("-")[0].split("+")[0])


def digest_of(folder: Path) -> str:
    """A digest of all files in a folder and of their names."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda each: each.relative_to(folder).as_posix()):
        if path.is_file() and not path.is_symlink():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{content}  {path.relative_to(folder).as_posix()}\n".encode())
    return total.hexdigest()


def _fetched(name: str, digest: str, fill: Callable[[Path], None]) -> Path:
    """The kept folder of that name and digest; fetched beside it, checked and renamed if there is none."""
    place = cache() / f"{name}-{digest[:16]}"
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=place.parent) as above:
        folder = Path(above) / name
        folder.mkdir()
        fill(folder)
        found = digest_of(folder)
        if found != digest:
            raise UnavailableError(
                f"What was fetched for {name} is not what is pinned: expected the digest {digest}, found {found}. "
                f"A version may have been replaced; look at it before you pin the new digest."
            )
        try:
            folder.rename(place)
        except OSError:
            if not place.is_dir():  # another process was first
                raise
    return place


def _pom(artifacts: Sequence[str], excluded: Sequence[str]) -> str:
    """A project that depends on the artifacts, and is nothing else."""
    without = "".join(
        "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>".format(*map(escape, each.split(":")))
        for each in excluded
    )
    listed = ""
    for artifact in artifacts:
        group, name, version, *kind = map(escape, artifact.split(":"))
        listed += f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        listed += f"<type>{kind[0] if kind else 'jar'}</type><exclusions>{without}</exclusions></dependency>\n"
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>querywise</groupId><artifactId>fetched</artifactId><version>1</version>
<dependencies>
{listed}</dependencies></project>
"""


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"`{command[0]}` did not end within {SECONDS} seconds.") from error
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise UnavailableError(f"`{' '.join(command[:2])} …` failed:\n{tail}")
