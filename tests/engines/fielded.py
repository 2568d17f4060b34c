"""The shop with fields: texts, a list of tags, numbers, a year and a truth value, some of them missing; and its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from querywise import Judged, read_judged
from tests import commands
from tests.engines import boosting, shop

SAME = (
    "title.bm25",
    "title.exact",
    "body.exact",
    "fields.all",
    "fields.most",
    "clicks",
    "sold",
    "year",
    "year.missing",
)


def documents() -> dict[str, dict[str, Any]]:
    """Products by id; the first judged document of every fifth query has that query as its title."""
    found: dict[str, dict[str, Any]] = {name: {**each} for name, each in boosting.documents().items()}
    for number, (name, each) in enumerate(shop.documents().items()):
        own = found[name]
        own |= {"tags": own["title"].split()[:2], "clicks": each["clicks"], "sold": number % 3 > 0}
        own |= {"year": 1990 + number % 30} if number % 7 else {}
    for query in shop.judgements()[::5]:
        found[next(iter(query["labels"]))]["title"] = query["text"].title()
    return found


class Logged:
    """A folder with the collection, and what `querywise fields --engine` wrote of it."""

    def __init__(self, folder: Path, engine: str, language: str) -> None:
        self.folder, self.engine, self.language = folder, engine, language
        queries = [{"_id": each["_id"], "text": each["text"]} for each in shop.judgements()]
        known = [(each["_id"], *own) for each in shop.judgements() for own in each["labels"].items()]
        self._write("corpus.jsonl", [json.dumps({"_id": name, **each}) for name, each in documents().items()])
        self._write("queries.jsonl", [json.dumps(each) for each in queries])
        self._write("qrels.tsv", ["\t".join(map(str, each)) for each in known])
        self.run("fields", folder, "--engine", engine, "--out", folder / "engine", "--language", language, "--quiet")
        self.index: Any = json.loads((folder / "engine" / "index.json").read_text())
        self.features: Any = json.loads((folder / "engine" / "features.json").read_text())

    def _write(self, name: str, lines: list[str]) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def run(self, *words: object) -> str:
        """What a command prints; it must succeed."""
        done = commands.run(self.folder, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def log(self, url: str, index: str, *more: object) -> tuple[Judged, dict[str, Any]]:
        """The log of an index, and how it differs from our features, by feature."""
        out = self.folder / "log" / "log.parquet"
        out.parent.mkdir(exist_ok=True)
        asked = ("--url", url, "--index", index, "--queries", self.folder, "--compare", self.folder)
        said = self.run("log", self.engine, *asked, *more, "--language", self.language, "--out", out, "--json")
        known = json.loads(said)
        assert known["absent"] == 0
        return read_judged(out), {each["feature"]: each for each in known["compared"]}

    def export(self, features: Path) -> Path:
        """A forest that learned from the log, exported with the same features."""
        log, model, out = self.folder / "log" / "log.parquet", self.folder / "model", self.folder / "export"
        self.run("fit", log, "--method", "lambdamart", "--set", "trees=30", "--out", model, "--quiet")
        asked = ("--to", self.engine, "--out", out, "--data", log, "--feature-set", features, "--name", "shop-fields")
        self.run("export", model, *asked, "--quiet")
        return out


def check(log: Judged, differences: dict[str, Any]) -> None:
    """The log has every judged document in order of the judgements, and these features are ours."""
    judged = {each["_id"]: each["labels"] for each in shop.judgements()}
    assert len(log) == len(judged)
    queries = [log.query_ids[query] for query in log.candidates.query_of_row.tolist()]
    found = dict(zip(zip(queries, log.candidates.document_ids or (), strict=True), log.labels.tolist(), strict=True))
    assert found == {(query, name): grade for query, own in judged.items() for name, grade in own.items()}
    for name in SAME:
        assert differences[name]["differ"] == 0, differences[name]
    *_, theirs, ours = differences["body.bm25"]["worst"]
    assert abs(theirs - ours) < 0.05 * ours, "long texts, whose length engines keep roughly"
    exact = log.candidates.features[:, log.candidates.column_of("title.exact")]
    assert 5 <= exact.sum() <= len(shop.judgements()[::5]), "queries that are a title"
    assert differences["brand.bm25"]["differ"] > 0, "engines count documents that have the field; we count all"
