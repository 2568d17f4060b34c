"""What the page on the service types works: its commands make models that are served, and its requests are answered."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from querywise.data.letor import write_letor
from querywise.data.query_table import QueryTable, write_queries
from querywise.data.synthetic import make_judged
from tests.commands import run
from tests.serving import serving

pytestmark = pytest.mark.slow  # several servers

DOCS = Path(__file__).parent.parent / "docs"
TOKEN = "open-sesame"


def typed(page: str, begins: str) -> str:
    """The command of a page that begins so, with the lines that belong to it."""
    found: list[str] = re.findall(rf"^{begins}(?:\\\n|'[^']*'|[^'\n])*", (DOCS / page).read_text(), re.MULTILINE)
    assert found, f"{page} has no command that begins with {begins!r}"
    return found[0]


def in_shell(command: str, folder: Path) -> str:
    """What a command prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "QUERYWISE_TOKEN": TOKEN}
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def answered(folder: Path, path: str) -> Any:
    """What a service, started as the page says, answers to the page's request to a path; it is asked for a token."""
    request = typed("service.md", f"curl -s localhost:8080{path}")
    before = (DOCS / "service.md").read_text().partition(request)[0]
    model = re.findall(r"^querywise serve (\S+) --port 8080$", before, re.MULTILINE)[-1]
    with serving(folder / model, token=TOKEN) as server:
        here = request.replace("localhost:8080", server.url.removeprefix("http://"))
        bare = in_shell(re.sub(r'-H "Authorization[^"]*"', "", here), folder)
        assert json.loads(bare)["error"]["code"] == "unauthorised", "a token is asked for"
        return json.loads(in_shell(here, folder))


def shown(path: str) -> Any:
    """The answer that the page shows below the request."""
    after = (DOCS / "service.md").read_text().partition(f"curl -s localhost:8080{path}")[2]
    found = re.search(r"```json\n(.*?)```", after, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_documents_are_ranked_by_the_model_that_the_page_makes(tmp_path: Path) -> None:
    in_shell(typed("service.md", "printf "), tmp_path)
    in_shell(typed("service.md", "querywise fit train.txt"), tmp_path)
    answer, said = answered(tmp_path, "/v1/rank"), shown("/v1/rank")
    assert answer.keys() == said.keys()
    assert answer["query"] == said["query"]
    assert [each["id"] for each in answer["documents"]] == [each["id"] for each in said["documents"]]
    scores = [each["score"] for each in answer["documents"]]
    assert scores == pytest.approx([each["score"] for each in said["documents"]], abs=0.005)


def test_runs_are_weighed_by_the_model_that_the_page_makes(tmp_path: Path) -> None:
    words = ("disk", "jaguar", "python", "river", "engine", "forest")
    queries = [f"how can I free a {word} {number}" for number in range(3) for word in words]
    lines: dict[str, list[str]] = {"bm25": [], "vectors": [], "qrels": []}
    for place in range(len(queries)):
        good = "bm25" if place % 3 else "vectors"
        for document in range(6):
            for name in ("bm25", "vectors"):
                score = 10 - document if name == good else 1 + (document * 5) % 7
                lines[name].append(f"q{place} Q0 D{document} {document + 1} {score} {name}")
            lines["qrels"].append(f"q{place} 0 D{document} {int(document < 2)}")
    for name, content in lines.items():
        (tmp_path / (f"{name}.txt" if name == "qrels" else f"{name}.trec")).write_text("\n".join(content) + "\n")
    write_queries(tmp_path / "queries.jsonl", QueryTable(tuple(f"q{n}" for n in range(len(queries))), tuple(queries)))
    in_shell(typed("service.md", "querywise fuse "), tmp_path)
    weights = answered(tmp_path, "/v1/weights")
    assert weights.keys() == shown("/v1/weights").keys() == {"bm25", "vectors"}
    assert all(0 <= each <= 1 for each in weights.values())


def test_a_model_in_an_engine_is_named_by_the_export_that_the_engines_page_makes(tmp_path: Path) -> None:
    data = make_judged(60, 8, 3, kinds=2)
    texts = tuple(f"{('jaguar', 'cleaning', 'music', 'cats')[n % 4]} {n * n}" for n in range(60))
    write_letor(tmp_path / "train.txt", data)
    write_queries(tmp_path / "queries.jsonl", QueryTable(data.candidates.query_ids, texts=texts))
    (tmp_path / "features.txt").write_text("title\nbody\nclicks\n")
    page = (DOCS / "engines" / "opensearch.md").read_text()
    features = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert features is not None
    (tmp_path / "features.json").write_text(features[1])
    for begins in ("querywise fit train.txt", "querywise export model/"):
        done = run(tmp_path, *typed("engines/opensearch.md", begins).split()[1:])
        assert done.returncode == 0, done.stderr
    answer = answered(tmp_path, "/v1/route")
    assert answer.keys() == shown("/v1/route").keys()
    assert re.fullmatch(r"shop-search-(\d\d|global)", answer["name"])
    models = json.loads((tmp_path / "export" / "export.json").read_text())["models"]
    assert answer["name"] in [each["name"] for each in models]


def test_every_request_on_the_page_is_one_of_these() -> None:
    """A request that is new here is to be run too, and carries the token."""
    pages = [path for path in sorted(DOCS.rglob("*.md")) if "curl -s localhost:8080" in path.read_text()]
    assert [path.name for path in pages] == ["service.md"]
    asked = re.findall(r"^curl .*", (DOCS / "service.md").read_text(), re.MULTILINE)
    assert [re.findall(r"/v1/\w+", line) for line in asked] == [["/v1/rank"], ["/v1/weights"], ["/v1/route"]]
    assert all('-H "Authorization: Bearer $QUERYWISE_TOKEN"' in line for line in asked)
