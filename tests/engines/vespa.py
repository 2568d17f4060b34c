"""Vespa's own code for application packages and ranking, without a server: what is deployed is read, derived and run.

A process of Java reads an application package as `vespa deploy` does, schema, profiles and models, and answers with the
scores of its first phase, as model evaluation in a container computes them, or of its global phase. What the content
node's own compiler makes of an expression is not run.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.engines.artifacts import MavenSet, java

VERSION = "8.631.39"
_NAMES = (
    *("config-model", "config-model-api", "config-provisioning", "config-bundle", "model-evaluation"),
    *("model-integration", "container-search", "container-core", "component", "fileacquirer", "annotations"),
    *("vespalog", "vespajlib", "jdisc_core", "hosted-zone-api"),
)
_DIGEST = "3caff1269f5375b599e5ec8cbc51f92f347da48a3e4bfd09d6caf1f66bf52fe6"
JARS = MavenSet("vespa", tuple(f"com.yahoo.vespa:{name}:{VERSION}" for name in _NAMES), _DIGEST, transitive=True)
SOURCE = Path(__file__).with_name("Evaluate.java")


def fetch() -> None:
    """Bring everything that a start needs onto this machine."""
    java(17)
    JARS.fetch()


class VespaError(Exception):
    """Vespa refuses an application package or a request; its words."""


class Vespa:
    """A running evaluator."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def first_phase(
        self, application: Path, profile: str, documents: Sequence[Mapping[str, float]], weights: str | None = None
    ) -> list[float]:
        """The scores of documents, given by their features, by a rank profile; weights as a request has them."""
        asked = {"profile": profile, "documents": list(documents)}
        return self._ask(application, asked if weights is None else {**asked, "weights": weights})

    def global_phase(
        self,
        application: Path,
        profile: str,
        documents: Sequence[Mapping[str, float]],
        inputs: Mapping[str, float],
    ) -> list[float]:
        """The scores of hits, given by their match features, by the global phase of a rank profile."""
        return self._ask(
            application, {"profile": profile, "documents": list(documents), "inputs": dict(inputs), "global": True}
        )

    def _ask(self, application: Path, asked: dict[str, Any]) -> list[float]:
        sent, got = self._process.stdin, self._process.stdout
        assert sent is not None
        assert got is not None
        sent.write(json.dumps({"application": str(application.resolve()), **asked}) + "\n")
        sent.flush()
        for line in got:
            if line.startswith("answer "):
                answer = json.loads(line.removeprefix("answer "))
                if "error" in answer:
                    raise VespaError(answer["error"])
                return [float(score) for score in answer["scores"]]
        raise VespaError(f"The evaluator ended with {self._process.wait()}.")


@contextlib.contextmanager
def evaluating() -> Iterator[Vespa]:
    """The evaluator, gone afterwards."""
    home, jars = java(17), JARS.fetch()
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    command = [str(home / "bin" / "java"), *options, str(SOURCE)]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, text=True, encoding="utf-8") as process:
        try:
            yield Vespa(process)
        finally:
            process.kill()


@contextlib.contextmanager
def scoring(evaluator: Vespa, export: Path) -> Iterator[Callable[[str], dict[str, float]]]:
    """The scores of an export's documents by every model, its application read first."""
    documents = [json.loads(line) for line in (export / "parity.jsonl").read_text().splitlines()]
    content = json.loads((export / "export.json").read_text())
    names, files = content["features"]["in_engine"], {each["name"]: each["file"] for each in content["models"]}
    given = [
        {f"attribute(value{place})": document["features"][name] for place, name in enumerate(names)}
        for document in documents
    ]

    def scores(model: str) -> dict[str, float]:
        file = export / files[model]
        profile, weights = file.stem, None
        if file.suffix == ".txt":
            profile, weights = content["name"].replace("-", "_"), file.read_text().strip()
        found = evaluator.first_phase(export / "parity-app", profile, given, weights)
        return dict(zip((document["id"] for document in documents), found, strict=True))

    yield scores
