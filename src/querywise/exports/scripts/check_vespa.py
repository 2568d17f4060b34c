"""Compare the scores of Vespa with those in parity.jsonl, for every exported model.

What it puts into the engine: documents in the application of the folder parity-app, which is to be deployed first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from querywise.exports.scripts.check_parity import EngineError, Server, main, read_text, remove_all


class Vespa:
    """Documents in the application parity-app, with a field per feature."""

    def __init__(self, server: Server, export: dict[str, Any], name: str, collection: str | None) -> None:
        self.server = server
        self.features = export["features"]["in_engine"]
        self.profile = export["name"].replace("-", "_")
        self.ids: list[str] = []
        self.models: dict[str, Path] = {}

    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """Add the documents; the models are part of the application."""
        self.models = models
        for document in documents:
            fields = {f"value{i}": document["features"][each] for i, each in enumerate(self.features)}
            self.server.ask("POST", self._place(document["id"]), {"fields": fields})
            self.ids.append(document["id"])

    def scores(self, model: str) -> dict[str, float]:
        """The engine's scores by one model: weights in the request, or a rank profile of its own."""
        path = self.models[model]
        asked: dict[str, Any] = {"yql": "select * from parity where true", "hits": len(self.ids)}
        if path.suffix == ".txt":
            asked |= {"ranking": self.profile, "input.query(w)": read_text(path).strip()}
        else:
            asked |= {"ranking": path.stem}
        found = self.server.ask("POST", "search/", asked)
        hits = found["root"]["children"]
        return {hit["fields"]["documentid"].rpartition(":")[2]: float(hit["relevance"]) for hit in hits}

    def logged(self, where: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """Refused: Vespa returns feature values only with a query's own answers, as match-features."""
        raise EngineError("--log is for Elasticsearch, OpenSearch and Solr; Vespa's answers carry matchfeatures.")

    def remove(self) -> list[str]:
        """Remove the documents."""
        return remove_all(self.server.ask, [("DELETE", self._place(name)) for name in self.ids])

    @staticmethod
    def _place(name: str) -> str:
        return f"document/v1/parity/parity/docid/{name}"


if __name__ == "__main__":
    sys.exit(main(Vespa))
