"""docs/engines/gateway.md followed: the features logged, a model fitted, and the gateway in front of a real engine."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import querywise
from querywise.data.query_table import QueryTable
from querywise.jobs.log import EngineIndex, log_features
from querywise.storage import load
from tests import commands
from tests.engines import pages, shop
from tests.serving import Serving, serving

QUERIES = (
    "how to clean a jaguar",
    "car paint",
    "größe jaguar & co",
    '"tooth (brush',
    "{!func}clicks {{keywords}} ${x}",
)


_FOUND = {"opensearch": "http://localhost:9200", "solr": "http://localhost:8983/solr"}  # by the page
_PATHS = ("--features", "--first-stage", "--log", "--against")


class Page:
    """The page in a folder, with an engine and an index in the place of those that it names.

    engine: opensearch or solr. url: of the engine. index: with the shop's documents.
    """

    def __init__(self, engine: str, url: str, index: str, folder: Path) -> None:
        self.engine, self.url, self.index, self.folder = engine, url, index, folder
        lines = [line for block in pages.blocks("gateway") if block.is_commands for line in block.text.splitlines()]
        changed = [line.replace(_FOUND[engine], url).replace("--index shop", f"--index {index}") for line in lines]
        self._lines = [shlex.split(line) for line in changed]
        found = [block.text for block in pages.blocks("gateway") if block.language == "json"]
        files = {"features.json": found[0], "first-stage.json": found[3 if engine == "solr" else 1]}
        for name, content in files.items():
            (folder / name).write_text(content)
        (folder / "judged").mkdir()
        write_judged(folder / "judged")

    def words(self, command: str, *having: str) -> list[str]:
        """The page's command for this engine, the first with these words in it, after its own name."""
        for program, name, *words in self._lines:
            here = (program, name) == ("querywise", command) and {*having} <= {*words}
            if here and (command == "fit" or words[0] == self.engine):
                return words
        raise AssertionError(f"the page has no {command} for {self.engine}")

    def fit(self) -> None:
        """Log the features, and fit."""
        for command in ("log", "fit"):
            done = commands.run(self.folder, command, *self.words(command))
            assert done.returncode == 0, done.stderr

    @contextlib.contextmanager
    def gateway(self, *having: str) -> Iterator[Serving]:
        """The page's gateway, with these words in it."""
        words = self.words("gateway", *having)
        places = [1, *(words.index(option) + 1 for option in _PATHS if option in words)]
        for place in places:
            words[place] = str(self.folder / words[place])
        with serving(*words, command="gateway") as server:
            yield server

    def refused(self, **changed: str) -> str:
        """The one line by which the page's gateway is refused with other values of its options."""
        words = self.words("gateway")
        for name, value in changed.items():
            words[words.index(f"--{name.replace('_', '-')}") + 1] = value
        return commands.refused(commands.run(self.folder, "gateway", *words, "--port", 0))

    def rows(self, text: str, ids: list[str]) -> querywise.Candidates:
        """Documents with the features that `querywise log` logs for them."""
        solr = self.engine == "solr"
        features = None if solr else json.loads((self.folder / "features.json").read_text())
        store = "shop-log" if solr else None
        table = QueryTable(("q",), texts=(text,))
        index = EngineIndex(self.engine, self.url, self.index, store, features)
        return log_features(index, table, {"q": dict.fromkeys(ids, 0)}).judged.candidates

    def check_order(self, server: Serving, own: Any) -> None:
        """Answers have the engine's candidates in the model's order; own: a text's first documents in the engine."""
        ranker = load(self.folder / "blend")
        for text in QUERIES:
            found = server.get("/v1/hits", q=text, show=1000).json()
            ids = [each["id"] for each in found["documents"]]
            assert sorted(ids) == sorted(own(text)), text
            if not ids:
                continue
            assert found["model"] == server.get("/v1/model").json()["version"]
            known = self.rows(text, ids)
            scores = dict(zip(known.document_ids or (), ranker.predict(known).tolist(), strict=True))
            assert [scores[name] for name in ids] == pytest.approx([each["score"] for each in found["documents"]])
            assert np.all(np.diff([scores[name] for name in ids]) <= 1e-9)
            titles = [shop.documents()[name]["title"] for name in ids]
            assert [each["source"]["title"] for each in found["documents"]] == titles


def write_judged(folder: Path) -> None:
    """The shop's judgements as a folder with queries and grades."""
    known = shop.judgements()
    lines = [json.dumps({"_id": each["_id"], "text": each["text"]}) for each in known]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    grades = [f"{each['_id']}\t{name}\t{grade}\n" for each in known for name, grade in each["labels"].items()]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(grades))
