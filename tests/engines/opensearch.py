"""OpenSearch on this machine: k-NN and neural search for hybrid queries, Learning to Rank where it is to be had.

The server and these plugins come from Maven Central; the Learning to Rank plugin is not there (see `ltr_plugin`).
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from querywise.exports.scripts.check_elasticsearch import Elasticsearch
from querywise.exports.scripts.check_parity import Server
from tests.engines import ltr_plugin
from tests.engines.artifacts import MavenSet, java
from tests.engines.processes import answers, free_port, running, workspace

VERSION = "2.19.1"
MEMORY = "512m"
LARGEST = 16_000_000  # bytes of a request; 100 MB unless it is set

SERVER = MavenSet(
    "opensearch",
    (
        f"org.opensearch.distribution.integ-test-zip:opensearch:{VERSION}:zip",
        f"org.opensearch.plugin:opensearch-knn:{VERSION}.0:zip",
        f"org.opensearch.plugin:neural-search:{VERSION}.0:zip",
    ),
    "1e615f4b2a6e2f00596575e7d4c8faa10bcced0cb2661c2293880d4b6c1f35a3",
)
# k-NN asks for this module, which the distribution for tests does not have.
PAINLESS = MavenSet(
    "opensearch-painless",
    (f"org.opensearch.plugin:lang-painless:{VERSION}",),
    "f9bd96f751cd6fc4b0924fbe20ef2336725fb3179f552c2e8574fe25a3b1dbcb",
    transitive=True,
    excluded=("org.opensearch:opensearch",),
)
_DESCRIPTOR = """description=Painless
version={version}
name=lang-painless
classname=org.opensearch.painless.PainlessPlugin
java.version=11
opensearch.version={version}
has.native.controller=false
"""
_RIGHTS = """grant {
  permission java.lang.RuntimePermission "createClassLoader";
  permission java.lang.RuntimePermission "getClassLoader";
};
"""
_SETTINGS = """cluster.name: querywise-tests
discovery.type: single-node
network.host: 127.0.0.1
http.port: {http}
transport.port: {transport}
path.data: {folder}/data
path.logs: {folder}/logs
node.store.allow_mmap: false
cluster.routing.allocation.disk.threshold_enabled: false
http.max_content_length: {largest}b
"""


def fetch() -> None:
    """Bring everything that a start needs onto this machine."""
    java(17)
    SERVER.fetch()
    PAINLESS.fetch()


class OpenSearch:
    """A running server: its address, and requests to it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request with a JSON body; an error of the server is raised with its words."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()[:2000]}") from error

    def fill(self, index: str, documents: dict[str, Any]) -> None:
        """Put documents into an index, to be found from now on."""
        lines = [line for name, each in documents.items() for line in ({"index": {"_id": name}}, each)]
        answer = self.ask(
            "POST", f"{index}/_bulk?refresh=true", "".join(json.dumps(line) + "\n" for line in lines).encode()
        )
        assert not answer["errors"], answer


@contextlib.contextmanager
def serving(*, ltr: bool = False) -> Iterator[OpenSearch]:
    """OpenSearch with k-NN and neural search, or with Learning to Rank beside them; empty, and gone afterwards."""
    home, server, painless = java(17), SERVER.fetch(), PAINLESS.fetch()
    plugin = ltr_plugin.find(VERSION) if ltr else None
    with workspace("opensearch") as folder:
        _unpack(server / f"opensearch-{VERSION}.zip", folder)
        root = folder / f"opensearch-{VERSION}"
        for path in sorted(server.glob("*.zip")):
            if path.name != f"opensearch-{VERSION}.zip":
                _unpack(path, root / "plugins" / path.stem)
        if plugin is not None:
            _unpack(plugin, root / "plugins" / "opensearch-ltr")
        module = root / "modules" / "lang-painless"
        module.mkdir()
        for path in painless.glob("*.jar"):
            (module / path.name).write_bytes(path.read_bytes())
        (module / "plugin-descriptor.properties").write_text(_DESCRIPTOR.format(version=VERSION))
        (module / "plugin-security.policy").write_text(_RIGHTS)
        port = free_port()
        settings = _SETTINGS.format(http=port, transport=free_port(), folder=folder, largest=LARGEST)
        (root / "config" / "opensearch.yml").write_text(settings)
        url = f"http://127.0.0.1:{port}"
        environment = {"OPENSEARCH_JAVA_HOME": str(home), "OPENSEARCH_JAVA_OPTS": f"-Xms{MEMORY} -Xmx{MEMORY}"}
        healthy = f"{url}/_cluster/health?wait_for_status=yellow&timeout=1s"
        command: list[str | Path] = ["bash", root / "bin" / "opensearch"]
        with running("OpenSearch", command, folder, lambda: answers(healthy), environment=environment):
            yield OpenSearch(url)


@contextlib.contextmanager
def scoring(search: OpenSearch, export: Path) -> Iterator[Callable[[str], dict[str, float]]]:
    """An export's documents and models in the server, by what its check_parity.py is made of, and removed again."""
    client = Server(search.url, {}, timeout=120)
    documents = [json.loads(line) for line in (export / "parity.jsonl").read_text().splitlines()]
    content = json.loads((export / "export.json").read_text())
    engine = Elasticsearch(client, content, f"{content['name']}-parity", None)
    try:
        engine.put(documents, {model["name"]: export / model["file"] for model in content["models"]})
        yield engine.scores
    finally:
        left = engine.remove()
    assert not left, left


def _unpack(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
