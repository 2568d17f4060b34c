"""The shop with a third, rarer field; boosts learned on it by `querywise boosts`; and the scores they predict."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from querywise.retrieval.boosts import Boosts, FieldMatches, match
from querywise.retrieval.reading import Retrieval, indexed_text
from tests import commands
from tests.engines import shop

FIELDS = ("title", "body", "brand")
TEXTS = ["seat seat leather", "seat-leather car", *(each["text"] for each in shop.judgements()[:20])]
CLOSE = 2e-6  # engines compute in single precision


def documents() -> dict[str, dict[str, str]]:
    """The shop's products; some have a brand, and some a text so long that engines keep its length roughly."""
    found = {}
    for number, (name, each) in enumerate(shop.documents().items()):
        own = {"title": each["title"], "body": " ".join([each["body"]] * (1 + number % 4))}
        found[name] = own | ({"brand": " ".join(each["title"].split()[:2])} if number % 5 == 0 else {})
    return found


class Predicted:
    """The collection as a folder, its learned boosts by form as the command wrote them, and its index."""

    def __init__(self, folder: Path, language: str = "english") -> None:
        self.folder, self.documents = folder, documents()
        self.language = None if language == "none" else language
        corpus = [{"_id": name, **each} for name, each in self.documents.items()]
        queries = [{"_id": each["_id"], "text": each["text"]} for each in shop.judgements()]
        self._write("corpus.jsonl", map(json.dumps, corpus))
        self._write("queries.jsonl", map(json.dumps, queries))
        judged = [(each["_id"], *own) for each in shop.judgements() for own in each["labels"].items()]
        self._write("qrels.tsv", ("\t".join(map(str, each)) for each in judged))
        out = folder / "boosts.json"
        asked = ("boosts", str(folder), "--candidates", "judged", "--language", language, "--quiet")
        done = commands.run(folder.parent, *asked, "--out", str(out))
        assert done.returncode == 0, done.stderr
        written: dict[str, Any] = json.loads(out.read_text())
        self.learned, self.indexes = written["forms"], written["indexes"]

    def _write(self, name: str, lines: Any) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    @cached_property
    def matches(self) -> FieldMatches:
        """All documents for every text."""
        self.index = indexed_text(self.folder, Retrieval(language=self.language))[1]
        return match(self.index, TEXTS, [np.arange(len(self.index))] * len(TEXTS))

    def scores(self, boosts: Boosts) -> list[dict[str, float]]:
        """By text, the scores of the documents that are found."""
        table = self.matches.scores(boosts).reshape(len(TEXTS), -1)
        names = list(self.index.document_ids)
        return [{name: score for name, score in zip(names, own.tolist(), strict=True) if score > 0} for own in table]

    def every(self, *forms: str) -> list[Boosts]:
        """Learned boosts of some forms, and others: with a tie breaker, with a field left out, equal ones."""
        made = []
        for form in forms:
            known = self.learned[form]
            made.append(Boosts(form, known["boosts"], known.get("tie_breaker", 0.0)))
            tie = 0.3 if "tie_breaker" in known else 0.0
            made.append(Boosts(form, {"title": 7.5, "body": 2.0, "brand": 1.0}, tie))
            made.append(Boosts(form, {"title": 1.0, "body": 0.0, "brand": 1.3}, tie))
            made.append(Boosts(form, dict.fromkeys(FIELDS, 1.0), tie))
        return made


def check(predicted: dict[str, float], found: dict[str, float], what: str, factor: float = 1.0) -> None:
    """The engine finds the documents that we do, with our scores times a factor, so in our order."""
    assert found.keys() == predicted.keys(), what
    for name, score in found.items():
        own = factor * predicted[name]
        assert abs(score - own) <= CLOSE * factor * max(predicted.values()), (what, name, score, own)
