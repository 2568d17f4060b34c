"""Solr on this machine: one node with its module Learning to Rank, from Maven Central, and cores as a test wants them.

Version 8.11 is the last whose module is published there.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from querywise.exports.scripts import check_solr
from querywise.exports.scripts.check_parity import Server
from tests.engines.artifacts import MavenSet, java
from tests.engines.processes import free_port, running, workspace

VERSION = "8.11.4"
MEMORY = "384m"

JARS = MavenSet(
    "solr",
    (f"org.apache.solr:solr-core:{VERSION}", f"org.apache.solr:solr-ltr:{VERSION}"),
    "824cc65c6fd42214e1c6966cdb6d610bc55ee1046689cc65cccdbde71a98be35",
    transitive=True,
)
_START = """import org.apache.solr.client.solrj.embedded.JettyConfig;
import org.apache.solr.client.solrj.embedded.JettySolrRunner;

public class Start {
    public static void main(String[] given) throws Exception {
        var port = Integer.parseInt(given[1]);
        var config = JettyConfig.builder().setContext("/solr").setHost("127.0.0.1").setPort(port).build();
        new JettySolrRunner(given[0], new java.util.Properties(), config).start(false);
    }
}
"""
_LTR = """
  <query>
    <cache name="QUERY_DOC_FV" class="solr.search.LRUCache" size="4096" initialSize="2048" autowarmCount="0"
           regenerator="solr.search.NoOpRegenerator"/>
  </query>
  <queryParser name="ltr" class="org.apache.solr.ltr.search.LTRQParserPlugin"/>
  <transformer name="features" class="org.apache.solr.ltr.response.transform.LTRFeatureLoggerTransformerFactory">
    <str name="fvCacheName">QUERY_DOC_FV</str>
  </transformer>"""
_CONFIG = """<config>
  <luceneMatchVersion>{version}</luceneMatchVersion>
  <schemaFactory class="ManagedIndexSchemaFactory"/>
  <requestHandler name="/select" class="solr.SearchHandler"><lst name="defaults">{defaults}</lst></requestHandler>
  <requestHandler name="/query" class="solr.SearchHandler"><lst name="defaults">{defaults}</lst></requestHandler>
{ltr}
</config>
"""
_SCHEMA = r"""<schema name="shop" version="1.6">
  <fieldType name="string" class="solr.StrField" docValues="true"/>
  <fieldType name="double" class="solr.DoublePointField" docValues="true"/>
  <fieldType name="long" class="solr.LongPointField" docValues="true"/>
  <fieldType name="text" class="solr.TextField">
    <analyzer>
      <tokenizer class="solr.PatternTokenizerFactory" pattern="[^\p{L}\p{N}]+"/>
      <filter class="solr.LowerCaseFilterFactory"/>
    </analyzer>
  </fieldType>
  <field name="id" type="string" required="true" stored="true"/>
  <field name="_version_" type="long" indexed="false" stored="false"/>
  <field name="title" type="text" stored="true"/>
  <field name="body" type="text" stored="true"/>
  <field name="clicks" type="double" stored="true"/>
  <dynamicField name="*_d" type="double" stored="true"/>
  <uniqueKey>id</uniqueKey>
</schema>
"""


def fetch() -> None:
    """Bring everything that a start needs onto this machine."""
    java(17)
    JARS.fetch()


class Solr:
    """A running node: its address, cores and requests to it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.home = folder / "home"

    def create(self, core: str, *, ltr: bool = True, defaults: Mapping[str, str] | None = None) -> None:
        """Make a core with fields for text and numbers; `defaults` are those of its request handlers."""
        conf = self.home / "configsets" / core / "conf"
        conf.mkdir(parents=True)
        given = "".join(f'<str name="{name}">{value}</str>' for name, value in (defaults or {}).items())
        text = _CONFIG.format(version=VERSION, defaults=given, ltr=_LTR if ltr else "")
        (conf / "solrconfig.xml").write_text(text)
        (conf / "schema.xml").write_text(_SCHEMA)
        for path in (conf.parent, conf, *conf.iterdir()):
            path.chmod(0o777 if path.is_dir() else 0o666)
        self.ask("GET", f"admin/cores?action=CREATE&name={core}&configSet={core}")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request with a JSON body; an error of the server is raised with its words."""
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"}
        return _opened(urllib.request.Request(f"{self.url}/{path}", data, kind, method=method))

    def select(self, core: str, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        """The documents found by parameters of `/select`, in their order."""
        form = urllib.parse.urlencode(asked).encode()
        answer = _opened(urllib.request.Request(f"{self.url}/{core}/select", form, method="POST"))
        found: list[dict[str, Any]] = answer["response"]["docs"]
        return found

    def fill(self, core: str, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Put documents into a core, to be found from now on."""
        content = [{"id": name, **each} for name, each in documents.items()]
        self.ask("POST", f"{core}/update?commit=true", content)

    def models(self, core: str) -> list[str]:
        """The names of the models that a core has."""
        return [each["name"] for each in self.ask("GET", f"{core}/schema/model-store")["models"]]

    def stores(self, core: str) -> list[str]:
        """The names of the feature stores that a core has."""
        found: list[str] = self.ask("GET", f"{core}/schema/feature-store")["featureStores"]
        return found

    def count(self, core: str) -> int:
        """How many documents a core has."""
        found = self.ask("GET", f"{core}/select?q=*:*&rows=0")
        return int(found["response"]["numFound"])

    def reload(self, core: str) -> None:
        """Have a core go by its stores."""
        self.ask("GET", f"admin/cores?action=RELOAD&core={core}")


def _opened(request: urllib.request.Request) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        said = error.read().decode()[:2000]
        raise AssertionError(f"{request.method} {request.full_url}: {error.code} {said}") from error


def _ready(url: str) -> bool:
    """Whether Solr answers; Jetty answers before it, with 404."""
    try:
        with urllib.request.urlopen(f"{url}/admin/info/system?wt=json", timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def serving() -> Iterator[Solr]:
    """A node without cores, gone afterwards."""
    home, jars = java(17), JARS.fetch()
    with workspace("solr") as folder:
        shutil.copytree(jars, folder / "lib")  # where the user who runs it may read
        (folder / "Start.java").write_text(_START)
        (folder / "home").mkdir()
        (folder / "home" / "solr.xml").write_text("<solr></solr>")
        port = free_port()
        command: list[str | Path] = [
            *(home / "bin" / "java", f"-Xmx{MEMORY}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *(f"-Dsolr.log.dir={folder}", "-cp", f"{folder}/lib/*", folder / "Start.java", folder / "home", str(port)),
        ]
        url = f"http://127.0.0.1:{port}/solr"
        with running("Solr", command, folder, lambda: _ready(url)):
            yield Solr(url, folder)


@contextlib.contextmanager
def scoring(node: Solr, core: str, export: Path) -> Iterator[Callable[[str], dict[str, float]]]:
    """An export's documents and models in a core, by what its check_parity.py is made of, and removed again."""
    documents = [json.loads(line) for line in (export / "parity.jsonl").read_text().splitlines()]
    content = json.loads((export / "export.json").read_text())
    engine = check_solr.Solr(Server(node.url, {}, timeout=120), content, f"{content['name']}-parity", core)
    try:
        engine.put(documents, {model["name"]: export / model["file"] for model in content["models"]})
        yield engine.scores
    finally:
        left = engine.remove()
    assert not left, left
