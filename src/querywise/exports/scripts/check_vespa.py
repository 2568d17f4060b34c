"""Compare the scores of Vespa with those in parity.jsonl, for every exported model.

What it puts into the engine: documents in the application of the folder parity-app, which is to be deployed first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from querywise.exports.scripts.check_parity import Engine, EngineError, Server, main, read_text


class Vespa(Engine):
    """Documents in the application parity-app, with a field per feature."""

    def __init__(self, server: Server, export: dict[str, Any], name: str, collection: str | None) -> None:
        super().__init__(server, export, name)
        self.profile = export["name"].replace("-", "_")
        self.models: dict[str, Path] = {}

    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """Add the documents; the models are part of the application."""
        self.models = models
        for document in documents:
            fields = {f"value{i}": document["features"][each] for i, each in enumerate(self.features)}
            place = f"document/v1/parity/parity/docid/{document['id']}"
            self.make("POST", place, {"fields": fields}, place, "a document")

    def scores(self, model: str) -> dict[str, float]:
        """Return the engine's scores by one model: weights in the request, or its own rank profile."""
        path = self.models[model]
        asked: dict[str, Any] = {"yql": "select * from parity where true", "hits": len(self.made)}
        if path.suffix == ".txt":
            asked |= {"ranking": self.profile, "input.query(w)": read_text(path).strip()}
        else:
            asked |= {"ranking": path.stem}
        found = self.server.ask("POST", "search/", asked)
        hits = found["root"]["children"]
        return {hit["fields"]["documentid"].rpartition(":")[2]: float(hit["relevance"]) for hit in hits}

    def logged(self, where: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """Raise EngineError: Vespa returns feature values only with a query's own results, as match-features."""
        raise EngineError("--log is for Elasticsearch, OpenSearch and Solr; Vespa's answers carry matchfeatures.")


if __name__ == "__main__":
    sys.exit(main(Vespa))
