"""RankLib, which docs/ranklib.md puts beside this library: its fork on Maven Central."""

from __future__ import annotations

from pathlib import Path

from tests.engines.artifacts import MavenSet, java

VERSION = "0.2.0"
JAR = MavenSet(
    "ranklib",
    (f"com.o19s:RankyMcRankFace:{VERSION}",),
    "b8f4ad05008fa62f003c8febbbaafdc5f341c85c5e73b8ca7a396eb896434ff4",
)


def fetch() -> Path:
    """The jar, fetched if it is not there; there must be a Java to run it."""
    java()
    return JAR.fetch() / f"RankyMcRankFace-{VERSION}.jar"
