"""Latency in a real Solr: the first stage alone, ranked anew by one model, and by a routed model.

`python -m benchmarks.bench_solr FILE` writes the table of docs/engines.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

from benchmarks.bench_engines import DOCUMENTS, table, timed
from querywise import KnnOffline2, RankSVM, Router, TextView, export_model
from querywise.retrieval.reading import read_judged
from tests.engines import pages, shop, solr

_FIRST = {"q": "{!simple q.operators='' v=$keywords}", "fl": "id,score", "rows": "10", "wt": "json"}


def measured() -> dict[str, list[float]]:
    """Milliseconds of every request, by the way a query is answered."""
    with solr.serving() as node, tempfile.TemporaryDirectory(prefix="querywise-bench-") as above:
        folder = Path(above)
        node.create("shop", defaults={"qf": "title^2 body"})
        more = list(shop.documents(DOCUMENTS, seed=7).items())[len(shop.documents()) :]
        node.fill("shop", shop.documents())
        for place in range(0, len(more), 5000):
            node.fill("shop", dict(more[place : place + 5000]))
        features = _logged(node, folder)
        data = read_judged(folder / "train.txt")
        export_model(RankSVM().fit(data), "solr", folder / "one", name="one", features=features)
        local = KnnOffline2(RankSVM(), k=0.2, models=20, view=TextView(8)).fit(data)
        export_model(local, "solr", folder / "routed", name="routed", features=features)
        for name in ("one", "routed"):
            pages.run(f"{sys.executable} {name}/upload.py --url {node.url} --collection shop", folder)
        router, client = Router(folder / "routed"), Client(node.url)
        return timed(
            {
                "first stage": client.first,
                "one model in the engine": lambda words: client.ranked(words, "one"),
                "a routed model in the engine": lambda words: client.ranked(words, router.model(words)),
            }
        )


def _logged(node: solr.Solr, folder: Path) -> Any:
    """The features of Solr's page, and the data that its log.py writes."""
    blocks = pages.blocks("solr")
    features = json.loads(next(block.text for block in blocks if block.language == "json"))
    (folder / "features.json").write_text(json.dumps(features))
    (folder / "log.py").write_text(next(block.text for block in blocks if block.language == "python"))
    (folder / "judgements.jsonl").write_text(shop.judgement_lines())
    node.ask("PUT", "shop/schema/feature-store", features)
    node.reload("shop")
    pages.run(f"{sys.executable} log.py {node.url} < judgements.jsonl", folder)
    return features


class Client:
    """One connection to Solr that stays open."""

    def __init__(self, url: str) -> None:
        place, _, self._above = url.removeprefix("http://").partition("/")
        self._connection = http.client.HTTPConnection(place, timeout=60)

    def first(self, words: str) -> Any:
        """The first stage's best documents."""
        return self._asked({**_FIRST, "keywords": words})

    def ranked(self, words: str, model: str) -> Any:
        """The first stage's best hundred, ranked anew by a model."""
        by_model = f"{{!ltr model={model} reRankDocs=100 efi.keywords=$keywords}}"
        return self._asked({**_FIRST, "keywords": words, "rq": by_model})

    def _asked(self, form: dict[str, str]) -> Any:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        self._connection.request("POST", f"/{self._above}/shop/select", urllib.parse.urlencode(form), kind)
        answer = self._connection.getresponse()
        content = json.loads(answer.read())
        assert answer.status == 200, content
        return content


if __name__ == "__main__":
    text = table(f"Solr {solr.VERSION}", "bench_solr", measured())
    Path(sys.argv[1]).write_text(text, encoding="utf-8")
