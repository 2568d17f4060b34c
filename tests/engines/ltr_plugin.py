"""OpenSearch's Learning to Rank plugin: not on Maven Central, so a zip that is given or built from a source tree.

`python -m tests.engines ltr --source FOLDER` builds it from a checkout of the plugin, by javac alone.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
from pathlib import Path

from tests.engines.artifacts import MavenSet, UnavailableError, cache, java

SHARED = Path(__file__).parents[3] / "shared" / "engines"


class NotToBeHadError(UnavailableError):
    """What no registry has: tests that need it are skipped everywhere where nobody has put it."""


LIBRARIES = MavenSet(
    "opensearch-ltr-libraries",
    (
        "com.o19s:RankyMcRankFace:0.1.1",
        "com.github.spullara.mustache.java:compiler:0.9.3",
        "org.apache.lucene:lucene-expressions:9.12.1",
        "org.opensearch:common-utils:2.19.0.0",
    ),
    "9282fd87c371e5a596bc4a584e866c798f08a50012ea9255107f961439e08f84",
    transitive=True,
    excluded=("org.apache.lucene:lucene-core", "org.apache.lucene:lucene-codecs"),
)
_DESCRIPTOR = """description=Learning to Rank
version={version}.0
name=opensearch-ltr
classname=com.o19s.es.ltr.LtrQueryParserPlugin
java.version=11
opensearch.version={version}
has.native.controller=false
"""


def find(version: str) -> Path:
    """The plugin's zip for a version of OpenSearch: $QUERYWISE_LTR_PLUGIN, or where `build` puts it."""
    given = os.environ.get("QUERYWISE_LTR_PLUGIN")
    places = [Path(given)] if given else [cache() / _name(version), SHARED / _name(version)]
    for place in places:
        if place.is_file():
            return place
    raise NotToBeHadError(
        f"OpenSearch's Learning to Rank plugin is not on Maven Central. Set QUERYWISE_LTR_PLUGIN to its zip for "
        f"{version}, or build it: python -m tests.engines ltr --source CHECKOUT (see docs/engines/testing.md)."
    )


def is_there(version: str) -> bool:
    """Whether the plugin is on this machine."""
    try:
        find(version)
    except NotToBeHadError:
        return False
    return True


def build(source: Path, server: Path, version: str) -> Path:
    """Compile a checkout of the plugin against a server's zip; gives the zip, in the folder of fetched sets."""
    files = sorted((source / "src" / "main" / "java").rglob("*.java"))
    if not files:
        raise UnavailableError(f"{source} is no checkout of the plugin: it has no Java files in src/main/java.")
    libraries, place = LIBRARIES.fetch(), cache() / _name(version)
    with tempfile.TemporaryDirectory(prefix="querywise-ltr-", dir=cache()) as above:
        folder = Path(above)
        with zipfile.ZipFile(server) as opened:
            opened.extractall(folder / "server")
        path = f"{folder}/server/opensearch-{version}/lib/*:{libraries}/*"
        command = [str(java(17) / "bin" / "javac"), "-nowarn", "-proc:none", "-encoding", "UTF-8", "--release", "11"]
        command += ["-d", str(folder / "classes"), "-cp", path, *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"The plugin does not compile against OpenSearch {version}:\n{done.stderr[-2000:]}")
        made = folder / "plugin.zip"
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.write(_jar(source, folder), f"opensearch-ltr-{version}.0.jar")
            for path_of_jar in sorted(libraries.glob("*.jar")):
                zipped.write(path_of_jar, path_of_jar.name)
            zipped.write(
                source / "src" / "main" / "plugin-metadata" / "plugin-security.policy", "plugin-security.policy"
            )
            zipped.writestr("plugin-descriptor.properties", _DESCRIPTOR.format(version=version))
        made.replace(place)
    return place


def _jar(source: Path, folder: Path) -> Path:
    jar = folder / "plugin.jar"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as zipped:
        for root in (folder / "classes", source / "src" / "main" / "resources"):
            for path in sorted(each for each in root.rglob("*") if each.is_file()):
                zipped.write(path, path.relative_to(root).as_posix())
    return jar


def _name(version: str) -> str:
    return f"opensearch-ltr-{version}.zip"
